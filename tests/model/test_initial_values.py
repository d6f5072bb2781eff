"""Initial values that begin on neighbors."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import AlbertConfig, AlbertForPreTraining
from albert_tf.model import initial_values, modeling

NUM_TOKENS = 64
SMALL = AlbertConfig(
    vocab_size=500,
    embedding_size=128,
    hidden_size=256,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=512,
    max_position_embeddings=NUM_TOKENS,
    initializer_range=0.05,
)


def build(config, seed=0, counts=None):
    """Returns a model that begins on neighbors, and its random values."""
    tf.keras.utils.set_random_seed(seed)
    model = AlbertForPreTraining(config, dtype="float32")
    weights = modeling.named_weights(model)
    random = {name: weight.numpy() for name, weight in weights.items()}
    changed = initial_values.neighbors(config, random, counts)
    for name, value in changed.items():
        assert value.dtype == np.float32 and np.isfinite(value).all()
        weights[name].assign(value)  # Which compares the shapes.
    return model, random


def encode(model, config, batch_size=8):
    ids = np.random.default_rng(0).integers(
        5, config.vocab_size, [batch_size, NUM_TOKENS]
    )
    features = {
        "input_ids": tf.constant(ids, tf.int32),
        "input_mask": tf.ones_like(ids, tf.int32),
        "segment_ids": tf.zeros_like(ids, tf.int32),
    }
    return model.encode(features, with_attention=True)


def share_at(probs, distances):
    """Returns the mean attention to tokens at these distances, [N]."""
    probs = np.asarray(probs).mean(axis=0)  # [N, T, T]
    inside = slice(5, -5)
    return sum(
        np.diagonal(probs, distance, axis1=1, axis2=2)[:, inside].mean(axis=1)
        for distance in distances
    )


def test_every_pass_attends_to_neighbors():
    model, _ = build(SMALL)
    outputs = encode(model, SMALL)
    for probs in outputs["all_attention_probs"]:
        for head, offset in enumerate(initial_values.OFFSETS[:4]):
            nearest = int(np.trunc(offset))
            beyond = nearest + int(np.sign(offset))
            shares = share_at(probs, [nearest, beyond])
            assert shares[head] > 0.5
            assert shares[head] > 3 * share_at(probs, [-nearest])[head]


def test_random_values_attend_to_no_neighbor():
    outputs = encode(AlbertForPreTraining(SMALL, dtype="float32"), SMALL)
    shares = share_at(outputs["all_attention_probs"][0], [-1, 1])
    np.testing.assert_allclose(shares, 2 / NUM_TOKENS, atol=0.02)


def test_scores_are_as_in_the_formula():
    _, random = build(SMALL)
    projection = "bert/encoder/embedding_hidden_mapping_in/kernel"
    silent = {name: 0 * value for name, value in random.items()}
    silent[projection] = random[projection]
    changed = initial_values.neighbors(SMALL, silent)  # Without noise.
    embedded = changed["bert/embeddings/position_embeddings"]  # [T, E]
    # Of the variance 1 of an embedding, words and segments have 2 * 0.77 parts.
    share = 4.5 / (4.5 + 2 * 0.77)
    embedded *= (share / np.mean(embedded**2)) ** 0.5
    hidden = embedded @ changed[projection]  # [T, H]
    prefix = "bert/encoder/transformer/group_0/inner_group_0/attention_1/self"
    query, key = (
        (hidden @ changed[f"{prefix}/{kind}/kernel"]).reshape(NUM_TOKENS, 4, 64)
        for kind in ("query", "key")
    )
    scores = np.einsum("ind,jnd->nij", query, key) / 8  # [N, T, T]
    i, j = np.indices([NUM_TOKENS, NUM_TOKENS])
    rates = initial_values.frequencies(SMALL)
    rates = rates[np.linspace(0, 63, 32).round().astype(int)]
    for head, offset in enumerate((-1.3, 1.3, -2.3, 2.3)):
        cosines = np.cos(rates * (i + offset - j)[:, :, np.newaxis])
        np.testing.assert_allclose(
            scores[head], 12 * cosines.mean(axis=-1), atol=1e-3
        )


@pytest.mark.parametrize("num_layers", [12, 24])
def test_deep_models_do_not_begin_with_equal_vectors(num_layers):
    config = dataclasses.replace(SMALL, num_hidden_layers=num_layers)
    tf.keras.utils.set_random_seed(0)
    random = AlbertForPreTraining(config, dtype="float32")
    assert mean_cosine(encode(random, config)) > 0.9
    assert mean_cosine(encode(build(config)[0], config)) < 0.3


def mean_cosine(outputs):
    x = tf.math.l2_normalize(outputs["sequence_output"], axis=-1)
    cosines = tf.matmul(x, x, transpose_b=True)  # [B, T, T]
    return float(tf.reduce_mean(cosines)) - 1 / NUM_TOKENS


@pytest.mark.parametrize(
    ("changes", "factors"),
    [
        ({"num_hidden_layers": 6}, {0: 1 / 6}),
        (
            {"num_hidden_layers": 6, "num_hidden_groups": 2},
            {group: 1 / (3 * 2**0.5) for group in range(2)},
        ),
        (
            {"num_hidden_layers": 4, "parameter_sharing": "none"},
            {group: 1 / 2 for group in range(4)},
        ),
        ({"num_hidden_layers": 4, "inner_group_num": 4}, {0: 1 / 8}),
    ],
)
def test_outputs_are_divided_by_how_they_add_up(changes, factors):
    config = dataclasses.replace(SMALL, **changes)
    model, random = build(config)
    weights = modeling.named_weights(model)
    for group, factor in factors.items():
        for inner in range(config.inner_group_num):
            prefix = f"bert/encoder/transformer/group_{group}/"
            prefix += f"inner_group_{inner}"
            for name in (
                f"{prefix}/attention_1/output/dense/kernel",
                f"{prefix}/ffn_1/intermediate/output/dense/kernel",
            ):
                np.testing.assert_allclose(
                    weights[name].numpy(), factor * random[name], rtol=1e-5
                )


@pytest.mark.parametrize(
    "changes",
    [
        {"embedding_size": 256},  # No projection.
        {"embedding_size": 512},  # Wider than the layers.
        {"embedding_size": 7, "hidden_size": 9, "num_attention_heads": 3},
        {"embedding_size": 1, "hidden_size": 2, "num_attention_heads": 2},
        {"num_attention_heads": 1},
        {"num_attention_heads": 16},
        {"num_hidden_layers": 4, "num_hidden_groups": 2},
        {"inner_group_num": 2},
        {"parameter_sharing": "attention"},
        {"parameter_sharing": "ffn"},
        {"parameter_sharing": "none", "embedding_size": 256},
        {"max_position_embeddings": 4096},
        {"hidden_act": None},
    ],
    ids=str,
)
def test_any_config_has_such_values(changes):
    config = dataclasses.replace(SMALL, **changes)
    model, _ = build(config)
    outputs = encode(model, config, batch_size=2)
    assert np.isfinite(outputs["sequence_output"]).all()
    size = min(config.hidden_size, config.embedding_size)
    if config.hidden_size // config.num_attention_heads >= 16 and size >= 128:
        shares = share_at(outputs["all_attention_probs"][0], [-1, -2])
        assert shares[0] > 0.3


def test_the_bias_has_the_frequencies_of_the_pieces():
    counts = np.arange(10)
    _, random = build(SMALL)
    bias = initial_values.neighbors(SMALL, random, counts)[
        "cls/predictions/output_bias"
    ]
    assert bias.shape == (500,)
    np.testing.assert_allclose(np.exp(bias).sum(), 1, rtol=1e-5)
    np.testing.assert_allclose(np.exp(bias[9] - bias[4]), 2, rtol=1e-5)
    assert "cls/predictions/output_bias" not in initial_values.neighbors(
        SMALL, random
    )


def test_noise_follows_the_seed():
    name = "bert/encoder/transformer/group_0/inner_group_0/attention_1/self/"
    name += "query/kernel"
    values = [
        modeling.named_weights(build(SMALL, seed)[0])[name].numpy()
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(values[0], values[1])
    assert not np.allclose(values[0], values[2])
