"""Tests of damage.py: errors name the damaged file and record."""

import gzip
import os

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.pretraining import damage, reading, records

FEATURES = {
    "input_ids": ((3,), "int64"),
    "masked_lm_weights": ((2,), "float32"),
}
LIMITS = {"input_ids": (0, 30), "masked_lm_weights": (0, 1)}


def values_of(count):
    ids = np.arange(3 * count).reshape(count, 3) % 31
    return {"input_ids": ids, "masked_lm_weights": np.ones((count, 2), float)}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "a.tfrecord")


def write(path, values):
    records.write_records(path, records.encode_examples(values))


def check(*files, max_bytes=None):
    damage.check_files(files, FEATURES, LIMITS, max_bytes)


@pytest.mark.parametrize("count", [0, 1, 1500])
def test_records_are_counted_from_their_lengths(path, count):
    write(path, values_of(count))
    assert records.count_records(path) == count
    check(path)


def test_remote_records_are_counted_too(tmp_path):
    path = f"file://{tmp_path}/a.tfrecord"
    write(path, values_of(7))
    assert records.count_records(path) == 7
    check(path)
    os.truncate(tmp_path / "a.tfrecord", os.path.getsize(path[7:]) - 1)
    with pytest.raises(ValueError, match="a.tfrecord.* in record 7"):
        records.count_records(path)


def break_end(data, size):
    del data[-5:]


def break_data(data, size):
    data[3 * size + 20] ^= 1


def break_length(data, size):
    data[3 * size + 1] ^= 1


def add_bytes(data, size):
    data += b"x" * 7


def compress(data, size):
    data[:] = gzip.compress(bytes(data))


def make_text(data, size):
    data[:] = b"This is no record.\n" * 9


def begin_with_less(data, size):
    del data[9:]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (break_end, "damaged or truncated in record 6"),
        (break_data, "record 4: .* checksum"),
        (break_length, "damaged or truncated in record 4"),
        (add_bytes, "damaged or truncated in record 7"),
        (compress, "is compressed"),
        (make_text, "not a TFRecord file"),
        (begin_with_less, "not a TFRecord file"),
    ],
)
def test_errors_name_the_damaged_file_and_record(path, change, words):
    damaged_file(path, 6, change)
    with pytest.raises(ValueError, match=words) as raised:
        check(path)
    assert path in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("input_ids", 31, "wanted 0 to 30"),
        ("input_ids", -1, "wanted 0 to 30"),
        ("input_ids", 2**32 + 5, "4294967301, wanted 0 to 30"),
        ("input_ids", 2**63 - 1, "wanted 0 to 30"),
        ("input_ids", -(2**63), "wanted 0 to 30"),
        ("masked_lm_weights", 1.5, "1.5, wanted 0 to 1"),
        ("masked_lm_weights", np.nan, "nan, wanted 0 to 1"),
    ],
    ids=str,
)
@pytest.mark.parametrize("row", [0, 1300])
def test_a_value_out_of_range_is_an_error(path, name, value, words, row):
    values = values_of(1400)
    values[name][row, 1] = value
    write(path, values)
    wanted = f"a.tfrecord, record {row + 1}: .*\\[1\\] is .*{words}"
    with pytest.raises(ValueError, match=wanted):
        check(path)
    dataset = reading.build_dataset([path], FEATURES, 100, limits=LIMITS)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{name} is not"):
        list(dataset)


def test_integers_beyond_32_bits_are_not_wrapped(path):
    values = values_of(2)
    values["input_ids"][1, 1] = 2**32 + 5
    write(path, values)
    dataset = reading.build_dataset([path], FEATURES, 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="input_ids"):
        list(dataset)
    values["input_ids"][1, 1] = -(2**31)
    write(path, values)
    (batch,) = reading.build_dataset([path], FEATURES, 2)
    assert batch["input_ids"].numpy().min() == -(2**31)


def lack(values):
    del values["masked_lm_weights"]


def lengthen(values):
    values["input_ids"] = np.zeros((2, 4), int)


def empty(values):
    values["input_ids"] = np.zeros((2, 0), int)


def make_float(values):
    values["input_ids"] = np.zeros((2, 3), float)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lack, "lacks \\['masked_lm_weights'\\]; it has \\['input_ids'\\]"),
        (lengthen, "4 values, wanted 3"),
        (empty, "0 values, wanted 3"),
        (make_float, "input_ids is a float_list, wanted int64_list"),
    ],
)
@pytest.mark.parametrize("max_bytes", [None, 10], ids=["all", "first"])
def test_records_with_other_features_are_refused(
    path, change, words, max_bytes
):
    values = values_of(2)
    change(values)
    good = path + "0"
    write(good, values_of(2))
    write(path, values)
    with pytest.raises(ValueError, match=f"a.tfrecord, record 1: .*{words}"):
        check(good, path, max_bytes=max_bytes)


def test_records_other_than_examples_are_refused(path):
    records.write_records(path, [b"\xff\xff"])
    with pytest.raises(ValueError, match="it is not a tf.train.Example"):
        check(path)


def test_only_the_first_record_of_large_files_is_checked(path):
    values = values_of(5)
    values["input_ids"][1, 1] = 99
    write(path, values)
    check(path, max_bytes=10)
    with pytest.raises(ValueError, match="record 2"):
        check(path, max_bytes=os.path.getsize(path))


def count(path, num_written=None):
    return damage.count_usable([path], FEATURES, LIMITS, num_written)


def damaged_file(path, num_records, change):
    """Writes a file, and changes its bytes."""
    write(path, values_of(num_records))
    with open(path, "rb") as file:
        data = bytearray(file.read())
    change(data, len(data) // num_records)
    with open(path, "wb") as file:
        file.write(data)


@pytest.mark.parametrize("num_written", [None, [6]], ids=["alone", "described"])
@pytest.mark.parametrize(
    ("change", "num_usable"),
    [(break_end, 5), (break_data, 3), (break_length, 3), (add_bytes, 6)],
)
def test_records_before_the_first_damaged_one_are_usable(
    path, caplog, change, num_usable, num_written
):
    damaged_file(path, 6, change)
    total, damaged = count(path, num_written)
    assert total == num_usable == damaged[path].num_intact
    with pytest.raises(ValueError) as raised:
        check(path)
    assert str(damaged[path]) == str(raised.value)
    lost = 6 - num_usable if num_written else "the rest"
    said = f"Its first {num_usable} records are used, {lost} are left out."
    assert said in caplog.text


def test_a_damaged_record_before_the_end_of_a_truncated_file_is_named(path):
    def break_both(data, size):
        break_data(data, size)
        break_end(data, size)

    damaged_file(path, 6, break_both)
    with pytest.raises(ValueError, match="record 4: .* checksum"):
        check(path)
    assert count(path)[0] == 3


def test_invalid_values_end_a_file_too(path):
    values = values_of(1400)
    values["input_ids"][1300, 1] = 31
    write(path, values)
    total, damaged = count(path)
    assert total == 1300 and "record 1301: input_ids" in str(damaged[path])


def test_records_missing_at_the_end_are_counted(path):
    write(path, values_of(5))
    assert count(path, [5]) == (5, {})
    total, damaged = count(path, [7])
    assert total == 5 and "has only 5 of 7 records" in str(damaged[path])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (compress, "is compressed"),
        (make_text, "not a TFRecord file"),
        (lambda data, size: data.__setitem__(20, data[20] ^ 1), "record 1"),
        (lambda data, size: data.clear(), "has only 0 of 6"),
    ],
)
def test_a_file_without_a_usable_record_is_refused(path, change, words):
    damaged_file(path, 6, change)
    with pytest.raises(ValueError, match=words):
        count(path, [6])


def test_a_file_with_more_records_than_were_written_is_refused(path):
    write(path, values_of(6))
    with pytest.raises(ValueError, match="has 6 records; its sidecar says 5"):
        count(path, [5])
