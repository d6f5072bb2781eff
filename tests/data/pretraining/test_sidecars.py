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


def sidecar(*paths, **changes):
    """A sidecar of files of 2, 3, ... records."""
    return {
        "format": 1,
        "max_seq_length": 9,
        "max_predictions_per_seq": 4,
        "num_predictions": 4,
        "sentence_objective": "sop",
        "tokenizer": {"sha256": "0"},
        "masking": "static",
        "flags": {},
        "files": [path.name for path in paths],
        "num_records": [2 + i for i in range(len(paths))],
        "num_bytes": [path.stat().st_size for path in paths],
        "statistics": {"sequences": 5, "tokens": 40},
        **changes,
    }


@pytest.fixture
def described(tmp_path):
    """A file of 5 records with a sidecar."""
    path = tmp_path / "a.tfrecord"
    write_numbers(path, 5)
    values = sidecar(path, num_records=[5])
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
    paths = [tmp_path / f"a-0000{i}-of-00002.tfrecord" for i in range(2)]
    for path, count in zip(paths, (2, 3), strict=True):
        write_numbers(path, count)
    files = list(map(str, paths))
    assert sidecars.read_sidecar(files) is None
    written = sidecar(*paths)
    sidecars.write_sidecar(sidecars.sidecar_path(files[0]), written)
    del written["num_bytes"]
    assert sidecars.read_sidecar(files) == written
    part = sidecars.read_sidecar(files[1:])
    assert part["statistics"] == {"sequences": 3, "tokens": 40}
    paths[0].unlink()
    with pytest.raises(FileNotFoundError, match="a-00000-of-00002"):
        sidecars.read_sidecar(files[1:])


def test_sidecars_that_contradict_each_other_are_refused(tmp_path):
    a, b, c = (tmp_path / name for name in "abc")
    write_numbers(a, 2)
    write_numbers(b, 3)
    files = [str(a), str(b)]
    path_a, path_b = map(sidecars.sidecar_path, files)
    sidecars.write_sidecar(path_a, sidecar(a))
    with pytest.raises(ValueError, match="no sidecar.*move the"):
        sidecars.read_sidecar(files)
    other = sidecar(b, num_records=[3], max_seq_length=8)
    sidecars.write_sidecar(path_b, other)
    with pytest.raises(ValueError, match="max_seq_length = 8"):
        sidecars.read_sidecar(files)
    sidecars.write_sidecar(path_b, sidecar(b, num_records=[3]))
    assert sidecars.read_sidecar(files)["statistics"]["sequences"] == 5
    c.touch()
    sidecars.write_sidecar(path_b, sidecar(c, num_records=[3]))
    with pytest.raises(ValueError, match="does not list b"):
        sidecars.read_sidecar(files)


def test_a_count_is_trusted_if_size_and_digest_match(described, monkeypatch):
    monkeypatch.setattr(sidecars.records, "count_records", None)
    found = sidecars.read_sidecar([str(described)])
    assert found["num_records"] == [5]
    assert not found.keys() & {"digest", "num_bytes"}


@pytest.mark.parametrize("is_edited", [False, True])
@pytest.mark.parametrize("count", [4, 0])
def test_a_file_truncated_at_the_end_of_a_record_is_refused(
    described, is_edited, count
):
    path = sidecars.sidecar_path(str(described))
    if is_edited:
        values = sidecar(described, num_records=[5])
        (described.parent / "a.dataset.json").write_text(json.dumps(values))
        assert sidecars.read_sidecar([str(described)])["num_records"] == [5]
    size = described.stat().st_size
    os.truncate(described, size // 5 * count)
    words = f"{count} records; .* says 5" if is_edited else f"says {size}"
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
        ({"num_bytes": 7}, "no num_bytes of type list"),
        ({"num_bytes": [7]}, "does not count"),
        ({"files": [1, 2]}, "does not count"),
        ({"statistics": [1]}, "no statistics of type dict"),
        ({"max_seq_length": True}, "no max_seq_length of type int"),
        ({"vocabulary_file": "YWJj"}, "SHA-256 ba7816bf8f01; its token.* 0"),
        ({"vocabulary_file": "?"}, "remove the key"),
        ({"vocabulary_file": 7}, "remove the key"),
    ],
    ids=str,
)
def test_invalid_values_in_a_sidecar_are_refused(tmp_path, changes, words):
    paths = [tmp_path / name for name in ("0.tfrecord", "1.tfrecord")]
    for path in paths:
        path.touch()
    for path in paths:
        values = sidecar(*paths, **changes)
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
