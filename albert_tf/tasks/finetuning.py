"""A fine-tuning: begin from a model, train, evaluate, keep the best, predict.

What is peculiar to a task stands in a `Task`; how long and how fast it is
trained in a `Recipe`. `FineTuning` does the rest, for a notebook as for the
programs.
"""

import dataclasses
import os

import numpy as np
import tensorflow as tf

from albert_tf.data import batches, submissions
from albert_tf.data.examples import Examples
from albert_tf.model import modeling
from albert_tf.model.config import CONFIG_FILE, AlbertConfig
from albert_tf.text import tokenization
from albert_tf.training import (
    distribution,
    evaluation,
    manifest,
    optimization,
    session,
)
from albert_tf.weights import checkpoints, pretrained


class Task:
    """What is peculiar to a task. Its methods take the `FineTuning` of it.

    Attributes:
      name: for the summary.
      max_seq_length: tokens of the longest sequence.
      min_seq_length: tokens that the model wants of a sequence, with padding.
      best_metric: what the best checkpoint is chosen by.
      dropout: before the task's output.
      train: the training data, or None to train nothing.
      num_train: examples in it that an epoch counts.
      is_scored: whether there is dev data to score a model on.
      is_predicted: whether there is data to write predictions of.
      baseline: dict from metric to what the best guess without looking gets.
      made_of: dict of `task` and `data`, as `manifest.Manifest` wants them.
    """

    name: str
    max_seq_length: int
    min_seq_length: int = 1
    best_metric: str
    dropout: float = 0.1
    train: Examples | None = None
    num_train: int = 0
    is_scored: bool = False
    is_predicted: bool = False
    baseline: dict = {}

    @property
    def made_of(self) -> dict:
        raise NotImplementedError

    def build_model(self, config, dtype="float32"):
        """Returns the task's model."""
        raise NotImplementedError

    def score(self, tuning) -> dict:
        """Returns what the model, as it stands, gets on the dev data.

        It leaves a row for each example in `tuning.dev_rows`.
        """
        raise NotImplementedError

    def write_predictions(self, tuning) -> dict:
        """Writes predictions; returns scores where the answers are known."""
        raise NotImplementedError

    def export(self, tuning, folder) -> str:
        """Writes a SavedModel of the model as it stands; returns where."""
        raise NotImplementedError

    def export_text(self, tuning, folder) -> str:
        """Writes one that takes text; it needs tensorflow-text."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a task is trained. The flags of these names say what they mean."""

    train_batch_size: int = 32
    predict_batch_size: int | None = None
    tokens_per_batch: int = 4096
    optimizer: str = "adamw"
    learning_rate: float = 5e-5
    train_step: int = 1000
    warmup_step: int = 0
    num_train_epochs: float | None = None
    warmup_proportion: float | None = None
    bucket_lengths: str = "32,64,128,256"
    random_seed: int = 12345
    compute_dtype: str = "auto"
    xla: bool = False
    save_checkpoints_steps: int = 1000
    keep_checkpoint_max: int = 5
    iterations_per_loop: int = 1000
    log_every_steps: int = 100
    from_scratch: bool = False
    accept_changes: bool = False

    def count_steps(self, num_examples: int) -> tuple[int, int]:
        """Returns training steps and those of them that are warmup.

        Args:
          num_examples: in the training data.

        Raises:
          ValueError: if nothing, or nothing but warmup, is left to train.

        Source: run_squad_v1.py for epochs and proportion.
        """
        num_steps, num_warmup_steps = self.train_step, self.warmup_step
        if self.num_train_epochs is not None:
            num_steps = int(
                num_examples / self.train_batch_size * self.num_train_epochs
            )
        if self.warmup_proportion is not None:
            num_warmup_steps = int(num_steps * self.warmup_proportion)
        if num_steps < 1 or num_warmup_steps >= num_steps:
            raise ValueError(
                f"{num_steps} training steps with {num_warmup_steps} of "
                f"warmup, from {num_examples} examples in batches of "
                f"{self.train_batch_size}: too few."
            )
        return num_steps, num_warmup_steps


class FineTuning:
    """One training of a task in a folder of its own.

    Args:
      folder: where checkpoints and results go; where it has checkpoints, the
        training goes on from the newest.
      task: a Task.
      start: the `pretrained.Pretrained` to begin from. Its values are empty
        where a training begins with random weights or goes on.
      recipe: how it is trained.
      config: the model's AlbertConfig, such as `start`'s with another
        dropout, which is the default.
      strategy: a tf.distribute.Strategy; None for the current one.
      flags: what is written down as the flags of the run.

    Attributes:
      folder, task, start, recipe, config: as above.
      session: its `session.Session`.
      reporter: the session's.
      evaluator: an `evaluation.Evaluator`, or None without dev data.
      source: where the model's weights are from.
      dev_rows: a dict for each dev example of the last evaluation, as
        `submissions.write_dev_predictions` takes them.

    Raises:
      ValueError: if there is nothing to begin with, or the folder holds a run
        that is made of something else.
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        task: Task,
        start: pretrained.Pretrained,
        recipe: Recipe | None = None,
        *,
        config: AlbertConfig | None = None,
        strategy=None,
        flags: dict | None = None,
    ):
        self.folder, self.task = str(folder), task
        start, recipe = pretrained.complete(start), recipe or Recipe()
        self.start, self.recipe = start, recipe
        self.config = config or start.config
        self.flags = flags or {}
        self._check_start()
        self.session = self._build_session(
            strategy or tf.distribute.get_strategy()
        )
        self.reporter = self.session.reporter
        self.source = start.source
        self.dev_rows: list[dict] = []
        self.evaluator = None
        if task.is_scored:
            self.evaluator = self.session.build_evaluator(
                lambda: task.score(self),
                task.best_metric,
                self._write_dev_predictions,
            )
        self.bucket_lengths = batches.parse_bucket_lengths(
            recipe.bucket_lengths, task.max_seq_length
        )
        self._predict = evaluation.build_predict_function(
            self.session.strategy, self.session.model
        )

    def _write_dev_predictions(self, step):
        """Writes what the model, as it stands, says of the dev data."""
        path = os.path.join(self.folder, submissions.DEV_PREDICTIONS_FILE)
        submissions.write_dev_predictions(path, step, self.dev_rows)

    def _build_session(self, strategy):
        """The session of a training as the recipe says."""
        task, recipe = self.task, self.recipe
        # Without training, too, the optimizer wants a schedule.
        num_steps, num_warmup_steps = 1, 0
        if task.num_train:
            num_steps, num_warmup_steps = recipe.count_steps(task.num_train)
        return session.Session(
            self.folder,
            lambda dtype: task.build_model(self.config, dtype=dtype),
            self._describe_run(num_steps, num_warmup_steps),
            strategy=strategy,
            optimizer=recipe.optimizer,
            schedule=optimization.build_schedule(
                recipe.learning_rate, num_steps, num_warmup_steps
            ),
            num_train_steps=num_steps,
            seed=recipe.random_seed,
            compute_dtype=recipe.compute_dtype,
            keep_checkpoint_max=recipe.keep_checkpoint_max,
            accept_changes=recipe.accept_changes,
        )

    @property
    def model(self):
        """The task's model, with the weights that it has now."""
        return self.session.model

    def _check_start(self):
        """Raises ValueError if the task and its beginning do not fit."""
        start, config = self.start, self.config
        if self.task.max_seq_length > config.max_position_embeddings:
            raise ValueError(
                f"max_seq_length={self.task.max_seq_length}, but the model has "
                f"{config.max_position_embeddings} positions."
            )
        has_weights = start.values or checkpoints.find_trained(self.folder)
        if not has_weights and not self.recipe.from_scratch:
            raise ValueError(
                f"There is no model to begin with: {start.source} has no "
                f"weights, and {self.folder} no checkpoint. (To begin with "
                "random weights, give from_scratch=True.)"
            )

    def _describe_run(self, num_steps, num_warmup_steps):
        """What a manifest says of the run."""
        recipe, start = self.recipe, self.start
        parts = {
            **self.task.made_of,
            "config": self.config.to_dict(),
            "vocabulary": manifest.describe_tokenizer(start.tokenizer.settings),
            "max_seq_length": self.task.max_seq_length,
        }
        if not self.task.num_train:
            return parts
        # A resume may leave out what the run began from.
        if start.values or recipe.from_scratch:
            parts["begins_from"] = manifest.describe_weights(
                start.source if start.values else None, start.values
            )
        return {
            **parts,
            "optimizer": {
                "name": recipe.optimizer,
                "learning_rate": recipe.learning_rate,
                "num_train_steps": num_steps,
                "num_warmup_steps": num_warmup_steps,
                "classifier_dropout": self.task.dropout,
            },
            "bucket_lengths": recipe.bucket_lengths,
            "train_batch_size": recipe.train_batch_size,
            "random_seed": recipe.random_seed,
            "compute_dtype": recipe.compute_dtype,
        }

    def train(self):
        """Trains, from the newest checkpoint if there is one.

        Each checkpoint is evaluated where there is dev data.

        Raises:
          ValueError: if the task has no training data, or too little.
        """
        examples, recipe = self.task.train, self.recipe
        if examples is None:
            raise ValueError(f"The task {self.task.name} has no training data.")
        num_steps, batch_size = (
            self.session.num_train_steps,
            recipe.train_batch_size,
        )
        batches.check_plan(len(examples), batch_size, num_steps)
        files = {manifest.FLAGS_FILE: self.flags} if self.flags else {}
        step = self.session.begin(
            self.config,
            self.start if self.start.values else None,
            batch_size=batch_size,
            files={**files, **self.assets},
            evaluator=self.evaluator,
            body_only=True,
        )
        if step == num_steps:
            self.reporter.say(
                f"{self.folder} was trained for {step} steps: nothing to do."
            )
            return
        self.reporter.say(self._describe_training(examples))
        # Steps of this batch size that would have taken as many examples.
        num_done = self.session.manifest.count_examples(step) // batch_size
        plan = batches.plan_training(
            examples,
            self.bucket_lengths,
            batch_size,
            num_done + num_steps - step,
            recipe.random_seed,
        )
        plan = batches.Plan(*(part[num_done:] for part in plan))
        self.session.train(
            batches.build_datasets(examples, plan),
            plan.lengths,
            batch_size=batch_size,
            save_checkpoints_steps=recipe.save_checkpoints_steps,
            iterations_per_loop=recipe.iterations_per_loop,
            log_every_steps=recipe.log_every_steps,
            xla=recipe.xla,
            evaluator=self.evaluator,
        )

    def _describe_training(self, examples):
        config = self.config
        lengths = batches.longest_sequences(examples)
        num_examples = (
            self.session.num_train_steps * self.recipe.train_batch_size
        )
        return (
            f"{len(examples)} examples of {lengths.min()} to {lengths.max()} "
            f"tokens (mean {lengths.mean():.0f}), "
            f"{num_examples / len(examples):.1f} epochs. "
            f"Dropout: hidden {config.hidden_dropout_prob}, attention "
            f"{config.attention_probs_dropout_prob}, classifier "
            f"{self.task.dropout}. Seed {self.recipe.random_seed}."
        )

    @property
    def assets(self) -> dict:
        """Config and vocabulary, by the names of their files."""
        name, content = self.start.vocabulary_file
        return {
            CONFIG_FILE: self.config.to_dict(),
            tokenization.SETTINGS_FILE: self.start.tokenizer.settings,
            name: content,
        }

    def write_assets(self) -> list[str]:
        """Writes config and vocabulary to the folder; returns their paths."""
        self.session.write_files(self.assets)
        return [os.path.join(self.folder, name) for name in self.assets]

    def export(self, write, folder, **kwargs) -> str:
        """Writes a SavedModel of the model as it stands.

        It computes in float32, for any device, unless the recipe says what to
        compute in.

        Args:
          write: function of `export.serving` or `export.text_serving`.
          folder: where versions of it go.
          **kwargs: its arguments that only the task knows.

        Returns:
          The SavedModel's own folder.
        """
        model = self.model
        is_auto = self.recipe.compute_dtype == "auto"
        if is_auto and self.session.compute_dtype != "float32":
            model = self._build_float32()
        return write(
            folder,
            model,
            max_seq_length=self.task.max_seq_length,
            assets=self.write_assets(),
            **kwargs,
        )

    def _build_float32(self):
        """A copy of the model that computes in float32."""
        model = self.task.build_model(self.config, dtype="float32")
        weights = modeling.named_weights(self.model)
        for name, weight in modeling.named_weights(model).items():
            weight.assign(weights[name])
        return model

    def predict(self, examples: Examples) -> dict[str, np.ndarray]:
        """Returns the model's outputs for examples, in order: [N, ...]."""
        strategy = self.session.strategy
        plan = batches.plan_pass(
            examples,
            self.task.max_seq_length,
            self.recipe.tokens_per_batch,
            batch_size=self.recipe.predict_batch_size,
            min_length=self.task.min_seq_length,
            num_replicas=strategy.num_replicas_in_sync,
            is_static=distribution.is_tpu(strategy),
        )
        return evaluation.predict(
            strategy,
            self._predict,
            batches.build_pass(examples, plan),
            len(examples),
        )

    def restore_best(self) -> str:
        """Restores the best checkpoint, or the newest where none is best.

        Where the folder has none, all weights of the model that it begins
        from are taken, the head's too.

        Returns:
          Where the weights are from.
        """
        values, source = self.start.values, self.start.source
        if prefixes := checkpoints.find_trained(self.folder):
            source = prefixes[-1]
            values = checkpoints.read_checkpoint(source)
        checkpoints.restore(self.session.optimizer.weights, values, source)
        self.source = source
        return source

    def evaluate(self) -> list[dict]:
        """Evaluates every checkpoint of the folder, or what it begins from.

        Returns:
          A dict from metric to float for each evaluation so far.

        Raises:
          ValueError: if the task has no dev data.
        """
        if self.evaluator is None:
            raise ValueError(f"The task {self.task.name} has no dev data.")
        if checkpoints.list_checkpoints(self.folder):
            self.evaluator.evaluate_folder()
        else:
            self.reporter.say(f"Evaluates {self.restore_best()}.")
            self.evaluator.evaluate(0)
        return self.evaluator.results()
