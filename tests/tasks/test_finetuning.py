"""Fine-tuning with the library alone, as in docs/library.md."""

import dataclasses
import inspect
import json
import os
import pathlib
import random
import re

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import (
    AlbertConfig,
    Classification,
    FineTuning,
    Recipe,
    named_weights,
    ownership,
)
from albert_tf.commands.run_classifier import ClassifierFlags
from albert_tf.data.examples import pad_examples
from albert_tf.export import saved_models
from albert_tf.model import execution, heads, onednn, operations
from albert_tf.programs import run_classifier
from albert_tf.reports import report
from albert_tf.tasks import classification
from albert_tf.training import distribution, evaluation, loop
from albert_tf.weights import checkpoints, pretrained, task_heads
from tests import runs
from tests.conftest import ROOT
from tests.programs.classifier_runs import make_rows


def write_reviews(folder):
    folder.mkdir()
    for name, num_rows in (("train", 40), ("dev", 11)):
        lines = [f"{text}\t{label}" for text, label in make_rows(num_rows, 1)]
        content = "\n".join(["text\tlabel", *lines]) + "\n"
        (folder / f"{name}.tsv").write_text(content)


def test_the_readme_gives_the_weights_of_the_program(
    model, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    write_reviews(tmp_path / "reviews")
    text = (ROOT / "docs/library.md").read_text(encoding="utf-8")
    text = text.partition("## Fine-tuning")[2]
    block = re.search(r"```python\n(.*?)```", text, re.S).group(1)
    assert len([line for line in block.splitlines() if line]) <= 15
    block = block.replace('"albert_base_v2"', f'"{model}"')
    # The tiny model has few positions.
    exec(block.replace("dev=dev)", "dev=dev, max_seq_length=16)"), {})
    scores, labels, served = capsys.readouterr().out.splitlines()
    assert scores.endswith("model.ckpt-best")
    assert {*eval(labels)} <= {"0", "1"} and len(eval(labels)) == 2
    names = {"name": "texts", "text": "text", "label": "label"}
    names |= {"train": "train.tsv", "dev": "dev.tsv"}
    (tmp_path / "task.json").write_text(json.dumps(names))
    run_classifier.run(
        ClassifierFlags(
            task_config="task.json",
            data_dir="reviews",
            init_checkpoint=str(model),
            output_dir="program",
            do_train=True,
            do_eval=True,
            max_seq_length=16,
            train_step=20,
            train_batch_size=8,
            save_checkpoints_steps=10,
        )
    )
    runs.check_equal(tmp_path / "out", tmp_path / "program")
    assert (tmp_path / served / "saved_model.pb").exists()
    # What a run scored is of no use to an export.
    heads = [
        json.loads((folder / "head.json").read_text())
        for folder in (tmp_path / "out", tmp_path / served / "assets")
    ]
    assert [{*head} for head in heads] == [
        {"kind", "labels", "lengths", "has_pairs", "scored"},
        {"kind", "labels", "lengths", "has_pairs"},
    ]


def test_a_task_of_ones_own_learns_and_resumes(model, tmp_path):
    text = (ROOT / "docs/library.md").read_text(encoding="utf-8")
    text = text.partition("## A task of your own")[2]
    block = re.search(r"```python\n(.*?)```", text, re.S).group(1)
    assert len([line for line in block.splitlines() if line]) <= 40
    values = {}
    exec(block, values)
    start = pretrained.read_pretrained(model)
    texts = [text for text, _ in make_rows(40, 1)]
    ratings = np.array([[len(t) / 20, "w1" in t] for t in texts], np.float32)
    recipe = Recipe(
        train_step=20,
        train_batch_size=8,
        save_checkpoints_steps=10,
        learning_rate=1e-3,
    )
    task = values["Rating"](start.tokenizer, texts, ratings)
    for folder in ("out", "again"):
        tuning = FineTuning(tmp_path / folder, task, start, recipe)
        tuning.train()
        if folder == "again":  # As if it had been stopped.
            (tmp_path / folder / "model.ckpt-20.index").unlink()
            FineTuning(tmp_path / folder, task, start, recipe).train()
    runs.check_equal(tmp_path / "again", tmp_path / "out")
    first, last = tuning.evaluator.results()
    assert last["r2"] > first["r2"]
    page = report.build_report(report.read_run(tmp_path / "out"))
    assert "A task of your own, albert_tf" in page
    assert "best (step 20)" in page and "selected by r2" in page
    assert "dev_predictions.jsonl has no rows." in page


def test_defaults_are_those_of_the_program():
    program = {
        field.name: field.default
        for field in dataclasses.fields(ClassifierFlags)
    }
    for field in dataclasses.fields(Recipe):
        assert field.default == program[field.name], field.name
    texts = inspect.signature(Classification.from_texts).parameters
    # The program's is the same for a model with enough positions.
    assert program["max_seq_length"] is None
    usual = inspect.signature(AlbertConfig.choose_length).parameters["usual"]
    assert texts["max_seq_length"].default == usual.default


@pytest.mark.parametrize(
    "kwargs, num_examples, wanted",
    [
        ({"train_step": 70, "warmup_step": 9}, 100, (70, 9)),
        ({"train_step": 70, "warmup_proportion": 0.1}, 100, (70, 7)),
        # 100 / 32 * 2.2 is 6.875, and 0.45 of 6 is 2.7.
        ({"num_train_epochs": 2.2}, 100, (6, 0)),
        ({"num_train_epochs": 2.2, "warmup_proportion": 0.45}, 100, (6, 2)),
        ({"num_train_epochs": 0.99, "train_batch_size": 1}, 3, (2, 0)),
        # Partial batches of several epochs add up.
        ({"num_train_epochs": 3, "train_batch_size": 8}, 15, (5, 0)),
    ],
)
def test_steps_are_counted_as_the_release_does(kwargs, num_examples, wanted):
    assert Recipe(**kwargs).schedule(num_examples)[1:3] == wanted


@pytest.mark.parametrize(
    "num_steps, is_scored, given, interval",
    [
        (562, True, None, 57),
        (3, True, None, 1),
        (9_991, True, None, 1000),
        (500_000, True, None, 1000),
        (562, False, None, 1000),
        (562, True, 1000, 1000),
        (562, False, 7, 7),
    ],
)
def test_a_training_is_scored_ten_times(num_steps, is_scored, given, interval):
    recipe = Recipe(save_checkpoints_steps=given)
    assert recipe.find_interval(num_steps, is_scored) == interval


@pytest.mark.parametrize(
    "kwargs, message",
    [
        ({"num_train_epochs": 1}, "0, including 0 warmup steps, for 31 exam"),
        ({"train_step": 5, "warmup_step": 5}, "5, including 5 warmup steps"),
    ],
)
def test_too_few_steps_are_refused(kwargs, message):
    with pytest.raises(ValueError, match=f"Too few training steps: {message}"):
        Recipe(**kwargs).schedule(31)


def test_the_recipe_reaches_the_loop(model, tmp_path, monkeypatch):
    sessions = []
    monkeypatch.setattr(
        loop, "train", lambda session, *_, **__: sessions.append(session)
    )
    start = pretrained.read_pretrained(model)
    task = Classification.from_texts(
        start.tokenizer, TEXTS, LABELS, max_seq_length=16
    )
    recipe = Recipe(keep_checkpoint_max=13, remat=True, train_step=19)
    FineTuning(tmp_path / "out", task, start, recipe).train()
    (session,) = sessions
    assert session.settings is recipe
    assert session.num_train_steps == 19
    assert session.manager.max_to_keep == 13


def build(model, folder, texts, labels, *, start=None, **kwargs):
    start = start or pretrained.read_pretrained(model)
    task = Classification.from_texts(
        start.tokenizer, texts, labels, **{"max_seq_length": 16, **kwargs}
    )
    return FineTuning(folder, task, start, Recipe(train_step=2))


TEXTS, LABELS = ["w1 w2", "w3", "w4 w5"], ["a", "b", "a"]


def test_labels_are_those_of_the_texts(model, tmp_path):
    tuning = build(model, tmp_path, TEXTS, LABELS)
    assert tuning.task.task.labels == ("a", "b")
    label_ids = tuning.task.train.arrays["label_ids"]
    np.testing.assert_array_equal(label_ids, [0, 1, 0])
    pairs = [(text, "w7") for text in TEXTS]
    task = build(model, tmp_path / "pairs", pairs, LABELS).task
    assert task.has_pairs and not tuning.task.has_pairs
    assert list(task.train.lengths - task.train.first_lengths) == [2, 2, 2]


def test_the_generators_of_the_caller_go_on(model, tmp_path):
    np.random.seed(7)
    random.seed(7)
    wanted = np.random.rand(), random.random()
    np.random.seed(7)
    random.seed(7)
    build(model, tmp_path, TEXTS, LABELS)
    assert (np.random.rand(), random.random()) == wanted


def test_any_pair_makes_a_task_of_pairs(model, tmp_path):
    texts = ["w1", ("w2", "w3"), "w4"]
    assert build(model, tmp_path, texts, LABELS).task.has_pairs


def test_outputs_take_the_order_of_the_tasks_labels(model, tmp_path, capfd):
    """As for a model of Hugging Face with labels in another order."""
    start = pretrained.read_pretrained(model)
    values = {
        **start.values,
        "output_weights": np.zeros([2, start.config.hidden_size], np.float32),
        "output_bias": np.float32([3, -3]),
    }
    found, said = [], []
    for number, labels in enumerate(
        [("a", "b"), ("B", "A"), None, ("yes", "no")]
    ):
        tuning = build(
            model,
            tmp_path / str(number),
            TEXTS,
            LABELS,
            start=dataclasses.replace(
                start,
                values=values,
                head=task_heads.TaskHead("classes", labels),
            ),
        )
        tuning.restore_best()
        found += tuning.task.predict(tuning, ["w1"])
        said.append(capfd.readouterr().err)
    assert found == ["a", "b", "a", "a"]
    assert "['B', 'A'], the task ['a', 'b']: its outputs are" in said[1]
    assert "WARNING" in said[3] and "['yes', 'no']" in said[3]
    assert "labels" not in said[0]
    assert "are unknown: its outputs are taken to be ['a', 'b']" in said[2]
    bare = build(model, tmp_path / "bare", TEXTS, LABELS, start=start)
    with pytest.raises(ValueError, match="output_.*: it was not fine-tuned"):
        bare.restore_best()
    other = dataclasses.replace(
        start, values=values, head=task_heads.TaskHead("multi_label")
    )
    tuning = build(model, tmp_path / "other", TEXTS, LABELS, start=other)
    with pytest.raises(ValueError, match="'multi_label'; the task wants 'cl"):
        tuning.restore_best()


def check_is_of_no_use(tuning, folder):
    assert tuning.source is None
    for use in (
        lambda: tuning.task.predict(tuning, TEXTS),
        lambda: tuning.task.export(tuning, folder),
    ):
        with pytest.raises(ValueError, match=r"random weights.*restore_best"):
            use()
    assert not folder.exists()


def test_random_weights_neither_predict_nor_are_exported(model, tmp_path):
    build(model, tmp_path / "run", TEXTS, LABELS).train()
    tuning = build(model, tmp_path / "run", TEXTS, LABELS)
    check_is_of_no_use(tuning, tmp_path / "export")
    assert tuning.restore_best() == tuning.source
    assert len(tuning.task.predict(tuning, TEXTS)) == 3
    with pytest.raises(ValueError, match="are 'w1 w2'; wanted a list"):
        tuning.task.predict(tuning, "w1 w2")


def test_an_untrained_head_neither_predicts_nor_is_exported(
    model, tmp_path, monkeypatch
):
    """As after an interruption before the first step."""
    monkeypatch.setattr(loop, "train", lambda *_, **__: None)
    tuning = build(model, tmp_path / "run", TEXTS, LABELS)
    tuning.train()
    check_is_of_no_use(tuning, tmp_path / "export")


def test_scoring_what_is_scored_gives_no_weights(model, tmp_path):
    """Nothing is restored, so nothing may be predicted."""
    dev = {"dev": (TEXTS, LABELS)}
    build(model, tmp_path, TEXTS, LABELS, **dev).train()
    tuning = build(model, tmp_path, TEXTS, LABELS, **dev)
    tuning.evaluate()
    assert tuning.source is None
    with pytest.raises(ValueError, match="random weights"):
        tuning.task.predict(tuning, TEXTS)
    tuning.train()  # Nothing to do, but restored.
    assert tuning.source.endswith("model.ckpt-2")
    assert len(tuning.task.predict(tuning, TEXTS)) == 3


def test_scores_of_other_data_are_not_taken_for_these(model, tmp_path):
    build(model, tmp_path, TEXTS, LABELS).train()
    other = [*LABELS[1:], LABELS[0]]
    early = build(model, tmp_path, TEXTS, LABELS, dev=(TEXTS, other))
    build(model, tmp_path, TEXTS, LABELS, dev=(TEXTS, LABELS)).evaluate()
    with pytest.raises(ValueError, match="existing scores are on other"):
        early.evaluate()
    with pytest.raises(ValueError, match="existing scores are on other"):
        build(model, tmp_path, TEXTS, LABELS, dev=(TEXTS, other)).evaluate()


def test_a_run_that_began_since_then_is_compared(model, tmp_path, capfd):
    built = build(model, tmp_path / "task", TEXTS, LABELS)

    def tune(train_step, rate):
        recipe = Recipe(train_step=train_step, learning_rate=rate)
        return FineTuning(tmp_path / "run", built.task, built.start, recipe)

    first, same, other = tune(2, 1e-3), tune(2, 1e-3), tune(2, 1e-2)
    first.train()
    capfd.readouterr()
    with pytest.raises(ValueError, match="learning_rate: was 0.001, is 0.01"):
        other.train()
    same.train()
    assert "change" not in capfd.readouterr().err
    tune(3, 1e-3).train()
    assert capfd.readouterr().err.count("Resuming with a change") == 1


def test_a_training_owns_its_folder(
    model, tmp_path, monkeypatch, own_elsewhere
):
    folder = tmp_path / "run"
    lock = folder / ownership.LOCK_FILE
    with ownership.owning_folder(folder):  # As programs do.
        build(model, folder, TEXTS, LABELS).train()
        assert lock.exists()
    tuning = build(model, tmp_path / "other", TEXTS, LABELS)

    def own(*_, **__):
        with ownership.owning_folder(tuning.folder):
            raise AssertionError("two owners")

    with monkeypatch.context() as patch:
        patch.setattr(loop, "train", own)
        with pytest.raises(BlockingIOError, match=f"process {os.getpid()} on"):
            tuning.train()
    owner = own_elsewhere(tuning.folder, "owning_folder")
    with pytest.raises(BlockingIOError, match=f"process {owner.pid} on"):
        tuning.train()
    dev = {"dev": (TEXTS, LABELS)}
    scored = build(model, tmp_path / "other", TEXTS, LABELS, **dev)
    with pytest.raises(BlockingIOError, match=f"process {owner.pid} on"):
        scored.evaluate()
    owner.kill()
    owner.wait()
    tuning.train()
    assert not list(tmp_path.glob(f"*/{lock.name}"))


def test_an_interrupted_scoring_says_on_what_data(model, tmp_path, monkeypatch):
    build(model, tmp_path, TEXTS, LABELS).train()
    manager = build(model, tmp_path, TEXTS, LABELS).session.manager
    manager.copy(manager.prefix(2), 1)
    tuning = build(model, tmp_path, TEXTS, LABELS, dev=(TEXTS, LABELS))
    scores = iter([tuning.task.score])
    monkeypatch.setattr(tuning.task, "score", lambda x: next(scores)(x))
    with pytest.raises(StopIteration):  # In the second one.
        tuning.evaluate()
    other = [*LABELS[1:], LABELS[0]]
    with pytest.raises(ValueError, match="existing scores are on other"):
        build(model, tmp_path, TEXTS, LABELS, dev=(TEXTS, other))
    tuning = build(model, tmp_path, TEXTS, LABELS, dev=(TEXTS, LABELS))
    assert [row["global_step"] for row in tuning.evaluate()] == [1, 2]


def test_a_model_that_is_only_scored_is_adapted_to_the_config(model, tmp_path):
    tuning = build(model, tmp_path / "a", TEXTS, LABELS)
    tuning.train()
    config = dataclasses.replace(tuning.config, num_attention_heads=1)
    start = pretrained.read_pretrained(tmp_path / "a")
    with pytest.raises(ValueError, match="compute something else"):
        FineTuning(tmp_path / "b", tuning.task, start, config=config)


def test_texts_of_another_tokenizer_are_refused(model, tmp_path):
    tuning = build(model, tmp_path, TEXTS, LABELS)
    start = pretrained.read_pretrained(model)
    cased = start.tokenizer.change_casing(do_lower_case=False)
    with pytest.raises(ValueError, match="also for its data"):
        FineTuning(
            tmp_path / "other",
            tuning.task,
            dataclasses.replace(start, tokenizer=cased),
        )


def test_a_task_of_ones_own_says_what_it_is_chosen_by(model, tmp_path):
    """Scores may be numbers of NumPy; the metric must be among them."""
    tuning = build(model, tmp_path, TEXTS, LABELS, dev=(TEXTS, LABELS))
    evaluator = tuning.evaluator
    evaluator.score = lambda: {"eval_accuracy": np.float32(0.5)}
    assert evaluator.evaluate(3) == {"eval_accuracy": 0.5}
    evaluator.score = lambda: {"accuracy": 0.5}
    with pytest.raises(ValueError, match="best_metric is 'eval_accuracy'"):
        evaluator.evaluate(4)


def test_a_task_without_a_main_dev_table_says_what_it_lacks(model, tmp_path):
    built = build(model, tmp_path, TEXTS, LABELS, dev=(TEXTS, LABELS))
    data = built.task.data
    task = Classification(
        built.task.task,
        data._replace(dev={"mismatched": data.dev[""]}),
        max_seq_length=16,
    )
    tuning = FineTuning(tmp_path, task, built.start, built.recipe)
    with pytest.raises(
        ValueError, match=r"'eval_accuracy'.*'mismatched_eval_accuracy'"
    ):
        tuning.train()


def test_the_score_before_training_changes_no_training(model, tmp_path):
    start = pretrained.read_pretrained(model)
    head = {"output_weights": np.ones([2, start.config.hidden_size], "f4")}
    values = {**start.values, **head, "output_bias": np.float32([3, -3])}
    start = dataclasses.replace(
        start, values=values, head=task_heads.TaskHead("classes", ("a", "b"))
    )
    scores = []
    for folder in ("out", "scored"):
        tuning = build(
            model,
            tmp_path / folder,
            TEXTS,
            LABELS,
            start=start,
            dev=(TEXTS, LABELS),
        )
        if folder == "scored":
            scores = tuning.evaluate()
        tuning.train()
    assert scores[0]["global_step"] == 0
    runs.check_equal(tmp_path / "scored", tmp_path / "out")


def test_a_training_without_steps_is_refused(model, tmp_path):
    tuning = build(model, tmp_path, TEXTS, LABELS)
    tuning.task.num_train = 0
    with pytest.raises(ValueError, match="or its num_train is 0"):
        tuning.train()


def test_results_of_lost_checkpoints_want_dev_data(model, tmp_path):
    dev = {"dev": (TEXTS, LABELS)}
    tuning = build(model, tmp_path, TEXTS, LABELS, **dev)
    tuning.train()
    for path in tmp_path.glob("model.ckpt-2*"):
        path.unlink()
    with pytest.raises(ValueError, match="results until step 2, but training"):
        build(model, tmp_path, TEXTS, LABELS).train()
    build(model, tmp_path, TEXTS, LABELS, **dev).train()


def test_the_score_of_an_interruption_wants_dev_data(model, tmp_path):
    """Without it, the score would stay, of a step that is no checkpoint's."""
    dev = {"dev": (TEXTS, LABELS)}
    tuning = build(model, tmp_path, TEXTS, LABELS)
    tuning.train()
    mark = pathlib.Path(f"{tuning.session.manager.prefix(2)}{checkpoints.MARK}")
    mark.write_text("")
    (row,) = build(model, tmp_path, TEXTS, LABELS, **dev).evaluate()
    assert row["global_step"] == 2
    recipe = Recipe(train_step=4, accept_changes=True)
    with pytest.raises(ValueError, match="results until step 2, but training"):
        FineTuning(tmp_path, tuning.task, tuning.start, recipe).train()
    assert mark.exists()


def test_a_folder_that_was_emptied_is_not_continued(model, tmp_path):
    tuning = build(model, tmp_path / "run", TEXTS, LABELS)
    tuning.train()
    for path in (tmp_path / "run").glob("model.ckpt-*"):
        path.unlink()
    with pytest.raises(ValueError, match="2 steps, but .* has no checkpoint"):
        tuning.train()


def test_a_run_that_diverged_has_no_weights(model, tmp_path):
    tuning = build(model, tmp_path, TEXTS, LABELS)
    named_weights(tuning.model)["output_bias"].assign([np.nan, 0.0])
    with pytest.raises(FloatingPointError):
        tuning.train()
    assert tuning.source is None and not list(tmp_path.glob("*.index"))
    with pytest.raises(ValueError, match="random weights"):
        tuning.task.predict(tuning, TEXTS)


def test_weights_and_from_scratch_contradict(model, tmp_path):
    start = pretrained.read_pretrained(model)
    task = build(model, tmp_path, TEXTS, LABELS).task
    with pytest.raises(ValueError, match="from_scratch=True contradicts"):
        FineTuning(tmp_path, task, start, Recipe(from_scratch=True))


def test_a_newer_checkpoint_that_was_not_scored_is_said(model, tmp_path, capfd):
    build(model, tmp_path, TEXTS, LABELS, dev=(TEXTS, LABELS)).train()
    start = pretrained.read_pretrained(model)
    task = build(model, tmp_path, TEXTS, LABELS).task
    recipe = Recipe(train_step=4, accept_changes=True)
    tuning = FineTuning(tmp_path, task, start, recipe)
    tuning.train()
    assert tuning.restore_best().endswith("model.ckpt-4")
    said = capfd.readouterr().err
    assert "model.ckpt-4 is of step 4. It is newer than the best" in said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("keep_checkpoint_max", -1),
        ("save_checkpoints_steps", 0),
        ("train_batch_size", 0),
        ("compute_dtype", "float16"),
    ],
)
def test_a_recipe_is_checked(name, value):
    with pytest.raises(ValueError, match=f"^{name}={value!r}; wanted"):
        Recipe(**{name: value})


@pytest.mark.parametrize(("dev", "wanted"), [(None, 1), ((TEXTS, LABELS), 2)])
def test_without_dev_data_checkpoints_are_rare(model, tmp_path, dev, wanted):
    build(model, tmp_path, TEXTS, LABELS, dev=dev).train()
    assert len(list(tmp_path.glob("model.ckpt-[0-9].index"))) == wanted


def test_lost_checkpoints_are_said_first(model, tmp_path, capfd):
    recipe = Recipe(train_step=4, save_checkpoints_steps=1)
    for number, (num_kept, dev) in enumerate(
        [(2, None), (0, None), (4, None), (2, (TEXTS, LABELS))]
    ):
        built = build(model, tmp_path / "task", TEXTS, LABELS, dev=dev)
        FineTuning(
            tmp_path / str(number),
            built.task,
            built.start,
            dataclasses.replace(recipe, keep_checkpoint_max=num_kept),
        ).train()
        said = capfd.readouterr().err
        assert ("Of 4 checkpoints, the last 2" in said) == (number == 0)


@pytest.mark.parametrize(("text", "is_known"), [("w1", True), ("日本", False)])
def test_unknown_text_is_said_first(model, tmp_path, capfd, text, is_known):
    build(model, tmp_path, [text, "w2"], ["a", "b"]).train()
    said = capfd.readouterr().err.split("Training from step")[0]
    assert ("of the pieces are unknown to the vocabulary" in said) != is_known


def test_too_little_memory_is_said_first(model, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(distribution, "read_available_memory", lambda: 400_000)
    tuning = build(model, tmp_path, TEXTS * 9, LABELS * 9)
    tuning.train()
    warning, rest = capfd.readouterr().err.split("Training from step")
    assert "WARNING: A training step needs about" in warning
    assert "needs about" not in rest


def test_labels_are_listed_and_doubted():
    describe = classification.describe_labels
    assert describe(["no", "yes"], [12, 3000]) == [
        "2 labels: 'no' 12, 'yes' 3,000."
    ]
    _, said = describe(["Pos", "neg", "pos"], [1, 2, 3])
    assert "['Pos', 'pos'] differ only" in said
    numbers = [str(i / 7) for i in range(60)]
    listed, said = describe(numbers, [1] * 60)
    assert listed.endswith(" 1, ...")
    assert "60 of 60 labels" in said and "regression" in said
    assert len(describe(numbers, [9] * 60)) == 1


def test_a_regression_has_no_labels(model, tmp_path):
    tuning = build(
        model, tmp_path, TEXTS, [1.5, 2, "3"], objective="regression"
    )
    assert tuning.task.task.labels is None
    assert tuning.task.best_metric == "pearson"
    tuning.source = "random weights"
    (low, *_) = tuning.task.predict(tuning, ["w1"])
    assert np.isfinite(float(low))


def test_predictions_are_those_of_the_weights_at_the_time(
    model, tmp_path, monkeypatch
):
    built = []
    build_function = evaluation.build_predict_function
    monkeypatch.setattr(
        evaluation,
        "build_predict_function",
        lambda *args: built.append(1) or build_function(*args),
    )
    tuning = build(model, tmp_path, TEXTS, LABELS)
    tuning.source = "by hand"
    examples = tuning.task.train
    weights = named_weights(tuning.model)
    bias = weights["output_bias"]
    kernels = [w for name, w in weights.items() if name.endswith("kernel")]
    before = tuning.predict(examples)["logits"]
    bias.assign(bias + 1.0)
    after = tuning.predict(examples)["logits"]
    np.testing.assert_allclose(after, before + 1, rtol=1e-2)
    assert len(built) == 1
    for kernel in kernels:
        kernel.assign(kernel * 2.0)
        wanted = tuning.predict(examples)["logits"]
    assert np.abs(wanted - after).max() > 1e-3
    assert len(built) == 1 + len(kernels)
    np.testing.assert_array_equal(tuning.predict(examples)["logits"], wanted)
    assert len(built) == 1 + len(kernels)


class Mean(heads.AlbertClassifier):
    """Reads the last two layers."""

    reads_layers = True

    def call(self, features, training=False, seed=None):
        layers = self.encode(features, training, seed)["all_encoder_layers"]
        return {"logits": self.output_layer(sum(layers[-2:])[:, 0] / 2)}


def test_a_model_may_read_all_layers(model, tmp_path, monkeypatch):
    tuning = build(model, tmp_path, TEXTS, LABELS)
    monkeypatch.setattr(
        tuning.task,
        "build_model",
        lambda config, *_, dtype: Mean(config, num_labels=2, dtype=dtype),
    )
    examples = tuning.task.train
    with pytest.raises(ValueError, match="omit remat"):
        FineTuning(
            tmp_path / "remat", tuning.task, tuning.start, Recipe(remat=True)
        )
    tuning = FineTuning(tmp_path / "own", tuning.task, tuning.start)
    with pytest.raises(ValueError, match="reads all layers"):
        saved_models.check_compact(tuning.model)
    tuning.source = "random weights"
    wanted = tuning.model(pad_examples(examples, [0, 1, 2], 16))["logits"]
    found = tuning.predict(examples)["logits"]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


CPUS = ["CPU:0", "CPU:1"]


def test_only_a_single_cpu_holds_weights(model, tmp_path, monkeypatch):
    tuning = build(model, tmp_path, TEXTS, LABELS)
    one, two = (
        tf.distribute.get_strategy(),
        tf.distribute.MirroredStrategy(CPUS),
    )
    for strategy, limit, wanted in (
        (one, 1 << 20, True),
        (one, 10, False),
        (two, 1 << 20, False),
    ):
        monkeypatch.setattr(execution, "MAX_CONSTANT_BYTES", limit)
        with evaluation.holding_weights(strategy, tuning.model) as are_held:
            assert are_held == execution.current().constant_kernels == wanted
            x, ones = tf.ones([2, 8]), tf.ones([8])
            norm = tf.function(operations.layer_norm).get_concrete_function
            graph = norm(x, ones, ones).graph
        kinds = {operation.type for operation in graph.get_operations()}
        is_onednn = wanted and onednn.is_available(tf.float32)
        assert ("_MklLayerNorm" in kinds) == is_onednn


def test_mismatched_arguments_are_refused(model, tmp_path):
    start = pretrained.read_pretrained(model)
    empty = dataclasses.replace(start, values={})
    bare = dataclasses.replace(start, config=None)
    for kwargs, message in (
        ({"texts": TEXTS, "labels": LABELS[:2]}, "3 texts and 2 labels"),
        ({"texts": [], "labels": []}, "0 texts"),
        ({"texts": TEXTS, "labels": ["a"] * 3}, "wanted two or more"),
        ({"max_seq_length": 33}, "33, but the model has 32 positions"),
        ({"start": empty}, "No weights to start from"),
        ({"start": bare}, "has no config, or several, next to it"),
    ):
        kwargs = {"texts": TEXTS, "labels": LABELS, **kwargs}
        with pytest.raises(ValueError, match=message):
            build(model, tmp_path / "out", **kwargs)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("asked", ["auto", "bfloat16"])
def test_an_export_of_auto_computes_in_float32(
    model, tmp_path, monkeypatch, capsys, asked
):
    monkeypatch.setattr(
        distribution, "multiplies_bfloat16", lambda strategy: True
    )
    start = pretrained.read_pretrained(model)
    task = Classification.from_texts(
        start.tokenizer, TEXTS, LABELS, max_seq_length=16
    )
    recipe = Recipe(train_step=2, compute_dtype=asked)
    tuning = FineTuning(tmp_path / "run", task, start, recipe)
    tuning.train()
    said = capsys.readouterr()
    assert ("Computing in bfloat16" in said.out + said.err) == (asked == "auto")
    made_of = (tmp_path / "run/run.json").read_text()
    assert '"compute_dtype": "bfloat16"' in made_of
    path = task.export(tuning, tmp_path / "served")
    loaded = tf.saved_model.load(path)
    ids = tf.constant([[2, 7, 3]])
    inputs = {"input_ids": ids, "input_mask": tf.ones_like(ids)}
    inputs["segment_ids"] = tf.zeros_like(ids)
    logits = loaded.signatures["ids"](**inputs)["logits"]
    exact = task.build_model(tuning.config, dtype="float32")
    weights = named_weights(tuning.model)
    for name, weight in named_weights(exact).items():
        weight.assign(weights[name])
    difference = np.abs(logits - exact(inputs)["logits"]).max()
    assert (difference < 1e-6) == (asked == "auto"), difference
