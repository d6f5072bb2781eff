"""Times the gauge of `run_pretraining.py` against the steps between two uses.

  python -m benchmarks.gauge_cost

A measurement is that of `plateau.Gauge` after `plateau.INTERVAL` steps; a step
is that of `benchmarks.training_step`, in bfloat16 with random ids. Both take
turns in one process; the median turn is reported.
"""

import statistics
import time

import numpy as np
import tensorflow as tf
from absl import app, flags

from albert_tf.model import heads, layers
from albert_tf.training import plateau
from benchmarks import training_step

FLAGS = flags.FLAGS
# Recipe -> config, batch size, tokens, predictions.
ROWS = {
    "ten_minutes": ("tiny", 32, 64, 26),
    "hour, night": ("small", 64, 128, 52),
}


def build_gauge(name, num_tokens, num_predictions):
    """Returns a Gauge of a model with random weights."""
    config = training_step.read_config(name)
    model = heads.AlbertForPreTraining(
        config, dtype=layers.POLICIES["bfloat16"]
    )
    num_sequences = plateau.TOKENS_AT_A_TIME // num_tokens
    features = training_step.random_features(
        config, num_sequences, num_tokens, num_predictions
    )
    dataset = tf.data.Dataset.from_tensors(features)
    return plateau.Gauge(
        tf.distribute.get_strategy(),
        model,
        dataset.repeat(plateau.TOKENS // plateau.TOKENS_AT_A_TIME),
        np.ones(config.vocab_size),
    )


def time_once(function):
    """Returns the seconds of a call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure(row, num_rounds, num_steps=10):
    """Returns the median seconds of a step and of a measurement."""
    name, batch_size, num_tokens, num_predictions = row
    step = training_step.build_step(
        name,
        batch_size,
        num_tokens,
        num_predictions,
        layers.POLICIES["bfloat16"],
    )
    measurement = build_gauge(name, num_tokens, num_predictions).measure
    times: dict = {step: [], measurement: []}
    for function in times:
        function()
    for _ in range(num_rounds):
        times[step] += [time_once(step) for _ in range(num_steps)]
        times[measurement].append(time_once(measurement))
    return [statistics.median(seconds) for seconds in times.values()]


def main(_):
    """Prints a table with a line per recipe."""
    print(f"{FLAGS.rounds} turns.\n")
    print(f"| recipe | {plateau.INTERVAL} steps | a measurement | share |")
    print("|---|---|---|---|")
    for recipe, row in ROWS.items():
        step, measurement = measure(row, FLAGS.rounds)
        steps = plateau.INTERVAL * step
        print(
            f"| {recipe} | {steps:.2f} s | {measurement:.3f} s | "
            f"{measurement / steps:.2%} |",
            flush=True,
        )


if __name__ == "__main__":
    app.run(main)
