"""Functions whose value and gradient XLA compiles, for training steps.

TensorFlow runs gelu and its gradient as some twenty operations, each of which
reads and writes the whole tensor; on a CPU they take longer than the products
between them. Compiled, each is one pass (docs/results.md has what that gains).
For inference oneDNN's own fusions are better.
"""

import functools

import tensorflow as tf


def compiled(function):
    """Returns a function of tensors, to one tensor, with the same gradient.

    Value and gradient are compiled apart, once for each list of shapes; for
    the gradient the value is computed again, so that only the arguments are
    kept until then.

    Args:
      function: of nothing but its arguments, which all have a gradient.
    """

    def gradients(*tensors):
        *arguments, d_value = tensors
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            value = function(*arguments)
        found = tape.gradient(value, arguments, d_value)
        # It would be kept, and all training from now on be without it.
        if any(gradient is None for gradient in found):
            raise ValueError(
                f"{function.__name__} has no gradient for one of its "
                "arguments. Is recording stopped, as by tf.init_scope?"
            )
        return found

    compute, differentiate = map(trace_once, (function, gradients))

    @tf.custom_gradient
    def compute_with_gradient(*arguments):
        def differentiate_at(d_value):
            return differentiate(*arguments, d_value)

        return compute(*arguments), differentiate_at

    @functools.wraps(function)
    def call(*arguments):
        return compute_with_gradient(*map(tf.convert_to_tensor, arguments))

    return call


def trace_once(function):
    """Returns a function of tensors, compiled once for each list of shapes.

    A tf.function does that too, but warns when there are many.
    """

    @functools.cache
    def trace(*specs):
        function_of_any = tf.function(function, jit_compile=True)
        # For every replica, not the one that calls it first.
        with tf.device(None):
            return function_of_any.get_concrete_function(
                *(tf.TensorSpec(shape, dtype) for shape, dtype in specs)
            )

    def call(*tensors):
        return trace(*((tuple(x.shape), x.dtype) for x in tensors))(*tensors)

    return call
