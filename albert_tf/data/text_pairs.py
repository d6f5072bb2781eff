"""Reads pairs of texts, for training and scoring vectors of texts.

Shapes: N rows of C texts; U different texts.
"""

import csv
import dataclasses
import io
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from albert_tf import filesystem
from albert_tf.data import tables
from albert_tf.data.examples import Examples, pack_pairs

# Names of columns, of which the first that a file has are taken.
TEXTS = (
    ("sentence1", "sentence2"),
    ("text_a", "text_b"),
    ("anchor", "positive"),
    ("query", "positive"),
    ("question", "answer"),
    ("premise", "hypothesis"),
    ("sentence_A", "sentence_B"),
    ("text1", "text2"),
    ("text",),
)
NEGATIVES = ("negative",)
SCORES = ("score", "similarity_score", "similarity")
NLI_LABELS = ("gold_label", "label")
# Labels of natural language inference; "-" is for pairs without agreement.
NLI = {"entailment", "neutral", "contradiction", "-"}


class PairsFile(NamedTuple):
    """The content of a file.

    Attributes:
      path: its path.
      texts: N rows of C texts; the third one may be "", which is absent.
      scores: N numbers from -1 to 1, how similar the two texts are, which
        cosines can be; None if unknown. Larger ones of the file are divided by
        the largest.
      description: what was read, in words.
    """

    path: str
    texts: Sequence[tuple[str, ...]]
    scores: list[float] | None
    description: str


def read_pairs(
    path: filesystem.Path,
    text_columns: Sequence[str] = (),
    score_column: str | None = None,
) -> PairsFile:
    """Reads a file of pairs of texts.

    A .txt file has a text on each line, which is paired with itself; so is a
    table with one column of texts. A table (.tsv, .csv, .jsonl) has two, or
    three, of which the last one is a wrong second text; and maybe scores. Of
    pairs of natural language inference, those of entailment are taken, with a
    contradiction of the same first text as the third one.

    Args:
      path: its path.
      text_columns: names of columns of texts; by default those of TEXTS and
        NEGATIVES that it has.
      score_column: name of the column of scores; by default one of SCORES.

    Raises:
      FileNotFoundError: if there is no file.
      ValueError: if it has no rows, or its columns are unknown or invalid.
    """
    path = str(path)
    if path.endswith(".txt"):
        lines = [line for line in tables.read_lines(path) if line.strip()]
        if not lines:
            raise ValueError(f"{path} has no texts.")
        return PairsFile(path, [(x, x) for x in lines], None, "single texts")
    names = read_names(path)
    chosen = [*text_columns] or find_texts(path, names)
    if not 1 <= len(chosen) <= 3:
        raise ValueError(
            f"text_columns={','.join(chosen)}; wanted one, two or three names."
        )
    if score_column is None:
        score_column = _first(SCORES, names)
    if len(chosen) == 3:
        rows = read_rows(path, chosen[:2], chosen[2])
        wrong = [_as_text(path, value, line) for *_, value, line in rows]
        triples = [(a, b, c) for (a, b, *_), c in zip(rows, wrong, strict=True)]
        return PairsFile(path, triples, None, "pairs with wrong second texts")
    label = score_column or _first(NLI_LABELS, names)
    rows = read_rows(path, chosen, label)
    pairs = [(a, b) for a, b, *_ in rows]
    if score_column is not None:
        scores = [_as_score(path, value, line) for *_, value, line in rows]
        largest = max(map(abs, scores))
        description = "pairs with scores"
        if largest > 1:
            scores = [score / largest for score in scores]
            description += f", which are divided by {largest:g}"
        return PairsFile(path, pairs, scores, description)
    if label and {value for *_, value, _ in rows} <= NLI:
        return PairsFile(path, take_entailed(path, rows), None, "entailments")
    is_single = len(chosen) == 1
    return PairsFile(
        path, pairs, None, "single texts" if is_single else "pairs"
    )


def _first(wanted, names):
    """Returns the first of the wanted names that is there, or None."""
    return next((name for name in wanted if name in names), None)


def read_names(path: str) -> list[str]:
    """Returns the names of the columns of a table."""
    first, _, _ = tables.read_text(path).partition("\n")
    if not first.strip():
        raise ValueError(f"{path} is empty, or its first line is.")
    format = tables.format_of(path)
    if format == "jsonl":
        records = tables.parse_json_lines(path, first)
        return [*records[0][1]] if records else []
    delimiter = "," if format == "csv" else "\t"
    header = next(
        csv.reader(io.StringIO(first.strip()), delimiter=delimiter), []
    )
    return [name.strip() for name in header]


def find_texts(path: str, names: Sequence[str]) -> list[str]:
    """Returns the columns of texts among the names of a table's columns."""
    for known in TEXTS:
        if {*known} <= {*names}:
            negative = [x for x in NEGATIVES if x in names and len(known) == 2]
            return [*known, *negative]
    raise ValueError(
        f"{path} has the columns {[*names][:12]}; wanted such as "
        f"{' and '.join(TEXTS[0])}. Name them with text_columns."
    )


def read_rows(path, texts, last) -> list[tuple]:
    """Returns (first text, second text, value of `last`, line) of the rows.

    If `texts` is one column, both texts are its own.
    """
    table = tables.Table(
        path, tuple(texts), label=last, format=tables.format_of(path)
    )
    return [
        (row.text_a, row.text_a if row.text_b is None else row.text_b)
        + (row.label, row.line)
        for row in tables.read_table(path, table)
    ]


def _as_text(path, value, line):
    if not isinstance(value, str):
        raise ValueError(
            f"{path}, line {line}: the third text is {value!r:.80}; wanted a "
            "string."
        )
    return value if value.strip() else ""


def _as_score(path, value, line):
    try:
        score = float(value)
    except (TypeError, ValueError):
        score = math.nan
    if not math.isfinite(score):
        raise ValueError(
            f"{path}, line {line}: the score is {value!r:.80}; wanted a number."
        )
    return score


def take_entailed(path: str, rows) -> list[tuple[str, str, str]]:
    """Returns the entailments among rows of `read_rows`, as three texts.

    The third one contradicts the first; it is "" if none does.
    """
    wrong: dict[str, list] = {}
    for first, second, label, _ in rows:
        if label == "contradiction":
            wrong.setdefault(first, []).append(second)
    taken, used = [], dict.fromkeys(wrong, 0)
    for first, second, label, _ in rows:
        if label != "entailment":
            continue
        third = ""
        if first in wrong:  # Each one in turn.
            third = wrong[first][used[first] % len(wrong[first])]
            used[first] += 1
        taken.append((first, second, third))
    if not taken:
        raise ValueError(f"{path} has no pair with the label entailment.")
    return taken


def encode_rows(texts, tokenizer, max_seq_length: int) -> Examples:
    """Encodes rows of C texts, each text as [CLS] text [SEP].

    Returns:
      Examples with C sequences, and `text_ids` [N, C]: equal for equal texts,
      -1 for "" as a third text.
    """
    numbers: dict[str, int] = {}
    ids = [
        [
            -1
            if place == 2 and not text
            else numbers.setdefault(text, len(numbers))
            for place, text in enumerate(row)
        ]
        for row in texts
    ]
    flat = [text for row in texts for text in row]
    return dataclasses.replace(
        pack_pairs(tokenizer, flat, None, max_seq_length),
        num_choices=len(texts[0]),
        arrays={"text_ids": np.array(ids, np.int32)},
    )


def encode_once(
    texts, tokenizer, max_seq_length: int
) -> tuple[Examples, np.ndarray]:
    """Encodes the U different texts of rows of two or more texts.

    Returns:
      Examples of one sequence each; and the index of each row's first two
      texts among them, [N, 2].
    """
    numbers: dict[str, int] = {}
    index = [
        [numbers.setdefault(text, len(numbers)) for text in row[:2]]
        for row in texts
    ]
    encoded = pack_pairs(tokenizer, [*numbers], None, max_seq_length)
    return encoded, np.array(index, np.int32)
