"""The tagger's head: against plain NumPy."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from albert_tf.model import modeling, tag_heads
from albert_tf.training import replicas
from tests import tiny

NUM_LABELS = 7


@pytest.fixture(scope="module")
def model():
    return tag_heads.AlbertTagger(tiny.CONFIG, num_labels=NUM_LABELS)


@pytest.fixture
def features():
    rng = np.random.default_rng(1)
    mask = (np.arange(9) < np.array([9, 5, 2])[:, None]).astype(np.int32)
    ids = rng.integers(5, 25, mask.shape).astype(np.int32) * mask
    tags = rng.integers(-1, NUM_LABELS, mask.shape).astype(np.int32)
    return {
        "input_ids": ids,
        "input_mask": mask,
        "segment_ids": np.zeros_like(mask),
        "tag_ids": np.where(mask, tags, -1),
        "example_weight": np.array([1, 1, 0], np.float32),
    }


def test_loss_and_gradients_are_those_of_numpy(model, features):
    with tf.GradientTape() as tape:
        ratios = model.ratios(features)
        loss = ratios["loss"].total / ratios["loss"].weight
    weights = model.output_layer.output_weights.value
    bias = model.output_layer.output_bias.value
    found = tape.gradient(loss, [weights, bias])

    x = model.encode(features)["sequence_output"].numpy().astype(float)
    logits = x @ weights.numpy().T + bias.numpy()  # [B, T, C]
    probs = special.softmax(logits, axis=-1)
    total = hits = num_words = 0
    d_weights, d_bias = np.zeros(weights.shape), np.zeros(bias.shape)
    for b, t in np.argwhere(features["tag_ids"] >= 0):
        if not features["example_weight"][b]:
            continue
        label = features["tag_ids"][b, t]
        num_words += 1
        total -= np.log(probs[b, t, label])
        hits += logits[b, t].argmax() == label
        error = probs[b, t] - np.eye(NUM_LABELS)[label]
        d_weights += np.outer(error, x[b, t])
        d_bias += error
    assert 5 < num_words < 14  # Some tokens have no tag.
    np.testing.assert_allclose(loss, total / num_words, rtol=1e-6)
    np.testing.assert_allclose(found[0], d_weights / num_words, atol=1e-6)
    np.testing.assert_allclose(found[1], d_bias / num_words, atol=1e-6)
    accuracy = ratios["accuracy"]
    assert accuracy.total == hits and accuracy.weight == num_words


def test_dropout_is_determined_by_the_seed(model, features):
    losses = [
        float(model.ratios(features, training=True, seed=seed)["loss"].total)
        for seed in ([1, 2], [1, 2], [1, 3])
    ]
    assert losses[0] == losses[1] != losses[2]


def test_parts_of_a_batch_give_the_gradients_of_the_whole():
    """As replicas do: parts have different numbers of words."""
    config = dataclasses.replace(tiny.CONFIG, hidden_dropout_prob=0.0)
    model = tag_heads.AlbertTagger(
        config, num_labels=NUM_LABELS, dropout_prob=0.0
    )
    rng = np.random.default_rng(2)
    mask = (np.arange(8) < np.array([8, 3, 6, 2])[:, None]).astype(np.int32)
    tags = rng.integers(-1, NUM_LABELS, mask.shape).astype(np.int32)
    features = {
        "input_ids": rng.integers(5, 25, mask.shape).astype(np.int32) * mask,
        "input_mask": mask,
        "segment_ids": np.zeros_like(mask),
        "tag_ids": np.where(mask, tags, -1),
    }
    features = {name: tf.constant(x) for name, x in features.items()}
    weights = {n: w.value for n, w in modeling.named_weights(model).items()}
    seed = tf.constant([1, 2])
    sums, gradients = replicas.differentiate(model, weights, features, seed)
    again = replicas.accumulate(model, weights, features, seed, 2)
    np.testing.assert_allclose(sums, again[0], rtol=1e-5)
    assert gradients.keys() == again[1].keys() >= {"output_weights"}
    for name, value in gradients.items():
        value = tf.convert_to_tensor(value)
        np.testing.assert_allclose(value, again[1][name], atol=1e-6)
