"""Evaluates checkpoints on held-out data and keeps the best one."""

import os

import tensorflow as tf

from albert_tf import checkpoints, training

RESULTS_FILE = "eval_results.txt"


class Evaluator:
    """Appends each result to `eval_results.txt`, as the release writes it.

    Args:
      strategy: a tf.distribute.Strategy.
      model: the model, whose weights are evaluated as they stand.
      dataset: global batches, the last one padded with rows of weight 0.
      manager: a `checkpoints.CheckpointManager` of the model.
      reporter: a `reporting.Reporter`.
      best_metric: the checkpoint where it is highest becomes
        `model.ckpt-best`.
      max_steps: batches evaluated; 0 evaluates every row.
    """

    def __init__(
        self,
        strategy,
        model,
        dataset,
        *,
        manager,
        reporter,
        best_metric,
        max_steps=0,
    ):
        self.strategy, self.model, self.dataset = strategy, model, dataset
        self.manager, self.reporter = manager, reporter
        self.best_metric = best_metric
        self.max_steps = max_steps
        self.path = os.path.join(manager.folder, RESULTS_FILE)
        self.eval_function = training.build_eval_function(strategy, model)

    def evaluate(self, step, prefix=None):
        """Evaluates the model as it stands and writes down the result.

        Args:
          step: steps that it was trained.
          prefix: its checkpoint, a candidate for the best; None for none.

        Returns:
          Dict from name to float.
        """
        values = training.evaluate(
            self.strategy,
            self.model,
            self.eval_function,
            self.dataset,
            self.max_steps,
        )
        best = max(self.known(self.best_metric), default=-float("inf"))
        self.reporter.log("eval", step, values)
        with tf.io.gfile.GFile(self.path, "a") as file:
            file.write("***** Eval results *****\n")
            for name, value in sorted({**values, "global_step": step}.items()):
                file.write(f"{name} = {value}\n")
        if prefix and values[self.best_metric] > best:
            self.manager.keep_best(prefix)
        return values

    def known(self, name):
        """Returns every value of one name in the results file."""
        if not tf.io.gfile.exists(self.path):
            return []
        with tf.io.gfile.GFile(self.path) as file:
            pairs = [line.split(" = ") for line in file.read().splitlines()]
        return [float(pair[1]) for pair in pairs if pair[0] == name]

    def evaluate_folder(self):
        """Evaluates every checkpoint of the folder that has no result yet.

        Raises:
          FileNotFoundError: if there is no checkpoint.
        """
        folder = self.manager.folder
        prefixes = checkpoints.list_checkpoints(folder)
        if not prefixes:
            raise FileNotFoundError(
                f"{folder} has no checkpoint to evaluate. Train first, or "
                "check --output_dir."
            )
        done = set(self.known(checkpoints.STEP))
        for prefix in prefixes:
            step = checkpoints.step_of(prefix)
            if step in done:
                self.reporter.say(f"{prefix}: already in {self.path}.")
                continue
            self.manager.restore(prefix)
            self.evaluate(step, prefix)
