"""Operations of oneDNN that TensorFlow contains, but has no function for.

Grappler puts them into graphs in place of certain patterns of operations. Where
it misses a pattern, as with the norms, those are several times slower. Other
builds of TensorFlow lack them, so a function with them must stay in the process
that traced it.
"""

import functools
import os
import pathlib

import numpy as np
import tensorflow as tf

_Attribute = tf.compat.v1.AttrValue
CPU_INFO = "/proc/cpuinfo"
# Linux's names of x86 instruction sets, of which oneDNN needs one for bfloat16.
BFLOAT16_FLAGS = {"avx512f", "avx_ne_convert"}
# Environment variable that limits oneDNN's instruction sets, and its values
# that exclude those.
LIMIT = "ONEDNN_MAX_CPU_ISA"
LIMITS = {"SSE41", "AVX", "AVX2", "AVX2_VNNI"}


def layer_norm(x, gamma, beta, epsilon):
    """Normalizes x [..., H] over the last axis in one pass, in float32.

    The result has the shape and dtype of x, float32 or bfloat16.
    """
    rows = tf.reshape(x, [-1, x.shape[-1]])  # [R, H]
    weights = [tf.cast(tf.convert_to_tensor(w), x.dtype) for w in (gamma, beta)]
    y = _create(
        "_MklLayerNorm", [rows, *weights], epsilon=_Attribute(f=epsilon)
    )
    return tf.ensure_shape(tf.reshape(y, tf.shape(x)), x.shape)


def masked_scores(q, k, mask_scores):
    """Returns q @ k^T + mask_scores, [B, N, T, T], as one operation.

    q and k are [B, N, T, D], mask_scores [B, 1, 1, T]; all are float32 or
    bfloat16.
    """
    fused_ops = _Attribute.ListValue(s=[b"Mul", b"Add"])
    return _create(
        "_MklFusedBatchMatMulV2",
        [q, k, tf.ones([], q.dtype), mask_scores],
        num_args=_Attribute(i=2),
        fused_ops=_Attribute(list=fused_ops),
        adj_x=_Attribute(b=False),
        adj_y=_Attribute(b=True),
    )


def _create(kind, inputs, **attributes):
    """Adds an operation to the graph; inputs and output have one dtype."""
    dtype = inputs[0].dtype
    attributes["T"] = _Attribute(type=dtype.as_datatype_enum)
    operation = tf.compat.v1.get_default_graph().create_op(
        kind,
        inputs,
        [dtype],
        attrs=attributes,
        # The default, the type, is no valid name.
        name=kind.lstrip("_"),
    )
    return operation.outputs[0]


def is_limited():
    """Returns whether the environment forbids oneDNN to multiply bfloat16.

    TensorFlow does not check it: any multiplication then aborts the process.
    """
    return os.environ.get(LIMIT, "").upper() in LIMITS


def multiplies_bfloat16():
    """Returns whether oneDNN can multiply bfloat16 on this CPU.

    If not, oneDNN's operations abort the process; TensorFlow's own work.
    """
    flags = read_cpu_flags()
    is_unknown = not flags  # Not Linux, or not x86.
    return not is_limited() and (is_unknown or bool(flags & BFLOAT16_FLAGS))


@functools.cache
def sums_rows_slowly(dtype):
    """Returns whether x^T @ y of many rows takes oneDNN twice as long as XLA.

    So it is in float32 on CPUs with AVX2 and without AVX-512 (docs/results.md).
    """
    flags = read_cpu_flags()
    is_only_avx2 = "avx2" in flags and "avx512f" not in flags
    devices = tf.config.list_logical_devices()
    is_cpu = all(device.device_type == "CPU" for device in devices)
    return dtype == tf.float32 and is_only_avx2 and is_cpu


def read_cpu_flags():
    """Returns the set of x86 CPU flags that Linux reports; empty elsewhere."""
    try:
        lines = pathlib.Path(CPU_INFO).read_text("utf-8").splitlines()
    except OSError:
        return set()
    flags = (line for line in lines if line.startswith("flags"))
    return set(next(flags, "").partition(":")[2].split())


@functools.cache
def is_available(dtype):
    """Returns whether the operations work here for a dtype, by trying them."""
    if dtype == tf.bfloat16 and not multiplies_bfloat16():
        return False
    x = np.arange(16).reshape(2, 8) ** 2.0
    norm = 2 * (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True) + 1
    q, mask = np.eye(2, 4), np.array([0.0, -8.0])

    @tf.function(autograph=False)
    def try_both(x, q, mask):
        y = layer_norm(x, tf.fill([8], 2.0), tf.ones([8]), 0.0)
        return y, masked_scores(q, q, mask)

    try:
        with tf.init_scope():
            arrays = x, q[None, None], mask[None, None, None]
            tensors = [tf.cast(array, dtype) for array in arrays]
            # Also a graph where functions run eagerly.
            results = try_both.get_concrete_function(*tensors)(*tensors)
            y, scores = (tf.cast(r, tf.float32).numpy() for r in results)
    except (RuntimeError, ValueError, tf.errors.OpError):
        return False
    errors = y - norm, scores[0, 0] - (q @ q.T + mask)
    return all(np.abs(error).max() < 0.02 for error in errors)
