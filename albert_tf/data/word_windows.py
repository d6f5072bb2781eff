"""Encodes sentences of words, each of which gets one tag.

A word is tagged at its first piece. A sentence that is too long for one
sequence is split into overlapping windows; each of its words is tagged in the
one that has most context for it.

Shapes: W words of a sentence, P pieces of it; N, S as in `examples`.
"""

from collections.abc import Sequence

import numpy as np

from albert_tf import progress
from albert_tf.data import windows
from albert_tf.data.examples import NO_LABEL, Examples
from albert_tf.data.tagged import Sentence
from albert_tf.text import tokenization


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
      tag that is none of them has none.
    """
    check_lengths(max_seq_length, doc_stride)
    parts: dict[str, list] = {"ids": [], "word_index": [], "lengths": []}
    done = progress.Progress("tokenizing", len(sentences), "sentences")
    num_words = 0
    for sentence in sentences:
        ids, words = encode_words(sentence, tokenizer)  # [P]
        bounds = windows.cut_windows(len(ids), max_seq_length - 2, doc_stride)
        best = windows.find_max_context(bounds, len(ids))
        for (start, end), is_best in zip(bounds, best, strict=True):
            is_tagged = is_best & (words[start:end] != NO_LABEL)
            if not is_tagged.any():
                continue
            index = np.where(is_tagged, words[start:end] + num_words, NO_LABEL)
            parts["ids"] += [
                [tokenizer.cls_id],
                ids[start:end],
                [tokenizer.sep_id],
            ]
            parts["word_index"] += [[NO_LABEL], index, [NO_LABEL]]
            parts["lengths"].append([end - start + 2])
        num_words += len(sentence.words)
        done.add(1)
    done.clear()
    joined = {
        name: np.concatenate([[], *some]).astype(np.int32)
        for name, some in parts.items()
    }
    token_labels = {}
    if labels:
        tags = [tag for sentence in sentences for tag in sentence.tags or ()]
        token_labels["tag_ids"] = label_tokens(
            joined["word_index"], tags, labels
        )
    return Examples(
        joined["ids"],
        joined["lengths"],
        joined["lengths"],
        {},
        token_arrays={"word_index": joined["word_index"]},
        token_labels=token_labels,
    )


def encode_words(
    sentence: Sentence, tokenizer: tokenization.Tokenizer
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids of a sentence, and at a word's first piece its number.

    The pieces' own spans of characters tell which word they belong to. A word
    without a piece, as of characters that normalization removes, gets [UNK].

    Returns:
      Two int32 arrays [P]; the number is NO_LABEL at other pieces.
    """
    ids, spans = tokenizer.encode_with_offsets(sentence.text)
    starts, ends = np.array(spans, np.int32).reshape(-1, 2).T  # [P] each
    first, last = np.array(sentence.spans, np.int32).reshape(-1, 2).T  # [W]
    # The first word that ends after the piece's start.
    word = np.searchsorted(last, starts, side="right")  # [P]
    begins = np.append(first, np.iinfo(np.int32).max)[word]  # [P]
    pieces = np.flatnonzero((begins < ends) & (starts < ends))
    found, where = np.unique(word[pieces], return_index=True)
    numbers = np.full(len(ids), NO_LABEL, np.int32)
    numbers[pieces[where]] = found
    if len(found) == len(first):
        return np.array(ids, np.int32), numbers
    lost = np.setdiff1d(np.arange(len(first)), found)
    places = np.searchsorted(np.maximum.accumulate(starts), first[lost])
    return (
        np.insert(np.array(ids, np.int32), places, tokenizer.unk_id),
        np.insert(numbers, places, lost),
    )


def label_tokens(
    word_index: np.ndarray, tags: Sequence[str], labels: Sequence[str]
) -> np.ndarray:
    """Returns the index of each word's tag at its piece, [S] int32.

    Args:
      word_index: [S], numbers of words, or NO_LABEL.
      tags: those of all words.
      labels: C tags; others have NO_LABEL.
    """
    known = {label: i for i, label in enumerate(labels)}
    tag_ids = np.array([known.get(t, NO_LABEL) for t in tags], np.int32)
    is_word = word_index != NO_LABEL
    result = np.full(len(word_index), NO_LABEL, np.int32)
    result[is_word] = tag_ids[word_index[is_word]]
    return result


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
