"""Texts as code points, and operations that change them as Python would.

Tables are made from what Python does with each character, so nothing depends
on TensorFlow's tables of Unicode.

Shapes: B texts; (C) characters of each, ragged; N characters of all of them.
"""

import functools
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

SPACE, SIGMA, FINAL_SIGMA = map(ord, " Σς")
NO_CHARACTER = sys.maxunicode + 1
_SURROGATES = range(0xD800, 0xE000)


class Characters(NamedTuple):
    """Texts as code points.

    Attributes:
      codes: [B, (C)] int32.
      sources: [B, (C)] int32: which character of the original text each is,
        or comes from.
    """

    codes: tf.RaggedTensor
    sources: tf.RaggedTensor


def decode(texts) -> Characters:
    """Returns the Characters of texts, [B] strings in UTF-8."""
    codes = tf.strings.unicode_decode(texts, "UTF-8")
    lengths = codes.row_lengths()
    sources = tf.ragged.range(tf.cast(lengths, tf.int32))
    return Characters(codes, sources.with_row_splits_dtype(tf.int64))


def _replace(characters, counts, choose):
    """Puts some characters, or none, in the place of each.

    `counts` [N] int32 says how many. `choose` gives the M new codes; it gets
    two [M] int32: which of the N each replaces, and its number there, from 0.
    """
    rows = tf.repeat(tf.range(tf.size(counts)), counts)  # [M]
    ends = tf.cumsum(counts)  # [N]
    nth = tf.range(tf.size(rows)) - tf.gather(ends - counts, rows)  # [M]
    splits = tf.concat([[0], ends], axis=0)
    splits = tf.gather(splits, characters.codes.row_splits)
    splits = tf.cast(splits, tf.int64)
    sources = tf.gather(characters.sources.flat_values, rows)
    return Characters(
        tf.RaggedTensor.from_row_splits(choose(rows, nth), splits),
        tf.RaggedTensor.from_row_splits(sources, splits),
    )


class CodePointTable:
    """Replaces code points, each by itself.

    Args:
      change: function from a character to a string.
    """

    def __init__(self, change: Callable[[str], str]):
        changed = {}
        for code in range(NO_CHARACTER):
            if code not in _SURROGATES:
                text = change(chr(code))
                if text != chr(code):
                    changed[code] = [*map(ord, text)]
        self.keys = np.array([*changed, NO_CHARACTER], np.int32)
        self.lengths = np.array([*map(len, changed.values()), 1], np.int32)
        self.starts = np.cumsum(self.lengths, dtype=np.int32) - self.lengths
        self.codes = np.concatenate([*changed.values(), [0]]).astype(np.int32)

    def __call__(self, characters: Characters) -> Characters:
        """Returns the Characters after the replacement."""
        flat = characters.codes.flat_values  # [N]
        places = tf.searchsorted(self.keys, flat)
        is_changed = tf.gather(self.keys, places) == flat
        starts = tf.gather(self.starts, places)

        def choose(rows, nth):
            changed = tf.gather(is_changed, rows)
            place = tf.where(changed, tf.gather(starts, rows) + nth, 0)
            return tf.where(
                changed, tf.gather(self.codes, place), tf.gather(flat, rows)
            )

        counts = tf.where(is_changed, tf.gather(self.lengths, places), 1)
        return _replace(characters, counts, choose)


class CodePointSet:
    """Whether code points are of a kind.

    Args:
      is_in: function from a character to a truth value.
    """

    def __init__(self, is_in: Callable[[str], bool]):
        codes = (i for i in range(NO_CHARACTER) if i not in _SURROGATES)
        kept = [code for code in codes if is_in(chr(code))]
        self.codes = np.array([*kept, NO_CHARACTER], np.int32)

    def __call__(self, flat):
        """Returns [N] bool for codes [N]."""
        return tf.gather(self.codes, tf.searchsorted(self.codes, flat)) == flat


@functools.cache
def _spaces():
    return CodePointSet(str.isspace)


def join_words(characters: Characters) -> Characters:
    """Puts single spaces between words, as " ".join(text.split()) does."""
    flat = characters.codes.flat_values  # [N]
    is_word = ~_spaces()(flat)
    rows = characters.codes.value_rowids()
    is_behind_word = tf.concat([[False], is_word[:-1]], axis=0)
    # A text's first character begins a word whatever the text before ends in.
    is_behind_word &= rows == tf.concat([[-1], rows[:-1]], axis=0)
    is_start = is_word & ~is_behind_word
    words_before = tf.cumsum(tf.cast(is_start, tf.int32), exclusive=True)
    words_of_others = tf.gather(tf.math.segment_min(words_before, rows), rows)
    counts = tf.cast(is_word, tf.int32)
    counts += tf.cast(is_start & (words_before > words_of_others), tf.int32)

    def choose(rows, nth):
        is_space = (tf.gather(counts, rows) == 2) & (nth == 0)
        return tf.where(is_space, SPACE, tf.gather(flat, rows))

    return _replace(characters, counts, choose)


class LowerCase:
    """str.lower, which writes the last sigma of a Greek word differently."""

    def __init__(self):
        self.table = CodePointTable(str.lower)
        # Python does not say which characters it skips and which it takes for
        # letters here, but shows it.
        self.is_letter = CodePointSet(lambda c: f"aΣ{c}".lower()[1] == "σ")
        self.is_skipped = CodePointSet(
            lambda c: f"aΣ{c}".lower()[1] == "ς" and f"aΣ{c}a".lower()[1] == "σ"
        )

    def __call__(self, characters: Characters) -> Characters:
        """Returns the Characters in lower case."""
        flat = characters.codes.flat_values  # [N]
        row = characters.codes.value_rowids()
        kept = tf.where(~self.is_skipped(flat))[:, 0]  # [K] places
        kept = tf.concat([[-1], kept, [tf.size(flat, tf.int64)]], axis=0)
        places = tf.range(tf.size(flat, tf.int64))
        before = tf.searchsorted(kept, places) - 1
        after = tf.searchsorted(kept, places, side="right")

        def is_letter_at(indices):
            place = tf.gather(kept, indices)
            is_there = (place >= 0) & (place < tf.size(flat, tf.int64))
            place = tf.where(is_there, place, 0)
            is_there &= tf.gather(row, place) == row
            return is_there & self.is_letter(tf.gather(flat, place))

        is_final = (flat == SIGMA) & is_letter_at(before)
        is_final &= ~is_letter_at(after)
        codes = characters.codes.with_flat_values(
            tf.where(is_final, FINAL_SIGMA, flat)
        )
        return self.table(characters._replace(codes=codes))


def find_codes(characters: Characters, rows, offsets) -> tf.Tensor:
    """Returns [M] int32: which of all N codes stand at some bytes.

    `rows` [M] are numbers of texts, `offsets` [M] bytes of these in UTF-8; N is
    returned behind the end of a text.
    """
    flat = characters.codes.flat_values  # [N]
    limits = tf.constant([0x80, 0x800, 0x10000])
    sizes = 1 + tf.searchsorted(limits, flat, side="right")
    ends = tf.cumsum(sizes)  # [N]
    splits = characters.codes.row_splits  # [B + 1]
    before = tf.gather(tf.concat([[0], ends], axis=0), splits)
    offsets = tf.gather(before, rows) + tf.cast(offsets, tf.int32)
    places = tf.searchsorted(ends, offsets, side="right")
    is_inside = tf.cast(places, tf.int64) < tf.gather(splits[1:], rows)
    return tf.where(is_inside, places, tf.size(flat))
