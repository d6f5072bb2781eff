"""run_classifier: trains, resumes, evaluates, predicts."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from albert_tf.commands.convert_checkpoint import ConvertFlags
from albert_tf.commands.run_classifier import ClassifierFlags
from albert_tf.data import batches, examples
from albert_tf.model import heads
from albert_tf.programs import (
    convert_checkpoint,
    finetuning,
    run_classifier,
    shared,
)
from albert_tf.tasks.finetuning import FineTuning
from albert_tf.training import manifest, results_file
from albert_tf.weights import checkpoints, pretrained, task_heads
from tests.programs import classifier_runs as runs


@pytest.fixture
def args(tmp_path, model):
    """Flags of a run of twelve steps."""
    return runs.build_args(tmp_path, model)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, model):
    """Folder of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    args = runs.build_args(folder, model)
    run_classifier.run(
        dataclasses.replace(args, do_predict=False, bucket_lengths="8")
    )
    return folder / "out"


def without_dropout(args):
    return dataclasses.replace(
        args,
        do_predict=False,
        hidden_dropout_prob=0.0,
        classifier_dropout=0.0,
        bucket_lengths="8",
    )


@pytest.fixture(scope="module")
def undropped(tmp_path_factory, model):
    """Folder of a run without dropout."""
    folder = tmp_path_factory.mktemp("undropped")
    args = runs.build_args(folder, model)
    run_classifier.run(without_dropout(args))
    return folder / "out"


@pytest.mark.traced
def test_a_run_writes_what_the_releases_writes(args, tmp_path, capfd):
    run_classifier.run(dataclasses.replace(args, bucket_lengths="8"))
    out = tmp_path / "out"
    assert [r["global_step"] for r in runs.results_of(out)] == ["4", "8", "12"]
    for name in ("eval_accuracy", "eval_loss"):
        assert all(name in result for result in runs.results_of(out))
    best = checkpoints.read_checkpoint(out / "model.ckpt-best")
    wanted = task_heads.best_row(
        results_file.read_results(out), "eval_accuracy"
    )
    assert best["global_step"] == wanted["global_step"]
    assert best["output_weights"].shape == (2, 12)
    chances = np.loadtxt(out / "test_results.tsv", delimiter="\t")
    assert chances.shape == (9, 2)
    np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-6)
    submitted = [
        x.split("\t") for x in runs.read_lines(out / "submit_results.tsv")
    ]
    assert submitted[0] == ["index", "prediction"]
    assert [index for index, _ in submitted[1:]] == [
        str(80 - 7 * i) for i in range(9)
    ]
    predictions = [int(prediction) for _, prediction in submitted[1:]]
    assert predictions == chances.argmax(axis=1).tolist()
    assert runs.read_lines(out / "SST-2.tsv") == runs.read_lines(
        out / "submit_results.tsv"
    )
    said = capfd.readouterr()
    assert "new: output_bias, output_weights" in said.err
    assert "Dropout: hidden 0.1, attention 0.0, classifier 0.1" in said.err
    assert "best on dev" in said.out and "baseline" in said.out
    summary = json.loads((out / "summary.json").read_text())
    assert summary["last"]["global_step"] == 12
    assert summary["best"]["eval_accuracy"] == wanted["eval_accuracy"]
    # The folder is a model: it has all the files to read its weights.
    again = dataclasses.replace(
        args,
        init_checkpoint=None,
        do_train=False,
        do_eval=False,
        albert_config_file=None,
    )
    before = runs.read_lines(out / "test_results.tsv")
    (out / "test_results.tsv").unlink()
    run_classifier.run(again)
    assert runs.read_lines(out / "test_results.tsv") == before


def test_a_fine_tuned_model_predicts_the_same_from_hugging_faces_form(
    args, whole, tmp_path
):
    pytest.importorskip("safetensors")
    folder = tmp_path / "hf"
    convert_checkpoint.run(ConvertFlags(from_=str(whole), to=str(folder)))
    described = json.loads((folder / "config.json").read_text())
    assert described["architectures"] == ["AlbertForSequenceClassification"]
    assert described["id2label"] == {"0": "0", "1": "1"}
    chances = []
    for number, source in enumerate((whole / "model.ckpt-best", folder)):
        out = tmp_path / f"out_{number}"
        again = dataclasses.replace(
            args,
            init_checkpoint=str(source),
            output_dir=str(out),
            do_train=False,
            do_eval=False,
        )
        run_classifier.run(again)
        chances.append(runs.read_lines(out / "test_results.tsv"))
    assert chances[0] == chances[1]


def test_a_folder_is_evaluated_afterwards(args, whole, tmp_path):
    args = dataclasses.replace(args, do_predict=False, bucket_lengths="8")
    run_classifier.run(dataclasses.replace(args, do_eval=False))
    run_classifier.run(dataclasses.replace(args, do_train=False))
    found = runs.results_of(tmp_path / "out")
    assert [r["global_step"] for r in found] == ["4", "8", "12"]
    assert found == runs.results_of(whole)


def test_predicting_keeps_the_settings_of_the_training(args, whole, tmp_path):
    out = shutil.copytree(whole, tmp_path / "out", dirs_exist_ok=True)
    before = manifest.read_setting(out, "optimizer")
    predicting = dataclasses.replace(
        args,
        do_train=False,
        do_eval=False,
        max_seq_length=12,
        accept_changes=True,
    )
    run_classifier.run(predicting)
    assert (out / "SST-2.tsv").exists()
    assert manifest.read_setting(out, "max_seq_length") == 16
    assert manifest.read_setting(out, "optimizer") == before


def test_a_fine_tuned_model_is_evaluated_in_place(args, whole, tmp_path):
    elsewhere = dataclasses.replace(
        args,
        init_checkpoint=str(whole / "model.ckpt-best"),
        do_train=False,
    )
    run_classifier.run(elsewhere)
    (found,) = runs.results_of(tmp_path / "out")
    accuracies = [r["eval_accuracy"] for r in runs.results_of(whole)]
    assert found["eval_accuracy"] == max(accuracies)
    assert (tmp_path / "out" / "SST-2.tsv").exists()


@pytest.fixture(scope="module")
def fine_tuned(model, tmp_path_factory):
    """A model with a head, trained for a few steps."""
    folder = tmp_path_factory.mktemp("fine_tuned")
    runs.write_table(folder / "SST-2" / "train.tsv", runs.make_rows(60, seed=1))
    run_classifier.run(
        ClassifierFlags(
            task_name="sst-2",
            data_dir=str(folder),
            output_dir=str(folder / "out"),
            init_checkpoint=str(model),
            do_train=True,
            train_batch_size=8,
            learning_rate=1e-3,
            train_step=3,
            max_seq_length=16,
            bucket_lengths="",
        )
    )
    return folder / "out"


def build_tuning(args, fine_tuned, **kwargs):
    """A FineTuning that predicts with a fine-tuned model."""
    args = dataclasses.replace(
        args, init_checkpoint=str(fine_tuned), do_train=False, **kwargs
    )
    start = finetuning.read_start(args)
    tuning = FineTuning(
        args.output_dir,
        run_classifier.read_task(args, start.model),
        start.model,
        finetuning.build_recipe(args, 0),
        config=start.config,
        strategy=shared.build_strategy(args),
    )
    tuning.restore_best()
    return tuning


def test_predictions_match_the_input_rows(args, fine_tuned):
    found = pretrained.read_pretrained(fine_tuned)
    model = pretrained.build_model(
        lambda config: heads.AlbertClassifier(config, num_labels=2), found
    )
    texts = [text for text, _ in runs.make_rows(9, seed=3)]
    rows = examples.pack_pairs(found.tokenizer, texts, [None] * 9, 16)
    wanted = [
        model(examples.pad_examples(rows, [row], length))["logits"][0]
        for row, length in enumerate(rows.lengths)
    ]
    for kwargs in (
        {"predict_batch_size": 4},
        {"predict_batch_size": None, "tokens_per_batch": 24},
        {"predict_batch_size": None, "distribution": "mirrored"},
        {
            "predict_batch_size": None,
            "tokens_per_batch": 24,
            "distribution": "mirrored",
        },
    ):
        tuning = build_tuning(args, fine_tuned, **kwargs)
        for num_rows in (1, 7, 8, 9):
            end = rows.lengths[:num_rows].sum()
            some = examples.Examples(
                rows.ids[:end],
                rows.lengths[:num_rows],
                rows.first_lengths[:num_rows],
                {},
            )
            logits = tuning.predict(some)["logits"]
            assert logits.shape == (num_rows, 2)
            np.testing.assert_allclose(logits, wanted[:num_rows], atol=1e-5)


def assert_same_weights(folder, wanted):
    wanted = runs.weights_of(wanted)
    for name, value in runs.weights_of(folder).items():
        np.testing.assert_allclose(value, wanted[name], atol=2e-5, err_msg=name)


def test_training_on_two_replicas_is_training_on_one(args, undropped, tmp_path):
    args = dataclasses.replace(without_dropout(args), distribution="mirrored")
    run_classifier.run(args)
    assert_same_weights(tmp_path / "out", undropped)


def test_padding_further_does_not_change_training(
    args, undropped, tmp_path, monkeypatch
):
    """The same batches, padded to their buckets and to the whole length."""
    plan_training = batches.plan_training

    def plan_padded(*args):
        plan = plan_training(*args)
        assert set(plan.lengths) == {8, 16}
        return plan._replace(lengths=np.full_like(plan.lengths, 16))

    monkeypatch.setattr(batches, "plan_training", plan_padded)
    args = dataclasses.replace(without_dropout(args), do_eval=False)
    run_classifier.run(args)
    assert_same_weights(tmp_path / "out", undropped)


def test_a_collapse_draws_a_warning(args, capfd):
    run_classifier.run(
        dataclasses.replace(
            args, train_step=1, warmup_step=0, learning_rate=1e-9
        )
    )
    assert "WARNING: The" in capfd.readouterr().err


def test_random_weights_need_from_scratch(args, model, tmp_path, capfd):
    args = dataclasses.replace(
        args,
        init_checkpoint=None,
        from_scratch=True,
        albert_config_file=str(model / "albert_config.json"),
        vocab_file=str(model / "vocab.txt"),
        train_step=1,
        warmup_step=0,
        do_predict=False,
    )
    run_classifier.run(args)
    assert "Starting from random weights" in capfd.readouterr().err
