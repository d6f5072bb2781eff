"""One loop for every task: train, evaluate, save, resume, report.

A model here is anything with `ratios(features, training, seed)`, which returns
a `heads.Ratio` for each loss in `loss_scales` and each of `metric_names`.
Totals and weights are summed over replicas before they are divided, so a loss
is normalized over the global batch however it was cut up.
"""

import contextlib
import time

import numpy as np
import tensorflow as tf

from albert_tf.training import distribution, optimization
from albert_tf.weights import checkpoints

# Seconds of work in one compiled call where nothing is lost by returning to
# Python: often enough for a progress line, seldom enough to cost nothing.
SECONDS_PER_CALL = 5.0


def ratio_names(model):
    """Returns the losses' names, then the metrics'."""
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
      model: the model they are from.
      sums: [ratios, 2], as `stack_ratios` gives them.

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
    """Returns a [2] int32 seed of this replica at this step."""
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    pair = tf.stack([tf.constant(seed, tf.int32), tf.cast(step, tf.int32)])
    return tf.random.experimental.stateless_fold_in(
        pair, tf.cast(replica, tf.int32)
    )


def build_replica_step(model, optimizer, seed=0, clip_norm=1.0):
    """Returns the training step of one replica.

    Gradients of the global loss are summed over replicas, then clipped, so
    the update does not depend on the number of replicas; the release clips
    before the sum.

    Args:
      model: see the module.
      optimizer: an `optimization.Optimizer` over the model's weights.
      seed: decides the dropout, with the step and the replica.
      clip_norm: largest global norm of the gradients.

    Returns:
      A function from features to (sums [ratios, 2] of this replica, gradient
      norm before clipping, learning rate).
    """

    def replica_step(features):
        context = tf.distribute.get_replica_context()
        step = optimizer.step.value()
        with tf.GradientTape() as tape:
            ratios = model.ratios(
                features, training=True, seed=replica_seed(seed, step)
            )
            losses = [ratios[name] for name in model.loss_scales]
            weights = context.all_reduce(
                tf.distribute.ReduceOp.SUM, [r.weight for r in losses]
            )
            loss = sum(
                scale * r.total / (weight + r.epsilon)
                for scale, r, weight in zip(
                    model.loss_scales.values(), losses, weights, strict=True
                )
            )
        gradients = tape.gradient(loss, optimizer.weights)
        # Dense: a repeated row must count once in the norm.
        gradients = {
            name: tf.convert_to_tensor(g)
            for name, g in gradients.items()
            if g is not None
        }
        summed = context.all_reduce(
            tf.distribute.ReduceOp.SUM, list(gradients.values())
        )
        clipped, norm = optimization.clip_by_global_norm(summed, clip_norm)
        learning_rate = optimizer.apply(
            dict(zip(gradients, clipped, strict=True))
        )
        return stack_ratios(model, ratios), norm, learning_rate

    return replica_step


def build_train_function(strategy, model, optimizer, *, seed=0, xla=False):
    """Returns a compiled function that runs many training steps.

    Args:
      strategy: the tf.distribute.Strategy that everything was created in.
      model: see the module.
      optimizer: an `optimization.Optimizer` over the model's weights.
      seed: decides the dropout.
      xla: whether to compile the step with XLA (one GPU; a TPU always does).

    Returns:
      A function from (iterator, number of steps as int32 tensor) to (sums
      [ratios, 2] over all steps and replicas, last gradient norm, last
      learning rate).
    """
    replica_step = build_replica_step(model, optimizer, seed)
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
            # Equal on every replica.
            norm = strategy.reduce(mean, norms, axis=None)
            learning_rate = strategy.reduce(mean, rates, axis=None)
        return sums, norm, learning_rate

    return train_steps


class Traces:
    """Calls a tf.function that has one trace for each of a few known shapes.

    If it were called itself, TensorFlow would warn of so many traces.
    """

    def __init__(self, function):
        self.function = function
        self.traces = {}

    def trace(self, key, *args):
        """Returns the trace of a key, which stands for the shapes of args."""
        if key not in self.traces:
            self.traces[key] = self.function.get_concrete_function(*args)
        return self.traces[key]

    def __call__(self, key, *args):
        """Calls the trace of a key, which stands for the shapes of args."""
        return self.trace(key, *args)(*args)


def distribute(strategy, dataset):
    """Divides each global batch of a dataset among the replicas."""
    options = tf.data.Options()
    # Each host reads everything and keeps its part, so that the global batch
    # is the same for any number of hosts.
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    return strategy.experimental_distribute_dataset(
        dataset.with_options(options)
    )


class Turns:
    """Takes batches from several datasets in a given order.

    Args:
      strategy: a tf.distribute.Strategy.
      datasets: dict of key -> dataset of global batches of static shapes.
      order: [steps] keys: which dataset each step's batch is from; None where
        there is one dataset.
    """

    def __init__(self, strategy, datasets, order):
        self.iterators = {
            key: iter(distribute(strategy, dataset))
            for key, dataset in datasets.items()
        }
        self.order = None if order is None else np.asarray(order)
        self.used = set()

    def at(self, step):
        """Says where the batch of a step is from.

        Args:
          step: steps since the beginning of `order`.

        Returns:
          key: of that dataset.
          iterator: over it.
          num_steps: for how many steps batches come from it; None for all.
          is_new: whether it was never asked for, so that a step compiles.
        """
        if self.order is None:
            (key,), num_steps = self.iterators, None
        else:
            key = self.order[step]
            others = np.flatnonzero(self.order[step:] != key)
            num_steps = len(self.order) - step
            num_steps = int(others[0]) if len(others) else num_steps
        is_new = key not in self.used
        self.used.add(key)
        return key, self.iterators[key], num_steps, is_new


def next_multiple(step, interval):
    """Returns the first multiple of interval after step."""
    return (step // interval + 1) * interval


class Pace:
    """Chooses how many steps go into one compiled call.

    Args:
      iterations_per_loop: most steps in a call.
      is_timed: whether to keep calls near SECONDS_PER_CALL; False for TPUs,
        where returning to Python costs.
    """

    def __init__(self, iterations_per_loop, is_timed):
        self.limit = iterations_per_loop
        self.is_timed = is_timed
        self.num_steps = 1

    def choose(self, remaining):
        """Returns the number of steps of the next call."""
        return max(1, min(self.num_steps, self.limit, remaining))

    def note(self, num_steps, seconds):
        """Learns from a call that has ended."""
        if not self.is_timed:
            self.num_steps = self.limit
        elif seconds > 0:
            fitting = int(SECONDS_PER_CALL * num_steps / seconds)
            self.num_steps = max(1, min(fitting, 2 * self.num_steps + 1))


class Steps:
    """Runs training steps, several in one compiled call.

    Args:
      train_steps: from `build_train_function`, as Traces.
      turns: where batches are from.
      pace: how many steps go into a call.
    """

    def __init__(self, train_steps, turns, pace):
        self.train_steps, self.turns, self.pace = train_steps, turns, pace
        self.done = 0

    def run(self, limit):
        """Runs up to `limit` steps in one call.

        Returns:
          Sums [ratios, 2] over the steps; a dict of the last gradient norm
          and learning rate; how many steps there were; whether they compiled.
        """
        key, iterator, num_alike, is_new = self.turns.at(self.done)
        limit = limit if num_alike is None else min(limit, num_alike)
        num_steps = 1 if is_new else self.pace.choose(limit)
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
    seed=0,
    xla=False,
    on_checkpoint=None,
    gauge=None,
):
    """Trains from the optimizer's step to num_train_steps.

    Ctrl-C saves a checkpoint before it ends the program, which the next one
    that is due replaces: the result is that of a run without it. A loss that
    is not finite ends it without one.

    Args:
      strategy: a tf.distribute.Strategy.
      model: see the module.
      optimizer: an `optimization.Optimizer`; its step says where to begin.
      datasets: dict of key -> dataset of global batches of static shapes.
      order: from that step on, the key of the dataset that each step's batch
        is from; None where there is one dataset.
      num_train_steps: the step to reach.
      batch_size: examples in a global batch, for the rate that is shown.
      manager: a `checkpoints.CheckpointManager`.
      reporter: a `reporting.Reporter`.
      save_checkpoints_steps: steps between checkpoints; the last step has one
        too.
      iterations_per_loop: most steps in one compiled call.
      log_every_steps: steps between lines in the log and the summaries.
      seed: decides the dropout.
      xla: see `build_train_function`.
      on_checkpoint: called with (step, prefix) after each checkpoint.
      gauge: a `gauge.Gauge` to measure with beside the lines, or None.

    Raises:
      FloatingPointError: if a loss is not finite.
    """
    steps = Steps(
        Traces(
            build_train_function(strategy, model, optimizer, seed=seed, xla=xla)
        ),
        Turns(strategy, datasets, order),
        Pace(iterations_per_loop, is_timed=not distribution.is_tpu(strategy)),
    )
    step = int(optimizer.step.numpy())
    reporter.start(step, num_train_steps, batch_size)
    window = np.zeros([len(ratio_names(model)), 2])
    with keeping_interrupted(
        manager, reporter, optimizer, save_checkpoints_steps, num_train_steps
    ):
        while step < num_train_steps:
            log_at = next_multiple(step, log_every_steps)
            save_at = next_multiple(step, save_checkpoints_steps)
            stop = min(log_at, save_at, num_train_steps)
            sums, state, num_steps, is_new = steps.run(stop - step)
            window += sums
            step += num_steps
            values = results(model, window) | state
            check_finite(values, step)
            reporter.progress(step, values, is_new)
            if step in (log_at, num_train_steps):
                log_values(reporter, gauge, step, num_train_steps, values)
                window[:] = 0
            if step in (save_at, num_train_steps):
                prefix = manager.save()
                if on_checkpoint:
                    on_checkpoint(step, prefix)
                reporter.clock.resume()


def log_values(reporter, gauge, step, num_train_steps, values):
    """Writes values, and what a gauge, if there is one, measures now."""
    measured, advice = {}, None
    if gauge and gauge.is_due(step):
        measured = gauge.measure()
        reporter.word = gauge.describe(measured)
        advice = gauge.advise(step, num_train_steps, measured)
    reporter.log("train", step, values, measured)
    if advice:
        reporter.say(advice)


@contextlib.contextmanager
def keeping_interrupted(manager, reporter, optimizer, interval, last_step):
    """Saves the checkpoint of a step at which training is interrupted.

    Args:
      manager: a `checkpoints.CheckpointManager`.
      reporter: a `reporting.Reporter`.
      optimizer: whose step it is.
      interval: steps between checkpoints that are due in any case.
      last_step: has one, too.
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
            is_due = step % interval == 0 or step == last_step
            manager.save(is_interrupted=not is_due)
        reporter.say(
            f"Interrupted at step {step}. The same command goes on from there."
        )
        raise


def check_finite(values, step):
    """Raises FloatingPointError if the loss or gradient is NaN or infinite."""
    if not np.isfinite([values["loss"], values["gradient_norm"]]).all():
        raise FloatingPointError(
            f"At step {step} the loss is {values['loss']} and the gradient "
            f"norm {values['gradient_norm']}, at learning rate "
            f"{values['learning_rate']:.3g}. Lower the learning rate or warm "
            "up longer; the newest checkpoint is from before."
        )
