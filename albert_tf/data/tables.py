"""Reads tables of text: TSV as GLUE writes it, CSV, JSON lines.

A row that does not fit is an error that names file and line, before any
training; nothing is skipped silently.
"""

import csv
import dataclasses
import io
import json
import logging
from typing import NamedTuple

FORMATS = ("tsv", "csv", "jsonl")


@dataclasses.dataclass(frozen=True)
class Table:
    """Where texts and labels stand in a file.

    A column is its name in the header, or its number from 0; -1 is the last.

    Attributes:
      file: path below the data folder.
      text: one or two columns.
      label: column, or None where there are no labels.
      id: column, or None: the row's number from 0.
      format: "tsv" (no quoting, as in GLUE), "csv" (quoted fields may hold
        delimiters and ends of lines) or "jsonl" (an object a line).
      has_header: whether the first line names the columns.
      skips_short_rows: whether rows with too few columns are left out.
    """

    file: str
    text: tuple
    label: str | int | None = None
    id: str | int | None = None
    format: str = "tsv"
    has_header: bool = True
    skips_short_rows: bool = False


class Row(NamedTuple):
    """One row of a table.

    Attributes:
      id: what a prediction is known by.
      text_a: the text, or the first of two.
      text_b: the second text, or None.
      label: as it stands in the file, or None.
      line: number of the line where it begins, from 1.
    """

    id: str
    text_a: str
    text_b: str | None
    label: object
    line: int


def read_table(path, table):
    """Reads the rows of a table.

    Args:
      path: its file.
      table: a Table.

    Returns:
      A list of Row.

    Raises:
      FileNotFoundError: if there is no file.
      ValueError: if it is empty or not UTF-8, a column is unknown, or a row
        is damaged.
    """
    text = _read_text(path)
    if table.format == "jsonl":
        records = list(_parse_json_lines(path, text))
        header = None
    else:
        records = list(_split(path, text, table.format))
        header = records.pop(0)[1] if table.has_header and records else None
    if not records:
        raise ValueError(f"{path} has no rows. Was it copied whole?")
    wanted = dict(zip(("text_a", "text_b"), table.text, strict=False))
    wanted |= {"label": table.label, "id": table.id}
    columns = {
        name: _column(path, column, header, table.format)
        for name, column in wanted.items()
        if column is not None
    }
    rows = []
    for line, fields in records:
        try:
            found = {name: fields[c] for name, c in columns.items()}
        except (IndexError, KeyError):
            if not table.skips_short_rows:
                _raise_of_short_row(path, line, fields, columns)
            continue
        rows.append(
            Row(
                id=str(found.get("id", len(rows))),
                text_a=found["text_a"],
                text_b=found.get("text_b"),
                label=found.get("label"),
                line=line,
            )
        )
    if len(rows) < len(records):
        logging.warning(
            "%s: %d of %d rows have too few columns and are left out.",
            path,
            len(records) - len(rows),
            len(records),
        )
    return rows


def _read_text(path):
    import tensorflow as tf

    if not tf.io.gfile.exists(path):
        raise FileNotFoundError(f"There is no {path}.")
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 ({error}). Was it saved by a spreadsheet? "
            "Save it as UTF-8."
        ) from None


def _split(path, text, format):
    """Line numbers and fields of the records of a TSV or CSV file."""
    if format == "csv":
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        line = 1
        try:
            for fields in reader:
                if fields:
                    yield line, fields
                line = reader.line_num + 1
        except csv.Error as error:
            raise ValueError(f"{path}, line {line}: {error}.") from None
        return
    # Not splitlines(): it also splits at characters that stand in texts.
    for number, line in enumerate(text.rstrip("\r\n").split("\n"), 1):
        if text.strip():
            yield number, line.removesuffix("\r").split("\t")


def _parse_json_lines(path, text):
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}.") from None
        if not isinstance(record, dict):
            raise ValueError(
                f"{path}, line {number}: wanted a JSON object, found "
                f"{type(record).__name__}."
            )
        yield number, record


def _column(path, column, header, format):
    """What to index a record with."""
    if format == "jsonl" or isinstance(column, int):
        return column
    if header is None or column not in header:
        raise ValueError(
            f"{path} has no column {column!r}; its header is {header}. Is "
            "the delimiter another one, or the header missing?"
        )
    return header.index(column)


def _raise_of_short_row(path, line, fields, columns):
    if isinstance(fields, dict):
        missing = [c for c in columns.values() if c not in fields]
        raise ValueError(
            f"{path}, line {line}: {missing} missing among the keys "
            f"{sorted(fields)}."
        )
    wanted = max(c for c in columns.values()) + 1
    raise ValueError(
        f"{path}, line {line}: found {len(fields)} columns, wanted at least "
        f"{wanted}. Is it cut off, or delimited otherwise?"
    )
