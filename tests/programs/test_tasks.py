"""What all programs do: several runs, one report, one export."""

import json
import types

from albert_tf.programs import tasks


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


def test_a_summary_tells_of_the_median_run():
    found = tasks.summarize(
        [
            make_evaluator("a", 3.0, 9.0, 1.0),
            make_evaluator("b", 2.0, 1.0),
            make_evaluator("c", 4.0, 6.0, 5.0),
            make_evaluator("d", 7.0),
        ]
    )
    assert [run["folder"] for run in found["runs"]] == ["a", "b", "c", "d"]
    assert [run["best"]["f1"] for run in found["runs"]] == [9, 2, 6, 7]
    assert found["folder"] == "c"
    assert found["best"]["global_step"] == 4
    assert found["last"]["f1"] == 5
    assert found["median"] == 6.5
    assert round(found["spread"], 6) == round((26 / 3) ** 0.5, 6)
    text = tasks.format_summary(found, {"f1": 0.5, "em": 0.0})
    assert (
        "f1                          5.0000        6.0000      0.5000" in text
    )
    assert "exact" not in text
    assert "Step 6 is the last, 4 the best" in text
    assert "4 runs: best f1 has median 6.5000" in text
    alone = tasks.summarize([make_evaluator("a", 3.0)])
    assert alone["spread"] == 0
    assert "runs:" not in tasks.format_summary(alone, {})


def test_of_several_runs_all_predict_and_the_first_is_exported(
    tmp_path, monkeypatch, capsys
):
    said, exported = [], []

    def build_run(args, number, build_model, *rest):
        assert rest == ("start", "config", "strategy", 7, {"task": "x"})
        return types.SimpleNamespace(
            number=number,
            manager=types.SimpleNamespace(folder=str(tmp_path)),
            reporter=types.SimpleNamespace(say=said.append),
            restore_best=lambda: f"best {number}",
            evaluate=lambda evaluator: None,
            write_assets=lambda: None,
            manifest=types.SimpleNamespace(write=lambda: None),
        )

    monkeypatch.setattr(tasks.finetuning, "Run", build_run)
    monkeypatch.setattr(
        tasks.distribution, "build_strategy_of", lambda _: "strategy"
    )
    monkeypatch.setattr(
        tasks.evaluation,
        "Evaluator",
        lambda score, *, manager, reporter, best_metric: make_evaluator(
            "x", 1.0
        ),
    )
    task = tasks.Task(
        name="x",
        build_model=None,
        train=None,
        num_train=7,
        score=lambda run: {},
        best_metric="f1",
        baseline={},
        predict=lambda run: {"number": run.number},
        exports=(lambda run: exported.append(run.number),),
        made_of={"task": "x"},
    )
    args = types.SimpleNamespace(num_runs=3, output_dir=str(tmp_path))
    tasks.run_task(args, task, ("start", "config"))
    assert exported == [0]
    assert [text for text in said if "Predicts" in text] == [
        f"Predicts with best {i}." for i in range(3)
    ]
    summary = json.loads((tmp_path / tasks.SUMMARY_FILE).read_text())
    assert summary["test"] == [{"number": i} for i in range(3)]
    assert summary["task"] == "x"
    assert "Step 2 is the last" in capsys.readouterr().out
