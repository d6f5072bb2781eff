"""Compiled functions against the same, run by TensorFlow."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import compiled, operations

MASK = tf.constant([0.0, 0.0, -10000.0])


def dense(x, kernel, bias):
    return operations.dense(x, tf.cast(kernel, x.dtype), tf.cast(bias, x.dtype))


def dense_gelu(x, kernel, bias):
    kernel, bias = (tf.cast(t, x.dtype) for t in (kernel, bias))
    return operations.dense_activation(x, kernel, bias, "gelu", training=True)


def dense_sum_norm(x, kernel, bias, residual, gamma, beta):
    kernel, bias, residual = (
        tf.cast(t, x.dtype) for t in (kernel, bias, residual)
    )
    return operations.dense_sum_norm(x, kernel, bias, residual, gamma, beta)


def use_copies(x):
    return tf.add_n(
        [copy * i for i, copy in enumerate(operations.copies(x, 3), 1)]
    )


# Name -> shapes of the arguments, the function, and the same, plainly.
FUNCTIONS = {
    "layer_norm": (
        [(3, 5, 8), (8,), (8,)],
        functools.partial(operations.layer_norm, training=True),
        operations.layer_norm,
    ),
    "gelu": (
        [(6, 4), (4, 5), (5,)],
        dense_gelu,
        lambda *args: tf.nn.gelu(dense(*args), approximate=True),
    ),
    "sum_norm": (
        [(6, 4), (4, 8), (8,), (6, 8), (8,), (8,)],
        dense_sum_norm,
        lambda x, kernel, bias, residual, *norm: operations.layer_norm(
            tf.cast(residual, x.dtype) + dense(x, kernel, bias), *norm
        ),
    ),
    "softmax": (
        [(2, 2, 3, 3)],
        lambda x: operations.masked_softmax(x, MASK, training=True),
        lambda x: tf.nn.softmax(x + tf.cast(MASK, x.dtype)),
    ),
    "copies": ([(4, 3)], use_copies, lambda x: 6 * x),
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
    shapes, fast, plain = FUNCTIONS[name]
    first, *others = (
        tf.constant(3 * rng.standard_normal(shape), tf.float32)
        for shape in shapes
    )
    # A variable as well as tensors.
    arguments = [tf.cast(first, dtype), *map(tf.Variable, others)]

    def compute():
        return run(fast, arguments)

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
    def activate(x):
        return dense_gelu(x, tf.eye(4), tf.zeros([4]))

    spec = tf.TensorSpec([None, 4], tf.float32)
    function = tf.function(activate, input_signature=[spec])
    for size in (1, 3):
        x = tf.ones([size, 4])
        wanted = tf.nn.gelu(x, approximate=True)
        np.testing.assert_allclose(function(x), wanted, rtol=1e-6)


def test_gradients_of_copies_are_summed_in_float32():
    x = tf.constant(1.0, tf.bfloat16)
    with tf.GradientTape() as tape:
        tape.watch(x)
        first, *others = operations.copies(x, 13)
        y = 256 * first + tf.add_n([0.5 * copy for copy in others])
    # In bfloat16, 256 + 0.5 is 256.
    assert float(tape.gradient(y, x)) == 262


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
