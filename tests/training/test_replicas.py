"""What each replica computes: losses, their scales and gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import heads, modeling
from albert_tf.model.config import AlbertConfig
from albert_tf.training import replicas
from tests import tiny

CONFIG = AlbertConfig(**tiny.SIZES)
B, T, P = 2, 7, 4


def features():
    rng = np.random.default_rng(11)
    return {
        "input_ids": rng.integers(5, 31, (B, T), np.int32),
        "input_mask": np.ones((B, T), np.int32),
        "segment_ids": rng.integers(0, 2, (B, T), np.int32),
        "masked_lm_positions": rng.integers(0, T, (B, P), np.int32),
        "masked_lm_ids": rng.integers(5, 31, (B, P), np.int32),
        "masked_lm_weights": np.ones((B, P), np.float32),
        "sentence_order_labels": np.array([0, 1], np.int32),
    }


@pytest.mark.eager
def test_each_loss_is_weighed_by_its_scale():
    sums, gradients = {}, {}
    for scale in (1.0, 0.5):
        keras.utils.set_random_seed(7)
        model = heads.AlbertForPreTraining(CONFIG, sentence_weight=scale)
        weights = {n: w.value for n, w in modeling.named_weights(model).items()}
        sums[scale], gradients[scale] = replicas.differentiate(
            model, weights, features(), tf.constant([1, 2])
        )
    # The head of each loss: its gradient has the scale of that loss.
    for name, share in (
        ("cls/seq_relationship/output_weights", 0.5),
        ("cls/predictions/output_bias", 1.0),
    ):
        assert np.abs(gradients[1.0][name]).max() > 1e-3
        np.testing.assert_allclose(
            gradients[0.5][name],
            share * np.asarray(gradients[1.0][name]),
            rtol=1e-4,
            atol=1e-7,
        )
    values = replicas.results(model, sums[0.5])
    assert values["loss"] == pytest.approx(
        values["masked_lm_loss"] + 0.5 * values["sentence_order_loss"]
    )
