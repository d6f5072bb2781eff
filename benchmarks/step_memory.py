"""Measures the peak memory of a step, and the size of its graph.

  python -m benchmarks.step_memory
  python -m benchmarks.step_memory --config=v2/base --batch_size=4

Each row is two processes, which build model and optimizer (LAMB), trace a
training step, and run it twice on random ids; the last row is a forward pass of
the encoder. In the first, `step` is the peak of the resident memory during
both, without what the process used before the first. The second uses an
allocator that reports what it does: `tensors` is the peak of all tensors, with
weights and slots, beside the estimate of `training.memory`; the least of three
steps, as other programs can delay what frees a tensor.
"""

import argparse
import json
import os
import pathlib
import resource
import sys
import tempfile
import time

from benchmarks import children

GIB = 2**30
# With it, TensorFlow's profiles have what is allocated on a CPU.
COUNTING = {"TF_CPU_ALLOCATOR_USE_BFC": "true"}
# Other programs may delay what frees a tensor: the least of these steps counts.
NUM_COUNTED = 3
# Arguments of `replicas.build_replica_step`.
ROWS = {
    "whole": {},
    "4 parts": {"gradient_accumulation_steps": 4},
    "recomputed layers": {"remat": True},
    "4 parts, recomputed layers": {
        "gradient_accumulation_steps": 4,
        "remat": True,
    },
}
INFERENCE = "inference"


def peak_bytes():
    """Returns the peak of this process's resident memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def count_operations(graph):
    """Returns the number of operations of a graph and its functions."""
    definition = graph.as_graph_def()
    functions = definition.library.function
    return len(definition.node) + sum(len(f.node_def) for f in functions)


def count_tensors(run):
    """Returns the peak of all tensors that exist because of run(), in bytes.

    Only with COUNTING does TensorFlow report allocations.
    """
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    with tempfile.TemporaryDirectory() as folder:
        options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=3)
        with tf.profiler.experimental.Profile(folder, options):
            run()
        (path,) = pathlib.Path(folder).rglob("*.xplane.pb")
        space = xplane_pb2.XSpace.FromString(path.read_bytes())
    sizes, total, peak = {}, 0, 0
    for _, name, values in sorted(list_events(space), key=lambda e: e[0]):
        if name == "MemoryAllocation":
            sizes[values["addr"]] = values["requested_bytes"]
            total += values["requested_bytes"]
        elif name == "MemoryDeallocation":
            # Those that existed before are not counted.
            total -= sizes.pop(values["addr"], 0)
        peak = max(peak, total)
    return peak


def list_events(space):
    """Yields time, name and values of each event of a profile."""
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                values = {
                    plane.stat_metadata[stat.metadata_id].name: getattr(
                        stat, stat.WhichOneof("value")
                    )
                    for stat in event.stats
                }
                yield line.timestamp_ns * 1000 + event.offset_ps, name, values


def build_step(args, config, kwargs):
    """Returns a training step of features, what it keeps, and its estimate.

    Args:
      args: the arguments of the command line.
      config: an AlbertConfig.
      kwargs: `training.settings.Settings` of the step.
    """
    import tensorflow as tf

    from albert_tf.model import heads, layers, modeling
    from albert_tf.training import memory, optimization, replicas
    from albert_tf.training.settings import Settings

    model = heads.AlbertForPreTraining(
        config, dtype=layers.POLICIES[args.compute_dtype]
    )
    optimizer = optimization.build_optimizer(
        "lamb",
        {n: w.value for n, w in modeling.named_weights(model).items()},
        optimization.build_schedule(1e-3, 1000, 10),
    )
    strategy = tf.distribute.get_strategy()
    settings = Settings(**kwargs)
    replica_step = replicas.build_replica_step(model, optimizer, settings)
    step = tf.function(lambda f: strategy.run(replica_step, args=(f,))[0])
    estimate = memory.estimate_training(
        config,
        args.batch_size // settings.gradient_accumulation_steps,
        args.num_tokens,
        args.num_predictions,
        compute_dtype=args.compute_dtype,
        remat=settings.remat,
    ).peak
    kept = [*optimizer.weights.values(), *optimizer.slots.values()]
    return step, kept, estimate


def build_forward_pass(args, config):
    """Like `build_step`, of the encoder's forward pass."""
    import tensorflow as tf

    from albert_tf.model import layers, modeling
    from albert_tf.training import memory

    encoder = modeling.AlbertEncoder(
        config, dtype=layers.POLICIES[args.compute_dtype]
    )

    @tf.function
    def run(features):
        names = "input_ids", "input_mask", "segment_ids"
        outputs = encoder(*(features[name] for name in names))
        return outputs["pooled_output"]

    estimate = memory.estimate_inference(
        config,
        args.batch_size,
        args.num_tokens,
        compute_dtype=args.compute_dtype,
    )
    return run, [w.value for w in encoder.weights], estimate


def measure(args, name):
    """Prints the measurements of one row as JSON."""
    import tensorflow as tf

    from albert_tf.model import parameters
    from benchmarks import training_step

    config = training_step.read_config(args.config)
    if args.parameter_sharing:
        config = parameters.share(config, args.parameter_sharing)
    if name == INFERENCE:
        step, kept, estimate = build_forward_pass(args, config)
    else:
        step, kept, estimate = build_step(args, config, ROWS[name])
    features = training_step.random_features(
        config, args.batch_size, args.num_tokens, args.num_predictions
    )
    start = time.perf_counter()
    features = {name: tf.constant(x) for name, x in features.items()}
    traced = step.get_concrete_function(features)
    seconds = [time.perf_counter() - start]
    before = peak_bytes()
    for _ in range(2):
        start = time.perf_counter()
        traced(features).numpy()
        seconds.append(time.perf_counter() - start)
    row = {
        "before": before,
        "step": peak_bytes() - before,
        "estimate": estimate,
        "operations": count_operations(traced.graph),
        "trace": seconds[0],
        "second_step": seconds[-1],
    }
    if os.environ.keys() >= COUNTING.keys():
        row["tensors"] = 4 * sum(int(tf.size(x)) for x in kept)
        row["tensors"] += min(
            count_tensors(lambda: traced(features).numpy())
            for _ in range(NUM_COUNTED)
        )
    print(json.dumps(row))


def parse_arguments():
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--config", default="v2/large")
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--num_tokens", type=int, default=512)
    parser.add_argument("--num_predictions", type=int, default=20)
    parser.add_argument("--compute_dtype", default="bfloat16")
    parser.add_argument("--parameter_sharing", help="Instead of the config's.")
    parser.add_argument("--only", help="Names of rows; semicolons separate.")
    parser.add_argument("--serve", help="Internal.")
    return parser.parse_args()


def main():
    """Prints a table with a row per way to compute a step."""
    args = parse_arguments()
    if args.serve:
        measure(args, args.serve)
        return
    print(
        f"{args.config}, B{args.batch_size} T{args.num_tokens} "
        f"P{args.num_predictions}, {args.compute_dtype}; load average "
        f"before: {os.getloadavg()[0]:.2f}.\n\n"
        "| step | before, GiB | step, GiB | tensors, GiB | estimate | "
        "operations | trace, s | step, s |\n|---|---|---|---|---|---|---|---|"
    )
    for name in args.only.split(";") if args.only else [*ROWS, INFERENCE]:
        words = [*sys.argv[1:], f"--serve={name}"]
        row = children.call("benchmarks.step_memory", words)
        counted = children.call("benchmarks.step_memory", words, **COUNTING)
        tensors, estimate = counted["tensors"], counted["estimate"]
        print(
            f"| {name} | {row['before'] / GIB:.2f} | "
            f"{row['step'] / GIB:.2f} | {tensors / GIB:.2f} | "
            f"{estimate / GIB:.2f} ({estimate / tensors - 1:+.0%}) | "
            f"{row['operations']} | {row['trace']:.1f} | "
            f"{row['second_step']:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
