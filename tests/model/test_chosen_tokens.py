"""The last layer, computed for the tokens that are read alone."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import execution, heads, modeling, vector_heads
from tests import tiny

NO_DROPOUT = dataclasses.replace(tiny.CONFIG, hidden_dropout_prob=0.0)
FEATURES = {
    "input_ids": tf.constant(np.random.default_rng(2).integers(5, 25, [3, 9])),
    "input_mask": tf.constant([[1] * 9, [1] * 6 + [0] * 3, [1] * 9]),
    "segment_ids": tf.constant([[0] * 5 + [1] * 4] * 3),
}
IN_PROCESS = {"constant_kernels": True, "separate_last_layer": True}
# Among them are a repeated one, [CLS] and padding.
POSITIONS = tf.constant([[4, 2, 2, 8], [1, 0, 5, 7], [8, 3, 1, 0]])
LABELS = {
    "masked_lm_positions": POSITIONS,
    "masked_lm_ids": tf.constant([[5, 9, 7, 24]] * 3),
    "masked_lm_weights": tf.constant([[1.0, 0.5, 0.0, 1.0]] * 3),
    "sentence_order_labels": tf.constant([0, 1, 1]),
}


def build(config, model_class=modeling.AlbertEncoder, **kwargs):
    keras.utils.set_random_seed(3)
    config = dataclasses.replace(config, initializer_range=0.3)
    return model_class(config, **kwargs)


def differentiate(encoder, positions, how, depth=None, training=True):
    """Returns vectors at POSITIONS, pooled output, gradients."""
    weights = modeling.named_weights(encoder)
    values = {name: weight.value for name, weight in weights.items()}

    @tf.function
    def step():
        with execution.using(how), tf.GradientTape() as tape:
            outputs = encoder(
                **FEATURES,
                training=training,
                seed=tf.constant([1, 2]),
                depth=depth,
                positions=positions,
            )
            x = outputs["sequence_output"]  # [B, T, H] or [B, P, H]
            if positions is None:
                x = heads.gather_positions(x, POSITIONS)
            pooled = outputs["pooled_output"]
            loss = tf.reduce_sum(tf.cast(x, tf.float32) ** 3)
            loss += tf.reduce_sum(tf.cast(pooled, tf.float32) ** 2)
        if how.constant_kernels:  # There are no gradients.
            return x, pooled, {}
        gradients = tape.gradient(loss, values)
        return x, pooled, tf.nest.map_structure(tf.convert_to_tensor, gradients)

    return step()


@pytest.mark.parametrize(
    ("changes", "how", "kwargs"),
    [
        ({}, {}, {}),
        ({}, {}, {"training": False}),
        ({"num_hidden_layers": 1}, {}, {}),
        ({"inner_group_num": 2, "num_hidden_groups": 2}, {}, {}),
        ({"num_hidden_layers": 3}, {"recompute_layers": True}, {}),
        ({"parameter_sharing": "none"}, {"recompute_layers": True}, {}),
        ({"num_hidden_layers": 3}, {"constant_kernels": True}, {}),
        ({"num_hidden_layers": 3}, IN_PROCESS, {}),
        ({"parameter_sharing": "none"}, {"constant_kernels": True}, {}),
        ({"inner_group_num": 2}, {}, {"depth": tf.constant(1)}),
        ({"inner_group_num": 2}, {}, {"depth": tf.constant(2)}),
    ],
)
def test_values_and_gradients_are_those_of_all_tokens(changes, how, kwargs):
    encoder = build(dataclasses.replace(NO_DROPOUT, **changes))
    how = execution.Execution(**how)
    wanted, found = (
        differentiate(encoder, positions, how, **kwargs)
        for positions in (None, POSITIONS)
    )
    assert found[0].shape == [3, 4, 12]
    tf.nest.map_structure(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=2e-4),
        found,
        wanted,
    )


def test_dropout_draws_the_same_masks_when_layers_are_recomputed():
    config = dataclasses.replace(
        tiny.CONFIG, num_hidden_layers=3, attention_probs_dropout_prob=0.1
    )
    encoder = build(config)
    kept, recomputed = (
        differentiate(
            encoder, POSITIONS, execution.Execution(recompute_layers=flag)
        )
        for flag in (False, True)
    )
    np.testing.assert_array_equal(kept[0], recomputed[0])
    for name, gradient in kept[2].items():
        np.testing.assert_allclose(
            recomputed[2][name], gradient, rtol=1e-4, atol=1e-4, err_msg=name
        )


def test_pretraining_reads_the_masked_tokens_and_the_first():
    model = build(NO_DROPOUT, heads.AlbertForPreTraining)
    outputs = model.encode(FEATURES)
    vectors = heads.gather_positions(outputs["sequence_output"], POSITIONS)
    logits = model({**FEATURES, **LABELS})
    np.testing.assert_allclose(
        logits["masked_lm_logits"],
        model.masked_lm(vectors, model.word_embeddings),
        rtol=1e-4,
        atol=1e-4,
    )
    np.testing.assert_allclose(
        logits["sentence_order_logits"],
        model.sentence_order(outputs["pooled_output"]),
        rtol=1e-4,
        atol=1e-4,
    )
    wanted, _ = model.masked_lm.ratios(
        vectors,
        LABELS["masked_lm_ids"],
        LABELS["masked_lm_weights"],
        model.word_embeddings,
    )
    found = model.ratios({**FEATURES, **LABELS})["masked_lm_loss"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def classify(features):
    return heads.AlbertClassifier, {"num_labels": 3}, features


def choose(features):
    features = {name: x[:, tf.newaxis] for name, x in features.items()}
    return heads.AlbertMultipleChoice, {}, features


def embed(features):
    return vector_heads.AlbertVectors, {"pooling": "cls"}, features


@pytest.mark.parametrize("kind", [classify, choose, embed])
def test_heads_of_the_first_token_compute_no_other(kind):
    model_class, kwargs, features = kind(FEATURES)
    model = build(NO_DROPOUT, model_class, **kwargs)
    call = tf.function(lambda features: model(features))
    [found] = call(features).values()
    outputs = model.encode(FEATURES)
    if kind is embed:
        wanted = tf.math.l2_normalize(outputs["sequence_output"][:, 0], -1)
    else:
        wanted = model.output_layer(outputs["pooled_output"])
    wanted = tf.reshape(wanted, found.shape)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    graph = call.get_concrete_function(features).graph
    rows = [
        operation.outputs[0].shape[0]
        for operation in graph.get_operations()
        if operation.type == "MatMul" and operation.outputs[0].shape[-1] == 17
    ]
    # The feed-forward products: of all tokens, then of the first ones.
    assert len(rows) == 2
    assert rows[0] == 3 * 9 and rows[1] <= 3 * 2


@pytest.mark.parametrize("constant_kernels", [False, True])
def test_positions_of_other_rows_are_refused(constant_kernels):
    encoder = build(NO_DROPOUT)
    how = execution.Execution(constant_kernels=constant_kernels)
    with execution.using(how), pytest.raises(ValueError, match="has 1 rows"):
        encoder(FEATURES["input_ids"], positions=POSITIONS[:1])
