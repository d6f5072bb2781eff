"""The guard: what stops a training, and what does not."""

import math

import numpy as np
import pytest

from albert_tf.training import guard


def values(loss=5.0, norm=1.0):
    return {"loss": loss, "gradient_norm": norm, "learning_rate": 0.1}


def check_all(tested, losses, start=0):
    for step, loss in enumerate(losses, start):
        tested.check(step, values(loss), is_window=True)


@pytest.mark.parametrize("name", ["loss", "gradient_norm"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("is_active", [True, False])
def test_what_is_not_finite_always_stops(name, value, is_active):
    with pytest.raises(FloatingPointError, match="At step 7 the loss is"):
        guard.Guard(is_active).check(
            7, {**values(), name: value}, is_window=False
        )


def test_a_lost_half_of_what_was_learned_stops():
    tested = guard.Guard()
    check_all(tested, [10, 8, 6, 4, 6.9])
    with pytest.raises(
        FloatingPointError,
        match=r"step 9 the loss is 7.1.*from 10.000 to 4.000 at step 3",
    ):
        check_all(tested, [7.1], start=9)
    check_all(guard.Guard(is_active=False), [10, 4, 10])


def test_noise_does_not_stop():
    rng = np.random.default_rng(0)
    falling = np.linspace(10, 4, 500) + rng.normal(0, 0.3, 500)
    check_all(guard.Guard(), falling)
    # The beginning of a window is one noisy step.
    guard.Guard().check(1, values(4), is_window=True)
    tested = guard.Guard()
    check_all(tested, [10, 4])
    tested.check(3, values(9), is_window=False)


def test_a_resumed_run_remembers_what_was_learned():
    tested = guard.Guard()
    tested.note_loss(100, 10)
    tested.note_loss(200, 3)
    with pytest.raises(FloatingPointError, match="at step 200"):
        check_all(tested, [7], start=300)


def test_a_new_weight_of_the_sentence_loss_does_not_stop():
    tested = guard.Guard(loss="masked_lm_loss")
    losses = [(10, 10.7), (3, 3.7), (3, 3 + 5 * 0.7), (2.9, 9)]
    records = [{"masked_lm_loss": a, "loss": b} for a, b in losses]
    tested.resume(r | {"step": i} for i, r in enumerate(records[:2]))
    for step, record in enumerate(records[2:], 2):
        tested.check(step, values() | record, is_window=True)
    with pytest.raises(FloatingPointError, match="the masked_lm_loss is 8.0"):
        tested.check(4, values() | {"masked_lm_loss": 8}, is_window=True)


def test_norms_that_explode_stop_if_they_stay():
    tested = guard.Guard()
    for step in range(guard.NUM_RECENT):
        tested.check(step, values(norm=1 + step % 3), is_window=False)
    for norm in (500, 1, 900, 700, 2):  # Clipped, and gone.
        tested.check(60, values(norm=norm), is_window=False)
    with pytest.raises(
        FloatingPointError, match="step 64 the gradient norm is 1e[+]03"
    ):
        for step in range(62, 70):
            tested.check(step, values(norm=1000), is_window=False)
