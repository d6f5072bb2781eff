"""Operations of oneDNN that TensorFlow contains, but has no function for.

Grappler puts them into graphs in place of certain patterns of others, which
are several times slower where a pattern is missed. Other builds of TensorFlow
lack them, so a function with them must stay in the process that traced it.
"""

import functools

import numpy as np
import tensorflow as tf


def layer_norm(x, gamma, beta, epsilon):
    """Normalizes over the last axis in one pass, in float32 inside.

    Args:
      x: [..., H] float32 or bfloat16; the result has the same shape and dtype.
      gamma: [H].
      beta: [H].
      epsilon: a float.
    """
    rows = tf.reshape(x, [-1, x.shape[-1]])  # [R, H]
    weights = [tf.cast(tf.convert_to_tensor(w), x.dtype) for w in (gamma, beta)]
    attribute = tf.compat.v1.AttrValue
    operation = tf.compat.v1.get_default_graph().create_op(
        "_MklLayerNorm",
        [rows, *weights],
        [x.dtype],
        attrs={
            "T": attribute(type=x.dtype.as_datatype_enum),
            "epsilon": attribute(f=epsilon),
        },
        name="LayerNorm",
    )
    y = tf.reshape(operation.outputs[0], tf.shape(x))
    return tf.ensure_shape(y, x.shape)


@functools.cache
def has_layer_norm(dtype):
    """Returns whether `layer_norm` works here, by trying it.

    Args:
      dtype: dtype of x, a tf.DType.
    """
    x = np.arange(16).reshape(2, 8) ** 2.0
    wanted = 2 * (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True) + 1
    try:
        with tf.init_scope():
            found = tf.function(layer_norm)(
                tf.cast(x, dtype), tf.fill([8], 2.0), tf.ones([8]), 0.0
            )
            found = tf.cast(found, tf.float32).numpy()
    except (RuntimeError, ValueError, tf.errors.OpError):
        return False
    return bool(np.abs(found - wanted).max() < 0.02)
