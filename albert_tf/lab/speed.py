"""Measures the speed of training on this machine."""

import dataclasses
import statistics
import time

import numpy as np
import tensorflow as tf

from albert_tf.lab import flops, lowering
from albert_tf.model.config import AlbertConfig
from albert_tf.training import distribution

# Steps before the first turn: the first compiles.
NUM_WARMUP_STEPS = 2
NUM_TURNS = 5
TURN_SECONDS = 2.0  # At least, and at least one step.


def random_batch(
    config: AlbertConfig,
    batch_size: int,
    max_seq_length: int,
    max_predictions_per_seq: int,
) -> dict[str, np.ndarray]:
    """Returns a pretraining batch of random ids, without padding.

    It is a dict from feature to an array [B, T], [B, P] or [B].
    """
    rng = np.random.default_rng(0)
    limits = {
        "input_ids": config.vocab_size,
        "masked_lm_ids": config.vocab_size,
        "masked_lm_positions": max_seq_length,
        "segment_ids": config.type_vocab_size,
        "sentence_order_labels": 2,
    }
    shape = batch_size, max_seq_length, max_predictions_per_seq
    return {
        # Masks and weights are 1.
        name: rng.integers(limits[name], size=spec.shape, dtype=np.int32)
        if name in limits
        else np.ones(spec.shape, spec.dtype.as_numpy_dtype)
        for name, spec in lowering.feature_specs(*shape).items()
    }


def build_step(config, features, compute_dtype, strategy):
    """Returns a function that trains a random model for one step.

    The step is that of `run_pretraining` with LAMB: both losses, dropout of
    the config, clipping and update.
    """
    recipe = dataclasses.replace(lowering.LAMB, compute_dtype=compute_dtype)
    replica_step = lowering.build_replica_step(strategy, config, recipe)
    batch = {name: tf.constant(values) for name, values in features.items()}
    step = tf.function(lambda: strategy.run(replica_step, args=(batch,))[1])
    return lambda: step().numpy()


def time_training(
    configs: dict[str, AlbertConfig],
    batch_size: int,
    max_seq_length: int,
    max_predictions_per_seq: int,
) -> list[dict]:
    """Trains models of random weights in turns, and times their steps.

    Turns, because the speed of a machine may change; the median turn counts.

    Args:
      configs: dict from name to AlbertConfig.
      batch_size: sequences per step.
      max_seq_length: tokens per sequence.
      max_predictions_per_seq: masked tokens per sequence.

    Returns:
      For each model a dict of `name`, the settings, and:

        seconds: of a step.
        sequences_per_second, flops_per_second: at that speed.
        speedup: how many times faster than the first model.
        speedup_by_flops: the same, if only the operations counted.
    """
    strategy = distribution.build_strategy("one_device")
    chosen = distribution.choose_compute_dtype("auto", strategy)
    shape = batch_size, max_seq_length, max_predictions_per_seq
    steps = {}
    for name, config in configs.items():
        batch = random_batch(config, *shape)
        steps[name] = build_step(config, batch, chosen, strategy)
        for _ in range(NUM_WARMUP_STEPS):
            steps[name]()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(NUM_TURNS):
        for name, step in steps.items():
            times[name].append(time_turn(step))
    seconds = {name: statistics.median(t) for name, t in times.items()}
    counts = {name: flops.count_flops(c, *shape) for name, c in configs.items()}
    first = next(iter(configs))
    return [
        {
            "name": name,
            "batch_size": batch_size,
            "max_seq_length": max_seq_length,
            "compute_dtype": chosen,
            "seconds": seconds[name],
            "sequences_per_second": batch_size / seconds[name],
            "flops_per_second": counts[name] / seconds[name],
            "speedup": seconds[first] / seconds[name],
            "speedup_by_flops": counts[first] / counts[name],
        }
        for name in configs
    ]


def time_turn(step):
    """Returns the mean seconds of a step in a turn."""
    count, start = 0, time.perf_counter()
    while True:
        step()
        count += 1
        elapsed = time.perf_counter() - start
        if elapsed >= TURN_SECONDS:
            return elapsed / count
