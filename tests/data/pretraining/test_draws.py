"""Tests of draws.py: the published generator, and independent numbers."""

import numpy as np
import pytest

from albert_tf.data.pretraining import draws

# The first outputs of SplitMix64 with seed 1234567, as published at
# https://rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64.
SPLITMIX = [
    6457827717110365317,
    3203168211198807973,
    9817491932198370423,
    4593380528125082431,
    16408922859458223821,
]


def test_a_row_is_a_stream_of_splitmix64():
    source = draws.ByPosition(np.array([7, 1234567], np.uint64))
    found = source.uniform(1, np.arange(5))
    np.testing.assert_allclose(found, np.array(SPLITMIX) / 2**64, atol=1e-15)


def test_a_number_depends_on_its_own_row_and_column_alone():
    rows, columns = np.arange(7), np.arange(11)
    source = draws.ByPosition.of_records(3, rows + 20)
    table = source.uniform(rows[:, None], columns)  # [7, 11]
    assert table.shape == (7, 11) and len(np.unique(table)) == 77
    alone = draws.ByPosition.of_records(3, np.array([24]))
    assert alone.uniform(0, 9) == table[4, 9]
    np.testing.assert_array_equal(
        source.uniform(np.array([4, 0]), 9), table[[4, 0], 9]
    )


def correlation(x, y):
    return abs(np.corrcoef(np.ravel(x), np.ravel(y))[0, 1])


def test_numbers_are_uniform_and_independent():
    rows, columns = np.arange(1000), np.arange(100)
    source = draws.ByPosition.of_records(0, rows)
    numbers = source.uniform(rows[:, None], columns)  # [1000, 100]
    assert 0 <= numbers.min() and numbers.max() < 1
    counts = np.histogram(numbers, 64, (0, 1))[0] - numbers.size / 64
    assert (counts**2).sum() / (numbers.size / 64) == pytest.approx(63, abs=45)
    others = [
        draws.ByPosition.of_records(1, rows).uniform(rows[:, None], columns),
        draws.ByPosition.of_records(0, rows + 1000).uniform(
            rows[:, None], columns
        ),
        *(
            part.uniform(rows[:, None], columns)
            for part in source.split(2) + source.split(1)[0].split(2)
        ),
    ]
    for other in others:
        assert correlation(numbers, other) < 0.015
    assert correlation(numbers[1:], numbers[:-1]) < 0.015
    assert correlation(numbers[:, 1:], numbers[:, :-1]) < 0.015


def test_choices_are_equally_frequent():
    rows = np.arange(50_000)
    source = draws.ByPosition.of_records(5, rows)
    found = source.choice(np.array([7, 11, 13, 17]), rows, 3)
    values, counts = np.unique(found, return_counts=True)
    assert values.tolist() == [7, 11, 13, 17]
    np.testing.assert_allclose(counts / len(rows), 0.25, atol=0.01)
