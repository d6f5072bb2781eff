"""A resume compares the settings and data of a run."""

import copy
import json
import pathlib

import numpy as np
import pytest

from albert_tf.model.config import AlbertConfig
from albert_tf.training import manifest

MADE_OF = {
    "config": {
        "hidden_size": 12,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "initializer_range": 0.02,
    },
    "vocabulary": {"sha256": "aa", "do_lower_case": True},
    "task": {"name": "mrpc", "labels": ("0", "1")},
    "data": {
        "train": {"examples": 7, "sha256": "bb"},
        "dev": {"examples": 5, "sha256": "cc"},
        "test": {"examples": 3, "sha256": "dd"},
    },
    "begins_from": {"sha256": "ee"},
    "scored": {"sha256": "ff"},
    "evaluation": {"records": 7},
    "max_seq_length": 16,
    "optimizer": {"name": "adamw", "learning_rate": 1e-3, "num_train_steps": 9},
    "train_batch_size": 4,
    "random_seed": 1,
    "compute_dtype": "float32",
}


def changed(key, value):
    """Returns the settings and data of a run, with one dotted key changed."""
    values = copy.deepcopy(MADE_OF)
    *path, last = key.split(".")
    part = values
    for name in path:
        part = part[name]
    part[last] = value
    return values


@pytest.fixture
def folder(tmp_path):
    manifest.Manifest(tmp_path, MADE_OF).write(0, 4)
    return tmp_path


@pytest.mark.parametrize(
    ("key", "value", "verdict"),
    [
        ("config.num_hidden_layers", 3, manifest.REFUSED),
        ("config.num_attention_heads", 4, manifest.REFUSED),
        ("config.hidden_act", "relu", manifest.REFUSED),
        ("config.hidden_dropout_prob", 0.0, manifest.NEEDS_FLAG),
        ("config.initializer_range", 0.05, manifest.ALLOWED),
        ("vocabulary.sha256", "zz", manifest.REFUSED),
        ("vocabulary.do_lower_case", False, manifest.REFUSED),
        ("task.name", "rte", manifest.REFUSED),
        ("task.labels", ["1", "0"], manifest.REFUSED),
        ("data.train.sha256", "zz", manifest.NEEDS_FLAG),
        ("data.dev.sha256", "zz", manifest.REFUSED),
        ("data.test.sha256", "zz", manifest.ALLOWED),
        ("begins_from.sha256", "zz", manifest.NEEDS_FLAG),
        ("scored.sha256", "zz", manifest.REFUSED),
        ("evaluation.records", 8, manifest.REFUSED),
        ("data.dev.max_eval_steps", 5, manifest.ALLOWED),
        ("max_seq_length", 17, manifest.NEEDS_FLAG),
        ("optimizer.name", "lamb", manifest.NEEDS_FLAG),
        ("optimizer.learning_rate", 2e-3, manifest.NEEDS_FLAG),
        ("optimizer.num_train_steps", 10, manifest.ALLOWED),
        ("train_batch_size", 5, manifest.NEEDS_FLAG),
        ("random_seed", 2, manifest.NEEDS_FLAG),
        ("compute_dtype", "bfloat16", manifest.ALLOWED),
    ],
)
def test_each_difference_is_reported_with_its_verdict(
    folder, key, value, verdict
):
    now = manifest.Manifest(folder, changed(key, value))
    ((found, _, is_now, judged, _),) = now.differences()
    assert (found, is_now, judged) == (key, value, verdict)
    if verdict == manifest.ALLOWED:
        (sentence,) = now.check(has_work=True)
        assert key in sentence and "Resuming" in sentence
        return
    with pytest.raises(ValueError, match=f"{key}: was .* is .*{verdict}") as e:
        now.check(has_work=True)
    assert "To start a new run" in str(e.value)
    assert ("accept_changes=True." in str(e.value)) == (
        verdict == manifest.NEEDS_FLAG
    )
    if verdict == manifest.NEEDS_FLAG:
        (sentence,) = now.check(has_work=True, accept_changes=True)
        assert ": accepted (" in sentence and "needs" not in sentence
    else:
        with pytest.raises(ValueError, match=verdict):
            now.check(has_work=True, accept_changes=True)


def test_a_run_without_differences_resumes_silently(folder):
    assert manifest.Manifest(folder, MADE_OF).check(has_work=True) == []


def test_any_run_may_start_in_a_folder_without_work(folder):
    other = manifest.Manifest(folder, changed("task.name", "rte"))
    assert other.check(has_work=False) == []
    other.write(0, 4)
    again = manifest.Manifest(folder, changed("task.name", "rte"))
    assert again.check(has_work=True) == []


@pytest.mark.parametrize("began", [{}, {"initialization": "neighbors"}])
def test_a_resumed_run_keeps_how_it_began(tmp_path, began):
    first = {"begins_from": {"source": "x"}} | began
    manifest.Manifest(tmp_path, first).write(0, 4)
    now = {"begins_from": {"source": "y"}, "initialization": "release"}
    manifest.Manifest(tmp_path, now).write(2, 4)
    assert manifest.Manifest(tmp_path, {}).stored["made_of"] == first


def test_without_scores_it_may_be_scored_on_any_data(folder):
    keys = "data.dev.sha256", "scored.sha256", "evaluation.records"
    for key in keys:
        other = manifest.Manifest(folder, changed(key, "new"))
        assert other.check(has_work=True, has_scores=False) == []
        other.write()
        with pytest.raises(ValueError, match="refused"):
            manifest.Manifest(folder, MADE_OF).check(has_work=True)
        manifest.Manifest(folder, MADE_OF).write()
    other = manifest.Manifest(folder, changed("data.train.sha256", "new"))
    with pytest.raises(ValueError, match="training data changes"):
        other.check(has_work=True, has_scores=False)


def test_unused_sections_are_neither_compared_nor_changed(folder):
    some = {k: MADE_OF[k] for k in ("config", "vocabulary", "task")}
    some["data"] = {"test": {"examples": 4, "sha256": "new"}}
    predicting = manifest.Manifest(folder, some)
    assert len(predicting.check(has_work=True)) == 2
    predicting.write()
    stored = manifest.Manifest(folder, MADE_OF).stored["made_of"]
    assert stored["data"]["test"]["sha256"] == "new"
    assert stored["data"]["train"] == MADE_OF["data"]["train"]
    assert stored["optimizer"] == MADE_OF["optimizer"]


def test_the_position_in_the_data_counts_examples(folder):
    def resume(step, batch_size):
        found = manifest.Manifest(folder, MADE_OF)
        found.write(step, batch_size)
        return found.count_examples

    assert resume(0, 4)(10) == 40
    assert resume(10, 4)(12) == 48
    count = resume(12, 3)
    assert [count(step) for step in (0, 5, 12, 14)] == [0, 20, 48, 54]
    # Steps after the checkpoint were lost and do not count.
    assert resume(11, 5)(13) == 44 + 10
    assert resume(13, 5)(14) == 44 + 15


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", "\0\0\0", '{"format": 1}', '{"format": 2}'],
)
def test_a_truncated_manifest_is_no_obstacle(folder, content, caplog):
    (folder / manifest.MANIFEST_FILE).write_text(content)
    found = manifest.Manifest(folder, MADE_OF)
    assert found.check(has_work=True) == []
    assert "are unknown" in caplog.text
    found.write(3, 4)
    assert found.count_examples(3) == 12


@pytest.mark.parametrize("content", [None, "{"])
def test_without_a_manifest_the_config_is_compared(tmp_path, content):
    config = AlbertConfig(vocab_size=7)
    values = config.to_dict()
    # A file of the release, whose defaults count.
    old = values | {"num_hidden_layers": 5, "gap_size": 0}
    del old["parameter_sharing"]
    (tmp_path / "albert_config.json").write_text(json.dumps(old))
    if content:
        (tmp_path / manifest.MANIFEST_FILE).write_text(content)
    assert manifest.read_setting(tmp_path, "config")["vocab_size"] == 7
    found = manifest.Manifest(tmp_path, {"config": values})
    ((key, before, now, verdict, _),) = found.differences()
    assert (key, before, now) == ("config.num_hidden_layers", 5, 12)
    assert verdict == manifest.REFUSED


def test_a_resumed_run_keeps_the_flags_of_its_start(tmp_path):
    def write(**flags):
        (content,) = manifest.list_flags(tmp_path, flags).values()
        (tmp_path / "flags.json").write_text(json.dumps(content))
        return content

    first = {"init_checkpoint": None, "albert_hub_module_handle": "a"}
    nothing = dict.fromkeys(first)
    assert manifest.list_flags(tmp_path, {}) == {}
    assert write(**nothing, train_step=1) == {**nothing, "train_step": 1}
    # There is no checkpoint yet.
    assert write(**first, train_step=2) == {**first, "train_step": 2}
    (tmp_path / "model.ckpt-2.index").touch()
    for given in (nothing, nothing | {"init_checkpoint": "b"}):
        assert write(**given, train_step=3) == {**first, "train_step": 3}
    # Pretraining has only one of these flags.
    (tmp_path / "flags.json").write_text('{"init_checkpoint": "a"}')
    assert write(init_checkpoint=None) == {"init_checkpoint": "a"}
    (tmp_path / "flags.json").write_text("{")
    assert write(**nothing) == nothing


def test_files_are_known_by_size_and_content(tmp_path):
    path = tmp_path / "a.tfrecord"
    content = bytearray(np.random.default_rng(0).bytes(10**6))

    def describe():
        path.write_bytes(content)
        return manifest.describe_files([str(path)], 3)

    first = describe()
    assert first["bytes"] == 10**6 and first["records"] == 3
    assert describe() == first
    for place in (0, 500_001, 999_999):
        content[place] ^= 1
        assert describe()["sha256"] != first["sha256"]
        content[place] ^= 1
    del content[-1]
    assert describe()["sha256"] != first["sha256"]


def test_files_of_several_folders_are_known_by_their_order(tmp_path):
    """In which they are read."""
    paths = [str(tmp_path / name) for name in ("old/b", "new/a")]
    for path in map(pathlib.Path, paths):
        path.parent.mkdir()
        path.write_text(path.name)
    found = [manifest.describe_files(x, 3) for x in (paths, paths[::-1])]
    assert found[0]["sha256"] != found[1]["sha256"]


def test_arrays_are_known_by_name_shape_type_and_content():
    base = {"a": np.arange(6), "b": np.zeros((0, 2), np.float32)}
    others = [
        {"a": np.arange(6)},
        {**base, "a": np.arange(6).reshape(2, 3)},
        {**base, "a": np.arange(6, dtype=np.int32)},
        {**base, "a": np.arange(1, 7)},
        {"c": base["a"], "b": base["b"]},
    ]
    assert manifest.digest(base) == manifest.digest(
        dict(reversed(base.items()))
    )
    digests = {manifest.digest(arrays) for arrays in (base, *others)}
    assert len(digests | {manifest.digest(base, ["more"])}) == 7
