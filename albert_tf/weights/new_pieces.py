"""Adds words to the vocabulary of a model, and rows to its weights."""

import dataclasses
import os
from collections.abc import Sequence

import numpy as np

from albert_tf.text import extension
from albert_tf.weights import pretrained, vocabulary_files

# Weights that have a row for each piece.
ROWS_OF_PIECES = (
    "bert/embeddings/word_embeddings",
    "cls/predictions/output_bias",
)
# End of the name of the new vocabulary.
SUFFIX = "_extended"


def add_words(
    model: pretrained.Complete, words: Sequence[extension.Word]
) -> tuple[pretrained.Complete, list[extension.Word]]:
    """Adds words to a model and its vocabulary.

    The words differ, as `extension.find_split` returns them. Returns the
    extended model, and those of the words that could be added.

    Raises:
      ValueError: if the vocabulary is a SentencePiece model of another type
        than unigram.
    """
    name = vocabulary_files.choose_name(model.tokenizer.settings)
    stem, ending = os.path.splitext(name)
    name = f"{stem.removesuffix(SUFFIX)}{SUFFIX}{ending}"
    result = extension.extend(model.tokenizer, name, words)
    extended = dataclasses.replace(
        model,
        values=add_rows(
            model.values,
            [word.parts for word in result.words],
            model.tokenizer.vocab_size,
        ),
        config=dataclasses.replace(
            model.config, vocab_size=result.tokenizer.vocab_size
        ),
        tokenizer=result.tokenizer,
        tokenizer_settings=result.tokenizer.settings,
    )
    return extended, result.words


def add_rows(
    values: dict[str, np.ndarray],
    parts: Sequence[Sequence[int]],
    num_pieces: int | None = None,
) -> dict[str, np.ndarray]:
    """Adds rows of N pieces to the weights of a model of V pieces.

    A new piece begins with the mean of the pieces that it replaces, whose ids
    are in `parts`. Rows of padding, beyond `num_pieces`, V, are removed.
    """
    changed = {}
    for name in ROWS_OF_PIECES:
        if name in values:
            old = values[name][:num_pieces]  # [V, E] or [V]
            new = [old[ids].mean(axis=0, keepdims=True) for ids in parts]
            changed[name] = np.concatenate([old, *new])  # [V + N, ...]
    return values | changed
