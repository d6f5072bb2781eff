"""Reads tables of text: TSV in GLUE's format, CSV, JSON lines.

An invalid row is an error that names the file and the line, before training
starts; no row is skipped silently.
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
# The JSON types allowed for each part of a row.
_KINDS = {
    "text_a": (str, "a string"),
    "text_b": (str | None, "a string or null"),
    "label": (_SCALAR | list, "a string, a number or a list of them"),
    "id": (_SCALAR, "a string or a number"),
}
_HAS_ZERO = (
    "{path}, line {line} contains a NUL character. Is it UTF-16, or was the "
    "disk full when it was written? Save it as UTF-8."
)
_NOT_UTF8 = (
    "{path} is not UTF-8 ({error}). Was it saved by a spreadsheet? Save it as "
    "UTF-8; if it is Latin-1, iconv -f latin1 -t utf-8 converts it."
)


@dataclasses.dataclass(frozen=True)
class Table:
    """Describes the columns of a file.

    A column is given by its name in the header or by its number from 0; -1 is
    the last.

    Attributes:
      file: path relative to the data folder.
      text: one or two columns.
      label: column, or None if there are no labels.
      id: column of unique values, or None to use the row number from 0.
      format: "tsv" (no quoting, as in GLUE), "csv" (quoted fields may contain
        delimiters and line breaks) or "jsonl" (one object per line).
      has_header: whether the first line names the columns.
      skips_short_rows: whether rows with too few columns are skipped.
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
            raise ValueError(
                f"format is {self.format!r}; wanted one of {FORMATS}."
            )
        if not isinstance(self.text, tuple) or len(self.text) not in (1, 2):
            raise ValueError(f"text is {self.text!r}; wanted 1 or 2 columns.")


class Row(NamedTuple):
    """One row of a table.

    Attributes:
      id: identifies the prediction.
      text_a: the text, or the first of two.
      text_b: the second text, or None.
      label: the value in the file: a string, or for JSON any value but null;
        None if the table has no labels.
      line: number of its first line, from 1.
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
        invalid, or two rows have the same id.
    """
    records = _PARSERS[table.format](path, read_text(path))
    header = None
    if table.has_header and table.format != "jsonl" and records:
        header = records.pop(0)[1]
    if not records:
        raise ValueError(f"{path} has no rows. Was it copied completely?")
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
        if problem := _explain_short_row(fields, columns, width):
            if table.skips_short_rows:
                continue
            raise ValueError(f"{path}, line {line}: {problem}")
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
            f"{path}: all {len(records)} rows have too few columns. Does it "
            "use another delimiter?"
        )
    if len(rows) < len(records):
        logging.warning(
            "%s: %d of %d rows have too few columns and are skipped.",
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
      ValueError: if it is not UTF-8, or contains NUL characters.
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
    """Returns (line number, fields) of the rows of a TSV file."""
    # Not splitlines(): it also splits at characters that occur in texts.
    text = text.rstrip("\r\n")
    return [
        (number, line.removesuffix("\r").split("\t"))
        for number, line in enumerate(text.split("\n") if text else [], 1)
    ]


def _parse_csv(path, text):
    records, line = [], 1
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    # The default limit is 131,072 characters per field.
    limit = csv.field_size_limit()
    csv.field_size_limit(max(limit, len(text)))
    try:
        for fields in reader:
            if fields:
                records.append((line, fields))
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{path}, line {line}: {error}. Is a quote unclosed, or not "
            "doubled inside a field?"
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
    """Returns the index or key of a column in a record."""
    if format == "jsonl" or isinstance(column, int):
        return column
    if header is None or column not in header:
        raise ValueError(
            f"{path} has no column {column!r}; its header is {header}. Is the "
            "header missing, or is the separator neither a tab "
            '("tsv") nor a comma ("csv")? (A test table without labels needs '
            '"test_label": null.)'
        )
    if header.count(column) > 1:
        raise ValueError(
            f"{path} has {header.count(column)} columns named {column!r}. Use "
            f"a column number, from 0; its header is {header}."
        )
    return header.index(column)


def _width(columns, header):
    """Returns the minimum number of columns of a row."""
    from_end = len(header) if header else 0
    return max(
        (c + 1 if c >= 0 else max(-c, from_end))
        for c in columns.values()
        if isinstance(c, int)
    )


def _explain_short_row(fields, columns, width):
    """Returns a sentence on the columns that a row lacks; None if complete."""
    if isinstance(fields, dict):
        if missing := [c for c in columns.values() if c not in fields]:
            return f"{missing} are missing from the keys {sorted(fields)}."
    elif len(fields) < width or _has_equal_columns(fields, columns):
        return (
            f"found {len(fields)} columns, wanted at least "
            f"{max(width, len(fields) + 1)}. Is the row "
            "truncated, or is the delimiter another one?"
        )
    return None


def _has_equal_columns(fields, columns):
    """Returns whether two columns are one, as -1 and 0 in a row of one."""
    wanted = {c for c in columns.values() if isinstance(c, int)}
    return len({c % len(fields) for c in wanted}) < len(wanted)


def _check_values(path, line, values):
    """Raises ValueError if texts, labels or ids have the wrong JSON type."""
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
                f"{path}, line {line}: the labels contain {value!r:.80}; "
                "wanted strings or numbers."
            )
    name = str(values.get("id", "-"))
    if not name.strip() or set(name) & set("\t\r\n"):
        raise ValueError(
            f"{path}, line {line}: id is {name!r:.80}; wanted a value without "
            "tabs and line breaks. Is it the right column?"
        )


def _check_ids(path, rows):
    lines: dict[str, int] = {}
    for row in rows:
        first = lines.setdefault(row.id, row.line)
        if first != row.line:
            raise ValueError(
                f"{path} has the id {row.id!r:.80} on line {first} and again "
                f"on line {row.line}; wanted unique ids to identify "
                "predictions. Is it the right column, or were files "
                "concatenated?"
            )


def _warn_of_long_rows(path, records, header):
    lines = [n for n, fields in records if header and len(fields) > len(header)]
    if lines:
        logging.warning(
            "%s: %d of %d rows have more columns than the header, the first "
            "on line %d. Does a text contain the delimiter? It is cut there.",
            path,
            len(lines),
            len(records),
            lines[0],
        )
