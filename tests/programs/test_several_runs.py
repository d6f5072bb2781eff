"""Fine-tuning programs: several runs, one report."""

import dataclasses
import gc
import json
import types
import weakref

import pytest

from albert_tf import ownership
from albert_tf.commands.run_classifier import ClassifierFlags
from albert_tf.commands.run_squad import SquadFlags
from albert_tf.data import submissions
from albert_tf.programs import finetuning, shared
from albert_tf.training import results_file
from albert_tf.weights import task_heads
from tests import tiny


class Tuning(types.SimpleNamespace):
    """Unlike its base class, it can have weak references."""


def test_all_runs_predict_and_the_best_is_exported(
    tmp_path, monkeypatch, capsys
):
    said, exported, seeds, built = [], [], [], []

    def build_tuning(folder, task, model, recipe, *, config, strategy, flags):
        gc.collect()
        # Only the best: each has a model and its optimizer.
        assert sum(tuning() is not None for tuning in built) <= 1
        assert (model.tokenizer, config, strategy) == ("t", tiny.CONFIG, "one")
        assert flags["num_runs"] == 3
        seeds.append(recipe.random_seed)
        number = recipe.random_seed - 12345
        scores = f"f1 = {[0.7, 0.6, 0.9][number]}\nglobal_step = 2\n"
        results_file.write_blocks(folder, [scores])
        tuning = Tuning(
            number=number,
            task=task,
            evaluator="it has written its results",
            reporter=types.SimpleNamespace(say=said.append),
            restore_best=lambda: f"best {number}",
            folder=folder,
            evaluate=lambda: None,
            session=types.SimpleNamespace(
                manifest=types.SimpleNamespace(write=lambda: None)
            ),
        )
        built.append(weakref.ref(tuning))
        return tuning

    model = types.SimpleNamespace(tokenizer="t", head=None)
    monkeypatch.setattr(finetuning, "FineTuning", build_tuning)
    monkeypatch.setattr(
        finetuning,
        "read_start",
        lambda _: finetuning.Start(model, tiny.CONFIG),
    )
    monkeypatch.setattr(shared, "build_strategy", lambda _: "one")
    task = types.SimpleNamespace(
        name="x",
        best_metric="f1",
        is_scored=True,
        is_predicted=True,
        baseline={},
        train=None,
        write_predictions=lambda tuning: {"number": tuning.number},
        export=lambda tuning, folder, is_compact: exported.append(
            (tuning.number, folder, is_compact)
        ),
        export_text=None,
    )
    args = ClassifierFlags(
        data_dir=str(tmp_path),
        task_name="mrpc",
        output_dir=str(tmp_path / "out"),
        init_checkpoint="somewhere",
        num_runs=3,
        do_predict=True,
        export_dir="served",
        export_compact=True,
    )
    finetuning.run(args, lambda args, model: task)
    assert exported == [(2, "served", True)]
    assert seeds == [12345, 12346, 12347]
    assert [text for text in said if "Predicting" in text] == [
        f"Predicting with best {i}." for i in range(3)
    ]
    path = tmp_path / "out" / submissions.SUMMARY_FILE
    summary = json.loads(path.read_text())
    assert summary["test"] == [{"number": i} for i in range(3)]
    assert summary["task"] == "x"
    assert [run["folder"] for run in summary["runs"]] == [
        str(tmp_path / "out" / f"run_{i}") for i in (1, 2, 3)
    ]
    assert "The last step is 2" in capsys.readouterr().out
    # For the report and the card of each run.
    own = json.loads((tmp_path / "out/run_2" / path.name).read_text())
    assert own["test"] == [{"number": 1}]
    assert own["runs"] == [summary["runs"][1]]
    with (
        ownership.owning_folder(tmp_path / "out" / "run_2"),
        pytest.raises(BlockingIOError, match="run_2"),
    ):
        finetuning.run(args, lambda args, model: task)


@pytest.mark.parametrize(("do_train", "length"), [(False, 12), (True, None)])
def test_lengths_that_are_not_given_are_those_of_the_training(do_train, length):
    head = task_heads.TaskHead(
        "classes", lengths={"max_seq_length": 12, "other": 3}
    )
    args = ClassifierFlags(
        data_dir="d",
        output_dir="o",
        task_name="sst-2",
        do_train=do_train,
        do_eval=True,
    )
    assert finetuning.recall_lengths(args, head).max_seq_length == length
    given = dataclasses.replace(args, max_seq_length=9)
    assert finetuning.recall_lengths(given, head) == given
    assert finetuning.recall_lengths(args, None) == args


def test_a_given_stride_keeps_the_other_lengths_of_the_training():
    lengths = {"max_seq_length": 96, "doc_stride": 48, "max_query_length": 16}
    head = task_heads.TaskHead("spans", lengths=lengths)
    args = SquadFlags(
        predict_file="f", output_dir="o", do_predict=True, doc_stride=20
    )
    found = finetuning.recall_lengths(args, head)
    assert (found.max_seq_length, found.doc_stride) == (96, 20)
    assert found.max_query_length == 16
