"""A run that was stopped or damaged ends like an uninterrupted one."""

import dataclasses
import io
import json
import pathlib
import re
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.commands.run_pretraining import PretrainingFlags
from albert_tf.data.pretraining import opening
from albert_tf.model import heads
from albert_tf.programs import run_classifier, run_pretraining
from albert_tf.training import (
    evaluation,
    loop,
    manifest,
    reporting,
    results_file,
    session,
    workers,
)
from albert_tf.training.settings import Schedule, Settings
from albert_tf.weights import checkpoints, task_heads
from tests import tiny, tiny_records
from tests.programs.classifier_runs import build_args, make_rows, write_table
from tests.programs.test_run_pretraining import CONFIG

# Also in `whole`, with which others are compared.
pytestmark = pytest.mark.usefixtures("eager_steps")
LAST = 12


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Flags of a finished run of twelve steps, with its correct output."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "model").mkdir()
    args = dataclasses.replace(
        build_args(folder, tiny.write_model(folder / "model")),
        train_step=LAST,
        warmup_step=0,
        log_every_steps=2,
        bucket_lengths="8",
    )
    run_classifier.run(args)
    return args


@pytest.fixture
def copy(whole, tmp_path):
    """A copy of the finished run's folder, to be damaged, and its flags."""
    shutil.copytree(whole.output_dir, tmp_path / "out")
    return tmp_path / "out", dataclasses.replace(
        whole, output_dir=str(tmp_path / "out")
    )


def check_equal(folder, whole):
    """Compares the outputs of runs: weights, results, predictions, metrics."""
    wanted = run_folder = folder.__class__(whole.output_dir)
    names = {p.name for p in wanted.iterdir() if p.is_file()}
    assert {p.name for p in folder.iterdir() if p.is_file()} == names
    for name in ("eval_results.txt", "SST-2.tsv", "test_results.tsv"):
        assert (folder / name).read_bytes() == (run_folder / name).read_bytes()
    for prefix in task_heads.find_trained(whole.output_dir):
        values = checkpoints.read_checkpoint(prefix)
        found = checkpoints.read_checkpoint(folder / prefix.split("/")[-1])
        assert found.keys() == values.keys()
        for key, value in values.items():
            np.testing.assert_array_equal(found[key], value, err_msg=key)
    assert evaluations(folder) == evaluations(run_folder)


def evaluations(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [
        {k: v for k, v in row.items() if k != "time"}
        for row in rows
        if row["split"] == "eval"
    ]


def run_until(step, args, monkeypatch):
    """Interrupts a run when it shows its progress at a step."""
    progress = reporting.Reporter.progress

    def interrupt(reporter, now, *rest):
        progress(reporter, now, *rest)
        if now >= step:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(reporting.Reporter, "progress", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_classifier.run(args)


def test_scores_of_interrupted_training_are_forgotten(
    whole, tmp_path, monkeypatch
):
    folder = tmp_path / "out"
    args = dataclasses.replace(whole, output_dir=str(folder), log_every_steps=1)
    for step in (2, 3):
        run_until(step, args, monkeypatch)
        run_classifier.run(dataclasses.replace(args, do_train=False))
        (row,) = results_file.read_results(folder)
        assert row["global_step"] == step
        assert (folder / "summary.json").exists()
        assert not task_heads.find_trained(folder)[-1].endswith("best")
    run_classifier.run(args)
    results = [results_file.read_results(f) for f in (folder, whole.output_dir)]
    assert results[0] == results[1]
    found, wanted = (
        checkpoints.read_checkpoint(f"{f}/model.ckpt-best")
        for f in (folder, whole.output_dir)
    )
    assert found["global_step"] == wanted["global_step"]


@pytest.mark.parametrize("step", [2, 8])
def test_an_interruption_changes_no_result(whole, tmp_path, monkeypatch, step):
    """An interruption may be at a step without a regular checkpoint."""
    args = dataclasses.replace(whole, output_dir=str(tmp_path / "out"))
    run_until(step, args, monkeypatch)
    newest = checkpoints.list_checkpoints(args.output_dir)[-1]
    manager = checkpoints.CheckpointManager(args.output_dir, {})
    assert manager.is_interrupted(newest) == (step % 4 != 0)
    run_classifier.run(args)
    check_equal(tmp_path / "out", whole)


def test_a_finished_run_is_not_trained_again(copy, whole, capfd):
    folder, args = copy
    run_classifier.run(args)
    said = capfd.readouterr().err
    assert f"is already trained for {LAST} steps: nothing to do" in said
    check_equal(folder, whole)


def test_a_checkpoint_that_was_not_due_is_not_evaluated_afterwards(copy):
    folder, args = copy
    (folder / f"model.ckpt-8{checkpoints.MARK}").touch()
    (folder / results_file.RESULTS_FILE).unlink()
    run_classifier.run(dataclasses.replace(args, do_train=False))
    steps = [r["global_step"] for r in results_file.read_results(folder)]
    assert steps == [4, 12]


def test_a_damaged_newest_checkpoint_is_skipped(copy, whole, caplog):
    folder, args = copy
    path = folder / f"model.ckpt-{LAST}{checkpoints.DATA_ENDING}"
    path.write_bytes(path.read_bytes()[:1000])
    run_classifier.run(args)
    assert f"model.ckpt-{LAST} cannot be read" in caplog.text
    check_equal(folder, whole)


def test_the_best_checkpoint_alone_goes_on_under_its_number(copy, whole):
    folder, args = copy
    for prefix in checkpoints.list_checkpoints(folder):
        checkpoints.remove_checkpoint(prefix)
    with pytest.raises(ValueError, match="rename its files to model.ckpt-STEP"):
        run_classifier.run(args)
    best = folder / "model.ckpt-best"
    step = checkpoints.read_checkpoint(best)["global_step"]
    for path in folder.glob("model.ckpt-best.*"):
        path.rename(folder / path.name.replace("best", str(step)))
    run_classifier.run(args)
    for name in (f"model.ckpt-{LAST}", "model.ckpt-best"):
        found, wanted = (
            checkpoints.read_checkpoint(f"{where}/{name}")
            for where in (folder, whole.output_dir)
        )
        for key, value in wanted.items():
            np.testing.assert_array_equal(found[key], value, err_msg=key)


def test_partial_checkpoints_of_a_kill_are_removed(copy, whole):
    folder, args = copy
    for name in (
        "model.ckpt-3" + checkpoints.DATA_ENDING,
        "model.ckpt-5.writing-77.index",
        "model.ckpt-best.writing-77" + checkpoints.DATA_ENDING,
        "model.ckpt-7" + checkpoints.MARK,
    ):
        (folder / name).touch()
    run_classifier.run(args)
    check_equal(folder, whole)


@pytest.mark.parametrize(
    ("cut", "ending"), [(1, b""), (30, b"\0\0\0\0"), (75, b"")]
)
def test_lines_truncated_by_a_full_disk_are_dropped(copy, whole, cut, ending):
    folder, args = copy
    for name in ("eval_results.txt", "metrics.jsonl"):
        path = folder / name
        path.write_bytes(path.read_bytes()[:-cut] + ending)
    # The last evaluation is truncated, so it is repeated.
    assert len(results_file.read_results(folder)) == 2
    run_classifier.run(args)
    assert (folder / "eval_results.txt").read_bytes() == (
        folder.__class__(whole.output_dir) / "eval_results.txt"
    ).read_bytes()
    assert evaluations(folder) == evaluations(
        folder.__class__(whole.output_dir)
    )


def test_an_evaluation_is_written_once(copy, whole):
    """It is repeated only if a kill left one of its two files unwritten."""
    folder, args = copy
    path = folder / "eval_results.txt"
    blocks = path.read_text().split(results_file.HEADER)
    path.write_text(results_file.HEADER.join(blocks[:-1]))
    run_classifier.run(args)
    check_equal(folder, whole)


def test_tensorboard_has_each_event_once(tmp_path):
    for start in (0, 4):
        reporter = reporting.Reporter(tmp_path)
        reporter.start(start, 9, batch_size=1)
        for step in range(start + 1, start + 6):
            reporter.log("train", step, {"loss": 1.0})
        for writer in reporter.writers.values():
            writer.close()
    found = [
        event.step
        for path in (tmp_path / "train").iterdir()
        for event in tf.compat.v1.train.summary_iterator(str(path))
        if event.summary.value
    ]
    assert sorted(found) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_fewer_steps_than_already_trained_are_refused(copy):
    folder, args = copy
    with pytest.raises(ValueError, match="for 12 steps; wanted 10"):
        run_classifier.run(dataclasses.replace(args, train_step=10))


def test_a_model_without_a_run_is_not_overwritten(whole, tmp_path):
    shutil.copytree(whole.init_checkpoint, tmp_path / "model")
    args = dataclasses.replace(whole, output_dir=str(tmp_path / "model"))
    before = {p.name: p.read_bytes() for p in (tmp_path / "model").iterdir()}
    with pytest.raises(ValueError, match="which training would over"):
        run_classifier.run(args)
    after = {p.name: p.read_bytes() for p in (tmp_path / "model").iterdir()}
    assert {name: after[name] for name in before} == before


CHANGES = (
    ("train_batch_size", 4, "train_batch_size: was 8, is 4"),
    ("optimizer", "lamb", 'optimizer.name: was "adamw", is "lamb"'),
    ("random_seed", 1, "random_seed: was 12345, is 1"),
    ("hidden_dropout_prob", 0.5, "config.hidden_dropout_prob"),
)


def test_a_changed_run_needs_accept_changes(copy):
    folder, args = copy
    args = dataclasses.replace(args, train_step=LAST + 2)
    before = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
    for name, value, key in CHANGES:
        changed = dataclasses.replace(args, **{name: value})
        with pytest.raises(ValueError, match=f"{key}.*accept_changes"):
            run_classifier.run(changed)
    after = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
    assert after == before
    changed = {name: value for name, value, _ in CHANGES}
    run_classifier.run(
        dataclasses.replace(args, accept_changes=True, **changed)
    )
    assert (
        checkpoints.step_of(checkpoints.list_checkpoints(folder)[-1])
        == LAST + 2
    )


def test_settings_are_recorded_with_what_they_trained(copy, monkeypatch):
    folder, args = copy
    args = dataclasses.replace(args, accept_changes=True, optimizer="lamb")
    names = "run.json", "flags.json", "head.json"
    before = [(folder / name).read_bytes() for name in names]
    run_classifier.run(args)  # Nothing to do.
    assert [(folder / name).read_bytes() for name in names] == before
    longer = dataclasses.replace(args, train_step=LAST + 2)

    def fail(*_):
        raise MemoryError

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(loop.Steps, "run", fail)
        run_classifier.run(longer)
    assert [(folder / name).read_bytes() for name in names] == before
    run_classifier.run(longer)
    made_of = json.loads((folder / "run.json").read_text())["made_of"]
    assert made_of["optimizer"]["name"] == "lamb"
    assert json.loads((folder / "flags.json").read_text())["accept_changes"]


def test_data_is_recorded_before_its_first_score(copy, tmp_path, monkeypatch):
    folder, args = copy
    args = dataclasses.replace(args, do_train=False, do_predict=False)
    (folder / results_file.RESULTS_FILE).unlink()
    # Without results, the data may be other than before.
    shutil.copytree(args.data_dir, tmp_path / "data")
    write_table(tmp_path / "data/SST-2/dev.tsv", make_rows(21, seed=4))
    other = dataclasses.replace(args, data_dir=str(tmp_path / "data"))
    write, recorded = results_file.write_blocks, []

    def look(*args):
        write(*args)
        made_of = json.loads((folder / "run.json").read_text())["made_of"]
        recorded.append(made_of["data"]["dev"])

    with monkeypatch.context() as patch:
        patch.setattr(results_file, "write_blocks", look)
        run_classifier.run(other)
    assert len(recorded) > 1 and recorded[0] == recorded[-1]
    with pytest.raises(ValueError, match=r"data\.dev\.0\.sha256.*refused"):
        run_classifier.run(args)
    # Curves have no scores of before.
    assert len(evaluations(folder)) == len(recorded)
    # Nor if the best checkpoint alone is scored.
    (folder / results_file.RESULTS_FILE).unlink()
    for path in folder.glob("model.ckpt-[0-9]*"):
        path.unlink()
    run_classifier.run(args)
    assert [row["step"] for row in evaluations(folder)] == [0]


def test_other_labels_or_dev_data_are_refused(copy, tmp_path):
    folder, args = copy
    shutil.copytree(args.data_dir, tmp_path / "data")
    other = dataclasses.replace(args, data_dir=str(tmp_path / "data"))
    with pytest.raises(ValueError, match=r"data\.dev\.0\.tokens.*refused"):
        run_classifier.run(dataclasses.replace(other, max_seq_length=15))
    write_table(tmp_path / "data/SST-2/dev.tsv", make_rows(21, seed=4))
    with pytest.raises(ValueError, match=r"data\.dev\.0\.sha256.*refused"):
        run_classifier.run(other)
    description = {
        "name": "sst-2",
        "train": "SST-2/train.tsv",
        "dev": "SST-2/dev.tsv",
        "test": "SST-2/test.tsv",
        "test_label": None,
        "text": "sentence",
        "label": "label",
        "labels": ["1", "0"],
    }
    (tmp_path / "task.json").write_text(json.dumps(description))
    other = dataclasses.replace(
        args,
        data_dir=args.data_dir,
        task_name=None,
        task_config=str(tmp_path / "task.json"),
        do_predict=False,
    )
    with pytest.raises(ValueError, match=r"task\.labels: was \[\"0\", \"1\"\]"):
        run_classifier.run(other)


def test_a_larger_batch_resumes_at_the_same_example(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    tiny_records.write(tmp_path / "train.tfrecord", 40)
    args = PretrainingFlags(
        albert_config_file=str(tmp_path / "config.json"),
        input_file=str(tmp_path / "train.tfrecord"),
        output_dir=str(tmp_path / "out"),
        train_batch_size=4,
        num_train_steps=5,
        num_warmup_steps=1,
    )
    run_pretraining.run(args)
    starts = []
    build_dataset = opening.reading.build_dataset

    def build(files, features, batch_size, order=None, **kwargs):
        if order:
            starts.append(order.start)
        return build_dataset(files, features, batch_size, order, **kwargs)

    monkeypatch.setattr(opening.reading, "build_dataset", build)
    shared, share = [], workers.Workers.share
    monkeypatch.setattr(
        workers.Workers,
        "share",
        lambda self, value: shared.append(value) or share(self, value),
    )
    for num_steps, batch_size in ((7, 6), (9, 4)):
        args = dataclasses.replace(
            args,
            num_train_steps=num_steps,
            train_batch_size=batch_size,
            accept_changes=True,
        )
        run_pretraining.run(args)
    assert starts == [20, 20 + 12]
    # Only the chief of several workers has the manifest.
    assert {*starts} <= {*shared}
    stored = json.loads((tmp_path / "out" / "run.json").read_text())
    assert stored["batches"] == [[0, 4], [5, 6], [7, 4]]
    assert manifest.FORMAT == stored["format"]


def test_a_metric_may_be_absent_from_later_evaluations(tmp_path):
    """The metrics of the sentence loss are absent once its weight is 0."""
    scores = iter(
        [{"a": 0.9, "s": 9.0}, {"a": 0.1, "s": 9.0}, {"a": 0.5}, {"a": 0.4}]
    )
    kept = []
    evaluator = evaluation.Evaluator(
        lambda: next(scores),
        manager=types.SimpleNamespace(
            folder=str(tmp_path),
            keep_best=kept.append,
            prefix=str,
            is_interrupted=lambda prefix: False,
        ),
        reporter=types.SimpleNamespace(
            log=lambda *_: None, keep_evaluations=lambda _: None
        ),
        best_metric="a",
    )
    evaluator.evaluate(0)  # Initial weights: better, but no checkpoint.
    for step in (100, 200, 300):
        evaluator.evaluate(step, f"ckpt-{step}")
    assert kept == ["ckpt-100", "ckpt-200"]
    assert evaluator.known("a") == [0.9, 0.1, 0.5, 0.4]
    assert not evaluator.is_missing(300)


@pytest.mark.parametrize(
    ("scores", "removed", "wanted"),
    [
        ((0.2, 0.5, 0.3, 0.9), (4,), 2),
        ((0.2, 0.5, 0.3, 0.9), (3, 4), 2),
        ((0.2, 0.5, 0.3, 0.9), (2, 4), 3),
        ((0.2, 0.9, 0.3, 0.5), (3, 4), 2),
        ((0.2, 0.9, 0.3, 0.5), (1, 2, 3, 4), None),
    ],
)
def test_the_best_checkpoint_is_of_a_result_that_is_kept(
    tmp_path, scores, removed, wanted
):
    step = tf.Variable(0, dtype=tf.int64)
    manager = checkpoints.CheckpointManager(tmp_path, {checkpoints.STEP: step})
    best_steps, dropped, values = [], [], iter(scores)
    evaluator = evaluation.Evaluator(
        lambda: {"a": next(values)},
        manager=manager,
        reporter=types.SimpleNamespace(
            log=lambda *_: None, keep_evaluations=dropped.append
        ),
        best_metric="a",
        on_best=best_steps.append,
    )
    for number in range(1, 5):
        step.assign(number)
        evaluator.evaluate(number, manager.save())
    before = best_steps[-1]
    for number in removed:
        checkpoints.remove_checkpoint(manager.prefix(number))
    left = checkpoints.list_checkpoints(tmp_path)
    evaluator.forget_after(checkpoints.step_of(left[-1]) if left else 0)
    path = manager.prefix("best")
    best = task_heads.find_trained(tmp_path)[len(left) :]
    assert best == ([path] if wanted else [])
    if wanted:
        assert checkpoints.read_checkpoint(path)[checkpoints.STEP] == wanted
    assert best_steps[-1] == (before if before == wanted else None)
    assert dropped[-1] == {r["global_step"] for r in evaluator.results()}
    # What cannot be had any more is no rival of later checkpoints.
    values = iter([0.35])
    step.assign(5)
    evaluator.evaluate(5, manager.save())
    is_best = not wanted or scores[wanted - 1] < 0.35
    found = checkpoints.read_checkpoint(path)[checkpoints.STEP]
    assert found == (5 if is_best else wanted)


def test_a_best_checkpoint_without_results_is_not_replaced(tmp_path):
    """They were removed, to have all scored again, or were not copied."""
    step = tf.Variable(0, dtype=tf.int64)
    manager = checkpoints.CheckpointManager(tmp_path, {checkpoints.STEP: step})
    scores = {1: 0.2, 2: 0.9, 3: 0.3, 4: 0.5}
    evaluator = evaluation.Evaluator(
        lambda: {"a": scores[int(step.numpy())]},
        manager=manager,
        reporter=reporting.Reporter(tmp_path),
        best_metric="a",
    )
    for number in scores:
        step.assign(number)
        evaluator.evaluate(number, manager.save())
    for number in (1, 2):
        checkpoints.remove_checkpoint(manager.prefix(number))
    # As the release writes them.
    (tmp_path / results_file.RESULTS_FILE).write_text("a = 0.5\n")
    with pytest.raises(ValueError, match="so training would replace it"):
        evaluator.check_best(4)
    evaluator.evaluate_folder()
    evaluator.check_best(4)
    kept = tmp_path / f"{results_file.RESULTS_FILE}.old"
    assert kept.read_text() == "a = 0.5\n"
    found = checkpoints.read_checkpoint(manager.prefix("best"))
    assert found[checkpoints.STEP] == 2
    assert {r["global_step"] for r in evaluator.results()} == {2, 3, 4}


def test_a_damaged_checkpoint_does_not_end_an_evaluation(tmp_path):
    step = tf.Variable(0, dtype=tf.int64)
    manager = checkpoints.CheckpointManager(tmp_path, {checkpoints.STEP: step})
    output = io.StringIO()
    evaluator = evaluation.Evaluator(
        lambda: {"a": 0.5},
        manager=manager,
        reporter=reporting.Reporter(tmp_path, output),
        best_metric="a",
    )

    def damage(number):
        path = pathlib.Path(
            f"{manager.prefix(number)}{checkpoints.DATA_ENDING}"
        )
        path.write_bytes(b"cut")

    for number in (1, 2, 3):
        step.assign(number)
        manager.save()
    damage(2)
    evaluator.evaluate_folder()
    assert evaluator.known(checkpoints.STEP) == [1, 3]
    (said,) = output.getvalue().split("WARNING: ")[1:]
    assert said.startswith(manager.prefix(2)) and "It is not scored." in said
    # If there is no other, it is an error.
    (tmp_path / results_file.RESULTS_FILE).unlink()
    checkpoints.remove_checkpoint(manager.prefix("best"))
    damage(1)
    damage(3)
    with pytest.raises(checkpoints.DamagedCheckpoint, match="model.ckpt-3"):
        evaluator.evaluate_folder()


def test_a_newer_checkpoint_of_pretraining_is_preferred_if_it_is_unscored(
    tmp_path,
):
    """Pretraining has no head.json, in which scores are noted."""
    run = session.Session(
        tmp_path,
        lambda dtype: heads.AlbertForPreTraining(tiny.CONFIG, dtype=dtype),
        Settings(compute_dtype="float32"),
        Schedule(learning_rate=1e-3, num_train_steps=9),
        made_of={},
    )
    for step in (1, 2, 3):
        run.optimizer.step.assign(step)
        prefix = run.manager.save()
        if step == 1:
            run.manager.keep_best(prefix)
    blocks = [f"masked_lm_accuracy = 0.5\nglobal_step = {i}\n" for i in (1, 2)]
    results_file.write_blocks(tmp_path, blocks)
    assert run.restore_best() == run.manager.prefix(3)
    checkpoints.remove_checkpoint(run.manager.prefix(3))
    assert run.restore_best() == run.manager.prefix("best")


def test_a_finished_run_does_not_need_its_start(copy, tmp_path):
    _, args = copy
    gone = dataclasses.replace(args, init_checkpoint=str(tmp_path / "gone"))
    run_classifier.run(gone)
    with pytest.raises(FileNotFoundError, match="gone"):
        run_classifier.run(
            dataclasses.replace(gone, output_dir=str(tmp_path / "fresh"))
        )


def test_predictions_of_a_discarded_checkpoint_are_removed(copy):
    folder, args = copy
    path = folder / results_file.RESULTS_FILE
    *blocks, last = path.read_text().split(results_file.HEADER)
    last = re.sub("eval_accuracy = .*", "eval_accuracy = 1.5", last)
    path.write_text(results_file.HEADER.join([*blocks, last]))
    checkpoints.remove_checkpoint(str(folder / f"model.ckpt-{LAST}"))
    run_classifier.run(dataclasses.replace(args, train_step=8))
    rows = results_file.read_results(folder)
    wanted = task_heads.best_row(rows, "eval_accuracy")
    found = checkpoints.read_checkpoint(folder / "model.ckpt-best")
    assert found[checkpoints.STEP] == wanted[checkpoints.STEP]
    assert not (folder / "dev_predictions.jsonl").exists()


def test_a_second_evaluation_of_a_step_replaces_the_first(copy):
    folder, args = copy
    rows = results_file.read_results(folder)
    wanted = task_heads.best_row(rows, "eval_accuracy")
    other = 12 if wanted["global_step"] == 4 else 4
    wanted["global_step"] = 0
    args = dataclasses.replace(
        args,
        do_train=False,
        do_predict=False,
        init_checkpoint=str(folder),
        output_dir=f"{folder}-scores",
    )
    for _ in range(2):
        run_classifier.run(args)
        (found,) = results_file.read_results(args.output_dir)
        assert found == pytest.approx(wanted, rel=1e-5)
    path = f"{folder}/model.ckpt-{other}"
    args = dataclasses.replace(args, init_checkpoint=path)
    predicting = dataclasses.replace(args, do_eval=False, do_predict=True)
    for other in (args, predicting):
        with pytest.raises(ValueError, match="scores are of other weights"):
            run_classifier.run(other)


def test_a_run_may_end_where_it_was_interrupted(whole, tmp_path):
    args = dataclasses.replace(
        whole,
        output_dir=str(tmp_path / "out"),
        train_step=3,
        do_predict=False,
    )
    run_classifier.run(args)
    results = results_file.read_results(args.output_dir)
    # The state after an interruption.
    mark = tmp_path / "out" / f"model.ckpt-3{checkpoints.MARK}"
    mark.touch()
    for path in (tmp_path / "out").glob("model.ckpt-best*"):
        path.unlink()
    (tmp_path / "out" / results_file.RESULTS_FILE).unlink()
    run_classifier.run(dataclasses.replace(args, do_train=False))
    run_classifier.run(args)
    assert results_file.read_results(args.output_dir) == results
    assert not mark.exists()
    assert task_heads.find_trained(args.output_dir)[-1].endswith("-best")


def begins_from(folder):
    values = json.loads((folder / manifest.MANIFEST_FILE).read_text())
    return values["made_of"]["begins_from"]


def test_other_initial_weights_are_detected_by_prefix_too(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    tiny_records.write(tmp_path / "train.tfrecord", 40)
    args = PretrainingFlags(
        albert_config_file=str(tmp_path / "config.json"),
        input_file=str(tmp_path / "train.tfrecord"),
        output_dir=str(tmp_path / "first"),
        train_batch_size=4,
        num_train_steps=2,
        num_warmup_steps=1,
        learning_rate=0.01,
        save_checkpoints_steps=1,
    )
    run_pretraining.run(args)
    begun, other = (str(tmp_path / f"first/model.ckpt-{i}") for i in (1, 2))
    args = dataclasses.replace(
        args, output_dir=str(tmp_path / "second"), init_checkpoint=begun
    )
    run_pretraining.run(args)
    with pytest.raises(ValueError, match=r"begins_from\.sha256"):
        run_pretraining.run(dataclasses.replace(args, init_checkpoint=other))
    # What is accepted is not read, so the run still begins where it did.
    stored = begins_from(tmp_path / "second")
    run_pretraining.run(
        dataclasses.replace(args, init_checkpoint=other, accept_changes=True)
    )
    assert begins_from(tmp_path / "second") == stored
    assert begins_from(tmp_path / "first") == {"source": "random weights"}
    late = dataclasses.replace(args, output_dir=str(tmp_path / "first"))
    with pytest.raises(ValueError, match=r"begins_from\.s.*it is ignored"):
        run_pretraining.run(late)
    # A missing checkpoint cannot be compared, and is not needed.
    gone = dataclasses.replace(args, init_checkpoint=str(tmp_path / "gone"))
    run_pretraining.run(gone)
