"""Recomputed layers: values, gradients, dropout masks, size of the graph."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import execution, modeling
from albert_tf.model.config import AlbertConfig

CONFIG = AlbertConfig(
    vocab_size=31,
    embedding_size=8,
    hidden_size=12,
    num_hidden_layers=3,
    num_attention_heads=3,
    intermediate_size=16,
    max_position_embeddings=11,
    hidden_dropout_prob=0.2,
    attention_probs_dropout_prob=0.1,
)
RECOMPUTING = execution.Execution(recompute_layers=True)
VARIANTS = {
    "shared": {},
    "groups": {"num_hidden_groups": 2},
    "inner groups": {"inner_group_num": 2},
    "only attention drops": {"hidden_dropout_prob": 0.0},
    "no dropout": {
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    },
    "attention shared": {"parameter_sharing": "attention"},
}


def build(config, dtype="float32"):
    keras.utils.set_random_seed(3)
    return modeling.AlbertEncoder(config, dtype=dtype)


def inputs(batch_size=4):
    rng = np.random.default_rng(5)
    mask = np.ones([batch_size, 9], np.int32)
    mask[0, 6:] = 0
    ids = rng.integers(5, 31, mask.shape, np.int32)
    return tf.constant(ids), tf.constant(mask)


def differentiate(encoder, is_recomputing):
    """Returns output and gradients of one training step."""
    ids, mask = inputs()

    @tf.function
    def step():
        with (
            execution.using(
                execution.Execution(recompute_layers=is_recomputing)
            ),
            tf.GradientTape() as tape,
        ):
            outputs = encoder(
                ids, mask, training=True, seed=tf.constant([1, 2])
            )
            x = outputs["sequence_output"]  # [B, T, H]
            loss = tf.reduce_sum(tf.cast(x, tf.float32)[..., 1] ** 3)
        weights = modeling.named_weights(encoder)
        values = {name: weight.value for name, weight in weights.items()}
        gradients = tape.gradient(loss, values)
        return x, {
            name: tf.convert_to_tensor(gradient)
            for name, gradient in gradients.items()
            if gradient is not None
        }

    return step()


@pytest.mark.parametrize("name", VARIANTS)
def test_values_and_gradients_are_those_of_kept_layers(name):
    encoder = build(dataclasses.replace(CONFIG, **VARIANTS[name]))
    (x, kept), (y, recomputed) = (
        differentiate(encoder, flag) for flag in (False, True)
    )
    # The same operations, so dropout has the same masks.
    np.testing.assert_array_equal(x, y)
    assert recomputed.keys() == kept.keys()
    for weight, gradient in kept.items():
        np.testing.assert_allclose(
            recomputed[weight], gradient, rtol=1e-5, atol=1e-5, err_msg=weight
        )


def test_bfloat16_gradients_are_near_those_of_float32():
    # Without dropout, whose masks depend on the data type.
    config = dataclasses.replace(CONFIG, **VARIANTS["no dropout"])
    wanted, kept, recomputed = (
        differentiate(build(config, dtype), is_recomputing)[1]
        for dtype, is_recomputing in (
            ("float32", False),
            ("mixed_bfloat16", False),
            ("mixed_bfloat16", True),
        )
    )
    block = "bert/encoder/transformer/group_0/inner_group_0"
    name = f"{block}/ffn_1/intermediate/dense/kernel"
    errors = [
        np.linalg.norm(found[name] - wanted[name])
        / np.linalg.norm(wanted[name])
        for found in (kept, recomputed)
    ]
    assert errors[1] < 0.05
    # Summed over the layers in float32, not in bfloat16.
    assert errors[1] < 1.1 * errors[0]


def test_inference_returns_every_layer():
    encoder = build(CONFIG)
    with execution.using(RECOMPUTING):
        outputs = encoder(*inputs())["all_encoder_layers"]
    assert len(outputs) == CONFIG.num_hidden_layers


def count_operations(num_layers):
    config = dataclasses.replace(CONFIG, num_hidden_layers=num_layers)
    encoder = build(config)
    weight = encoder.embeddings.word.value

    @tf.function
    def step(ids, mask):
        with execution.using(RECOMPUTING), tf.GradientTape() as tape:
            outputs = encoder(ids, mask, training=True, seed=[1, 2])
            loss = tf.reduce_sum(outputs["pooled_output"])
        return tf.convert_to_tensor(tape.gradient(loss, weight))

    graph = step.get_concrete_function(*inputs()).graph.as_graph_def()
    functions = graph.library.function
    return len(graph.node) + sum(len(f.node_def) for f in functions)


def test_the_graph_does_not_grow_with_depth():
    assert count_operations(2) == count_operations(12)
