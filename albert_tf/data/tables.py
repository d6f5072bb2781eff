"""Reads tables of text: TSV in GLUE's format, CSV, JSON lines.

An invalid row is an error that names the file and the line, before training
starts; no row is skipped silently.
"""

import csv
import dataclasses
import difflib
import io
import logging
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from albert_tf import file_kinds, filesystem
from albert_tf.data import label_values
from albert_tf.text import normalization

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
    "UTF-8; iconv -f latin1 -t utf-8 converts Latin-1, -f gb18030 Chinese."
)


@dataclasses.dataclass(frozen=True)
class Table:
    """Describes the columns of a file.

    A column is given by its name in the header or by its number from 0; -1 is
    the last.

    Attributes:
      file: path relative to the data folder.
      text: one or two columns.
      label: column, or None if there are no labels; or a tuple of columns of
        0 and 1, one for each label.
      id: column of unique values, or None to use the row number from 0.
      format: "tsv" (no quoting, as in GLUE), "csv" (quoted fields may contain
        delimiters and line breaks) or "jsonl" (one object per line).
      delimiter: character between fields that may be quoted; None for a comma
        in "csv", and for tabs in "tsv".
      label_names: the label of each column, if there are several.
      has_header: whether the first line names the columns.
      is_glue: whether it is one of GLUE's files, of which nothing is quoted,
        and texts and rows are read as they are.
      skips_short_rows: whether rows with too few columns are skipped.
    """

    file: str
    text: tuple
    label: str | int | tuple | None = None
    id: str | int | None = None
    format: str = "tsv"
    has_header: bool = True
    skips_short_rows: bool = False
    delimiter: str | None = None
    label_names: tuple[str, ...] | None = None
    is_glue: bool = False

    def __post_init__(self):
        if self.format not in FORMATS:
            raise ValueError(
                f"format is {self.format!r}; wanted one of {FORMATS}."
            )
        if not isinstance(self.text, tuple) or len(self.text) not in (1, 2):
            raise ValueError(f"text is {self.text!r}; wanted 1 or 2 columns.")
        if self.delimiter and (
            len(self.delimiter) > 1 or self.delimiter in '"\r\n'
        ):
            raise ValueError(
                f"delimiter is {self.delimiter!r}; wanted one character, such "
                'as ";" or "\\t".'
            )


def format_of(file: str) -> str:
    """Returns the format that the name of a file suggests; else "tsv"."""
    endings = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
    endings[".json"] = "jsonl"
    return endings.get(os.path.splitext(file.lower())[1], "tsv")


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
        invalid or has no text, or two rows have the same id.
    """
    records = _PARSERS[table.format](path, read_text(path), table)
    header = None
    if table.has_header and table.format != "jsonl" and records:
        header = records.pop(0)[1]
    if not records:
        raise ValueError(f"{path} has no rows. Was it copied completely?")
    columns = _find_columns(path, table, header)
    _say_first_row(path, table, header, records)
    rows: list[Row] = []
    width = 0 if table.format == "jsonl" else _width(columns, header)
    num_wanted = len(header or records[0][1])
    for line, fields in records:
        problem = _explain_short_row(fields, columns, width)
        if problem and table.skips_short_rows:
            continue
        if not problem and table.format != "jsonl" and not table.is_glue:
            problem = _explain_other_width(fields, num_wanted, table)
        if problem:
            raise ValueError(f"{path}, line {line}: {problem}")
        values = _read_values(path, line, fields, columns, table)
        _check_values(path, line, values, table)
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
    _warn_of_missing_texts(path, rows, table)
    _check_ids(path, rows)
    return rows


def _read_values(path, line, fields, columns, table):
    """Returns a dict from a part of a row to its value."""
    values = {
        name: fields[c] for name, c in columns.items() if isinstance(name, str)
    }
    if table.label_names:
        values["label"] = [
            name
            for number, name in enumerate(table.label_names)
            if _is_one(fields[columns[number]], name, path, line)
        ]
    return values


def _find_columns(path, table, header):
    """Returns a dict from a part of a row to the index or key of its column.

    Parts are "text_a", "text_b", "label", "id"; with several columns of
    labels, their numbers from 0.
    """
    wanted: dict = dict(zip(("text_a", "text_b"), table.text, strict=False))
    if table.label_names:
        wanted |= dict(enumerate(table.label))
    else:
        wanted["label"] = table.label
    wanted["id"] = table.id
    return {
        name: _column(path, column, header, table.format)
        for name, column in wanted.items()
        if column is not None
    }


def _say_first_row(path, table, header, records):
    """Says what the first row is taken for, where nothing else checks it."""
    label = table.label if isinstance(table.label, tuple) else (table.label,)
    if table.is_glue or any(isinstance(c, str) for c in (*table.text, *label)):
        return
    if header:
        said = f'its header is {header}; if these are data, "has_header": false'
    else:
        said = f"it has no header; the first row is {records[0][1]}"
    logging.warning("%s: %s.", path, said)


def read_text(path: filesystem.Path) -> str:
    """Reads a file of UTF-8 text, with or without a byte order mark.

    Raises:
      FileNotFoundError: if there is no file.
      ValueError: if it is not UTF-8, or contains NUL characters.
    """
    if not filesystem.exists(path):
        raise FileNotFoundError(f"There is no {path}.")
    content = filesystem.read_file(path)
    if kind := file_kinds.describe(content):
        raise ValueError(f"{path} is {kind}; wanted UTF-8 text.")
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


def _parse_tsv(path, text, table):
    """Returns (line number, fields) of the rows of a TSV file."""
    if table.delimiter:
        return _parse_csv(path, text, table)
    # Not splitlines(): it also splits at characters that occur in texts.
    text = text.rstrip("\r\n")
    if "\n" not in text and not table.is_glue:
        text = text.replace("\r", "\n")  # Line ends of older Macs.
    rows = [
        (number, line.removesuffix("\r").split("\t"))
        for number, line in enumerate(text.split("\n") if text else [], 1)
    ]
    if table.is_glue or '"' not in text:
        return rows
    try:
        quoted = _parse_csv(path, text, table, "\t")
    except ValueError:
        quoted = []
    if quoted and _is_quoted(rows, quoted):
        logging.warning(
            "%s: some fields are quoted, as pandas writes them; the quotes are "
            "removed.",
            path,
        )
        return quoted
    if _has_doubled_quotes(rows):
        logging.warning(
            "%s: some fields have doubled quotes, as if they were quoted, but "
            "not all rows can be read so; its quotes are read as text.",
            path,
        )
    return rows


# A field whose quotes are doubled between quotes.
_DOUBLED = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"')
_UNQUOTED = re.compile(r"|[-+0-9.eE]+|true|false|nan|na", re.IGNORECASE)


def _is_quoted(rows, quoted):
    """Returns whether the rows of a TSV file were written with quotes.

    Args:
      rows: (line number, fields) if quotes are text.
      quoted: the same if they enclose fields.
    """
    if len({len(fields) for _, fields in quoted}) > 1:
        return False
    if len({len(fields) for _, fields in rows}) > 1:
        return True  # Tabs and line breaks between quotes.
    return _has_doubled_quotes(rows) or all(
        _UNQUOTED.fullmatch(field)
        or (len(field) > 1 and field[0] == field[-1] == '"')
        for _, fields in rows
        for field in fields
    )


def _has_doubled_quotes(rows):
    return any(_DOUBLED.fullmatch(f) for _, fields in rows for f in fields)


def _parse_csv(path, text, table, delimiter=None):
    records, line = [], 1
    reader = csv.reader(
        io.StringIO(text, newline=""),
        strict=True,
        delimiter=delimiter or table.delimiter or ",",
    )
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
            'doubled inside a field, or is the "delimiter" another one?'
        ) from None
    finally:
        csv.field_size_limit(limit)
    return records


def _parse_json_lines(path, text, _table):
    return [
        (number, filesystem.parse_json(line, f"{path}, line {number}"))
        for number, line in enumerate(re.split("\r\n|\r|\n", text), 1)
        if line.strip()
    ]


_PARSERS = {"tsv": _parse_tsv, "csv": _parse_csv, "jsonl": _parse_json_lines}


def _column(path, column, header, format):
    """Returns the index or key of a column in a record."""
    if format == "jsonl" or isinstance(column, int):
        return column
    if header is None or column not in header:
        names = {name.lower(): name for name in header or ()}
        near = difflib.get_close_matches(column.lower(), [*names], 1)
        raise ValueError(
            f"{path} has no column {column!r}; its header is {header}."
            + (f" Did you mean {names[near[0]]!r}?" if near else "")
            + ' Is the header missing, or is the "format" ("tsv" has tabs, '
            '"csv" commas) or the "delimiter" another one? (A test table '
            'without labels needs "test_label": null.)'
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
            others = {columns.get(n) for n in ("text_a", "text_b", "id")}
            hint = "" if others.issuperset(missing) else label_values.HINT
            return (
                f"{missing} are missing from the keys {sorted(fields)}. {hint}"
            ).strip()
    elif len(fields) < width or _has_equal_columns(fields, columns):
        return (
            f"found {len(fields)} columns, wanted at least "
            f"{max(width, len(fields) + 1)}. Is the row "
            "truncated, or is the delimiter another one?"
        )
    return None


def _explain_other_width(fields, num_wanted, table):
    """Returns a sentence if a row's values may be in other columns."""
    surplus = fields[num_wanted:]
    if len(fields) == num_wanted or (surplus and not any(surplus)):
        return None
    first = "header" if table.has_header else "first row"
    return (
        f"found {len(fields)} columns; the {first} has {num_wanted}. Does a "
        "text contain the delimiter (then it must be quoted, in a CSV file), "
        'is the "format" or "delimiter" another one, or are there names of '
        "rows (R: row.names=FALSE)?"
    )


def _has_equal_columns(fields, columns):
    """Returns whether two columns are one, as -1 and 0 in a row of one."""
    wanted = {c for c in columns.values() if isinstance(c, int)}
    return len({c % len(fields) for c in wanted}) < len(wanted)


def _is_one(value, name, path, line):
    """Returns whether the value of a label's own column is one, not zero."""
    found = label_values.canonical(label_values.name_of(value))
    if found not in label_values.ZERO_OR_ONE:
        raise ValueError(
            f"{path}, line {line}: the column of the label {name!r} has "
            f"{value!r:.80}; wanted 0 or 1. {label_values.HINT}"
        )
    return found in label_values.ONE


def _check_values(path, line, values, table):
    """Raises ValueError if texts, labels or ids are invalid."""
    for name, value in values.items():
        kind, wanted = _KINDS[name]
        if not isinstance(value, kind):
            hint = f" {label_values.HINT}" if name == "label" else ""
            raise ValueError(
                f"{path}, line {line}: {name} is {value!r:.80}; wanted "
                f"{wanted}.{hint}"
            )
    texts = [values.get(name) or "" for name in ("text_a", "text_b")]
    if not table.is_glue and all(map(normalization.is_blank, texts)):
        raise ValueError(
            f"{path}, line {line}: the text is empty. Remove the row, or is "
            "it the wrong column?"
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


def _warn_of_missing_texts(path, rows, table):
    lines = [
        row.line
        for row in rows
        if label_values.is_missing(row.text_a)
        or (row.text_b is not None and label_values.is_missing(row.text_b))
    ]
    if lines and not table.is_glue:
        logging.warning(
            "%s: a text of %d rows is empty or only a word for a missing "
            "value, the first on line %d.",
            path,
            len(lines),
            lines[0],
        )
