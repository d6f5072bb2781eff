"""Reads the text of a corpus from what it is stored in.

Plain text is read as it is. The articles of WikiExtractor (`<doc id=...>`) and
the rows of JSON lines become documents; a line of a text stays a line. Every
file may be compressed.
"""

import collections
import contextlib
import csv
import dataclasses
import html
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator

from albert_tf import filesystem
from albert_tf.data.pretraining import compressed, corpus
from albert_tf.text import normalization

_DOC = re.compile(r"<doc(?:\s[^>]*)?>")
# WikiExtractor does not escape quotation marks.
_TITLE = re.compile(r'\btitle="(.*?)"(?:\s+\w+=|\s*>)')
# What JSON of another form begins with, and what it is.
_OTHER_JSON = (
    (re.compile(r'\[\s*(\{|"|\[|\])'), "a JSON list"),
    (re.compile(r'\{\s*\n\s*"'), "one JSON object on several lines"),
)
_OBJECT = re.compile(r'\{[ \t]*("(?:[^"\\\n]|\\.)*"[ \t]*:|\})')
_TAG = re.compile(r"</?(?:p|div|br|a|span|li|td|h[1-6])\b[^>\n]*>", re.I)
_USUAL_KEYS = ("text", "content")
# A larger share of rows without text is worth a warning.
MANY_EMPTY = 0.1
# The first lines, by which the format is detected.
_NUM_LINES = 20


@dataclasses.dataclass(frozen=True)
class TextFormat:
    """How files contain text.

    Attributes:
      input_format: as the flag; auto detects it for each file.
      text_key: the key of the text in JSON lines, with dots between the keys
        of nested objects; None for "text" or "content".
    """

    input_format: str = "auto"
    text_key: str | None = None

    @contextlib.contextmanager
    def open(
        self, path: str, open_bytes: Callable = filesystem.open_file
    ) -> Iterator:
        """Context manager: yields the plain text of a file, as a file.

        `open_bytes` opens a path for reading what is stored.

        Raises:
          ValueError: if the file is not text, or is damaged; names the line.
        """
        with compressed.opening(path, open_bytes) as file:
            kind = self._detect(path, file)
            if kind == "text":
                yield file
                return
            documents = (
                _read_articles if kind == "wikiextractor" else _read_rows
            )

            def lines():
                file.seek(0)
                for number, line in enumerate(file, 1):
                    # Invalid bytes are counted where documents are read.
                    text = line.decode(errors="surrogateescape").rstrip("\r\n")
                    yield f"{path}, line {number}", text.removeprefix("\ufeff")

            yield _Converted(lambda: documents(lines(), self.text_key))

    def detect(
        self, path: str, open_bytes: Callable = filesystem.open_file
    ) -> str:
        """Returns the format of a file; raises as `open`."""
        with compressed.opening(path, open_bytes) as file:
            return self._detect(path, file)

    def _detect(self, path, file):
        probe = file.read(corpus.PROBE_BYTES)
        file.seek(0)
        corpus.check_probe(path, probe)
        if self.input_format != "auto":
            return self.input_format
        text = probe.decode(errors="replace").removeprefix("\ufeff").lstrip()
        if _DOC.match(text):
            return "wikiextractor"
        if _OBJECT.match(text):
            return "jsonl"
        lines = [
            line for line in text.splitlines()[:_NUM_LINES] if line.strip()
        ]
        if other := _find_other(text, lines) or _named_table(path):
            raise ValueError(
                f"{path} is {other}; wanted plain text, the output of "
                "WikiExtractor, or JSON lines with an object on each line. If "
                "it is plain text, say so with input_format='text'."
            )
        return "text"


def say_formats(kinds: Iterable[str]) -> None:
    """Says which files are not plain text, by their `TextFormat.detect`."""
    for kind, count in collections.Counter(kinds).items():
        if kind != "text":
            logging.warning("%d files are read as %s.", count, kind)


def _find_other(text, lines):
    """Returns what a text is that is neither plain nor read; or None."""
    for pattern, kind in _OTHER_JSON:
        if pattern.match(text):
            return kind
    if len(lines) > 1 and all(map(_is_json_text, lines[:-1])):
        return "a list of JSON strings"
    if sum(map(len, map(_TAG.findall, lines))) >= max(len(lines), 2):
        return "HTML"
    for delimiter, kind in (("\t", "a TSV table"), (",", "a CSV table")):
        if _is_table(lines, delimiter):
            return kind
    return None


def _named_table(path):
    """Returns what a table is by the ending of its name; or None."""
    match = re.search(r"\.(csv|tsv)(\.\w+)?$", str(path), re.I)
    return match and f"a {match[1].upper()} table"


def _is_json_text(line):
    with contextlib.suppress(ValueError):
        return isinstance(json.loads(line), str)
    return False


def _is_table(lines, delimiter):
    """Whether the first lines are a header and rows of as many columns."""
    try:
        rows = list(csv.reader(lines[:-1], delimiter=delimiter))
    except csv.Error:
        return False
    widths = {len(row) for row in rows}
    return (
        len(rows) > 1
        and len(widths) == 1
        and min(widths) > 1
        and all(re.fullmatch(r"\w+", name.strip()) for name in rows[0])
    )


class _Converted:
    """Documents as a file of plain text, with a blank line after each."""

    def __init__(self, documents):
        self._documents = documents
        self.seek(0)

    def seek(self, position):
        """Starts again; other positions are unknown."""
        if position:
            raise ValueError("Converted text can be read from its start only.")
        self._parts, self._part, self._at = self._documents(), b"", 0

    def read(self, size):
        """Returns so many bytes, or fewer at the end."""
        found = []
        while size:
            if self._at == len(self._part):
                if (lines := next(self._parts, None)) is None:
                    break
                text = "".join(f"{x}\n" for x in lines) + "\n"
                content = text.encode(errors="surrogateescape")
                self._part, self._at = content, 0
            found.append(self._part[self._at : self._at + size])
            self._at += len(found[-1])
            size -= len(found[-1])
        return b"".join(found)


def _visible(lines):
    return [line for line in lines if not normalization.is_blank(line)]


def _read_articles(lines, _):
    """Yields the lines of each article; its title alone is no article."""
    start = where = None
    article: list[str] = []
    title = ""
    for where, line in lines:
        text = line.strip()
        if _DOC.match(text):
            if start:
                raise ValueError(
                    f"{where}: a document starts within that of {start}. Is "
                    "the file damaged?"
                )
            match = _TITLE.search(text)
            start, article = where, []
            title = html.unescape(match[1]) if match else ""
        elif text == "</doc>" and start:
            if article and article[0].strip() == title:
                del article[0]
            if article := _visible(article):
                yield article
            start = None
        elif start:
            article.append(html.unescape(line))
        elif not normalization.is_blank(text):
            raise ValueError(
                f"{where}: found {text!r:.40} outside of <doc ...> and "
                "</doc>. Is the file damaged, or plain text "
                "(input_format='text')?"
            )
    if start:
        raise ValueError(
            f"{start}: the document has no </doc>. Is the file truncated, or "
            "plain text (input_format='text')?"
        )


def _read_rows(lines, key):
    """Yields the lines of the text of each row."""
    num_rows = num_empty = 0
    for where, line in lines:
        if not line.strip():
            continue
        # Without the invalid bytes, which look like halves of characters.
        checked = line.encode(errors="surrogateescape").decode(errors="replace")
        row = filesystem.parse_json(checked, where, is_strict=False)
        if checked != line:  # They are counted where documents are read.
            row = json.loads(line)
        if key is None:
            key = _choose_key(row, where)
        value = _find_value(row, key)
        if not isinstance(value, str):
            raise ValueError(
                f"{where}: {key!r} is {value!r:.40}; wanted a text. The keys "
                f"are {sorted(row)}; text_key names the one of the text."
            )
        num_rows += 1
        if text := _visible(re.split(r"\r\n?|\n", value)):
            yield text
        else:
            num_empty += 1
    if num_empty > MANY_EMPTY * num_rows:
        logging.warning(
            "%d of %d rows have no text in %r.", num_empty, num_rows, key
        )


def _choose_key(row, where):
    found = [key for key in _USUAL_KEYS if row.get(key) is not None]
    # pandas writes null for a missing text.
    found = found or [key for key in _USUAL_KEYS if key in row]
    if len(found) == 1:
        return found[0]
    raise ValueError(
        f"{where}: which key has the text? Give text_key, one of {sorted(row)}."
    )


def _find_value(row, key):
    """Returns the value of a key; "" for null, None if there is no such key."""
    value = row
    for part in [key] if key in row else key.split("."):
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    return "" if value is None else value
