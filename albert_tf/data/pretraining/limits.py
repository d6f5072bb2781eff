"""Largest settings of records."""

MAX_NUM_SHARDS = 99_999  # Names have five digits.
# A plan keeps the lengths of segments in 16 bits.
MAX_SEQ_LENGTH = 65_535
MAX_NGRAM = 100
MAX_DUPE_FACTOR = 1_000_000
