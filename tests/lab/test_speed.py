"""Timed steps are training steps."""

import numpy as np
import pytest

from albert_tf.lab import speed
from albert_tf.training import distribution
from tests import tiny


def test_a_random_batch_fits_the_model():
    batch = speed.random_batch(tiny.CONFIG, 3, 16, 4)
    assert batch["input_ids"].shape == (3, 16)
    assert batch["input_ids"].max() < tiny.CONFIG.vocab_size
    assert batch["masked_lm_positions"].shape == (3, 4)
    assert batch["masked_lm_positions"].max() < 16
    assert (batch["masked_lm_weights"] == 1).all()
    assert (batch["input_mask"] == 1).all()


def test_each_step_updates_the_weights():
    batch = speed.random_batch(tiny.CONFIG, 3, 16, 4)
    strategy = distribution.build_strategy("one_device")
    step = speed.build_step(tiny.CONFIG, batch, "float32", strategy)
    norms = [float(step()) for _ in range(4)]  # Of the gradients.
    assert np.isfinite(norms).all() and len(set(norms)) > 1


@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_a_turn_is_as_long_as_wanted(seconds, monkeypatch):
    now, steps = [0.0], []
    monkeypatch.setattr(speed.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(speed, "TURN_SECONDS", seconds)

    def step():
        steps.append(1)
        now[0] += 0.02

    assert speed.time_turn(step) == pytest.approx(0.02)
    assert len(steps) == (3 if seconds else 1)
