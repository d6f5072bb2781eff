"""Upper limits of the settings for pretraining records."""

import math

MAX_NUM_SHARDS = 99_999  # File names have five digits.
# A plan stores segment lengths in 16 bits.
MAX_SEQ_LENGTH = 65_535
MAX_NGRAM = 100
MAX_DUPE_FACTOR = 1_000_000


def check(name: str, value: float, least: float, most: float = math.inf):
    """Raises ValueError if a setting is out of range or not a number."""
    if not least <= value <= most:  # True for NaN, too.
        raise ValueError(
            f"{name} must be at least {least} and at most {most}; got {value}."
        )
