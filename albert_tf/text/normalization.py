"""Normalizes text before it is split into pieces.

`SentenceNormalizer` is for SentencePiece, `WordNormalizer` for WordPiece. Each
of their steps has two implementations: a fast string operation, and a slower
one that also returns spans. Their results are compared, so they cannot diverge.

Spans map the result to the original text: for each character of the result,
the (start, end) of the original characters that it comes from.
"""

import abc
import dataclasses
import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

# Sets of characters, as in a regular expression. Han ideographs as in BERT's
# tokenizer, which spaces them out:
_IDEOGRAPHS = (
    "\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f"
    "\U0002b740-\U0002b81f\U0002b820-\U0002ceaf\uf900-\ufaff"
    "\U0002f800-\U0002fa1f"
)
# More characters that are written without spaces between words: Thai, Lao,
# Tibetan; Burmese; Khmer; scripts of the Tai languages; Javanese; ideographic
# iteration marks and zero; kana; bopomofo; half-width kana; later ideographs.
UNSPACED = _IDEOGRAPHS + (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf"
    "\ua980-\ua9ff\uaa60-\uaadf\u3005-\u3007\u3040-\u30ff\u3105-\u312f"
    "\u31f0-\u31ff\uff66-\uff9d\U0002ceb0-\U000323af"
)
# Punctuation of texts in these scripts.
WIDE_PUNCTUATION = (
    "\u3001-\u303f\ufe30-\ufe4f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40"
    "\uff5b-\uff65"
)
# Invisible characters, besides white space, controls and format characters:
# joiners and fillers of a script, blank Braille.
_FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u2065\u2800\u3164\uffa0\ufff0-\ufff8"
# Format characters that are drawn: signs above or around Arabic, Syriac and
# Kaithi numbers.
_DRAWN = "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
# Variation selectors and tags, which change the look of the character before.
_SELECTORS = "\u180b-\u180f\ufe00-\ufe0f\U000e0000-\U000e0fff"
_is_ideograph, _is_unspaced, _is_filler, _is_drawn, _is_selector = (
    re.compile(f"[{characters}]").match
    for characters in (_IDEOGRAPHS, UNSPACED, _FILLERS, _DRAWN, _SELECTORS)
)


class Step(NamedTuple):
    """A step of normalization.

    Attributes:
      apply: function from a text to the changed text. All but JOIN and LOWER
        change each character independently of the others, except for the
        order of accents that DECOMPOSE keeps.
      apply_with_spans: the same from a text and its spans to both, slower.
    """

    apply: Callable
    apply_with_spans: Callable


@dataclasses.dataclass(frozen=True)
class Normalizer(abc.ABC):
    """Base class of the two normalizers."""

    do_lower_case: bool = True
    keep_accents: bool = False

    @abc.abstractmethod
    def steps(self) -> list[Step]:
        """Returns the steps in order."""

    def normalize(self, text: str) -> str:
        """Returns the normalized text."""
        if not isinstance(text, str):
            raise TypeError(
                f"Text must be str; found {type(text).__name__}: {text!r:.60}. "
                "Read files in text mode, or decode bytes as UTF-8 first."
            )
        for step in self.steps():
            text = step.apply(text)
        return text

    def normalize_with_spans(self, text: str) -> tuple[str, list]:
        """Returns the normalized text and a span for each of its characters."""
        normalized = self.normalize(text)
        spans = [(i, i + 1) for i in range(len(text))]
        for step in self.steps():
            text, spans = step.apply_with_spans(text, spans)
        if text != normalized or len(spans) != len(normalized):
            raise AssertionError(
                f"Normalization with spans gave {text!r:.200}, but without "
                f"spans {normalized!r:.200}. This is a bug in this module."
            )
        return normalized, spans


class SentenceNormalizer(Normalizer):
    """Collapses whitespace, applies NFKD and removes combining characters.

    Whitespace is collapsed before the decomposition, which may create new
    whitespace; SentencePiece handles that.

    Source: tokenization.py, `preprocess_text`.
    """

    def steps(self) -> list[Step]:
        decompose = DECOMPOSE if self.keep_accents else _DECOMPOSE_AND_STRIP
        return [JOIN, decompose, *([LOWER] if self.do_lower_case else [])]


class WordNormalizer(Normalizer):
    """Separates words, punctuation and ideographs by single spaces.

    Accents are removed only if letters are lower-cased, as in BERT.

    Source: tokenization.py, `BasicTokenizer`.
    """

    def steps(self) -> list[Step]:
        steps = [_CLEAN]
        if self.do_lower_case:
            steps += [LOWER] if self.keep_accents else [LOWER, _STRIP_ACCENTS]
        return [*steps, _SEPARATE_PUNCTUATION, JOIN]


def is_mark(char: str) -> bool:
    """Returns whether a character is a mark, such as an accent."""
    return unicodedata.category(char)[0] == "M"


def is_unspaced(char: str) -> bool:
    """Returns whether a character's script has no spaces between words."""
    return not is_mark(char) and bool(_is_unspaced(char))


def is_blank(text: str) -> bool:
    """Returns whether a text has no visible character."""
    return all(map(is_invisible, text))


def is_invisible(char: str) -> bool:
    """Returns whether a character is invisible where it is alone."""
    if char.isspace() or is_selector(char) or _is_filler(char):
        return True
    category = unicodedata.category(char)
    return category in ("Cc", "Cf") and not _is_drawn(char)


def is_selector(char: str) -> bool:
    """Returns whether a character changes the look of the one before."""
    return bool(_is_selector(char))


def trim(text: str, start: int, end: int) -> tuple[int, int]:
    """Returns the part of text[start:end] without invisible ends.

    A selector stays with the visible character that it changes.

    Returns:
      The new start and end; they are equal if the part is blank.
    """
    while start < end and is_invisible(text[start]):
        start += 1
    last = end
    while start < last and is_invisible(text[last - 1]):
        last -= 1
    while start < last < end and is_selector(text[last]):
        last += 1
    return start, last


class _CharacterTable(dict):
    """A table for `str.translate` that caches a function of a character.

    The cache is limited: all of Unicode, which graph tokenizers request, would
    take 150 MB.
    """

    MAX_SIZE = 1 << 15

    def __init__(self, change):
        self._change = change

    def __missing__(self, code):
        changed = self._change(chr(code))
        if len(self) < self.MAX_SIZE:
            self[code] = changed
        return changed


def _encodable(char):
    """Replaces unpaired surrogates, which cannot be encoded as UTF-8."""
    return "\ufffd" if unicodedata.category(char) == "Cs" else char


def _cleaned(char):
    """Removes control characters; adds spaces around ideographs."""
    category = unicodedata.category(char)
    if char in " \t\n\r" or category == "Zs":
        return " "
    if char == "\ufffd" or category in ("Cc", "Cf"):
        return ""
    return f" {char} " if _is_ideograph(char) else char


def _spaced_punctuation(char):
    """Adds spaces around punctuation; includes all ASCII symbols, as BERT."""
    is_symbol = char.isascii() and char.isprintable() and not char.isalnum()
    if (is_symbol and char != " ") or unicodedata.category(char)[0] == "P":
        return f" {char} "
    return char


_WITHOUT_COMBINING = _CharacterTable(
    lambda char: "" if unicodedata.combining(char) else _encodable(char)
)
_WITHOUT_NONSPACING = _CharacterTable(
    lambda char: "" if unicodedata.category(char) == "Mn" else char
)
_CLEANED = _CharacterTable(_cleaned)
_LOWER = _CharacterTable(str.lower)


def _join_words(text, spans):
    """Joins words with single spaces; returns the text and its spans."""
    joined: list = []
    for match in re.finditer(r"\S+", text):
        start, end = match.span()
        if joined:
            joined.append((joined[-1][1], spans[start][0]))
        joined.extend(spans[start:end])
    return " ".join(text.split()), joined


def _lower(text, spans):
    """Lower-cases a text; returns the text and its spans."""
    # Context changes the form of a sigma, but not the length of the result.
    return text.lower(), _change_characters(text, spans, _LOWER)[1]


def _change_characters(text, spans, table):
    """Translates a text; returns the text and its spans."""
    changed = [char.translate(table) for char in text]
    spans = [
        span for chars, span in zip(changed, spans, strict=True) for _ in chars
    ]
    return "".join(changed), spans


def _clusters(text, form):
    """Yields (start, end) of clusters that decompose independently.

    Decomposition reorders combining characters, so a cluster ends before each
    character whose decomposition does not start with one.
    """
    start = 0
    for i, char in enumerate(text):
        if i and (
            char < "\x80"
            or not unicodedata.combining(unicodedata.normalize(form, char)[0])
        ):
            yield start, i
            start = i
    if text:
        yield start, len(text)


def _change_clusters(text, spans, form, change):
    """Applies a change to each cluster; returns the text and its spans.

    A mark that the change removes extends the span of the preceding character.
    """
    if text.isascii():
        return text, spans
    changed: list[str] = []
    changed_spans: list = []
    for start, end in _clusters(text, form):
        span = (spans[start][0], spans[end - 1][1])
        chars = change(text[start:end])
        changed.append(chars)
        changed_spans.extend(span for _ in chars)
        if not chars and is_mark(text[start]) and changed_spans:
            changed_spans[-1] = (changed_spans[-1][0], span[1])
    return "".join(changed), changed_spans


def _translating(table):
    """Returns the Step that translates each character by a table."""
    return Step(
        lambda text: text.translate(table),
        lambda text, spans: _change_characters(text, spans, table),
    )


def _decomposing(form, table):
    """Returns the Step that decomposes a text and translates the result."""

    def apply(text):
        if text.isascii():
            return text
        return unicodedata.normalize(form, text).translate(table)

    return Step(
        apply, lambda text, spans: _change_clusters(text, spans, form, apply)
    )


JOIN = Step(lambda text: " ".join(text.split()), _join_words)
LOWER = Step(str.lower, _lower)
DECOMPOSE = _decomposing("NFKD", _CharacterTable(_encodable))
_DECOMPOSE_AND_STRIP = _decomposing("NFKD", _WITHOUT_COMBINING)
_STRIP_ACCENTS = _decomposing("NFD", _WITHOUT_NONSPACING)
_CLEAN = _translating(_CLEANED)
_SEPARATE_PUNCTUATION = _translating(_CharacterTable(_spaced_punctuation))
