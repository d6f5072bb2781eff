"""Reads pairs of texts, for training and scoring vectors of texts.

Shapes: N rows of C texts; U different texts.
"""

import dataclasses
import itertools
import logging
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from albert_tf import filesystem
from albert_tf.data import label_values, tables
from albert_tf.data.examples import Examples, pack_pairs
from albert_tf.text import normalization

# Names of columns, of which the first that a file has are taken.
TEXTS = (
    ("sentence1", "sentence2"),
    ("text_a", "text_b"),
    ("anchor", "positive"),
    ("query", "positive"),
    ("question", "answer"),
    ("question", "sentence"),
    ("premise", "hypothesis"),
    ("sentence_A", "sentence_B"),
    ("text1", "text2"),
    ("text",),
)
NEGATIVES = ("negative",)
SCORES = ("score", "similarity_score", "similarity", "relatedness_score")
NLI_LABELS = ("gold_label", "label")
# Labels of natural language inference; "-" is for pairs without agreement.
NLI = ("entailment", "neutral", "contradiction", "not_entailment", "-")


class PairsFile(NamedTuple):
    """The content of a file.

    Attributes:
      path: its path.
      texts: N rows of C texts; the third one may be "", which is absent.
      scores: N numbers from -1 to 1, how similar the two texts are, which
        cosines can be; None if unknown. Larger ones of the file are divided by
        the largest absolute value.
      description: what was read, in words.
      unused: names of the columns that were not read.
      numbers: index in the file of each of the N rows; None if it has no other.
    """

    path: str
    texts: Sequence[tuple[str, ...]]
    scores: list[float] | None
    description: str
    unused: Sequence[str] = ()
    numbers: Sequence[int] | None = None


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
        NEGATIVES that it has, whatever their capitals.
      score_column: name of the column of scores; by default one of SCORES.
        Only two texts have one.

    Raises:
      FileNotFoundError: if there is no file.
      ValueError: if it has no rows, or its columns are unknown or invalid.
    """
    path = str(path)
    if path.lower().endswith(".txt"):
        return _read_lines(path, text_columns, score_column)
    # Its columns follow from the header.
    table = tables.Table(path, (0,), format=tables.format_of(path), max_texts=3)
    header, records = tables.read_records(path, table)
    names = header or [*dict.fromkeys(key for _, row in records for key in row)]
    chosen = [find_column(path, names, name) for name in text_columns]
    chosen = chosen or find_texts(path, names)
    if len(chosen) > 3 or len({*chosen}) < len(chosen):
        raise ValueError(
            f"text_columns={','.join(chosen)}; wanted one to three different "
            "names."
        )
    score, label = _find_score(path, names, len(chosen), score_column)
    table = dataclasses.replace(table, text=tuple(chosen), label=label)
    rows = tables.select_rows(path, table, header, records)
    file = PairsFile(
        path,
        [texts_of(path, row, len(chosen)) for row in rows],
        None,
        ("single texts", "pairs", "pairs with wrong second texts")[
            len(chosen) - 1
        ],
        [name for name in names if name not in (*chosen, label)],
    )
    if score is not None:
        scores, description = read_scores(path, rows)
        return file._replace(scores=scores, description=description)
    if label is not None and (found := take_entailed(path, label, rows)):
        return file._replace(
            texts=[*found.values()], description="entailments", numbers=[*found]
        )
    return file


def _find_score(path, names, num_texts, given):
    """Returns the column of scores, and that of scores or labels, or None."""
    if num_texts == 2:
        score = first_of(SCORES, names)
        if given is not None:
            score = find_column(path, names, given)
        return score, score or first_of(NLI_LABELS, names)
    # The name may be of another file.
    if num_texts == 1 and given is not None and first_of([given], names):
        raise ValueError(
            f"{path} has one text in a row, which has no score, but a column "
            f"{given!r}, which score_column names. Name two columns of texts."
        )
    return None, None


def _read_lines(path, text_columns, score_column):
    """Returns the PairsFile of a text on each line.

    Raises:
      ValueError: if it is a table of texts, or has none.
    """
    names = next(tables.read_lines(path), "").split("\t")
    known = [tuple(text_columns), *TEXTS]
    if len(names) > 1 and any(
        x and all(first_of([name], names) for name in x) for x in known
    ):
        raise ValueError(
            f"{path} has the columns {names[:12]}, but a .txt file is read as "
            "a text on each line. Rename it to .tsv."
        )
    if text_columns or score_column:
        logging.warning(
            "%s is read as a text on each line: text_columns and score_column "
            "are not of it. Is it a table? Then rename it to .tsv.",
            path,
        )
    lines = [line for line in tables.read_lines(path) if line.strip()]
    if not lines:
        raise ValueError(f"{path} has no texts.")
    return PairsFile(path, [(x, x) for x in lines], None, "single texts")


def first_of(wanted: Sequence[str], names: Sequence[str]) -> str | None:
    """Returns the first of the wanted names of columns that is there, or None.

    Capitals, and spaces at the ends, make no difference.
    """
    known = {name.strip().lower(): name for name in reversed(names)}
    found = (known.get(name.strip().lower()) for name in wanted)
    return next(filter(None, found), None)


def find_column(path: str, names: Sequence[str], wanted: str) -> str:
    """Returns the name of a column as the table has it."""
    found = wanted if wanted in names else first_of([wanted], names)
    if found is None:
        raise ValueError(
            f"{path} has no column {wanted!r}, which text_columns or "
            f"score_column names; it has {[*names][:12]}."
        )
    return found


def find_texts(path: str, names: Sequence[str]) -> list[str]:
    """Returns the columns of texts among the names of a table's columns."""
    for known in TEXTS:
        found = [name for x in known if (name := first_of([x], names))]
        if len(found) == len(known):
            negative = first_of(NEGATIVES, names) if len(known) == 2 else None
            return [*found, negative] if negative else found
    raise ValueError(
        f"{path} has the columns {[*names][:12]}; wanted such as "
        f"{' and '.join(TEXTS[0])}. Name them with text_columns, or is there "
        "another delimiter than the comma of .csv and the tab of .tsv?"
    )


def texts_of(path: str, row: tables.Row, count: int) -> tuple[str, ...]:
    """Returns the texts of a row of `count` texts, as those of PairsFile."""
    if count == 1:
        return row.text_a, row.text_a
    texts = [
        "" if text is None or normalization.is_blank(text) else text
        for text in (row.text_a, row.text_b, row.text_c)
    ]
    if not all(texts[:2]):
        raise ValueError(
            f"{path}, line {row.line}: one of the two texts is empty. Remove "
            "the row, or is it the wrong column?"
        )
    return tuple(texts[:count])


def read_scores(path: str, rows) -> tuple[list[float], str]:
    """Returns the scores of rows, from -1 to 1, and what they are, in words."""
    scores = []
    for row in rows:
        score = label_values.number_of(row.label)
        if not math.isfinite(score):
            raise ValueError(
                f"{path}, line {row.line}: the score is {row.label!r:.80}; "
                "wanted a number."
            )
        scores.append(score)
    largest = max(map(abs, scores))
    if largest <= 1:
        return scores, "pairs with scores"
    description = f"pairs with scores, which are divided by {largest:g}"
    return [score / largest for score in scores], description


def take_entailed(path: str, column: str, rows) -> dict[int, tuple[str, ...]]:
    """Returns the entailments among rows of a table, by index, as texts.

    Of three texts, the last one contradicts the first; it is "" if none does.
    There are two if no row has a third one. If labels are not those of
    inference, there are no entailments, which is said.

    Raises:
      ValueError: if labels are numbers, only some are those of inference, or
        none is an entailment.
    """
    labels = [str(row.label).strip().lower() for row in rows]
    if not _are_of_inference(path, column, rows, labels):
        return {}
    wrong: dict[str, list] = {}
    for row, label in zip(rows, labels, strict=True):
        if label == "contradiction":
            wrong.setdefault(row.text_a, []).append(row.text_b)
    turns = {text: itertools.cycle(others) for text, others in wrong.items()}
    none = itertools.repeat("")
    taken: dict[int, tuple[str, ...]] = {
        i: (row.text_a, row.text_b, next(turns.get(row.text_a, none)))
        for i, (row, label) in enumerate(zip(rows, labels, strict=True))
        if label == "entailment"
    }
    if not taken:
        raise ValueError(f"{path} has no pair with the label entailment.")
    if not wrong.keys() & {row[0] for row in taken.values()}:
        return {number: row[:2] for number, row in taken.items()}
    return taken


def _are_of_inference(path, column, rows, labels):
    """Returns whether labels are those of inference; raises or says else."""
    others = [row for row, x in zip(rows, labels, strict=True) if x not in NLI]
    if others and all(
        label in ("true", "false")
        or math.isfinite(label_values.number_of(label))
        for label in labels
    ):
        raise ValueError(
            f"{path} has numbers in the column {column!r}. If they number the "
            "labels of inference, write the names instead, such as "
            "'entailment'; if they are scores, name the column with "
            "score_column; if all pairs are alike, remove it."
        )
    if others and {*labels}.isdisjoint(NLI[:-1]):
        logging.warning(
            "%s has a column %r with values such as %r, which is not used: "
            "all pairs count as alike. If it is a score, name it with "
            "score_column.",
            path,
            column,
            others[0].label,
        )
        return False
    if others:
        raise ValueError(
            f"{path}, line {others[0].line}: the label is "
            f"{others[0].label!r:.80}; wanted one of {', '.join(NLI)}, as "
            "other rows have."
        )
    return True


def number_sequences(examples: Examples) -> np.ndarray:
    """Returns a number for each of N sequences, equal for equal ones, [N]."""
    numbers: dict[bytes, int] = {}
    parts = np.split(examples.ids, np.cumsum(examples.lengths)[:-1])
    found = [numbers.setdefault(x.tobytes(), len(numbers)) for x in parts]
    return np.array(found, np.int32)


def encode_rows(texts, tokenizer, max_seq_length: int) -> Examples:
    """Encodes rows of C texts, each text as [CLS] text [SEP].

    Returns:
      Examples with C sequences, and `text_ids` [N, C]: equal for texts of equal
      tokens, -1 for "" as a third text.
    """
    flat = [text for row in texts for text in row]
    packed = pack_pairs(tokenizer, flat, None, max_seq_length)
    ids = number_sequences(packed).reshape(len(texts), -1)
    is_absent = [[not text for text in row[2:]] for row in texts]
    ids[:, 2:][np.array(is_absent, bool)] = -1
    return dataclasses.replace(
        packed,
        num_choices=len(texts[0]),
        arrays={"text_ids": ids},
    )


def encode_once(
    texts, tokenizer, max_seq_length: int
) -> tuple[Examples, np.ndarray]:
    """Encodes the U different texts of rows of two or more texts.

    Returns:
      Examples of one sequence each; and the index of each row's first two
      texts among them, [N, 2]: equal for texts of equal tokens.
    """
    places: dict[str, int] = {}
    index = [
        [places.setdefault(text, len(places)) for text in row[:2]]
        for row in texts
    ]
    packed = pack_pairs(tokenizer, [*places], None, max_seq_length)
    numbers = number_sequences(packed)  # [U]
    _, first = np.unique(numbers, return_index=True)
    return packed, first[numbers][np.array(index, np.int32)]
