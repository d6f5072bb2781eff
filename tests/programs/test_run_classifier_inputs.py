"""run_classifier: accepted models, tables and tasks."""

import dataclasses
import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.commands.export_to_tfhub import ExportFlags
from albert_tf.commands.initialize import InitializeFlags
from albert_tf.model import execution
from albert_tf.programs import (
    export_to_tfhub,
    finetuning,
    initialize,
    run_classifier,
)
from albert_tf.training import loop
from albert_tf.weights import checkpoints, task_heads
from tests import tiny
from tests.programs import classifier_runs as runs
from tests.text.test_tokenization import train_model


@pytest.fixture
def args(tmp_path, model):
    """Flags of a run of twelve steps."""
    return runs.build_args(tmp_path, model)


def test_an_exported_encoder_starts_like_its_checkpoint(args, tmp_path, model):
    export_to_tfhub.run(
        ExportFlags(
            albert_directory=str(model),
            export_path=str(tmp_path / "hub"),
            with_preprocessor=False,
        )
    )
    args = dataclasses.replace(
        args, do_predict=False, train_step=2, warmup_step=0
    )
    run_classifier.run(args)
    from_hub = dataclasses.replace(
        args,
        init_checkpoint=None,
        albert_hub_module_handle=str(tmp_path / "hub"),
        output_dir=str(tmp_path / "again"),
    )
    run_classifier.run(from_hub)
    assert runs.results_of(tmp_path / "again") == runs.results_of(
        tmp_path / "out"
    )
    (tmp_path / "hub" / "assets" / "albert_config.json").unlink()
    with pytest.raises(ValueError, match="Give albert_config_file"):
        run_classifier.run(from_hub)


def test_commands_of_the_release_give_both_vocabularies(
    args, tmp_path, shared, caplog
):
    """Of which its run_glue.sh names one that need not exist."""
    folder = tmp_path / "pieces"
    initialize.run(
        InitializeFlags(
            albert_config_file=write_config(tmp_path, 30000),
            spm_model_file=f"{shared}/data/albert_en/30k-clean.model",
            format="tf1",
            to=str(folder),
        )
    )
    run_classifier.run(
        dataclasses.replace(
            args,
            init_checkpoint=str(folder),
            albert_config_file=str(folder / "albert_config.json"),
            spm_model_file=str(folder / "30k-clean.model"),
            vocab_file=str(folder / "vocab.txt"),
            train_step=1,
            warmup_step=0,
        )
    )
    assert "is ignored" in caplog.text


def write_config(folder, vocab_size):
    config = dataclasses.replace(tiny.CONFIG, vocab_size=vocab_size)
    path = folder / "pieces.json"
    path.write_text(json.dumps(config.to_dict()))
    return str(path)


def test_what_cannot_be_exported_is_not_trained(args, tmp_path, monkeypatch):
    monkeypatch.setattr(execution, "MAX_CONSTANT_BYTES", 1)
    args = dataclasses.replace(
        args, export_dir=str(tmp_path / "served"), export_compact=True
    )
    with pytest.raises(ValueError, match="compact SavedModel"):
        run_classifier.run(args)
    assert not task_heads.find_trained(tmp_path / "out")


def test_several_runs_have_seeds_of_their_own(args, tmp_path, capfd):
    args = dataclasses.replace(
        args, num_runs=3, train_step=2, warmup_step=0, do_predict=False
    )
    run_classifier.run(args)
    out = tmp_path / "out"
    weights = [
        checkpoints.read_checkpoint(out / f"run_{i}" / "model.ckpt-2")
        for i in (1, 2, 3)
    ]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        gap = weights[one]["output_weights"] - weights[other]["output_weights"]
        assert np.abs(gap).max() > 1e-3
    summary = json.loads((out / "summary.json").read_text())
    scores = [run["best"]["eval_accuracy"] for run in summary["runs"]]
    assert summary["median"] == np.median(scores)
    assert summary["spread"] == pytest.approx(np.std(scores, ddof=1))
    assert "3 runs: best eval_accuracy has median" in capfd.readouterr().out
    alone = dataclasses.replace(
        args, num_runs=1, do_train=False, init_checkpoint=None
    )
    with pytest.raises(ValueError, match="several runs.*output_dir=.*run_1"):
        run_classifier.run(alone)


def test_a_folder_has_either_a_single_run_or_several(args, tmp_path):
    several = dataclasses.replace(args, num_runs=3)
    without_start = dataclasses.replace(args, init_checkpoint=None)
    prefix = tmp_path / "out" / "model.ckpt-2"
    checkpoints.write_checkpoint(prefix, {"a": np.ones(3)})
    with pytest.raises(ValueError, match="has a single run. For --num_runs=3"):
        finetuning.check_start_and_outputs(several)
    finetuning.check_start_and_outputs(without_start)
    checkpoints.remove_checkpoint(str(prefix))
    prefix = tmp_path / "out" / "run_1" / "model.ckpt-2"
    checkpoints.write_checkpoint(prefix, {"a": np.ones(3)})
    for alone in (args, without_start):
        with pytest.raises(ValueError, match="several runs.*--num_runs"):
            finetuning.check_start_and_outputs(alone)
    finetuning.check_start_and_outputs(several)


def check_dev_predictions(folder, objective, best):
    """Scores what was written of dev data, which must give the best result."""
    dev = [json.loads(x) for x in runs.read_lines(folder / runs.DEV_FILE)]
    assert {row["step"] for row in dev} == {best["global_step"]}
    assert all(len(row["text"]) == 2 for row in dev)
    pairs = [(row["label"], row["prediction"]) for row in dev]
    if objective == "regression":
        score = np.mean([(y - z) ** 2 for y, z in pairs])
        wanted = best["eval_loss"]
    elif objective == "classes":
        score, wanted = (
            np.mean([y == z for y, z in pairs]),
            best["eval_accuracy"],
        )
    else:
        common = 2 * sum(len({*y} & {*z}) for y, z in pairs)
        score = common / sum(len(y) + len(z) for y, z in pairs)
        wanted = best["f1"]
    assert score == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("objective", ["classes", "regression", "multi_label"])
def test_any_table_is_learned(args, tmp_path, objective):
    lines = ["label,first,second"]
    for text, label in runs.make_rows(120, seed=4):
        value = {
            "classes": ["no, never", "yes"][label],
            "regression": 2.5 * label,
            "multi_label": ["odd;new", "odd"][label],
        }[objective]
        lines.append(f'"{value}","{text}",w3 w4')
    (tmp_path / "data" / "train.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "data" / "test.csv").write_text("\n".join(lines[:9]) + "\n")
    args = dataclasses.replace(
        runs.with_config(
            args,
            tmp_path,
            objective=objective,
            label_separator=";",
            dev_share=0.2,
        ),
        train_step=2,
        warmup_step=0,
        export_dir=str(tmp_path / "export"),
        threshold_to_export=0.25,
    )
    run_classifier.run(args)
    rows = runs.read_lines(tmp_path / "out" / "mine.tsv")
    known = {
        "classes": {"no, never", "yes"},
        "multi_label": {"", "odd", "new", "new;odd"},
    }
    predictions = {row.split("\t")[1] for row in rows[1:]}
    if objective == "regression":
        assert all(np.isfinite(float(x)) for x in predictions)
    else:
        assert predictions <= known[objective]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["test"][0]["mine"].keys() == summary["baseline"].keys()
    check_dev_predictions(tmp_path / "out", objective, summary["best"])
    # Its labels are the table's, not those of a model with other names.
    if objective == "classes":
        head = {"kind": "classes", "labels": ["NO", "YES"]}
        shutil.copytree(tmp_path / "out", tmp_path / "renamed")
        (tmp_path / "renamed" / "head.json").write_text(json.dumps(head))
        run_classifier.run(
            dataclasses.replace(
                args,
                do_train=False,
                init_checkpoint=str(tmp_path / "renamed"),
                output_dir=str(tmp_path / "scores"),
                export_dir=None,
            )
        )
        assert runs.read_lines(tmp_path / "scores" / "mine.tsv") == rows
    # What was fine-tuned needs no training data.
    (tmp_path / "data" / "train.csv").unlink()
    again = dataclasses.replace(
        args,
        do_train=False,
        do_eval=False,
        init_checkpoint=None,
        export_dir=None,
    )
    run_classifier.run(again)
    assert runs.read_lines(tmp_path / "out" / "mine.tsv") == rows
    shutil.rmtree(tmp_path / "export")
    run_classifier.run(
        dataclasses.replace(
            args,
            do_train=False,
            do_eval=False,
            do_predict=False,
            init_checkpoint=str(tmp_path / "out"),
            output_dir=str(tmp_path / "again"),
        )
    )
    (folder,) = (tmp_path / "export").iterdir()
    if objective != "regression":
        labels = runs.read_lines(folder / "assets" / "labels.txt")
        assert labels == sorted(labels) and len(labels) == 2
    assert (folder / "assets" / "albert_config.json").exists()
    assert (folder / "assets" / "vocab.txt").exists()
    outputs = tf.saved_model.load(folder).signatures["ids"](
        **{
            name: tf.constant([[1]])
            for name in ("input_ids", "input_mask", "segment_ids")
        }
    )
    assert outputs["threshold"] == 0.25


_MNLI_LABELS = ["neutral", "entailment"]


def test_mnli_is_scored_on_both_dev_sets(args, tmp_path):
    for split in ("train", "dev_matched", "dev_mismatched", "test_matched"):
        rows = [
            "\t".join([str(i), *["x"] * 7, text, "w3", _MNLI_LABELS[label]])
            for i, (text, label) in enumerate(
                runs.make_rows(24, seed=len(split))
            )
        ]
        header = "\t".join(["h"] * 11)
        path = tmp_path / "data" / "MNLI" / f"{split}.tsv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join([header, *rows]) + "\n")
    args = dataclasses.replace(args, task_name="mnli", train_step=3)
    run_classifier.run(args)
    (found,) = runs.results_of(tmp_path / "out")
    assert {"eval_accuracy", "mismatched_eval_accuracy"} <= set(found)
    assert (tmp_path / "out" / "MNLI-m.tsv").exists()
    assert not (tmp_path / "out" / "MNLI-mm.tsv").exists()


def damage(args, tmp_path, what):
    """Damages data or flags; returns the flags."""
    data = tmp_path / "data" / "SST-2"
    rows = runs.make_rows(1500, seed=1)
    if what == "label":
        rows[1233] = rows[1233][0], "maybe"
        runs.write_table(data / "train.tsv", rows)
    elif what == "columns":
        runs.write_table(data / "train.tsv", rows)
        lines = runs.read_lines(data / "train.tsv")
        lines[1234] = lines[1234].replace("\t", " ")
        (data / "train.tsv").write_text("\n".join(lines) + "\n")
    elif what == "empty":
        (data / "dev.tsv").write_text("")
    elif what == "no dev":
        (data / "dev.tsv").unlink()
    else:
        return dataclasses.replace(args, **what)
    return args


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        ("label", ValueError, r"train.tsv, line 1235: label 'maybe'; known: 0"),
        ("columns", ValueError, r"train.tsv, line 1235: found 1 columns, want"),
        ("empty", ValueError, r"dev.tsv has no rows"),
        ("no dev", FileNotFoundError, r"dev.tsv"),
        ({"init_checkpoint": None}, ValueError, "give --from_scratch"),
        ({"from_scratch": True}, ValueError, "--from_scratch contradicts"),
        ({"max_seq_length": 64}, ValueError, "has 32 positions"),
        ({"task_name": "cols"}, ValueError, "cols; known: cola, sst-2"),
        ({"task_name": None}, ValueError, "either --task_name or"),
        ({"bucket_lengths": "a"}, ValueError, "wanted numbers of tokens"),
        ({"task_name": "ax"}, ValueError, "--do_train: ax has no data for"),
        ({"num_runs": 0}, ValueError, "wanted at least 1"),
        ({"warmup_step": 12}, ValueError, "steps: 12, including 12 warmup"),
        ({"init_checkpoint": "nowhere"}, FileNotFoundError, "nowhere"),
        (
            {"do_train": False, "do_eval": False, "do_predict": False},
            ValueError,
            "nothing to do",
        ),
        (
            {"distribution": "mirrored", "train_batch_size": 7},
            ValueError,
            "train_batch_size=7 is a global batch size",
        ),
        (
            {"distribution": "mirrored", "xla": True},
            ValueError,
            "one device, but 2 are",
        ),
        (
            {"init_checkpoint": "https://there/albert_base_v2.tar.gz"},
            ValueError,
            "is not on this machine. Download it",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_training(
    args, tmp_path, monkeypatch, what, error, message
):
    def fail(*args, **kwargs):
        raise AssertionError("trained")

    monkeypatch.setattr(loop, "train", fail)
    with pytest.raises(error, match=message):
        run_classifier.run(damage(args, tmp_path, what))
    assert not (tmp_path / "out" / "albert_config.json").exists()


def test_an_absurd_number_of_steps_is_refused_before_anything_is_written(args):
    args = dataclasses.replace(args, train_step=10**8)
    with pytest.raises(ValueError, match="100,000,000 steps of 8 examples"):
        run_classifier.run(args)
    assert not os.path.exists(args.output_dir)


def test_another_vocabulary_is_refused(args, tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*tiny.SPECIAL, *tiny.WORDS, "more"]) + "\n")
    with pytest.raises(ValueError, match="has 26 pieces, the model 25"):
        run_classifier.run(dataclasses.replace(args, vocab_file=str(path)))


def test_predictions_never_replace_the_data(args, tmp_path):
    path = tmp_path / "mine.tsv"
    path.write_text("label\tfirst\n" + "0\tw1\n1\tw2\n" * 9)
    before = path.read_text()
    args = dataclasses.replace(
        runs.with_config(
            args,
            tmp_path,
            train="mine.tsv",
            test="mine.tsv",
            format="tsv",
            text="first",
        ),
        data_dir=str(tmp_path),
        output_dir=str(tmp_path),
    )
    with pytest.raises(ValueError, match="overwrite .*mine.tsv.*--data_dir"):
        run_classifier.run(args)
    assert path.read_text() == before


def test_the_fine_tuned_labels_serve_without_the_training_data(args, tmp_path):
    """Also if the flags still name the model that training began with."""
    labels = "no", "yes"
    rows = [(text, labels[y]) for text, y in runs.make_rows(30, seed=4)]
    for name in ("train", "test"):
        runs.write_table(tmp_path / "data" / f"{name}.tsv", rows)
    args = dataclasses.replace(
        runs.with_config(
            args,
            tmp_path,
            train="train.tsv",
            test="test.tsv",
            format="tsv",
            text="sentence",
        ),
        train_step=2,
        warmup_step=0,
    )
    run_classifier.run(args)
    wanted = runs.read_lines(tmp_path / "out" / "mine.tsv")
    (tmp_path / "data" / "train.tsv").unlink()
    (tmp_path / "out" / "mine.tsv").unlink()
    run_classifier.run(dataclasses.replace(args, do_train=False, do_eval=False))
    assert runs.read_lines(tmp_path / "out" / "mine.tsv") == wanted


@pytest.mark.parametrize("has_pairs", [True, False])
def test_a_text_classifier_predicts_like_the_run(args, tmp_path, has_pairs):
    rows = [
        f"{label},{text},w3 w4" for text, label in runs.make_rows(30, seed=4)
    ]
    lines = ["label,first,second", *rows]
    for name in ("train", "test"):
        path = tmp_path / "data" / f"{name}.csv"
        path.write_text("\n".join(lines) + "\n")
    text = ["first", "second"][: 1 + has_pairs]
    args = dataclasses.replace(
        runs.with_config(args, tmp_path, text=text),
        do_eval=False,
        train_step=4,
        learning_rate=0.01,
        export_text_dir=str(tmp_path / "text"),
    )
    run_classifier.run(args)
    (folder,) = (tmp_path / "text").iterdir()
    assets = {path.name for path in (folder / "assets").iterdir()}
    assert assets >= {"albert_config.json", "labels.txt", "vocab.txt"}
    signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
    cells = np.array([row.split(",") for row in rows])
    names = ("text_a", "text_b")[: 1 + has_pairs]
    found = signature(
        **{n: tf.constant(cells[:, i]) for i, n in enumerate(names, 1)}
    )
    wanted = np.loadtxt(tmp_path / "out" / "test_results.tsv")
    np.testing.assert_allclose(found["probabilities"], wanted, atol=1e-5)


def test_pieces_that_a_graph_cannot_find_are_refused_before_training(
    args, model, tmp_path
):
    unrecorded = shutil.ignore_patterns("tokenizer_settings.json", "vocab.txt")
    shutil.copytree(model, tmp_path / "model", ignore=unrecorded)
    path = tmp_path / "bpe.model"
    lines = [" ".join(tiny.WORDS)] * 9
    path.write_bytes(train_model(lines, model_type="bpe", vocab_size=25))
    args = dataclasses.replace(
        args,
        init_checkpoint=str(tmp_path / "model"),
        spm_model_file=str(path),
        export_text_dir=str(tmp_path / "text"),
    )
    with pytest.raises(ValueError, match="bpe; only plain unigram"):
        run_classifier.run(args)
    assert not (tmp_path / "out").exists()
