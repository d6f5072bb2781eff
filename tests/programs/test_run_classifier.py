"""The classifier's program: trains, stops, goes on, predicts, refuses."""

import dataclasses
import functools
import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data import examples
from albert_tf.model import heads
from albert_tf.programs import export_to_tfhub, finetuning, run_classifier
from albert_tf.training import distribution, evaluation, loop
from albert_tf.weights import checkpoints, pretrained
from tests import tiny


def make_rows(num_rows, seed):
    """Texts of 1 to 15 words, and whether "w1" is among them."""
    rng = np.random.default_rng(seed)
    texts = [
        " ".join(rng.choice(tiny.WORDS, rng.integers(1, 16)))
        for _ in range(num_rows)
    ]
    return [(text, int("w1" in text.split())) for text in texts]


def write_table(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["sentence\tlabel", *(f"{text}\t{label}" for text, label in rows)]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Folder of a model with random weights, and its vocabulary."""
    return tiny.write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def args(tmp_path, model):
    """Flags of a run of twelve steps on SST-2's form."""
    data = tmp_path / "data" / "SST-2"
    write_table(data / "train.tsv", make_rows(60, seed=1))
    write_table(data / "dev.tsv", make_rows(21, seed=2))
    # The server's index, of some rows in another order.
    rows = [
        (str(80 - 7 * i), text)
        for i, (text, _) in enumerate(make_rows(9, seed=3))
    ]
    write_table(data / "test.tsv", rows)
    return run_classifier.ClassifierFlags(
        task_name="sst-2",
        data_dir=str(tmp_path / "data"),
        output_dir=str(tmp_path / "out"),
        init_checkpoint=str(model),
        do_train=True,
        do_eval=True,
        do_predict=True,
        train_batch_size=8,
        eval_batch_size=8,
        predict_batch_size=8,
        learning_rate=1e-3,
        train_step=12,
        warmup_step=2,
        save_checkpoints_steps=4,
        log_every_steps=4,
        max_seq_length=16,
        bucket_lengths="",
    )


def read_lines(path):
    return path.read_text().splitlines()


def results_of(folder):
    blocks = (folder / "eval_results.txt").read_text().split(evaluation.HEADER)
    return [dict(x.split(" = ") for x in b.splitlines()) for b in blocks[1:]]


def test_a_run_writes_what_the_releases_writes(args, tmp_path, capfd):
    run_classifier.run(dataclasses.replace(args, bucket_lengths="8"))
    out = tmp_path / "out"
    assert [r["global_step"] for r in results_of(out)] == ["4", "8", "12"]
    for name in ("eval_accuracy", "eval_loss"):
        assert all(name in result for result in results_of(out))
    best = checkpoints.read_checkpoint(out / "model.ckpt-best")
    accuracies = [float(r["eval_accuracy"]) for r in results_of(out)]
    assert best["global_step"] == 4 * (1 + np.argmax(accuracies))
    assert best["output_weights"].shape == (2, 12)
    chances = np.loadtxt(out / "test_results.tsv", delimiter="\t")
    assert chances.shape == (9, 2)
    np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-6)
    submitted = [x.split("\t") for x in read_lines(out / "submit_results.tsv")]
    assert submitted[0] == ["index", "prediction"]
    assert [index for index, _ in submitted[1:]] == [
        str(80 - 7 * i) for i in range(9)
    ]
    predictions = [int(prediction) for _, prediction in submitted[1:]]
    assert predictions == chances.argmax(axis=1).tolist()
    assert read_lines(out / "SST-2.tsv") == read_lines(
        out / "submit_results.tsv"
    )
    said = capfd.readouterr()
    assert "new: output_bias, output_weights" in said.err
    assert "Dropout: hidden 0.1, attention 0.0, classifier 0.1" in said.err
    assert "best on dev" in said.out and "baseline" in said.out
    summary = json.loads((out / "summary.json").read_text())
    assert summary["last"]["global_step"] == 12
    assert summary["best"]["eval_accuracy"] == max(accuracies)
    # The folder is a model: what is beside the weights is enough to read it.
    again = dataclasses.replace(
        args,
        init_checkpoint=None,
        do_train=False,
        do_eval=False,
        albert_config_file=None,
    )
    before = read_lines(out / "test_results.tsv")
    (out / "test_results.tsv").unlink()
    run_classifier.run(again)
    assert read_lines(out / "test_results.tsv") == before


def weights_of(folder):
    values = checkpoints.read_checkpoint(folder / "model.ckpt-12")
    return {n: v for n, v in values.items() if not checkpoints.is_slot(n)}


def test_a_run_that_was_stopped_ends_as_one_that_was_not(
    args, tmp_path, monkeypatch, capfd
):
    args = dataclasses.replace(args, do_predict=False, bucket_lengths="8")
    whole = dataclasses.replace(args, output_dir=str(tmp_path / "whole"))
    run_classifier.run(whole)
    original = evaluation.Evaluator.evaluate

    def stop(evaluator, step, prefix=None):
        if step == 8:
            raise KeyboardInterrupt
        return original(evaluator, step, prefix)

    monkeypatch.setattr(evaluation.Evaluator, "evaluate", stop)
    with pytest.raises(KeyboardInterrupt):
        run_classifier.run(args)
    assert [r["global_step"] for r in results_of(tmp_path / "out")] == ["4"]
    monkeypatch.undo()
    run_classifier.run(args)
    assert results_of(tmp_path / "out") == results_of(tmp_path / "whole")
    wanted = weights_of(tmp_path / "whole")
    for name, value in weights_of(tmp_path / "out").items():
        np.testing.assert_array_equal(value, wanted[name], err_msg=name)
    capfd.readouterr()
    run_classifier.run(args)
    assert "trained for 12 steps: nothing to do" in capfd.readouterr().err
    assert len(results_of(tmp_path / "out")) == 3


def test_an_exported_encoder_begins_as_its_checkpoint_does(
    args, tmp_path, model
):
    export_to_tfhub.run(
        export_to_tfhub.ExportFlags(
            albert_directory=str(model),
            export_path=str(tmp_path / "hub"),
            with_preprocessor=False,
        )
    )
    args = dataclasses.replace(args, do_predict=False, train_step=4)
    run_classifier.run(args)
    run_classifier.run(
        dataclasses.replace(
            args,
            init_checkpoint=None,
            albert_hub_module_handle=str(tmp_path / "hub"),
            output_dir=str(tmp_path / "again"),
        )
    )
    assert results_of(tmp_path / "again") == results_of(tmp_path / "out")


def test_a_folder_is_evaluated_afterwards(args, tmp_path, capfd):
    only_train = dataclasses.replace(args, do_eval=False, do_predict=False)
    run_classifier.run(only_train)
    only_eval = dataclasses.replace(args, do_train=False, do_predict=False)
    run_classifier.run(only_eval)
    steps = [r["global_step"] for r in results_of(tmp_path / "out")]
    assert steps == ["4", "8", "12"]
    both = dataclasses.replace(
        args, output_dir=str(tmp_path / "both"), do_predict=False
    )
    run_classifier.run(both)
    assert results_of(tmp_path / "out") == results_of(tmp_path / "both")


def test_a_fine_tuned_model_is_evaluated_where_it_lies(args, tmp_path):
    run_classifier.run(dataclasses.replace(args, do_predict=False))
    best = tmp_path / "out" / "model.ckpt-best"
    elsewhere = dataclasses.replace(
        args,
        init_checkpoint=str(best),
        output_dir=str(tmp_path / "elsewhere"),
        do_train=False,
    )
    run_classifier.run(elsewhere)
    (found,) = results_of(tmp_path / "elsewhere")
    accuracies = [r["eval_accuracy"] for r in results_of(tmp_path / "out")]
    assert found["eval_accuracy"] == max(accuracies)
    assert (tmp_path / "elsewhere" / "SST-2.tsv").exists()


@pytest.fixture(scope="module")
def fine_tuned(model, tmp_path_factory):
    """A model with a head, trained for a few steps."""
    folder = tmp_path_factory.mktemp("fine_tuned")
    write_table(folder / "SST-2" / "train.tsv", make_rows(60, seed=1))
    run_classifier.run(
        run_classifier.ClassifierFlags(
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


def build_run(args, fine_tuned, **kwargs):
    """A Run that predicts with a fine-tuned model."""
    args = dataclasses.replace(
        args, init_checkpoint=str(fine_tuned), do_train=False, **kwargs
    )
    start, config = finetuning.read_start(args)
    run = finetuning.Run(
        args,
        0,
        functools.partial(heads.AlbertClassifier, num_labels=2),
        start,
        config,
        distribution.build_strategy_of(args),
        num_examples=0,
    )
    run.restore_best()
    return run


def test_rows_out_are_rows_in(args, fine_tuned):
    found = pretrained.read_pretrained(fine_tuned)
    model = pretrained.build_model(
        lambda config: heads.AlbertClassifier(config, num_labels=2), found
    )
    texts = [text for text, _ in make_rows(9, seed=3)]
    sequences = examples.pack_pairs(found.tokenizer, texts, [None] * 9, 16)
    rows = examples.Examples(*sequences, {})
    wanted = [
        model(examples.pad_examples(rows, [row], length))["logits"][0]
        for row, length in enumerate(rows.lengths)
    ]
    for kwargs in (
        {"bucket_lengths": ""},
        {"bucket_lengths": "4,8,12"},
        {"bucket_lengths": "8", "distribution": "mirrored"},
    ):
        run = build_run(args, fine_tuned, **kwargs)
        for num_rows in (1, 7, 8, 9):
            end = rows.lengths[:num_rows].sum()
            some = examples.Examples(
                rows.ids[:end],
                rows.lengths[:num_rows],
                rows.first_lengths[:num_rows],
                {},
            )
            logits = run.predict(some)["logits"]
            assert logits.shape == (num_rows, 2)
            np.testing.assert_allclose(logits, wanted[:num_rows], atol=1e-5)


def test_training_on_two_replicas_is_training_on_one(args, tmp_path):
    args = dataclasses.replace(
        args,
        do_predict=False,
        hidden_dropout_prob=0.0,
        classifier_dropout=0.0,
    )
    run_classifier.run(args)
    other = dataclasses.replace(
        args, output_dir=str(tmp_path / "two"), distribution="mirrored"
    )
    run_classifier.run(other)
    wanted = weights_of(tmp_path / "out")
    for name, value in weights_of(tmp_path / "two").items():
        np.testing.assert_allclose(value, wanted[name], atol=2e-5, err_msg=name)


def test_padding_further_does_not_change_training(args, tmp_path, monkeypatch):
    """The same batches, padded to their buckets and to the whole length."""
    args = dataclasses.replace(
        args,
        do_eval=False,
        do_predict=False,
        hidden_dropout_prob=0.0,
        classifier_dropout=0.0,
        bucket_lengths="8",
    )
    run_classifier.run(args)
    plan_training = finetuning.batches.plan_training

    def plan_padded(*args):
        plan = plan_training(*args)
        assert set(plan.lengths) == {8, 16}
        return plan._replace(lengths=np.full_like(plan.lengths, 16))

    monkeypatch.setattr(finetuning.batches, "plan_training", plan_padded)
    other = dataclasses.replace(args, output_dir=str(tmp_path / "padded"))
    run_classifier.run(other)
    wanted = weights_of(tmp_path / "out")
    for name, value in weights_of(tmp_path / "padded").items():
        np.testing.assert_allclose(value, wanted[name], atol=2e-5, err_msg=name)


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


def write_config(tmp_path, **kwargs):
    path = tmp_path / "task.json"
    path.write_text(
        json.dumps(
            {
                "name": "mine",
                "train": "train.csv",
                "test": "test.csv",
                "format": "csv",
                "text": ["first", "second"],
                "label": "label",
                **kwargs,
            }
        )
    )
    return str(path)


@pytest.mark.parametrize("objective", ["classes", "regression", "multi_label"])
def test_any_table_is_learned(args, tmp_path, objective):
    lines = ["label,first,second"]
    for text, label in make_rows(120, seed=4):
        value = {
            "classes": ["no, never", "yes"][label],
            "regression": 2.5 * label,
            "multi_label": ["odd;new", "odd"][label],
        }[objective]
        lines.append(f'"{value}","{text}",w3 w4')
    (tmp_path / "data" / "train.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "data" / "test.csv").write_text("\n".join(lines[:9]) + "\n")
    args = dataclasses.replace(
        args,
        task_name=None,
        task_config=write_config(
            tmp_path, objective=objective, label_separator=";", dev_share=0.2
        ),
        train_step=4,
        export_dir=str(tmp_path / "export"),
    )
    run_classifier.run(args)
    rows = read_lines(tmp_path / "out" / "mine.tsv")
    known = {
        "classes": {"no, never", "yes"},
        "multi_label": {"", "odd", "new", "new,odd"},
    }
    predictions = {row.split("\t")[1] for row in rows[1:]}
    if objective == "regression":
        assert all(np.isfinite(float(x)) for x in predictions)
    else:
        assert predictions <= known[objective]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["test"][0]["mine"].keys() == summary["baseline"].keys()
    (folder,) = (tmp_path / "export").iterdir()
    if objective != "regression":
        labels = read_lines(folder / "assets" / "labels.txt")
        assert labels == sorted(labels) and len(labels) == 2
    assert (folder / "assets" / "albert_config.json").exists()
    assert (folder / "assets" / "vocab.txt").exists()


_MNLI_LABELS = ["neutral", "entailment"]


def test_mnli_is_scored_on_both_dev_sets(args, tmp_path):
    for split in ("train", "dev_matched", "dev_mismatched", "test_matched"):
        rows = [
            "\t".join([str(i), *["x"] * 7, text, "w3", _MNLI_LABELS[label]])
            for i, (text, label) in enumerate(make_rows(24, seed=len(split)))
        ]
        header = "\t".join(["h"] * 11)
        path = tmp_path / "data" / "MNLI" / f"{split}.tsv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join([header, *rows]) + "\n")
    args = dataclasses.replace(args, task_name="mnli", train_step=3)
    run_classifier.run(args)
    (found,) = results_of(tmp_path / "out")
    assert {"eval_accuracy", "mismatched_eval_accuracy"} <= set(found)
    assert (tmp_path / "out" / "MNLI-m.tsv").exists()
    assert not (tmp_path / "out" / "MNLI-mm.tsv").exists()


def damage(args, tmp_path, what):
    """Damages data or flags; returns the flags."""
    data = tmp_path / "data" / "SST-2"
    rows = make_rows(1500, seed=1)
    if what == "label":
        rows[1233] = rows[1233][0], "maybe"
        write_table(data / "train.tsv", rows)
    elif what == "columns":
        write_table(data / "train.tsv", rows)
        lines = read_lines(data / "train.tsv")
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
        ({"init_checkpoint": None}, ValueError, "say --from_scratch"),
        ({"from_scratch": True}, ValueError, "--from_scratch contradicts"),
        ({"max_seq_length": 64}, ValueError, "has 32 positions"),
        ({"task_name": "cols"}, ValueError, "cols; known: cola, sst-2"),
        ({"task_name": None}, ValueError, "either --task_name or"),
        ({"bucket_lengths": "a"}, ValueError, "wanted numbers of tokens"),
        ({"task_name": "ax"}, ValueError, "--do_train: ax has no data for"),
        ({"num_runs": 0}, ValueError, "wanted at least 1"),
        ({"warmup_step": 12}, ValueError, "12 training steps with 12 of"),
        ({"init_checkpoint": "nowhere"}, FileNotFoundError, "nowhere"),
        (
            {"do_train": False, "do_eval": False, "do_predict": False},
            ValueError,
            "nothing to do",
        ),
        (
            {"distribution": "mirrored", "train_batch_size": 7},
            ValueError,
            "train_batch_size=7 is the global batch",
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


def test_a_collapse_is_said(args, capfd):
    run_classifier.run(
        dataclasses.replace(
            args, train_step=1, warmup_step=0, learning_rate=1e-9
        )
    )
    assert "WARNING: The" in capfd.readouterr().err


def test_random_weights_are_asked_for(args, model, tmp_path, capfd):
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
    assert "Begins with random weights" in capfd.readouterr().err


def test_all_flags_of_the_release_are_there(shared):
    path = shared / "spec" / "original_flags.json"
    theirs = json.loads(path.read_text())["run_classifier"]
    ours = run_classifier.ClassifierFlags.__dataclass_fields__
    assert set(theirs) <= set(ours)


@pytest.mark.parametrize("has_pairs", [True, False])
def test_a_classifier_of_text_gives_the_predictions_of_the_run(
    args, tmp_path, has_pairs
):
    rows = [f"{label},{text},w3 w4" for text, label in make_rows(30, seed=4)]
    lines = ["label,first,second", *rows]
    for name in ("train", "test"):
        path = tmp_path / "data" / f"{name}.csv"
        path.write_text("\n".join(lines) + "\n")
    text = ["first", "second"][: 1 + has_pairs]
    args = dataclasses.replace(
        args,
        task_name=None,
        task_config=write_config(tmp_path, text=text),
        do_eval=False,
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


def test_kept_accents_are_refused_before_training(args, model, tmp_path):
    shutil.copytree(model, tmp_path / "model")
    path = tmp_path / "model" / "tokenizer_settings.json"
    settings = json.loads(path.read_text()) | {"keep_accents": True}
    path.write_text(json.dumps(settings))
    args = dataclasses.replace(
        args,
        init_checkpoint=str(tmp_path / "model"),
        export_text_dir=str(tmp_path / "text"),
    )
    with pytest.raises(ValueError, match="keep_accents"):
        run_classifier.run(args)
    assert not (tmp_path / "out").exists()


def test_a_hub_module_trains_as_its_checkpoint_does(args, model, tmp_path):
    export_to_tfhub.run(
        export_to_tfhub.ExportFlags(
            albert_directory=str(model),
            export_path=str(tmp_path / "hub"),
            with_preprocessor=False,
        )
    )
    args = dataclasses.replace(args, do_predict=False, train_step=4)
    from_hub = dataclasses.replace(
        args,
        init_checkpoint=None,
        albert_hub_module_handle=str(tmp_path / "hub"),
        output_dir=str(tmp_path / "from_hub"),
    )
    for each in (args, from_hub):
        run_classifier.run(each)
    wanted, found = (
        results_of(tmp_path / name)[-1]["eval_loss"]
        for name in ("out", "from_hub")
    )
    assert found == wanted
    (tmp_path / "hub" / "assets" / "albert_config.json").unlink()
    with pytest.raises(ValueError, match="give --albert_config_file"):
        run_classifier.run(from_hub)
