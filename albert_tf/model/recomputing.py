"""Repeats a layer and recomputes it for its gradient, to save memory.

Training keeps all values inside a layer until the backward pass, among them
the attention of every pair of tokens. Recomputed, only the layer's input is
kept. As ALBERT's layers share their weights, they are one loop in the graph,
whose size does not depend on the number of layers.
"""

import tensorflow as tf

from albert_tf.model import custom_gradients


def repeat(step, x, weights, count):
    """Computes x = step(i, x, weights) for each i below `count`.

    Args:
      step: function of an int32 scalar, x and weights. It returns a tensor of
        x's shape and dtype, and depends on all weights.
      x: a tensor.
      weights: nested tuples and lists of tensors.
      count: number of steps.

    Returns:
      The last x. Its gradients for x and weights are defined; weights'
      gradients are summed over the steps in float32.
    """
    flat = [x, *tf.nest.flatten(weights)]

    @custom_gradients.custom_gradient
    def run(x, *tensors):
        def run_step(i, x):
            y = step(i, x, tf.nest.pack_sequence_as(weights, tensors))
            return tf.ensure_shape(y, x.shape)

        y, inputs = _forward(run_step, x, count)

        def differentiate(d_y):
            return _backward(run_step, inputs, d_y, tensors, count)

        return y, differentiate

    return run(*flat)


def _forward(run_step, x, count):
    """Returns the last x, and a TensorArray of the inputs of all steps."""

    def body(i, x, inputs):
        return i + 1, run_step(i, x), inputs.write(i, x)

    inputs = tf.TensorArray(
        x.dtype, count, element_shape=x.shape, clear_after_read=False
    )
    _, y, inputs = tf.while_loop(
        lambda i, *_: i < count,
        body,
        (tf.constant(0), x, inputs),
        parallel_iterations=1,
        maximum_iterations=count,
    )
    return y, inputs


def _backward(run_step, inputs, d_y, tensors, count):
    """Returns the gradients of `run_step`, repeated, for x and tensors."""

    def body(i, d_y, sums):
        x = inputs.read(i)
        with tf.GradientTape() as tape:
            tape.watch([x, *tensors])
            y = run_step(i, x)
        d_x, *gradients = tape.gradient(y, [x, *tensors], d_y)
        sums = [
            total + tf.cast(gradient, total.dtype)
            for total, gradient in zip(sums, gradients, strict=True)
        ]
        return i - 1, d_x, sums

    zeros = [tf.zeros(tensor.shape, tf.float32) for tensor in tensors]
    # Otherwise the last step is computed again while what follows it still
    # takes memory.
    with tf.control_dependencies([d_y]):
        last = tf.constant(count - 1)
    # One step at a time: steps that are recomputed early take memory.
    _, d_x, sums = tf.while_loop(
        lambda i, *_: i >= 0,
        body,
        (last, d_y, zeros),
        parallel_iterations=1,
        maximum_iterations=count,
    )
    return d_x, *(
        tf.cast(total, tensor.dtype)
        for total, tensor in zip(sums, tensors, strict=True)
    )
