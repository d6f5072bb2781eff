"""What each pass does: against models of each depth, and naive NumPy."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.lab import passes
from albert_tf.model import heads, modeling
from tests import tiny

CONFIG = dataclasses.replace(
    tiny.CONFIG, num_hidden_layers=4, initializer_range=0.5
)
T = 9
LENGTHS = np.array([9, 4, 6, 9, 5, 7])


@pytest.fixture(scope="module")
def model():
    return build(CONFIG)


def build(config):
    keras.utils.set_random_seed(5)
    return heads.AlbertForPreTraining(config)


def make_dataset(batch_size):
    rng = np.random.default_rng(3)
    mask = (np.arange(T) < LENGTHS[:, None]).astype(np.int32)
    features = {
        "input_ids": rng.integers(5, 25, mask.shape, np.int32) * mask,
        "input_mask": mask,
        "segment_ids": np.zeros(mask.shape, np.int32),
        "masked_lm_positions": np.tile(np.array([1, 2, 3], np.int32), (6, 1)),
        "masked_lm_ids": rng.integers(5, 25, (6, 3), np.int32),
        "masked_lm_weights": np.ones((6, 3), np.float32),
        "sentence_order_labels": rng.integers(0, 2, 6, np.int32),
    }
    return tf.data.Dataset.from_tensor_slices(features).batch(batch_size)


def test_a_pass_ends_like_a_model_of_that_depth(model):
    found = passes.measure(model, make_dataset(3))
    values = modeling.named_weights(model)
    (features,) = make_dataset(6)
    for depth in range(1, 5):
        other = build(dataclasses.replace(CONFIG, num_hidden_layers=depth))
        for name, weight in modeling.named_weights(other).items():
            weight.assign(values[name])
        ratios = other.ratios(features)
        for name in (
            "masked_lm_loss",
            "masked_lm_accuracy",
            "sentence_order_accuracy",
        ):
            wanted = float(ratios[name].total / ratios[name].weight)
            got = getattr(found, name)[depth]
            assert got == pytest.approx(wanted, rel=1e-5), (name, depth)
    assert found.num_tokens == LENGTHS.sum() and found.num_predictions == 18
    assert found.num_sequences == len(LENGTHS)


def test_vectors_are_measured_as_numpy_does(model):
    found = passes.measure(model, make_dataset(2))
    (features,) = make_dataset(6)
    outputs = model.encoder(
        features["input_ids"], features["input_mask"], with_attention=True
    )
    is_token = features["input_mask"].numpy() > 0
    projection = model.encoder.transformer.projection
    first = outputs["embedding_output"] @ projection[0] + projection[1]
    states = [x.numpy() for x in (first, *outputs["all_encoder_layers"])]
    rows = [x[is_token] for x in states]  # [tokens, H]
    norms = [np.linalg.norm(x, axis=1) for x in rows]
    np.testing.assert_allclose(found.norm, [n.mean() for n in norms], 1e-5)
    moved = [
        np.linalg.norm(b - a, axis=1).mean()
        for a, b in zip(rows[:-1], rows[1:], strict=True)
    ]
    np.testing.assert_allclose(found.change, moved, 1e-5)
    unit = [x / n[:, None] for x, n in zip(rows, norms, strict=True)]
    cosines = [[(a * b).sum(1).mean() for b in unit] for a in unit]
    np.testing.assert_allclose(found.cosines, cosines, atol=1e-5)
    distance = np.abs(np.arange(T)[:, None] - np.arange(T))
    for number, probs in enumerate(outputs["all_attention_probs"]):
        far = (probs.numpy() * distance).sum(-1)  # [B, N, T]
        wanted = np.moveaxis(far, 1, -1)[is_token].mean(0)
        np.testing.assert_allclose(
            found.attention_distance[number], wanted, rtol=1e-5
        )


def test_uniform_attention_has_entropy_1(model):
    even = build(CONFIG)
    for name, weight in modeling.named_weights(even).items():
        if "/self/query/" in name:
            weight.assign(tf.zeros(weight.shape))
    found = passes.measure(even, make_dataset(6))
    np.testing.assert_allclose(found.attention_entropy, 1, atol=1e-6)
    sharp = passes.measure(model, make_dataset(6))
    assert found.attention_entropy.shape == (4, 3)
    assert (sharp.attention_entropy < 0.95).any()


def test_layers_that_are_not_shared_have_passes_too():
    apart = build(dataclasses.replace(CONFIG, parameter_sharing="none"))
    found = passes.measure(apart, make_dataset(6))
    assert found.norm.shape == (5,) and found.change.shape == (4,)
    assert found.cosines.shape == (5, 5)


def test_without_text_nothing_is_measured(model):
    with pytest.raises(ValueError, match="no text"):
        passes.measure(model, make_dataset(6).take(0))


def test_components_are_those_of_the_covariance():
    x = np.random.default_rng(0).normal(size=(30, 4)) * [5, 1, 3, 0.1] + 7
    found = passes.principal_components(x)
    values, vectors = np.linalg.eigh(np.cov(x.T))
    np.testing.assert_allclose(
        found["explained"], values[::-1] / values.sum(), rtol=1e-6
    )
    wanted = (x - x.mean(0)) @ vectors[:, ::-1][:, :2]
    np.testing.assert_allclose(
        np.abs(found["coordinates"]), np.abs(wanted), rtol=1e-6
    )


def test_without_a_projection_words_are_not_projected():
    config = dataclasses.replace(CONFIG, embedding_size=CONFIG.hidden_size)
    found = passes.project_words(build(config), [7, 5, 9])
    assert list(found) == ["embeddings"]


def test_words_are_projected_as_for_the_first_layer(model):
    found = passes.project_words(model, [7, 5, 9, 20, 11])
    assert np.shape(found["embeddings"]["coordinates"]) == (5, 2)
    kernel, bias = model.encoder.transformer.projection
    words = model.encoder.embeddings.word.numpy()[[7, 5, 9, 20, 11]]
    wanted = passes.principal_components(words @ kernel + bias)
    np.testing.assert_allclose(
        found["projected"]["coordinates"], wanted["coordinates"], atol=1e-4
    )
