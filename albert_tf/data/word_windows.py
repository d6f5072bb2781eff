"""Encodes sentences of words, each of which gets one tag.

A word is tagged at its first piece. A sentence that is too long for one
sequence is split into overlapping windows; each of its words is tagged in the
one that has most context for it.

Shapes: W words of a sentence, P pieces of it; N, S as in `examples`.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from albert_tf import progress
from albert_tf.data import windows
from albert_tf.data.examples import NO_LABEL, Examples
from albert_tf.data.tagged import Sentence
from albert_tf.text import normalization, tokenization
from albert_tf.text import words as text_words


def check_lengths(max_seq_length: int, doc_stride: int) -> None:
    """Raises ValueError if the lengths leave no room for a window."""
    if max_seq_length < 3 or doc_stride < 1:
        raise ValueError(
            f"max_seq_length={max_seq_length} and doc_stride={doc_stride}; "
            "wanted at least 3, for [CLS], a piece and [SEP], and 1."
        )


def encode_sentences(
    sentences: Sequence[Sentence],
    tokenizer: tokenization.Tokenizer,
    max_seq_length: int,
    doc_stride: int,
    labels: Sequence[str] = (),
) -> Examples:
    """Encodes windows of sentences as [CLS] window [SEP].

    Args:
      sentences: their words, and tags for training and losses.
      tokenizer: tokenizer of the model.
      max_seq_length: maximum number of tokens of a sequence.
      doc_stride: pieces between the starts of a sentence's windows.
      labels: C tags in the order of the model's outputs.

    Returns:
      Examples, the windows in order that have a word, with the token array
      `word_index` [S] int32: the words of all sentences are counted, and a
      word's number is at the piece where it is tagged; NO_LABEL elsewhere.
      With `labels`, also the token label `tag_ids` [S], in the same places; a
      tag that is none of them has none. Later characters of a word in a script
      without spaces have it, too: in a raw text they are words. B- goes on as
      I-.
    """
    check_lengths(max_seq_length, doc_stride)
    rows: list = []
    done = progress.Progress("tokenizing", len(sentences), "sentences")
    num_words = 0
    for sentence in sentences:
        ids, *numbers = encode_words(sentence, tokenizer)  # [P] each
        numbers = [
            np.where(x == NO_LABEL, NO_LABEL, x + num_words) for x in numbers
        ]
        words = Words(ids, *numbers)
        rows += _cut_windows(words, tokenizer, max_seq_length, doc_stride)
        num_words += len(sentence.words)
        done.add(1)
    done.clear()
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    ids, index, inner = (
        np.concatenate([[], *some]).astype(np.int32) for some in columns
    )  # [S] each
    lengths = np.array([len(row.ids) for row in rows], np.int32)
    token_labels = {}
    if labels:
        tags = [tag for sentence in sentences for tag in sentence.tags or ()]
        inside = [re.sub("^B-", "I-", tag) for tag in tags]
        token_labels["tag_ids"] = np.maximum(
            _label_tokens(index, tags, labels),
            _label_tokens(inner, inside, labels),
        )  # NO_LABEL is negative.
    return Examples(
        ids,
        lengths,
        lengths,
        {},
        token_arrays={"word_index": index},
        token_labels=token_labels,
    )


def _cut_windows(words, tokenizer, max_seq_length, doc_stride):
    """Returns the Words of each window of a sentence that has a word."""
    rows = []
    num_pieces = len(words.ids)
    bounds = windows.cut_windows(num_pieces, max_seq_length - 2, doc_stride)
    best = windows.find_max_context(bounds, num_pieces)
    for (start, end), is_best in zip(bounds, best, strict=True):
        first, inner = (
            np.where(is_best, x[start:end], NO_LABEL) for x in words[1:]
        )
        if (first != NO_LABEL).any():
            ids = [tokenizer.cls_id, *words.ids[start:end], tokenizer.sep_id]
            none = [NO_LABEL]
            rows.append(
                Words(
                    np.array(ids, np.int32),
                    *(np.concatenate([none, x, none]) for x in (first, inner)),
                )
            )
    return rows


class Words(NamedTuple):
    """The pieces of a sentence, and the words that begin there.

    Attributes:
      ids: [P] int32.
      first: [P] int32, at the first piece of a word its number; else NO_LABEL.
      inner: [P] int32, likewise where another one of `find_words` begins, in a
        word with characters of a script without spaces.
    """

    ids: np.ndarray
    first: np.ndarray
    inner: np.ndarray


def encode_words(
    sentence: Sentence, tokenizer: tokenization.Tokenizer
) -> Words:
    """Finds the pieces of words.

    The pieces' own spans of characters tell which word they belong to. A piece
    of several words is divided. A word without a piece, as of characters that
    normalization removes, gets [UNK]. If a word has characters of a script
    without spaces, both hold for each of `find_words` in it, as in a raw text.
    """
    units = text_words.find_words(sentence.text)
    parts, words, is_inner = _find_parts(sentence, units)  # [Q] of each
    ids, spans = _divide_pieces(sentence.text, units, parts, tokenizer)
    part, count = _count_covered(spans, parts)  # [P] each
    starts, ends = _columns(spans)
    pieces = np.flatnonzero((count > 0) & (starts < ends))
    found, where = np.unique(part[pieces], return_index=True)
    index = np.full(len(ids), NO_LABEL, np.int32)
    index[pieces[where]] = found
    lost = np.setdiff1d(np.arange(len(parts)), found)
    places = np.searchsorted(np.maximum.accumulate(starts), parts[lost, 0])
    index = np.insert(index, places, lost)
    ids = np.insert(ids, places, tokenizer.unk_id)
    numbers = np.append(words, NO_LABEL)[index]  # NO_LABEL is the last index.
    is_inner = np.append(is_inner, False)[index]
    first, inner = (
        np.where(kept, numbers, NO_LABEL) for kept in (~is_inner, is_inner)
    )
    return Words(ids, first, inner)


def _find_parts(sentence, units):
    """Divides words that have characters of scripts without spaces.

    Args:
      sentence: a Sentence.
      units: spans of `find_words` in its text, where words are divided.

    Returns:
      The spans of the Q parts, [Q, 2] int32; their words, [Q]; and [Q] whether
      it is a later part of its word.
    """
    word_starts, word_ends = _columns(sentence.spans)  # [W] each
    is_divided = np.array(
        [any(map(normalization.is_unspaced, word)) for word in sentence.words],
        bool,
    )
    starts = _columns(units)[0]
    number = np.searchsorted(word_ends, starts, side="right")
    is_later = is_divided[number] & (np.diff(number, prepend=-1) == 0)
    starts = np.union1d(word_starts, starts[is_later])
    words = np.searchsorted(word_ends, starts, side="right")
    following = np.append(starts[1:], np.iinfo(np.int32).max)
    parts = np.stack([starts, np.minimum(following, word_ends[words])], axis=1)
    return parts, words, ~np.isin(starts, word_starts)


def _divide_pieces(text, units, parts, tokenizer):
    """Returns ids and spans of pieces; one of several parts has been divided.

    It is divided into all its units, if it has as many.
    """
    ids, spans = tokenizer.encode_with_offsets(text)
    _, num_parts = _count_covered(spans, parts)  # [P]
    if (num_parts < 2).all():
        return np.array(ids, np.int32), spans
    first, count = _count_covered(spans, units)  # [P] each
    divided: tuple[list, list] = [], []
    for piece, (start, end) in enumerate(spans):
        i, unit = ids[piece], first[piece]
        inside = units[unit : unit + count[piece]]
        pieces, places = [[i]], [(start, end)]
        if num_parts[piece] > 1:
            found = tokenizer.divisions.get(i)
            if found and len(found) == len(inside):
                pieces, places = found, inside
        for some, (a, b) in zip(pieces, places, strict=True):
            divided[0].extend(some)
            divided[1].extend([(max(a, start), min(b, end))] * len(some))
    return np.array(divided[0], np.int32), divided[1]


def _columns(spans):
    """Returns the starts and the ends of spans, two int32 arrays."""
    return np.array(spans, np.int32).reshape(-1, 2).T


def _count_covered(spans, words):
    """Returns the first word that each span covers, and how many: [P] each."""
    starts, ends = _columns(spans)
    word_starts, word_ends = _columns(words)
    first = np.searchsorted(word_ends, starts, side="right")
    return first, np.searchsorted(word_starts, ends, side="left") - first


def _label_tokens(word_index, tags, labels):
    """Returns the index of each word's tag at its piece, [S] int32."""
    known = {label: i for i, label in enumerate(labels)}
    tag_ids = [*(known.get(tag, NO_LABEL) for tag in tags), NO_LABEL]
    return np.array(tag_ids, np.int32)[word_index]  # NO_LABEL is the last one.


def take_words(values: np.ndarray, examples: Examples) -> np.ndarray:
    """Returns a model's outputs for each word, in order.

    Args:
      values: [N, T, ...], outputs for the tokens of N windows.
      examples: the windows, from `encode_sentences`.
    """
    positions = np.arange(values.shape[1])
    is_token = positions < examples.lengths[:, None]  # [N, T]
    index = examples.token_arrays["word_index"]  # [S]
    is_word = index != NO_LABEL
    words = values[is_token][is_word]
    return words[np.argsort(index[is_word])]
