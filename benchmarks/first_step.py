"""Seconds from the command to the end of the first training step, by part.

  python -m benchmarks.first_step

Each row is a process of its own, which imports the program's modules, builds
model and optimizer, traces the training step as `loop.build_train_function`
makes it, and runs it once, on random ids. The first step includes TensorFlow's
optimization of the graph. `trace` is to grow little with depth where weights
are shared: large has twice base's layers.
"""

import json
import os
import subprocess
import sys
import time

START = time.perf_counter()

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Config, batch size, tokens, predictions.
ROWS = [
    ("tiny", 32, 64, 10),
    ("v2/base", 2, 128, 20),
    ("v2/large", 2, 128, 20),
]


def build_dataset(config, batch_size, num_tokens, num_predictions):
    """Returns a dataset of random batches, as pretraining takes them."""
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(0)
    shape, masked = (batch_size, num_tokens), (batch_size, num_predictions)
    features = {
        "input_ids": rng.integers(5, config.vocab_size, shape),
        "input_mask": np.ones(shape),
        "segment_ids": rng.integers(0, 2, shape),
        "masked_lm_positions": rng.integers(1, num_tokens, masked),
        "masked_lm_ids": rng.integers(5, config.vocab_size, masked),
        "sentence_order_labels": rng.integers(0, 2, batch_size),
    }
    features = {n: x.astype(np.int32) for n, x in features.items()}
    features["masked_lm_weights"] = np.ones(masked, np.float32)
    return tf.data.Dataset.from_tensors(features).repeat()


def time_parts(name, *sizes):
    """Prints the seconds of each part as JSON."""
    from albert_tf.model import heads, modeling
    from albert_tf.model.config import AlbertConfig
    from albert_tf.programs import run_pretraining  # noqa: F401
    from albert_tf.training import distribution, loop, optimization

    marks = [START, time.perf_counter()]
    config = AlbertConfig.from_json_file(f"{ROOT}/configs/model/{name}.json")
    strategy = distribution.build_strategy("one_device")
    model = heads.AlbertForPreTraining(config)
    optimizer = optimization.build_optimizer(
        "lamb",
        {n: w.value for n, w in modeling.named_weights(model).items()},
        optimization.build_schedule(1e-3, 1000, 10),
    )
    batches = iter(loop.distribute(strategy, build_dataset(config, *sizes)))
    marks.append(time.perf_counter())
    import tensorflow as tf

    function = loop.build_train_function(strategy, model, optimizer)
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
    """Prints a table, a row for each model."""
    print(f"Load average before: {os.getloadavg()[0]:.2f}.\n")
    header = None
    for row in ROWS:
        command = [sys.executable, os.path.abspath(__file__), *map(str, row)]
        printed = subprocess.run(
            command,
            env={"PYTHONPATH": ROOT, "TF_CPP_MIN_LOG_LEVEL": "3", **os.environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
        ).stdout
        seconds = json.loads(printed)
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
