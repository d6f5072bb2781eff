"""SentencePiece models that need no normalization before them.

Ours is done in Python and the vocabulary's own after it. Programs that know
SentencePiece alone give other ids for every line with a capital; with both in
the model they give the same.
"""

import itertools
import sys

import sentencepiece

from albert_tf.text import tokenization


def serialize(tokenizer: tokenization.SentencePieceTokenizer) -> bytes:
    """A .model that gives the tokenizer's ids for text as it is.

    Two things differ from the vocabulary's file: the rules of normalization,
    and pieces such as "2013,", which the tokenizer splits, are never taken.
    A capital sigma at the end of a word is the one known letter whose lower
    case depends on others, which rules cannot say.

    Args:
      tokenizer: a `SentencePieceTokenizer`.

    Returns:
      The bytes of the file.
    """
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    model.ParseFromString(tokenizer.serialized_model())
    # It tells of each set of rules on stderr.
    sentencepiece.SetMinLogLevel(1)
    rules = sentencepiece.SentencePieceNormalizer(
        norm_map=build_rules(tokenizer)
    )
    compiled = type(model.normalizer_spec)()
    compiled.ParseFromString(rules.serialized_normalizer_spec())
    model.normalizer_spec.name = compiled.name
    model.normalizer_spec.precompiled_charsmap = compiled.precompiled_charsmap
    for i in tokenizer.expansions:
        model.pieces[i].type = model.SentencePiece.UNUSED
    return model.SerializeToString()


def build_rules(
    tokenizer: tokenization.SentencePieceTokenizer,
) -> list[tuple[str, str]]:
    """What becomes of characters, and of sequences with a rule of their own."""
    own = sentencepiece.SentencePieceNormalizer(
        model_proto=tokenizer.serialized_model(),
        add_dummy_prefix=False,
        escape_whitespaces=False,
        remove_extra_whitespaces=False,
    )
    codes = itertools.chain(range(1, 0xD800), range(0xE000, sys.maxunicode + 1))
    keys = list(map(chr, codes))
    keys += [key for key, _ in own.Decompile() if len(key) > 1]
    # Between letters, so that white space is not taken off.
    changed = [tokenizer.normalize(f"a{key}a")[1:-1] for key in keys]
    rules: dict[str, str] = {}
    for key, value in zip(keys, own.Normalize(changed), strict=True):
        # All single characters come before the first sequence.
        if value != "".join(rules.get(char, char) for char in key):
            rules[key] = value
    return list(rules.items())
