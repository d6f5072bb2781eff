"""A training session: the part that pretraining and fine-tuning share.

A session builds model and optimizer, restores the newest checkpoint or the
initial weights, and writes checkpoints, results and summaries to its folder.
It does not depend on flags, so a notebook can use it as the programs do.
"""

import os

import keras

from albert_tf import filesystem
from albert_tf.model import layers, modeling
from albert_tf.training import (
    distribution,
    evaluation,
    loop,
    manifest,
    optimization,
    reporting,
    results_file,
    workers,
)
from albert_tf.weights import checkpoints, initialization, task_heads


class Session:
    """Model, optimizer, and the checkpoints and results of their training.

    Args:
      folder: folder for checkpoints and results.
      build_model: function of `dtype` that returns the model.
      made_of: dict of the run's settings and data, see `manifest.Manifest`. A
        `compute_dtype` in it is replaced by the chosen one.
      strategy: a tf.distribute.Strategy, from `distribution.build_strategy`.
      optimizer: "adamw" or "lamb".
      schedule: from `optimization.build_schedule`.
      num_train_steps: step at which training ends.
      seed: seed of weight initialization and dropout.
      compute_dtype: "float32", "bfloat16" or "auto", see
        `distribution.choose_compute_dtype`.
      keep_checkpoint_max: number of recent checkpoints to keep, in addition to
        the best one.
      accept_changes: whether to resume although settings or data have changed,
        where that is possible.
      **kwargs: arguments of `optimization.Optimizer`, such as beta_2.

    Attributes:
      compute_dtype: "float32" or "bfloat16".
      model: the model to train.
      optimizer: an `optimization.Optimizer` over its weights. Those with
        `trainable=False` when `begin` is called are not trained.
      frozen: their names.
      manager: a `checkpoints.CheckpointManager` of both.
      reporter: a `reporting.Reporter`.
      manifest: a `manifest.Manifest`.
      workers: the `workers.Workers` of the strategy.

    Raises:
      ValueError: if the run in the folder has other settings or data.
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        build_model,
        made_of: dict,
        *,
        strategy,
        optimizer: str,
        schedule,
        num_train_steps: int,
        seed: int = 12345,
        compute_dtype: str = "float32",
        keep_checkpoint_max: int = 5,
        accept_changes: bool = False,
        **kwargs,
    ):
        self.folder = str(folder)
        self.strategy, self.seed = strategy, seed
        self.workers = workers.find_workers(strategy)
        self.num_train_steps = num_train_steps
        chosen = distribution.choose_compute_dtype(compute_dtype, strategy)
        self.compute_dtype = chosen
        if "compute_dtype" in made_of:
            made_of = made_of | {"compute_dtype": chosen}
        self.accept_changes = accept_changes
        self.manifest = manifest.Manifest(self.folder, made_of)
        remarks = self.manifest.check(
            task_heads.find_trained(self.folder)
            or results_file.read_results(self.folder),
            accept_changes,
        )
        self._build(build_model, optimizer, schedule, **kwargs)
        self.manager = checkpoints.CheckpointManager(
            self.folder,
            {},
            keep_checkpoint_max,
            is_writing=self.workers.is_chief,
        )
        self._leave_out_frozen()
        self.reporter = reporting.Reporter(
            self.folder, is_silent=not self.workers.is_chief
        )
        if chosen != compute_dtype:
            remarks += [distribution.describe_compute_dtype(chosen)]
        for remark in remarks:
            self.reporter.say(remark)

    def _build(self, build_model, optimizer, schedule, **kwargs):
        """Builds the model, deterministically from the seed, and optimizer."""
        with self.strategy.scope():
            keras.utils.set_random_seed(self.seed)
            self.model = build_model(dtype=layers.POLICIES[self.compute_dtype])
            weights = modeling.named_weights(self.model)
            self.optimizer = optimization.build_optimizer(
                optimizer,
                {name: weight.value for name, weight in weights.items()},
                schedule,
                **kwargs,
            )

    def _list_frozen(self):
        """Returns the names of the model's weights that are not trainable."""
        weights = modeling.named_weights(self.model)
        return [name for name, w in weights.items() if not w.trainable]

    def _leave_out_frozen(self):
        """Trains what is trainable now; checkpoints have all weights."""
        self.frozen = self._list_frozen()
        with self.strategy.scope():
            self.optimizer.freeze(self.frozen)
        self.manager.variables = {
            **self.optimizer.weights,
            **self.optimizer.slots,
            checkpoints.STEP: self.optimizer.step,
        }

    def _begin_frozen(self):
        """Checks and reports the weights that are frozen from here on."""
        self._leave_out_frozen()
        num_weights = len(self.optimizer.weights)
        if not self.optimizer.trained:
            raise ValueError(
                "All weights of the model are frozen (trainable=False): there "
                "is nothing to train."
            )
        remarks = self.manifest.check(
            True, self.accept_changes, frozen=self.frozen
        )
        if self.frozen:
            remarks.append(
                f"Frozen: {len(self.frozen)} of {num_weights} weights, such as "
                f"{self.frozen[0]}."
            )
        for remark in remarks:
            self.reporter.say(remark)

    @property
    def step(self) -> int:
        """The model's training step."""
        return int(self.optimizer.step.numpy())

    def build_evaluator(
        self, score, best_metric: str, on_best=None
    ) -> evaluation.Evaluator:
        """Returns an Evaluator of the current model.

        Args:
          score: function that returns a dict from metric to float.
          best_metric: metric that selects the best checkpoint.
          on_best: see `evaluation.Evaluator`.
        """
        return evaluation.Evaluator(
            score,
            manager=self.manager,
            reporter=self.reporter,
            best_metric=best_metric,
            on_best=on_best,
        )

    def initialize(self, config, start=None, **kwargs) -> None:
        """Restores the newest checkpoint, or another model, on all workers.

        Args:
          config: the model's AlbertConfig.
          start: as for `begin`.
          **kwargs: arguments of `initialization.initialize`.
        """
        self.reporter.say(
            initialization.initialize(
                self.manager, self.optimizer.weights, config, start, **kwargs
            )
        )
        self.workers.share_variables(self.manager.variables)

    def begin(
        self, config, start=None, *, batch_size, files, evaluator=None, **kwargs
    ) -> int:
        """Resumes from the newest checkpoint, or starts from another model.

        Args:
          config: the model's AlbertConfig.
          start: the `pretrained.Pretrained` to start from; None for random
            weights.
          batch_size: examples per step from here on.
          files: dict of files that a reader of the checkpoints needs: name ->
            JSON value, or bytes.
          evaluator: an `evaluation.Evaluator` to bring up to date, or None.
          **kwargs: arguments of `initialization.initialize`.

        Returns:
          The step at which training starts.
        """
        checkpoints.check_free(self.folder)
        if self.step and not checkpoints.list_checkpoints(self.folder):
            raise ValueError(
                f"The model was trained for {self.step} steps, but "
                f"{self.folder} has no checkpoint of it. To start over, make "
                "a new object of the same kind."
            )
        self._begin_frozen()
        self.initialize(config, start, **kwargs)
        step = self.step
        is_interrupted = self.manager.is_interrupted(self.manager.prefix(step))
        checkpoints.check_end(self.folder, step, self.num_train_steps)
        if step == self.num_train_steps:
            self.manager.confirm_latest()
        # Only now: invalid settings must not replace valid ones.
        self.manifest.write(step, batch_size)
        self.write_files(files)
        if evaluator:
            # As in an uninterrupted run, which has no result of this step if
            # it is one of an interruption, or of weights without training.
            is_kept = step and not is_interrupted
            evaluator.forget_after(step if is_kept else step - 1)
            if self.workers.share(evaluator.is_missing(step)):
                evaluator.evaluate(step, self.manager.prefix(step))
        return step

    def write_files(self, files: dict):
        """Writes files, as for `begin`, next to the checkpoints."""
        for name, content in files.items():
            path = os.path.join(self.folder, name)
            if isinstance(content, bytes):
                filesystem.write_file(path, content)
            else:
                filesystem.write_json(path, content)

    def train(
        self,
        datasets: dict,
        order=None,
        *,
        batch_size,
        num_parts=1,
        evaluator=None,
        **kwargs,
    ):
        """Trains from the step that `begin` returned to `num_train_steps`.

        Args:
          datasets: as for `loop.train`.
          order: as for `loop.train`.
          batch_size: global batch size, in examples.
          num_parts: number of parts of each replica's batch, see
            `replicas.build_replica_step`.
          evaluator: an `evaluation.Evaluator` for each checkpoint, or None.
          **kwargs: further arguments of `loop.train`.

        Raises:
          ValueError: if the batch cannot be divided by replicas and parts, or
            other weights are trainable than in `begin`.
          FloatingPointError: if the run diverges.
        """
        if self._list_frozen() != self.frozen:
            raise ValueError(
                "Layers were frozen or unfrozen after `begin`: call `begin` "
                "again, which also restores the weights."
            )
        distribution.check_batch_size(
            self.strategy, batch_size, "train_batch_size", num_parts
        )
        try:
            loop.train(
                self.strategy,
                self.model,
                self.optimizer,
                datasets,
                order,
                num_train_steps=self.num_train_steps,
                batch_size=batch_size,
                num_parts=num_parts,
                manager=self.manager,
                reporter=self.reporter,
                seed=self.seed,
                on_checkpoint=evaluator and evaluator.evaluate,
                **kwargs,
            )
        except FloatingPointError:
            self.manager.source = None  # These weights are of no use.
            raise
