"""Random numbers for masking, in order or by position in the data.

Masking says for which row and column it draws each number. Records that are
written with masks take the next number of a generator. Records that are masked
while they are read take a hash instead: the masks of a record then depend
neither on the other records of its batch nor on where reading started, and
NumPy computes the hashes of a batch at once; a generator per record would take
longer than the masking.

Shapes: N rows.
"""

import numpy as np

# The constants of SplitMix64 (Steele et al. 2014).
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class InOrder:
    """Draws the next numbers of a `numpy.random.Generator`.

    Only the shapes of rows and columns matter.
    """

    def __init__(self, generator: np.random.Generator):
        self._generator = generator

    def split(self, count: int) -> list:
        """Returns sources for different purposes, in place of this one."""
        return [self] * count

    def uniform(self, rows, columns) -> np.ndarray:
        """Returns numbers in [0, 1), of the shape that both broadcast to."""
        shape = np.broadcast_shapes(np.shape(rows), np.shape(columns))
        return self._generator.random(shape)

    def choice(self, values, rows, columns) -> np.ndarray:
        """Returns one of `values` for each pair of a row and a column."""
        shape = np.broadcast_shapes(np.shape(rows), np.shape(columns))
        return self._generator.choice(values, shape)


class ByPosition:
    """Like `InOrder`; hashes row and column by SplitMix64.

    `keys` [N], uint64, has the seed of each row.
    """

    def __init__(self, keys: np.ndarray):
        self.keys = keys

    @classmethod
    def of_records(cls, seed: int, indices: np.ndarray) -> "ByPosition":
        """Returns the draws of records, by their index in the data, [N]."""
        return cls(_hash(_hash(np.array([seed], np.uint64), 0), indices))

    def split(self, count):
        return [ByPosition(_hash(self.keys, i)) for i in range(count)]

    def uniform(self, rows, columns):
        bits = _hash(self.keys[rows], columns)
        return (bits >> np.uint64(11)) * 2.0**-53

    def choice(self, values, rows, columns):
        places = self.uniform(rows, columns) * len(values)
        return values[places.astype(np.int64)]


def _hash(keys, counters):
    """Returns number `counters` of the SplitMix64 streams seeded by `keys`."""
    with np.errstate(over="ignore"):  # Overflow is part of the hash.
        x = keys + (np.asarray(counters, np.uint64) + np.uint64(1)) * _STEP
        for shift, factor in zip((30, 27), _FACTORS, strict=True):
            x ^= x >> np.uint64(shift)
            x *= factor
    return x ^ (x >> np.uint64(31))


Draws = InOrder | ByPosition
