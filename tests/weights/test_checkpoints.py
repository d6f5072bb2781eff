"""Checkpoints: names, complete files, strict restoring, retention."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import filesystem
from albert_tf.training import results_file
from albert_tf.weights import (
    checkpoints,
    regrouping,
    task_heads,
    vocabulary_files,
)
from tests import tiny


def variables(step=0):
    rng = np.random.default_rng(step)
    return {
        "bert/pooler/dense/kernel": tf.Variable(rng.random((3, 5), np.float32)),
        "bert/pooler/dense/bias": tf.Variable(rng.random(5, np.float32)),
        "bert/pooler/dense/bias/adam_m": tf.Variable(tf.ones([5])),
        "global_step": tf.Variable(step, dtype=tf.int64),
    }


def test_tensorflow_reads_the_names_and_values_that_were_written(tmp_path):
    written = variables(3)
    checkpoints.write_checkpoint(tmp_path / "model.ckpt-3", written)
    reader = tf.train.load_checkpoint(str(tmp_path / "model.ckpt-3"))
    shapes = reader.get_variable_to_shape_map()
    assert set(shapes) == set(written)
    for name, variable in written.items():
        np.testing.assert_array_equal(reader.get_tensor(name), variable)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "model.ckpt-3.data-00000-of-00001",
        "model.ckpt-3.index",
    ]


def test_a_checkpoint_of_the_release_is_read(shared):
    path = shared / "golden" / "dev" / "optim" / "adamw_p1_ckpt"
    values = checkpoints.read_checkpoint(path)
    assert values["global_step"] == 12
    slots = checkpoints.find_slots(values)
    assert len(slots) == 2 * (len(values) - len(slots)) + 1
    recorded = path.parent / "adamw_p1.final_weights.npz"
    for name, value in np.load(recorded).items():
        np.testing.assert_array_equal(values[name], value)


@pytest.mark.parametrize("given", ["", "model.ckpt-7", "model.ckpt-7.index"])
def test_a_checkpoint_is_found_by_prefix_index_or_folder(tmp_path, given):
    for step in (3, 7, 12):
        prefix = tmp_path / f"model.ckpt-{step}"
        checkpoints.write_checkpoint(prefix, variables())
    *_, found = checkpoints.find_checkpoints(tmp_path / given)
    assert found == str(tmp_path / ("model.ckpt-7" if given else prefix.name))


def test_attributes_that_macos_keeps_in_files_are_no_models(tmp_path):
    checkpoints.write_checkpoint(tmp_path / "model.ckpt-best", variables())
    (tmp_path / "vocab.txt").write_text("\n".join(tiny.SPECIAL + tiny.WORDS))
    for path in list(tmp_path.iterdir()):
        path.with_name(f"._{path.name}").write_bytes(b"\0\5\x16\7")
    (found,) = checkpoints.find_checkpoints(tmp_path)
    assert found == str(tmp_path / "model.ckpt-best")
    tokenizer = vocabulary_files.find_vocabulary(tmp_path)
    assert tokenizer.vocab_size == 25


def test_the_error_on_a_mistyped_checkpoint_lists_the_files(tmp_path):
    checkpoints.write_checkpoint(tmp_path / "model.ckpt-best", variables())
    with pytest.raises(FileNotFoundError, match=r"has \['model.ckpt-best"):
        checkpoints.find_checkpoints(tmp_path / "model.ckpt")


def test_a_cut_off_data_file_is_named(tmp_path):
    prefix = tmp_path / "model.ckpt-1"
    checkpoints.write_checkpoint(prefix, variables())
    data = tmp_path / "model.ckpt-1.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:40])
    with pytest.raises(ValueError, match="cut off"):
        checkpoints.read_checkpoint(prefix)


def test_restoring_is_all_or_nothing():
    wanted = variables(1)
    before = {name: v.numpy().copy() for name, v in wanted.items()}
    values = {name: v.numpy() for name, v in variables(2).items()}
    del values["bert/pooler/dense/bias"]
    with pytest.raises(ValueError, match="lacks 1 of 4 .*dense/bias"):
        checkpoints.restore(wanted, values, "there")
    values["bert/pooler/dense/bias"] = np.zeros(6, np.float32)
    with pytest.raises(ValueError, match=r"is \(6,\), the model's is \(5,\)"):
        checkpoints.restore(wanted, values, "there")
    for name, value in before.items():
        np.testing.assert_array_equal(wanted[name], value)


def test_only_named_prefixes_may_be_new():
    wanted = {**variables(1), "cls/squad/output_bias": tf.Variable([1.0])}
    values = {name: v.numpy() for name, v in variables(2).items()}
    with pytest.raises(ValueError, match="lacks 1 of 5"):
        checkpoints.restore(wanted, values, "there")
    new = checkpoints.restore(wanted, values, "there", ["cls/"])
    assert new == ["cls/squad/output_bias"]
    assert wanted["cls/squad/output_bias"].numpy() == [1.0]
    assert wanted["global_step"].numpy() == 2


def test_group_0_is_spread_over_all_groups():
    name = "bert/encoder/transformer/group_{}/inner_group_{}/LayerNorm/beta"
    values = {name.format(0, i): np.full(2, i) for i in range(2)}
    wanted = [name.format(g, i) for g in range(3) for i in range(2)]
    spread = regrouping.spread_group0(values, wanted)
    assert {n: v[0] for n, v in spread.items()} == {
        name.format(g, i): i for g in range(3) for i in range(2)
    }


def test_the_newest_and_the_best_checkpoints_are_kept(tmp_path):
    held = variables()
    manager = checkpoints.CheckpointManager(tmp_path, held, max_to_keep=2)
    assert manager.restore_latest() is None
    for step in (5, 10, 15, 20):
        held["global_step"].assign(step)
        prefix = manager.save()
        if step == 10:
            manager.keep_best(prefix)
    found = [
        checkpoints.step_of(c) for c in checkpoints.list_checkpoints(tmp_path)
    ]
    assert found == [15, 20]
    assert tf.train.latest_checkpoint(tmp_path).endswith("model.ckpt-20")
    best = checkpoints.read_checkpoint(tmp_path / "model.ckpt-best")
    assert best["global_step"] == 10
    held["global_step"].assign(99)
    assert manager.restore_latest().endswith("model.ckpt-20")
    assert held["global_step"].numpy() == 20


def test_restoring_deletes_none_and_saving_those_that_a_kill_left(
    tmp_path, monkeypatch
):
    held = variables()
    manager = checkpoints.CheckpointManager(tmp_path, held, max_to_keep=1)
    manager.save()
    held["global_step"].assign(9)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(checkpoints, "remove_checkpoint", raise_interrupt)
        manager.save()
    assert len(checkpoints.list_checkpoints(tmp_path)) == 2
    assert manager.restore_latest().endswith("model.ckpt-9")
    assert len(checkpoints.list_checkpoints(tmp_path)) == 2
    assert tf.train.latest_checkpoint(tmp_path).endswith("model.ckpt-9")
    held["global_step"].assign(12)
    newest = manager.save()
    assert checkpoints.list_checkpoints(tmp_path) == [newest]


def test_a_checkpoint_that_cannot_be_reached_is_not_damaged(
    tmp_path, monkeypatch, caplog
):
    prefixes = [str(tmp_path / f"model.ckpt-{step}") for step in (10, 20)]
    for prefix in prefixes:
        checkpoints.write_checkpoint(prefix, {"a": np.ones(3)})
    read, failures = checkpoints._read_tensors, [1]

    def fail(prefix):
        if failures:
            failures.pop()
            raise tf.errors.AbortedError(
                None, None, "All retry attempts failed"
            )
        return read(prefix)

    monkeypatch.setattr(checkpoints, "_read_tensors", fail)
    assert checkpoints.read_newest(prefixes)[0] == prefixes[1]
    assert not caplog.text

    def refuse(path, mode="rb"):
        raise PermissionError(13, "Permission denied", path)

    failures[:] = [1, 1]
    monkeypatch.setattr(checkpoints.filesystem, "open_file", refuse)
    with pytest.raises(PermissionError):
        checkpoints.read_newest(prefixes)
    assert not caplog.text


def test_a_damaged_newer_checkpoint_is_not_counted(tmp_path):
    held = variables(500)
    manager = checkpoints.CheckpointManager(tmp_path, held, max_to_keep=1)
    damaged = manager.save()
    held["global_step"].assign(450)  # After a resume from an older one.
    assert manager.save() in checkpoints.list_checkpoints(tmp_path)
    assert damaged in checkpoints.list_checkpoints(tmp_path)
    assert tf.train.latest_checkpoint(tmp_path).endswith("model.ckpt-450")
    held["global_step"].assign(900)
    newest = manager.save()
    assert checkpoints.list_checkpoints(tmp_path) == [newest]


def raise_interrupt(*_):
    raise KeyboardInterrupt


def test_a_checkpoint_without_an_index_is_ignored(tmp_path):
    # Files of a process that was killed while writing.
    manager = checkpoints.CheckpointManager(tmp_path, variables(5))
    manager.save()
    (tmp_path / "model.ckpt-9.data-00000-of-00001").write_bytes(b"half")
    half = tmp_path / "model.ckpt-9.writing-17.index"
    half.write_bytes(b"half")
    assert manager.restore_latest().endswith("model.ckpt-5")
    assert not half.exists()


def test_a_failed_replacement_leaves_no_mixed_checkpoint(tmp_path, monkeypatch):
    prefix = tmp_path / "model.ckpt-best"
    checkpoints.write_checkpoint(prefix, variables(1))

    def fail(source, target):
        raise OSError("The disk is gone.")

    monkeypatch.setattr(filesystem, "rename", fail)
    with pytest.raises(OSError, match="disk is gone"):
        checkpoints.write_checkpoint(prefix, variables(2))
    # The data may already be new, so there must be no index.
    assert not (tmp_path / "model.ckpt-best.index").exists()
    assert not list(tmp_path.glob("*.writing-*"))


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_not_restored(tmp_path, number):
    bad = variables()
    bad["bert/pooler/dense/bias"].assign([0, number, 0, 0, 0])
    checkpoints.write_checkpoint(tmp_path / "model.ckpt-1", bad)
    good = variables(5)
    before = good["bert/pooler/dense/kernel"].numpy()
    values = checkpoints.read_checkpoint(tmp_path / "model.ckpt-1")
    with pytest.raises(ValueError, match="dense/bias contains NaN or infinity"):
        checkpoints.restore(good, values, "a model")
    np.testing.assert_array_equal(good["bert/pooler/dense/kernel"], before)


def test_the_folder_of_several_runs_names_one(tmp_path):
    (tmp_path / "run_1").mkdir()
    with pytest.raises(FileNotFoundError, match="of one run, such as .*/run_1"):
        checkpoints.find_checkpoints(tmp_path)


def test_an_absent_index_is_not_a_folder(tmp_path):
    checkpoints.write_checkpoint(tmp_path / "out" / "model.ckpt-3", variables())
    with pytest.raises(FileNotFoundError, match="out.index does not exist"):
        checkpoints.read_checkpoint(tmp_path / "out.index")


def steps_in(folder):
    return [
        checkpoints.step_of(prefix)
        for prefix in checkpoints.list_checkpoints(folder)
    ]


def save_at(manager, step, **kwargs):
    manager.variables["global_step"].assign(step)
    return manager.save(**kwargs)


def test_checkpoints_of_interruptions_are_not_counted(tmp_path):
    manager = checkpoints.CheckpointManager(tmp_path, variables(), 3)
    for step in (100, 200, 300):
        save_at(manager, step)
    for step in (310, 320, 330):
        save_at(manager, step, is_interrupted=True)
        assert steps_in(tmp_path) == [100, 200, 300, step]
    save_at(manager, 400)
    assert steps_in(tmp_path) == [200, 300, 400]
    # The run was to end where it was interrupted.
    save_at(manager, 450, is_interrupted=True)
    manager.confirm_latest()
    assert steps_in(tmp_path) == [300, 400, 450]
    assert not list(tmp_path.glob("*.interrupted"))


def test_confirming_a_regular_checkpoint_deletes_none(tmp_path):
    """A finished run may be started again, to keep fewer of them."""
    held = variables()
    manager = checkpoints.CheckpointManager(tmp_path, held, max_to_keep=3)
    for step in (100, 200, 300):
        save_at(manager, step)
    fewer = checkpoints.CheckpointManager(tmp_path, held, max_to_keep=1)
    fewer.confirm_latest()
    assert steps_in(tmp_path) == [100, 200, 300]


@pytest.mark.parametrize("is_interrupted", [True, False])
@pytest.mark.parametrize("name", ["bert/pooler/dense/bias/adam_m", "kernel"])
def test_what_is_not_finite_is_never_saved(tmp_path, is_interrupted, name):
    held = variables()
    manager = checkpoints.CheckpointManager(tmp_path, held, max_to_keep=1)
    good = save_at(manager, 5)
    files = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    held[next(n for n in held if n.endswith(name))].assign_add(
        tf.fill(held[next(n for n in held if n.endswith(name))].shape, np.nan)
    )
    with pytest.raises(FloatingPointError, match="step 6.*NaN.*not saved"):
        save_at(manager, 6, is_interrupted=is_interrupted)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == files
    assert manager.source == good


def write_nan(prefix, step):
    broken = variables(step)
    broken["bert/pooler/dense/bias"].assign([np.nan] * 5)
    checkpoints.write_checkpoint(prefix, broken)


def test_what_is_not_finite_is_skipped_like_what_is_damaged(tmp_path, caplog):
    held = variables()
    manager = checkpoints.CheckpointManager(tmp_path, held, max_to_keep=2)
    for step in (100, 200):
        save_at(manager, step)
    write_nan(tmp_path / "model.ckpt-300", 300)
    (tmp_path / f"model.ckpt-350{checkpoints.DATA_ENDING}").write_bytes(b"cut")
    (tmp_path / "model.ckpt-350.index").write_bytes(b"cut")
    found = checkpoints.find_checkpoints(tmp_path)
    assert checkpoints.read_newest(found)[0].endswith("-200")
    assert manager.restore_latest() == manager.source == manager.prefix(200)
    assert "-300: bert/pooler/dense/bias contains NaN" in caplog.text
    # Damaged checkpoints are not counted, and are removed before good ones.
    save_at(manager, 360)
    assert steps_in(tmp_path) == [200, 360]


def test_only_values_that_were_assigned_have_a_source(tmp_path):
    manager = checkpoints.CheckpointManager(tmp_path, variables())
    assert manager.restore_latest() is None and manager.source is None
    save_at(manager, 3)
    other = checkpoints.CheckpointManager(tmp_path, variables())
    assert other.source is None
    other.restore(manager.prefix(3))
    assert other.source == manager.prefix(3)


def test_a_newer_checkpoint_is_preferred_unless_it_was_scored(tmp_path):
    manager = checkpoints.CheckpointManager(tmp_path, variables(), 9)
    manager.keep_best(save_at(manager, 10))
    save_at(manager, 20)
    head = task_heads.describe_head(task_heads.TaskHead("classes"))
    filesystem.write_json(tmp_path / task_heads.HEAD_FILE, head)
    # A copy without its scores: which others were scored is unknown.
    assert task_heads.find_trained(tmp_path)[-1].endswith("-best")
    results_file.write_blocks(
        tmp_path,
        [f"f1 = 0.5\nglobal_step = {step}.0\n" for step in (10, 20)],
    )
    assert task_heads.find_trained(tmp_path)[-1].endswith("-best")
    save_at(manager, 25, is_interrupted=True)
    assert task_heads.find_trained(tmp_path)[-1].endswith("-best")
    save_at(manager, 30)
    save_at(manager, 40)
    found = [p.rsplit("-")[-1] for p in task_heads.find_trained(tmp_path)]
    assert found == ["10", "20", "best", "30", "40"]
    # What was scored stays known when the run begins again.
    head = task_heads.TaskHead("classes", ("yes", "no"))
    described = task_heads.describe_head(head, tmp_path)
    filesystem.write_json(tmp_path / task_heads.HEAD_FILE, described)
    found = [p.rsplit("-")[-1] for p in task_heads.find_trained(tmp_path)]
    assert found == ["10", "20", "best", "30", "40"]
    assert task_heads.read_head(tmp_path) == head


def test_a_checkpoint_of_several_data_files_is_copied(tmp_path):
    """As those of the release, trained by several hosts, may be."""
    manager = checkpoints.CheckpointManager(tmp_path, variables())
    values = checkpoints.read_checkpoint(save_at(manager, 10))
    parts = [tmp_path / f"model.ckpt-20_temp/part-{i}" for i in range(2)]
    for i, part in enumerate(map(str, parts)):
        names = sorted(values)[i::2]
        tensors = [values[name] for name in names]
        tf.raw_ops.SaveV2(
            prefix=part,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=tensors,
        )
    prefix = str(tmp_path / "model.ckpt-20")
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=[*map(str, parts)], destination_prefix=prefix
    )
    files = sorted(tmp_path.glob("model.ckpt-20.*"))
    assert files[1].name.endswith("data-00001-of-00002")
    manager.keep_best(prefix)
    checkpoints.remove_checkpoint(prefix)
    assert not [file for file in files if file.exists()]
    best = checkpoints.read_checkpoint(tmp_path / "model.ckpt-best")
    assert best.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_array_equal(best[name], value)


def test_scoring_a_copy_keeps_its_threshold(tmp_path):
    """A folder with `model.ckpt-best` alone, scored as step 0."""
    # As older versions wrote it, also for "best".
    content = '{"kind": "conditional_spans", "scored": {"8": 0.5, "best": 0.6}}'
    (tmp_path / task_heads.HEAD_FILE).write_text(content)
    manager = checkpoints.CheckpointManager(tmp_path, variables())
    manager.keep_best(save_at(manager, 8))
    row = {"f1": 1.0, task_heads.THRESHOLD: 0.7, "global_step": 0.0}
    task_heads.note_scores(tmp_path, [row])
    best = manager.prefix("best")
    assert task_heads.find_threshold(tmp_path, best) == 0.5
    # Another checkpoint is the best before it is noted, as after a kill.
    manager.keep_best(save_at(manager, 10))
    assert task_heads.find_threshold(tmp_path, best) is None
    task_heads.note_scores(tmp_path, [{**row, "global_step": 10.0}])
    assert task_heads.find_threshold(tmp_path, best) == 0.7
    # Without results, checkpoints that are scored again keep their thresholds.
    task_heads.note_scores(tmp_path, [{**row, "global_step": 8.0}])
    assert task_heads.find_threshold(tmp_path, best) == 0.7
    assert task_heads.find_threshold(tmp_path, manager.prefix(8)) == 0.7
    checkpoints.remove_checkpoint(manager.prefix(10))
    task_heads.note_scores(tmp_path, [])
    assert task_heads.find_threshold(tmp_path, best) is None


def test_a_run_that_begins_anew_has_no_thresholds_of_before(tmp_path):
    head = task_heads.TaskHead("conditional_spans")
    content = '{"kind": "conditional_spans", "scored": {"8": 0.5, "40": 1}}'
    (tmp_path / task_heads.HEAD_FILE).write_text(content)
    assert "scored" not in task_heads.describe_head(head, tmp_path)
    save_at(checkpoints.CheckpointManager(tmp_path, variables()), 8)
    described = task_heads.describe_head(head, tmp_path)
    assert described["scored"] == {"8": 0.5}


@pytest.mark.parametrize("scored", ["[3]", '{"three": 1}', '{"3": "low"}'])
def test_invalid_notes_of_scores_are_refused(tmp_path, scored):
    manager = checkpoints.CheckpointManager(tmp_path, variables())
    manager.keep_best(save_at(manager, 10))
    content = f'{{"kind": "classes", "scored": {scored}}}'
    (tmp_path / task_heads.HEAD_FILE).write_text(content)
    with pytest.raises(ValueError, match="head.json is invalid: scored is"):
        task_heads.find_trained(tmp_path)


def test_momentum_alone_is_dropped(tmp_path):
    """Of Muon, for an optimizer that divides it by the second moment."""
    names = ["a/adam_m", "a/adam_v", "b/adam_m", "b/adam_v"]
    step = {checkpoints.STEP: tf.Variable(3, dtype=tf.int64)}
    given = {n: tf.Variable([1.0]) for n in names if n != "a/adam_v"}
    checkpoints.CheckpointManager(tmp_path, {**given, **step}).save()
    wanted = {name: tf.Variable([5.0]) for name in names}
    manager = checkpoints.CheckpointManager(tmp_path, {**wanted, **step})
    manager.restore_latest()
    found = [float(variable[0]) for variable in wanted.values()]
    assert found == [0, 0, 1, 1]
