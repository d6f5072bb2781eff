"""Tests of sidecars.py: descriptions are verified against the records."""

import json
import os

import numpy as np
import pytest

from albert_tf.data.pretraining import records, sidecars


def write_numbers(path, count):
    """Writes a file of `count` records."""
    rows = {"input_ids": np.arange(3 * count).reshape(count, 3)}
    records.write_records(str(path), records.encode_examples(rows))


def sidecar(**changes):
    return {
        "format": 1,
        "max_seq_length": 9,
        "max_predictions_per_seq": 4,
        "num_predictions": 4,
        "sentence_objective": "sop",
        "tokenizer": {"sha256": "0"},
        "flags": {},
        "files": ["0.tfrecord", "1.tfrecord"],
        "num_records": [2, 3],
        "statistics": {"sequences": 5, "tokens": 40},
        **changes,
    }


@pytest.fixture
def described(tmp_path):
    """A file of 5 records whose sidecar also records its size."""
    path = tmp_path / "a.tfrecord"
    write_numbers(path, 5)
    values = sidecar(
        files=["a.tfrecord"],
        num_records=[5],
        num_bytes=[path.stat().st_size],
    )
    sidecars.write_sidecar(sidecars.sidecar_path(str(path)), values)
    return path


@pytest.mark.parametrize(
    "name",
    ["a", "a.tfrecord", "a.tf_record", "a-00003-of-00016.tfrecord"],
)
def test_a_sidecar_is_named_after_all_shards(name):
    assert sidecars.sidecar_path(f"x.y/{name}") == "x.y/a.dataset.json"
    assert sidecars.unfinished_folder(f"x.y/{name}") == "x.y/.a.unfinished"


def test_a_sidecar_counts_the_files_that_are_read(tmp_path):
    names = ["a-00000-of-00002.tfrecord", "a-00001-of-00002.tfrecord"]
    for name, count in zip(names, (2, 3), strict=True):
        write_numbers(tmp_path / name, count)
    files = sorted(map(str, tmp_path.glob("*.tfrecord")))
    assert sidecars.read_sidecar(files) is None
    written = sidecar(files=names)
    sidecars.write_sidecar(sidecars.sidecar_path(files[0]), written)
    assert sidecars.read_sidecar(files) == written
    part = sidecars.read_sidecar(files[1:])
    assert part["statistics"] == {"sequences": 3, "tokens": 40}
    (tmp_path / names[0]).unlink()
    with pytest.raises(FileNotFoundError, match="a-00000-of-00002"):
        sidecars.read_sidecar(files[1:])


def test_sidecars_that_contradict_each_other_are_refused(tmp_path):
    write_numbers(tmp_path / "a", 2)
    write_numbers(tmp_path / "b", 3)
    files = [str(tmp_path / "a"), str(tmp_path / "b")]
    path_a, path_b = map(sidecars.sidecar_path, files)
    sidecars.write_sidecar(path_a, sidecar(files=["a"], num_records=[2]))
    with pytest.raises(ValueError, match="no sidecar.*move the"):
        sidecars.read_sidecar(files)
    other = sidecar(files=["b"], num_records=[3], max_seq_length=8)
    sidecars.write_sidecar(path_b, other)
    with pytest.raises(ValueError, match="max_seq_length = 8"):
        sidecars.read_sidecar(files)
    sidecars.write_sidecar(path_b, sidecar(files=["b"], num_records=[3]))
    assert sidecars.read_sidecar(files)["statistics"]["sequences"] == 5
    sidecars.write_sidecar(path_b, sidecar(files=["c"], num_records=[3]))
    (tmp_path / "c").touch()
    with pytest.raises(ValueError, match="does not list b"):
        sidecars.read_sidecar(files)


def test_a_count_is_trusted_if_size_and_digest_match(described, monkeypatch):
    monkeypatch.setattr(sidecars.damage, "count_records", None)
    found = sidecars.read_sidecar([str(described)])
    assert found["num_records"] == [5]
    assert not found.keys() & {"digest", "num_bytes"}


@pytest.mark.parametrize("has_size", [True, False], ids=["new", "older"])
@pytest.mark.parametrize("count", [4, 0])
def test_a_file_truncated_at_the_end_of_a_record_is_refused(
    described, has_size, count
):
    path = sidecars.sidecar_path(str(described))
    if not has_size:
        values = sidecar(files=["a.tfrecord"], num_records=[5])
        (described.parent / "a.dataset.json").write_text(json.dumps(values))
        assert sidecars.read_sidecar([str(described)])["num_records"] == [5]
    size = described.stat().st_size
    os.truncate(described, size // 5 * count)
    words = f"says {size}" if has_size else f"{count} records; .* says 5"
    with pytest.raises(ValueError, match=words) as raised:
        sidecars.read_sidecar([str(described)])
    assert str(described) in str(raised.value) and path in str(raised.value)


def test_an_edited_count_is_an_error_and_other_edits_a_warning(
    described, caplog
):
    path = described.parent / "a.dataset.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "num_records": [6]}))
    with pytest.raises(ValueError, match="has 5 records; .* says 6"):
        sidecars.read_sidecar([str(described)])
    path.write_text(json.dumps({**values, "sentence_objective": "none"}))
    sidecars.read_sidecar([str(described)])
    assert "was edited" in caplog.text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 2}, "format 2"),
        ({"sentence_objective": "xyz"}, "'xyz'; wanted one"),
        ({"sentence_objective": None}, "no sentence_objective of type str"),
        ({"num_records": [2, "3"]}, "does not count"),
        ({"num_records": [2, -3]}, "does not count"),
        ({"num_records": [5]}, "does not count"),
        ({"num_bytes": 7}, "does not count"),
        ({"files": [1, 2]}, "does not count"),
        ({"statistics": [1]}, "no statistics of type dict"),
        ({"max_seq_length": True}, "no max_seq_length of type int"),
    ],
    ids=str,
)
def test_invalid_values_in_a_sidecar_are_refused(tmp_path, changes, words):
    for name in ("0.tfrecord", "1.tfrecord"):
        path = tmp_path / name
        path.touch()
        values = sidecar(**changes)
        sidecars.write_sidecar(sidecars.sidecar_path(str(path)), values)
    with pytest.raises(ValueError, match=words):
        sidecars.read_sidecar([str(path)])


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"null", b'{"format": 1', b"\0" * 9, b"\xff"]
)
def test_the_error_names_a_damaged_sidecar(described, content):
    path = described.parent / "a.dataset.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="a.dataset.json.*JSON"):
        sidecars.read_sidecar([str(described)])


def test_an_unfinished_set_is_not_read(described):
    (described.parent / ".a.unfinished").mkdir()
    with pytest.raises(ValueError, match="unfinished set.*same.*to resume"):
        sidecars.read_sidecar([str(described)])
