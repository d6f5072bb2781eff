"""oneDNN's operations against TensorFlow's own."""

import platform
import sys

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import execution, onednn, operations

DTYPES = [tf.float32, tf.bfloat16]


@pytest.mark.skipif(
    platform.machine() != "x86_64" or sys.platform != "linux",
    reason="TensorFlow has oneDNN on x86 processors with Linux",
)
def test_the_operations_are_in_tensorflow():
    assert onednn.is_available(tf.float32)


@pytest.mark.parametrize(
    ("flags", "is_there"),
    [("fpu avx2 fma", False), ("avx2 avx512f", True), ("avx_ne_convert", True)],
)
def test_without_avx512_its_bfloat16_is_not_tried(
    monkeypatch, tmp_path, flags, is_there
):
    """Trying it would abort the process."""

    def try_norm(*_):
        tried.append(1)
        raise RuntimeError  # Nothing more is tried: this CPU may lack it.

    path, tried = tmp_path / "cpuinfo", []
    path.write_text(f"flags : {flags}\n")
    monkeypatch.setattr(onednn, "CPU_INFO", str(path))
    monkeypatch.setattr(onednn, "layer_norm", try_norm)
    onednn.is_available.cache_clear()
    found = onednn.is_available(tf.bfloat16)
    onednn.is_available.cache_clear()
    assert not found
    assert bool(tried) == onednn.multiplies_bfloat16() == is_there


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", [(3, 8), (2, 3, 8), (2, 1, 3, 8)], ids=str)
def test_norms_agree_for_every_rank(dtype, shape):
    if not onednn.is_available(dtype):
        pytest.skip(f"This TensorFlow has no oneDNN for {dtype.name}.")
    rng = np.random.default_rng(0)
    x = tf.cast(rng.normal(1, 3, shape), dtype)
    gamma, beta = rng.normal(size=(2, 8)).astype(np.float32)
    wanted = operations.layer_norm(tf.cast(x, tf.float32), gamma, beta)
    norm = tf.function(
        lambda x: onednn.layer_norm(
            x, gamma, beta, operations.LAYER_NORM_EPSILON
        ),
        input_signature=[tf.TensorSpec([None] * (len(shape) - 1) + [8], dtype)],
    )
    found = norm(x)
    assert found.dtype == dtype
    assert norm.get_concrete_function().output_shapes.as_list()[-1] == 8
    np.testing.assert_allclose(
        tf.cast(found, tf.float32),
        wanted,
        atol=1e-5 if dtype == tf.float32 else 0.03,
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_masked_scores_agree_for_every_mask(dtype):
    if not onednn.is_available(dtype):
        pytest.skip(f"This TensorFlow has no oneDNN for {dtype.name}.")
    rng = np.random.default_rng(0)
    q, k = (tf.cast(rng.normal(size=(3, 2, 5, 4)), dtype) for _ in range(2))
    mask = tf.cast(np.where(rng.random((3, 1, 1, 5)) < 0.4, -9.0, 0.0), dtype)
    spec = tf.TensorSpec([None, 2, None, 4], dtype)
    scores = tf.function(
        onednn.masked_scores,
        input_signature=[spec, spec, tf.TensorSpec([None, 1, 1, None], dtype)],
    )
    assert scores.get_concrete_function().output_shapes.rank == 4
    np.testing.assert_allclose(
        tf.cast(scores(q, k, mask), tf.float32),
        np.einsum("bntd,bnsd->bnts", *(tf.cast(x, tf.float32) for x in (q, k)))
        + tf.cast(mask, tf.float32),
        atol=1e-5 if dtype == tf.float32 else 0.06,
    )


@pytest.mark.parametrize("problem", ["missing", "wrong"])
def test_norms_that_do_not_work_are_not_used(monkeypatch, problem):
    def broken(x, gamma, beta, epsilon):
        del gamma, beta, epsilon
        if problem == "wrong":
            return x
        graph = tf.compat.v1.get_default_graph()
        return graph.create_op("_NoSuchNorm", [x], [x.dtype], name="N")

    onednn.is_available.cache_clear()
    monkeypatch.setattr(onednn, "layer_norm", broken)
    x, ones = tf.random.normal([4, 8]), tf.ones([8])
    try:
        assert not onednn.is_available(tf.float32)
        with execution.using(execution.Execution(onednn=True)):
            found = tf.function(operations.layer_norm)(x, ones, ones)
    finally:
        onednn.is_available.cache_clear()
    wanted = operations.layer_norm(x, ones, ones)
    np.testing.assert_allclose(found, wanted, atol=1e-6)
