"""Summaries of several runs."""

import json
import types

from albert_tf.data import submissions
from albert_tf.tasks import summary
from albert_tf.training import results_file


def make_evaluator(folder, *scores):
    """An evaluator whose steps 2, 4... have these scores."""
    rows = [
        {"f1": score, "exact": -score, "global_step": 2 * i}
        for i, score in enumerate(scores, 1)
    ]
    return types.SimpleNamespace(
        best_metric="f1",
        manager=types.SimpleNamespace(folder=folder),
        results=lambda: rows,
    )


def test_a_summary_reports_the_median_run():
    evaluators = [
        make_evaluator("a", 3.0, 9.0, 1.0),
        make_evaluator("b", 2.0, 1.0),
        make_evaluator("c", 4.0, 6.0, 5.0),
        make_evaluator("d", 7.0),
    ]
    runs = list(map(summary.describe_run, evaluators))
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
    evaluator = make_evaluator("a", 3.0, 9.0)
    evaluator.results()[1]["global_step"] = 0
    assert summary.describe_run(evaluator)["best"]["f1"] == 3
    evaluator.results().pop(0)
    assert summary.describe_run(evaluator)["best"]["f1"] == 9


def test_test_scores_have_the_step_of_a_checkpoint_that_is_not_the_best(
    tmp_path,
):
    found = []
    for name in ("model.ckpt-7", "model.ckpt-best"):
        source = str(tmp_path / name)
        (tmp_path / f"{name}.index").touch()
        tuning = types.SimpleNamespace(
            folder=str(tmp_path), evaluator=None, source=source
        )
        scores = {"mine": {"f1": 0.5}}
        found.append(summary.describe_outcome(tuning, scores).test)
    assert found == [{"mine": {"f1": 0.5}, "global_step": 7}, scores]


def test_a_run_without_dev_data_has_the_score_of_before(tmp_path):
    results_file.write_blocks(
        tmp_path, [f"f1 = 0.{i}\nglobal_step = {i}.0\n" for i in (4, 2)], "f1"
    )
    tuning = types.SimpleNamespace(
        folder=str(tmp_path),
        evaluator=None,
        source=str(tmp_path / "model.ckpt-best"),
        task=types.SimpleNamespace(best_metric="f1"),
    )
    (tmp_path / "model.ckpt-best.index").touch()
    outcome = summary.describe_outcome(tuning, {})
    assert (outcome.score, outcome.dev) == (0.4, None)


def test_a_summary_keeps_what_is_not_scored_now(tmp_path):
    trained, other = (
        types.SimpleNamespace(
            name="x", best_metric="f1", baseline={"f1": prior}, train=train
        )
        for prior, train in ((0.1, "data"), (0.3, None))
    )

    def write(task, score, test, is_of_best=True):
        dev = None
        if score is not None:
            row = {"f1": score, "global_step": 5}
            dev = {"folder": str(tmp_path), "last": row, "best": row}
        outcome = summary.Outcome(str(tmp_path), dev, 0.0, test, is_of_best)
        summary.write(str(tmp_path), task, [outcome], 1.0)
        path = tmp_path / submissions.SUMMARY_FILE
        return json.loads(path.read_text()) if path.exists() else None

    test = {"test": {"f1": 0.6}}
    assert write(other, None, {}) is None
    write(trained, 0.7, {})
    # Predicted later, without dev data.
    found = write(other, None, test)
    assert (found["test"], found["best"]["f1"]) == ([test], 0.7)
    # Evaluated again, without training data and test data.
    found = write(other, 0.7, {})
    assert (found["test"], found["baseline"]) == ([test], {"f1": 0.1})
    # Scored anew.
    assert write(other, 0.7, {"f1": 0.5})["test"] == [{"f1": 0.5}]
    # The best checkpoint is another one.
    assert write(trained, 0.8, {})["test"] == [{}]
    # The predictions are of a newer checkpoint than the best.
    assert write(other, None, test, is_of_best=False) == {"test": [test]}
