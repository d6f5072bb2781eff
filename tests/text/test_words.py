"""Words of a text: where they begin and end."""

import pytest

from albert_tf.text import words


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Ann left  Rome.", "Ann|left|Rome|."),
        ("don't: A4-B_c", "don|'|t|:|A4|-|B|_|c"),
        ("3.5% …", "3|.|5|%|…"),
        ("我爱ABC東京", "我|爱|ABC|東|京"),
        ("ひらがな、カナ", "ひ|ら|が|な|、|カ|ナ"),
        ("한국어 문장", "한국어|문장"),
        # Marks, selectors and joiners belong to the letter before.
        ("e\u0301te\u0301 हिन्दी", "e\u0301te\u0301|हिन्दी"),
        ("ก็ดี", "ก็|ดี"),
        ("♥\ufe0fok", "♥\ufe0f|ok"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        # Alone, a mark is a word; what is invisible is none.
        (" \u0301", "\u0301"),
        ("\ufeff\u200b a\u00a0b", "a|b"),
        ("\n\t \u3000", ""),
        ("", ""),
    ],
)
def test_words_of_a_text(text, wanted):
    found = [text[start:end] for start, end in words.find_words(text)]
    assert "|".join(found) == wanted


def test_all_that_is_visible_is_in_one_word():
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x20000)]))
    spans = words.find_words(text)
    ends = [0]
    for start, end in spans:
        assert ends[-1] <= start < end
        skipped = text[ends[-1] : start]
        assert all(
            c.isspace() or words.normalization.is_invisible(c) for c in skipped
        )
        ends.append(end)
