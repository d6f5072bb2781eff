"""Tests of distribution.py: strategies, batch sizes, data types, memory."""

import sys

import pytest
import tensorflow as tf

from albert_tf.model import onednn
from albert_tf.training import distribution


def test_mirrored_takes_every_logical_cpu_without_a_gpu():
    strategy = distribution.build_strategy("mirrored")
    assert isinstance(strategy, tf.distribute.MirroredStrategy)
    devices = tf.config.list_logical_devices("CPU")
    assert strategy.num_replicas_in_sync == len(devices) == 2


def test_a_process_has_one_mirrored_strategy():
    # Two strategies number their collectives alike, so a second run would now
    # and then fail with "Shape mismatch in the collective instance".
    first = distribution.build_strategy("mirrored")
    assert distribution.build_strategy("mirrored") is first


def test_one_device_has_one_replica():
    strategy = distribution.build_strategy("one_device")
    assert strategy.num_replicas_in_sync == 1


@pytest.mark.parametrize("name", [None, "local"])
def test_a_missing_tpu_is_explained(name):
    with pytest.raises(
        ValueError, match="No TPU at 'local'.*\n.*tensorflow-tpu"
    ):
        distribution.build_strategy("tpu", tpu_name=name)


def test_a_tpu_name_without_a_tpu_is_a_contradiction():
    with pytest.raises(ValueError, match="is for distribution=tpu"):
        distribution.build_strategy("auto", tpu_name="local")


def test_an_unknown_distribution_is_refused():
    with pytest.raises(ValueError, match="'gpu'; known: .*mirrored"):
        distribution.build_strategy("gpu")


@pytest.mark.parametrize(("size", "nearest"), [(7, 6), (1, 2), (0, 2)])
def test_a_global_batch_is_a_multiple_of_the_replicas(size, nearest):
    strategy = distribution.build_strategy("mirrored")
    distribution.check_batch_size(strategy, 8, "train_batch_size")
    with pytest.raises(ValueError, match=f"eval_batch_size={size} .*{nearest}"):
        distribution.check_batch_size(strategy, size, "eval_batch_size")


def test_a_batch_is_a_multiple_of_replicas_times_parts():
    strategy = distribution.build_strategy("mirrored")
    distribution.check_batch_size(strategy, 8, "train_batch_size", 4)
    with pytest.raises(
        ValueError,
        match="2 replicas times gradient_accumulation_steps=3; use 6",
    ):
        distribution.check_batch_size(strategy, 8, "train_batch_size", 3)


@pytest.mark.parametrize(
    "name", ["grpc://127.0.0.1:1", "grpc://", "grpc://127.0.0.1:x"]
)
def test_an_unreachable_tpu_is_reported_at_once(name):
    with pytest.raises(ValueError, match="No TPU at .*no connection"):
        distribution.build_strategy("tpu", tpu_name=name)


@pytest.mark.parametrize(
    "line, wanted",
    [
        ("flags\t\t: fpu avx512f avx512_bf16 sse", "bfloat16"),
        ("flags : avx512f amx_tile amx_bf16", "bfloat16"),
        ("flags : fpu avx512f avx512_bf160", "float32"),
        ("bugs : avx512_bf16", "float32"),
        (None, "float32"),
    ],
)
def test_auto_chooses_the_dtype_of_the_cpu(monkeypatch, tmp_path, line, wanted):
    path = tmp_path / "cpuinfo"
    if line:
        path.write_text(f"processor : 0\n{line}\npower management:\n")
    monkeypatch.setattr(onednn, "CPU_INFO", str(path))
    known = {"avx512_bf16", "amx_bf16"}
    monkeypatch.setattr(distribution, "BFLOAT16_FLAGS", known)
    strategy = distribution.build_strategy("one_device")
    choose = distribution.choose_compute_dtype
    assert choose("auto", strategy) == wanted
    assert choose("float32", strategy) == "float32"
    assert choose("bfloat16", strategy) == "bfloat16"


def test_bfloat16_is_refused_where_the_environment_excludes_it(monkeypatch):
    """oneDNN would abort the process."""
    strategy = distribution.build_strategy("one_device")
    choose = distribution.choose_compute_dtype
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "avx2")
    known = {"avx512_bf16", "amx_bf16"}
    monkeypatch.setattr(distribution, "BFLOAT16_FLAGS", known)
    assert choose("auto", strategy) == "float32"
    with pytest.raises(ValueError, match="ONEDNN_MAX_CPU_ISA=avx2 excludes"):
        choose("bfloat16", strategy)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
    assert choose("bfloat16", strategy) == "bfloat16"


@pytest.mark.parametrize(
    "capabilities, wanted",
    [
        ([(8, 0)], "bfloat16"),
        ([(9, 0), (7, 5)], "float32"),
        ([None], "float32"),
    ],
)
def test_auto_chooses_a_dtype_that_all_gpus_support(
    monkeypatch, capabilities, wanted
):
    strategy = distribution.build_strategy("one_device")
    details = {
        f"GPU:{i}": {"compute_capability": c} if c else {}
        for i, c in enumerate(capabilities)
    }
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind: list(details)
    )
    monkeypatch.setattr(
        tf.config.experimental, "get_device_details", details.get
    )
    assert distribution.choose_compute_dtype("auto", strategy) == wanted


@pytest.mark.parametrize(
    "memory, limit, wanted",
    [
        ("MemTotal: 9 kB\nMemAvailable:   4 kB\n", None, 4096),
        ("MemTotal: 9 kB\nMemAvailable:   4 kB\n", "max\n", 4096),
        ("MemAvailable: 4 kB\n", "4095\n", 4095),
        (None, "5000\n", 5000),
        (None, None, None),
    ],
)
def test_memory_is_that_of_the_machine_or_its_container(
    monkeypatch, tmp_path, memory, limit, wanted
):
    for name, text in (("MEMORY_INFO", memory), ("CONTAINER_LIMIT", limit)):
        path = tmp_path / name
        if text:
            path.write_text(text)
        monkeypatch.setattr(distribution, name, str(path))
    assert distribution.read_available_memory() == wanted


@pytest.mark.skipif(sys.platform != "linux", reason="Linux says it")
def test_the_memory_of_this_machine_is_read():
    assert distribution.read_available_memory() > 1 << 26
