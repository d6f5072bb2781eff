"""Operations of the layers: dense layers, norms, attention scores.

In training, what follows a matrix multiplication is compiled, with a gradient
of its own (see `compiled`). For inference, oneDNN's fusions are faster.

Shapes: B batch, T tokens, H hidden_size, N heads, D = H / N, R rows, usually
B * T.
"""

import tensorflow as tf

from albert_tf.model import compiled, custom_gradients, execution, onednn

# The epsilon of tf.contrib.layers.layer_norm; Keras defaults to 1e-3.
LAYER_NORM_EPSILON = 1e-12
ACTIVATIONS = {
    # The release's gelu is the tanh form; Keras's default is the exact one.
    "gelu": lambda x: tf.nn.gelu(x, approximate=True),
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
    "linear": tf.identity,
    None: tf.identity,
}


def size_of(x, axis):
    """Returns the size of an axis of x, static if known."""
    return x.shape[axis] or tf.shape(x)[axis]


def dense(x, kernel, bias, *, training=False):
    """Returns x @ kernel + bias; x is [R, inputs], the result [R, outputs]."""
    # MatMul followed by BiasAdd, which oneDNN and XLA fuse.
    multiply = product if training else tf.matmul
    return tf.nn.bias_add(multiply(x, kernel), bias)


def product(x, kernel):
    """Returns x @ kernel, [R, outputs], in training; x is [R, inputs]."""
    if onednn.sums_rows_slowly(x.dtype):
        return _product(x, kernel)
    return tf.matmul(x, kernel)


@custom_gradients.custom_gradient
def _product(x, kernel):
    def gradient(d_y):
        d_x = tf.matmul(d_y, kernel, transpose_b=True)  # [R, inputs]
        return d_x, product_over_rows(x, d_y)

    return tf.matmul(x, kernel), gradient


def product_over_rows(x, y):
    """Returns the transpose of x times y, [X, Y]; x is [R, X], y [R, Y]."""
    if onednn.sums_rows_slowly(x.dtype):
        return _compiled_product_over_rows(x, y)
    return tf.matmul(x, y, transpose_a=True)


@compiled.trace_once
def _compiled_product_over_rows(x, y):
    return tf.matmul(x, y, transpose_a=True)


def dense_activation(x, kernel, bias, name, *, training=False):
    """Returns one of ACTIVATIONS, by name, of `dense`: [R, outputs].

    In training, bias and gelu are compiled.
    """
    if training and name == "gelu":
        # Without the bias, as oneDNN's multiplication with one takes twice as
        # long on a CPU with AMX, unless the kernel is a constant.
        return _bias_gelu(product(x, kernel), bias)
    return ACTIVATIONS[name](dense(x, kernel, bias, training=training))


@compiled.compiled
def _bias_gelu(x, bias):
    # In float32 for every dtype of x: compiled, that is twice as fast.
    y = tf.cast(x, tf.float32) + tf.cast(bias, tf.float32)
    return tf.cast(ACTIVATIONS["gelu"](y), x.dtype)


def dense_sum_norm(x, kernel, bias, residual, gamma, beta):
    """Returns layer_norm(residual + x @ kernel + bias), [R, H], in training.

    Sum and norm are compiled together. For shapes, see `dense` and
    `layer_norm`; the residual is like the result.
    """
    norm = map(tf.convert_to_tensor, (gamma, beta))
    return _sum_norm(product(x, kernel), bias, residual, *norm)


@custom_gradients.custom_gradient
def _sum_norm(x, bias, residual, gamma, beta):
    # Only the sum is kept for the gradient, from which it is computed again.
    total, y = _sum_and_norm(x, bias, residual, gamma, beta)

    def gradient(d_y):
        d_total, d_bias, d_gamma, d_beta = _sum_norm_gradients(
            total, gamma, beta, d_y
        )
        return d_total, d_bias, d_total, d_gamma, d_beta

    return y, gradient


@compiled.trace_once
def _sum_and_norm(x, bias, residual, gamma, beta):
    y, b, r = (tf.cast(t, tf.float32) for t in (x, bias, residual))
    total = tf.cast(r + (y + b), x.dtype)
    return total, layer_norm(total, gamma, beta)


@compiled.trace_once
def _sum_norm_gradients(total, gamma, beta, d_y):
    arguments = total, gamma, beta
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        y = layer_norm(*arguments)
    d_total, d_gamma, d_beta = tape.gradient(y, arguments, d_y)
    d_bias = tf.reduce_sum(tf.cast(d_total, tf.float32), axis=0)
    return d_total, tf.cast(d_bias, total.dtype), d_gamma, d_beta


def layer_norm(x, gamma, beta, *, training=False):
    """Normalizes over the last axis, in float32 for every dtype of x.

    The result has the shape and dtype of x, [..., H]; gamma and beta are [H]
    float32. In training, value and gradient are compiled. Second derivatives
    are wrong, as those of `tf.nn.moments`.

    Source: tf.contrib.layers.layer_norm, epsilon 1e-12.
    """
    if training:
        return _compiled_layer_norm(x, gamma, beta)
    if execution.current().uses_onednn(x.dtype):
        return onednn.layer_norm(x, gamma, beta, LAYER_NORM_EPSILON)
    y = tf.cast(x, tf.float32)
    mean = tf.reduce_mean(y, axis=-1, keepdims=True)
    # The gradient of the variance with respect to the mean is 0.
    squares = tf.math.squared_difference(y, tf.stop_gradient(mean))
    variance = tf.reduce_mean(squares, axis=-1, keepdims=True)
    scale = tf.math.rsqrt(variance + LAYER_NORM_EPSILON) * gamma
    return tf.cast((y - mean) * scale + beta, x.dtype)


_compiled_layer_norm = compiled.compiled(layer_norm)


def attention_probs(q, k, mask_scores, *, training=False):
    """Returns `masked_softmax` of q @ k^T; q and k are [B, N, T, D]."""
    if execution.current().uses_onednn(q.dtype):
        # One operation adds the mask within the multiplication.
        mask_scores = tf.cast(mask_scores, q.dtype)
        return masked_softmax(onednn.masked_scores(q, k, mask_scores))
    scores = tf.matmul(q, k, transpose_b=True)  # [B, N, T, T]
    return masked_softmax(scores, mask_scores, training=training)


def masked_softmax(scores, mask_scores=None, *, training=False):
    """Returns softmax of scores + mask_scores, computed in float32.

    In training, the gradient is derived from the result, so that no float32
    tensor is kept for it.

    Args:
      scores: [B, N, T, T]; the result has the same shape and dtype.
      mask_scores: [B, 1, 1, T] float32; None if the scores include it.
      training: as above. There is no gradient for mask_scores.
    """
    if training:
        return _trained_softmax(scores, mask_scores)
    is_rounded = execution.current().bfloat16_softmax
    dtype = scores.dtype if is_rounded else tf.float32
    x = tf.cast(scores, dtype)
    if mask_scores is not None:
        x += tf.cast(mask_scores, dtype)
    return tf.cast(tf.nn.softmax(x), scores.dtype)


@custom_gradients.custom_gradient
def _trained_softmax(scores, mask_scores):
    probs = masked_softmax(scores, mask_scores)
    return probs, lambda d_probs: (_softmax_gradient(probs, d_probs), None)


@compiled.trace_once
def _softmax_gradient(probs, d_probs):
    p, d_p = tf.cast(probs, tf.float32), tf.cast(d_probs, tf.float32)
    mean = tf.reduce_sum(p * d_p, axis=-1, keepdims=True)
    return tf.cast(p * (d_p - mean), probs.dtype)


def copies(tensors, count):
    """Returns a list of copies of nested tensors, each of which must be used.

    Their gradients are summed in float32 and in one pass. TensorFlow would add
    those of a single tensor in its dtype, slowly if that is bfloat16.
    """

    @custom_gradients.custom_gradient
    def copy(tensor):
        return [tf.identity(tensor) for _ in range(count)], _sum_gradients

    columns = [copy(tensor) for tensor in tf.nest.flatten(tensors)]
    return [
        tf.nest.pack_sequence_as(tensors, row)
        for row in zip(*columns, strict=True)
    ]


@compiled.trace_once
def _sum_gradients(*gradients):
    total = tf.add_n([tf.cast(g, tf.float32) for g in gradients])
    return tf.cast(total, gradients[0].dtype)
