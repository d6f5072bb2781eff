"""Reads and writes files of tagged words: CoNLL, CSV and JSON lines.

Tags of spans, such as names, are converted to IOB2 when a file is read, and
back to its own scheme when predictions are written:

  words  U.N.   Ann    Lee    Bob    left
  IOB1   I-ORG  I-PER  I-PER  B-PER  O
  IOB2   B-ORG  B-PER  I-PER  B-PER  O
  BIOES  S-ORG  B-PER  E-PER  S-PER  O
  BILOU  U-ORG  B-PER  L-PER  U-PER  O
  BMES   S-ORG  B-PER  E-PER  S-PER  O      M- inside, where others have I-

All other tags, such as those of parts of speech, are "plain".
"""

import logging
import re
from collections.abc import Iterable
from typing import NamedTuple

from albert_tf import filesystem
from albert_tf.data import tables, tagged_json, tagged_tables
from albert_tf.metrics import tagging
from albert_tf.text import words as text_words

PLAIN = "plain"
# Prefixes of the first word of a span, of those inside, of the last, and of the
# only one.
_PREFIXES = {
    "IOB2": ("B", "I", "I", "B"),
    "IOB1": ("I", "I", "I", "I"),
    "BIOES": ("B", "I", "E", "S"),
    "BILOU": ("B", "I", "L", "U"),
    "BMES": ("B", "M", "E", "S"),
}
SCHEMES = (PLAIN, *_PREFIXES)
_READERS = {
    "tsv": tagged_tables.read_conll,
    "csv": tagged_tables.read_csv,
    "jsonl": tagged_json.read_json,
}


class Sentence(NamedTuple):
    """A sentence, or a text of any length, of W words.

    Attributes:
      words: W strings.
      tags: W tags, or None if they are unknown.
      text: the text of the words; if the file has only words, see `join_words`.
      spans: W pairs: the first character of a word in `text`, and its end.
    """

    words: list[str]
    tags: list[str] | None
    text: str
    spans: list[tuple[int, int]]


class TaggedFile(NamedTuple):
    """The sentences of a file.

    Attributes:
      path: the file.
      sentences: a list of Sentence; tags of spans are in IOB2.
      scheme: one of SCHEMES, that of the file; "plain" if it has no tags.
      source: function from tags in this scheme, a list for each sentence, to
        the content of the file with these tags.
    """

    path: filesystem.Path
    sentences: list[Sentence]
    scheme: str
    source: tagged_tables.Writer


def read_tagged(
    path: filesystem.Path,
    *,
    word_column: tagged_tables.Column = None,
    tag_column: tagged_tables.Column = None,
    has_tags: bool | None = True,
) -> TaggedFile:
    """Reads a file of tagged words, in the format of its ending.

    `.csv`: a header, then a row for each word. A sentence ends where the column
    "Sentence #", "sentence" or "sentence_id" changes; if there is none, at a
    row without a word.

    `.jsonl`, `.ndjson`, `.json`: an object on each line, with "tokens" and
    "tags", lists of strings; or with "text" and "spans", a list of objects of
    "start", "end" (in characters of the text) and "label". The words of a text
    are those of `words.find_words`.

    Others: CoNLL, a line for each word, with columns separated by tabs or
    spaces; a blank line ends a sentence. `-DOCSTART-` and comments are skipped,
    in CoNLL-U and CoNLL-X also multiword tokens and empty nodes.

    Args:
      path: the file.
      word_column: the column of words. CoNLL: its number from 0, or from -1,
        the last; by default 0, or FORM of CoNLL-U. CSV: a name or number; by
        default "Word" or "token". JSON: the key of words, or of a text.
      tag_column: likewise of tags; by default -1, or UPOS of CoNLL-U; "Tag" or
        "label"; "tags" or "spans".
      has_tags: if False, tags are neither read nor needed; None reads those
        that there are. Predictions replace the column of tags, or if there is
        none, are appended to each row.

    Raises:
      FileNotFoundError: if there is no file.
      ValueError: if it has no words, is not in its format, lacks a column or a
        tag, or has tags of several schemes.

    Example:
      >>> import pathlib
      >>> from albert_tf.data import tagged
      >>> size = pathlib.Path("dev.txt").write_text("Ann I-PER")
      >>> file = tagged.read_tagged("dev.txt")
      >>> file.scheme, file.sentences[0].tags
      ('IOB1', ['B-PER'])
    """
    text = tables.read_text(path)
    if not text.strip():
        raise ValueError(f"{path} is empty. Was it copied completely?")
    columns = tagged_tables.Columns(word_column, tag_column, has_tags)
    rows, source = _READERS[tables.format_of(str(path))](path, text, columns)
    tags = {tag for row in rows for tag in row.tags or ()}
    # "_" is CoNLL-U's word for nothing; "O" fills the place of unknown tags.
    is_blank = has_tags is None and tags <= {"_", "", "O"}
    if is_blank:
        rows = [row._replace(tags=None) for row in rows]
    _check_rows(path, rows)
    scheme = PLAIN
    if all(row.tags is not None for row in rows):
        scheme = _find_scheme(path, rows)
    else:
        _warn_of_some_tags(path, rows)
        rows = [row._replace(tags=None) for row in rows]
    sentences = [_build_sentence(row, scheme) for row in rows]
    return TaggedFile(path, sentences, scheme, source)


def write_tagged(
    path: filesystem.Path, file: TaggedFile, tags: list[list[str]]
) -> None:
    """Writes predictions in the form and the scheme of a file, atomically.

    Args:
      path: the file to write.
      file: the file that was read. If it has no tags, its scheme is "plain",
        and `tags` are written as they are.
      tags: for each sentence of `file`, a tag for each word, in IOB2 or plain.

    Raises:
      ValueError: if the numbers of sentences or words differ.
    """
    wanted = [len(sentence.words) for sentence in file.sentences]
    if wanted != [len(row) for row in tags]:
        raise ValueError(
            f"Found {sum(map(len, tags))} tags of {len(tags)} sentences; "
            f"wanted one for each of the {sum(wanted)} words of the "
            f"{len(wanted)} sentences of {file.path}. Is a batch missing?"
        )
    rows = [from_iob2(row, file.scheme) for row in tags]
    filesystem.write_file(path, file.source(rows))


def join_words(words: list[str], tags: list[str] | None = None) -> Sentence:
    """Returns the Sentence of words, whose text is these joined by spaces.

    There are none where `words.is_spaced` is False, as between Chinese words.
    """
    text = ""
    spans = []
    for word in words:
        if text and text_words.is_spaced(text, word):
            text += " "
        spans.append((len(text), len(text) + len(word)))
        text += word
    return Sentence(words, tags, text, spans)


def split_text(text: str) -> Sentence:
    """Returns the Sentence of a text, without tags; see `find_words`."""
    spans = text_words.find_words(text)
    words = [text[start:end] for start, end in spans]
    return Sentence(words, None, text, spans)


def list_tags(files: Iterable[TaggedFile]) -> tuple[str, ...]:
    """Returns the tags of files, sorted; "O" is the first, if it occurs.

    Of each label of spans, B- and then I- are listed, even if only one occurs.

    Raises:
      ValueError: if there are both plain tags and those of spans.
    """
    paths: dict[str, filesystem.Path] = {}
    for file in files:
        for sentence in file.sentences:
            paths |= dict.fromkeys(sentence.tags or (), file.path)
    outside = ["O"] if paths.pop("O", None) else []
    plain = sorted(tag for tag in paths if not tagging.is_span_tag(tag))
    if not plain:
        labels = sorted({tag[2:] for tag in paths})
        return (*outside, *(f"{x}-{label}" for label in labels for x in "BI"))
    if len(plain) < len(paths):
        span = next(tag for tag in paths if tag not in plain)
        raise ValueError(
            f"{paths[plain[0]]} has plain tags, such as {plain[0]!r}, but "
            f"{paths[span]} has tags of spans, such as {span!r}; wanted one "
            "kind. Is it the wrong column in one of them?"
        )
    return (*outside, *plain)


def to_iob2(tags: list[str], scheme: str) -> list[str]:
    """Converts the tags of a sentence to IOB2; plain ones stay as they are.

    Inconsistent tags are read as `tagging.find_spans` does.
    """
    return _convert(tags, scheme, "IOB2")


def fits(file: TaggedFile, scheme: str) -> bool:
    """Returns whether a file's tags may be of a scheme as well as of its own.

    Both write them alike; longer spans may differ.
    """
    return all(
        from_iob2(sentence.tags or [], scheme)
        == from_iob2(sentence.tags or [], file.scheme)
        for sentence in file.sentences
    )


def from_iob2(tags: list[str], scheme: str) -> list[str]:
    """Converts the tags of a sentence from IOB2 to one of SCHEMES."""
    return _convert(tags, scheme, scheme)


def _convert(tags, scheme, target):
    if scheme not in SCHEMES:
        raise ValueError(f"scheme is {scheme!r}; wanted one of {SCHEMES}.")
    if scheme == PLAIN or not all(map(tagging.is_span_tag, tags)):
        return list(tags)
    first, inside, last, only = _PREFIXES[target]
    converted = ["O"] * len(tags)
    before = None
    for label, start, end in tagging.find_spans(tags):
        prefixes = [only]
        if end - start > 1:
            prefixes = [first, *inside * (end - start - 2), last]
        if target == "IOB1" and before == (label, start):
            prefixes[0] = "B"
        converted[start:end] = [f"{prefix}-{label}" for prefix in prefixes]
        before = label, end
    return converted


def _build_sentence(row, scheme):
    """Returns the Sentence of a Row."""
    tags = None if row.tags is None else to_iob2(row.tags, scheme)
    if row.text is None:
        return join_words(row.words, tags)
    return Sentence(row.words, tags, row.text, row.spans)


def _check_rows(path, rows):
    """Raises ValueError for empty words or tags, or if there are no words."""
    for row in rows:
        for name, values in (("word", row.words), ("tag", row.tags or ())):
            if "" in values:
                raise ValueError(
                    f"{path}: {name} {values.index('') + 1} of the sentence at "
                    f"line {row.line} is empty. Is it the right column?"
                )
    if not any(row.words for row in rows):
        raise ValueError(f"{path} has no words. Was it copied completely?")


def _warn_of_some_tags(path, rows):
    """Warns if only some sentences have tags."""
    without = [row.line for row in rows if row.tags is None]
    if 0 < len(without) < len(rows):
        logging.warning(
            "%s: %d of %d sentences have no tags, the first at line %d; those "
            "of the others are not used.",
            path,
            len(without),
            len(rows),
            without[0],
        )


def _find_scheme(path, rows):
    """Returns the scheme in which the fewest tags are inconsistent."""
    tags = [tag for row in rows for tag in row.tags if tag != "O"]
    plain = {tag for tag in tags if not tagging.is_span_tag(tag)}
    if plain:
        _check_plain(path, rows, plain, len(tags))
        _warn_of_prefixes(path, plain)
        return PLAIN
    prefixes = {tag[0] for tag in tags}
    odd = {}
    for scheme, known in _PREFIXES.items():
        if prefixes <= {*known, "B"}:
            odd[scheme] = _find_odd(rows, scheme)
            if not odd[scheme]:
                return scheme
    if not odd:
        raise ValueError(
            f"{path} has tags with the prefixes {sorted(prefixes)}; wanted "
            f"those of one scheme: {', '.join(_PREFIXES)}. Were files of "
            "several schemes concatenated?"
        )
    scheme = min(odd, key=lambda name: len(odd[name]))
    line, tag = odd[scheme][0]
    logging.warning(
        "%s: %d tags are inconsistent in %s, such as %s in the sentence at "
        "line %d. Spans begin and end as in conlleval.",
        path,
        len(odd[scheme]),
        scheme,
        tag,
        line,
    )
    return scheme


def _find_odd(rows, scheme):
    """Returns (line of the sentence, tag) of inconsistent tags in a scheme."""
    return [
        (row.line, tag)
        for row in rows
        for tag, wanted in zip(
            row.tags, from_iob2(row.tags, scheme), strict=True
        )
        if tag != wanted
    ]


def _warn_of_prefixes(path, plain):
    """Warns if all plain tags would be of spans in capitals, with hyphens."""
    tags = {tag: tag.upper().replace("_", "-", 1) for tag in plain}
    if "B" in plain and plain <= {*"BIOMESLU"}:  # Spans of one kind.
        tags = {tag: f"{tag}-X" for tag in plain}
    if all(re.fullmatch(r".+-[BIMESLU]", tag) for tag in plain):
        tags = {tag: f"{tag[-1]}-{tag[:-2]}" for tag in plain}
    if all(map(tagging.is_span_tag, tags.values())):
        found = max(sorted(tags), key=len)
        logging.warning(
            "%s: tags such as %r are read as plain ones, a label of each word. "
            "If they are of spans, wanted is %r.",
            path,
            found,
            tags[found],
        )


def _check_plain(path, rows, plain, num_tags):
    """Raises ValueError if at least half of the tags are not the plain ones.

    `num_tags` is the number of all tags but "O".
    """
    lines = [(row.line, t) for row in rows for t in row.tags if t in plain]
    if 2 * len(lines) <= num_tags:
        line, tag = lines[0]
        raise ValueError(
            f"{path}: {num_tags - len(lines)} tags are of spans, such as "
            f"B-X, but {len(lines)} are not, such as {tag!r} in the sentence "
            f"at line {line}; wanted one kind. Is the line a header, or does "
            "a word contain a space?"
        )
