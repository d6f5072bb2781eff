"""The tokenizers as TensorFlow operations: text to ids inside a SavedModel.

Normalization follows tables that are made, character by character, from what
Python does, so it does not depend on TensorFlow's tables of Unicode. Only the
pieces come from tensorflow-text.

Shapes: B texts; (C) characters and (T) tokens of each, ragged; T tokens after
padding.
"""

import functools
import sys
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text

from albert_tf import normalization, tokenization

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


def decode(texts):
    """Returns the Characters of texts, [B] strings in UTF-8."""
    codes = tf.strings.unicode_decode(texts, "UTF-8")
    lengths = codes.row_lengths()
    sources = tf.ragged.range(tf.cast(lengths, tf.int32))
    return Characters(codes, sources.with_row_splits_dtype(tf.int64))


def _replace(characters, counts, choose):
    """Puts some characters, or none, in the place of each.

    Args:
      characters: Characters, N in all texts together.
      counts: [N] int32, how many take the place of each.
      choose: function to the M new codes. It gets two [M] int32: which of the
        N each takes the place of, and the how manieth there it is.
    """
    rows = tf.repeat(tf.range(tf.size(counts)), counts)  # [M]
    ends = tf.cumsum(counts)  # [N]
    nth = tf.range(tf.size(rows)) - tf.gather(ends - counts, rows)  # [M]
    splits = tf.gather(
        tf.concat([[0], ends], axis=0), characters.codes.row_splits
    )
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

    def __init__(self, change):
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

    def __call__(self, characters):
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

    def __init__(self, is_in):
        codes = (i for i in range(NO_CHARACTER) if i not in _SURROGATES)
        found = [code for code in codes if is_in(chr(code))]
        self.codes = np.array([*found, NO_CHARACTER], np.int32)

    def __call__(self, flat):
        """Returns [N] bool for codes [N]."""
        return tf.gather(self.codes, tf.searchsorted(self.codes, flat)) == flat


@functools.cache
def _spaces():
    return CodePointSet(str.isspace)


def join_words(characters):
    """Puts single spaces between words, as " ".join(text.split()) does."""
    flat = characters.codes.flat_values  # [N]
    is_word = ~_spaces()(flat)
    is_start = is_word & ~tf.concat([[False], is_word[:-1]], axis=0)
    firsts = characters.codes.row_starts()
    # A text's first character begins a word whatever the text before ends in.
    is_first = tf.scatter_nd(
        tf.boolean_mask(firsts, characters.codes.row_lengths() > 0)[:, None],
        tf.ones(
            tf.math.count_nonzero(characters.codes.row_lengths())[None],
            tf.int32,
        ),
        tf.shape(flat, tf.int64),
    )
    is_start |= is_word & (is_first > 0)
    words = tf.RaggedTensor.from_row_splits(
        tf.cast(is_start, tf.int32), characters.codes.row_splits
    )
    words_before = tf.cumsum(words.flat_values, exclusive=True) - tf.gather(
        tf.cumsum(tf.concat([[0], tf.reduce_sum(words, axis=1)], axis=0)),
        tf.cast(words.value_rowids(), tf.int32),
    )
    counts = tf.cast(is_word, tf.int32)
    counts += tf.cast(is_start & (words_before > 0), tf.int32)

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

    def __call__(self, characters):
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


def check_tokenizer(tokenizer):
    """Raises ValueError if a tokenizer cannot be put into a graph."""
    if tokenizer.settings["keep_accents"]:
        raise ValueError(
            "A tokenizer with keep_accents cannot be put into a graph: "
            "the order of several accents would be another."
        )


class GraphTokenizer:
    """A tokenizer as operations; it gives the ids that `tokenizer` gives.

    Args:
      tokenizer: a `tokenization.Tokenizer`.

    Raises:
      ValueError: if it keeps accents, whose order only Python sorts here.
    """

    def __init__(self, tokenizer):
        check_tokenizer(tokenizer)
        self.tokenizer = tokenizer
        kinds = {
            normalization.WORDS: lambda: join_words,
            normalization.LOWER: LowerCase,
        }
        self.steps = [
            kinds[step]() if step in kinds else CodePointTable(step)
            for step in tokenizer.normalizer_steps()
        ]
        is_pieces = tokenizer.kind == "sentencepiece"
        build = _build_sentencepiece if is_pieces else _build_wordpiece
        self._split, self._split_with_offsets, resources = build(tokenizer)
        # What a SavedModel of `tokenize_with_offsets` has to keep.
        self.resources = resources

    def normalize(self, texts):
        """Returns the Characters of texts, [B] strings, once normalized."""
        characters = decode(texts)
        for step in self.steps:
            characters = step(characters)
        return characters

    def tokenize(self, texts):
        """Returns [B, (T)] int32: the ids of texts, [B] strings."""
        codes = self.normalize(texts).codes
        return self._split(tf.strings.unicode_encode(codes, "UTF-8"))

    def tokenize_with_offsets(self, texts):
        """Returns ids, and the characters of texts that each stands for.

        With SentencePiece, another of equally probable splits may be taken
        than by `tokenize`: the operation that is equal to Python's tells no
        offsets.

        Args:
          texts: [B] strings.

        Returns:
          ids, starts and ends, [B, (T)] int32 each; ends are exclusive and may
          have white space before them.
        """
        characters = self.normalize(texts)
        codes, sources = (x.flat_values for x in characters)  # [N] each
        ids, starts, ends = self._split_with_offsets(
            tf.strings.unicode_encode(characters.codes, "UTF-8")
        )
        lengths = tf.strings.length(texts, unit="UTF8_CHAR")  # [B]
        lengths = tf.gather(lengths, ids.value_rowids())
        sources = tf.concat([sources, [0]], axis=0)
        codes = tf.concat([codes, [SPACE]], axis=0)
        is_some = ends.flat_values > starts.flat_values
        first, behind, last = (
            _find_codes(characters, ids.value_rowids(), x)
            for x in (
                starts.flat_values,
                ends.flat_values,
                tf.maximum(ends.flat_values - 1, 0),
            )
        )  # N where the text ends
        none = tf.size(codes) - 1
        starts, ends = (
            tf.where(x < none, tf.gather(sources, x), lengths)
            for x in (first, behind)
        )
        # One character, such as "½", may have become several tokens. A token
        # of white space, or of nothing, stands for no character.
        is_word = (tf.gather(codes, last) != SPACE) & is_some
        ends = tf.where(
            is_word, tf.maximum(ends, tf.gather(sources, last) + 1), ends
        )
        return ids, ids.with_flat_values(starts), ids.with_flat_values(ends)


def _find_codes(characters, rows, offsets):
    """Returns [M] int32: which of the N codes stand at some bytes.

    Args:
      characters: Characters of B texts, N codes.
      rows: [M] numbers of texts.
      offsets: [M] bytes of the text in UTF-8; N is returned behind its end.
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


def _build_sentencepiece(tokenizer):
    """Functions from normalized texts [B] to ids, and to ids and bytes."""
    # Its namesake without Fast decides otherwise between splits that are
    # equally probable: "oo oooo" and "oooo oo".
    model = tensorflow_text.FastSentencepieceTokenizer(
        tokenizer.serialized_model()
    )
    rows = [
        tokenizer.expansions.get(i, [i]) for i in range(tokenizer.vocab_size)
    ]
    expansions = tf.ragged.constant(rows, tf.int32)

    def split(texts):
        ids = model.tokenize(texts).with_row_splits_dtype(tf.int64)
        return tf.gather(expansions, ids).merge_dims(1, 2)

    slow_model = tensorflow_text.SentencepieceTokenizer(
        tokenizer.serialized_model(), out_type=tf.int32
    )

    def split_with_offsets(texts):
        ids, starts, ends = slow_model.tokenize_with_offsets(texts)
        ids = tf.gather(expansions, ids)  # [B, (T), (parts)]
        counts = tf.cast(ids.row_lengths(axis=2).flat_values, tf.int32)
        ids = ids.merge_dims(1, 2)
        starts, ends = (
            tf.cast(tf.repeat(x.flat_values, counts), tf.int32)
            for x in (starts, ends)
        )
        # Of "2013," the last part is the comma; the others share the number.
        lasts = tf.cumsum(counts) - 1
        is_comma = tf.repeat(lasts, counts) == tf.range(tf.size(starts))
        is_divided = tf.repeat(counts > 1, counts)
        commas = ends - 1
        starts = tf.where(is_divided & is_comma, commas, starts)
        ends = tf.where(is_divided & ~is_comma, commas, ends)
        return ids, ids.with_flat_values(starts), ids.with_flat_values(ends)

    return split, split_with_offsets, [slow_model]


def _build_wordpiece(tokenizer):
    """Functions from normalized texts [B] to ids, and to ids and bytes."""
    unknown = tokenizer.pieces[tokenizer.unk_id]
    model = tensorflow_text.FastWordpieceTokenizer(
        tokenizer.pieces,
        max_bytes_per_word=4 * tokenization.MAX_CHARS_PER_WORD,
        token_out_type=tf.int32,
        unknown_token=unknown,
        no_pretokenization=True,
    )

    def split_words(texts):
        words = tf.strings.split(texts)  # [B, (words)]
        lengths = tf.strings.length(words.flat_values, unit="UTF8_CHAR")
        is_long = lengths > tokenization.MAX_CHARS_PER_WORD
        return words, words.with_flat_values(
            tf.where(is_long, unknown, words.flat_values)
        )

    def split(texts):
        return model.tokenize(split_words(texts)[1]).merge_dims(1, 2)

    def split_with_offsets(texts):
        words, known = split_words(texts)
        sizes = words.with_flat_values(tf.strings.length(words.flat_values) + 1)
        # Words have single spaces between them.
        before = tf.cumsum(sizes.flat_values, exclusive=True) - tf.gather(
            tf.cumsum(tf.reduce_sum(sizes, axis=1), exclusive=True),
            words.value_rowids(),
        )
        ids, starts, ends = model.tokenize_with_offsets(known)
        before = tf.repeat(before, ids.row_lengths(axis=2).flat_values)
        # Of a word that is unknown as a whole, all of it.
        sizes = tf.repeat(
            sizes.flat_values - 1, ids.row_lengths(axis=2).flat_values
        )
        is_unknown = ids.flat_values == tokenizer.unk_id
        ids = ids.merge_dims(1, 2)
        starts, ends = (
            tf.cast(x.flat_values, tf.int32) for x in (starts, ends)
        )
        return (
            ids,
            ids.with_flat_values(before + tf.where(is_unknown, 0, starts)),
            ids.with_flat_values(before + tf.where(is_unknown, sizes, ends)),
        )

    return split, split_with_offsets, []


def pack(tokenizer, segments, seq_length):
    """Packs token ids as [CLS] A [SEP] (B [SEP]), padded.

    The longer of two segments loses its last tokens until both fit, as in
    `examples.pack_pairs`; a second one without tokens has no [SEP].

    Args:
      tokenizer: a `tokenization.Tokenizer`, for the special ids.
      segments: one or two of [B, (T)] int32.
      seq_length: T, a scalar tensor, at least 3.

    Returns:
      Dict of `input_word_ids`, `input_mask` and `input_type_ids`, [B, T] int32.
    """
    if len(segments) not in (1, 2):
        raise ValueError(f"{len(segments)} segments; wanted one or two.")
    tf.debugging.assert_greater_equal(
        seq_length,
        3,
        "seq_length wants at least 3, for [CLS], a token and [SEP].",
    )
    rows = segments[0].nrows()
    none = tf.RaggedTensor.from_row_splits(
        tf.zeros([0], tf.int32), tf.zeros([rows + 1], tf.int64)
    )
    first, second = [*segments, none][:2]
    lengths = [tf.cast(x.row_lengths(), tf.int32) for x in (first, second)]
    has_second = lengths[1] > 0  # [B]
    limit = seq_length - 2 - tf.cast(has_second, tf.int32)  # [B]
    half = limit // 2
    kept_second = tf.minimum(lengths[1], tf.maximum(half, limit - lengths[0]))
    kept_first = tf.minimum(lengths[0], limit - kept_second)
    cls, sep = (
        tf.fill([rows, 1], i) for i in (tokenizer.cls_id, tokenizer.sep_id)
    )
    last = tf.ragged.boolean_mask(sep, kept_second[:, tf.newaxis] > 0)
    first = tf.concat([cls, _cut(first, kept_first), sep], axis=1)
    second = tf.concat([_cut(second, kept_second), last], axis=1)
    values = {
        "input_word_ids": tf.concat([first, second], axis=1),
        "input_type_ids": tf.concat(
            [tf.zeros_like(first), tf.ones_like(second)], axis=1
        ),
    }
    values["input_mask"] = tf.ones_like(values["input_word_ids"])
    shape = tf.stack([rows, tf.cast(seq_length, tf.int64)])
    packed = {}
    for name, value in values.items():
        padding = tokenizer.pad_id if name == "input_word_ids" else 0
        packed[name] = value.to_tensor(padding, shape=shape)
        packed[name].set_shape([None, tf.get_static_value(seq_length)])
    return packed


def _cut(ids, lengths):
    """The first `lengths` [B] of ids [B, (T)] in each row."""
    positions = tf.ragged.range(tf.cast(ids.row_lengths(), tf.int32))
    positions = positions.with_row_splits_dtype(tf.int64)
    limits = tf.gather(lengths, ids.value_rowids())
    is_kept = ids.with_flat_values(positions.flat_values < limits)
    return tf.ragged.boolean_mask(ids, is_kept)


def pack_question(tokenizer, query, ids, max_seq_length):
    """Packs questions and texts as [CLS] question [SEP] text [SEP].

    Args:
      tokenizer: a `tokenization.Tokenizer`, for the special ids.
      query: [B, (T)] int32, questions.
      ids: [B, (T)] int32, texts, which are cut.
      max_seq_length: tokens of a sequence, at most.

    Returns:
      Dict of `input_ids`, `input_mask` and `segment_ids`, [B, T] int32, padded
      to the longest; and [B] int32, the tokens before the text.
    """
    rows = query.nrows()
    before = tf.cast(query.row_lengths(), tf.int32) + 2  # [B]
    cls, sep = (
        tf.fill([rows, 1], i) for i in (tokenizer.cls_id, tokenizer.sep_id)
    )
    first = tf.concat([cls, query, sep], axis=1)
    kept = tf.minimum(
        tf.cast(ids.row_lengths(), tf.int32), max_seq_length - 1 - before
    )
    second = tf.concat([_cut(ids, kept), sep], axis=1)
    joined = tf.concat([first, second], axis=1)
    segments = tf.concat([tf.zeros_like(first), tf.ones_like(second)], axis=1)
    features = {
        "input_ids": joined.to_tensor(tokenizer.pad_id),
        "input_mask": tf.ones_like(joined).to_tensor(),
        "segment_ids": segments.to_tensor(),
    }
    return features, before
