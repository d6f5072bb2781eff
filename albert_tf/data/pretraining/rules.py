"""Settings of pretraining records, and their limits.

The flags inherit them, so this module imports nothing heavy.
"""

import dataclasses
from typing import Literal

from albert_tf import settings
from albert_tf.settings import setting

NUM_SPECIAL_TOKENS = 3  # [CLS] A [SEP] B [SEP]

MAX_NUM_SHARDS = 99_999  # File names have five digits.
# A plan stores segment lengths in 16 bits.
MAX_SEQ_LENGTH = 65_535
MAX_NGRAM = 100
DUPE_FACTOR = 40
SHUFFLE_BUFFER = 100_000  # records
MAX_DUPE_FACTOR = 1_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceRule(settings.Checked):
    """How sequences are built.

    Sentence label 1 means that the segments are swapped (sop), or that the
    second one is from another document (nsp); it is always 0 for none. The
    share of short ones is that of documents, whose sequences all get a random
    target length between 2 and the maximum.

    Raises:
      ValueError: if a value is out of range.
    """

    max_seq_length: int = setting(
        512,
        "Maximum length of a sequence, in tokens, with [CLS] and two [SEP].",
        at_least=5,
        at_most=MAX_SEQ_LENGTH,
    )
    sentence_objective: Literal["sop", "nsp", "none"] = setting(
        "sop",
        "Meaning of sentence label 1: segments swapped (sop), second segment "
        "from another document (nsp), or unused (none).",
    )
    short_seq_prob: float = setting(
        0.1,
        "Fraction of documents whose sequences are shortened.",
        at_least=0,
        at_most=1,
    )

    @property
    def max_tokens(self) -> int:
        """The maximum number of non-special tokens in both segments."""
        return self.max_seq_length - NUM_SPECIAL_TOKENS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Masks:
    """How tokens are masked; [CLS] and [SEP] count as tokens, too."""

    masked_lm_prob: float = setting(
        0.15, "Fraction of a sequence's tokens to mask.", above=0, at_most=1
    )
    ngram: int = setting(
        3,
        "Maximum length of a masked n-gram, in words.",
        at_least=1,
        at_most=MAX_NGRAM,
    )
    favor_shorter_ngram: bool = setting(
        True,
        "Whether to draw n-grams with a probability proportional to 1/n; "
        "otherwise longer n-grams are more probable.",
    )
    do_whole_word_mask: bool = setting(
        True, "Whether to mask whole words instead of single tokens."
    )
    do_permutation: bool = setting(
        False,
        "Whether to also shuffle the same number of other n-grams and predict "
        "them.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskingRule(Masks, settings.Checked):
    """Settings of masking.

    Raises:
      ValueError: if a value is out of range.
    """

    max_predictions: int = setting(
        20, "Maximum number of masked tokens per sequence.", at_least=1
    )

    @property
    def num_predictions(self) -> int:
        """The length of the masked_lm_* lists: with permutation, twice."""
        return self.max_predictions * (1 + self.do_permutation)
