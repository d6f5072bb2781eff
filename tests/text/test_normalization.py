"""Tests of what a text shows."""

import pytest

from albert_tf.text import normalization

NOTHING = {
    "empty": "",
    "white space": " \t\n\u00a0\u3000\u2028\x85",
    "controls": "\x00\x1f\x7f\x9f",
    "joiners and marks of direction": "\u200b\u200c\u200d\u200e\u2060\ufeff",
    "soft hyphen": "\u00ad",
    "selectors": "\ufe0f\ufe00\U000e0100\u180b",
    "tags": "\U000e0067\U000e007f",
    "grapheme joiner": "\u034f",
    "fillers": "\u3164\u115f\u1160\uffa0\u17b4",
    "blank Braille": "\u2800",
}
SOMETHING = {
    "letter": "\u200ba",
    "accent alone": "\u0301",
    "emoji": "\U0001f600",
    "full-width": "\uff10",
    "replacement character": "\ufffd",
    "private use": "\ue000",
    "sign of Arabic numbers": "\u0600",
}


@pytest.mark.parametrize("text", NOTHING.values(), ids=NOTHING)
def test_a_text_of_invisible_characters_is_blank(text):
    assert normalization.is_blank(text)


@pytest.mark.parametrize("text", SOMETHING.values(), ids=SOMETHING)
def test_a_text_with_a_visible_character_is_not_blank(text):
    assert not normalization.is_blank(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("\u200b40", "40"),
        (" a\u00a0b\u3164", "a\u00a0b"),
        ("\ufe0f\u2764\ufe0f\ufe0f\u200d ", "\u2764\ufe0f\ufe0f"),
        ("\U0001f3f4\U000e0067\U000e007f", "\U0001f3f4\U000e0067\U000e007f"),
        ("e\u0301 \ufe0f", "e\u0301"),
        ("\u034f\ufe0f", ""),
    ],
)
def test_trimming_removes_invisible_ends(text, wanted):
    whole = f"x{text}y"
    start, end = normalization.trim(whole, 1, 1 + len(text))
    assert whole[start:end] == wanted
