"""Weights in shards are those of the whole file, or an error says why not."""

import json
import tarfile

import numpy as np
import pytest
import safetensors.numpy

from albert_tf.weights import pretrained
from albert_tf.weights.safetensor_files import INDEX_FILE, WEIGHTS_FILE
from tests.weights.test_pretrained import convert, random_model

SHARDS = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
NAME = "albert.pooler.bias"


@pytest.fixture
def folder(tmp_path):
    """A model of random weights in three shards, as transformers writes it."""
    random_model(tmp_path / "a")
    convert(tmp_path / "a", tmp_path / "b", format="hf")
    path = tmp_path / "b" / WEIGHTS_FILE
    weights = safetensors.numpy.load_file(path)
    path.unlink()
    shard_of = {name: SHARDS[i % 3] for i, name in enumerate(sorted(weights))}
    for shard in SHARDS:
        safetensors.numpy.save_file(
            {n: v for n, v in weights.items() if shard_of[n] == shard},
            path.with_name(shard),
        )
    size = sum(value.nbytes for value in weights.values())
    write_index(path.parent, shard_of, metadata={"total_size": size})
    return path.parent


def write_index(folder, shard_of, **others):
    index = {**others, "weight_map": shard_of}
    (folder / INDEX_FILE).write_text(json.dumps(index))


def read_index(folder):
    return json.loads((folder / INDEX_FILE).read_text())["weight_map"]


def edit(path, change):
    weights = safetensors.numpy.load_file(path)
    change(weights)
    safetensors.numpy.save_file(weights, path)


@pytest.mark.parametrize("name", ["", INDEX_FILE, SHARDS[1], "tar"])
def test_shards_are_read_wherever_a_folder_is(folder, tmp_path, name):
    path = folder / name
    if name == "tar":
        path = tmp_path / "model.tar"
        with tarfile.open(path, "w") as archive:
            archive.add(folder, "model")
    found = pretrained.read_pretrained(path)
    wanted = pretrained.read_pretrained(tmp_path / "a")
    assert found.values.keys() == wanted.values.keys()
    for name, value in wanted.values.items():
        np.testing.assert_array_equal(found.values[name], value)
    assert found.remarks == []


def test_a_whole_file_is_preferred_to_shards(folder, tmp_path):
    convert(folder, tmp_path / "c", format="hf")
    (tmp_path / "c" / INDEX_FILE).write_text("{}")
    assert pretrained.read_pretrained(tmp_path / "c").values


def test_a_missing_shard_is_an_error(folder):
    (folder / SHARDS[1]).unlink()
    with pytest.raises(
        FileNotFoundError, match=f"3 shards; 1 are .* as {SHARDS[1]}. Was"
    ):
        pretrained.read_pretrained(folder)


def test_an_index_that_says_other_than_its_shards_is_refused(folder):
    shard_of = read_index(folder)
    first, other = shard_of[NAME], SHARDS[SHARDS.index(shard_of[NAME]) - 1]
    write_index(folder, {**shard_of, NAME: other})
    message = f"index.json assigns {NAME} to {other}; {first} contains it"
    with pytest.raises(ValueError, match=message):
        pretrained.read_pretrained(folder)
    write_index(folder, shard_of)
    edit(folder / first, lambda weights: weights.pop(NAME))
    message = f"index.json assigns {NAME} to {first}; no shard contains it"
    with pytest.raises(ValueError, match=message):
        pretrained.read_pretrained(folder)


def test_a_weight_in_two_shards_is_refused(folder):
    for shard in SHARDS:
        edit(folder / shard, lambda w: w.update({NAME: np.zeros(12, "f4")}))
    with pytest.raises(
        ValueError, match=f"{NAME} is in two shards, {SHARDS[0]}"
    ):
        pretrained.read_pretrained(folder)


def test_a_shard_that_is_cut_off_is_named(folder):
    path = folder / SHARDS[2]
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match=f"{SHARDS[2]} cannot be read: .*cut"):
        pretrained.read_pretrained(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"index\.json is not JSON"),
        ("{}", "has weight_map None; wanted an object"),
        ('{"weight_map": []}', r"has weight_map \[\]; wanted an object"),
        ('{"weight_map": {"a": 1}}', "a to 1; wanted the name of a file"),
        ('{"weight_map": {"a": "../b"}}', r"a to '\.\./b'; wanted the name"),
    ],
)
def test_a_damaged_index_is_refused(folder, content, message):
    (folder / INDEX_FILE).write_text(content)
    with pytest.raises(ValueError, match=message):
        pretrained.read_pretrained(folder)
