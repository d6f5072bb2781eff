"""A training in a folder of its own: what pretraining and fine-tuning share.

A session builds model and optimizer, finds out where to begin, and keeps
checkpoints, results and summaries. It knows no flag: a notebook does with it
what the programs do.
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
)
from albert_tf.weights import checkpoints, pretrained


class Session:
    """Model, optimizer and all that is kept of their training.

    Args:
      folder: where checkpoints and results go.
      build_model: function of `dtype` that returns the model.
      made_of: dict of what the run is made of, see `manifest.Manifest`. A
        `compute_dtype` in it becomes the one that is chosen.
      strategy: a tf.distribute.Strategy, from `distribution.build_strategy`.
      optimizer: "adamw" or "lamb".
      schedule: from `optimization.build_schedule`.
      num_train_steps: the step to reach.
      seed: of weights and dropout.
      compute_dtype: "float32", "bfloat16" or "auto", see
        `distribution.choose_compute_dtype`.
      keep_checkpoint_max: newest checkpoints kept, beside the best one.
      accept_changes: whether a run goes on although it was made of something
        else, where that can be.
      **kwargs: of `optimization.Optimizer`, such as beta_2.

    Attributes:
      compute_dtype: "float32" or "bfloat16".
      model: what is trained.
      optimizer: an `optimization.Optimizer` over its weights.
      manager: a `checkpoints.CheckpointManager` of both.
      reporter: a `reporting.Reporter`.
      manifest: a `manifest.Manifest`.

    Raises:
      ValueError: if the folder holds a run that is made of something else.
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
        self.num_train_steps = num_train_steps
        chosen = distribution.choose_compute_dtype(compute_dtype, strategy)
        self.compute_dtype = chosen
        if "compute_dtype" in made_of:
            made_of = made_of | {"compute_dtype": chosen}
        self.manifest = manifest.Manifest(self.folder, made_of)
        remarks = self.manifest.check(
            checkpoints.find_trained(self.folder)
            or evaluation.read_results(self.folder),
            accept_changes,
        )
        self._build(build_model, optimizer, schedule, **kwargs)
        self.manager = checkpoints.CheckpointManager(
            self.folder,
            {
                **self.optimizer.weights,
                **self.optimizer.slots,
                checkpoints.STEP: self.optimizer.step,
            },
            keep_checkpoint_max,
        )
        self.reporter = reporting.Reporter(self.folder)
        if chosen != compute_dtype:
            remarks += [distribution.describe_compute_dtype(chosen)]
        for remark in remarks:
            self.reporter.say(remark)

    def _build(self, build_model, optimizer, schedule, **kwargs):
        """Builds the model, equal for equal seeds, and its optimizer."""
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

    @property
    def step(self) -> int:
        """Steps that the model was trained."""
        return int(self.optimizer.step.numpy())

    def build_evaluator(
        self, score, best_metric: str, on_best=None
    ) -> evaluation.Evaluator:
        """Returns what evaluates the model as it stands.

        Args:
          score: function that returns a dict from metric to float.
          best_metric: what the best checkpoint is chosen by.
          on_best: see `evaluation.Evaluator`.
        """
        return evaluation.Evaluator(
            score,
            manager=self.manager,
            reporter=self.reporter,
            best_metric=best_metric,
            on_best=on_best,
        )

    def begin(
        self, config, start=None, *, batch_size, files, evaluator=None, **kwargs
    ) -> int:
        """Goes on from the newest checkpoint, or begins from another model.

        Args:
          config: the model's AlbertConfig.
          start: the `pretrained.Pretrained` to begin from; None for random
            weights.
          batch_size: examples a step from here on.
          files: dict of what readers of the checkpoints need to know: name ->
            values for JSON, or bytes.
          evaluator: an `evaluation.Evaluator` to bring up to date, or None.
          **kwargs: of `pretrained.initialize`.

        Returns:
          The step at which training begins.
        """
        checkpoints.check_free(self.folder)
        self.reporter.say(
            pretrained.initialize(
                self.manager, self.optimizer.weights, config, start, **kwargs
            )
        )
        step = self.step
        checkpoints.check_end(self.folder, step, self.num_train_steps)
        # Not before: what does not fit must not replace what does.
        self.manifest.write(step, batch_size)
        self.write_files(files)
        if evaluator:
            evaluator.catch_up(step)
        return step

    def write_files(self, files: dict):
        """Writes files, as `begin` takes them, beside the checkpoints."""
        for name, content in files.items():
            path = os.path.join(self.folder, name)
            if isinstance(content, bytes):
                filesystem.write_file(path, content)
            else:
                filesystem.write_json(path, content)

    def train(self, datasets: dict, order=None, *, evaluator=None, **kwargs):
        """Trains from where `begin` was to `num_train_steps`.

        Args:
          datasets: as for `loop.train`.
          order: likewise.
          evaluator: an `evaluation.Evaluator` for each checkpoint, or None.
          **kwargs: likewise: batch_size, save_checkpoints_steps ...
        """
        loop.train(
            self.strategy,
            self.model,
            self.optimizer,
            datasets,
            order,
            num_train_steps=self.num_train_steps,
            manager=self.manager,
            reporter=self.reporter,
            seed=self.seed,
            on_checkpoint=evaluator and evaluator.evaluate,
            **kwargs,
        )
