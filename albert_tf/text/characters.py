"""Text as code points, with TensorFlow operations equivalent to Python's.

All tables are built by calling Python on each character, so the results do not
depend on TensorFlow's Unicode tables.

Shapes: B texts; (C) characters per text, ragged; N characters in all texts.
"""

import functools
import sys
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.text import normalization

SPACE, SIGMA, FINAL_SIGMA = map(ord, " Σς")
NO_CHARACTER = sys.maxunicode + 1
_SURROGATES = range(0xD800, 0xE000)
# Consecutive code points that Python is asked about at once.
_RUN = 256


class Characters(NamedTuple):
    """Texts as code points.

    Attributes:
      codes: [B, (C)] int32.
      starts, ends: [B, (C)] int32 each: first index and end of the original
        characters from which each character comes.
    """

    codes: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


def decode(texts) -> Characters:
    """Decodes texts, [B] UTF-8 strings, into Characters."""
    codes = tf.strings.unicode_decode(texts, "UTF-8")
    indices = tf.ragged.range(tf.cast(codes.row_lengths(), tf.int32))
    return Characters(codes, indices, indices + 1)


def _replace(characters, counts, choose):
    """Replaces each character by zero or more characters.

    `counts` [N] int32 is the number of replacements per character. `choose`
    returns the M new codes, given two [M] int32: the index (of N) of the
    character that each replaces, and its index within the replacement.
    """
    rows = tf.repeat(tf.range(tf.size(counts)), counts)  # [M]
    ends = tf.cumsum(counts)  # [N]
    nth = tf.range(tf.size(rows)) - tf.gather(ends - counts, rows)  # [M]
    splits = tf.concat([[0], ends], axis=0)
    splits = tf.gather(splits, characters.codes.row_splits)
    splits = tf.cast(splits, tf.int64)
    values = (
        choose(rows, nth),
        tf.gather(characters.starts.flat_values, rows),
        tf.gather(characters.ends.flat_values, rows),
    )
    return Characters(
        *(tf.RaggedTensor.from_row_splits(value, splits) for value in values)
    )


class CodePointTable:
    """Replaces each code point independently of its neighbors.

    `change` maps a character to its replacement, a string.
    """

    def __init__(self, change: Callable[[str], str]):
        changed = {}
        for start in range(0, NO_CHARACTER, _RUN):
            run = range(start, start + _RUN)
            text = "".join(map(chr, run))
            # Nearly all runs stay as they are, which takes one call to know.
            if start in _SURROGATES or change(text) == text:
                continue
            for code in run:
                text = change(chr(code))
                if text != chr(code):
                    changed[code] = [*map(ord, text)]
        self.keys = np.array([*changed, NO_CHARACTER], np.int32)
        self.lengths = np.array([*map(len, changed.values()), 1], np.int32)
        self.starts = np.cumsum(self.lengths, dtype=np.int32) - self.lengths
        self.codes = np.concatenate([*changed.values(), [0]]).astype(np.int32)

    def __call__(self, characters: Characters) -> Characters:
        """Returns the Characters after replacement."""
        flat = characters.codes.flat_values  # [N]
        indices = tf.searchsorted(self.keys, flat)
        is_changed = tf.gather(self.keys, indices) == flat
        starts = tf.gather(self.starts, indices)

        def choose(rows, nth):
            changed = tf.gather(is_changed, rows)
            index = tf.where(changed, tf.gather(starts, rows) + nth, 0)
            return tf.where(
                changed, tf.gather(self.codes, index), tf.gather(flat, rows)
            )

        counts = tf.where(is_changed, tf.gather(self.lengths, indices), 1)
        return _replace(characters, counts, choose)


class CanonicalOrder:
    """Puts the marks of each letter into Unicode's canonical order.

    After a decomposition, this completes `unicodedata.normalize`. A letter and
    its marks then come from the same original characters, all of them, as in
    `normalization`.
    """

    def __init__(self):
        codes = range(NO_CHARACTER)
        classes = {i: unicodedata.combining(chr(i)) for i in codes}
        marks = {code: rank for code, rank in classes.items() if rank}
        self.keys = np.array([*marks, NO_CHARACTER], np.int32)
        self.ranks = np.array([*marks.values(), 0], np.int64)

    def __call__(self, characters: Characters) -> Characters:
        """Returns the Characters in canonical order."""
        codes, starts, ends = (x.flat_values for x in characters)  # [N] each
        indices = tf.searchsorted(self.keys, codes)
        is_mark = tf.gather(self.keys, indices) == codes
        ranks = tf.where(is_mark, tf.gather(self.ranks, indices), 0)
        rows = characters.codes.value_rowids()
        is_first = _differs_from_previous(rows)
        # An original character begins a cluster unless it begins with a mark.
        begins = is_first | (_differs_from_previous(starts) & ~is_mark)
        clusters = _number(begins)
        starts = tf.gather(tf.math.segment_min(starts, clusters), clusters)
        ends = tf.gather(tf.math.segment_max(ends, clusters), clusters)
        # Marks are sorted between two characters that are none.
        runs = tf.cast(_number(is_first | ~is_mark), tf.int64)
        order = tf.argsort(256 * runs + ranks, stable=True)
        codes = tf.gather(codes, order)
        return Characters(
            *map(characters.codes.with_flat_values, (codes, starts, ends))
        )


def _differs_from_previous(values):
    """Returns whether each of N values differs from the one before, [N]."""
    return tf.concat([[True], values[1:] != values[:-1]], 0)[: tf.size(values)]


def _number(begins):
    """Returns the index of the part that each of N elements is in, [N]."""
    return tf.cumsum(tf.cast(begins, tf.int32)) - 1


class CodePointSet:
    """Tests whether code points belong to a set, for which `is_in` is true."""

    def __init__(self, is_in: Callable[[str], bool]):
        codes = (i for i in range(NO_CHARACTER) if i not in _SURROGATES)
        kept = [code for code in codes if is_in(chr(code))]
        self.codes = np.array([*kept, NO_CHARACTER], np.int32)

    def __call__(self, flat):
        """Returns membership, [N] bool, for codes [N]."""
        return tf.gather(self.codes, tf.searchsorted(self.codes, flat)) == flat


# Each set takes seconds, as Python is asked about each character of Unicode.
set_of = functools.cache(CodePointSet)


def trim(texts, starts, ends) -> tuple:
    """Trims invisible characters from the ends of spans.

    Like `normalization.trim`. It also trims answers of several tokens, which
    go from the start of the first to the end of the last. If that start is not
    below that end, the answer has no visible character.

    Returns:
      The new starts and ends of the tokens of texts [B], [B, (T)] int32 each:
      the first character and the one after the last.
    """
    codes = decode(texts).codes
    flat, splits = codes.flat_values, tf.cast(codes.row_splits, tf.int32)
    before = tf.gather(splits, starts.value_rowids())
    behind = tf.gather(splits[1:], starts.value_rowids())
    last = before + ends.flat_values
    is_shown = ~set_of(normalization.is_invisible)(flat)
    first = find_next(is_shown, before + starts.flat_values)
    end = tf.maximum(find_previous(is_shown, last) + 1, before)
    # A selector stays with its character.
    is_other = ~set_of(normalization.is_selector)(flat)
    end = tf.minimum(find_next(is_other, end), last)
    return (
        starts.with_flat_values(tf.minimum(first, behind) - before),
        ends.with_flat_values(end - before),
    )


def find_next(is_in, indices):
    """Returns the first index from each on, [M], at which is_in [N], or N."""
    places = tf.cast(tf.where(is_in)[:, 0], tf.int32)
    places = tf.concat([places, [tf.size(is_in)]], axis=0)
    return tf.gather(places, _count_before(is_in, indices))


def find_previous(is_in, indices):
    """Returns the last index before each, [M], at which is_in [N], or -1."""
    places = tf.cast(tf.where(is_in)[:, 0], tf.int32)
    places = tf.concat([[-1], places], axis=0)
    return tf.gather(places, _count_before(is_in, indices))


def _count_before(is_in, indices):
    counts = tf.cumsum(tf.cast(is_in, tf.int32))
    return tf.gather(tf.concat([[0], counts], axis=0), indices)


def join_words(characters: Characters) -> Characters:
    """Joins words with single spaces, like " ".join(text.split())."""
    flat = characters.codes.flat_values  # [N]
    is_word = ~set_of(str.isspace)(flat)
    rows = characters.codes.value_rowids()
    follows_word = tf.concat([[False], is_word[:-1]], axis=0)
    # The first character of a text never continues a word of another text.
    follows_word &= rows == tf.concat([[-1], rows[:-1]], axis=0)
    is_start = is_word & ~follows_word
    words_before = tf.cumsum(tf.cast(is_start, tf.int32), exclusive=True)
    # Counts only words of preceding texts.
    words_before_text = tf.gather(tf.math.segment_min(words_before, rows), rows)
    counts = tf.cast(is_word, tf.int32)
    counts += tf.cast(is_start & (words_before > words_before_text), tf.int32)

    def choose(rows, nth):
        # The first letter of each other word becomes a space and itself.
        is_space = (tf.gather(counts, rows) == 2) & (nth == 0)
        return tf.where(is_space, SPACE, tf.gather(flat, rows))

    joined = _replace(characters, counts, choose)
    codes, starts, ends = (x.flat_values for x in joined)
    # A space goes from the end of a word to the start of the next one.
    is_space = codes == SPACE
    before = tf.concat([[0], ends], axis=0)[:-1]
    places = (
        codes,
        tf.where(is_space, before, starts),
        tf.where(is_space, starts, ends),
    )
    return Characters(*map(joined.codes.with_flat_values, places))


class LowerCase:
    """Equivalent of str.lower, including the final sigma of Greek words."""

    def __init__(self):
        self.table = CodePointTable(str.lower)
        # Python does not expose which characters it skips and which it treats
        # as letters for this rule, so they are found by trying each.
        self.is_letter = CodePointSet(lambda c: f"aΣ{c}".lower()[1] == "σ")
        self.is_skipped = CodePointSet(
            lambda c: f"aΣ{c}".lower()[1] == "ς" and f"aΣ{c}a".lower()[1] == "σ"
        )

    def __call__(self, characters: Characters) -> Characters:
        """Returns the lower-cased Characters."""
        flat = characters.codes.flat_values  # [N]
        row = characters.codes.value_rowids()
        is_kept = ~self.is_skipped(flat)
        index = tf.range(tf.size(flat))

        def is_letter_at(position):
            is_valid = (position >= 0) & (position < tf.size(flat))
            position = tf.where(is_valid, position, 0)
            is_valid &= tf.gather(row, position) == row
            return is_valid & self.is_letter(tf.gather(flat, position))

        is_final = (flat == SIGMA) & is_letter_at(find_previous(is_kept, index))
        is_final &= ~is_letter_at(find_next(is_kept, index + 1))
        codes = characters.codes.with_flat_values(
            tf.where(is_final, FINAL_SIGMA, flat)
        )
        return self.table(characters._replace(codes=codes))


def find_codes(characters: Characters, rows, offsets) -> tf.Tensor:
    """Converts byte offsets into indices of the N codes.

    The offsets [M] are in the UTF-8 form of the texts of the indices `rows`
    [M].

    Returns:
      [M] int32 indices; N for an offset beyond the end of its text.
    """
    flat = characters.codes.flat_values  # [N]
    limits = tf.constant([0x80, 0x800, 0x10000])
    sizes = 1 + tf.searchsorted(limits, flat, side="right")
    ends = tf.cumsum(sizes)  # [N]
    splits = characters.codes.row_splits  # [B + 1]
    before = tf.gather(tf.concat([[0], ends], axis=0), splits)
    offsets = tf.gather(before, rows) + tf.cast(offsets, tf.int32)
    indices = tf.searchsorted(ends, offsets, side="right")
    is_inside = tf.cast(indices, tf.int64) < tf.gather(splits[1:], rows)
    return tf.where(is_inside, indices, tf.size(flat))
