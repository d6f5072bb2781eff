"""Words and their pieces as TensorFlow operations, as in Python.

Shapes: B texts; (W) words and (P) pieces per text, ragged; N characters in all
texts; W and P words and pieces of all texts; V pieces of a vocabulary.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.text import characters, normalization, tokenization, words


class Words(NamedTuple):
    """Words of texts.

    Attributes:
      texts: [B, (W)] strings.
      starts, ends: [B, (W)] int32 each: first character and end.
    """

    texts: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


def find_words(texts) -> Words:
    """Finds the words of texts, [B] strings, like `words.find_words`."""
    codes = characters.decode(texts).codes
    # A space ends the last word of each text.
    space = tf.fill([codes.nrows(), 1], characters.SPACE)
    codes = tf.concat([codes, space], axis=1)
    flat = codes.flat_values  # [N]
    index = tf.range(tf.size(flat))
    is_space, is_invisible, is_joined, is_letter = (
        characters.set_of(is_in)(flat)
        for is_in in (
            str.isspace,
            normalization.is_invisible,
            words.is_joined,
            words.is_letter,
        )
    )
    # An invisible character belongs to a visible one before, if there is one.
    last_visible = characters.find_previous(~is_invisible, index)
    has_visible = last_visible > characters.find_previous(is_space, index)
    is_inside = ~is_space & (~is_invisible | has_visible)
    follows = tf.concat([[False], is_inside[:-1]], axis=0)
    # The character that decides whether the word before is a run of letters.
    last = characters.find_previous(~is_joined, index)
    is_run = last > characters.find_previous(~is_inside, index)
    is_run &= tf.gather(is_letter, tf.maximum(last, 0))
    begins = is_inside & ~(follows & (is_joined | (is_run & is_letter)))
    starts = tf.boolean_mask(index, begins)  # [W]
    ends = characters.find_next(begins | ~is_inside, starts + 1)
    rows = tf.boolean_mask(codes.value_rowids(), begins)
    before = tf.gather(tf.cast(codes.row_splits, tf.int32), rows)
    spelled = tf.gather(flat, tf.ragged.range(starts, ends))  # [W, (C)]
    return Words(
        *(
            tf.RaggedTensor.from_value_rowids(x, rows, codes.nrows())
            for x in (
                tf.strings.unicode_encode(spelled, "UTF-8"),
                starts - before,
                ends - before,
            )
        )
    )


def build_divisions(tokenizer: tokenization.Tokenizer) -> tuple:
    """Returns the words of those D pieces that have several.

    Returns:
      [D + 1, (words), (ids)] int32, see `Tokenizer.divisions`; the last row,
      [[-1]], is that of all other pieces. And [V] int32, the row of each piece.
    """
    found = tokenizer.divisions
    rows = np.full(tokenizer.vocab_size, len(found), np.int32)
    rows[[*found]] = np.arange(len(found))
    ids = tf.ragged.constant([*found.values(), [[-1]]], tf.int32)
    return ids, tf.constant(rows)


def divide_pieces(found: Words, ids, starts, ends, *, divisions) -> tuple:
    """Divides the pieces of several words, like `word_windows.encode_words`.

    Args:
      found: words of the texts.
      ids: [B, (P)] int32, with starts and ends from
        `GraphTokenizer.tokenize_with_offsets`.
      starts: first character of each piece.
      ends: its end.
      divisions: from `build_divisions`.

    Returns:
      The same three, of more pieces.
    """
    place = _build_place(found, ends)
    first = tf.searchsorted(place(found.ends), place(starts), side="right")
    count = tf.searchsorted(place(found.starts), place(ends)) - first  # [P]
    words_of_rows, rows_of_pieces = divisions  # [D + 1, (words), (ids)], [V]
    row = tf.gather(rows_of_pieces, ids.flat_values)
    num_words = tf.gather(words_of_rows.row_lengths(), row)
    is_divided = (count > 1) & (tf.cast(count, tf.int64) == num_words)
    other = tf.cast(words_of_rows.nrows(), tf.int32) - 1
    row = tf.where(is_divided, row, other)
    parts = tf.gather(words_of_rows, row)  # [P, (words), (ids)]

    piece = parts.value_rowids()  # [Q]: of each word of each piece
    number = tf.range(tf.size(piece)) - tf.cast(
        tf.gather(parts.row_starts(), piece), tf.int32
    )
    word = tf.gather(first, piece) + number
    is_divided = tf.gather(is_divided, piece)

    def cut(piece_ends, word_ends, choose):
        """Returns the ends of the new pieces, [R] int32."""
        whole = tf.gather(piece_ends.flat_values, piece)  # [Q]
        # Of a piece behind the last word.
        of_words = tf.concat([word_ends.flat_values, [0]], axis=0)
        inner = choose(whole, tf.gather(of_words, word))
        inner = tf.where(is_divided, inner, whole)
        return tf.gather(inner, parts.values.value_rowids())

    piece_of_part = tf.gather(piece, parts.values.value_rowids())  # [R]
    rows = tf.gather(ids.value_rowids(), piece_of_part)
    new_ids = tf.gather(ids.flat_values, piece_of_part)
    values = (
        tf.where(parts.flat_values < 0, new_ids, parts.flat_values),
        cut(starts, found.starts, tf.maximum),
        cut(ends, found.ends, tf.minimum),
    )
    return tuple(
        tf.RaggedTensor.from_value_rowids(x, rows, ids.nrows()) for x in values
    )


def place_words(found: Words, ids, starts, ends, *, unk_id: int) -> tuple:
    """Finds the first piece of each word, like `word_windows.encode_words`.

    Args:
      found: words of the texts.
      ids: [B, (P)] int32, with starts and ends from `divide_pieces`.
      starts: first character of each piece.
      ends: its end.
      unk_id: id of the piece for a word that has none.

    Returns:
      The ids, [B, (P)] int32, with those of words without pieces; and [W] int32
      the index of each word's first piece among those of all texts.
    """
    num_words, num_pieces = tf.size(found.starts), tf.size(ids)
    rows = ids.value_rowids()
    place = _build_place(found, ends)
    first = place(found.starts)  # [W]
    # The first word that ends after the piece's start.
    word = tf.searchsorted(place(found.ends), place(starts), side="right")
    begins = tf.gather(tf.concat([first, [tf.int64.max]], axis=0), word)  # [P]
    is_piece = (begins < place(ends)) & (starts.flat_values < ends.flat_values)
    # [W]; of a word without pieces, the largest number.
    pieces = tf.math.unsorted_segment_min(
        tf.boolean_mask(tf.range(num_pieces), is_piece),
        tf.boolean_mask(word, is_piece),
        num_words,
    )
    is_lost = pieces >= num_pieces
    lost = tf.boolean_mask(tf.range(num_words), is_lost)  # [L]
    before = tf.searchsorted(place(starts), tf.gather(first, lost))  # [L]
    order = tf.argsort(
        tf.concat([2 * before, 2 * tf.range(num_pieces) + 1], 0), stable=True
    )  # [L + P]
    unknown = tf.fill(tf.shape(lost), unk_id)
    lost_rows = tf.gather(found.starts.value_rowids(), lost)
    joined = tf.RaggedTensor.from_value_rowids(
        tf.gather(tf.concat([unknown, ids.flat_values], 0), order),
        tf.gather(tf.concat([lost_rows, rows], 0), order),
        ids.nrows(),
    )
    places = tf.math.invert_permutation(order)  # [L + P]
    num_lost = tf.size(lost)
    # The places of lost words come first.
    old = tf.where(
        is_lost, tf.cumsum(tf.cast(is_lost, tf.int32)) - 1, pieces + num_lost
    )
    return joined, tf.gather(places, old)


def _build_place(found, ends):
    """Builds a function from characters to places in all texts in a row.

    They are those of words or of pieces, [B, (W)] or [B, (P)].
    """
    longest = 1 + tf.reduce_max(tf.concat([ends.flat_values, [0]], axis=0))
    longest = tf.reduce_max(tf.concat([found.ends.flat_values, [longest]], 0))
    size = tf.cast(longest + 1, tf.int64)

    def place(ragged):
        """Returns a place for each of the values, [W] or [P] int64."""
        values = tf.cast(ragged.flat_values, tf.int64)
        return tf.cast(ragged.value_rowids(), tf.int64) * size + values

    return place
