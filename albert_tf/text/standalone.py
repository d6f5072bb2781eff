"""Writes SentencePiece models that include this package's normalization.

The tokenizers of this package normalize text in Python before SentencePiece
applies the vocabulary's own rules. With both in the model, programs that only
use SentencePiece compute the same ids; otherwise, every line with a capital
differs.
"""

import sys
import unicodedata

import sentencepiece

from albert_tf.text import tokenization

# Unassigned, private and surrogate code points: most of Unicode.
_WITHOUT_RULES = ("Cn", "Co", "Cs")


def serialize(tokenizer: tokenization.SentencePieceTokenizer) -> bytes:
    """Returns the bytes of a .model that computes the ids from raw text.

    It differs from the vocabulary's file in two ways: its normalization rules
    include the tokenizer's, and it never uses pieces such as "2013,", which
    the tokenizer splits. Ids may still differ for a capital sigma at the end
    of a word, because rules have no context, and for a number before a comma
    if a small vocabulary has pieces such as "3," for the end of numbers.
    """
    # Suppresses a message on stderr for each set of rules.
    sentencepiece.SetMinLogLevel(1)
    model = tokenizer.read_model()
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
    """Returns pairs of a character or sequence and its normalized form.

    Sequences are those that the vocabulary's own rules contain.
    """
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
    # Between letters, so that white space is not stripped.
    changed = [tokenizer.normalize(f"a{key}a")[1:-1] for key in keys]
    rules: dict[str, str] = {}
    for key, value in zip(keys, own.Normalize(changed), strict=True):
        # Characters precede sequences, so their rules are complete here.
        if value != "".join(rules.get(char, char) for char in key):
            rules[key] = value
    return list(rules.items())
