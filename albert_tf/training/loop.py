"""The training loop of all tasks: train, evaluate, save, resume, report.

A model in this module is any object with `ratios(features, training, seed)`,
which returns a `heads.Ratio` for each loss in `loss_scales` and each metric in
`metric_names`. Totals and weights are summed over replicas before division, so
a loss is normalized over the global batch however the batch is split.
"""

import contextlib
import functools
import math
import time
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.model import custom_gradients, recomputing
from albert_tf.training import distribution, optimization, workers
from albert_tf.training import guard as guards
from albert_tf.weights import checkpoints

# Target duration of one compiled call on CPUs and GPUs: short enough for a
# progress line, long enough to make the return to Python free.
SECONDS_PER_CALL = 5.0


def ratio_names(model):
    """Returns the names of the losses, then those of the metrics."""
    return [*model.loss_scales, *model.metric_names]


def stack_ratios(model, ratios):
    """Returns totals and weights as one tensor, [ratios, 2] float32."""
    return tf.stack(
        [
            tf.stack([ratios[name].total, ratios[name].weight])
            for name in ratio_names(model)
        ]
    )


def results(model, sums):
    """Divides summed ratios.

    Args:
      model: the model that computed them.
      sums: [ratios, 2], as from `stack_ratios`.

    Returns:
      Dict from name to float, with the weighted sum of losses as "loss".
    """
    sums = np.asarray(sums, np.float64)
    values = dict(
        zip(
            ratio_names(model),
            (sums[:, 0] / np.maximum(sums[:, 1], 1e-12)).tolist(),
            strict=True,
        )
    )
    loss = sum(s * values[name] for name, s in model.loss_scales.items())
    return {"loss": loss, **values}


def replica_seed(seed, step):
    """Returns the [2] int32 seed of the current replica at a step."""
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    pair = tf.stack([tf.constant(seed, tf.int32), tf.cast(step, tf.int32)])
    return tf.random.experimental.stateless_fold_in(
        pair, tf.cast(replica, tf.int32)
    )


def build_replica_step(model, optimizer, seed=0, num_parts=1, remat=False):
    """Returns the training step of one replica.

    Gradients of the global loss are summed over replicas, then clipped, so
    the update does not depend on the number of replicas; the release clips
    before the sum.

    Args:
      model: see the module.
      optimizer: an `optimization.Optimizer` over the model's weights.
      seed: seed of dropout, combined with the step, the replica and the part.
      num_parts: number of equal parts of the batch, computed one after
        another. Without dropout, the update is that of the whole batch.
      remat: whether to compute the layers again in the backward pass, which
        saves memory, see `model.recomputing`.

    Returns:
      A function from features to (sums [ratios, 2] of this replica, gradient
      norm before clipping, learning rate).
    """

    def replica_step(features):
        own_seed = replica_seed(seed, optimizer.step.value())
        compute = differentiate
        if num_parts > 1:
            compute = functools.partial(accumulate, num_parts=num_parts)
        with recomputing.recomputing(remat):
            sums, gradients = compute(
                model, optimizer.weights, features, own_seed
            )
        summed = sum_replicas(list(gradients.values()))
        clipped, norm = optimization.clip_by_global_norm(summed)
        learning_rate = optimizer.apply(
            dict(zip(gradients, clipped, strict=True))
        )
        return sums, norm, learning_rate

    return replica_step


def sum_loss_weights(model, ratios):
    """Returns the weight of each loss, summed over the replicas."""
    return sum_replicas([ratios[name].weight for name in model.loss_scales])


def sum_replicas(values):
    """Returns the sums of a list of tensors over the replicas."""
    context = tf.distribute.get_replica_context()
    # TensorFlow gives the sums a custom gradient.
    return custom_gradients.let_graph_own(
        context.all_reduce(tf.distribute.ReduceOp.SUM, values)
    )


def differentiate(model, weights, features, seed, loss_weights=None):
    """Computes the gradients of this replica's part of the loss.

    Args:
      model: see the module.
      weights: dict from canonical name to tf.Variable.
      features: dict of name -> [B, ...].
      seed: [2] int32, seed of dropout.
      loss_weights: divisor of each loss; default: from `sum_loss_weights`.

    Returns:
      Sums [ratios, 2]; and a dict from canonical name to gradient, without
      the weights that do not affect the loss.
    """
    with tf.GradientTape() as tape:
        ratios = model.ratios(features, training=True, seed=seed)
        if loss_weights is None:
            loss_weights = sum_loss_weights(model, ratios)
        losses = [ratios[name] for name in model.loss_scales]
        loss = sum(
            scale * r.total / (weight + r.epsilon)
            for scale, r, weight in zip(
                model.loss_scales.values(), losses, loss_weights, strict=True
            )
        )
    gradients = tape.gradient(loss, weights)
    return stack_ratios(model, ratios), {
        # Dense, so that a repeated row counts once in the norm.
        name: tf.convert_to_tensor(gradient)
        for name, gradient in gradients.items()
        if gradient is not None
    }


def accumulate(model, weights, features, seed, num_parts):
    """Does what `differentiate` does, one part of the batch at a time.

    Arguments and results are those of `differentiate`, with `num_parts`, which
    divides B.
    """
    # Of this, only the weights are used: they depend on the features alone, so
    # that the encoder is removed from the graph.
    loss_weights = sum_loss_weights(
        model, model.ratios(features, training=True, seed=seed)
    )
    parts = {
        name: tf.reshape(values, [num_parts, -1, *values.shape[1:]])
        for name, values in features.items()
    }  # [parts, B / parts, ...]
    with_gradient = set()

    def body(i, sums, totals):
        part_sums, gradients = differentiate(
            model,
            weights,
            {name: values[i] for name, values in parts.items()},
            tf.random.experimental.stateless_fold_in(seed, i),
            loss_weights,
        )
        with_gradient.update(gradients)
        totals = {
            name: total + gradients[name] if name in gradients else total
            for name, total in totals.items()
        }
        return i + 1, sums + part_sums, totals

    zeros = {name: tf.zeros(weight.shape) for name, weight in weights.items()}
    sums = tf.zeros([len(ratio_names(model)), 2])
    _, sums, totals = tf.while_loop(
        lambda i, *_: i < num_parts,
        body,
        (tf.constant(0), sums, zeros),
        parallel_iterations=1,
        maximum_iterations=num_parts,
    )
    return sums, {
        name: totals[name] for name in totals if name in with_gradient
    }


def build_train_function(strategy, model, optimizer, *, xla=False, **kwargs):
    """Returns a compiled function that runs several training steps.

    Args:
      strategy: the tf.distribute.Strategy of model and optimizer.
      model: see the module.
      optimizer: an `optimization.Optimizer` over the model's weights.
      xla: whether to compile the step with XLA (one GPU; a TPU always does).
      **kwargs: further arguments of `build_replica_step`.

    Returns:
      A function from (iterator, number of steps as int32 tensor) to (sums
      [ratios, 2] over all steps and replicas, last gradient norm, last
      learning rate).
    """
    replica_step = build_replica_step(model, optimizer, **kwargs)
    if xla:
        replica_step = tf.function(replica_step, jit_compile=True)
    mean = tf.distribute.ReduceOp.MEAN

    @tf.function
    def train_steps(iterator, num_steps):
        sums = tf.zeros([len(ratio_names(model)), 2])
        norm = learning_rate = tf.zeros([])
        for _ in tf.range(num_steps):
            step_sums, norms, rates = strategy.run(
                replica_step, args=(next(iterator),)
            )
            sums += strategy.reduce(
                tf.distribute.ReduceOp.SUM, step_sums, axis=None
            )
            # Norm and rate are equal on all replicas.
            norm = strategy.reduce(mean, norms, axis=None)
            learning_rate = strategy.reduce(mean, rates, axis=None)
        return sums, norm, learning_rate

    return train_steps


class Traces:
    """Calls a tf.function with one explicit trace per known shape.

    Direct calls would make TensorFlow warn about repeated retracing.
    """

    def __init__(self, function):
        self.function = function
        self.traces = {}

    def trace(self, key, *args):
        """Returns the trace of a key, which identifies the shapes of args."""
        if key not in self.traces:
            self.traces[key] = self.function.get_concrete_function(*args)
        return self.traces[key]

    def __call__(self, key, *args):
        """Calls the trace of a key, which identifies the shapes of args."""
        return self.trace(key, *args)(*args)


def distribute(strategy, dataset):
    """Returns a dataset whose global batches are split among the replicas.

    Args:
      strategy: a tf.distribute.Strategy.
      dataset: tf.data.Dataset of global batches; or a function of a
        tf.distribute.InputContext that returns one of each replica's batches.
    """
    if callable(dataset):
        return strategy.distribute_datasets_from_function(dataset)
    options = tf.data.Options()
    # Each host reads all data and keeps its part, so that the global batch is
    # the same for any number of hosts.
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    return strategy.experimental_distribute_dataset(
        dataset.with_options(options)
    )


class Turns:
    """Alternates between several datasets in a given order.

    Args:
      strategy: a tf.distribute.Strategy.
      datasets: dict of key -> dataset of static shapes, as for `distribute`.
      order: [steps] the key of each step's dataset; None for a single dataset.
    """

    def __init__(self, strategy, datasets, order):
        self.iterators = {
            key: iter(distribute(strategy, dataset))
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
      is_timed: whether to keep calls near SECONDS_PER_CALL; False for TPUs,
        where returning to Python is expensive.
    """

    def __init__(self, iterations_per_loop, is_timed):
        self.limit = iterations_per_loop
        self.is_timed = is_timed
        self.num_steps = 1

    def choose(self, remaining):
        """Returns the number of steps of the next call."""
        return max(1, min(self.num_steps, self.limit, remaining))

    def note(self, num_steps, seconds):
        """Adapts to the duration of a completed call."""
        if not self.is_timed:
            self.num_steps = self.limit
        elif seconds > 0:
            fitting = int(SECONDS_PER_CALL * num_steps / seconds)
            self.num_steps = max(1, min(fitting, 2 * self.num_steps + 1))


class Steps:
    """Runs training steps, several per compiled call.

    Args:
      strategy, model, optimizer: as for `train`.
      turns: Turns, which choose the dataset.
      iterations_per_loop: maximum number of steps per compiled call.
      **kwargs: arguments of `build_train_function`.
    """

    def __init__(
        self, strategy, model, optimizer, turns, iterations_per_loop, **kwargs
    ):
        self.train_steps = Traces(
            build_train_function(strategy, model, optimizer, **kwargs)
        )
        self.turns = turns
        self.workers = workers.find_workers(strategy)
        self.pace = Pace(
            iterations_per_loop, is_timed=not distribution.is_tpu(strategy)
        )
        self.done = 0

    def run(self, limit):
        """Runs up to `limit` steps in one call.

        Returns:
          Sums [ratios, 2] over the steps; a dict of the last gradient norm
          and learning rate; the number of steps; whether they compiled.
        """
        self.workers.check_signals()
        key, iterator, num_alike, is_new = self.turns.at(self.done)
        limit = min(limit, num_alike)
        num_steps = 1 if is_new else self.pace.choose(limit)
        num_steps = self.workers.share(num_steps)
        start = time.monotonic()
        sums, norm, rate = self.train_steps(
            key, iterator, tf.constant(num_steps)
        )
        sums = sums.numpy()
        if not is_new:
            self.pace.note(num_steps, time.monotonic() - start)
        self.done += num_steps
        state = {"gradient_norm": float(norm), "learning_rate": float(rate)}
        return sums, state, num_steps, is_new


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
      model: see the module.
      optimizer: an `optimization.Optimizer`; training starts at its step.
      datasets: dict of key -> dataset of static shapes, as for `distribute`.
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
      **kwargs: arguments of `build_train_function`, such as seed and
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
    window = np.zeros([len(ratio_names(model)), 2])
    with (
        steps.workers.acting_together(),
        keeping_interrupted(manager, reporter, optimizer, stops),
    ):
        while step < num_train_steps:
            stop = stops.after(step)
            with steps.workers.finishing_first():
                sums, state, num_steps, is_new = steps.run(stop - step)
                window += sums
                step += num_steps
                values = results(model, window) | state
                guard.check(step, values, step == stop)
                reporter.progress(step, values, is_new)
                if stops.is_logged(step):
                    log_values(reporter, gauge, step, num_train_steps, values)
                    window[:] = 0
            if stops.is_saved(step):
                prefix = manager.save()
                if on_checkpoint:
                    on_checkpoint(step, prefix)
                reporter.clock.resume()


def log_values(reporter, gauge, step, num_train_steps, values):
    """Logs values and, if there is a gauge, its measurements."""
    measured, advice = {}, None
    if gauge and gauge.is_due(step):
        measured = gauge.measure()
        reporter.clock.resume()  # Measuring is no training time.
        reporter.word = gauge.describe(measured)
        advice = gauge.advise(step, num_train_steps, measured)
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
            manager.save(is_interrupted=not stops.is_saved(step))
        reporter.say(
            f"Interrupted at step {step}. Rerun the same command to resume."
        )
        raise
