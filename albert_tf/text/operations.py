"""Tokenizers as TensorFlow operations, for text input in a SavedModel.

Normalization uses `characters`; tensorflow-text splits text into pieces.

Shapes: B texts; (C) characters and (T) tokens per text, ragged; T tokens after
padding.
"""

import functools

import tensorflow as tf
import tensorflow_text

from albert_tf.text import characters, normalization, tokenization


def check_tokenizer(tokenizer: tokenization.Tokenizer) -> None:
    """Raises ValueError if a tokenizer cannot be put into a graph."""
    if isinstance(tokenizer, tokenization.SentencePieceTokenizer):
        tokenizer.check_unigram()


# Cached, since querying 1.1 million code points takes about a second.
@functools.cache
def _build_step(step):
    """Builds a normalizer's step as a function of `characters.Characters`."""
    if step is normalization.JOIN:
        return characters.join_words
    if step is normalization.LOWER:
        return characters.LowerCase()
    if step is normalization.DECOMPOSE:
        decompose = characters.CodePointTable(step.apply)
        order = characters.CanonicalOrder()
        return lambda texts: order(decompose(texts))
    return characters.CodePointTable(step.apply)


class GraphTokenizer:
    r"""A tokenizer as TensorFlow operations, with the same ids as in Python.

    Raises:
      ValueError: if its SentencePiece model is no unigram model.

    Example:
      >>> pieces = "[PAD] [UNK] [CLS] [SEP] [MASK] play ##ing".split()
      >>> with open("vocab.txt", "w") as file:
      ...     _ = file.write("\n".join(pieces))
      >>> tokenizer = tokenization.build_tokenizer(
      ...     vocab_file="vocab.txt", do_lower_case=False
      ... )
      >>> GraphTokenizer(tokenizer).tokenize(["playing", "play"])
      <tf.RaggedTensor [[5, 6], [5]]>
    """

    def __init__(self, tokenizer: tokenization.Tokenizer):
        check_tokenizer(tokenizer)
        self.tokenizer = tokenizer
        casing = tokenization.take_casing(tokenizer.settings)
        normalizer = tokenizer.normalizer(**casing)
        self.steps = [_build_step(step) for step in normalizer.steps()]
        is_pieces = tokenizer.kind == "sentencepiece"
        build = _build_sentencepiece if is_pieces else _build_wordpiece
        # A SavedModel of `tokenize_with_offsets` must track the resources.
        self._split, self._split_with_offsets, self.resources = build(tokenizer)

    def normalize(self, texts) -> characters.Characters:
        """Normalizes texts, [B] strings, into `characters.Characters`."""
        return self._normalize(characters.decode(texts))

    def _normalize(self, normalized):
        for step in self.steps:
            normalized = step(normalized)
        return normalized

    def tokenize(self, texts) -> tf.RaggedTensor:
        """Returns the ids, [B, (T)] int32, of texts, [B] strings."""
        codes = self.normalize(texts).codes
        return self._split(tf.strings.unicode_encode(codes, "UTF-8"))

    def tokenize_with_offsets(self, texts) -> tuple:
        """Returns ids and the character offsets of each token.

        With SentencePiece, the split may differ from that of `tokenize` where
        several splits are equally probable, as of "***": only
        FastSentencepieceTokenizer breaks ties like Python, and it returns no
        offsets.

        Returns:
          ids, starts and ends, [B, (T)] int32 each, as those of
          `Tokenizer.encode_with_offsets`.
        """
        decoded = characters.decode(texts)
        normalized = self._normalize(decoded)
        codes, begins, closes = (x.flat_values for x in normalized)  # [N] each
        ids, starts, ends = self._split_with_offsets(
            tf.strings.unicode_encode(normalized.codes, "UTF-8")
        )
        rows = ids.value_rowids()
        is_nonempty = ends.flat_values > starts.flat_values
        first, last, end = (
            characters.find_codes(normalized, rows, x)
            for x in (
                starts.flat_values,
                tf.maximum(ends.flat_values - 1, 0),
                ends.flat_values,
            )
        )  # N at the end of a text
        # Without preceding spaces.
        is_letter = codes != characters.SPACE
        first = characters.find_next(is_letter, first)
        is_shown = is_nonempty & (first <= last)
        original = decoded.codes
        splits = tf.cast(original.row_splits, tf.int32)
        before, behind = tf.gather(splits, rows), tf.gather(splits, rows + 1)
        begins, closes = (tf.concat([x, [0]], axis=0) for x in (begins, closes))

        def place_of(code):
            """Returns where codes begin; the text's end for its last one."""
            is_end = code >= tf.size(codes)
            return tf.where(is_end, behind - before, tf.gather(begins, code))

        # Marks that normalization removes belong to the token before.
        is_mark = characters.set_of(normalization.is_mark)
        closes = tf.gather(closes, last)
        marked = characters.find_next(
            ~is_mark(original.flat_values), before + closes
        )
        following = place_of(characters.find_next(is_letter, end))
        closes = tf.maximum(closes, tf.minimum(marked - before, following))
        # A token without characters is at the place of the next one.
        starts = tf.where(is_shown, tf.gather(begins, first), place_of(end))
        ends = tf.where(is_shown, closes, place_of(end))
        return ids, ids.with_flat_values(starts), ids.with_flat_values(ends)


def _build_sentencepiece(tokenizer):
    """Builds functions from normalized texts [B] to ids (and byte offsets)."""
    model = tokenizer.read_model()
    for piece in model.pieces:
        # The fast tokenizer refuses unused pieces. It finds no control pieces
        # in a text, either.
        if piece.type == piece.UNUSED:
            piece.type = piece.CONTROL
    # Breaks ties like Python; see `GraphTokenizer.tokenize_with_offsets`.
    fast = tensorflow_text.FastSentencepieceTokenizer(model.SerializeToString())
    rows = [
        tokenizer.expansions.get(i, [i]) for i in range(tokenizer.vocab_size)
    ]
    expansions = tf.ragged.constant(rows, tf.int32)

    def split(texts):
        ids = fast.tokenize(texts).with_row_splits_dtype(tf.int64)
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
        # In "2013,", the last part is the comma; the others share the number.
        lasts = tf.cumsum(counts) - 1
        is_comma = tf.repeat(lasts, counts) == tf.range(tf.size(starts))
        is_divided = tf.repeat(counts > 1, counts)
        commas = ends - 1
        starts = tf.where(is_divided & is_comma, commas, starts)
        ends = tf.where(is_divided & ~is_comma, commas, ends)
        return ids, ids.with_flat_values(starts), ids.with_flat_values(ends)

    return split, split_with_offsets, [slow_model]


def _build_wordpiece(tokenizer):
    """Builds functions from normalized texts [B] to ids (and byte offsets)."""
    unknown = tokenizer.pieces[tokenizer.unk_id]
    # The operation wants different pieces; a word has no space.
    pieces = [x or f" {i}" for i, x in enumerate(tokenizer.pieces)]
    model = tensorflow_text.FastWordpieceTokenizer(
        pieces,
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
        # Single spaces separate words.
        before = tf.cumsum(sizes.flat_values, exclusive=True) - tf.gather(
            tf.cumsum(tf.reduce_sum(sizes, axis=1), exclusive=True),
            words.value_rowids(),
        )
        ids, starts, ends = model.tokenize_with_offsets(known)
        counts = ids.row_lengths(axis=2).flat_values
        before = tf.repeat(before, counts)
        # An unknown token covers the whole word.
        sizes = tf.repeat(sizes.flat_values - 1, counts)
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


def pack(tokenizer: tokenization.Tokenizer, segments, seq_length) -> dict:
    """Packs token ids as [CLS] A [SEP] (B [SEP]), padded.

    Truncation removes the last tokens of the longer segment, as in
    `examples.pack_pairs`; an empty second segment gets no [SEP].

    There are one or two segments, [B, (T)] int32. `seq_length` is T, a scalar
    tensor, at least 3.

    Returns:
      Dict of `input_word_ids`, `input_mask` and `input_type_ids`, [B, T] int32.
    """
    if len(segments) not in (1, 2):
        raise ValueError(f"{len(segments)} segments; wanted one or two.")
    tf.debugging.assert_greater_equal(
        seq_length,
        3,
        "seq_length must be at least 3, for [CLS], a token and [SEP].",
    )
    first, second = [*segments, segments[0][:, :0]][:2]
    lengths = [tf.cast(x.row_lengths(), tf.int32) for x in (first, second)]
    has_second = lengths[1] > 0  # [B]
    limit = seq_length - 2 - tf.cast(has_second, tf.int32)  # [B]
    # As in `tokenization.cut_pair`.
    kept_second = tf.minimum(
        lengths[1], tf.maximum(limit // 2, limit - lengths[0])
    )
    kept_first = tf.minimum(lengths[0], limit - kept_second)
    packed = _join(
        tokenizer,
        _cut(first, kept_first),
        _cut(second, kept_second),
        is_closed=kept_second > 0,
        shape=tf.stack([first.nrows(), tf.cast(seq_length, tf.int64)]),
    )
    for values in packed:
        values.set_shape([None, tf.get_static_value(seq_length)])
    names = ("input_word_ids", "input_mask", "input_type_ids")
    return dict(zip(names, packed, strict=True))


def _join(tokenizer, first, second, *, is_closed, shape=None):
    """Returns ids, mask and segment ids [B, T] of two segments [B, (T)].

    `is_closed` [B] is whether a [SEP] follows the second one.
    """
    rows = first.nrows()
    cls, sep = (
        tf.fill([rows, 1], i) for i in (tokenizer.cls_id, tokenizer.sep_id)
    )
    first = tf.concat([cls, first, sep], axis=1)
    last = tf.ragged.boolean_mask(sep, is_closed[:, tf.newaxis])
    second = tf.concat([second, last], axis=1)
    joined = tf.concat([first, second], axis=1)
    segments = tf.concat([tf.zeros_like(first), tf.ones_like(second)], axis=1)
    return (
        joined.to_tensor(tokenizer.pad_id, shape=shape),
        tf.ones_like(joined).to_tensor(shape=shape),
        segments.to_tensor(shape=shape),
    )


def _cut(ids, lengths):
    """Keeps the first `lengths` [B] of the ids [B, (T)]; none if negative.

    A length is at most that of its row.
    """
    starts, lengths = ids.row_starts(), tf.cast(lengths, tf.int64)
    return tf.gather(ids.flat_values, tf.ragged.range(starts, starts + lengths))


def pack_question(tokenizer, query, ids, max_seq_length: int) -> tuple:
    """Packs questions and texts as [CLS] question [SEP] text [SEP].

    Questions and texts are [B, (T)] int32; too long texts are truncated.

    Returns:
      Dict of `input_ids`, `input_mask` and `segment_ids`, [B, T] int32, padded
      to the longest; and [B] int32, the number of tokens before the text.
    """
    before = tf.cast(query.row_lengths(), tf.int32) + 2  # [B]
    kept = tf.minimum(
        tf.cast(ids.row_lengths(), tf.int32), max_seq_length - 1 - before
    )
    packed = _join(
        tokenizer, query, _cut(ids, kept), is_closed=tf.ones_like(kept, tf.bool)
    )
    names = ("input_ids", "input_mask", "segment_ids")
    return dict(zip(names, packed, strict=True)), before
