"""Reads tables of text: TSV in GLUE's format, CSV, JSON lines.

An invalid row is an error that names the file and the line, before training
starts; no row is skipped silently.
"""

import collections
import contextlib
import csv
import dataclasses
import difflib
import io
import itertools
import logging
import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from albert_tf import file_kinds, filesystem
from albert_tf.data import label_values
from albert_tf.text import normalization

FORMATS = ("tsv", "csv", "jsonl")
_SCALAR = str | int | float
_TEXTS = ("text_a", "text_b", "text_c")
# Names of columns in GLUE's files: those of texts, and some that are none.
_GLUE_TEXTS = {"sentence", "sentence1", "sentence2", "premise", "hypothesis"}
_GLUE_TEXTS |= {"question", "question1", "question2", "#1 string", "#2 string"}
_NO_TEXTS = {"label", "gold_label", "score", "idx", "index", "id", "quality"}
# The JSON types allowed for each part of a row.
_KINDS = {
    "text_a": (str, "a string"),
    "text_b": (str | None, "a string or null"),
    "text_c": (str | None, "a string or null"),
    "label": (_SCALAR | list, "a string, a number or a list of them"),
    "id": (_SCALAR, "a string or a number"),
}
_JSON_TYPES = {list: "a list", dict: "an object", int: "a whole number"}
_HAS_ZERO = (
    "{path}, line {line} contains a NUL character. Is it UTF-16, or was the "
    "disk full when it was written? Save it as UTF-8."
)
_NOT_UTF8 = (
    "{path} is not UTF-8 ({error}). Was it saved by a spreadsheet? Save it as "
    "UTF-8; iconv -f cp1252 -t utf-8 converts texts of Western Europe, "
    "-f cp1254 Turkish, -f cp1251 Cyrillic, -f cp1256 Arabic, -f gb18030 "
    "Chinese, -f big5 traditional Chinese, -f cp932 Japanese, -f cp949 Korean."
)


@dataclasses.dataclass(frozen=True)
class Table:
    """Describes the columns of a file.

    A column is given by its name in the header or by its number from 0; -1 is
    the last.

    Attributes:
      file: path relative to the data folder.
      text: one or two columns, or `max_texts`.
      label: column, or None if there are no labels; or a tuple of columns of
        0 and 1, one for each of the task's labels, in their order.
      id: column of unique values, or None to use the row number from 0.
      format: "tsv" (no quoting, as in GLUE), "csv" (quoted fields may contain
        delimiters and line breaks) or "jsonl" (one object per line).
      has_header: whether the first line names the columns.
      skips_short_rows: whether rows with too few columns are skipped.
      delimiter: character between fields that may be quoted; None for a comma
        in "csv", and for tabs in "tsv".
      is_glue: whether it is one of GLUE's files. Their texts are read as they
        are, even with quotes, so that scores can be compared.
      max_texts: the most columns of text, up to 3.
    """

    file: str
    text: tuple
    label: str | int | tuple | None = None
    id: str | int | None = None
    format: str = "tsv"
    has_header: bool = True
    skips_short_rows: bool = False
    delimiter: str | None = None
    is_glue: bool = False
    max_texts: int = 2

    def __post_init__(self):
        if self.format not in FORMATS:
            raise ValueError(
                f"format is {self.format!r}; wanted one of {FORMATS}."
            )
        count = len(self.text) if isinstance(self.text, tuple) else 0
        if not 1 <= count <= self.max_texts:
            raise ValueError(
                f"text is {self.text!r}; wanted 1 to {self.max_texts} columns."
            )
        if self.delimiter and (
            len(self.delimiter) > 1 or self.delimiter in '"\r\n'
        ):
            raise ValueError(
                f"delimiter is {self.delimiter!r}; wanted one character, such "
                'as ";" or "\\t".'
            )


def format_of(file: str) -> str:
    """Returns the format that the name of a file suggests; else "tsv"."""
    ending = os.path.splitext(file.lower())[1]
    if ending in (".json", ".jsonl", ".ndjson"):
        return "jsonl"
    return "csv" if ending == ".csv" else "tsv"


class Row(NamedTuple):
    """One row of a table.

    Attributes:
      id: identifies the prediction.
      text_a: the text, or the first of two.
      text_b: the second text, or None.
      text_c: the third text, or None.
      label: the value in the file: a string, or for JSON any value but null;
        None if the table has no labels.
      line: number of its first line, from 1.
    """

    id: str
    text_a: str
    text_b: str | None
    label: object
    line: int
    text_c: str | None = None


def read_table(path: filesystem.Path, table: Table) -> list[Row]:
    """Reads the rows of a table.

    Raises:
      FileNotFoundError: if there is no file.
      ValueError: if it is empty or not UTF-8, a column is unknown, a row is
        invalid or has no text, or two rows have the same id.
    """
    return select_rows(path, table, *read_records(path, table))


def read_records(
    path: filesystem.Path, table: Table
) -> tuple[list[str] | None, list]:
    """Reads the records of a file, whatever the columns of the table.

    Returns:
      The names of the columns, or None if the table has no header; and the
      records (line, fields): a list, or for JSON a dict.

    Raises:
      FileNotFoundError: if there is no file.
      ValueError: if it is empty or not UTF-8.
    """
    text = read_text(path)
    has_header = table.has_header and table.format != "jsonl"
    if table.format == "jsonl":
        records: list = parse_json_lines(path, text)
    elif table.format == "tsv" and not table.delimiter:
        records = _parse_tsv(path, text, table.is_glue)
    else:
        records = _parse_csv(path, text, table.delimiter or ",")
    header = records.pop(0)[1] if has_header and records else None
    if not records:
        raise ValueError(f"{path} has no rows. Was it copied completely?")
    return header, records


def select_rows(
    path: filesystem.Path, table: Table, header, records
) -> list[Row]:
    """Returns the rows of records, which are those of `read_records`.

    Raises:
      ValueError: if a column is unknown, a row is invalid or has no text, or
        two rows have the same id.
    """
    is_json = table.format == "jsonl"
    columns = _find_columns(path, table, header)
    if table.is_glue:
        _check_glue_header(path, table, header)
    _log_first_row(path, table, header, records)
    num_columns = len(header or records[0][1])
    width = 0 if is_json else _width(columns, num_columns)
    rows: list[Row] = []
    for line, fields in records:
        if table.skips_short_rows and len(fields) < width:
            continue
        where = f"{path}, line {line}"
        if is_json:
            _check_keys(where, fields, columns)
        else:
            _check_width(where, fields, width, num_columns, table)
        values = _read_values(where, fields, columns, table)
        _check_values(where, values, table, columns)
        name = str(values.pop("id", len(rows)))
        parts: dict = {"text_b": None, "label": None} | values
        rows.append(Row(name, **parts, line=line))
    _check_rows(path, rows, len(records))
    _warn_of_missing_texts(path, rows, table.is_glue)
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
            # Not splitlines: U+2028 and others may occur within a text.
            content = content.removesuffix(b"\r\n").removesuffix(b"\n")
            where = f"{path}, line {number}"
            yield filesystem.decode(content, where, _NOT_UTF8, encoding)
            encoding = "utf-8"  # Only the first line may have the mark.


def _parse_tsv(path, text, is_glue):
    """Returns (line number, fields) of the rows of a TSV file."""
    # Not splitlines(): it also splits at characters that occur in texts.
    text = text.rstrip("\r\n")
    if "\n" not in text and not is_glue:
        text = text.replace("\r", "\n")  # Line ends of older Macs.
    rows = [
        (number, line.removesuffix("\r").split("\t"))
        for number, line in enumerate(text.split("\n") if text else [], 1)
    ]
    if is_glue or '"' not in text:
        return rows
    has_doubled = any(_DOUBLED.fullmatch(f) for _, row in rows for f in row)
    with contextlib.suppress(ValueError):
        quoted = _parse_csv(path, text, "\t")
        if _is_quoted(rows, quoted, has_doubled):
            logging.warning(
                "%s: some fields are quoted, as pandas or Excel writes them; "
                "the quotes are removed.",
                path,
            )
            return quoted
    if has_doubled:
        logging.warning(
            "%s: some fields have doubled quotes, as if they were quoted, but "
            "not all rows can be read so; its quotes are read as text.",
            path,
        )
    return rows


# A field whose quotes are doubled between quotes.
_DOUBLED = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"')
# Fields that pandas leaves without quotes even if it quotes all others.
_UNQUOTED = re.compile(r"|[-+0-9.eE]+|true|false|nan|na", re.IGNORECASE)


def _is_quoted(rows, quoted, has_doubled):
    """Returns whether a TSV file was written with quotes.

    Its rows are (line number, fields): `rows` if quotes are text, `quoted` if
    they enclose fields. `has_doubled` is whether one has doubled quotes.
    """
    # `quoted` has no blank lines.
    rows = [(line, fields) for line, fields in rows if fields != [""]]
    if len({len(fields) for _, fields in quoted}) > 1:
        return False
    if len({len(fields) for _, fields in rows}) > 1:
        return True  # Tabs and line breaks between quotes.
    some = [field for _, fields in rows for field in fields]
    enclosed = [f for f in some if len(f) > 1 and f[0] == f[-1] == '"']
    # Excel quotes what has a comma, also between tabs.
    by_excel = len(enclosed) > 1 and enclosed == [f for f in some if "," in f]
    return (
        has_doubled
        or by_excel
        or len(enclosed) + sum(map(bool, map(_UNQUOTED.fullmatch, some)))
        == len(some)
    )


def _parse_csv(path, text, delimiter):
    """Returns (line number, fields) of the rows that are not empty.

    In a table of one column, an empty line is an empty field.
    """
    rows = parse_csv(path, text.rstrip("\r\n"), delimiter)
    rows = list(itertools.dropwhile(lambda row: not row[1], rows))
    is_single = bool(rows) and len(rows[0][1]) == 1
    return [
        (line, fields or [""]) for line, fields in rows if fields or is_single
    ]


def parse_csv(
    path: filesystem.Path, text: str, delimiter: str = ","
) -> list[tuple[int, list[str]]]:
    """Returns (line number, fields) of the rows of a CSV file, of `text`.

    An empty line is a row without fields. `path` is named in messages.

    Raises:
      ValueError: if quotes are unclosed or not doubled.
    """
    records, line = [], 1
    reader = csv.reader(
        io.StringIO(text, newline=""), strict=True, delimiter=delimiter
    )
    # The default limit is 131,072 characters per field.
    limit = csv.field_size_limit()
    csv.field_size_limit(max(limit, len(text)))
    try:
        for fields in reader:
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


def parse_json_lines(
    path: filesystem.Path, text: str
) -> list[tuple[int, dict]]:
    """Returns (line number, object) of the lines of `text`, but blank ones.

    Raises:
      ValueError: if a line is not a JSON object; it names `path` and the line.
    """
    return [
        (number, filesystem.parse_json(line, f"{path}, line {number}"))
        for number, line in enumerate(re.split("\r\n|\r|\n", text), 1)
        if line.strip()
    ]


def _find_columns(path, table, header):
    """Returns a dict from a part of a row to the index or key of its column.

    Parts are "text_a", "text_b", "text_c", "label", "id"; or instead of
    "label", for several columns of labels, each column in a tuple.
    """
    wanted: dict = dict(zip(_TEXTS, table.text, strict=False))
    if isinstance(table.label, tuple):
        wanted |= {(column,): column for column in table.label}
    else:
        wanted["label"] = table.label
    wanted["id"] = table.id
    return {
        part: _column(path, column, header, table.format)
        for part, column in wanted.items()
        if column is not None
    }


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


def _log_first_row(path, table, header, records):
    """Logs what the first row is taken for, if only numbers name columns."""
    label = table.label if isinstance(table.label, tuple) else (table.label,)
    if table.is_glue or any(isinstance(c, str) for c in (*table.text, *label)):
        return
    message = f"it has no header; the first row is {records[0][1]}"
    if header:
        message = f"its header is {header}; if these are data, "
        message += '"has_header": false'
    logging.warning("%s: %s.", path, message)


def _check_glue_header(path, table, header):
    """Raises ValueError if GLUE's columns of text have other names."""
    if not header:
        return
    names = [header[n].strip().lower() for n in table.text if n < len(header)]
    if other := next((name for name in names if name in _NO_TEXTS), None):
        raise ValueError(
            f"{path}: column {table.text[names.index(other)]}, where GLUE's "
            f"file has a text, is {other!r}; its header is {header}. Was it "
            "written by another program? A task of your own can name columns."
        )
    if not {*names} <= _GLUE_TEXTS:
        logging.warning(
            "%s: its first line, %s, is read as the header, which GLUE's file "
            "has; columns of text are called such as 'sentence' there.",
            path,
            header,
        )


def _width(columns, num_columns):
    """Returns the number of columns that each row needs."""
    numbers = {*columns.values()}
    if len({number % num_columns for number in numbers}) < len(numbers):
        return num_columns + 1  # As 0 and -1 of one column: not split at all.
    return max(c + 1 if c >= 0 else max(-c, num_columns) for c in numbers)


def _check_width(where, fields, width, num_columns, table):
    """Raises ValueError if a row's values may be in other columns."""
    if len(fields) < width:
        raise ValueError(
            f"{where}: found {len(fields)} columns, wanted at least {width}. "
            "Is the row truncated, or is the delimiter another one?"
        )
    # Empty fields at the end are of a trailing delimiter.
    is_even = len(fields) >= num_columns and not any(fields[num_columns:])
    if not is_even and not table.is_glue:
        first = "header" if table.has_header else "first row"
        raise ValueError(
            f"{where}: found {len(fields)} columns; the {first} has "
            f"{num_columns}. Does a text contain the delimiter (then it must "
            'be quoted, in a CSV file), is the "format" or "delimiter" another '
            "one, or are there names of rows (R: row.names=FALSE)?"
        )


def _check_keys(where, fields, columns):
    if missing := [c for c in columns.values() if c not in fields]:
        others = {columns.get(name) for name in (*_TEXTS, "id")}
        hint = "" if others.issuperset(missing) else f" {label_values.HINT}"
        raise ValueError(
            f"{where}: {missing} are missing from the keys "
            f"{sorted(fields)}.{hint}"
        )


def _read_values(where, fields, columns, table):
    """Returns a dict from a part of a row to its value."""
    values = {part: fields[column] for part, column in columns.items()}
    if isinstance(table.label, tuple):
        values["label"] = [
            _is_one(values.pop((column,)), column, where)
            for column in table.label
        ]
    return values


def _is_one(value, column, where):
    """Returns whether the value of a label's own column is one, not zero."""
    form = label_values.canonical(label_values.name_of(value))
    if form not in label_values.ZERO_OR_ONE:
        raise ValueError(
            f"{where}: the label column {column!r} has {value!r:.80}; "
            f"wanted 0 or 1. {label_values.HINT}"
        )
    return form in label_values.ONE


def _check_values(where, values, table, columns):
    """Raises ValueError if texts, labels or ids are invalid."""
    for name, value in values.items():
        kind, wanted = _KINDS[name]
        if not isinstance(value, kind):
            hint = f" {label_values.HINT}" if name == "label" else ""
            raise ValueError(
                f"{where}: {name} is {value!r:.80}; wanted {wanted} in the "
                f"column {columns[name]!r}.{hint}"
            )
    texts = [values.get(name) or "" for name in _TEXTS]
    if not table.is_glue and all(map(normalization.is_blank, texts)):
        raise ValueError(
            f"{where}: the text is empty. Remove the row, or is it the wrong "
            "column?"
        )
    labels = values.get("label")
    for value in labels if isinstance(labels, list) else ():
        if not isinstance(value, _SCALAR):
            raise ValueError(
                f"{where}: the labels contain {value!r:.80}; wanted strings or "
                "numbers."
            )
    name = str(values.get("id", "-"))
    if not name.strip() or set(name) & set("\t\r\n"):
        raise ValueError(
            f"{where}: id is {name!r:.80}; wanted a value without tabs and "
            "line breaks. Is it the right column?"
        )


def typed(name: str, value, kind: type):
    """Returns a JSON value of the given type; raises TypeError for another."""
    if not isinstance(value, kind) or isinstance(value, bool):
        wanted = _JSON_TYPES.get(kind, "a string")
        raise TypeError(f"{name}: found {value!r:.60}, wanted {wanted}")
    return value


def find_repeated(ids: Iterable[str]) -> str | None:
    """Returns the first id that occurs more than once, or None."""
    counts = collections.Counter(ids)
    return next((name for name in counts if counts[name] > 1), None)


def _check_rows(path, rows, num_records):
    """Raises ValueError if all rows were skipped, or ids are not unique."""
    if not rows:
        raise ValueError(
            f"{path}: all {num_records} rows have too few columns. Does it use "
            "another delimiter?"
        )
    if num_skipped := num_records - len(rows):
        logging.warning(
            "%s: %d of %d rows have too few columns and are skipped.",
            path,
            num_skipped,
            num_records,
        )
    if name := find_repeated(row.id for row in rows):
        first, second, *_ = [row.line for row in rows if row.id == name]
        raise ValueError(
            f"{path} has the id {name!r:.80} on line {first} and again on line "
            f"{second}; wanted unique ids to identify predictions. Is it the "
            "right column, or were files concatenated?"
        )


def _warn_of_missing_texts(path, rows, is_glue):
    # GLUE's texts may be such words.
    is_absent = normalization.is_blank if is_glue else label_values.is_missing
    lines = [
        row.line
        for row in rows
        if any(
            text is not None and is_absent(text)
            for text in (row.text_a, row.text_b)
        )
    ]
    if lines:
        logging.warning(
            "%s: a text of %d rows is empty or only a word for a missing "
            "value, the first on line %d.",
            path,
            len(lines),
            lines[0],
        )
