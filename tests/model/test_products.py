"""Kernel gradients that are compiled where oneDNN computes them slowly."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import heads, modeling, onednn, operations
from tests import tiny

SLOW, FAST = "fpu avx2 fma", "fpu avx2 fma avx512f"


@pytest.fixture
def use_cpu(monkeypatch, tmp_path):
    """Returns a function that sets the CPU's flags."""

    def use(flags):
        path = tmp_path / "cpuinfo"
        path.write_text(f"flags : {flags}\n")
        monkeypatch.setattr(onednn, "CPU_INFO", str(path))
        onednn.sums_rows_slowly.cache_clear()

    yield use
    onednn.sums_rows_slowly.cache_clear()


def test_only_float32_without_avx512_is_slow(use_cpu):
    use_cpu(SLOW)
    assert onednn.sums_rows_slowly(tf.float32)
    assert not onednn.sums_rows_slowly(tf.bfloat16)
    for flags in FAST, "":  # Another system has no flags.
        use_cpu(flags)
        assert not onednn.sums_rows_slowly(tf.float32)


@pytest.mark.parametrize("flags", [SLOW, FAST])
def test_a_product_and_its_gradients_are_those_of_numpy(use_cpu, flags):
    use_cpu(flags)
    rng = np.random.default_rng(0)
    x, kernel, d_y = (
        rng.normal(size=size).astype(np.float32)
        for size in ((7, 3), (3, 5), (7, 5))
    )
    with tf.GradientTape() as tape:
        arguments = tf.constant(x), tf.constant(kernel)
        tape.watch(arguments)
        y = tf.function(operations.product)(*arguments)
    d_x, d_kernel = tape.gradient(y, arguments, tf.constant(d_y))
    np.testing.assert_allclose(y, x @ kernel, atol=1e-6)
    np.testing.assert_allclose(d_x, d_y @ kernel.T, atol=1e-6)
    np.testing.assert_allclose(d_kernel, x.T @ d_y, atol=1e-6)


FEATURES = {
    "input_ids": [[2, 7, 8, 3, 9, 3, 0], [2, 5, 3, 6, 11, 24, 3]],
    "input_mask": [[1, 1, 1, 1, 1, 1, 0], [1] * 7],
    "segment_ids": [[0, 0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 1, 1]],
    "masked_lm_positions": [[1, 4], [1, 5]],
    "masked_lm_ids": [[12, 9], [23, 24]],
    "sentence_order_labels": [0, 1],
}


def differentiate(model):
    """Returns the gradients of the pretraining losses, by weight."""
    features = {name: tf.constant(x) for name, x in FEATURES.items()}
    features["masked_lm_weights"] = tf.ones([2, 2])
    weights = modeling.named_weights(model)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            ratios = model.ratios(
                features, training=True, seed=tf.constant([1, 2])
            )
            loss = sum(r.total for n, r in ratios.items() if "loss" in n)
        values = {name: weight.value for name, weight in weights.items()}
        gradients = tape.gradient(loss, values)
        return tf.nest.map_structure(tf.convert_to_tensor, gradients)

    graph = step.get_concrete_function().graph.as_graph_def()
    names = [f.signature.name for f in graph.library.function]
    is_compiled = any("_compiled_product_over_rows" in name for name in names)
    return step(), is_compiled


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_a_models_gradients_do_not_depend_on_the_cpu(use_cpu, rate):
    """With dropout and without it: other functions add and normalize."""
    config = dataclasses.replace(
        tiny.CONFIG, hidden_dropout_prob=rate, attention_probs_dropout_prob=rate
    )
    keras.utils.set_random_seed(3)
    model = heads.AlbertForPreTraining(config)
    use_cpu(SLOW)
    found, is_compiled = differentiate(model)
    use_cpu(FAST)
    wanted, is_compiled_there = differentiate(model)
    assert is_compiled
    assert not is_compiled_there
    for name, gradient in wanted.items():
        np.testing.assert_allclose(
            found[name], gradient, atol=1e-5, err_msg=name
        )
