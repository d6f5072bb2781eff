"""Operations of oneDNN that TensorFlow contains, but has no function for.

Grappler puts them into graphs in place of certain patterns of others, which
are several times slower where a pattern is missed. Other builds of TensorFlow
lack them, so a function with them must stay in the process that traced it.
"""

import functools

import numpy as np
import tensorflow as tf


def layer_norm(x, gamma, beta, epsilon):
    """Normalizes over the last axis in one pass, computed in float32.

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


def masked_scores(q, k, mask_scores):
    """Returns q @ k^T + mask_scores, [B, N, T, T], as one operation.

    Args:
      q: [B, N, T, D] float32 or bfloat16.
      k: [B, N, T, D], like q.
      mask_scores: [B, 1, 1, T], like q.
    """
    attribute = tf.compat.v1.AttrValue
    fused_ops = attribute.ListValue(s=[b"Mul", b"Add"])
    operation = tf.compat.v1.get_default_graph().create_op(
        "_MklFusedBatchMatMulV2",
        [q, k, tf.ones([], q.dtype), mask_scores],
        [q.dtype],
        attrs={
            "T": attribute(type=q.dtype.as_datatype_enum),
            "num_args": attribute(i=2),
            "fused_ops": attribute(list=fused_ops),
            "adj_x": attribute(b=False),
            "adj_y": attribute(b=True),
        },
        name="FusedBatchMatMul",
    )
    return operation.outputs[0]


@functools.cache
def is_available(dtype):
    """Returns whether the operations work here, by trying them.

    Args:
      dtype: dtype of x and q, a tf.DType.
    """
    x = np.arange(16).reshape(2, 8) ** 2.0
    norm = 2 * (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True) + 1
    q, mask = np.eye(2, 4), np.array([0.0, -8.0])

    @tf.function(autograph=False)
    def try_both(x, q, mask):
        y = layer_norm(x, tf.fill([8], 2.0), tf.ones([8]), 0.0)
        return y, masked_scores(q, q, mask)

    try:
        with tf.init_scope():
            results = try_both(
                tf.cast(x, dtype),
                tf.cast(q[None, None], dtype),
                tf.cast(mask[None, None, None], dtype),
            )
            y, scores = (tf.cast(r, tf.float32).numpy() for r in results)
    except (RuntimeError, ValueError, tf.errors.OpError):
        return False
    errors = y - norm, scores[0, 0] - (q @ q.T + mask)
    return all(np.abs(error).max() < 0.02 for error in errors)
