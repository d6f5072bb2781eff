"""Words of scripts without spaces between words, given by spaces in the text.

A vocabulary does not say where a word of Chinese, Japanese or Thai starts. The
user can, with spaces: "我们 喜欢 北京 。". They are removed before the text is
tokenized, so that it has the ids that it has without them, and kept in the
ids: of V pieces, id + V is a token that starts a word although the vocabulary
says that it does not, or the reverse. Token stores and dynamic records have
these ids; `sequences.mask_features`, which masks all records, reduces them.
"""

import itertools
import re

import numpy as np

from albert_tf.text import normalization, tokenization

_UNSPACED = normalization.UNSPACED
# With punctuation of the same texts; and punctuation of Latin texts, too.
WIDE = _UNSPACED + normalization.WIDE_PUNCTUATION
SHARED = "\u00b7\u2010-\u2027"
# What only divides words. " ".join(words) has three spaces for a word that is
# itself a space; that one belongs to the text.
_WORD_END = re.compile(
    rf"(?<=[{WIDE}])\s{{1,2}}(?=\S)|(?<=\S)\s{{1,2}}(?=[{WIDE}])|"
    rf"(?<=[{SHARED}])\s{{1,2}}(?=[{SHARED}])"
)
_OTHER_SPACES = re.compile(r"[^\S\n]+")
_INNER_SPACES = re.compile(rf"[{_UNSPACED}][^\S\n]+(?=[{_UNSPACED}])")
_is_unspaced = re.compile(f"[{_UNSPACED}]").match
_has_wide = re.compile(f"[{WIDE}]").search
# Words have 2 characters in Chinese and Japanese, 5 in Thai, 9 in Tibetan.
_MAX_MEAN_LENGTH = 15


class SpacedTokenizer:
    """What pretraining data use of a tokenizer, with 2 V ids.

    A token after a space starts a word. Another one of a script without spaces
    does so only at the start of a line and after a token of another script.
    """

    def __init__(self, tokenizer: tokenization.Tokenizer):
        self._tokenizer = tokenizer
        self.pieces, self.settings = tokenizer.pieces, tokenizer.settings
        self.content = tokenizer.content
        self.special_ids, self.cls_id = tokenizer.special_ids, tokenizer.cls_id
        self.sep_id, self.mask_id = tokenizer.sep_id, tokenizer.mask_id
        self.unk_id = tokenizer.unk_id
        starts = tokenizer.is_word_start
        self.is_word_start = np.concatenate([starts, ~starts])
        self.vocab_size = len(self.is_word_start)

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Returns the ids of each line of text."""
        return [self._encode(text) for text in texts]

    def _encode(self, line):
        if not _has_wide(line):
            return self._tokenizer.encode(line)
        parts = _OTHER_SPACES.sub(" \n", _WORD_END.sub("\n", line)).split("\n")
        text = "".join(parts)
        ids, offsets = self._tokenizer.encode_with_offsets(text)
        # Tokens before which a word ended, or in which one ends.
        ends = list(itertools.accumulate(map(len, parts)))
        num_ended = np.searchsorted(ends, [end for _, end in offsets])
        starts = np.diff(num_ended, prepend=0) > 0
        is_unspaced = np.array(
            [s < e and bool(_is_unspaced(text, s)) for s, e in offsets], bool
        )
        follows = np.concatenate([[False], is_unspaced])[: len(ids)]
        by_rule = self.is_word_start[np.array(ids, int)]
        starts |= np.where(is_unspaced, ~follows, by_rule)
        return (ids + (starts != by_rule) * len(self.pieces)).tolist()


def check_sample(lines) -> None:
    """Raises ValueError if lines of text seem not to be divided into words."""
    text = "\n".join(lines)
    num_characters = sum(map(bool, map(_is_unspaced, text)))
    num_spaces = len(_INNER_SPACES.findall(text))
    if num_characters > _MAX_MEAN_LENGTH * num_spaces:
        raise ValueError(
            f"words_from_spaces=True, but the first lines have {num_spaces:,} "
            f"spaces among {num_characters:,} characters of scripts without "
            "spaces between words; wanted one after each word. Was the text "
            "not divided into words?"
        )
