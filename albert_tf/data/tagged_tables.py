"""Reads and writes tables of tagged words: CoNLL and CSV; see `tagged`."""

import csv
import functools
import io
import logging
import re
from collections.abc import Callable
from typing import NamedTuple

from albert_tf import filesystem
from albert_tf.data import tables

Column = int | str | None
# From the tags of each sentence to the content of a file.
Writer = Callable[[list[list[str]]], str]
MAX_WORDS = 10_000
NO_TAGS = "Is it test data without tags?"
# Columns of CSV files, in lower case, in order of preference.
_WORD_NAMES = ("word", "token")
_TAG_NAMES = ("tag", "label")
_SENTENCE_NAMES = ("sentence #", "sentence", "sentence_id")


# CoNLL-U: the number of a row; comments, multiword tokens 1-2, empty nodes 1.1.
_NUMBER = re.compile(r"\d+([-.]\d+)?")
_NO_WORD = re.compile(r"#|\d+[-.]")


class Columns(NamedTuple):
    """The arguments of `tagged.read_tagged`."""

    word: Column
    tag: Column
    has_tags: bool | None


class Row(NamedTuple):
    """A sentence of a file.

    Attributes:
      line: number of its first line, from 1.
      words: W words.
      tags: W tags in the scheme of the file; None if they are unknown.
      text: the text of the words, or None if there are only words.
      spans: W pairs, the first character of each word in `text` and its end.
    """

    line: int
    words: list[str]
    tags: list[str] | None
    text: str | None = None
    spans: list[tuple[int, int]] | None = None


def read_conll(
    path: filesystem.Path, text: str, columns: Columns
) -> tuple[list[Row], Writer]:
    """Returns the sentences of a CoNLL file, and its Writer.

    Raises:
      ValueError: see `tagged.read_tagged`.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = re.split("\r\n|\r|\n", text)
    first, fields = next(
        (
            (number, _split_row(line))
            for number, line in enumerate(lines, 1)
            if not _is_skipped(line) and not line.startswith("#")
        ),
        (1, []),
    )
    if not fields:
        raise ValueError(f"{path} has no words. Was it copied completely?")
    if re.match(r"""\{(["']|$)""", "".join(fields)):
        raise ValueError(
            f"{path}, line {first} begins with a brace; wanted columns of "
            "words and tags. JSON lines need a name that ends with .jsonl."
        )
    is_conllu = str(path).lower().endswith(".conllu")
    is_conllu |= len(fields) == 10 and bool(_NUMBER.fullmatch(fields[0]))
    word, tag = _find_columns(path, columns, is_conllu, first, len(fields))
    groups = _group_lines(lines, is_conllu, len(fields))

    def split(number):
        row = _split_row(lines[number - 1])
        _check_width(path, number, row, len(fields), f"line {first}")
        return number, row

    sentences = (list(map(split, group)) for group in groups)
    rows = _build_rows(
        path, sentences, word, None if columns.has_tags is False else tag
    )
    if columns.word is None:
        _check_words(path, rows)
    _check_tags(path, rows)
    return rows, functools.partial(_write_conll, lines, groups, tag, newline)


def _split_row(line):
    """Returns the columns of a line."""
    if "\t" in line:
        return line.strip(" ").split("\t")
    return [field for field in line.split(" ") if field]


def _is_skipped(line):
    """Returns whether a line is between sentences."""
    return not line.strip(" \t") or line.startswith("-DOCSTART-")


def _group_lines(lines, is_conllu, width):
    """Returns the line numbers of the words of each sentence.

    `width` is the number of columns of the first word.
    """
    groups: list[list[int]] = [[]]
    for number, line in enumerate(lines, 1):
        if _is_skipped(line):
            groups.append([])
        elif is_conllu and _NO_WORD.match(line):
            continue
        elif is_conllu or groups[-1] or not _is_comment(line, width):
            groups[-1].append(number)
    return [group for group in groups if group]


def _is_comment(line, width):
    """Returns whether the first line of a sentence is no word."""
    return line.startswith("#") and (
        len(_split_row(line)) != width
        or re.match(r"# *([\w.:-]+ += |(newdoc|newpar|sent_id)(\s|=|$))", line)
        is not None
    )


def _find_columns(path, columns, is_conllu, line, width):
    """Returns the numbers of the columns of words and tags; None for no tags.

    `width` is the number of columns of the first word, at `line`.
    """
    numbers = []
    for column, default in ((columns.word, 0), (columns.tag, -1)):
        if column is None:
            column = {0: 1, -1: 3}[default] if is_conllu else default
        if (number := _as_number(column)) is None:
            raise ValueError(
                f"Found the column {column!r} for {path}, which has no names "
                "of columns; wanted a number, 0 for the first, -1 for the last."
            )
        numbers.append(number + width if number < 0 else number)
    word, tag = numbers
    is_there = 0 <= tag < width and tag != word
    if not 0 <= word < width or (columns.has_tags and not is_there):
        raise ValueError(
            f"{path}, line {line}: found {width} columns; wanted words in "
            f"column {word} and tags in column {max(tag, word + 1)}, counted "
            "from 0. Is the separator neither a tab nor a space? "
            f"{NO_TAGS}"
        )
    return word, tag if is_there else None


def _as_number(column):
    """Returns the number of a column, also if it is a string; else None."""
    return int(column) if re.fullmatch(r"-?\d+", str(column)) else None


def _check_words(path, rows):
    """Raises ValueError if words are their own numbers."""
    for row in rows:
        numbers = [str(i + 1) for i in range(len(row.words))]
        if len(numbers) > 2 and row.words == numbers:
            raise ValueError(
                f"{path}, line {row.line}: the words of the sentence are the "
                f"numbers 1 to {len(numbers)}. Are the words in the next "
                "column (word_column=1)?"
            )


def _check_tags(path, rows):
    """Raises ValueError if a tag is several columns."""
    for row in rows:
        for tag in row.tags or ():
            if " " in tag.strip():
                raise ValueError(
                    f"{path}: the tag {tag!r} of the sentence at line "
                    f"{row.line} contains a space; wanted columns separated by "
                    "tabs or by spaces, not by both."
                )


def _write_conll(lines, groups, column, newline, tags):
    """Returns the content of a CoNLL file with other tags."""
    lines = list(lines)
    separator = "\t" if any("\t" in line for line in lines) else " "
    for numbers, row in zip(groups, tags, strict=True):
        for number, tag in zip(numbers, row, strict=True):
            line = lines[number - 1].strip(" ")
            # Columns, with the separators between them.
            parts = re.split("(\t)" if "\t" in line else "( +)", line)
            if column is None:
                parts += [separator, tag]
            else:
                parts[2 * column] = tag
            lines[number - 1] = "".join(parts)
    return newline.join(lines)


def read_csv(
    path: filesystem.Path, text: str, columns: Columns
) -> tuple[list[Row], Writer]:
    """Returns the sentences of a CSV file, and its Writer.

    Raises:
      ValueError: see `tagged.read_tagged`.
    """
    (_, header), *lines = tables.parse_csv(path, text)
    word = _find_name(path, header, columns.word, _WORD_NAMES)
    tag = _find_name(
        path, header, columns.tag, _TAG_NAMES, is_needed=bool(columns.has_tags)
    )
    sentence = _find_name(path, header, None, _SENTENCE_NAMES, is_needed=False)
    for line, fields in lines:
        if fields:
            _check_width(path, line, fields, len(header), "the header")
    groups = _group_rows([fields for _, fields in lines], word, sentence)
    rows = _build_rows(
        path,
        [[lines[number] for number in group] for group in groups],
        word,
        None if columns.has_tags is False else tag,
    )
    num_empty = sum(bool(fields) for _, fields in lines)
    num_empty -= sum(map(len, groups))
    if num_empty and sentence is not None:
        logging.warning(
            "%s: %d rows have no word and are skipped.", path, num_empty
        )
    table = [header, *(fields for _, fields in lines)]
    # Before Python 3.13, csv quotes a lone \r only if the line end has one.
    newline = "\r\n" if "\r" in text else "\n"
    name = columns.tag or "tag"
    return rows, functools.partial(
        _write_csv, table, groups, tag, name, newline
    )


def _group_rows(table, word, sentence):
    """Returns the row numbers of the words of each sentence.

    `word` and `sentence` are numbers of columns; without the latter, None, a
    row without a word ends a sentence.
    """
    groups: list[list[int]] = [[]]
    current = ""
    for number, fields in enumerate(table):
        is_word = bool(fields) and bool(fields[word].strip(" "))
        name = fields[sentence] if fields and sentence is not None else ""
        if name not in ("", current) or (sentence is None and not is_word):
            groups.append([])
            current = name
        if is_word:
            groups[-1].append(number)
    return [group for group in groups if group]


def _find_name(path, header, given, names, *, is_needed=True):
    """Returns the number of a column: the given one, or the first of names."""
    found = [name.strip() for name in header]
    if given in found:
        return found.index(given)
    lowered = [name.lower() for name in found]
    for name in names if given is None else [str(given).lower()]:
        if name in lowered:
            return lowered.index(name)
    number = _as_number(given)
    if number is not None and -len(header) <= number < len(header):
        return number % len(header)
    if is_needed:
        wanted = " or ".join(map(repr, names if given is None else [given]))
        raise ValueError(
            f"{path} has no column {wanted}; its header is {header}. Is the "
            "header missing, the delimiter no comma, or has the column another "
            f"name (word_column, tag_column)? {NO_TAGS}"
        )
    return None


def _write_csv(table, groups, column, name, newline, tags):
    """Returns the content of a CSV file with other tags.

    `table` has the fields of each row, the first being the header; `groups` the
    numbers of the rows below it of each sentence.
    """
    table = [list(fields) for fields in table]
    if column is None:
        column = len(table[0])
        table = [[*row, ""] if row else row for row in table]
        table[0][column] = name
    for numbers, row in zip(groups, tags, strict=True):
        for number, tag in zip(numbers, row, strict=True):
            table[number + 1][column] = tag
    file = io.StringIO()
    csv.writer(file, lineterminator=newline).writerows(table)
    return file.getvalue()


def _build_rows(path, sentences, word, tag):
    """Returns the sentences of a table.

    A sentence has (line number, fields) of the rows of its words. `word` and
    `tag` are numbers of columns; `tag` is None if the tags are unknown.
    """
    rows = []
    for sentence in sentences:
        line = sentence[0][0]
        if len(sentence) > MAX_WORDS:
            raise ValueError(
                f"{path}: the sentence at line {line} has {len(sentence)} "
                f"words; wanted {MAX_WORDS} at most. Are there no blank lines "
                "between sentences, or no column of them?"
            )
        words = [fields[word].strip(" ") for _, fields in sentence]
        tags = None
        if tag is not None:
            tags = [fields[tag].strip(" ") for _, fields in sentence]
        rows.append(Row(line, words, tags))
    return rows


def _check_width(path, line, fields, width, first):
    if len(fields) != width:
        raise ValueError(
            f"{path}, line {line}: found {len(fields)} columns; {first} has "
            f"{width}. Is the row truncated, or does a word contain the "
            "separator?"
        )
