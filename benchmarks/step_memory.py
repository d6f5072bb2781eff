"""Measures the peak memory of a training step, and the size of its graph.

  python -m benchmarks.step_memory
  python -m benchmarks.step_memory --config=v2/base --batch_size=4

Each row is a separate process, which builds model and optimizer (LAMB), traces
the step, and runs it twice on random ids. `step` is the peak of the resident
memory during both, without what the process used before the first.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Arguments of `loop.build_replica_step`.
ROWS = [
    {},
    {"num_parts": 4},
    {"remat": True},
    {"num_parts": 4, "remat": True},
]


def peak_bytes():
    """Returns the peak of this process's resident memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def count_operations(graph):
    """Returns the number of operations of a graph and its functions."""
    found = graph.as_graph_def()
    functions = found.library.function
    return len(found.node) + sum(len(f.node_def) for f in functions)


def measure(args, kwargs):
    """Prints the measurements of one row as JSON."""
    import tensorflow as tf

    from albert_tf.model import heads, layers, modeling
    from albert_tf.training import loop, optimization
    from benchmarks import training_step

    config = training_step.read_config(args.config)
    model = heads.AlbertForPreTraining(
        config, dtype=layers.POLICIES[args.compute_dtype]
    )
    optimizer = optimization.build_optimizer(
        "lamb",
        {n: w.value for n, w in modeling.named_weights(model).items()},
        optimization.build_schedule(1e-3, 1000, 10),
    )
    features = training_step.random_features(
        config, args.batch_size, args.num_tokens, args.num_predictions
    )
    strategy = tf.distribute.get_strategy()
    replica_step = loop.build_replica_step(model, optimizer, **kwargs)
    step = tf.function(lambda f: strategy.run(replica_step, args=(f,)))
    start = time.perf_counter()
    features = {name: tf.constant(x) for name, x in features.items()}
    traced = step.get_concrete_function(features)
    seconds = [time.perf_counter() - start]
    before = peak_bytes()
    for _ in range(2):
        start = time.perf_counter()
        traced(features)[0].numpy()
        seconds.append(time.perf_counter() - start)
    row = {
        "before": before,
        "step": peak_bytes() - before,
        "operations": count_operations(traced.graph),
        "trace": seconds[0],
        "second_step": seconds[-1],
    }
    print(json.dumps(row))


def parse_arguments():
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--config", default="v2/large")
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--num_tokens", type=int, default=512)
    parser.add_argument("--num_predictions", type=int, default=20)
    parser.add_argument("--compute_dtype", default="bfloat16")
    parser.add_argument("--only", help="Numbers of the rows, from 0.")
    parser.add_argument("--serve", type=int, default=-1, help="Internal.")
    return parser.parse_args()


def main():
    """Prints a table with a row per way to compute the step."""
    args = parse_arguments()
    if args.serve >= 0:
        measure(args, ROWS[args.serve])
        return
    print(
        f"{args.config}, B{args.batch_size} T{args.num_tokens} "
        f"P{args.num_predictions}, {args.compute_dtype}; load average "
        f"before: {os.getloadavg()[0]:.2f}.\n\n"
        "| step | before, GiB | step, GiB | operations | trace, s | step, s |\n"
        "|---|---|---|---|---|---|"
    )
    for index in range(len(ROWS)):
        if args.only and str(index) not in args.only.split(","):
            continue
        printed = subprocess.run(
            [sys.executable, "-m", "benchmarks.step_memory", *sys.argv[1:]]
            + [f"--serve={index}"],
            cwd=ROOT,
            env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
        ).stdout
        row = json.loads(printed.splitlines()[-1])
        print(
            f"| {ROWS[index] or 'whole'} | {row['before'] / 2**30:.2f} | "
            f"{row['step'] / 2**30:.2f} | {row['operations']} | "
            f"{row['trace']:.1f} | {row['second_step']:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
