"""Answers after fewer layers, against those of all layers."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import AlbertConfig
from albert_tf.model import execution, exits, heads
from tests import tiny

CONFIGS = {
    "shared": {},
    "groups": {"num_hidden_groups": 2},
    "inner groups": {"inner_group_num": 2},
    "nothing shared": {"parameter_sharing": "none"},
    "no projection": {"embedding_size": 12},
}
NUM_LAYERS, NUM_ROWS = 5, 13


def build(changes=(), **kwargs):
    values = tiny.SIZES | {"num_hidden_layers": NUM_LAYERS}
    # Layers whose answers differ.
    values |= {"initializer_range": 0.5} | dict(changes)
    tf.keras.utils.set_random_seed(1)
    return heads.AlbertClassifier(
        AlbertConfig.from_dict(values), num_labels=3, dropout_prob=0, **kwargs
    )


def make_features(num_rows=NUM_ROWS):
    rng = np.random.default_rng(0)
    num_tokens = 9
    lengths = rng.integers(3, num_tokens + 1, [num_rows, 1])
    return {
        "input_ids": tf.constant(rng.integers(5, 31, [num_rows, num_tokens])),
        "input_mask": tf.cast(np.arange(num_tokens) < lengths, tf.int32),
        "segment_ids": tf.zeros([num_rows, num_tokens], tf.int32),
        "label_ids": tf.constant(rng.integers(0, 3, num_rows)),
    }


def entropy(logits):
    probs = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    return -(probs * np.log(probs)).sum(axis=-1) / np.log(3)


def between(values, share):
    """Returns a number between two neighbors of the sorted values."""
    values = np.sort(values, axis=None)
    index = int(share * (len(values) - 1))
    return values[index : index + 2].mean()


@pytest.mark.parametrize("how", ["variables", "constants", "static"])
@pytest.mark.parametrize("name", CONFIGS)
def test_each_row_leaves_after_the_first_sure_layer(name, how):
    model, features = build(CONFIGS[name]), make_features()
    logits = exits.layer_logits(model, features).numpy()  # [B, L, C]
    np.testing.assert_allclose(
        logits[:, -1], model(features)["logits"], atol=1e-5
    )
    uncertainty = entropy(logits)
    middle = [between(uncertainty, share) for share in (0.1, 0.5, 0.8)]
    chosen = execution.Execution(constant_kernels=how == "constants")
    with execution.using(chosen):
        predict = tf.function(exits.predict, reduce_retracing=True)
    # 0: none leaves early; 2: all leave at once.
    for threshold in (0, *middle, 2):
        is_sure = uncertainty < threshold
        is_sure[:, -1] = True
        last = is_sure.argmax(axis=1)  # [B]
        with execution.using(chosen):
            got = predict(
                model,
                features,
                tf.constant(threshold, tf.float32),
                compacts=how != "static",
            )
        np.testing.assert_array_equal(got["num_layers"], last + 1)
        wanted = logits[np.arange(NUM_ROWS), last]
        np.testing.assert_allclose(got["logits"], wanted, atol=1e-5)
        known = np.arange(NUM_LAYERS) <= last[:, np.newaxis]  # [B, L]
        np.testing.assert_allclose(
            got["layer_logits"].numpy()[known], logits[known], atol=1e-5
        )


def test_rows_do_not_depend_on_their_batch():
    model, features = build(), make_features()
    got = exits.predict(model, features, 0.7)
    assert len(set(got["num_layers"].numpy())) > 2
    for row in range(NUM_ROWS):
        one = {name: x[row : row + 1] for name, x in features.items()}
        alone = exits.predict(model, one, 0.7)
        np.testing.assert_allclose(
            alone["logits"][0], got["logits"][row], atol=1e-5
        )
        assert alone["num_layers"][0] == got["num_layers"][row]


def test_nan_is_never_sure():
    model, features = build(), make_features()
    model.output_layer.output_bias.assign([np.nan, 0, 0])
    got = exits.predict(model, features, 2.0)
    assert (got["num_layers"].numpy() == NUM_LAYERS).all()
    assert np.isnan(got["logits"][:, 0]).all()


@pytest.mark.parametrize("factors", [None, [0.5, 3, 2]])
def test_the_loss_weighs_layers_by_their_number(factors):
    model = build(exit_loss=True, class_weights=factors)
    features = make_features()
    ratios = model.ratios(features, training=True)
    logits = exits.layer_logits(model, features).numpy()
    chosen = features["label_ids"].numpy()
    probs = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    losses = -np.log(probs[np.arange(NUM_ROWS), :, chosen])  # [N, L]
    last = losses[:, -1].sum()
    if factors:
        losses *= np.array(factors)[chosen, None]
    losses = losses.sum(axis=0)  # [L]
    weights = np.arange(1, NUM_LAYERS + 1)
    wanted = (losses * weights).sum() / weights.sum()
    got = ratios["loss"]
    # Without dropout, that of training is that of evaluation.
    np.testing.assert_allclose(got.total, wanted, rtol=1e-5)
    assert got.weight == NUM_ROWS
    plain = build().ratios(features)
    assert plain["accuracy"] == ratios["accuracy"]
    np.testing.assert_allclose(plain["loss"].total, last, rtol=1e-5)


def test_gradients_reach_the_weights_from_every_layer():
    model, features = build(exit_loss=True), make_features()
    with tf.GradientTape() as tape:
        loss = model.ratios(features, training=True)["loss"].total
    used = [w for w in model.trainable_variables if "table" not in w.path]
    gradients = tape.gradient(loss, [w.value for w in used])
    assert all(g is not None for g in gradients)


def test_layers_that_are_not_kept_are_refused():
    model, features = build(exit_loss=True), make_features()
    chosen = execution.Execution(recompute_layers=True)
    with execution.using(chosen), pytest.raises(ValueError, match="remat"):
        model.ratios(features, training=True, seed=tf.constant([1, 2]))
