"""Times each phase from the command to the end of the first training step.

  python -m benchmarks.first_step

Each row is a separate process, which imports the program's modules, builds
model and optimizer, traces `replicas.build_train_function`, and runs it twice
on random ids. The first step includes TensorFlow's graph optimization. As
layers share weights, `trace` should grow little with depth: large has twice the
layers of base.
"""

import json
import os
import sys
import time

START = time.perf_counter()

# Config, batch size, tokens, predictions.
ROWS = [
    ("tiny", 32, 64, 10),
    ("v2/base", 2, 128, 20),
    ("v2/large", 2, 128, 20),
]


def time_parts(name, *sizes):
    """Prints the seconds of each phase as JSON."""
    import tensorflow as tf

    from albert_tf.model import heads, modeling
    from albert_tf.programs import run_pretraining  # noqa: F401
    from albert_tf.training import distribution, optimization, replicas
    from benchmarks import training_step

    marks = [START, time.perf_counter()]
    config = training_step.read_config(name)
    strategy = distribution.build_strategy("one_device")
    model = heads.AlbertForPreTraining(config)
    optimizer = optimization.build_optimizer(
        "lamb",
        {n: w.value for n, w in modeling.named_weights(model).items()},
        optimization.build_schedule(1e-3, 1000, 10),
    )
    features = training_step.random_features(config, *sizes)
    dataset = tf.data.Dataset.from_tensors(features).repeat()
    batches = iter(replicas.distribute(strategy, dataset))
    marks.append(time.perf_counter())
    function = replicas.build_train_function(strategy, model, optimizer)
    traced = function.get_concrete_function(batches, tf.constant(1))
    marks.append(time.perf_counter())
    for _ in range(2):
        traced(batches, tf.constant(1))[0].numpy()
        marks.append(time.perf_counter())
    parts = ("import", "build", "trace", "first step", "second step")
    pairs = zip(marks, marks[1:], strict=False)
    seconds = [end - begin for begin, end in pairs]
    print(json.dumps(dict(zip(parts, seconds, strict=True))))


def main():
    """Prints a table with a row per model."""
    from benchmarks import children

    print(f"Load average before: {os.getloadavg()[0]:.2f}.\n")
    header = None
    for row in ROWS:
        seconds = children.call("benchmarks.first_step", map(str, row))
        if not header:
            header = ["seconds", *seconds]
            print(f"| {' | '.join(header)} |")
            print("|---" * len(header) + "|")
        cells = "".join(f" {s:.1f} |" for s in seconds.values())
        print("| {} B{} T{} P{} |".format(*row) + cells, flush=True)


if __name__ == "__main__":
    if sys.argv[1:]:
        time_parts(sys.argv[1], *map(int, sys.argv[2:]))
    else:
        main()
