"""Labels as files write them: one or several names, numbers, true or false."""

import ast
import collections
import json
import math
import re
import unicodedata
import warnings
from collections.abc import Container, Iterable, Sequence

from albert_tf.text import normalization

# What pandas, R and spreadsheets write for a missing value.
MISSING = {"", "nan", "na", "n/a", "null", "none", "nil", "<na>", "#n/a", "nat"}
HINT = 'Test data without labels need "test_label": null.'
# Canonical names of the values in a label's own column or a one-hot list.
ONE = {"1.0", "true"}
ZERO_OR_ONE = ONE | {"0.0", "false"}
# Without leading zeros, exponents and the like: these are codes.
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]*)?")
# What NumPy prints in a list without commas.
_PRINTED = re.compile(r"[-+.\deE]+|True|False")
_CONTAINER = re.compile(
    r"(?:set|frozenset|array|tensor)\((.*?)(?:,\s*(?:dtype|device)=[^()]*)?\)",
    re.DOTALL,
)
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
# Scalars as NumPy 2 writes them in a list of Python.
_SCALAR = re.compile(
    r"np\.(?:(True|False)_|(?:str_|bool_?|u?int\d+|float\d+)"
    rf"""\(({_QUOTED}|[^()'"]*)\))"""
)
# NumPy prints spaces between items, others commas.
_SPACED = re.compile(rf"""{_QUOTED}|[^\s'"]\S*""", re.DOTALL)
_ITEM = re.compile(rf"""{_QUOTED}|[^\s,'"](?:[^,]*[^\s,])?""", re.DOTALL)


def name_of(value: object) -> str:
    """Returns a label's name, trimmed; a bool is written as in JSON."""
    name = str(value)
    start, end = normalization.trim(name, 0, len(name))
    name = name[start:end]
    return name.lower() if isinstance(value, bool) else name


def number_of(value: object) -> float:
    """Returns a number, or NaN for others and, unlike Python, for 1_000."""
    if isinstance(value, str) and "_" in value:
        return math.nan
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan


def is_missing(value: object, labels: Container[str] = ()) -> bool:
    """Returns whether a value is None or a word for a missing one, as "NaN".

    One of the given labels is never missing.
    """
    name = name_of(value)
    if name in labels:
        return False
    return value is None or name.lower() in MISSING


def canonical(name: str) -> str:
    """Returns one form of equal names, such as 1 and 1.0, or True and true.

    Names that look the same are equal: of composed or decomposed characters,
    with spaces of any kind. Others, such as 007, equal only themselves.
    """
    name = " ".join(unicodedata.normalize("NFC", name).split())
    word = name.lower()
    if _NUMBER.fullmatch(word):
        return repr(float(word) + 0.0)  # Not -0.0.
    return word if word in ("true", "false") else name


class Labels:
    """Finds labels by name: first as written, then as numbers or truth values.

    The C names differ.
    """

    def __init__(self, names: Sequence[str]):
        self.names = tuple(names)
        self.ids = {name: i for i, name in enumerate(names)}
        forms = collections.Counter(map(canonical, names))
        self.forms = {
            canonical(name): i
            for i, name in enumerate(names)
            if forms[canonical(name)] == 1
        }

    def find(self, name: str) -> int | None:
        """Returns the index of a label, or None if it is unknown."""
        return self.ids.get(name, self.forms.get(canonical(name)))


def split(value: object, separator: str) -> list[str]:
    """Returns the names in a value that holds several.

    It is an iterable of names; or a string of names between separators, or of a
    list or set as Python, NumPy or JSON print it.
    """
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [name_of(item) for item in value]
    text = name_of(value)
    if container := _CONTAINER.fullmatch(text):
        text = container[1]
    if not _is_list(text):
        return _split_text(text, separator)
    is_name = text[1:-1].strip() and not re.search("[,'\"]", text)
    if text[0] == "(" and is_name:
        return [text]  # Python's tuples are empty or have a comma.
    text = _SCALAR.sub(lambda match: match[1] or match[2], text)
    return _split_list(text, separator)


def _split_text(text, separator):
    parts = map(name_of, text.split(separator))
    return [part for part in parts if part]


def _is_list(text):
    """Returns whether a text is in brackets, of which the first is the last."""
    if not re.fullmatch(r"\[.*\]|\{.*\}|\(.*\)", text, re.DOTALL):
        return False
    depth = 0
    for char in re.sub(_QUOTED, "", text[1:-1], flags=re.DOTALL):
        depth += (char == text[0]) - (char == text[-1])
        if depth < 0:
            return False
    return True


def _split_list(text, separator):
    """Returns the names of a list in JSON, or as Python or NumPy print it."""
    try:
        # Numbers as written: these are codes.
        found = json.loads(text, parse_float=str, parse_int=str)
    except ValueError:
        found = None
    if isinstance(found, list):
        return [name_of(item) for item in found]
    inner = text[1:-1]
    items = _SPACED.findall(inner)
    if not all(map(_is_printed, items)):
        if "," not in inner:
            return _split_text(inner, separator)
        items = _ITEM.findall(inner)
    return [_unquote(item) for item in items]


def _is_printed(item):
    """Returns whether NumPy may have printed an item of a list."""
    known = item.lower() in MISSING or _PRINTED.fullmatch(item)
    return bool(known or re.fullmatch(_QUOTED, item, re.DOTALL))


def _unquote(item):
    if not re.fullmatch(_QUOTED, item, re.DOTALL):
        return name_of(item)
    with warnings.catch_warnings():
        # Of a backslash that escapes nothing.
        warnings.simplefilter("ignore")
        try:
            return name_of(ast.literal_eval(item))
        except (SyntaxError, ValueError):
            return item[1:-1]


def are_zero_or_one(names: Sequence[str]) -> bool:
    """Returns whether all names are 0 or 1, or true or false."""
    return all(canonical(name) in ZERO_OR_ONE for name in names)


def decode_one_hot(names: Sequence[str], labels: Labels) -> list[str]:
    """Returns the labels for which a list of C zeros and ones has a one.

    Other lists, and those of names that are labels, are returned as they are.
    """
    is_one_hot = len(names) == len(labels.names) and are_zero_or_one(names)
    if not is_one_hot or all(name in labels.ids for name in names):
        return list(names)
    return [
        label
        for name, label in zip(names, labels.names, strict=True)
        if canonical(name) in ONE
    ]
