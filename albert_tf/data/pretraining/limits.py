"""Upper limits of the settings for pretraining records."""

MAX_NUM_SHARDS = 99_999  # File names have five digits.
# A plan stores segment lengths in 16 bits.
MAX_SEQ_LENGTH = 65_535
MAX_NGRAM = 100
MAX_DUPE_FACTOR = 1_000_000
