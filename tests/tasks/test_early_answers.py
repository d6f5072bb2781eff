"""Classifiers that answer after as few layers as a text needs."""

import dataclasses
import json
import pathlib
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import Classification, FineTuning, Recipe, read_pretrained
from albert_tf.commands.run_classifier import ClassifierFlags
from albert_tf.data import submissions
from albert_tf.export import saved_models
from albert_tf.metrics import exits as exit_metrics
from albert_tf.model import exits
from albert_tf.programs import finetuning
from albert_tf.reports import report
from albert_tf.tasks.recipes import ExitSettings
from albert_tf.training import manifest
from albert_tf.weights import task_heads
from albert_tf.weights.pretrained import adapt
from tests import tiny

LAYERS = 3
TEXTS = [f"w{i % 5} w{i % 7} w{i % 3}" for i in range(24)]
LABELS = [str(i % 5 > 1) for i in range(24)]
RECIPE = Recipe(
    train_step=40,
    train_batch_size=8,
    learning_rate=0.003,
    save_checkpoints_steps=20,
    compute_dtype="float32",
)


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    config = dataclasses.replace(
        tiny.CONFIG,
        num_hidden_layers=LAYERS,
        initializer_range=0.6,
        hidden_dropout_prob=0,
    )
    tf.keras.utils.set_random_seed(1)
    return read_pretrained(
        tiny.write_model(tmp_path_factory.mktemp("deep"), config)
    )


def build(folder, start, recipe=RECIPE, train=True, strategy=None, **settings):
    task = Classification.from_texts(
        start.tokenizer,
        TEXTS,
        LABELS,
        dev=(TEXTS, LABELS),
        label_names=["False", "True"],
        max_seq_length=16,
    )
    data = task.data if train else task.data._replace(train=None)
    task = Classification(
        task.task,
        data,
        max_seq_length=16,
        exits=ExitSettings(**settings),
    )
    return FineTuning(folder, task, start, recipe, strategy=strategy)


@pytest.fixture(scope="module")
def trained(deep, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out")
    tuning = build(folder, deep, exit_loss=True, exit_tolerance=5.0)
    tuning.train()
    tuning.restore_best()
    return tuning


def predict(tuning, **kwargs):
    return tuning.predict(tuning.task.data.dev[""].examples, **kwargs)


def test_the_threshold_is_chosen_and_noted(trained):
    rows = trained.evaluator.results()
    best = task_heads.best_row(rows, "eval_accuracy")
    assert best["eval_accuracy"] > 0.65  # 0.58 for a constant.
    assert 1 <= best["exit_num_layers"] < LAYERS
    assert best["exit_eval_accuracy"] >= best["eval_accuracy"] - 0.05
    threshold = best["exit_threshold"]
    assert trained.find_threshold() == threshold
    outputs = predict(trained, exit_threshold=threshold)
    assert outputs["num_layers"].mean() == best["exit_num_layers"]
    hits = outputs["logits"].argmax(axis=1) == (np.array(LABELS) == "True")
    assert hits.mean() == best["exit_eval_accuracy"]
    with open(f"{trained.folder}/{task_heads.HEAD_FILE}") as file:
        scored = json.load(file)["scored"]
    assert scored[str(int(best["global_step"]))] == threshold
    assert read_pretrained(trained.folder).head.threshold == threshold
    with open(f"{trained.folder}/{submissions.EXITS_FILE}") as file:
        rows = {row["threshold"]: row for row in json.load(file)["exits"]}
    assert rows[0]["score"] == best["eval_accuracy"]
    assert rows[0]["num_layers"] == LAYERS
    assert rows[threshold]["score"] == best["exit_eval_accuracy"]
    page = report.build_report(report.read_run(trained.folder))
    assert "mean number of layers" in page


def test_all_layers_compute_what_they_did(trained):
    wanted = predict(trained)["logits"]
    for outputs in (
        predict(trained, exit_threshold=0.0),
        predict(trained, exit_threshold=1e-9),
    ):
        np.testing.assert_array_equal(outputs["logits"], wanted)
        np.testing.assert_array_equal(outputs["layer_logits"][:, -1], wanted)
        assert set(outputs["num_layers"]) == {LAYERS}


def test_texts_are_predicted_so(trained, monkeypatch):
    said = []
    monkeypatch.setattr(trained.reporter, "say", said.append)
    answers = trained.task.predict(trained, TEXTS)
    assert f"of {LAYERS} layers on average (exit_threshold=" in said[-1]
    threshold = trained.find_threshold()
    logits = predict(trained, exit_threshold=threshold)["logits"]
    names = np.array(["False", "True"])[logits.argmax(axis=1)]
    assert answers == [*names]


def test_the_model_goes_on_doing_so_elsewhere(trained, tmp_path, monkeypatch):
    start = read_pretrained(trained.folder)
    other = build(tmp_path / "other", start, train=False, exit_tolerance=0.0)
    assert other.evaluate()[0]["exit_threshold"] == trained.find_threshold()
    anew = build(
        tmp_path / "anew",
        start,
        train=False,
        exit_loss=True,
        exit_tolerance=100.0,
    )
    assert anew.evaluate()[0]["exit_num_layers"] == 1
    texts = other.task.predict(other, TEXTS)
    assert texts == trained.task.predict(trained, TEXTS)
    full = build(tmp_path / "full", start, train=False, exit_threshold=0)
    assert full.evaluate()[0]["exit_num_layers"] == LAYERS
    said = []
    monkeypatch.setattr(full.reporter, "say", said.append)
    full.task.predict(full, TEXTS)
    assert not said


def test_what_a_removed_run_was_trained_with_does_not_count(
    trained, deep, tmp_path
):
    shutil.copy(f"{trained.folder}/{manifest.MANIFEST_FILE}", tmp_path)
    assert manifest.read_setting(tmp_path, "exits")["exit_loss"]
    plain = build(tmp_path, deep, train=False)
    plain.source = "somewhere"
    assert plain.task.choose_exit(plain) is None
    assert plain.task.score(plain).keys() == {"eval_loss", "eval_accuracy"}


def test_an_export_does_so_too(trained, tmp_path):
    layer_logits = predict(trained, exit_threshold=0.0)["layer_logits"]
    # Some rows are sure after the first layer, others never.
    threshold = float(np.quantile(exit_metrics.uncertainty(layer_logits), 0.3))
    start = read_pretrained(trained.folder)
    given = build(tmp_path / "a", start, train=False, exit_threshold=threshold)
    given.restore_best()
    path = given.task.export(given, tmp_path / "b")
    loaded = saved_models.load_saved_model(path)
    wanted = predict(given, exit_threshold=threshold)
    assert len(set(wanted["num_layers"])) > 1
    examples = given.task.data.dev[""].examples
    ids = examples.ids.reshape([len(TEXTS), -1])  # All texts are as long.
    features = dict.fromkeys(("input_mask", "segment_ids"), tf.ones_like(ids))
    features["segment_ids"] *= 0
    for rows in (slice(None), slice(3, 4)):
        got = loaded.signatures["ids"](
            input_ids=tf.constant(ids[rows]),
            **{name: value[rows] for name, value in features.items()},
        )
        np.testing.assert_array_equal(
            got["num_layers"], wanted["num_layers"][rows]
        )
        np.testing.assert_allclose(
            got["logits"], wanted["logits"][rows], atol=1e-5
        )
    assert read_pretrained(path).head.threshold == threshold


def test_two_replicas_answer_alike(trained, tmp_path):
    two = build(
        tmp_path,
        read_pretrained(trained.folder),
        train=False,
        strategy=tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
        exit_tolerance=5.0,
    )
    assert two.evaluate()[0]["exit_threshold"] == trained.find_threshold()
    for threshold in (0.0, trained.find_threshold()):
        got = predict(two, exit_threshold=threshold)
        wanted = predict(trained, exit_threshold=threshold)
        np.testing.assert_array_equal(got["num_layers"], wanted["num_layers"])
        np.testing.assert_allclose(got["logits"], wanted["logits"], atol=1e-5)


def test_a_run_goes_on_as_it_was_trained(trained, deep):
    with pytest.raises(ValueError, match="exits.exit_loss: was true, is false"):
        build(trained.folder, deep)


def test_a_run_that_was_not_scored_is_scored_later(trained, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(trained.folder, folder)
    (folder / "eval_results.txt").unlink()
    path = folder / task_heads.HEAD_FILE
    described = json.loads(path.read_text())
    path.write_text(json.dumps({**described, "scored": {}}))
    later = build(folder, trained.start, train=False, exit_tolerance=5.0)
    assert later.task.choose_exit(later) is None
    assert later.evaluate() == trained.evaluator.results()
    assert json.loads(path.read_text()) == described


def test_notes_are_of_the_best_checkpoint(trained, tmp_path):
    """Also if that one was trained and scored without answers of few layers."""
    folder = tmp_path / "run"
    shutil.copytree(trained.folder, folder)
    recipe = dataclasses.replace(RECIPE, train_step=41, accept_changes=True)
    # As if it had been worse.
    results = folder / "eval_results.txt"
    content = re.sub(
        r"eval_accuracy = .*", "eval_accuracy = 0", results.read_text()
    )
    results.write_text(content)
    tuning = build(folder, trained.start, recipe)
    tuning.train()
    assert tuning.restore_best().endswith("best")
    assert len(tuning.evaluator.results()) == 3
    assert tuning.find_threshold() is None
    assert not (folder / submissions.EXITS_FILE).exists()


def test_without_it_nothing_changes_but_it_can_be_asked(deep, tmp_path):
    brief = dataclasses.replace(RECIPE, train_step=2)
    tuning = build(tmp_path / "a", deep, brief)
    tuning.train()
    (plain,) = tuning.evaluator.results()
    assert not any("exit" in name for name in plain)
    assert tuning.find_threshold() is None
    assert tuning.task.choose_exit(tuning) is None
    start = read_pretrained(tuning.folder)
    asked = build(tmp_path / "b", start, train=False, exit_threshold=0.5)
    (row,) = asked.evaluate()
    assert row["exit_threshold"] == 0.5
    assert row["eval_accuracy"] == plain["eval_accuracy"]


def test_each_model_of_a_task_has_its_own_threshold(trained, tmp_path):
    start = read_pretrained(trained.folder)
    task = build(tmp_path / "task", start, train=False).task
    for name, threshold in (("a", 0.25), ("b", 0.75), ("c", None)):
        head = dataclasses.replace(start.head, threshold=threshold)
        model = dataclasses.replace(start, head=head)
        tuning = FineTuning(tmp_path / name, task, model, RECIPE)
        (row,) = tuning.evaluate()
        assert row.get("exit_threshold") == threshold
        assert task.choose_exit(tuning) == threshold
    assert task.head.threshold is None


def test_other_layers_have_no_threshold(trained):
    start = read_pretrained(trained.folder)
    assert start.head.threshold is not None
    config = dataclasses.replace(start.config, num_hidden_layers=2 * LAYERS)
    deeper = adapt(start, config)
    assert deeper.head.threshold is None
    assert "was chosen for other layers" in deeper.remarks[-1]
    path = pathlib.Path(trained.folder, "deeper.json")
    path.write_text(config.to_json_string())
    args = ClassifierFlags(
        task_name="sst-2",
        data_dir="data",
        output_dir="new",
        do_predict=True,
        init_checkpoint=str(trained.folder),
        albert_config_file=str(path),
    )
    start = finetuning.read_start(args)
    assert start.head.threshold is start.model.head.threshold is None


def test_all_layers_may_be_asked_of_any_objective(deep, tmp_path):
    texts, numbers = ["w1", "w2", "w3"], [0.5, 1.5, 0.25]
    task = Classification.from_texts(
        deep.tokenizer,
        texts,
        numbers,
        dev=(texts, numbers),
        objective="regression",
        max_seq_length=16,
        exits=ExitSettings(exit_threshold=0),
    )
    recipe = dataclasses.replace(RECIPE, train_step=1, train_batch_size=2)
    tuning = FineTuning(tmp_path, task, deep, recipe)
    tuning.train()
    (row,) = tuning.evaluator.results()
    assert not any("exit" in name for name in row)
    exits.check_threshold(0, "regression")
    for threshold, objective in ((0.5, "multi_label"), (50, "classes")):
        with pytest.raises(ValueError, match=f"exit_threshold={threshold}"):
            exits.check_threshold(threshold, objective)


def test_contradictions_are_refused(deep):
    with pytest.raises(ValueError, match="for 'classes' alone"):
        Classification.from_texts(
            deep.tokenizer,
            ["w1", "w2"],
            [0.5, 1.5],
            objective="regression",
            exits=ExitSettings(exit_loss=True),
        )
    for value in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match="exit_threshold"):
            ExitSettings(exit_threshold=value)
    flags = {"data_dir": "d", "output_dir": "o", "task_name": "mrpc"}
    with pytest.raises(ValueError, match="give one of them"):
        ClassifierFlags(
            **flags, do_train=True, exit_loss=True, remat=True
        ).check()
