"""Splits a text into words that can be tagged."""

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
        if normalization.is_invisible(char) and not follows:
            continue
        if follows and (is_joined(char) or (is_run and is_letter(char))):
            spans[-1] = (spans[-1][0], i + 1)
            continue
        spans.append((i, i + 1))
        is_run = is_letter(char)
    return spans


def is_joined(char: str) -> bool:
    """Returns whether a character belongs to the one before."""
    return normalization.is_mark(char) or normalization.is_invisible(char)


def is_letter(char: str) -> bool:
    """Returns whether a character forms a word with the letters beside it."""
    return char.isalnum() and not normalization.is_unspaced(char)
