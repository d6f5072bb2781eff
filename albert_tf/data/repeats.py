"""Finds texts that occur several times: with other labels, or in other data."""

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
    texts = (row.text_a, row.text_b, row.text_c)
    return "\t".join(
        " ".join(unicodedata.normalize("NFKC", text).casefold().split())
        for text in texts
        if text is not None
    )


def describe_conflicts(rows: Sequence[Row]) -> str | None:
    """Returns a sentence if many rows have a text of another label, or None."""
    labels: dict[str, set] = {}
    keys = [key_of(row) for row in rows]
    for key, row in zip(keys, rows, strict=True):
        label = label_values.canonical(label_values.name_of(row.label))
        labels.setdefault(key, set()).add(label)
    found = [
        row.line
        for key, row in zip(keys, rows, strict=True)
        if len(labels[key]) > 1
    ]
    if len(found) < max(1, MIN_SHARE * len(rows)):
        return None
    return (
        f"{len(found):,} of {len(rows):,} rows have the text of a row with "
        f"another label, the first on line {found[0]}."
    )


def describe_overlap(
    rows: Sequence[Row], train_keys: Collection[str]
) -> str | None:
    """Returns a sentence if many rows are training data, or None.

    `train_keys` are those of the training data, see `key_of`.
    """
    found = [row.line for row in rows if key_of(row) in train_keys]
    if len(found) < max(1, MIN_SHARE * len(rows)):
        return None
    return (
        f"{len(found):,} of {len(rows):,} rows have texts of the training "
        f"data, the first on line {found[0]}: scores may be too high."
    )
