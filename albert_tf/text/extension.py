"""Adds whole words to a vocabulary, such as the terms of a domain.

Only words that the vocabulary splits are added. Text that does not begin with
one of them is split as before: the score of a new SentencePiece piece is only
slightly higher than that of the pieces that it replaces.
"""

import collections
import dataclasses
import itertools
import os
import tempfile
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from albert_tf import filesystem
from albert_tf.text import normalization, tokenization

# By how much the score of a new piece exceeds that of the pieces it replaces.
_MARGIN = 0.1
# By how much the score of an unknown character is below the lowest of a piece:
# kUnkPenalty in SentencePiece's unigram_model.cc.
_UNKNOWN_PENALTY = 10


@dataclasses.dataclass(frozen=True)
class Word:
    """A normalized word, how often a text has it, and the ids of its pieces."""

    text: str
    count: int
    parts: list[int]

    @property
    def gain(self) -> int:
        """Number of pieces, or of unknown pieces, that the word saves."""
        return self.count * max(1, len(self.parts) - 1)


class Extended(NamedTuple):
    """A vocabulary with additional words.

    The ids of the words follow the others in this order.
    """

    words: list[Word]
    tokenizer: tokenization.Tokenizer


def count_units(
    texts: Iterable[str], tokenizer: tokenization.Tokenizer
) -> collections.Counter[str]:
    """Counts the space-separated units of normalized texts."""
    return collections.Counter(
        unit for text in texts for unit in tokenizer.normalize(text).split()
    )


def count_pieces(
    units: dict[str, int], tokenizer: tokenization.Tokenizer
) -> np.ndarray:
    """Returns how often counted units have each piece, [V]."""
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    rows = tokenizer.encode_batch(list(units))
    for row, count in zip(rows, units.values(), strict=True):
        np.add.at(counts, row, count)
    return counts


def find_words(units: dict[str, int]) -> collections.Counter[str]:
    """Counts the words with which units begin: letters and digits.

    A word begins with a letter, and has more than one character. Text of
    scripts without spaces between words has none.
    """
    words: collections.Counter[str] = collections.Counter()
    for unit, count in units.items():
        word = "".join(itertools.takewhile(_is_of_word, unit))
        if len(word) > 1 and word[0].isalpha():
            words[word] += count
    return words


def _is_of_word(char):
    is_spaced = not normalization.is_unspaced(char)
    return unicodedata.category(char)[0] in "LMN" and is_spaced


def find_split(
    words: dict[str, int], tokenizer: tokenization.Tokenizer
) -> list[Word]:
    """Returns the words that are several pieces, or an unknown one.

    A word that is a piece already cannot be added, even if the model prefers
    to split it.

    `words` are normalized, with their counts. Those that would save most pieces
    are first.
    """
    rows = tokenizer.encode_batch(list(words))
    is_sentencepiece = tokenizer.kind == "sentencepiece"
    start = tokenization.WORD_PREFIX if is_sentencepiece else ""
    known = {
        piece.removeprefix(start)
        for piece in tokenizer.pieces
        if piece.startswith(start)
    }
    split = []
    for (text, count), row in zip(words.items(), rows, strict=True):
        spelled = tokenizer.spell(text)
        is_split = len(row) > 1 or row == [tokenizer.unk_id]
        if is_split and spelled not in known:
            known.add(spelled)
            split.append(Word(text, count, row))
    return sorted(split, key=lambda word: (-word.gain, word.text))


def extend(
    tokenizer: tokenization.Tokenizer, name: str, words: Sequence[Word]
) -> Extended:
    """Adds words to a vocabulary.

    Words that would still be split are left out, as those that are a shorter
    new word and its ending.

    `name` is that of the new vocabulary's file. The words differ, as
    `find_split` returns them.

    Raises:
      ValueError: if it is a SentencePiece model of another type than unigram.
    """
    extended = _extend_by(tokenizer, name, words)
    rows = extended.tokenizer.encode_batch([word.text for word in words])
    first_id = tokenizer.vocab_size
    whole = [
        word
        for i, (word, row) in enumerate(zip(words, rows, strict=True), first_id)
        if row == [i]
    ]
    if len(whole) < len(words):
        extended = _extend_by(tokenizer, name, whole)
    return extended


def _extend_by(tokenizer, name, words):
    """Returns the Extended with all words."""
    if isinstance(tokenizer, tokenization.SentencePieceTokenizer):
        content = _add_pieces(tokenizer, words)
    else:
        content = tokenizer.content.removesuffix(b"\n") + b"\n"
        content += "".join(f"{word.text}\n" for word in words).encode()
    casing = tokenization.take_casing(tokenizer.settings)
    with tempfile.TemporaryDirectory(prefix="albert_tf-") as folder:
        path = os.path.join(folder, name)
        filesystem.write_file(path, content)
        extended = type(tokenizer)(path, **casing)
    return Extended(list(words), extended)


def _add_pieces(tokenizer, words):
    """Returns a SentencePiece model with words, as bytes."""
    tokenizer.check_unigram()
    model = tokenizer.read_model()
    scores = [piece.score for piece in model.pieces]
    scores[tokenizer.unk_id] = min(scores) - _UNKNOWN_PENALTY
    for word in words:
        score = sum(scores[i] for i in word.parts) + _MARGIN
        model.pieces.add(
            piece=tokenization.WORD_PREFIX + tokenizer.spell(word.text),
            score=score,
        )
    model.trainer_spec.vocab_size = len(model.pieces)
    return model.SerializeToString()
