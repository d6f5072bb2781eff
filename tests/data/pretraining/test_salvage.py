"""Tests of salvage.py: copies have every valid record, and no other."""

import gzip
import os
import pathlib
import struct

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.pretraining import records, salvage

FEATURES = {
    "input_ids": ((3,), "int64"),
    "masked_lm_weights": ((2,), "float32"),
}
LIMITS = {"input_ids": (0, 9000), "masked_lm_weights": (0, 1)}
COUNT = 2600  # Several groups of records are parsed.


def encode(first, count=1):
    """Records that contain their number, from 1."""
    ids = np.arange(first, first + count)[:, None] + np.zeros(3, int)
    return records.encode_examples(
        {"input_ids": ids, "masked_lm_weights": np.ones((count, 2), float)}
    )


@pytest.fixture
def path(tmp_path):
    """A file of valid records."""
    path = tmp_path / "a.tfrecord"
    records.write_records(str(path), encode(1, COUNT))
    return path


def offsets(path):
    """Where each record starts."""
    data, places, place = path.read_bytes(), [], 0
    while place < len(data):
        places.append(place)
        place += 16 + struct.unpack_from("<Q", data, place)[0]
    return places


def edit(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def replace(path, **changes):
    """Replaces records: record_7=b"..." """
    rows = [row.numpy() for row in tf.data.TFRecordDataset(str(path))]
    for name, row in changes.items():
        rows[int(name.removeprefix("record_")) - 1] = row
    records.write_records(str(path), rows)


def numbers(file):
    parsed = tf.data.TFRecordDataset(str(file)).map(
        lambda row: tf.io.parse_single_example(
            row, {"input_ids": tf.io.FixedLenFeature([3], tf.int64)}
        )["input_ids"][0]
    )
    return [int(number) for number in parsed]


def run(path, tmp_path, num_written=None):
    return salvage.replace_damaged(
        [str(path)], str(tmp_path / "copies"), FEATURES, LIMITS, num_written
    )


def test_checksums_are_those_of_tensorflow(tmp_path):
    rng = np.random.default_rng(0)
    rows = [rng.bytes(length) for length in (0, 1, 5, 1000, 3)]
    path = tmp_path / "a"
    records.write_records(str(path), rows)
    faults = []
    frames = list(salvage._read_frames(str(path), faults))
    assert [row for row, _ in frames] == rows and not faults
    assert salvage.checksums(rows).tolist() == [wanted for _, wanted in frames]


def test_undamaged_files_are_not_copied(path, tmp_path):
    found = run(path, tmp_path, [COUNT])
    assert found.files == found.sources == [str(path)]
    assert found.num_records == [COUNT] and found.describe() == {}
    assert not (tmp_path / "copies").exists()


def test_every_valid_record_is_kept_in_order(path, tmp_path):
    no_example = b"\xff\xff"
    too_large = encode(9001)[0]
    replace(path, record_7=no_example, record_1500=too_large)
    places = offsets(path)
    edit(path, places[0] + 20)
    edit(path, places[1200] - 1)  # The checksum of record 1200.
    edit(path, places[2000])  # The length of record 2001.
    found = run(path, tmp_path, [COUNT])
    skipped = {1, 7, 1200, 1500}
    wanted = [n for n in range(1, 2001) if n not in skipped]
    assert numbers(found.files[0]) == wanted
    assert found.num_records == [len(wanted)]
    faults = found.faults[str(path)]
    assert [text.split(":")[0] for text in faults] == [
        "record 1",
        "record 7",
        "record 1200",
        "record 1500",
        "record 2001",
        "599 records at the end are missing",
    ]
    for text, words in zip(
        faults,
        ["checksum", "not a tf.train.Ex", "checksum", "9001, wanted", "length"],
        strict=False,
    ):
        assert words in text
    assert found.describe() == {"a.tfrecord": faults}
    salvaged = salvage.replace_damaged(
        found.files, str(tmp_path / "again"), FEATURES, LIMITS
    )
    assert not salvaged.faults


def test_a_group_without_a_valid_record_is_skipped(path, tmp_path):
    for place in offsets(path)[2048:]:
        edit(path, place + 20)
    found = run(path, tmp_path)
    assert numbers(found.files[0]) == list(range(1, 2049))
    assert len(found.faults[str(path)]) == COUNT - 2048


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_truncated_file_is_read_to_its_last_whole_record(path, tmp_path, cut):
    os.truncate(path, offsets(path)[2000] + 70 - cut)
    found = run(path, tmp_path, [COUNT])
    assert numbers(found.files[0]) == list(range(1, 2001))
    assert "beyond the end" in found.faults[str(path)][0]


def test_records_missing_at_the_end_are_counted(path, tmp_path):
    os.truncate(path, offsets(path)[2597])
    found = run(path, tmp_path, [COUNT])
    assert found.files == [str(path)] and found.num_records == [2597]
    assert found.faults[str(path)] == ["3 records at the end are missing"]
    assert not run(path, tmp_path).faults


def test_less_than_half_of_a_file_is_refused(path, tmp_path):
    places = offsets(path)
    data = path.read_bytes()
    os.truncate(path, places[COUNT // 2])
    found = run(path, tmp_path, [COUNT])
    assert found.num_records == [COUNT // 2]
    os.truncate(path, places[COUNT // 2 - 1])
    words = "has only 1299 of 2600 records. Copy it again."
    with pytest.raises(ValueError, match=words):
        run(path, tmp_path, [COUNT])
    os.truncate(path, 0)
    with pytest.raises(ValueError, match="only 0 of 2600"):
        run(path, tmp_path, [COUNT])
    path.write_bytes(data)
    edit(path, places[2])  # The length of record 3.
    for num_written in [COUNT], None:
        with pytest.raises(ValueError, match="truncated in record"):
            run(path, tmp_path, num_written)


@pytest.mark.parametrize("trailing", [bytes(4096), b"x" * 7])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_what_follows_the_last_record_is_skipped(
    path, tmp_path, trailing, is_damaged
):
    path.write_bytes(path.read_bytes() + trailing)
    if is_damaged:
        edit(path, 20)
    for num_written in [COUNT], None:
        found = run(path, tmp_path, num_written)
        assert found.num_records == [COUNT - is_damaged]
        assert "cannot be read" in found.faults[str(path)][-1]
        assert len(found.faults[str(path)]) == 1 + is_damaged


def test_the_first_intact_record(path):
    edit(path, 20)
    assert salvage.read_first_intact(str(path)) == encode(2)[0]
    edit(path, 0)  # The length of record 1.
    assert salvage.read_first_intact(str(path)) is None


def test_other_files_are_refused(path, tmp_path):
    with pytest.raises(
        ValueError, match="has 2600 records; its sidecar says 9"
    ):
        run(path, tmp_path, [9])
    data = path.read_bytes()
    path.write_bytes(gzip.compress(data))
    with pytest.raises(ValueError, match="is compressed"):
        run(path, tmp_path)
    path.write_bytes(b"This is no record.\n" * 9)
    with pytest.raises(ValueError, match="not a TFRecord file"):
        run(path, tmp_path)
    path.write_bytes(data)
    with pytest.raises(ValueError, match="wanted 0 to 1000"):
        salvage.replace_damaged(
            [str(path)],
            str(tmp_path / "copies"),
            FEATURES,
            {"input_ids": (0, 1000)},
        )


def test_long_lists_of_faults_are_shortened():
    faults = [f"record {i}: x" for i in range(50)]
    assert salvage.listed(faults[:20]) == faults[:20]
    assert salvage.listed(faults) == [*faults[:20], "30 more"]


def test_copies_of_files_with_one_name_differ(path, tmp_path):
    other = pathlib.Path(tmp_path / "b" / "a.tfrecord")
    other.parent.mkdir()
    other.write_bytes(path.read_bytes())
    edit(path, offsets(path)[3] + 20)
    edit(other, offsets(other)[5] + 20)
    found = salvage.replace_damaged(
        [str(path), str(other)], str(tmp_path / "copies"), FEATURES, LIMITS
    )
    first, second = map(numbers, found.files)
    assert 4 not in first and 6 in first
    assert 4 in second and 6 not in second
    assert list(found.describe()) == [
        f"{tmp_path.name}/a.tfrecord",
        "b/a.tfrecord",
    ]
