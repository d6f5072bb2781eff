"""Splits a text into words that can be tagged."""

import re

from albert_tf.text import normalization

_is_wide_punctuation = re.compile(f"[{normalization.WIDE_PUNCTUATION}]").match


def find_words(text: str) -> list[tuple[int, int]]:
    """Finds the words of a text.

    They are runs of letters and digits; other single characters; and single
    characters of scripts without spaces between words, such as Chinese. Accents
    and invisible characters belong to the character before.

    Returns:
      List of (first character, end), in order; the end is exclusive.

    Example:
      >>> from albert_tf.text import words
      >>> text = "It's 5€, 東京!"
      >>> [text[start:end] for start, end in words.find_words(text)]
      ['It', "'", 's', '5', '€', ',', '東', '京', '!']
    """
    spans: list[tuple[int, int]] = []
    is_run = False
    for i, char in enumerate(text):
        if char.isspace():
            continue
        follows = bool(spans) and spans[-1][1] == i
        if normalization.is_invisible(char) and not follows:
            continue
        if follows and (is_joined(char) or (is_run and is_letter(char))):
            spans[-1] = (spans[-1][0], i + 1)
            continue
        spans.append((i, i + 1))
        is_run = is_letter(char)
    return spans


def is_spaced(before: str, after: str) -> bool:
    """Returns whether a text has a space between two of its words.

    There is none beside a character of a script without spaces, unless a letter
    of another script is on the other side, and none beside its punctuation.

    Example:
      >>> from albert_tf.text import words
      >>> words.is_spaced("in", "東京"), words.is_spaced("5", "時")
      (True, False)
    """
    last = next((x for x in reversed(before) if not is_joined(x)), before[-1])
    sides = (last, after[0])
    if any(map(_is_wide_punctuation, sides)):
        return False
    has_letter = any(is_letter(x) and x.isalpha() for x in sides)
    return has_letter or not any(map(normalization.is_unspaced, sides))


def is_joined(char: str) -> bool:
    """Returns whether a character belongs to the one before."""
    return normalization.is_mark(char) or normalization.is_invisible(char)


def is_letter(char: str) -> bool:
    """Returns whether a character forms a word with the letters beside it."""
    return char.isalnum() and not normalization.is_unspaced(char)
