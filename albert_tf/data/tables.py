"""Reads tables of text: TSV as GLUE writes it, CSV, JSON lines.

A row that does not fit is an error that names file and line, before any
training; nothing is skipped silently.
"""

import csv
import dataclasses
import io
import logging
from collections.abc import Iterator
from typing import NamedTuple

from albert_tf import filesystem

FORMATS = ("tsv", "csv", "jsonl")
_SCALAR = str | int | float
# What JSON may hold of each part of a row.
_KINDS = {
    "text_a": (str, "a string"),
    "text_b": (str | None, "a string or null"),
    "label": (_SCALAR | list, "a string, a number or a list of them"),
    "id": (_SCALAR, "a string or a number"),
}
_HAS_ZERO = (
    "{path}, line {line} holds a character 0. Is it UTF-16, or was the disk "
    "full when it was written? Save it as UTF-8."
)
_NOT_UTF8 = (
    "{path} is not UTF-8 ({error}). Was it saved by a spreadsheet? Save it as "
    "UTF-8."
)


@dataclasses.dataclass(frozen=True)
class Table:
    """Where texts and labels stand in a file.

    A column is its name in the header, or its number from 0; -1 is the last.

    Attributes:
      file: path below the data folder.
      text: one or two columns.
      label: column, or None where there are no labels.
      id: column, whose values differ, or None: the row's number from 0.
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

    def __post_init__(self):
        if self.format not in FORMATS:
            raise ValueError(f"format is {self.format!r}; known: {FORMATS}.")
        if not isinstance(self.text, tuple) or len(self.text) not in (1, 2):
            raise ValueError(f"text is {self.text!r}; wanted 1 or 2 columns.")


class Row(NamedTuple):
    """One row of a table.

    Attributes:
      id: what a prediction is known by.
      text_a: the text, or the first of two.
      text_b: the second text, or None.
      label: as it stands in the file: a string, in JSON any value but null;
        None where the table has no labels.
      line: number of the line where it begins, from 1.
    """

    id: str
    text_a: str
    text_b: str | None
    label: object
    line: int


def read_table(path: filesystem.Path, table: Table) -> list[Row]:
    """Reads the rows of a table.

    Raises:
      FileNotFoundError: if there is no file.
      ValueError: if it is empty or not UTF-8, a column is unknown, a row is
        damaged, or two rows have one id.
    """
    records = _PARSERS[table.format](path, read_text(path))
    header = None
    if table.has_header and table.format != "jsonl" and records:
        header = records.pop(0)[1]
    if not records:
        raise ValueError(f"{path} has no rows. Was it copied whole?")
    wanted = dict(zip(("text_a", "text_b"), table.text, strict=False))
    wanted |= {"label": table.label, "id": table.id}
    columns = {
        name: _column(path, column, header, table.format)
        for name, column in wanted.items()
        if column is not None
    }
    rows: list[Row] = []
    width = 0 if table.format == "jsonl" else _width(columns, header)
    for line, fields in records:
        if lack := _find_lack(fields, columns, width):
            if table.skips_short_rows:
                continue
            raise ValueError(f"{path}, line {line}: {lack}")
        values = {name: fields[c] for name, c in columns.items()}
        _check_values(path, line, values)
        rows.append(
            Row(
                id=str(values.get("id", len(rows))),
                text_a=values["text_a"],
                text_b=values.get("text_b"),
                label=values.get("label"),
                line=line,
            )
        )
    if not rows:
        raise ValueError(
            f"{path}: each of its {len(records)} rows has too few columns. Is "
            "the delimiter another one?"
        )
    if len(rows) < len(records):
        logging.warning(
            "%s: %d of %d rows have too few columns and are left out.",
            path,
            len(records) - len(rows),
            len(records),
        )
    _warn_of_long_rows(path, records, header)
    _check_ids(path, rows)
    return rows


def read_text(path: filesystem.Path) -> str:
    """Reads a file of UTF-8 text, with or without a byte order mark.

    Raises:
      FileNotFoundError: if there is no file.
      ValueError: if it is not UTF-8, or holds characters 0.
    """
    if not filesystem.exists(path):
        raise FileNotFoundError(f"There is no {path}.")
    content = filesystem.read_file(path)
    if b"\0" in content:
        line = content[: content.index(b"\0")].count(b"\n") + 1
        raise ValueError(_HAS_ZERO.format(path=path, line=line))
    return filesystem.decode(content, path, _NOT_UTF8)


def read_lines(path: filesystem.Path) -> Iterator[str]:
    """Yields the lines of a file as `read_text` reads it, without their ends.

    The file may be a pipe, and larger than the memory.
    """
    encoding = "utf-8-sig"
    with filesystem.open_file(path) as file:
        for number, content in enumerate(file, 1):
            if b"\0" in content:
                raise ValueError(_HAS_ZERO.format(path=path, line=number))
            # Not splitlines: U+2028 and others may stand within a text.
            content = content.removesuffix(b"\r\n").removesuffix(b"\n")
            where = f"{path}, line {number}"
            yield filesystem.decode(content, where, _NOT_UTF8, encoding)
            encoding = "utf-8"


def _parse_tsv(_path, text):
    """Line numbers and fields of the rows of a TSV file."""
    # Not splitlines(): it also splits at characters that stand in texts.
    text = text.rstrip("\r\n")
    return [
        (number, line.removesuffix("\r").split("\t"))
        for number, line in enumerate(text.split("\n") if text else [], 1)
    ]


def _parse_csv(path, text):
    records, line = [], 1
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    # The default refuses texts of more than 131,072 characters.
    limit = csv.field_size_limit()
    csv.field_size_limit(max(limit, len(text)))
    try:
        for fields in reader:
            if fields:
                records.append((line, fields))
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{path}, line {line}: {error}. Is there a single quote mark "
            "where two should be?"
        ) from None
    finally:
        csv.field_size_limit(limit)
    return records


def _parse_json_lines(path, text):
    return [
        (number, filesystem.parse_json(line, f"{path}, line {number}"))
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip()
    ]


_PARSERS = {"tsv": _parse_tsv, "csv": _parse_csv, "jsonl": _parse_json_lines}


def _column(path, column, header, format):
    """What to index a record with."""
    if format == "jsonl" or isinstance(column, int):
        return column
    if header is None or column not in header:
        raise ValueError(
            f"{path} has no column {column!r}; its header is {header}. Is "
            "the delimiter another one, or the header missing?"
        )
    if header.count(column) > 1:
        raise ValueError(
            f"{path} has {header.count(column)} columns {column!r}. Give the "
            f"number of one, from 0; its header is {header}."
        )
    return header.index(column)


def _width(columns, header):
    """How many columns a row must have at least."""
    from_end = len(header) if header else 0
    return max(
        (c + 1 if c >= 0 else max(-c, from_end))
        for c in columns.values()
        if isinstance(c, int)
    )


def _find_lack(fields, columns, width):
    """What a row is too short for, as a sentence; None for nothing."""
    if isinstance(fields, dict):
        if missing := [c for c in columns.values() if c not in fields]:
            return f"{missing} missing among the keys {sorted(fields)}."
    elif len(fields) < width:
        return (
            f"found {len(fields)} columns, wanted at least {width}. Is it cut "
            "off, or delimited otherwise?"
        )
    return None


def _check_values(path, line, values):
    """Refuses what JSON may have instead of texts, labels and ids."""
    for name, value in values.items():
        kind, wanted = _KINDS[name]
        if not isinstance(value, kind):
            raise ValueError(
                f"{path}, line {line}: {name} is {value!r:.80}; wanted "
                f"{wanted}."
            )
    labels = values.get("label")
    for value in labels if isinstance(labels, list) else ():
        if not isinstance(value, _SCALAR):
            raise ValueError(
                f"{path}, line {line}: among the labels is {value!r:.80}; "
                "wanted strings or numbers."
            )
    name = str(values.get("id", "-"))
    if not name.strip() or set(name) & set("\t\r\n"):
        raise ValueError(
            f"{path}, line {line}: id is {name!r:.80}; wanted a value without "
            "tabs and ends of lines. Is it the right column?"
        )


def _check_ids(path, rows):
    lines: dict[str, int] = {}
    for row in rows:
        first = lines.setdefault(row.id, row.line)
        if first != row.line:
            raise ValueError(
                f"{path} has the id {row.id!r:.80} on line {first} and again "
                f"on line {row.line}; predictions are known by it. Is it the "
                "right column, or were files joined?"
            )


def _warn_of_long_rows(path, records, header):
    lines = [n for n, fields in records if header and len(fields) > len(header)]
    if lines:
        logging.warning(
            "%s: %d of %d rows have more columns than the header, the first "
            "on line %d. Does a text hold the delimiter? It is cut off there.",
            path,
            len(lines),
            len(records),
            lines[0],
        )
