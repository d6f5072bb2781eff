"""Summaries of several runs."""

import json
import math
import types

from albert_tf.data import submissions
from albert_tf.tasks import summary
from albert_tf.training import results_file


def describe(folder, *scores):
    """A run whose steps 2, 4... have these scores."""
    rows = [
        {"f1": score, "exact": -score, "global_step": 2 * i}
        for i, score in enumerate(scores, 1)
    ]
    return summary.describe_run(folder, rows, "f1")


def test_a_summary_reports_the_median_run():
    runs = [
        describe("a", 3.0, 9.0, 1.0),
        describe("b", 2.0, 1.0),
        describe("c", 4.0, 6.0, 5.0),
        describe("d", 7.0),
    ]
    found = summary.summarize("f1", runs)
    assert [run["folder"] for run in found["runs"]] == ["a", "b", "c", "d"]
    assert [run["best"]["f1"] for run in found["runs"]] == [9, 2, 6, 7]
    assert found["folder"] == "c"
    assert found["best"]["global_step"] == 4
    assert found["last"]["f1"] == 5
    assert found["median"] == 6.5
    assert round(found["spread"], 6) == round((26 / 3) ** 0.5, 6)
    text = summary.format_summary(found, {"f1": 0.5, "em": 0.0})
    assert (
        "f1                          5.0000        6.0000      0.5000" in text
    )
    assert "exact" not in text
    assert "The last step is 6, the best 4" in text
    assert "4 runs: best f1 has median 6.5000" in text
    alone = summary.summarize("f1", runs[:1])
    assert alone["spread"] == 0
    assert "runs:" not in summary.format_summary(alone, {})


def test_initial_weights_are_best_only_alone():
    """They have no checkpoint in a folder that has trained since."""
    rows = [{"f1": 3.0, "global_step": 2}, {"f1": 9.0, "global_step": 0}]
    assert summary.describe_run("a", rows, "f1")["best"]["f1"] == 3
    assert summary.describe_run("a", rows[1:], "f1")["best"]["f1"] == 9


def test_test_scores_have_the_step_of_a_checkpoint_that_is_not_the_best(
    tmp_path,
):
    found = []
    for name in ("model.ckpt-7", "model.ckpt-best"):
        source = str(tmp_path / name)
        (tmp_path / f"{name}.index").touch()
        tuning = types.SimpleNamespace(
            folder=str(tmp_path),
            evaluator=None,
            source=source,
            task=types.SimpleNamespace(best_metric="f1"),
        )
        scores = {"mine": {"f1": 0.5}}
        found.append(summary.describe_outcome(tuning, scores).test)
    assert found == [{"mine": {"f1": 0.5}, "global_step": 7}, scores]


def test_a_run_without_dev_data_has_the_score_of_before(tmp_path):
    results_file.write_blocks(
        tmp_path, [f"f1 = 0.{i}\nglobal_step = {i}.0\n" for i in (4, 2)]
    )
    tuning = types.SimpleNamespace(
        folder=str(tmp_path),
        evaluator=None,
        source=str(tmp_path / "model.ckpt-best"),
        task=types.SimpleNamespace(best_metric="f1"),
    )
    (tmp_path / "model.ckpt-best.index").touch()
    outcome = summary.describe_outcome(tuning, {})
    assert outcome.score == 0.4
    assert outcome.dev["last"] == outcome.dev["best"]
    # The metric of a summary is that of the training.
    path = tmp_path / submissions.SUMMARY_FILE
    path.write_text('{"metric": "another"}')
    outcome = summary.describe_outcome(tuning, {})
    assert (outcome.score, outcome.dev) == (-math.inf, None)


def test_a_summary_keeps_what_is_not_scored_now(tmp_path):
    trained, other, predicted = (
        types.SimpleNamespace(
            name="x",
            best_metric="f1",
            baseline={"f1": prior},
            train=train,
            is_scored=is_scored,
        )
        for prior, train, is_scored in (
            (0.1, "data", True),
            (0.3, None, True),
            (0.0, None, False),
        )
    )

    def write(task, score, test, is_of_best=True, seconds=1.0):
        dev = None
        if score is not None:
            row = {"f1": score, "global_step": 5}
            dev = {"folder": str(tmp_path), "last": row, "best": row}
        outcome = summary.Outcome(str(tmp_path), dev, 0.0, test, is_of_best)
        summary.write(str(tmp_path), task, [outcome], seconds)
        path = tmp_path / submissions.SUMMARY_FILE
        return json.loads(path.read_text()) if path.exists() else None

    test = {"test": {"f1": 0.6}}
    assert write(predicted, None, {}) is None
    assert write(predicted, 0.7, {}) is None  # The baseline is unknown.
    write(trained, 0.7, {})
    # Predicted later, without dev data, after another best checkpoint.
    found = write(predicted, 0.8, test, seconds=9.0)
    assert (found["test"], found["best"]["f1"]) == ([test], 0.8)
    assert (found["baseline"], found["seconds"]) == ({"f1": 0.1}, 1.0)
    found = write(predicted, 0.7, test)
    # Evaluated again, without training data and test data.
    found = write(other, 0.7, {})
    assert (found["test"], found["baseline"]) == ([test], {"f1": 0.1})
    # Scored anew.
    assert write(other, 0.7, {"f1": 0.5})["test"] == [{"f1": 0.5}]
    # The best checkpoint is another one.
    assert write(trained, 0.8, {})["test"] == [{}]
    # The predictions are of a newer checkpoint than the best.
    assert write(predicted, None, test, is_of_best=False) == {"test": [test]}
    # The results were removed, and it was scored on other data.
    write(trained, 0.7, test)
    results_file.write_blocks(tmp_path, ["f1 = 0.2\nglobal_step = 5.0\n"])
    found = write(other, 0.2, {})
    assert (found["test"], found["baseline"]) == ([{}], {"f1": 0.3})
