"""Heads of the tasks: against the release's recorded outputs."""

import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import heads
from albert_tf.model.config import AlbertConfig
from tests import recorded as recorded_models
from tests import tiny

CLASSIFIERS = [f"{t}_{m}" for t in ("cola", "mnli", "sts-b") for m in "AC"]
MODELS = ("A", "C")


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_give_the_recorded_outputs(golden, name):
    folder = golden(f"heads/classifier_{name}")
    described = json.loads((folder / "README.json").read_text())
    is_regression = described["task"] == "sts-b"
    model, features, read = recorded_models.load(
        folder,
        heads.AlbertClassifier,
        num_labels=described["num_labels"],
        objective="regression" if is_regression else "classes",
    )
    recorded = read("outputs_eval.npz")
    logits = model(features)["logits"].numpy()
    if is_regression:
        logits = logits[:, 0]
    np.testing.assert_allclose(
        logits, recorded["logits"], atol=recorded_models.TOLERANCE
    )
    loss, gradients = recorded_models.loss_and_gradients(model, features)
    np.testing.assert_allclose(
        loss, recorded["loss"], atol=recorded_models.TOLERANCE
    )
    recorded_models.check_gradients(gradients, recorded)
    # The last row of the recording is padding.
    features["example_weight"] = tf.cast(features["is_real_example"], "float32")
    ratio = model.ratios(features)["loss"]
    metrics = described["eval_metrics_one_batch"]
    np.testing.assert_allclose(
        ratio.total / ratio.weight,
        metrics["eval_loss"],
        atol=recorded_models.TOLERANCE,
    )
    if not is_regression:
        ratio = model.ratios(features)["accuracy"]
        np.testing.assert_allclose(
            ratio.total / ratio.weight, metrics["eval_accuracy"]
        )


@pytest.mark.parametrize("name", MODELS)
def test_multiple_choice_gives_the_recorded_outputs(golden, name):
    folder = golden(f"heads/race_{name}")
    model, features, read = recorded_models.load(
        folder, heads.AlbertMultipleChoice
    )
    for key in ("input_ids", "input_mask", "segment_ids"):
        rows = len(features[key])
        features[key] = tf.reshape(features[key], [rows, 4, -1])
    recorded = read("outputs_eval.npz")
    np.testing.assert_allclose(
        model(features)["logits"],
        recorded["logits"],
        atol=recorded_models.TOLERANCE,
    )
    loss, gradients = recorded_models.loss_and_gradients(model, features)
    np.testing.assert_allclose(
        loss, recorded["loss"], atol=recorded_models.TOLERANCE
    )
    recorded_models.check_gradients(gradients, recorded)


def small_classifier(**kwargs):
    config = AlbertConfig(
        **{**tiny.SIZES, "max_position_embeddings": 7},
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
    )
    return heads.AlbertClassifier(config, **kwargs)


def small_features():
    ids = np.random.default_rng(3).integers(5, 31, (2, 7), np.int32)
    return {
        "input_ids": tf.constant(ids),
        "input_mask": tf.ones_like(ids),
        "segment_ids": tf.zeros_like(ids),
    }


def test_multi_label_loss_is_the_mean_over_labels_of_cross_entropy():
    model = small_classifier(num_labels=3, objective="multi_label")
    features = small_features()
    labels = np.array([[1, 0, 1], [0, 0, 1]], np.float32)
    logits = model(features)["logits"].numpy()
    chances = 1 / (1 + np.exp(-logits))
    wanted = -np.where(labels, np.log(chances), np.log(1 - chances)).mean(1)
    weights = np.array([1, 0], np.float32)
    features |= {"label_ids": labels, "example_weight": weights}
    ratios = model.ratios(features)
    np.testing.assert_allclose(ratios["loss"].total, wanted[0], rtol=1e-5)
    hits = ((chances > 0.5) == (labels == 1)).mean(1)
    np.testing.assert_allclose(ratios["accuracy"].total, hits[0], rtol=1e-6)


def test_padded_choices_do_not_count():
    """Loss and gradients are those of the questions without padding."""
    config = AlbertConfig(
        **{**tiny.SIZES, "max_position_embeddings": 7},
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
    )
    model = heads.AlbertMultipleChoice(config, dropout_prob=0.0)
    counts, labels = [3, 4, 2], [2, 0, 1]
    shape = [len(counts), max(counts), 7]
    rng = np.random.default_rng(5)
    mask = np.arange(4) < np.array(counts)[:, None]  # [B, C]
    mask = np.tile(mask[..., None], 7).astype(np.int32)
    features = {
        "input_ids": tf.constant(rng.integers(5, 31, shape, np.int32) * mask),
        "input_mask": tf.constant(mask),
        "segment_ids": tf.zeros(shape, tf.int32),
        "label_ids": tf.constant(labels),
    }

    def compute(features):
        with tf.GradientTape() as tape:
            ratios = model.ratios(features, training=True)
        variables = [weight.value for weight in model.trainable_variables]
        gradients = tape.gradient(ratios["loss"].total, variables)
        return ratios, [tf.convert_to_tensor(g) for g in gradients]

    alone = []
    for row, count in enumerate(counts):
        question = {n: x[row : row + 1] for n, x in features.items()}
        labels = question.pop("label_ids")
        question = {n: x[:, :count] for n, x in question.items()}
        alone.append(compute({**question, "label_ids": labels}))
    ratios, gradients = compute(features)
    for name in ("loss", "accuracy"):
        wanted = sum(float(each[name].total) for each, _ in alone)
        np.testing.assert_allclose(ratios[name].total, wanted, rtol=1e-5)
        assert ratios[name].weight == 3
    for ours, *theirs in zip(gradients, *(g for _, g in alone), strict=True):
        np.testing.assert_allclose(ours, sum(theirs), rtol=1e-3, atol=1e-6)
    probs = tf.nn.softmax(model(features)["logits"]).numpy()
    assert (probs[mask[..., 0] == 0] == 0).all()


@pytest.mark.parametrize("training", [False, True])
def test_class_weights_are_factors_of_the_loss_in_training(training):
    """As in Keras: the divisor is the number of rows."""
    factors = np.array([0.5, 3, 0], np.float32)
    model = small_classifier(
        num_labels=3, dropout_prob=0.0, class_weights=factors
    )
    model.output_layer.output_bias.assign([0.3, -0.2, 0.1])
    features = {n: tf.repeat(x, 3, 0) for n, x in small_features().items()}
    labels = np.array([0, 1, 2, 1, 0, 1], np.int32)
    rows = np.array([1, 1, 1, 1, 1, 0], np.float32)  # The last is padding.
    logits = model(features)["logits"].numpy()
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    losses = -np.log(chances[np.arange(6), labels]) * rows
    if training:
        losses *= factors[labels]
    features |= {"label_ids": tf.constant(labels), "example_weight": rows}
    ratios = model.ratios(features, training=training)
    np.testing.assert_allclose(ratios["loss"].total, losses.sum(), rtol=1e-5)
    assert ratios["loss"].weight == ratios["accuracy"].weight == 5
    hits = ((logits.argmax(axis=1) == labels) * rows).sum()
    assert ratios["accuracy"].total == hits


@pytest.mark.parametrize(
    ("weights", "objective"), [([1, 2], "classes"), ([1] * 3, "multi_label")]
)
def test_class_weights_without_a_meaning_are_refused(weights, objective):
    with pytest.raises(ValueError, match="wanted one for each label"):
        small_classifier(
            num_labels=3, objective=objective, class_weights=weights
        )


def test_the_classifier_dropout_differs_from_the_encoders():
    seed = tf.constant([1, 2])
    with_dropout = small_classifier(num_labels=3, dropout_prob=0.9)
    features = small_features()
    calls = [
        with_dropout(features, training=training, seed=seed)["logits"].numpy()
        for training in (False, True, True)
    ]
    assert np.abs(calls[0] - calls[1]).max() > 1e-4
    np.testing.assert_array_equal(calls[1], calls[2])
    without = small_classifier(num_labels=3, dropout_prob=0.0)
    quiet = without(features)["logits"], without(features, training=True)
    # Training uses another order of operations.
    np.testing.assert_allclose(quiet[0], quiet[1]["logits"], atol=1e-6)


@pytest.mark.parametrize(
    "dtype, rtol", [(tf.float32, 1e-5), (tf.bfloat16, 2e-2)], ids=str
)
def test_vocabulary_losses_equal_tensorflows_cross_entropy(dtype, rtol):
    rng = np.random.default_rng(0)
    x, table, bias = (
        tf.constant(rng.standard_normal(shape), tf.float32)
        for shape in ([7, 5], [33, 5], [33])
    )
    x, table = tf.cast(x, dtype), tf.cast(table, dtype)
    labels = tf.constant(rng.integers(0, 33, 7), tf.int32)
    # Padding has weight 0; one row has probability 1.
    weights = tf.constant([1, 0, 2, 0.5, 0, 1, 3])
    bias = tf.tensor_scatter_nd_add(bias, [[labels[3]]], [50.0])

    def plain(x, table, bias, labels):
        logits = heads.vocabulary_logits(x, table, bias)
        hits = tf.argmax(logits, axis=1, output_type=tf.int32) == labels
        return (
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits),
            tf.cast(hits, tf.float32),
        )

    def run(function):
        with tf.GradientTape() as tape:
            tape.watch([x, table, bias])
            losses, hits = function(x, table, bias, labels)
            total = tf.reduce_sum(losses * weights)
        gradients = tape.gradient(total, [x, table, bias])
        return [losses, hits, *gradients]

    for function in (run, tf.function(run)):
        for found, wanted in zip(
            function(heads.vocabulary_losses), run(plain), strict=True
        ):
            found, wanted = (tf.cast(v, tf.float32) for v in (found, wanted))
            scale = np.abs(wanted).max()
            np.testing.assert_allclose(found, wanted, atol=rtol * scale)


@pytest.mark.parametrize("size", [1, 2, 12, 13, 30000])
def test_ties_return_the_first_maximum(size):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, (20, size)).astype(np.float32)
    x[0] = -np.inf
    found = heads.first_argmax(tf.constant(x))
    np.testing.assert_array_equal(found, x.argmax(axis=1))


def test_models_are_rebuilt_from_their_config():
    model = small_classifier(num_labels=3, objective="multi_label")
    twin = heads.AlbertClassifier.from_config(model.get_config())
    assert twin.get_config() == model.get_config()
    assert twin.config == model.config
    assert twin.objective == "multi_label" and twin.num_labels == 3
