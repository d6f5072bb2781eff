"""SentencePiece models that need no normalization before them.

Ours is done in Python and the vocabulary's own after it. Programs that know
SentencePiece alone give other ids for every line with a capital; with both in
the model they give the same.
"""

import sys
import unicodedata

import sentencepiece

from albert_tf.text import tokenization

# Not assigned, private, halves of pairs: most of Unicode.
_WITHOUT_RULES = ("Cn", "Co", "Cs")


def serialize(tokenizer: tokenization.SentencePieceTokenizer) -> bytes:
    """A .model that gives the tokenizer's ids for text as it is.

    Two things differ from the vocabulary's file: the rules of normalization,
    and pieces such as "2013,", which the tokenizer splits, are never taken.
    Ids may still differ at a capital sigma that ends a word, as rules do not
    see its neighbours, and in a number before a comma, where a small vocabulary
    has pieces such as "3," for the end of one.

    Args:
      tokenizer: a `SentencePieceTokenizer`.

    Returns:
      The bytes of the file.
    """
    from sentencepiece import sentencepiece_model_pb2

    # It tells of each set of rules on stderr.
    sentencepiece.SetMinLogLevel(1)
    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    model.ParseFromString(tokenizer.serialized_model())
    has_rules = bool(model.normalizer_spec.precompiled_charsmap)
    rules = sentencepiece.SentencePieceNormalizer(
        norm_map=_build_rules(tokenizer, has_rules)
    )
    compiled = type(model.normalizer_spec)()
    compiled.ParseFromString(rules.serialized_normalizer_spec())
    model.normalizer_spec.name = compiled.name
    model.normalizer_spec.precompiled_charsmap = compiled.precompiled_charsmap
    for i in tokenizer.expansions:
        model.pieces[i].type = model.SentencePiece.UNUSED
    return model.SerializeToString()


def _build_rules(tokenizer, has_rules):
    """What becomes of characters, and of sequences with a rule of their own."""
    own = sentencepiece.SentencePieceNormalizer(
        model_proto=tokenizer.serialized_model(),
        add_dummy_prefix=False,
        escape_whitespaces=False,
        remove_extra_whitespaces=False,
    )
    keys = [
        char
        for char in map(chr, range(1, sys.maxunicode + 1))
        if unicodedata.category(char) not in _WITHOUT_RULES
    ]
    if has_rules:
        keys += sorted((key for key, _ in own.Decompile()), key=len)
    # Between letters, so that white space is not taken off.
    changed = [tokenizer.normalize(f"a{key}a")[1:-1] for key in keys]
    rules: dict[str, str] = {}
    for key, value in zip(keys, own.Normalize(changed), strict=True):
        # All single characters come before the first sequence.
        if value != "".join(rules.get(char, char) for char in key):
            rules[key] = value
    return list(rules.items())
