"""Compiles functions and their gradients with XLA, for training steps.

TensorFlow runs gelu and its gradient as about twenty operations. Each reads and
writes the whole tensor; on a CPU they take longer than the matrix
multiplications between them. Compiled, value and gradient are one pass each
(docs/results.md has the gain). For inference, oneDNN's own fusions are faster.
"""

import functools

import tensorflow as tf

from albert_tf.model import custom_gradients


def compiled(function):
    """Returns a compiled version of a function, with the same gradient.

    Value and gradient are compiled separately, once per list of shapes. The
    gradient recomputes the value, so that only the arguments are kept in
    memory.

    Args:
      function: maps tensors to one tensor; depends only on its arguments, and
        is differentiable in all of them.
    """

    def compute_gradients(*tensors):
        *arguments, d_value = tensors
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            value = function(*arguments)
        gradients = tape.gradient(value, arguments, d_value)
        # The cached trace would lack this gradient in all later steps.
        if any(gradient is None for gradient in gradients):
            raise ValueError(
                f"{function.__name__} has no gradient for one of its "
                "arguments. Is recording stopped, for example by "
                "tf.init_scope?"
            )
        return gradients

    compute, differentiate = map(trace_once, (function, compute_gradients))

    @custom_gradients.custom_gradient
    def compute_with_gradient(*arguments):
        def differentiate_at(d_value):
            return differentiate(*arguments, d_value)

        return compute(*arguments), differentiate_at

    @functools.wraps(function)
    def call(*arguments):
        return compute_with_gradient(*map(tf.convert_to_tensor, arguments))

    return call


def trace_once(function):
    """Returns a function of tensors that is compiled once per list of shapes.

    A tf.function would do the same, but warns about many shapes.
    """

    @functools.cache
    def trace(*specs):
        function_of_any = tf.function(function, jit_compile=True)
        # Not placed on the device of the first replica that calls it.
        with tf.device(None):
            return function_of_any.get_concrete_function(
                *(tf.TensorSpec(shape, dtype) for shape, dtype in specs)
            )

    def call(*tensors):
        return trace(*((tuple(x.shape), x.dtype) for x in tensors))(*tensors)

    return call
