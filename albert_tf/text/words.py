"""Splits a text into words that can be tagged."""

import unicodedata

from albert_tf.text import normalization


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
        is_invisible = normalization.is_invisible(char)
        if is_invisible and not follows:
            continue
        is_mark = is_invisible or unicodedata.category(char)[0] == "M"
        is_letter = char.isalnum() and not normalization.is_unspaced(char)
        if follows and (is_mark or (is_run and is_letter)):
            spans[-1] = (spans[-1][0], i + 1)
            continue
        spans.append((i, i + 1))
        is_run = is_letter
    return spans
