"""Compiled functions against the same, run by TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import compiled, layers

SHAPES = {"layer_norm": [(3, 5, 8), (8,), (8,)], "gelu": [(6, 4)]}
FUNCTIONS = {
    "layer_norm": (layers.layer_norm, layers.layer_norm),
    "gelu": (
        lambda x, training: layers.activate(x, "gelu", training=training),
        lambda x: tf.nn.gelu(x, approximate=True),
    ),
}


def run(function, arguments):
    """Returns the value and the gradients of a function."""
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        value = function(*arguments)
        # A different weight per element, and a later use of the value.
        weights = tf.reshape(tf.range(tf.size(value)), value.shape)
        total = tf.reduce_sum(value**2 * tf.cast(weights, value.dtype))
    return [value, *tape.gradient(total, arguments)]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16], ids=str)
@pytest.mark.parametrize("in_graph", [False, True])
def test_training_computes_the_same(name, dtype, in_graph):
    rng = np.random.default_rng(0)
    first, *others = (
        tf.constant(3 * rng.standard_normal(shape), tf.float32)
        for shape in SHAPES[name]
    )
    # A variable as well as tensors.
    arguments = [tf.cast(first, dtype), *map(tf.Variable, others)]
    fast, plain = FUNCTIONS[name]

    def train(*arguments):
        return fast(*arguments, training=True)

    def compute():
        return run(train, arguments)

    # The second call uses the compiled function.
    for _ in range(2):
        found = tf.function(compute)() if in_graph else compute()
        wanted = run(plain, arguments)
        for ours, theirs in zip(found, wanted, strict=True):
            assert ours.dtype == theirs.dtype
            ours, theirs = (tf.cast(v, tf.float32) for v in (ours, theirs))
            scale = np.abs(theirs).max()
            rtol = 1e-5 if dtype == tf.float32 else 5e-2
            np.testing.assert_allclose(ours, theirs, atol=rtol * scale)


def test_each_list_of_shapes_is_traced_once(caplog):
    traced = []

    @compiled.compiled
    def double(x):
        traced.append(x.shape)
        return 2.0 * x

    for _ in range(3):
        for size in range(1, 9):
            assert double(tf.ones([size])).shape == [size]
    assert len(traced) == 8
    assert not caplog.records


def test_an_unknown_number_of_rows_is_supported():
    def double(x):
        return layers.activate(x, "gelu", training=True)

    spec = tf.TensorSpec([None, 4], tf.float32)
    function = tf.function(double, input_signature=[spec])
    for size in (1, 3):
        x = tf.ones([size, 4])
        wanted = tf.nn.gelu(x, approximate=True)
        np.testing.assert_allclose(function(x), wanted, rtol=1e-6)


def test_a_missing_gradient_is_an_error():
    square = compiled.compiled(lambda x: x * x)
    x = tf.constant([3.0])

    def differentiate():
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = square(x)
            with tape.stop_recording(), tf.init_scope():
                return tape.gradient(y, x)

    with pytest.raises(ValueError, match="no gradient"):
        differentiate()
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = square(x)
    assert tape.gradient(y, x) == 6
