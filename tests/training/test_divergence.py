"""The guard: what stops a training, and what does not."""

import math

import numpy as np
import pytest

from albert_tf.training import divergence

# With so many predictions, each step is a window of the guard.
MANY = divergence.NUM_PREDICTIONS


def values(loss=5.0, norm=1.0):
    return {"loss": loss, "gradient_norm": norm, "learning_rate": 0.1}


def check_all(tested, losses, *, start=1, count=MANY, per_call=1):
    """Checks losses in calls of `per_call` steps each."""
    for i in range(0, len(losses), per_call):
        some = losses[i : i + per_call]
        tested.check(
            start + i + len(some) - 1,
            values(np.mean(some)),
            some,
            [count] * len(some),
            [1.0] * len(some),
        )


def check_norms(tested, norms, start=1):
    for step, norm in enumerate(norms, start):
        tested.check(step, values(norm=norm), [5], [1], [norm])


@pytest.mark.parametrize("name", ["loss", "gradient_norm"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("is_active", [True, False])
def test_a_value_that_is_not_finite_always_stops(name, value, is_active):
    found = {**values(), name: value}
    norms = [found["gradient_norm"], 1.0]
    with pytest.raises(FloatingPointError, match="At step 7 the loss is"):
        divergence.Guard(is_active).check(7, found, [5, 5], [9, 9], norms)


def test_a_lost_half_of_what_was_learned_stops():
    losses = [10] * 100 + [8, 6, 4, 6.9]
    tested = divergence.Guard()
    check_all(tested, losses)
    with pytest.raises(
        FloatingPointError,
        match=r"step 105 the loss is 7.3.*from 10.000 to 4.000 at step 103",
    ):
        check_all(tested, [7.3], start=105)
    check_all(divergence.Guard(is_active=False), [*losses, 10])


@pytest.mark.parametrize("per_call", [1, 7, 25, 1000])
@pytest.mark.parametrize("batch", [4, 64])
def test_the_guard_does_not_depend_on_the_steps_per_call(per_call, batch):
    """A fall to 4, noise of small batches, and a real relapse at step 1500."""
    rng = np.random.default_rng(batch)
    steps = np.arange(1, 3001)
    losses = 4 + 6 * np.exp(-steps / 200) + 5 * (steps > 1500)
    losses += rng.normal(0, 12 / math.sqrt(20 * batch), len(steps))
    healthy = divergence.Guard()
    check_all(healthy, losses[:1500], count=20 * batch, per_call=per_call)
    with pytest.raises(FloatingPointError, match="At step (15|16)") as error:
        check_all(
            healthy,
            losses[1500:],
            start=1501,
            count=20 * batch,
            per_call=per_call,
        )
    whole = divergence.Guard()
    with pytest.raises(FloatingPointError) as same:
        check_all(whole, losses, count=20 * batch, per_call=1)
    assert str(error.value) == str(same.value)


@pytest.mark.parametrize("is_counted", [True, False])
def test_a_resumed_run_remembers_what_was_learned(is_counted):
    counts = {divergence.PREDICTIONS: 100 * MANY} if is_counted else {}
    tested = divergence.Guard()
    tested.resume(
        {"step": step, "loss": loss, **counts}
        for step, loss in ((100, 10), (200, 3))
    )
    with pytest.raises(FloatingPointError, match="at step 200"):
        check_all(tested, [7], start=201)


def test_records_have_the_number_of_predictions():
    tested = divergence.Guard()
    check_all(tested, [5, 5, 5], count=20, per_call=2)
    assert tested.take_count() == {divergence.PREDICTIONS: 60}
    assert tested.take_count() == {divergence.PREDICTIONS: 0}


def test_another_sentence_weight_does_not_stop_a_run():
    tested = divergence.Guard(loss="masked_lm_loss")
    tested.resume(
        {"step": step, "masked_lm_loss": masked, "loss": loss}
        for step, masked, loss in ((1, 10, 10.7), (2, 3, 3.7))
    )
    check_all(tested, [3, 2.9], start=3)
    with pytest.raises(FloatingPointError, match="the masked_lm_loss is 8.0"):
        check_all(tested, [8], start=5)


def test_gradients_that_stay_large_stop_a_run():
    tested = divergence.Guard()
    check_norms(tested, [1 + i % 3 for i in range(divergence.NUM_RECENT)])
    # A single large norm is clipped and does no harm.
    check_norms(tested, [500, 1, *[900] * 9, 2], start=51)
    with pytest.raises(
        FloatingPointError, match="step 72 the gradient norm is 1e[+]03"
    ):
        check_norms(tested, [1000] * 20, start=63)
