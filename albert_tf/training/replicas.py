"""What each replica computes: losses, gradients, and the update of its weights.

A model in this module is any object with `ratios(features, training, seed)`,
which returns a `heads.Ratio` for each loss in `loss_scales` and each metric in
`metric_names`. Totals and weights are summed over replicas before division, so
a loss is normalized over the global batch however the batch is split.
"""

import functools

import numpy as np
import tensorflow as tf

from albert_tf.model import custom_gradients, execution, heads
from albert_tf.training import optimization
from albert_tf.training.settings import Settings

DEFAULTS = Settings()


def ratio_names(model):
    """Returns the names of the losses, then those of the metrics."""
    return [*model.loss_scales, *model.metric_names]


def stack_ratios(model, ratios):
    """Returns totals and weights as one tensor, [ratios, 2] float32."""
    rows = [ratios[name] for name in ratio_names(model)]
    return tf.stack([tf.stack([row.total, row.weight]) for row in rows])


def results(model, sums):
    """Divides summed ratios.

    Args:
      model: the model that computed them.
      sums: [ratios, 2], as from `stack_ratios`.

    Returns:
      Dict from name to float, with the weighted sum of losses as "loss".
    """
    sums = np.asarray(sums, np.float64)
    means = (sums[:, 0] / np.maximum(sums[:, 1], 1e-12)).tolist()
    values = dict(zip(ratio_names(model), means, strict=True))
    loss = sum(s * values[name] for name, s in model.loss_scales.items())
    return {"loss": loss, **values}


def losses_of_steps(model, sums, name):
    """Returns a loss of each step, and the weight of the step in its mean.

    Args:
      model: the model that computed them.
      sums: [steps, ratios, 2], as from `stack_ratios`.
      name: one of the losses; "loss" has the weights of the first of them.

    Returns:
      Two arrays, [steps].
    """
    names = ratio_names(model)
    index = names.index(name) if name in names else 0
    losses = [results(model, step)[name] for step in sums]
    return np.array(losses), np.asarray(sums)[:, index, 1]


def replica_seed(seed, step):
    """Returns the [2] int32 seed of the current replica at a step."""
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    pair = tf.stack([tf.constant(seed, tf.int32), tf.cast(step, tf.int32)])
    return tf.random.experimental.stateless_fold_in(
        pair, tf.cast(replica, tf.int32)
    )


def build_replica_step(model, optimizer, settings=DEFAULTS):
    """Returns the training step of one replica.

    Gradients of the global loss are summed over replicas, then clipped, so
    the update does not depend on the number of replicas; the release clips
    before the sum.

    Args:
      model: see the module.
      optimizer: an `optimization.Optimizer` over the model's weights.
      settings: `settings.Settings`, of which the step follows `random_seed`,
        the seed of dropout, combined with the step, the replica and the part;
        `gradient_accumulation_steps`; and `remat`.

    Returns:
      A function from features to (sums [ratios, 2] of this replica, gradient
      norm before clipping, learning rate).
    """
    compute, num_parts = differentiate, settings.gradient_accumulation_steps
    if getattr(model, "compares_rows", False):
        compute = functools.partial(differentiate_vectors, num_parts=num_parts)
    elif num_parts > 1:
        compute = functools.partial(accumulate, num_parts=num_parts)

    def replica_step(features):
        seed = replica_seed(settings.random_seed, optimizer.step.value())
        how = execution.Execution(recompute_layers=settings.remat)
        with execution.using(how):
            sums, gradients = compute(model, optimizer.trained, features, seed)
        summed = sum_replicas(list(gradients.values()))
        clipped, norm = tf.clip_by_global_norm(summed, 1.0)
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
      weights: dict from canonical name to tf.Variable, of those to train.
      features: dict of name -> [B, ...].
      seed: [2] int32, seed of dropout.
      loss_weights: divisor of each loss; default: from `sum_loss_weights`.

    Returns:
      Sums [ratios, 2]; and a dict from canonical name to gradient, without
      the weights that do not affect the loss.
    """
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        # No others, so that below them nothing is kept for a backward pass.
        tape.watch(list(weights.values()))
        ratios = model.ratios(features, training=True, seed=seed)
        if loss_weights is None:
            loss_weights = sum_loss_weights(model, ratios)
        losses = [ratios[name] for name in model.loss_scales]
        loss = sum(
            tf.math.divide_no_nan(scale * r.total, weight + r.epsilon)
            for scale, r, weight in zip(
                model.loss_scales.values(), losses, loss_weights, strict=True
            )
        )
    gradients = tape.gradient(loss, weights)
    return stack_ratios(model, ratios), optimization.make_dense(gradients)


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
    parts = split(features, num_parts)

    def compute(i):
        return differentiate(
            model,
            weights,
            {name: values[i] for name, values in parts.items()},
            part_seed(seed, i),
            loss_weights,
        )

    return add_parts(compute, model, weights, num_parts)


def split(features, num_parts):
    """Returns the features of parts of a batch: name -> [parts, rows, ...]."""
    return {
        name: tf.reshape(values, [num_parts, -1, *values.shape[1:]])
        for name, values in features.items()
    }


def part_seed(seed, i):
    """Returns the seed of dropout, [2] int32, of a part of a batch."""
    return tf.random.experimental.stateless_fold_in(seed, i)


def add_parts(compute, model, weights, num_parts):
    """Adds sums and gradients of parts of a batch, one after the other.

    Args:
      compute: function from the index of a part to its sums and gradients, as
        from `differentiate`.
      model: see the module.
      weights: as for `differentiate`.
      num_parts: number of parts.

    Returns:
      What `differentiate` returns for the whole batch.
    """
    with_gradient = set()

    def body(i, sums, totals):
        part_sums, gradients = compute(i)
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
    return sums, {n: x for n, x in totals.items() if n in with_gradient}


def differentiate_vectors(model, weights, features, seed, num_parts):
    """Does what `differentiate` does, for a model that compares all rows.

    Its loss needs the vectors of all replicas and parts, but memory only has
    room for the layers of one part. So the vectors of parts are computed first,
    without what a backward pass needs; then the gradient of the loss with
    respect to them; and then, part by part, the vectors again and their
    gradients ("gradient caching", Gao et al., 2021). A single part is computed
    once.

    Arguments and results are those of `accumulate`.
    """
    parts = split(features, num_parts)

    def embed(i):
        part = {name: values[i] for name, values in parts.items()}
        how = {"training": True, "seed": part_seed(seed, i)}
        return model(part, **how)["vectors"]  # [B / parts, C, H]

    def differentiate_part(i, d_vectors=None):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(list(weights.values()))
            vectors = embed(i)
        if d_vectors is None:
            sums, d_vectors = compare_replicas(model, vectors, features)
        else:
            sums, d_vectors = tf.zeros([]), d_vectors[i]
        gradients = tape.gradient(vectors, weights, output_gradients=d_vectors)
        return sums, optimization.make_dense(gradients)

    if num_parts == 1:
        return differentiate_part(0)
    vectors = tf.map_fn(
        embed,
        tf.range(num_parts),
        parallel_iterations=1,
        fn_output_signature=tf.float32,
    )  # [parts, B / parts, C, H]
    shape = [-1, *features["input_ids"].shape[1:2], model.config.hidden_size]
    sums, d_vectors = compare_replicas(
        model, tf.reshape(vectors, shape), features
    )
    d_vectors = tf.reshape(d_vectors, [num_parts, *shape])
    _, gradients = add_parts(
        functools.partial(differentiate_part, d_vectors=d_vectors),
        model,
        weights,
        num_parts,
    )
    return sums, gradients


def compare_replicas(model, vectors, features):
    """Compares the rows of all replicas.

    Args:
      model: a model that compares rows.
      vectors: [B, C, H] of this replica.
      features: dict of its features, as for `model.compare`.

    Returns:
      Sums [ratios, 2] of this replica's rows, and the gradient of the global
      loss with respect to its vectors, [B, C, H].
    """
    own = {
        name: values
        for name, values in features.items()
        if name in ("text_ids", "label_ids", "example_weight")
    }
    own["example_weight"] = heads.row_weights(features)
    everything = {name: gather_rows(values) for name, values in own.items()}
    all_vectors = gather_rows(vectors)
    with tf.GradientTape() as tape:
        tape.watch(all_vectors)
        values = model.compare(all_vectors, everything)
        rows = everything["example_weight"]
        loss = sum(
            scale
            * tf.math.divide_no_nan(
                tf.reduce_sum(values[name] * rows), tf.reduce_sum(rows)
            )
            for name, scale in model.loss_scales.items()
        )
    d_vectors = tape.gradient(loss, all_vectors)
    ratios = {
        name: heads.weighted_mean(take_own(x), own["example_weight"])
        for name, x in values.items()
    }
    return stack_ratios(model, ratios), take_own(d_vectors)


def gather_rows(values):
    """Returns the values [B, ...] of all replicas, one after the other."""
    context = tf.distribute.get_replica_context()
    count = context.num_replicas_in_sync
    if count == 1:
        return values
    # A sum, as each strategy and device has it; others add zeros.
    is_own = tf.range(count) == context.replica_id_in_sync_group
    is_own = tf.reshape(is_own, [count] + [1] * len(values.shape))
    placed = tf.where(is_own, values[tf.newaxis], tf.zeros_like(values))
    (summed,) = sum_replicas([placed])  # [replicas, B, ...]
    return tf.reshape(summed, [-1, *values.shape[1:]])


def take_own(values):
    """Returns this replica's rows of `gather_rows`."""
    context = tf.distribute.get_replica_context()
    parts = tf.split(values, context.num_replicas_in_sync)
    return tf.stack(parts)[context.replica_id_in_sync_group]


def build_train_function(strategy, model, optimizer, settings=DEFAULTS):
    """Returns a compiled function that runs several training steps.

    Args:
      strategy: the tf.distribute.Strategy of model and optimizer.
      model: see the module.
      optimizer: an `optimization.Optimizer` over the model's weights.
      settings: `settings.Settings`, as for `build_replica_step`; with `xla`,
        XLA compiles the step, for one GPU (a TPU always does).

    Returns:
      A function from (iterator, number of steps as int32 tensor) to (sums
      [steps, ratios, 2] over the replicas, gradient norms [steps], last
      learning rate).
    """
    replica_step = build_replica_step(model, optimizer, settings)
    if settings.xla:
        replica_step = tf.function(replica_step, jit_compile=True)
    mean = tf.distribute.ReduceOp.MEAN

    @tf.function
    def train_steps(iterator, num_steps):
        all_sums = tf.TensorArray(tf.float32, num_steps)
        all_norms = tf.TensorArray(tf.float32, num_steps)
        learning_rate = tf.zeros([])
        for i in tf.range(num_steps):
            sums, norms, rates = strategy.run(
                replica_step, args=(next(iterator),)
            )
            sums = strategy.reduce(tf.distribute.ReduceOp.SUM, sums, axis=None)
            all_sums = all_sums.write(i, sums)
            # Norm and rate are equal on all replicas.
            norm = strategy.reduce(mean, norms, axis=None)
            all_norms = all_norms.write(i, norm)
            learning_rate = strategy.reduce(mean, rates, axis=None)
        return all_sums.stack(), all_norms.stack(), learning_rate

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
