"""The training loop of all tasks: train, save, resume, report."""

import contextlib
import math
import signal
import threading
import time
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.training import distribution, divergence, replicas
from albert_tf.weights import checkpoints

# Target duration of one compiled call: short enough for a progress line and to
# notice signals, long enough to make the return to Python free, which takes
# longer on TPUs.
SECONDS_PER_CALL = 5.0
TPU_SECONDS_PER_CALL = 20.0
# Scoring that takes less time is not worth a warning.
LONG_SECONDS = 60


class Turns:
    """Alternates between several datasets in a given order.

    Args:
      strategy: a tf.distribute.Strategy.
      datasets: dict of key -> dataset of static shapes, as for
        `replicas.distribute`.
      order: [steps] the key of each step's dataset; None for a single dataset.
    """

    def __init__(self, strategy, datasets, order):
        self.iterators = {
            key: iter(replicas.distribute(strategy, dataset))
            for key, dataset in datasets.items()
        }
        self.order = None if order is None else np.asarray(order)
        self.used = set()

    def at(self, step):
        """Finds the dataset of a step.

        Args:
          step: index into `order`.

        Returns:
          key: key of the dataset.
          iterator: iterator over it.
          num_steps: number of consecutive steps from this one on that use it;
            infinity for a single dataset.
          is_new: whether this is its first use, so that the step compiles.
        """
        if self.order is None:
            (key,), num_steps = self.iterators, math.inf
        else:
            key = self.order[step]
            others = np.flatnonzero(self.order[step:] != key)
            end = others[0] if len(others) else len(self.order) - step
            num_steps = int(end)
        is_new = key not in self.used
        self.used.add(key)
        return key, self.iterators[key], num_steps, is_new


class Stops(NamedTuple):
    """The steps at which training logs values and saves checkpoints.

    Attributes:
      last: last step of the training.
      log_every: number of steps between log lines.
      save_every: number of steps between checkpoints.
    """

    last: int
    log_every: int
    save_every: int

    def after(self, step):
        """Returns the first stop after a step."""
        intervals = self.log_every, self.save_every
        return min(self.last, *((step // n + 1) * n for n in intervals))

    def is_logged(self, step):
        """Returns whether values are logged at a step."""
        return step % self.log_every == 0 or step == self.last

    def is_saved(self, step):
        """Returns whether a checkpoint is saved at a step."""
        return step % self.save_every == 0 or step == self.last


class Steps:
    """Runs training steps on datasets in turns, several per compiled call."""

    def __init__(self, session, turns):
        strategy = session.strategy
        self.train_steps = replicas.Traces(
            replicas.build_train_function(
                strategy, session.model, session.optimizer, session.settings
            )
        )
        self.turns, self.workers = turns, session.workers
        self.seconds_per_call = SECONDS_PER_CALL
        if distribution.is_tpu(strategy):
            self.seconds_per_call = TPU_SECONDS_PER_CALL
        self.max_steps = session.settings.iterations_per_loop
        self.num_fitting = 1  # Steps that a call has time for.
        self.done = 0

    def choose(self, limit):
        """Returns the number of steps of the next call, at most `limit`."""
        return min(self.num_fitting, self.max_steps, limit)

    def note(self, num_steps, seconds):
        """Adapts the number of steps per call to the duration of one."""
        if seconds > 0:
            fitting = int(self.seconds_per_call * num_steps / seconds)
            self.num_fitting = max(1, min(fitting, 2 * self.num_fitting + 1))

    def run(self, limit):
        """Runs up to `limit` steps in one call.

        Returns:
          Sums [steps, ratios, 2]; gradient norms [steps]; a dict of the last
          gradient norm and learning rate; whether the steps compiled.
        """
        self.workers.check_signals()
        key, iterator, num_alike, is_new = self.turns.at(self.done)
        limit = min(limit, num_alike)
        num_steps = 1 if is_new else self.choose(limit)
        num_steps = self.workers.share(num_steps)
        start = time.monotonic()
        args = iterator, tf.constant(num_steps)
        sums, norms, rate = self.train_steps.trace(key, *args)(*args)
        sums, norms = sums.numpy(), norms.numpy()
        if not is_new:
            self.note(num_steps, time.monotonic() - start)
        self.done += num_steps
        state = {
            "gradient_norm": float(norms[-1]),
            "learning_rate": float(rate),
        }
        return sums, norms, state, is_new


def train(
    session, datasets, order=None, *, evaluator=None, gauge=None, guard=None
):
    """Trains from the step of the session's optimizer to the last one.

    Ctrl-C saves a checkpoint before the program exits. The next regular
    checkpoint replaces it, so results equal those of an uninterrupted run. A
    run that diverges stops without a checkpoint.

    Args:
      session: a `session.Session` that has begun.
      datasets: dict of key -> dataset of static shapes, as for
        `replicas.distribute`.
      order: the key of each step's dataset, from the first step on; None for a
        single dataset.
      evaluator: an `evaluation.Evaluator` for each checkpoint, or None.
      gauge: a `plateau.Gauge` to measure with at log lines, or None.
      guard: a `divergence.Guard`; None only checks that the loss is finite.

    Raises:
      ValueError: if other weights are trainable than when the session began.
      FloatingPointError: if the guard detects that the run diverges.
    """
    session.check_frozen()
    model, settings = session.model, session.settings
    reporter = session.reporter
    guard = guard or divergence.Guard(is_active=False)
    steps = Steps(session, Turns(session.strategy, datasets, order))
    step = session.step
    stops = Stops(
        session.num_train_steps,
        settings.log_every_steps,
        settings.find_interval(session.num_train_steps, evaluator is not None),
    )
    num_replicas = session.strategy.num_replicas_in_sync
    reporter.start(step, stops.last, settings.train_batch_size, num_replicas)
    guard.resume(reporter.read("train"))
    window = np.zeros([len(replicas.ratio_names(model)), 2])
    with session.workers.acting_together(), keeping_interrupted(session, stops):
        while step < stops.last:
            with session.workers.finishing_first():
                sums, norms, state, is_new = steps.run(stops.after(step) - step)
                window += sums.sum(axis=0, dtype=np.float64)
                step += len(sums)
                values = replicas.results(model, window) | state
                judged = replicas.losses_of_steps(model, sums, guard.loss)
                guard.check(step, values, *judged, norms)
                reporter.progress(step, values, is_new)
                if stops.is_logged(step):
                    log_values(reporter, gauge, guard, step, stops, values)
                    window[:] = 0
            if stops.is_saved(step):
                prefix = session.save()
                if evaluator:
                    began = time.monotonic()
                    evaluator.evaluate(step, prefix)
                    # Once; the first scoring compiles.
                    if step == 2 * stops.save_every:
                        seconds = time.monotonic() - began
                        warn_of_scoring(reporter, stops.save_every, seconds)
                reporter.clock.resume()
        session.workers.check_signals()  # Those of the last steps.


def warn_of_scoring(reporter, num_steps, seconds):
    """Warns if scoring takes longer than so many steps of training."""
    ratio = seconds * (reporter.clock.rate or 0) / num_steps
    if seconds > LONG_SECONDS and ratio > 1:
        reporter.say(
            f"WARNING: Scoring takes {ratio:.1f} times as long as the "
            f"{num_steps:,} steps of training between. Raise "
            "save_checkpoints_steps, or give less dev data."
        )


def log_values(reporter, gauge, guard, step, stops, values):
    """Logs values and, if there is a gauge, its measurements."""
    measured, advice = guard.take_count(), None
    if gauge and gauge.is_due(step):
        measured |= gauge.measure()
        reporter.clock.resume()  # Measuring is no training time.
        reporter.word = gauge.describe(measured)
        advice = gauge.advise(step, stops.last, measured)
    reporter.log("train", step, values, measured)
    if advice:
        reporter.say(advice)


@contextlib.contextmanager
def ignoring_signals():
    """Context manager: ctrl-C and SIGTERM have no effect in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


@contextlib.contextmanager
def keeping_interrupted(session, stops):
    """Saves a checkpoint when training is interrupted."""
    manager, first_step = session.manager, session.step
    try:
        try:
            yield
        except KeyboardInterrupt:
            step = session.step
            with ignoring_signals():
                known = {*checkpoints.list_checkpoints(manager.folder)}
                known -= manager.damaged
                if step > first_step and manager.prefix(step) not in known:
                    # If it fails as the run has diverged, that is the error.
                    session.save(is_interrupted=not stops.is_saved(step))
            session.reporter.say(
                f"Interrupted at step {step}. Rerun the same command to resume."
            )
            raise
    except FloatingPointError:
        manager.source = None  # These weights are of no use.
        raise
