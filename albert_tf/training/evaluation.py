"""Evaluates, predicts, and keeps the best checkpoint.

Shapes: N examples, B batch.
"""

import contextlib
import functools
import os

import numpy as np
import tensorflow as tf

from albert_tf import filesystem, progress
from albert_tf.data import batches
from albert_tf.model import execution, exits
from albert_tf.training import distribution, replicas, results_file, workers
from albert_tf.weights import checkpoints, task_heads

# A pass of so many batches needs no dataset, which takes 50 ms to build.
FEW_BATCHES = 16


def build_eval_function(strategy, model):
    """Returns a compiled function from a batch to sums [ratios, 2]."""

    @tf.function
    def eval_step(features):
        sums = strategy.run(
            lambda f: replicas.stack_ratios(
                model, model.ratios(f, training=False)
            ),
            args=(features,),
        )
        return strategy.reduce(tf.distribute.ReduceOp.SUM, sums, axis=None)

    return eval_step


def evaluate(
    strategy, model, eval_function, dataset, max_steps=0, num_batches=None
):
    """Evaluates a model on every row of a dataset.

    Args:
      strategy: a tf.distribute.Strategy.
      model: a model as defined in `replicas`.
      eval_function: from `build_eval_function`.
      dataset: global batches, the last one padded with rows of weight 0.
      max_steps: maximum number of batches; 0 reads all.
      num_batches: number of batches of the dataset, to show progress; None
        shows nothing.

    Returns:
      Dict from name to float.

    Raises:
      ValueError: if the dataset is empty.
    """
    sums = np.zeros([len(replicas.ratio_names(model)), 2])
    num_steps = 0
    total = min(num_batches or 0, max_steps or num_batches or 0)
    together = workers.find_workers(strategy)
    is_shown = bool(total) and together.is_chief
    done = progress.Progress("evaluating", total, "batches", is_shown)
    for features in replicas.distribute(strategy, dataset):
        sums += eval_function(features).numpy()
        num_steps += 1
        done.add(1)
        together.check_signals()
        if num_steps == max_steps:
            break
    done.clear()
    if not num_steps:
        raise ValueError("The evaluation data has no examples.")
    return replicas.results(model, sums)


def build_predict_function(strategy, call):
    """Returns a `replicas.Traces` of a function from a batch to outputs.

    `call` maps a dict of features to a dict of outputs, name -> [B, ...]. There
    are outputs of each replica, with the batch's `example_index`, which
    identifies the rows.
    """

    @tf.function
    def predict_step(features):
        return strategy.run(
            lambda f: {**call(f), "example_index": f["example_index"]},
            args=(features,),
        )

    return replicas.Traces(predict_step)


@contextlib.contextmanager
def holding_weights(strategy, model):
    """Context manager: functions traced inside may hold the model's weights.

    On a single CPU they do, see `execution.Execution`, unless the weights
    are large.

    Args:
      strategy: the tf.distribute.Strategy that is to run the functions.
      model: a model as defined in `replicas`, or an encoder.

    Yields:
      Whether they do: such a function must be traced again for other weights.
    """
    is_single_cpu = distribution.is_single_cpu(strategy)
    if not (is_single_cpu and execution.may_hold(model)):
        yield False
        return
    chosen = execution.Execution(
        constant_kernels=True,
        separate_last_layer=execution.may_hold_twice(model),
        bfloat16_softmax=distribution.multiplies_bfloat16(strategy),
        onednn=True,
    )
    with execution.using(chosen):
        yield True


class Predictor:
    """Predicts with a model, whose weights may change between two calls.

    It traces once, and again where traces hold kernels that have changed.
    Threads may call it at the same time.

    Args:
      strategy: a tf.distribute.Strategy.
      model: a model as defined in `replicas`.
      exit_threshold: for a classifier: as in `model.exits.predict`, whose
        outputs are returned. None computes all layers.
      is_fixed: whether the weights never change, so that no call looks.
    """

    def __init__(self, strategy, model, exit_threshold=None, *, is_fixed=False):
        self.strategy, self.model, self.call = strategy, model, model
        self.is_fixed = is_fixed
        if exit_threshold is not None:
            objective = getattr(model, "objective", type(model).__name__)
            exits.check_threshold(exit_threshold, objective)
            self.call = functools.partial(
                exits.predict,
                model,
                threshold=exit_threshold,
                compacts=not distribution.is_tpu(strategy),
            )
        # Copies of the kernels that the traces hold, and the traces.
        self.traced: tuple = None, None

    def __call__(
        self,
        examples,
        max_length,
        tokens_per_batch,
        *,
        batch_size=None,
        min_length=1,
    ):
        """Returns the outputs for N examples, in order: name -> [N, ...].

        The arguments are those of `batches.plan_pass`.
        """
        plan = batches.plan_pass(
            examples,
            max_length,
            tokens_per_batch,
            batch_size=batch_size,
            min_length=min_length,
            num_replicas=self.strategy.num_replicas_in_sync,
            is_static=distribution.is_tpu(self.strategy),
        )
        is_short = len(plan.sizes) <= FEW_BATCHES and not plan.is_static
        if is_short and self.strategy.num_replicas_in_sync == 1:
            datasets = [batches.HostBatches(examples, plan)]
        else:
            datasets = batches.build_pass(examples, plan)
        with holding_weights(self.strategy, self.model) as are_held:
            is_compared = are_held and not self.is_fixed
            kernels = execution.list_kernels(self.model) if is_compared else []
            copies, traces = self.traced
            if traces is None or not all(
                tf.reduce_all(tf.equal(kernel, copy))
                for kernel, copy in zip(kernels, copies, strict=True)
            ):
                copies = [tf.constant(kernel.numpy()) for kernel in kernels]
                traces = build_predict_function(self.strategy, self.call)
                # At once: another thread may read them, or this one be stopped.
                self.traced = copies, traces
            return predict(self.strategy, traces, datasets, len(examples))


def predict(strategy, predict_function, datasets, num_examples):
    """Collects a model's outputs for every example, in order.

    Args:
      strategy: a tf.distribute.Strategy.
      predict_function: from `build_predict_function`.
      datasets: datasets of global batches with `example_index` [B], or
        `batches.HostBatches`; an index of num_examples marks a padding row. If
        shapes are unknown, one trace serves all batches.
      num_examples: number of examples in all datasets, N.

    Returns:
      Dict of name -> [N, ...] array. If batches have outputs of different
      shapes, shorter rows are padded with 0.

    Raises:
      ValueError: if an example is missing or duplicated.
    """
    parts = []
    done = progress.Progress("predicting", num_examples, "examples")
    for dataset in datasets:
        key = tuple(dataset.element_spec.items())
        if isinstance(dataset, tf.data.Dataset):
            dataset = replicas.distribute(strategy, dataset)
        function = predict_function.trace(key, dataset.element_spec)
        for features in dataset:
            outputs = function(features)
            part = {n: _join_replicas(strategy, x) for n, x in outputs.items()}
            parts.append(part)
            done.add(len(part["example_index"]))
    done.clear()
    counts = np.zeros(num_examples + 1, np.int64)
    for part in parts:
        np.add.at(counts, part["example_index"], 1)
    if (counts[:num_examples] != 1).any():
        raise ValueError(
            f"Of {num_examples} examples, {(counts[:-1] == 0).sum()} have no "
            f"prediction and {(counts[:-1] > 1).sum()} have several."
        )
    return {
        name: _in_order(parts, name, num_examples)
        for name in (parts[0] if parts else {})
        if name != "example_index"
    }


def _join_replicas(strategy, value):
    """Concatenates the rows of all replicas."""
    parts = strategy.experimental_local_results(value)
    return np.concatenate([part.numpy() for part in parts])


def _in_order(parts, name, num_examples):
    """Returns one output of all batches, by `example_index`: [N, ...]."""
    shape = np.max([part[name].shape[1:] for part in parts], axis=0)
    rows = np.zeros(
        (num_examples + 1, *shape.astype(int)), parts[0][name].dtype
    )
    for part in parts:
        index = part["example_index"], *map(slice, part[name].shape[1:])
        rows[index] = part[name]
    return rows[:num_examples]


class Evaluator:
    """Appends each result to `eval_results.txt`, as blocks of "name = value".

    Args:
      score: function that evaluates the current model and returns a dict from
        name to float.
      manager: a `checkpoints.CheckpointManager` of the model.
      reporter: a `reporting.Reporter`.
      best_metric: name of the metric whose maximum selects
        `model.ckpt-best`.
      on_best: called with the step where a result is the best so far, and
        with None if the best one was dropped; or None.

    Example:
      >>> from albert_tf.training.reporting import Reporter
      >>> evaluator = Evaluator(
      ...     lambda: {"f1": 0.5},
      ...     manager=checkpoints.CheckpointManager("out", {}),
      ...     reporter=Reporter("out", is_silent=True),
      ...     best_metric="f1",
      ... )
      >>> evaluator.evaluate(step=3)
      {'f1': 0.5}
      >>> evaluator.results()
      [{'f1': 0.5, 'global_step': 3.0}]
    """

    def __init__(self, score, *, manager, reporter, best_metric, on_best=None):
        self.score, self.on_best = score, on_best
        self.manager, self.reporter = manager, reporter
        self.best_metric = best_metric
        self.path = os.path.join(manager.folder, results_file.RESULTS_FILE)

    def evaluate(self, step, prefix=None):
        """Evaluates the current model and appends the result.

        It replaces earlier results of the same step.

        Args:
          step: its training step.
          prefix: its checkpoint, a candidate for the best one; or None.

        Returns:
          Dict from name to float.
        """
        self.reporter.step = step
        values = {name: float(value) for name, value in self.score().items()}
        folder, metric = self.manager.folder, self.best_metric
        if metric not in values:
            raise ValueError(
                f"best_metric is {metric!r}, by which the best checkpoint is "
                f"chosen; the scores are {sorted(values)}."
            )
        before = [
            (row, text)
            for row, text in results_file.read_blocks(folder)
            if row[checkpoints.STEP] != step
        ]
        row = {**values, checkpoints.STEP: step}
        if task_heads.best_row([*(r for r, _ in before), row], metric) is row:
            # Before the result: a run killed in between evaluates again.
            if prefix:
                self.manager.keep_best(prefix)
            if self.on_best:
                self.on_best(step)
        self.reporter.keep_evaluations({r[checkpoints.STEP] for r, _ in before})
        self.reporter.log("eval", step, values)
        text = "".join(f"{name} = {row[name]}\n" for name in sorted(row))
        texts = [*(text for _, text in before), text]
        results_file.write_blocks(folder, texts)
        return values

    def _find_unscored_best(self):
        """Returns the step of a best checkpoint without results, 0 for none.

        Results may have been removed, or not copied.
        """
        best = checkpoints.find_best(self.manager.folder)
        if not best or any(self.known(checkpoints.STEP)):
            return 0
        with contextlib.suppress(checkpoints.DamagedCheckpoint):
            values = checkpoints.read_checkpoint(best)
            return int(values.get(checkpoints.STEP, 0))
        return 0

    def check_best(self, step):
        """Raises ValueError if the next result would replace a better one's.

        Args:
          step: that of the newest checkpoint.
        """
        if self._find_unscored_best() not in (0, step):
            raise ValueError(
                f"{self.manager.folder} has {checkpoints.PREFIX}-best, but no "
                f"results in {results_file.RESULTS_FILE}, so training would "
                "replace it. Evaluate the folder first, without training, "
                "which keeps it as a numbered checkpoint; or, to continue "
                f"from step {step} instead, remove {checkpoints.PREFIX}-best.*."
            )

    def is_missing(self, step):
        """Returns whether the checkpoint of a step was due and has no result.

        Args:
          step: step of the newest checkpoint; 0 for none.
        """
        if not step or self.manager.is_interrupted(self.manager.prefix(step)):
            return False
        return step not in self.known(checkpoints.STEP)

    def forget_after(self, step):
        """Drops results of later steps, whose checkpoints were lost.

        If the best checkpoint is one of them, the best of those that remain
        replaces it. Better results, of checkpoints that were removed, are
        dropped, too: later ones are not to be compared with them.
        """
        folder = self.manager.folder
        blocks = results_file.read_blocks(folder)
        kept = [b for b in blocks if b[0][checkpoints.STEP] <= step]
        has_best = checkpoints.find_best(folder)
        is_lost = not has_best or self._best_step(blocks) > step
        best = self._best_step(kept)
        while is_lost and best and not self._has_checkpoint(best):
            kept = [b for b in kept if b[0][checkpoints.STEP] != best]
            best = self._best_step(kept)
        self.reporter.keep_evaluations({b[0][checkpoints.STEP] for b in kept})
        if len(kept) == len(blocks) and not (is_lost and best):
            return
        # Before the results: a run killed in between does this again.
        if is_lost:
            self._replace_best(best)
        texts = [text for _, text in kept]
        results_file.write_blocks(folder, texts)

    def _has_checkpoint(self, step):
        return filesystem.exists(f"{self.manager.prefix(step)}.index")

    def _best_step(self, blocks):
        """Returns the step of the best result of a checkpoint; 0 for none."""
        best = task_heads.best_row([r for r, _ in blocks], self.best_metric)
        return int(best[checkpoints.STEP]) if best else 0

    def _replace_best(self, step):
        """Makes the checkpoint of a step the best; 0 for none."""
        if step:
            self.manager.keep_best(self.manager.prefix(step))
        else:
            checkpoints.remove_checkpoint(self.manager.prefix("best"))
        if self.on_best:
            self.on_best(None)

    def results(self):
        """Returns all results so far, see `results_file.read_results`."""
        return results_file.read_results(self.manager.folder)

    def known(self, name):
        """Returns all values of one metric in the results file."""
        return [r[name] for r in self.results() if name in r]

    def evaluate_folder(self):
        """Evaluates every checkpoint of the folder that has no result yet.

        Checkpoints written on an interruption are skipped, as an
        uninterrupted run does not have them. If there are no others, the newest
        is evaluated, but is no candidate for the best one: the result is
        dropped if training resumes.

        Raises:
          FileNotFoundError: if there is no checkpoint.
        """
        folder = self.manager.folder
        prefixes = checkpoints.list_checkpoints(folder)
        best = self._find_unscored_best()
        if prefixes and best and not self._has_checkpoint(best):
            # It is scored with the others.
            self.manager.copy(self.manager.prefix("best"), best)
            prefixes = checkpoints.list_checkpoints(folder)
        if not prefixes:
            raise FileNotFoundError(
                f"{folder} contains no checkpoint to evaluate. Train first, or "
                f"check output_dir. (A {checkpoints.PREFIX}-best alone is "
                "evaluated as init_checkpoint, with another output_dir.)"
            )
        evaluated = set(self.known(checkpoints.STEP))
        regular = [p for p in prefixes if not self.manager.is_interrupted(p)]
        chosen, damaged = regular or prefixes[-1:], None
        for prefix in prefixes:
            step = checkpoints.step_of(prefix)
            if prefix not in chosen:
                self.reporter.say(
                    f"{prefix}: skipped, it was written on an interruption."
                )
                continue
            if step in evaluated:
                self.reporter.say(
                    f"{prefix}: skipped, its result is in {self.path}."
                )
                continue
            try:
                self.manager.restore(prefix)
            except checkpoints.DamagedCheckpoint as error:
                self.reporter.say(f"WARNING: {error} It is not scored.")
                damaged = error
                continue
            self.evaluate(step, prefix if regular else None)
        if damaged and not self.known(checkpoints.STEP):
            raise damaged
