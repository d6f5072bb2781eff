"""Builds the tf.distribute strategy and chooses the compute dtype."""

import contextlib
import functools
import os
import pathlib
import re
import socket
import urllib.parse

import tensorflow as tf

from albert_tf.model import layers, onednn
from albert_tf.training import workers

CONNECT_SECONDS = 10
MEMORY_INFO = "/proc/meminfo"
# The most that the processes of a container may use; a number, or "max".
CONTAINER_LIMIT = "/sys/fs/cgroup/memory.max"
# Linux's names of the x86 instruction sets that multiply bfloat16 matrices.
BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16"}
# The first NVIDIA GPUs with bfloat16 instructions: A100, RTX 30.
BFLOAT16_CAPABILITY = (8, 0)
DISTRIBUTIONS = ("auto", "one_device", "mirrored", "multi_worker", "tpu")


def build_strategy(
    distribution="auto",
    *,
    tpu_name=None,
    tpu_zone=None,
    gcp_project=None,
    settings=None,
):
    """Returns the strategy in whose scope models must be created.

    Args:
      distribution: "one_device"; "mirrored", one replica per GPU or, without
        GPUs, per logical CPU; "multi_worker", all GPUs of several hosts, see
        `workers`; "tpu"; or "auto", which is "mirrored" for several GPUs and
        "one_device" otherwise.
      tpu_name: name or address of the TPU, "local" on a TPU VM.
      tpu_zone: Google Cloud zone of a TPU given by name.
      gcp_project: its Google Cloud project.
      settings: dict of JSON values that must be equal in all workers.

    Returns:
      A tf.distribute.Strategy: the default strategy for one device.

    Raises:
      ValueError: if the distribution is unknown, its devices are missing, or
        the workers' settings differ.
      TimeoutError: if a worker is missing.
    """
    if distribution not in DISTRIBUTIONS:
        raise ValueError(
            f"distribution is {distribution!r}; known: {DISTRIBUTIONS}"
        )
    if distribution == "tpu":
        return connect_to_tpu(tpu_name, tpu_zone, gcp_project)
    if tpu_name:
        raise ValueError(
            f"tpu_name={tpu_name} is for distribution=tpu, and this is "
            f"{distribution!r}: give both, or neither."
        )
    if distribution == "multi_worker":
        return workers.connect(settings or {})
    num_gpus = len(tf.config.list_logical_devices("GPU"))
    if distribution == "auto":
        distribution = "mirrored" if num_gpus > 1 else "one_device"
    if distribution == "one_device":
        return tf.distribute.get_strategy()
    kind = "GPU" if num_gpus else "CPU"
    return build_mirrored(
        tuple(d.name for d in tf.config.list_logical_devices(kind))
    )


@functools.cache
def build_mirrored(devices):
    """Returns the MirroredStrategy of some devices, one object per set.

    A second one would restart the numbering of collectives, which would then
    collide in TensorFlow's runtime with those of the first, of other shapes.
    """
    return tf.distribute.MirroredStrategy(devices)


def connect_to_tpu(tpu_name, tpu_zone, gcp_project):
    """Returns the TPUStrategy for all cores of a TPU.

    Raises:
      ValueError: if there is no TPU.
    """
    check_address(tpu_name)
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=tpu_name or "local", zone=tpu_zone, project=gcp_project
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    # A name is looked up by a client library, which raises RuntimeError.
    except (ValueError, IndexError, RuntimeError, tf.errors.OpError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"No TPU at {tpu_name or 'local'!r}: {reason}\nOn a TPU VM, "
            "install tensorflow-tpu instead of tensorflow and give "
            "tpu_name=local; elsewhere, choose another distribution."
        ) from error


def check_address(tpu_name):
    """Raises ValueError if a TPU address accepts no connection.

    TensorFlow would retry silently for minutes.

    Args:
      tpu_name: name, or address such as grpc://10.0.0.2:8470; None for local.
    """
    address = urllib.parse.urlsplit(tpu_name or "")
    if address.scheme != "grpc":
        return
    try:
        target = (address.hostname, address.port or 0)
        socket.create_connection(target, CONNECT_SECONDS).close()
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"No TPU at {tpu_name!r}: no connection within "
            f"{CONNECT_SECONDS} s ({error}). Is the TPU running, and does its "
            "address have the form grpc://HOST:PORT?"
        ) from error


def is_tpu(strategy):
    """Whether a strategy is a TPUStrategy."""
    return isinstance(strategy, tf.distribute.TPUStrategy)


def is_single_cpu(strategy):
    """Whether a strategy computes on one CPU alone."""
    return (
        strategy.num_replicas_in_sync == 1
        and not is_tpu(strategy)
        and not tf.config.list_logical_devices("GPU")
    )


def choose_compute_dtype(name, strategy):
    """Returns the data type of matrix products, "float32" or "bfloat16".

    Args:
      name: one of them, or "auto" for bfloat16 if all devices have
        instructions for it, and float32 otherwise.
      strategy: a tf.distribute.Strategy.

    Raises:
      ValueError: if it is none of these names, or the process would abort.
    """
    if name not in ("auto", *layers.POLICIES):
        raise ValueError(
            f"compute_dtype is {name!r}; wanted 'auto' or one of "
            f"{list(layers.POLICIES)}."
        )
    if name == "bfloat16" and onednn.is_limited() and is_single_cpu(strategy):
        raise ValueError(
            f"compute_dtype=bfloat16 would abort: {onednn.LIMIT}="
            f"{os.environ[onednn.LIMIT]} excludes the instructions that oneDNN "
            "needs for it. Unset that variable, or give float32."
        )
    if name != "auto":
        return name
    return "bfloat16" if multiplies_bfloat16(strategy) else "float32"


def multiplies_bfloat16(strategy):
    """Whether all devices of a strategy have instructions for bfloat16."""
    if is_tpu(strategy):
        return True
    if gpus := tf.config.list_physical_devices("GPU"):
        details = map(tf.config.experimental.get_device_details, gpus)
        return all(
            gpu.get("compute_capability", (0, 0)) >= BFLOAT16_CAPABILITY
            for gpu in details
        )
    return onednn.multiplies_bfloat16() and not BFLOAT16_FLAGS.isdisjoint(
        onednn.read_cpu_flags()
    )


def find_cpu_memory(strategy) -> int | None:
    """Returns the bytes that a step may use; None if not on a single CPU."""
    return read_available_memory() if is_single_cpu(strategy) else None


def read_available_memory():
    """Returns how many bytes are free for a program; None if unknown.

    That is what Linux has available, or the limit of the container.
    """
    sizes = []
    with contextlib.suppress(OSError):
        text = pathlib.Path(MEMORY_INFO).read_text("utf-8")
        kilobytes = re.findall(r"^MemAvailable:\s*(\d+) kB$", text, re.M)
        sizes += [1024 * int(number) for number in kilobytes]
    with contextlib.suppress(OSError, ValueError):  # "max" is no number.
        sizes.append(int(pathlib.Path(CONTAINER_LIMIT).read_text("utf-8")))
    return min(sizes, default=None)


def check_batch_size(strategy, batch_size, argument, num_parts=1):
    """Checks that a global batch can be divided evenly among the replicas.

    Args:
      strategy: a tf.distribute.Strategy.
      batch_size: global batch size, in examples.
      argument: its name, for the message.
      num_parts: number of equal parts of each replica's batch.

    Raises:
      ValueError: if it is not a multiple of the number of replicas, times the
        number of parts.
    """
    replicas = strategy.num_replicas_in_sync
    divisor = replicas * num_parts
    if batch_size > 0 and batch_size % divisor == 0:
        return
    wanted = f"the {replicas} replicas"
    if num_parts > 1:
        wanted += f" times gradient_accumulation_steps={num_parts}"
    nearest = max(batch_size // divisor, 1) * divisor
    raise ValueError(
        f"{argument}={batch_size} is a global batch size, but not a multiple "
        f"of {wanted}; use {nearest}, for example."
    )
