"""Times a pretraining step against the matrix multiplications in it.

  python -m benchmarks.training_step
  python -m benchmarks.training_step --other=/path/to/another/checkout
  python -m benchmarks.training_step --num_sampled_pieces=4096 --only=P52

The step is that of the program: forward pass, losses, backward pass, clipping
and LAMB, on random ids without padding. P is the number of masked tokens; with
P0, the step is a classifier's. `matmuls` does only matrix multiplications, with
the same number of operations, the shapes of the feed-forward layers and the
same dtype: a lower bound for the step's time. With --num_sampled_pieces, the
step whose softmax is over so many pieces is timed as well; with --other, that
of another checkout, with such a softmax if it is asked for. All take turns,
each in its own process while the others wait; the median turn is reported.
Parts of `albert_tf.lab.speed` are repeated here, because older checkouts lack
it.
"""

import functools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from absl import app, flags

FLAGS = flags.FLAGS
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENVIRONMENT = dict(os.environ)  # Without what importing albert_tf sets.
flags.DEFINE_integer("rounds", 7, "Number of turns; the median is reported.")
flags.DEFINE_float("seconds", 2.0, "Seconds per turn.")
flags.DEFINE_string("other", None, "Path of another checkout to compare with.")
flags.DEFINE_integer(
    "num_sampled_pieces",
    None,
    "Also time steps whose softmax is over so many pieces.",
)
flags.DEFINE_list("only", [], "Words that a row's name must contain.")
flags.DEFINE_string("serve", None, "Internal: candidate of a child process.")

# Config, batch size, tokens, predictions.
ROWS = [
    ("small", 32, 128, 20),
    ("small", 64, 128, 52),  # configs/pretrain/hour.flags
    ("tiny", 32, 64, 10),
    ("v2/base", 4, 512, 20),
    ("v2/base", 8, 128, 0),
    ("small", 32, 128, 0),
]


def read_config(name):
    """Returns an AlbertConfig from configs/model."""
    from albert_tf.model.config import AlbertConfig

    return AlbertConfig.from_json_file(f"{ROOT}/configs/model/{name}.json")


def random_features(config, batch_size, num_tokens, num_predictions):
    """Returns a pretraining batch without padding, a dict of arrays."""
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
    features = {name: x.astype(np.int32) for name, x in features.items()}
    features["masked_lm_weights"] = np.ones(masked, np.float32)
    features["label_ids"] = features["sentence_order_labels"]
    return features


def build_step(name, batch_size, num_tokens, num_predictions, dtype, **kwargs):
    """Returns a function that runs one training step.

    `kwargs` are for the model; older checkouts have fewer.
    """
    import tensorflow as tf

    from albert_tf.model import heads, modeling
    from albert_tf.training import optimization, replicas

    config = read_config(name)
    if num_predictions:
        model = heads.AlbertForPreTraining(config, dtype=dtype, **kwargs)
    else:
        model = heads.AlbertClassifier(config, num_labels=2, dtype=dtype)
    weights = modeling.named_weights(model)
    optimizer = optimization.build_optimizer(
        "lamb",
        {name: weight.value for name, weight in weights.items()},
        optimization.build_schedule(1e-3, 100_000, 100),
    )
    replica_step = replicas.build_replica_step(model, optimizer)
    features = random_features(config, batch_size, num_tokens, num_predictions)
    features = {name: tf.constant(x) for name, x in features.items()}
    strategy = tf.distribute.get_strategy()
    step = tf.function(lambda: strategy.run(replica_step, args=(features,)))
    return lambda: step()[1].numpy()


def build_matmuls(name, batch_size, num_tokens, num_predictions, dtype):
    """Returns a function that does the matrix multiplications of a step."""
    import tensorflow as tf

    from albert_tf.lab import flops

    config = read_config(name)
    dtype = tf.bfloat16 if "bfloat16" in dtype else tf.float32
    rows = batch_size * num_tokens
    sizes = config.hidden_size, config.intermediate_size
    total = flops.count_flops(config, batch_size, num_tokens, num_predictions)
    count = round(total / (4 * rows * sizes[0] * sizes[1]))
    up, down = (
        tf.cast(tf.random.normal(s, stddev=0.02), dtype)
        for s in (sizes, sizes[::-1])
    )
    x = tf.cast(tf.random.normal([rows, sizes[0]]), dtype)

    @tf.function
    def multiply(x):
        for _ in range(count):
            x = tf.matmul(tf.matmul(x, up), down)
        return x[0, 0]

    return lambda: multiply(x).numpy()


def serve():
    """Times the candidate in --serve, one turn per line of stdin."""
    kind, *row, dtype = FLAGS.serve.split(",")
    name, batch_size, num_tokens, num_predictions = row
    builders: dict[str, Callable] = {
        "step": build_step,
        "matmuls": build_matmuls,
        "sampled": functools.partial(
            build_step, num_sampled_pieces=FLAGS.num_sampled_pieces
        ),
    }
    run = builders[kind](
        name, int(batch_size), int(num_tokens), int(num_predictions), dtype
    )
    for _ in range(3):
        run()
    print("ready", flush=True)
    for _ in sys.stdin:
        count, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < FLAGS.seconds:
            run()
            count += 1
        print(elapsed / count, flush=True)


def start(kind, row, dtype, checkout, seconds):
    """Starts a child process for a candidate; returns it when it is ready."""
    serve = ",".join(map(str, (kind, *row, dtype)))
    command = [sys.executable, os.path.abspath(__file__), f"--serve={serve}"]
    given = []
    if kind == "sampled":
        given.append(f"--num_sampled_pieces={FLAGS.num_sampled_pieces}")
    process = subprocess.Popen(
        [*command, f"--seconds={seconds}", *given],
        env={
            **ENVIRONMENT,
            "PYTHONPATH": checkout,
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    if not process.stdout or process.stdout.readline() != "ready\n":
        raise SystemExit(f"{serve} cannot run with {checkout}.")
    return process


def measure(row, dtype):
    """Returns the median seconds of each candidate."""
    processes = {
        "step": start("step", row, dtype, ROOT, FLAGS.seconds),
        "matmuls": start("matmuls", row, dtype, ROOT, FLAGS.seconds),
    }
    if FLAGS.num_sampled_pieces:
        processes["sampled"] = start("sampled", row, dtype, ROOT, FLAGS.seconds)
    if FLAGS.other:
        kind = "sampled" if FLAGS.num_sampled_pieces else "step"
        processes["other"] = start(kind, row, dtype, FLAGS.other, FLAGS.seconds)
    return take_turns(processes, FLAGS.rounds)


def take_turns(processes, num_rounds):
    """Returns the median seconds of each process's turns, and ends them."""
    times: dict = {name: [] for name in processes}
    for _ in range(num_rounds):
        for name, process in processes.items():
            print(file=process.stdin, flush=True)
            times[name].append(float(process.stdout.readline()))
    for process in processes.values():
        process.stdin.close()
        process.wait()
    return {name: statistics.median(t) for name, t in times.items()}


def main(_):
    """Prints a table with a row per model and dtype."""
    from albert_tf.lab import flops

    if FLAGS.serve:
        serve()
        return
    load = os.getloadavg()[0]
    print(f"Load average before: {load:.2f}. {FLAGS.rounds} turns.\n")
    print(
        "| step | ms | GFLOP/s | matmuls / step | sampled, ms | speedup "
        "| other, ms | speedup |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for row in ROWS:
        total = flops.count_flops(read_config(row[0]), *row[1:])
        for dtype in ("float32", "mixed_bfloat16"):
            name = "{} B{} T{} P{} ".format(*row) + dtype
            if not all(word in name for word in FLAGS.only):
                continue
            seconds = measure(row, dtype)
            step = seconds["step"]
            sampled, other = (
                seconds.get(kind, float("nan")) for kind in ("sampled", "other")
            )
            own = sampled if FLAGS.num_sampled_pieces else step
            print(
                f"| {name} | {1000 * step:.1f} | {total / step / 1e9:.0f} | "
                f"{seconds['matmuls'] / step:.0%} | {1000 * sampled:.1f} | "
                f"{step / sampled:.2f} | {1000 * other:.1f} | "
                f"{other / own:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    app.run(main)
