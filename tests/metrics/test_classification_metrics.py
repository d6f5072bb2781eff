"""Metrics: against the release's running ones and against naive formulas."""

import json
import types

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.metrics import classification
from albert_tf.model import heads


@pytest.mark.parametrize("task", ["cola", "sts-b", "mnli", "mrpc"])
def test_scores_match_the_release(golden, task):
    inputs = np.load(golden("classify/metrics_inputs.npz"))
    wanted = json.loads(golden("classify/metrics_outputs.json").read_text())
    objective = "regression" if task == "sts-b" else "classes"
    parts = {"labels": [], "logits": [], "loss": []}
    for number, values in enumerate(wanted[task]):
        batch = {
            name: inputs[f"{task}/batch{number}/{name}"]
            for name in ("labels", "logits", "loss", "is_real")
        }
        for name, seen in parts.items():
            seen.append(batch[name][batch["is_real"] == 1])
        labels, logits, losses = map(np.concatenate, parts.values())
        if logits.ndim == 1:
            logits = logits[:, None]
        metrics = [n for n in values if n != "eval_loss"]
        found = classification.score(logits, labels, objective, metrics)
        # The recorded losses are synthetic, so the result is just their mean.
        found["eval_loss"] = losses.mean()
        assert found == pytest.approx(values, abs=2e-5)


def test_losses_match_their_formulas():
    rng = np.random.default_rng(2)
    logits = rng.normal(size=(9, 3)) * 5
    labels = rng.integers(0, 3, 9)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        classification.loss(logits, labels, "classes"),
        -np.log(chances[range(9), labels]).mean(),
    )
    np.testing.assert_allclose(
        classification.probabilities(logits, "classes"), chances
    )
    several = rng.integers(0, 2, (9, 3))
    chances = 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(
        classification.loss(logits, several, "multi_label"),
        -np.log(np.where(several, chances, 1 - chances)).mean(),
    )
    np.testing.assert_allclose(
        classification.probabilities(logits, "multi_label"), chances
    )
    numbers = rng.normal(size=9)
    np.testing.assert_allclose(
        classification.loss(logits[:, :1], numbers, "regression"),
        ((logits[:, 0] - numbers) ** 2).mean(),
    )


@pytest.mark.parametrize("objective", classification.METRICS_OF)
def test_losses_equal_the_training_losses(objective):
    rng = np.random.default_rng(3)
    num_classes = 1 if objective == "regression" else 3
    logits = np.float32(rng.normal(size=(7, num_classes)) * 4)
    label_ids = {
        "classes": rng.integers(0, 3, 7),
        "regression": np.float32(rng.normal(size=7)),
        "multi_label": np.float32(rng.integers(0, 2, (7, 3))),
    }[objective]

    model = types.SimpleNamespace(objective=objective)
    features = {
        "input_ids": tf.zeros([7, 5], tf.int32),
        "label_ids": tf.constant(label_ids),
    }
    ratios = heads.AlbertClassifier.ratios_of(
        model, tf.constant(logits), features
    )
    total, weight, *_ = ratios["loss"]
    found = classification.loss(logits, label_ids, objective)
    assert found == pytest.approx(float(total / weight), rel=1e-6)


def test_extreme_logits_have_finite_losses():
    logits = np.array([[1e4, -1e4]])
    assert classification.loss(logits, [1], "classes") == 2e4
    assert classification.loss(logits, [[0, 1]], "multi_label") == 1e4


def test_f1_and_correlations_match_their_formulas():
    labels = np.array([1, 1, 1, 0, 0, 0, 0])
    predictions = np.array([1, 1, 0, 1, 1, 1, 0])
    logits = np.eye(2)[predictions]
    found = classification.score(
        logits, labels, "classes", ("f1", "matthew_corr", "eval_accuracy")
    )
    assert found["f1"] == pytest.approx(2 * 2 / (2 * 2 + 3 + 1))
    assert found["eval_accuracy"] == pytest.approx(3 / 7)
    tp, fp, fn, tn = 2, 3, 1, 1
    wanted = (tp * tn - fp * fn) / np.sqrt(
        (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    )
    assert found["matthew_corr"] == pytest.approx(wanted)
    numbers = np.array([0.0, 1, 2, 3, 4, 5])
    guesses = np.array([1.0, 0, 2, 4, 3, 50])
    found = classification.score(
        guesses[:, None], numbers, "regression", ("pearson", "spearman", "MSE")
    )
    assert found["pearson"] == pytest.approx(
        np.corrcoef(numbers, guesses)[0, 1]
    )
    ranks = guesses.argsort().argsort()
    assert found["spearman"] == pytest.approx(np.corrcoef(numbers, ranks)[0, 1])
    assert found["MSE"] == pytest.approx(((numbers - guesses) ** 2).mean())


def test_f1_of_three_classes_is_the_mean_even_if_one_is_absent():
    labels, predictions = np.array([0, 1, 1, 1]), np.array([0, 1, 1, 0])
    found = classification.score(
        np.eye(3)[predictions], labels, "classes", ("f1",)
    )
    # Class 0: a hit, a false alarm. Class 1: two hits, a miss.
    assert found["f1"] == pytest.approx((2 / 3 + 4 / 5) / 2)
    predictions[3] = 2
    found = classification.score(
        np.eye(3)[predictions], labels, "classes", ("f1",)
    )
    assert found["f1"] == pytest.approx((1 + 4 / 5 + 0) / 3)


def test_the_correlation_of_constant_predictions_is_zero(recwarn):
    labels = np.array([0, 1, 1])
    found = classification.score(
        np.eye(2)[[1, 1, 1]], labels, "classes", ("matthew_corr",)
    )
    assert found["matthew_corr"] == 0
    found = classification.score(
        np.ones((3, 1)), labels, "regression", ("pearson", "spearman")
    )
    assert found["pearson"] == found["spearman"] == 0
    assert not recwarn.list


def test_one_row_and_one_label_are_scored_without_warnings(recwarn):
    found = classification.score(
        np.eye(2)[[1]], [1], "classes", ("matthew_corr", "f1", "eval_accuracy")
    )
    del found["eval_loss"]
    assert found == {"matthew_corr": 0, "f1": 1, "eval_accuracy": 1}
    found = classification.score(
        np.ones((1, 1)), [3.0], "regression", ("pearson", "spearman", "MSE")
    )
    assert found == {"eval_loss": 4, "pearson": 0, "spearman": 0, "MSE": 4}
    assert not recwarn.list


@pytest.mark.parametrize("objective", classification.METRICS_OF)
def test_a_diverged_model_is_scored_and_detected(objective, recwarn):
    logits = np.full((3, 1 if objective == "regression" else 2), np.nan)
    labels = np.array([0, 1, 1])
    if objective == "multi_label":
        labels = np.eye(2)[labels]
    found = classification.score(
        logits, labels, objective, classification.METRICS_OF[objective]
    )
    assert np.isnan(found["eval_loss"])
    advice = classification.find_collapse(
        logits, labels, objective, loss=found["eval_loss"], prior_loss=0.7
    )
    assert "not finite" in advice and "Lower the learning rate" in advice
    assert not recwarn.list


def test_an_unknown_metric_is_refused():
    with pytest.raises(ValueError, match="Unknown metrics .*bleu.*; known"):
        classification.score(np.ones((3, 2)), [0, 1, 1], "classes", ("bleu",))
    with pytest.raises(ValueError, match="f1.* for 'regression'; known: pear"):
        classification.score(np.ones((3, 1)), [0, 1, 1], "regression", ("f1",))


def test_the_baseline_predicts_the_most_frequent_training_label():
    train = np.array([1] * 7 + [0] * 3)
    dev = np.array([1, 1, 0, 0, 0])
    found = classification.baseline(train, dev, "classes", ("eval_accuracy",))
    assert found["eval_accuracy"] == pytest.approx(2 / 5)
    share = 7.5 / 11
    wanted = -(2 * np.log(share) + 3 * np.log(1 - share)) / 5
    assert found["eval_loss"] == pytest.approx(wanted)
    found = classification.baseline(
        [1.0, 3.0], np.array([2.0, 5.0]), "regression", ("MSE",)
    )
    assert found["MSE"] == pytest.approx(4.5)
    several = np.array([[1, 0], [1, 0], [1, 1]])
    found = classification.baseline(
        several, several, "multi_label", ("f1", "eval_accuracy")
    )
    assert found["eval_accuracy"] == pytest.approx(2 / 3)
    assert found["f1"] == pytest.approx(2 * 3 / (2 * 3 + 1))


@pytest.mark.parametrize("num_options", [2, 4, 6])
def test_the_baseline_takes_an_option_that_the_question_has(num_options):
    """Training has five options, of which the last is the most frequent."""
    found = classification.baseline(
        [0, 4, 1, 4, 1, 4],
        [1, 0],
        "classes",
        ["eval_accuracy"],
        is_possible=np.arange(num_options) < [[num_options], [1]],
    )
    # Of five or more options, the fifth is the guess for the first question.
    assert found["eval_accuracy"] == (0.5 if num_options > 4 else 1.0)


@pytest.mark.parametrize(
    ("logits", "labels", "objective", "loss", "wanted"),
    [
        ([[0, 1], [0, 2]], [0, 1], "classes", 0.1, "the same for every"),
        ([[0, 1], [0, 2]], [1, 1], "classes", 0.1, None),
        ([[0, 1], [2, 0]], [0, 1], "classes", 0.1, None),
        ([[0, 1], [2, 0]], [0, 1], "classes", 0.7, "not below that of"),
        ([[1.0], [1.0]], [0.0, 5.0], "regression", 0.1, "the same for every"),
        ([[1.0], [2.0]], [0.0, 5.0], "regression", 0.1, None),
        ([[1, -1], [1, -1]], [[1, 0], [0, 1]], "multi_label", 0.1, "the same"),
    ],
)
def test_a_collapse_is_detected(logits, labels, objective, loss, wanted):
    found = classification.find_collapse(
        np.array(logits),
        np.array(labels),
        objective,
        loss=loss,
        prior_loss=0.69,
    )
    assert (found is None) == (wanted is None)
    if wanted:
        assert wanted in found and "Lower the learning rate" in found
