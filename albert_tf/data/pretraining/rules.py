"""Settings of pretraining records, and their limits.

The flags have the same defaults, so this module imports nothing heavy.
"""

import dataclasses
import math
from typing import Literal

NUM_SPECIAL_TOKENS = 3  # [CLS] A [SEP] B [SEP]

MAX_NUM_SHARDS = 99_999  # File names have five digits.
# A plan stores segment lengths in 16 bits.
MAX_SEQ_LENGTH = 65_535
MAX_NGRAM = 100
DUPE_FACTOR = 40
SHUFFLE_BUFFER = 100_000  # records
MAX_DUPE_FACTOR = 1_000_000


def check(name: str, value: float, least: float, most: float = math.inf):
    """Raises ValueError if a setting is out of range or not a number."""
    if not least <= value <= most:  # True for NaN, too.
        raise ValueError(
            f"{name} must be at least {least} and at most {most}; got {value}."
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceRule:
    """Settings of sequences.

    Attributes:
      max_seq_length: tokens, including [CLS] and two [SEP].
      short_seq_prob: share of documents whose sequences all get a random
        target length between 2 and the maximum.
      sentence_objective: label 1 means that the segments are swapped (sop), or
        that the second one is from another document (nsp); always 0 for none.
    """

    max_seq_length: int = 512
    short_seq_prob: float = 0.1
    sentence_objective: Literal["sop", "nsp", "none"] = "sop"

    @property
    def max_tokens(self) -> int:
        """The maximum number of non-special tokens in both segments."""
        return self.max_seq_length - NUM_SPECIAL_TOKENS


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskingRule:
    """Settings of masking.

    Attributes:
      max_predictions: maximum number of masked tokens per sequence.
      masked_lm_prob: share of masked tokens; [CLS] and [SEP] count as tokens.
      ngram: maximum number of words in an n-gram.
      favor_shorter_ngram: whether p(n) ~ 1 / n; otherwise, the reverse.
      do_whole_word_mask: whether to mask whole words or single tokens.
      do_permutation: whether to also shuffle and predict as many other tokens.
    """

    max_predictions: int = 20
    masked_lm_prob: float = 0.15
    ngram: int = 3
    favor_shorter_ngram: bool = True
    do_whole_word_mask: bool = True
    do_permutation: bool = False

    def __post_init__(self):
        check("max_predictions_per_seq", self.max_predictions, 1)
        check("masked_lm_prob", self.masked_lm_prob, 0, 1)
        check("ngram", self.ngram, 1, MAX_NGRAM)
        if not self.masked_lm_prob:
            raise ValueError("masked_lm_prob is 0: nothing would be masked.")

    @property
    def num_rounds(self) -> int:
        """How many times the budget is spent: with permutation, twice."""
        return 2 if self.do_permutation else 1

    @property
    def num_predictions(self) -> int:
        """The length of the masked_lm_* lists."""
        return self.max_predictions * self.num_rounds
