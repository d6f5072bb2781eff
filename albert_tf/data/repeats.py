"""Finds texts that occur several times: with other labels, or in other data."""

import itertools
import unicodedata
from collections.abc import Collection, Sequence

from albert_tf.data import label_values
from albert_tf.data.tables import Row

# A smaller share of rows is not worth a warning.
MIN_SHARE = 0.02


def key_of(row: Row) -> str:
    """Returns the same string for texts that differ little.

    They differ in spaces, capitals or compatible characters, which a tokenizer
    may not tell apart.
    """
    return "\t".join(
        " ".join(unicodedata.normalize("NFKC", text).casefold().split())
        for text in (row.text_a, row.text_b)
        if text is not None
    )


def describe_conflicts(rows: Sequence[Row], keys: Sequence[str]) -> str | None:
    """Returns a sentence if many rows have a text of another label, or None.

    `keys` are those of the rows, see `key_of`.
    """
    labels: dict[str, set] = {}
    for key, row in zip(keys, rows, strict=True):
        label = label_values.canonical(label_values.name_of(row.label))
        labels.setdefault(key, set()).add(label)
    return _describe(
        [len(labels[key]) > 1 for key in keys],
        rows,
        "have the text of a row with another label, the first on line {}.",
    )


def describe_overlap(
    rows: Sequence[Row], train_keys: Collection[str]
) -> str | None:
    """Returns a sentence if many rows are training data, or None.

    `train_keys` are those of the training data, see `key_of`.
    """
    return _describe(
        [key_of(row) in train_keys for row in rows],
        rows,
        "have texts of the training data, the first on line {}: scores may be "
        "too high.",
    )


def _describe(is_found, rows, words):
    """Returns `words` about the rows that are found, if they are many."""
    found = [row.line for row in itertools.compress(rows, is_found)]
    if len(found) < max(1, MIN_SHARE * len(rows)):
        return None
    return f"{len(found):,} of {len(rows):,} rows {words.format(found[0])}"
