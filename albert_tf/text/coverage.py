"""Warns of text that suits a tokenizer badly: lost accents, unknown pieces."""

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from albert_tf import filesystem
from albert_tf.text import tokenization

# Size of a sample: lines, files at most, and bytes of each file.
NUM_LINES, NUM_FILES, NUM_BYTES = 1000, 20, 1 << 20
# Shares that are worth a warning: of letters that lose a combining character
# (English: below 0.1%), and of pieces that are unknown.
MANY_MARKS, MANY_UNKNOWN = 0.01, 0.05


def read_sample(
    files: list[str], open_file: Callable = filesystem.open_file
) -> Iterator[str]:
    """Yields lines that are not blank, equally many from each file.

    If there are many files, some are left out. Errors in their encoding are
    ignored.
    """
    files = files[:: -(-len(files) // NUM_FILES)]
    for path in files:
        with open_file(path) as file:
            text = file.read(NUM_BYTES).decode(errors="replace")
        wanted = -(-NUM_LINES // len(files))
        lines = map(str.strip, text.splitlines())
        yield from itertools.islice(filter(None, lines), wanted)


# Marks of printed text, which keyboards lack.
_PRINTED = "“”‘’—…"
# The end of a sentence within a line, and at its end.
_MARKS = r"\"'”’»)\]」』）】》〉］"
_CLOSING = f"[{_MARKS}]*"
_INNER_END = re.compile(
    rf"(?:(?<!\b\w)\.|[!?؟۔।॥]){_CLOSING}\s+(?=[^\s\d§])|[。！？]{_CLOSING}(?=[^\s。！？{_MARKS}])"
)
_END = re.compile(rf"[.!?؟۔।॥。！？:;…]{_CLOSING}\s*$")


def find_unsplit(lines: list[str]) -> str | None:
    """Returns a warning if some lines, not blank, are not sentences."""
    ends = [bool(_END.search(line)) for line in lines]
    if not any(ends):  # Text without punctuation cannot be judged.
        return None
    advice = (
        "Wanted is a sentence on each line, and a blank line after each "
        "document; split_sentences splits text."
    )
    starts = [x[m.end()] for x in lines for m in _INNER_END.finditer(x)]
    if sum(char == char.title() for char in starts) >= len(lines):
        return f"lines have several sentences each. {advice}"
    lengths = sorted(map(len, lines))
    median, long = lengths[len(lines) // 2], lengths[len(lines) * 9 // 10]
    if sum(ends) < len(lines) / 2 and 40 <= median and long < 1.3 * median:
        return f"sentences are wrapped over several lines. {advice}"
    return None


# What lines of text do not have: how it is found, how many lines may have it,
# and what it is.
_MARKUP = (
    (
        re.compile(r"\s*(\d+\s*[\t|;])"),
        0.9,
        "begin with a number and a separator, as Leipzig's corpora do",
    ),
    (re.compile(r"\s*(</?\w[^<>]*>)\s*$"), 0.05, "are tags"),
    (
        re.compile(r".*?(&(?:quot|amp|lt|gt|nbsp|apos|#\d+);)", re.I),
        0.05,
        "have entities of HTML",
    ),
)


def find_markup(lines: list[str]) -> str | None:
    """Returns a warning if many lines have what is no text."""
    for pattern, most, what in _MARKUP:
        found = [m[1] for line in lines if (m := pattern.match(line))]
        if len(found) > most * len(lines) and len(found) > 1:
            return (
                f"{len(found):,} of {len(lines):,} {what}, such as "
                f"{found[0]!r:.40}: this is learned as text. Remove it before."
            )
    return None


def find_lost_marks(
    texts: Iterable[str], normalize: Callable[[str], str]
) -> str | None:
    """Returns a warning if many letters lose an accent or another mark."""
    if normalize("é") != normalize("e"):
        return None
    num_marks, num_letters, example = 0, 0, None
    for text in texts:
        for word in text.split():
            decomposed = unicodedata.normalize("NFD", word)
            marks = sum(
                bool(unicodedata.combining(mark))
                and not unicodedata.combining(letter)
                for letter, mark in itertools.pairwise(decomposed)
            )
            num_marks += marks
            num_letters += sum(map(str.isalpha, decomposed))
            if marks and not example:
                example = f"{word!r} becomes {normalize(word)!r}"
    if not num_marks or num_marks < MANY_MARKS * num_letters:
        return None
    share = num_marks / max(num_letters, 1)
    return (
        f"{share:.0%} of the letters lose an accent or another combining "
        f"character: {example}. Where these distinguish words, give "
        "keep_accents=True to the vocabulary and to the training data, and "
        "do_lower_case=False where capitals do."
    )


def describe_unknown(
    ids: Sequence[int] | np.ndarray, tokenizer: tokenization.Tokenizer
) -> str | None:
    """Returns a warning if many of some ids are those of unknown pieces."""
    count = np.count_nonzero(np.equal(ids, tokenizer.unk_id))
    share = count / max(len(ids), 1)
    # One emoji in a short text does not make another language; but a whole text
    # without spaces may be one unknown piece, after that of a space.
    others = set(np.unique(ids)) - {*tokenizer.special_ids}
    is_known = any(
        tokenizer.pieces[i] != tokenization.WORD_PREFIX for i in others
    )
    if share <= MANY_UNKNOWN or (count < 2 and is_known):
        return None
    return (
        f"{share:.0%} of the pieces are unknown to the "
        f"vocabulary {tokenizer.settings['vocabulary']}. "
        f"{ask_for_marks(tokenizer)}Is it of another language? Train one with "
        "train_vocab."
    )


def ask_for_marks(tokenizer: tokenization.Tokenizer) -> str:
    """Returns a question about printers' marks that a vocabulary lacks, or "".

    The release's vocabularies have hardly any of them.
    """
    ids = tokenizer.encode_batch([*_PRINTED])
    lacking = [
        m for m, x in zip(_PRINTED, ids, strict=True) if tokenizer.unk_id in x
    ]
    if not lacking:
        return ""
    marks = " ".join(lacking)
    return f"Has it {marks}, which this one lacks? Write \" ' - ... instead. "
