"""Compiles an HLO module for a TPU, without a TPU.

    python tpu_compiler.py --topology=v3:2x2
    python tpu_compiler.py --topology=v3:2x2 step.hlo --num_replicas=8

The last line of output is JSON: a description of the TPU, or the module's costs
on it. This file runs as a script in the environment of `tpu_environment`, which
has jax and libtpu but not this package.
"""

import argparse
import json
import os
import re
import time

# Do not search for a TPU, log about it or lock it: several may compile at once.
os.environ.update(
    JAX_PLATFORMS="cpu",
    ALLOW_MULTIPLE_LIBTPU_LOAD="1",
    TPU_SKIP_MDS_QUERY="1",
    TPU_ACCELERATOR_TYPE="v4-8",
    TPU_WORKER_HOSTNAMES="localhost",
    TPU_WORKER_ID="0",
    TPU_STDERR_LOG_LEVEL="3",
    TPU_MIN_LOG_LEVEL="3",
    TF_CPP_MIN_LOG_LEVEL="3",
)

import jax  # noqa: F401 (loads the dialects below)
import numpy as np
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import hlo
from jax.experimental import topologies
from jaxlib import _jax, xla_client

# Attributes of the module that StableHLO does not know.
ALIASES = "mhlo.input_output_alias"
FOREIGN = (
    ALIASES,
    "mhlo.cross_program_prefetches",
    "mhlo.frontend_attributes",
    "mhlo.is_dynamic",
    "mhlo.use_auto_spmd_partitioning",
)

# A module that fits on no TPU: its array has 512 GiB.
TOO_LARGE = """
func.func @main(%x: tensor<137438953472xf32>) -> tensor<137438953472xf32> {
  %y = stablehlo.add %x, %x : tensor<137438953472xf32>
  return %y : tensor<137438953472xf32>
}
"""


def convert(content, num_replicas):
    """Converts a serialized HloModuleProto to an ir.Module for TPUs."""
    module = ir.Module.parse(
        _jax.mlir.hlo_to_stablehlo(content), mlir.make_ir_context()
    )
    with module.context, ir.Location.unknown():
        for operation in list(operations(module.body)):
            adapt(operation)
        (main,) = (
            op for op in module.body.operations if op.name.value == "main"
        )
        attributes = module.operation.attributes
        if ALIASES in attributes:
            donate(main, str(attributes[ALIASES]))
        for name in FOREIGN:
            if name in attributes:
                del attributes[name]
        number = ir.IntegerType.get_signless(32)
        for name, value in (("replicas", num_replicas), ("partitions", 1)):
            attributes[f"mhlo.num_{name}"] = ir.IntegerAttr.get(number, value)
    return module


def operations(block):
    """Yields all operations of a block, inner ones first."""
    for operation in block.operations:
        for region in operation.operation.regions:
            for inner in region.blocks:
                yield from operations(inner)
        yield operation.operation


def adapt(operation):
    """Replaces an operation that TPUs lack or implement in another way."""
    if operation.name == "mhlo.copy":
        # Marks returned variables; StableHLO has no such operation.
        operation.results[0].replace_all_uses_with(operation.operands[0])
        operation.erase()
    elif operation.name == "stablehlo.rng_bit_generator":
        use_generator_of_tpu(operation)


def use_generator_of_tpu(operation):
    """Replaces TensorFlow's random generator for CPUs, Philox, by the TPU's."""
    (state,), results = operation.operands, operation.results
    default = ir.Attribute.parse("#stablehlo<rng_algorithm DEFAULT>")
    with ir.InsertionPoint(operation):
        # Key and counter; Philox has a counter of two words.
        key, rest = (
            hlo.slice(state, *map(ir.DenseI64ArrayAttr.get, bounds))
            for bounds in (([0], [2], [1]), ([2], [3], [1]))
        )
        key, bits = hlo.rng_bit_generator(
            key.type, results[1].type, default, key
        )
        replacements = hlo.concatenate([key, rest], 0), bits
    for result, replacement in zip(results, replacements, strict=True):
        result.replace_all_uses_with(replacement)
    operation.erase()


def donate(main, aliases):
    """Lets updated variables take the memory of the old ones.

    Args:
      main: the function to compile.
      aliases: HLO's attribute that lists the output for each parameter.
    """
    pairs = re.findall(
        r"parameter_number = (\d+) : i64\}, output_index = array<i64: (\d+)>",
        aliases,
    )
    outputs = {int(parameter): int(output) for parameter, output in pairs}
    number = ir.IntegerType.get_signless(32)
    attributes: list[dict] = [{} for _ in main.type.inputs]
    for parameter, output in outputs.items():
        alias = ir.IntegerAttr.get(number, output)
        attributes[parameter]["tf.aliasing_output"] = alias
    main.attributes["arg_attrs"] = ir.ArrayAttr.get(
        list(map(ir.DictAttr.get, attributes))
    )


def compile_module(topology, module, num_replicas=1):
    """Returns the executable of a module for the first cores of a topology."""
    devices = topology.devices[:num_replicas]
    options = xla_client.CompileOptions()
    options.num_replicas, options.num_partitions = num_replicas, 1
    options.device_assignment = xla_client.DeviceAssignment.create(
        np.array([[device.id] for device in devices])
    )
    return devices[0].client.compile(
        module,
        executable_devices=xla_client.DeviceList(tuple(devices)),
        compile_options=options,
    )


def describe(topology):
    """Returns the kind of a TPU, its cores, and the memory of each."""
    try:
        compile_module(
            topology, ir.Module.parse(TOO_LARGE, mlir.make_ir_context())
        )
    except Exception as error:
        # The compiler names no sizes unless it runs out of memory.
        (gibibytes,) = re.findall(r"available HBM \(([\d.]+)G\)", str(error))
    return {
        "device": topology.devices[0].device_kind,
        "num_cores": len(topology.devices),
        "available_bytes": int(float(gibibytes) * 2**30),
    }


def measure(executable):
    """Returns the figures of an executable, a dict."""
    memory = executable.get_compiled_memory_stats()
    figures = {
        "peak_bytes": memory.peak_memory_in_bytes,
        "argument_bytes": memory.argument_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "flops": executable.cost_analysis()["flops"],
    }
    try:
        text = executable.hlo_modules()[0].to_string()
    except Exception:
        # jaxlib cannot parse all that libtpu writes, for v6e for example.
        return figures
    reduces = re.findall(r" = (.*) all-reduce(?:-start)?\(", text)
    sizes = [len(re.findall(r"\w\[", types)) for types in reduces]
    return figures | {"all_reduces": sizes}


def compile_file(path, topology, num_replicas):
    """Compiles a file; returns the figures, or the error, as a dict."""
    with open(path, "rb") as file:
        module = convert(file.read(), num_replicas)
    start = time.monotonic()
    try:
        result = measure(compile_module(topology, module, num_replicas))
    except Exception as error:
        text = str(error)
        is_out_of_memory = "RESOURCE_EXHAUSTED" in text
        result = {"error": text, "is_out_of_memory": is_out_of_memory}
        if needed := re.search(r"\(([\d.]+)([MGT])\) exceeds available", text):
            unit = {"M": 2**20, "G": 2**30, "T": 2**40}[needed[2]]
            result["needed_bytes"] = float(needed[1]) * unit
    return result | {"seconds": time.monotonic() - start}


def run(args):
    """Returns the dict to print."""
    try:
        topology = topologies.get_topology_desc(
            platform="tpu", topology_name=args.topology
        )
    except Exception as error:
        return {"error": str(error)}
    if not args.hlo:
        return describe(topology)
    return compile_file(args.hlo, topology, args.num_replicas)


def main():
    """Runs the script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("hlo", nargs="?")
    parser.add_argument("--topology", required=True)
    parser.add_argument("--num_replicas", type=int, default=1)
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
