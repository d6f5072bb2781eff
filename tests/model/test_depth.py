"""Training with fewer layers than all, drawn at each step."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import AlbertConfig, PretrainingRecipe
from albert_tf.model import heads, modeling
from tests import tiny

CONFIG = AlbertConfig(**{**tiny.SIZES, "num_hidden_layers": 4})
CONFIGS = {
    "shared": {},
    "nothing shared": {"parameter_sharing": "none", "inner_group_num": 2},
}


def make_features():
    rng = np.random.default_rng(0)
    shape = [5, 9]
    return {
        "input_ids": tf.constant(rng.integers(5, 31, shape)),
        "input_mask": tf.ones(shape, tf.int32),
        "segment_ids": tf.zeros(shape, tf.int32),
        "masked_lm_positions": tf.constant(rng.integers(1, 9, [5, 2])),
        "masked_lm_ids": tf.constant(rng.integers(5, 31, [5, 2])),
        "masked_lm_weights": tf.ones([5, 2]),
        "sentence_order_labels": tf.constant([0, 1, 1, 0, 1]),
    }


def build(config, **kwargs):
    return heads.AlbertForPreTraining(config, **kwargs)


@tf.function
def gradients(model, seed):
    with tf.GradientTape() as tape:
        ratios = model.ratios(make_features(), training=True, seed=seed)
        loss = sum(ratios[name].total for name in model.loss_scales)
    weights = modeling.named_weights(model)
    values = {name: weight.value for name, weight in weights.items()}
    found = tape.gradient(loss, values)
    return loss, {
        n: tf.convert_to_tensor(g) for n, g in found.items() if g is not None
    }


@pytest.mark.parametrize("name", CONFIGS)
def test_a_step_is_one_of_a_shallower_model(name):
    config = dataclasses.replace(CONFIG, initializer_range=0.3, **CONFIGS[name])
    model = build(config, min_num_layers=2)
    weights = modeling.named_weights(model)
    drawn = {}
    for number in range(20):
        seed = tf.constant([7, number])
        drawn.setdefault(int(model.draw_depth(seed)), seed)
    assert sorted(drawn) == [2, 3, 4]
    for depth, seed in drawn.items():
        loss, found = gradients(model, seed)
        shallow = build(dataclasses.replace(config, num_hidden_layers=depth))
        for key, weight in modeling.named_weights(shallow).items():
            weight.assign(weights[key])
        wanted_loss, wanted = gradients(shallow, seed)
        np.testing.assert_allclose(loss, wanted_loss, rtol=1e-5)
        for key, gradient in found.items():
            if key in wanted:
                np.testing.assert_allclose(gradient, wanted[key], atol=1e-5)
            else:  # Of layers that were not computed.
                assert not np.any(gradient)


def test_evaluation_computes_all_layers():
    plain, random = build(CONFIG), build(CONFIG, min_num_layers=1)
    weights = modeling.named_weights(plain)
    for name, weight in modeling.named_weights(random).items():
        weight.assign(weights[name])
    features = make_features()
    for model in (plain, random):
        ratios = model.ratios(features, seed=tf.constant([1, 2]))
        np.testing.assert_array_equal(
            ratios["masked_lm_loss"].total,
            plain.ratios(features)["masked_lm_loss"].total,
        )


def test_impossible_numbers_are_refused():
    with pytest.raises(ValueError, match="min_num_layers=5; the model has 4"):
        build(CONFIG, min_num_layers=5)
    with pytest.raises(ValueError, match="remat=True needs to know"):
        PretrainingRecipe(min_num_layers=2, remat=True)
    with pytest.raises(ValueError, match="min_num_layers"):
        PretrainingRecipe(min_num_layers=0)
