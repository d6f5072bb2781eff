"""Ensembles: averages of outputs, and what tasks make of them."""

import collections
import dataclasses
import json
import math

import numpy as np
import pytest

from albert_tf import Classifier
from albert_tf.data import answers
from albert_tf.programs import run_classifier, run_squad
from albert_tf.tasks.classification import Classification
from albert_tf.tasks.ensembles import Ensemble, average
from albert_tf.tasks.finetuning import FineTuning
from albert_tf.tasks.recipes import ExitSettings, Recipe, VectorSettings
from albert_tf.tasks.vectors import Vectors
from albert_tf.training import results_file
from albert_tf.weights import pretrained, task_heads
from tests import runs, tiny
from tests.programs import classifier_runs, test_run_squad


def softmax(row):
    odds = [math.exp(x) for x in row]
    return [x / sum(odds) for x in odds]


def draw(*shape, count=3):
    rng = np.random.default_rng(1)
    return [rng.normal(0, 2, shape).astype(np.float32) for _ in range(count)]


@pytest.mark.parametrize("kind", ["classes", "choices", "tags"])
def test_classes_have_their_mean_probabilities(kind):
    logits = draw(4, 5)
    logits[1][2, 3] = -np.inf  # A question has fewer options.
    logits[0][2, 3] = logits[2][2, 3] = -np.inf
    if kind == "tags":
        logits = [x[:, np.newaxis] for x in logits]
    found = average([{"logits": x} for x in logits], kind)["logits"]
    assert found.shape == logits[0].shape
    for row, models in zip(
        found.reshape(4, 5),
        np.reshape(logits, (3, 4, 5)).swapaxes(0, 1),
        strict=True,
    ):
        wanted = np.mean([softmax(x) for x in models.tolist()], axis=0)
        np.testing.assert_allclose(softmax(row.tolist()), wanted, atol=1e-12)


def test_each_label_has_its_mean_probability():
    logits = draw(4, 5)
    logits[0][0, 0] = 200  # 1 / (1 + exp(-200)) is 1 in float64.
    logits[1][0, 0] = -3
    found = average([{"logits": x} for x in logits], "multi_label")["logits"]
    means = np.mean([1 / (1 + np.exp(-x.astype(float))) for x in logits], 0)
    np.testing.assert_allclose(1 / (1 + np.exp(-found)), means, atol=1e-12)


@pytest.mark.parametrize("kind", ["regression", "spans", None])
def test_other_outputs_are_means(kind):
    first, second = draw(4, 3), draw(4, count=3)
    outputs = [{"a": a, "b": b} for a, b in zip(first, second, strict=True)]
    found = average(outputs, kind)
    np.testing.assert_allclose(found["a"], sum(first) / 3, rtol=1e-6)
    np.testing.assert_allclose(found["b"], sum(second) / 3, rtol=1e-6)


def test_other_outputs_of_a_classifier_are_means():
    first, second = draw(4, 2, count=2)
    outputs = [{"logits": x, "margin": x[:, 1]} for x in (first, second)]
    found = average(outputs, "classes")["margin"]
    np.testing.assert_allclose(found, (first + second)[:, 1] / 2, rtol=1e-6)


def test_cosines_of_vectors_are_means():
    vectors = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in draw(4, 6)]
    vectors[1] = vectors[1][:, :5]  # Sizes may differ.
    found = average([{"vectors": x} for x in vectors], "vectors")["vectors"]
    wanted = np.mean([x @ x.T for x in vectors], axis=0)
    np.testing.assert_allclose(found @ found.T, wanted, atol=1e-6)


def draw_beams(num_windows, num_models, num_starts=3, num_ends=2):
    """Beams of few tokens, so that several models have the same spans."""
    rng = np.random.default_rng(2)

    def choose(count):
        return rng.permuted(np.tile(np.arange(5), (num_windows, 1)), axis=1)[
            :, :count
        ].astype(np.int32)

    def log_probs(count):
        return np.log(rng.random((num_windows, count))).astype(np.float32)

    return [
        {
            "start_top_index": choose(num_starts),
            "start_top_log_probs": log_probs(num_starts),
            "end_top_index": np.concatenate(
                [choose(num_ends) for _ in range(num_starts)], axis=1
            ),
            "end_top_log_probs": log_probs(num_starts * num_ends),
            "cls_logits": rng.normal(size=num_windows).astype(np.float32),
        }
        for _ in range(num_models)
    ]


def list_spans(outputs, row):
    """Returns (start, end, start score, end score) of a window's beam."""
    return zip(*answers.pair_beam(outputs, row), strict=True)


def test_a_beam_has_the_spans_of_all_models_with_their_means():
    outputs = draw_beams(num_windows=6, num_models=3)
    joined = average(outputs, "conditional_spans")
    np.testing.assert_allclose(
        joined["cls_logits"], sum(x["cls_logits"] for x in outputs) / 3
    )
    num_shared = 0
    for row in range(6):
        wanted = collections.defaultdict(float)
        of_start = collections.defaultdict(float)
        for output in outputs:
            for start, log_prob in zip(
                output["start_top_index"][row],
                output["start_top_log_probs"][row],
                strict=True,
            ):
                of_start[start] += np.exp(log_prob) / 3
            for start, end, *scores in list_spans(output, row):
                num_shared += (start, end) in wanted
                wanted[start, end] += np.exp(sum(scores)) / 3
        found = {}
        for start, end, first, second in list_spans(joined, row):
            assert np.exp(first) == pytest.approx(of_start[start])
            probability = np.exp(first + second)
            found.setdefault((start, end), probability)
            assert found[start, end] == probability
        assert found == pytest.approx(wanted)
    assert num_shared > 5


def write_models(folder):
    """Writes three classifiers: one of other labels' order, one deeper."""
    for name in "abc":
        (folder / name).mkdir()
    deeper = dataclasses.replace(tiny.CONFIG, num_hidden_layers=3)
    return [
        tiny.write_classifier(folder / "a", labels=("0", "1"), seed=1),
        tiny.write_classifier(folder / "b", labels=("1", "0"), seed=2),
        tiny.write_classifier(
            folder / "c", labels=("0", "1"), seed=3, config=deeper
        ),
    ]


@pytest.fixture
def args(tmp_path):
    """Flags that score three models together."""
    write_models(tmp_path)
    return dataclasses.replace(
        classifier_runs.build_args(tmp_path, None),
        init_checkpoint=None,
        ensemble=f"{tmp_path}/[ab]/classes,{tmp_path}/c/classes",
        do_train=False,
    )


def read_dev(folder):
    lines = classifier_runs.read_lines(folder / classifier_runs.DEV_FILE)
    return [json.loads(line) for line in lines]


def test_the_program_scores_what_models_answer_together(args, tmp_path, capfd):
    run_classifier.run(args)
    out = tmp_path / "out"
    rows = read_dev(out)
    texts = [row["text"][0] for row in rows]
    answered = [
        Classifier(tmp_path / name / "classes", max_seq_length=16)(texts)
        for name in "abc"
    ]
    alone = [[x["probabilities"]["1"] for x in some] for some in answered]
    assert np.ptp(alone, axis=0).min() > 0.01
    wanted = np.mean(alone, axis=0)
    found = [row["probabilities"][1] for row in rows]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    predicted = [row["prediction"] for row in rows]
    assert predicted == ["01"[int(x > 0.5)] for x in wanted]
    assert len({*predicted}) == 2
    (scores,) = results_file.read_results(out)
    right = [row["prediction"] == row["label"] for row in rows]
    assert scores["eval_accuracy"] == pytest.approx(np.mean(right))
    said = capfd.readouterr()
    assert "its outputs are reordered" in said.err + said.out
    # The test data, later and alone.
    lines = (out / "SST-2.tsv").read_text()
    again = dataclasses.replace(args, do_eval=False)
    run_classifier.run(again)
    assert (out / "SST-2.tsv").read_text() == lines
    summary = json.loads((out / "summary.json").read_text())
    assert summary["best"] == scores
    names = [f"{tmp_path}/{name}/classes" for name in "bac"]
    # In another order, they are the same models.
    run_classifier.run(dataclasses.replace(args, ensemble=",".join(names)))
    two = dataclasses.replace(
        args, ensemble=f"{tmp_path}/a/classes,{tmp_path}/b/classes"
    )
    with pytest.raises(ValueError, match="scored.* other weights"):
        run_classifier.run(two)
    path = tmp_path / "b/classes/head.json"
    head = json.loads(path.read_text()) | {"lengths": {"max_seq_length": 9}}
    path.write_text(json.dumps(head))
    with pytest.raises(
        ValueError, match="b/.*max_seq_length=9.*with None. Give --max_"
    ):
        run_classifier.run(dataclasses.replace(two, max_seq_length=None))


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_two_copies_answer_questions_as_one(tmp_path, version):
    model = tiny.write_answering(tmp_path, version)
    args = test_run_squad.build_args(tmp_path, model)
    if version == "v2":
        args = test_run_squad.version_2(args)
    args = dataclasses.replace(args, do_train=False)
    run_squad.run(args)
    names = "predictions.json", "nbest_predictions.json"
    runs.check_two_copies(run_squad.run, args, *names, model=model)


def test_the_threshold_of_no_answer_is_the_mean(tmp_path, capfd):
    folders = []
    for seed, threshold in enumerate((-1.5, 4.0)):
        (tmp_path / str(seed)).mkdir()
        folders.append(
            tiny.write_answering(
                tmp_path / str(seed), "v2", threshold, seed=seed
            )
        )
    args = test_run_squad.build_args(tmp_path, None)
    args = dataclasses.replace(
        test_run_squad.version_2(args),
        predict_file=str(tmp_path / "asked.json"),
        init_checkpoint=None,
        ensemble=",".join(map(str, folders)),
        do_train=False,
    )
    run_squad.run(args)
    said = capfd.readouterr()
    assert "no-answer score below 1.25." in said.err + said.out
    found = [
        json.loads((tmp_path / "out" / name).read_text())
        for name in ("predictions.json", "null_odds.json")
    ]
    for name, text in found[0].items():
        assert (text == "") == (found[1][name] >= 1.25)
    # Of one model, it is unknown.
    (folders[1] / "head.json").write_text('{"kind": "conditional_spans"}')
    other = dataclasses.replace(args, output_dir=str(tmp_path / "other"))
    run_squad.run(other)
    assert "its best threshold is unknown" in capfd.readouterr().err


def build_task(start):
    return Classification.from_texts(
        start.tokenizer,
        ["w1", "w2"],
        ["0", "1"],
        dev=(["w1", "w3"], ["0", "1"]),
        max_seq_length=8,
    )


def test_what_an_ensemble_cannot_do_is_refused(tmp_path):
    models = write_models(tmp_path)
    start = pretrained.complete(models[0])
    task = build_task(start)
    ensemble = Ensemble(tmp_path / "out", task, models)
    with pytest.raises(ValueError, match="exit_threshold=0.5.*all layers"):
        ensemble.predict(task.data.dev[""].examples, exit_threshold=0.5)
    one, other = (
        dataclasses.replace(
            start, head=task_heads.TaskHead("vectors", pooling=pooling)
        )
        for pooling in ("cls", "mean")
    )
    vectors = Vectors(
        None, {}, max_seq_length=8, settings=VectorSettings(pooling="cls")
    )
    with pytest.raises(ValueError, match="'mean', the ensemble of 'cls'"):
        Ensemble(tmp_path / "vectors", vectors, [one, other])
    # The settings with which its models were trained do not matter.
    task.exits = ExitSettings(exit_loss=True)
    assert "exit_threshold" not in ensemble.evaluate()[0]
    with pytest.raises(ValueError, match="not trained: train its models"):
        ensemble.train()
    with pytest.raises(ValueError, match="not exported: export its models"):
        task.export(ensemble, tmp_path / "served")
    recipe = Recipe(train_step=2, train_batch_size=2)
    FineTuning(tmp_path / "one", task, start, recipe).train()
    with pytest.raises(ValueError, match="one has checkpoints of a training"):
        Ensemble(tmp_path / "one", task, models)
    vocabulary = tmp_path / "c/classes/vocab.txt"
    vocabulary.write_text(vocabulary.read_text().replace("w1\n", "x\n"))
    (tmp_path / "c/classes/tokenizer_settings.json").unlink()
    with pytest.raises(ValueError, match="c/classes.*vocabulary.*differs"):
        Ensemble(tmp_path / "out", task, models)
    of_transformers = dataclasses.replace(
        start, source=str(tmp_path / "model.safetensors")
    )
    with pytest.raises(ValueError, match="has one of the models; wanted"):
        Ensemble(tmp_path, task, [of_transformers, models[1]])
    # Of one model, other labels may mean the same; of two, not both.
    odd = [
        dataclasses.replace(start, head=task_heads.TaskHead("classes", labels))
        for labels in (("yes", "no"), ("no", "yes"))
    ]
    with pytest.raises(ValueError, match=r"\['yes', 'no'\], the task"):
        Ensemble(tmp_path / "odd", task, odd)
    with pytest.raises(ValueError, match="head 'spans'; the task wants"):
        other = tiny.write_answering(tmp_path / "a")
        Ensemble(tmp_path / "new", task, [models[0], other])


def test_the_same_model_twice_is_said(tmp_path, capfd):
    model = tiny.write_classifier(tmp_path, labels=("0", "1"))
    start = pretrained.complete(model)
    Ensemble(tmp_path / "out", build_task(start), [model, model])
    assert "the same weights, and count several" in capfd.readouterr().err
