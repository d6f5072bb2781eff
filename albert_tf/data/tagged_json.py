"""Reads and writes JSON lines of tagged words or texts; see `tagged`."""

import bisect
import functools
import itertools
import json
import logging

from albert_tf import filesystem
from albert_tf.data import tables, tagged_tables
from albert_tf.metrics import tagging
from albert_tf.text import words as text_words

_FORMAT = 'Wanted "tokens" and "tags", or "text" and "spans"'


def read_json(
    path: filesystem.Path, text: str, columns: tagged_tables.Columns
) -> tuple[list[tagged_tables.Row], tagged_tables.Writer]:
    """Returns the sentences of JSON lines, and their Writer.

    Raises:
      ValueError: see `tagged.read_tagged`.
    """
    objects = tables.parse_json_lines(path, text)
    rows, keys, num_cut = [], [], 0
    for line, values in objects:
        where = f"{path}, line {line}"
        word_key = columns.word or ("tokens" if "tokens" in values else "text")
        words = _value_of(where, values, word_key)
        is_text = isinstance(words, str)
        key = columns.tag or ("spans" if is_text else "tags")
        tags = None
        if columns.has_tags or (columns.has_tags is None and key in values):
            tags = _value_of(where, values, key)
        if columns.has_tags and tags is None:
            raise ValueError(
                f"{where}: {key!r} is null; wanted a list. "
                f"{tagged_tables.NO_TAGS}"
            )
        if is_text:
            row, num = _read_text(where, line, words, tags)
            num_cut += num
        else:
            _check_strings(where, word_key, words)
            if tags is not None:
                _check_tags(where, key, tags, len(words))
            row = tagged_tables.Row(line, words, tags)
        rows.append(row)
        keys.append(key)
    if num_cut:
        logging.warning(
            "%s: %d spans begin or end inside a word; the word belongs to the "
            "first span that has a part of it.",
            path,
            num_cut,
        )
    originals = [values for _, values in objects]
    return rows, functools.partial(_write_json, originals, keys, rows)


def _value_of(where, row, key):
    if key not in row:
        raise ValueError(
            f"{where}: {key!r} is missing from the keys {sorted(row)}. "
            f"{_FORMAT}, or the keys in word_column and tag_column. "
            f"{tagged_tables.NO_TAGS}"
        )
    return row[key]


def _check_strings(where, key, values):
    if not isinstance(values, list):
        raise ValueError(
            f"{where}: {key!r} is {values!r:.60}; wanted a list of strings."
        )
    for value in values:
        if isinstance(value, str):
            continue
        hint = " Does it contain an object for each word?"
        if isinstance(value, int):
            hint = (
                " Are they indices, as in datasets of transformers? Write the "
                "names of the tags instead."
            )
        raise ValueError(
            f"{where}: {key!r} contains {value!r:.60}; wanted strings.{hint}"
        )


def _check_tags(where, key, tags, num_words):
    _check_strings(where, key, tags)
    if len(tags) != num_words:
        raise ValueError(
            f"{where}: found {len(tags)} tags for {num_words} words; wanted "
            "one for each. Was a word split or removed?"
        )


def _read_text(where, line, text, spans):
    """Returns the Row of a text, and how many spans cut its words."""
    places = text_words.find_words(text)
    words = [text[start:end] for start, end in places]
    if spans is None:
        return tagged_tables.Row(line, words, None, text, places), 0
    starts, ends = [start for start, _ in places], [end for _, end in places]
    tags = ["O"] * len(words)
    num_cut = 0
    for start, end, label in _check_spans(where, text, spans):
        first = bisect.bisect_right(ends, start)
        last = bisect.bisect_left(starts, end)
        if first == last:
            raise ValueError(
                f"{where}: the span from {start} to {end} has no word in it. "
                "Are the positions of another text?"
            )
        num_cut += starts[first] < start or ends[last - 1] > end
        prefix = "B"
        for i in range(first, last):
            if tags[i] == "O":  # Else it is of the span before.
                tags[i] = f"{prefix}-{label}"
                prefix = "I"
    return tagged_tables.Row(line, words, tags, text, places), num_cut


def _check_spans(where, text, spans):
    """Returns (start, end, label) of spans in order; raises ValueError."""
    found = []
    for span in spans if isinstance(spans, list) else [spans]:
        if problem := _find_problem(span, len(text)):
            raise ValueError(
                f"{where}: found the span {span!r:.90}; {problem}. Wanted "
                '{"start": ..., "end": ..., "label": ...}, the end after its '
                "last character. Do the positions count bytes?"
            )
        found.append((span["start"], span["end"], span["label"]))
    found.sort()
    for before, after in itertools.pairwise(found):
        if before[1] > after[0]:
            raise ValueError(
                f"{where}: the spans {before} and {after} overlap; wanted one "
                "label at most for each word. Remove the shorter span."
            )
    return found


def _find_problem(span, num_characters):
    """Returns what is wrong with a span, or None."""
    if not isinstance(span, dict) or not {"start", "end", "label"} <= {*span}:
        return "a key is missing"
    start, end, label = span["start"], span["end"], span["label"]
    if type(start) is not int or type(end) is not int:
        return '"start" and "end" must be whole numbers'
    if not isinstance(label, str) or not label.strip():
        return '"label" must be a name'
    if not 0 <= start < end <= num_characters:
        return f"it is empty or not in the {num_characters} characters"
    return None


def _write_json(objects, keys, rows, tags):
    """Returns the content of JSON lines with other tags."""
    lines = []
    are_spans = all(map(tagging.is_span_tag, itertools.chain(*tags)))
    for values, key, row, found in zip(objects, keys, rows, tags, strict=True):
        value = found
        if row.spans is not None:
            value = _to_spans(row.spans, found, are_spans)
        lines.append(json.dumps({**values, key: value}, ensure_ascii=False))
    return "".join(f"{line}\n" for line in lines)


def _to_spans(places, tags, are_spans):
    """Returns objects of the spans of characters; plain tags are of a word.

    `places` has the first character of each word and its end.
    """
    spans = [(tag, i, i + 1) for i, tag in enumerate(tags)]
    if are_spans:
        spans = tagging.find_spans(tags)
    return [
        {"start": places[first][0], "end": places[last - 1][1], "label": label}
        for label, first, last in spans
    ]
