"""Runs an HLO module on several logical CPUs, in the compiler's environment.

    python run_on_cpus.py step.hlo split.npz equal.npz outputs.npz

Inputs and outputs are arrays named by their index. Those in split.npz are
divided among two replicas along their first axis; those in equal.npz follow
them, and are the same for both. Outputs have a first axis for the replicas.
"""

import os
import pathlib
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import numpy as np
from jaxlib import _jax, xla_client

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "albert_tf" / "lab"))
import tpu_compiler  # noqa: E402

hlo, split, equal, outputs = sys.argv[1:]
jax.config.update("jax_enable_x64", True)
devices = jax.devices()
mesh = jax.sharding.Mesh(np.array(devices), "replica")
arrays = [
    jax.device_put(
        arrays[str(i)],
        jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes)),
    )
    for path, axes in ((split, ["replica"]), (equal, []))
    for arrays in [np.load(path)]
    for i in range(len(arrays.files))
]
options = xla_client.CompileOptions()
options.num_replicas, options.num_partitions = len(devices), 1
options.device_assignment = xla_client.DeviceAssignment.create(
    np.array([[device.id] for device in devices])
)
executable = devices[0].client.compile_and_load(
    tpu_compiler.convert(pathlib.Path(hlo).read_bytes(), len(devices)),
    _jax.DeviceList(tuple(devices)),
    options,
)
results = executable.execute_sharded(arrays)
found = results.disassemble_into_single_device_arrays()
np.savez(
    outputs,
    **{
        str(i): np.stack([np.asarray(x) for x in replicas])
        for i, replicas in enumerate(found)
    },
)
