"""The training loop of all tasks: train, save, resume, report."""

import contextlib
import math
import time
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.training import distribution, replicas, workers
from albert_tf.training import guard as guards
from albert_tf.weights import checkpoints

# Target duration of one compiled call: short enough for a progress line and to
# notice signals, long enough to make the return to Python free, which takes
# longer on TPUs.
SECONDS_PER_CALL = 5.0
TPU_SECONDS_PER_CALL = 20.0


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


class Pace:
    """Chooses the number of steps per compiled call.

    Args:
      iterations_per_loop: maximum number of steps per call.
      seconds_per_call: target duration of a call.
    """

    def __init__(self, iterations_per_loop, seconds_per_call):
        self.limit = iterations_per_loop
        self.seconds_per_call = seconds_per_call
        self.num_steps = 1

    def choose(self, remaining):
        """Returns the number of steps of the next call."""
        return max(1, min(self.num_steps, self.limit, remaining))

    def note(self, num_steps, seconds):
        """Adapts to the duration of a completed call."""
        if seconds > 0:
            fitting = int(self.seconds_per_call * num_steps / seconds)
            self.num_steps = max(1, min(fitting, 2 * self.num_steps + 1))


class Steps:
    """Runs training steps, several per compiled call.

    Args:
      strategy, model, optimizer: as for `train`.
      turns: Turns, which choose the dataset.
      iterations_per_loop: maximum number of steps per compiled call.
      **kwargs: arguments of `replicas.build_train_function`.
    """

    def __init__(
        self, strategy, model, optimizer, turns, iterations_per_loop, **kwargs
    ):
        self.train_steps = replicas.Traces(
            replicas.build_train_function(strategy, model, optimizer, **kwargs)
        )
        self.turns = turns
        self.workers = workers.find_workers(strategy)
        self.pace = Pace(
            iterations_per_loop,
            TPU_SECONDS_PER_CALL
            if distribution.is_tpu(strategy)
            else SECONDS_PER_CALL,
        )
        self.done = 0

    def run(self, limit):
        """Runs up to `limit` steps in one call.

        Returns:
          Sums [steps, ratios, 2]; gradient norms [steps]; a dict of the last
          gradient norm and learning rate; whether the steps compiled.
        """
        self.workers.check_signals()
        key, iterator, num_alike, is_new = self.turns.at(self.done)
        limit = min(limit, num_alike)
        num_steps = 1 if is_new else self.pace.choose(limit)
        num_steps = self.workers.share(num_steps)
        start = time.monotonic()
        sums, norms, rate = self.train_steps(
            key, iterator, tf.constant(num_steps)
        )
        sums, norms = sums.numpy(), norms.numpy()
        if not is_new:
            self.pace.note(num_steps, time.monotonic() - start)
        self.done += num_steps
        state = {
            "gradient_norm": float(norms[-1]),
            "learning_rate": float(rate),
        }
        return sums, norms, state, is_new


def train(
    strategy,
    model,
    optimizer,
    datasets,
    order=None,
    *,
    num_train_steps,
    batch_size,
    manager,
    reporter,
    save_checkpoints_steps=1000,
    iterations_per_loop=1000,
    log_every_steps=100,
    on_checkpoint=None,
    gauge=None,
    guard=None,
    **kwargs,
):
    """Trains from the optimizer's step to num_train_steps.

    Ctrl-C saves a checkpoint before the program exits. The next regular
    checkpoint replaces it, so results equal those of an uninterrupted run. A
    run that diverges stops without a checkpoint.

    Args:
      strategy: a tf.distribute.Strategy.
      model: as for `replicas`.
      optimizer: an `optimization.Optimizer`; training starts at its step.
      datasets: dict of key -> dataset of static shapes, as for
        `replicas.distribute`.
      order: the key of each step's dataset, from the first step on; None for a
        single dataset.
      num_train_steps: step at which training ends.
      batch_size: global batch size, in examples, to report the throughput.
      manager: a `checkpoints.CheckpointManager`.
      reporter: a `reporting.Reporter`.
      save_checkpoints_steps: number of steps between checkpoints; the last
        step also gets one.
      iterations_per_loop: maximum number of steps per compiled call.
      log_every_steps: number of steps between log lines and summaries.
      on_checkpoint: called with (step, prefix) after each checkpoint.
      gauge: a `gauge.Gauge` to measure with at log lines, or None.
      guard: a `guard.Guard`; None only checks that the loss is finite.
      **kwargs: arguments of `replicas.build_train_function`, such as seed and
        num_parts.

    Raises:
      FloatingPointError: if the guard detects that the run diverges.
    """
    guard = guard or guards.Guard(is_active=False)
    turns = Turns(strategy, datasets, order)
    steps = Steps(
        strategy, model, optimizer, turns, iterations_per_loop, **kwargs
    )
    step = int(optimizer.step.numpy())
    stops = Stops(num_train_steps, log_every_steps, save_checkpoints_steps)
    reporter.start(step, num_train_steps, batch_size)
    guard.resume(reporter.read("train"))
    window = np.zeros([len(replicas.ratio_names(model)), 2])
    with (
        steps.workers.acting_together(),
        keeping_interrupted(manager, reporter, optimizer, stops),
    ):
        while step < num_train_steps:
            with steps.workers.finishing_first():
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
                prefix = manager.save()
                if on_checkpoint:
                    on_checkpoint(step, prefix)
                reporter.clock.resume()


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
def keeping_interrupted(manager, reporter, optimizer, stops):
    """Saves a checkpoint when training is interrupted.

    Args:
      manager: a `checkpoints.CheckpointManager`.
      reporter: a `reporting.Reporter`.
      optimizer: an `optimization.Optimizer`, which has the current step.
      stops: the Stops of the training.
    """
    first_step = int(optimizer.step.numpy())
    try:
        yield
    except KeyboardInterrupt:
        step = int(optimizer.step.numpy())
        is_there = manager.prefix(step) in checkpoints.list_checkpoints(
            manager.folder
        )
        if step > first_step and not is_there:
            # If it fails because the run has diverged, that is the error.
            manager.save(is_interrupted=not stops.is_saved(step))
        reporter.say(
            f"Interrupted at step {step}. Rerun the same command to resume."
        )
        raise
