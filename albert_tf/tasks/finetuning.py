"""Fine-tunes a pretrained model: trains, evaluates, keeps the best, predicts.

A `Task` defines the data, model and scores; a `Recipe` holds the
hyperparameters. `FineTuning` runs both, in a notebook as in the programs.
"""

import dataclasses
import math
import os
import tempfile

import numpy as np

from albert_tf import filesystem
from albert_tf.data import batches, submissions
from albert_tf.data.examples import Examples
from albert_tf.export import saved_models
from albert_tf.metrics import classification
from albert_tf.model import modeling
from albert_tf.model.config import CONFIG_FILE, AlbertConfig
from albert_tf.tasks.recipes import Recipe
from albert_tf.text import coverage, tokenization
from albert_tf.training import (
    distribution,
    evaluation,
    loop,
    manifest,
    memory,
    optimization,
    session,
)
from albert_tf.training.settings import Schedule
from albert_tf.weights import (
    checkpoints,
    pretrained,
    task_heads,
    vocabulary_files,
)

# Dropout rate before a task's output layer, unless a recipe has another.
DROPOUT = Recipe.classifier_dropout


class Task:
    """The task-specific part of fine-tuning.

    Its methods take the task's `FineTuning` as `tuning`.

    Attributes:
      name: name in the summary.
      max_seq_length: maximum length of a sequence, in tokens.
      min_seq_length: minimum length of a sequence after padding, in tokens.
      best_metric: metric whose highest value selects the best checkpoint.
      head: the `task_heads.TaskHead` to write next to checkpoints, or None.
      train: training data, or None if there is none.
      num_train: number of examples per epoch.
      is_scored: whether there is dev data to score a model on.
      is_predicted: whether there is data to write predictions for.
      baseline: dict from metric to the score of a constant prediction.
      made_of: dict of `task` and `data`, as for `manifest.Manifest`.
      vocabulary: settings of the tokenizer of the data; None if they are not
        to be checked.

    Example:
      >>> class Rating(Task):
      ...     name, max_seq_length, best_metric = "rating", 128, "pearson"
      ...     made_of = {"task": {"name": "rating"}, "data": {}}
      >>> Rating().is_scored
      False
    """

    name: str
    max_seq_length: int
    min_seq_length: int = 1
    best_metric: str
    head: task_heads.TaskHead | None = None
    train: Examples | None = None
    num_train: int = 0
    is_scored: bool = False
    is_predicted: bool = False
    baseline: dict = {}
    vocabulary: dict | None = None

    @property
    def made_of(self) -> dict:
        raise NotImplementedError

    def build_model(self, config, dropout=DROPOUT, dtype="float32"):
        """Returns the task's model.

        Args:
          config: an AlbertConfig.
          dropout: dropout rate before the task's output layer.
          dtype: a dtype policy of Keras.
        """
        raise NotImplementedError

    def describe_data(self) -> list[str]:
        """Returns sentences about the training data, for the log."""
        return []

    def score(self, tuning) -> dict:
        """Returns the current model's scores on the dev data.

        Stores a row for each example in `tuning.dev_rows`.
        """
        raise NotImplementedError

    @property
    def prior_loss(self) -> float:
        """The loss on dev that a model which has learned stays below."""
        # Without training data, a guess would be that of dev itself.
        known = {} if self.train is None else self.baseline
        return known.get("eval_loss", math.inf)

    def warn_of_collapse(self, tuning, logits, label_ids, objective, scores):
        """Logs a warning if a classifier seems to have learned nothing.

        Within a training, only its last evaluation does.

        Args:
          tuning: the task's `FineTuning`.
          logits: [N, C].
          label_ids: labels, as in `metrics.classification`.
          objective: one of the objectives of `heads.AlbertClassifier`.
          scores: dict with the `eval_loss` of these logits.
        """
        warning = classification.find_collapse(
            logits,
            label_ids,
            objective,
            prior_loss=self.prior_loss,
            loss=scores["eval_loss"],
        )
        if warning and not tuning.is_within_training:
            tuning.reporter.say(f"WARNING: {warning}")

    def write_predictions(self, tuning) -> dict:
        """Writes predictions; returns scores if the labels are known."""
        raise NotImplementedError

    def export(self, tuning, folder, **kwargs) -> str:
        """Exports the current model as a SavedModel; returns its folder.

        `kwargs` are those of `FineTuning.export`, such as `is_compact`. Lengths
        and thresholds are those of the task.
        """
        raise NotImplementedError

    def export_text(self, tuning, folder, **kwargs) -> str:
        """Exports a SavedModel that takes text; requires tensorflow-text."""
        raise NotImplementedError


class FineTuning:
    r"""One fine-tuning run in its own folder.

    Args:
      folder: folder for checkpoints and results. Training resumes from its
        newest checkpoint, if there is one.
      task: a Task.
      start: the `pretrained.Pretrained` to start from. Its values are empty if
        training starts from random weights or resumes.
      recipe: a Recipe.
      config: the model's AlbertConfig, for example with another dropout.
        Defaults to that of `start`.
      strategy: a tf.distribute.Strategy; None for the current one.
      flags: dict to record as the flags of the run.

    Attributes:
      folder, task, start, recipe, config: as above.
      session: its `session.Session`.
      reporter: the session's `reporting.Reporter`.
      evaluator: an `evaluation.Evaluator`, or None without dev data.
      source: source of the model's weights; None as long as they are random.
        Set it if you assign them yourself.
      scored_threshold: threshold of the head with which the model was scored
        last, or None.
      dev_rows: rows of the last evaluation of the dev data, as for
        `submissions.write_dev_predictions`.
      exit_rows: a `metrics.exits.Exit` for each threshold, of that evaluation;
        empty for a model that computes all layers.

    Raises:
      ValueError: if there are no weights to start from, or the run in the
        folder has other settings or data.

    Example:
      >>> import pathlib
      >>> from albert_tf import (
      ...     AlbertConfig, Classification, FineTuning, Recipe, build_tokenizer
      ... )
      >>> words = b"[PAD] [UNK] [CLS] [SEP] [MASK] good bad".split()
      >>> pieces = b"\n".join(words)
      >>> size = pathlib.Path("vocab.txt").write_bytes(pieces)
      >>> start = pretrained.Pretrained(
      ...     "random weights",
      ...     {},
      ...     AlbertConfig(vocab_size=7, hidden_size=8, num_attention_heads=2),
      ...     build_tokenizer(vocab_file="vocab.txt"),
      ... )
      >>> task = Classification.from_texts(
      ...     start.tokenizer, ["good", "bad"], [1, 0], max_seq_length=8
      ... )
      >>> recipe = Recipe(from_scratch=True, train_batch_size=2)
      >>> tuning = FineTuning("out", task, start, recipe)
      >>> tuning.source is None  # Until tuning.train(), which takes longer.
      True
    """

    # Whether there are no answers after fewer layers.
    computes_all_layers = False

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
        self.config, self.recipe = config or start.config, recipe
        self.start = start
        self.flags = flags or {}
        self._check_start(start, self.config)
        self.session = self._build_session(strategy)
        # After the session, which records what the weights were.
        if start.values:
            adapted = pretrained.adapt(start, self.config)
            self.start = pretrained.complete(adapted)
        self.reporter = self.session.reporter
        self.scored_threshold: float | None = None
        self.dev_rows: list[dict] = []
        self.exit_rows: list = []
        self.evaluator = None
        if task.is_scored:
            self.evaluator = self.session.build_evaluator(
                lambda: task.score(self),
                task.best_metric,
                self._write_dev_predictions,
            )
        if recipe.predict_batch_size:
            distribution.check_batch_size(
                self.session.strategy,
                recipe.predict_batch_size,
                "predict_batch_size",
            )
        self.bucket_lengths = batches.parse_bucket_lengths(
            recipe.bucket_lengths, task.max_seq_length
        )
        # Initial values of the head, while it has those of `start`.
        self._new_head: dict | None = None
        # By threshold; None for all layers.
        self._predictors: dict[float | None, evaluation.Predictor] = {}

    def _write_dev_predictions(self, step):
        """Writes the last evaluation's predictions for the dev data.

        If `step` is None, those in the folder are of a dropped checkpoint.
        """
        path = os.path.join(self.folder, submissions.DEV_PREDICTIONS_FILE)
        exits_path = os.path.join(self.folder, submissions.EXITS_FILE)
        for old in (path, exits_path):
            if filesystem.exists(old):
                filesystem.remove(old)
        if step is None:
            return
        submissions.write_dev_predictions(path, step, self.dev_rows)
        if self.exit_rows:
            rows = [row._asdict() for row in self.exit_rows]
            for row in rows:  # JSON has no infinity.
                if math.isinf(row["error"]):
                    row["error"] = None
            filesystem.write_json(exits_path, {"exits": rows})

    def _build_session(self, strategy):
        """Returns the session for the recipe."""
        # The optimizer needs a schedule even without training.
        schedule = Schedule(self.recipe.learning_rate, num_train_steps=1)
        if self.task.num_train:
            schedule = self.recipe.schedule(self.task.num_train)
        return session.Session(
            self.folder,
            self._build_model,
            self.recipe,
            schedule,
            self._describe_run(schedule),
            strategy=strategy,
        )

    def _build_model(self, dtype, config=None):
        model = self.task.build_model(
            config or self.config, self.recipe.classifier_dropout, dtype=dtype
        )
        if self.recipe.freeze_encoder:
            model.encoder.trainable = False
        return model

    @property
    def source(self) -> str | None:
        """Source of the model's weights; None if they are random."""
        return self.session.manager.source

    @source.setter
    def source(self, source: str):
        self.session.manager.source = source

    @property
    def model(self):
        """The task's model, with its current weights."""
        return self.session.model

    def _check_start(self, start, config):
        """Raises ValueError if the task cannot start from a model."""
        own = start.tokenizer.settings
        pretrained.check_same_vocabulary(
            dataclasses.replace(start, tokenizer_settings=own),
            self.task.vocabulary,
        )
        if self.task.max_seq_length > config.max_position_embeddings:
            raise ValueError(
                f"max_seq_length={self.task.max_seq_length}, but the model has "
                f"{config.max_position_embeddings} positions."
            )
        if start.values and self.recipe.from_scratch:
            raise ValueError(
                f"from_scratch=True contradicts the weights of {start.source}: "
                "give one of them."
            )
        head = self.task.head
        if (
            head
            and head.has_second_text
            and config.type_vocab_size < 2
            and self.task.num_train
            and not task_heads.find_trained(self.folder)
        ):
            raise ValueError(
                f"The model has type_vocab_size={config.type_vocab_size}, but "
                "the task has a second text, whose segment is 1. Take another "
                "model, or join the two texts."
            )
        has_weights = start.values or task_heads.find_trained(self.folder)
        if not has_weights and not self.recipe.from_scratch:
            raise ValueError(
                f"No weights to start from: {start.source} has no weights, and "
                f"{self.folder} has no checkpoint. (To start from random "
                "weights, give from_scratch=True.)"
            )

    def _check_frozen(self):
        """Raises ValueError if the encoder has random weights for ever."""
        if task_heads.find_trained(self.folder):
            return
        start, model = self.start, self.model
        parts = {"encoder": [] if start.values else model.encoder.weights}
        if model.uses_pooler and not start.has_pooler:
            parts["pooler"] = model.encoder.pooler.weights
        for name, weights in parts.items():
            if not all(weight.trainable for weight in weights):
                raise ValueError(
                    f"Frozen, the random weights of the {name} would never "
                    f"change: {start.source} has none. Start from a pretrained "
                    f"model with them, or train the {name}."
                )

    def _describe_run(self, schedule):
        """Returns the manifest's description of the run."""
        recipe, start = self.recipe, self.start
        parts = {
            **self.task.made_of,
            "config": self.config.to_dict(),
            "vocabulary": tokenization.take_identity(start.tokenizer.settings),
            "max_seq_length": self.task.max_seq_length,
        }
        if not self.task.num_train:
            # Dropout is of training alone.
            recorded = manifest.read_setting(self.folder, "config") or {}
            parts["config"] |= {
                name: rate
                for name, rate in recorded.items()
                if name.endswith("_dropout_prob")
            }
            is_used = self.task.is_scored or self.task.is_predicted
            is_other = is_used and start.values
            if is_other and not task_heads.find_trained(self.folder):
                parts["scored"] = self.describe_weights()
            return parts
        # A resumed run need not be given its initial weights.
        if start.values or recipe.from_scratch:
            parts["begins_from"] = self.describe_weights()
        return {
            **parts,
            "optimizer": {
                **optimization.describe(recipe.optimizer),
                "learning_rate": schedule.learning_rate,
                "num_train_steps": schedule.num_train_steps,
                "num_warmup_steps": schedule.num_warmup_steps,
                "classifier_dropout": recipe.classifier_dropout,
            },
            "bucket_lengths": recipe.bucket_lengths,
            "train_batch_size": recipe.train_batch_size,
            "random_seed": recipe.random_seed,
            "compute_dtype": recipe.compute_dtype,
        }

    def describe_weights(self) -> dict:
        """Returns what `run.json` says of the weights of `start`."""
        return manifest.describe_weights(self.start.values)

    @session.owning_folder
    def train(self):
        """Trains, resuming from the newest checkpoint if there is one.

        Each checkpoint is evaluated if there is dev data.

        Raises:
          BlockingIOError: if another process writes to the folder.
          ValueError: if the task has no training data, or too little; if
            frozen weights of the encoder are random.
        """
        examples, recipe = self.task.train, self.recipe
        if examples is None or not self.task.num_train:
            raise ValueError(
                f"The task {self.task.name} has no training data, or its "
                "num_train is 0."
            )
        num_steps = self.session.num_train_steps
        batch_size = recipe.train_batch_size
        batches.check_plan(len(examples), batch_size, num_steps)
        self._check_frozen()
        if self._new_head:
            weights = self.session.optimizer.weights
            head = {name: weights[name] for name in self._new_head}
            checkpoints.restore(head, self._new_head, "the new head")
            # Until training begins, which may be refused.
            self._new_head = self.session.manager.source = None
        step = self.session.begin(
            self.config,
            self.start if self.start.values else None,
            list_files=self._list_files,
            evaluator=self.evaluator,
            body_only=not self._continues_head(),
        )
        if step == num_steps:
            self.reporter.say(
                f"{self.folder} is already trained for {step} steps: nothing "
                "to do."
            )
            return
        # The position in the data, in steps of the current batch size.
        num_done = self.session.manifest.count_examples(step) // batch_size
        plan = batches.plan_training(
            examples,
            self.bucket_lengths,
            batch_size,
            num_done + num_steps - step,
            recipe.random_seed,
        )
        plan = batches.Plan(*(part[num_done:] for part in plan))
        self._introduce(examples, plan)
        loop.train(
            self.session,
            batches.build_datasets(examples, plan),
            plan.lengths,
            evaluator=self.evaluator,
        )

    def _list_files(self):
        """Returns the files that a reader of the checkpoints needs, by name."""
        flags = manifest.list_flags(self.folder, self.flags)
        return flags | self.list_assets(self.folder)

    def _continues_head(self):
        """Returns whether training goes on with the head of the start.

        Answers of SQuAD and RACE are those of any questions; classes and tags
        are others in each task. A head of one output that is not described, as
        in checkpoints of the release, is taken for RACE's.
        """
        theirs, ours = self.start.head, self.task.head
        kind = theirs.kind if theirs else "choices"
        kinds = {"spans", "conditional_spans", "choices"}
        if not (ours and {kind} == {ours.kind} & kinds):
            return False
        return all(name in self.start.values for name in self._list_head())

    def _list_head(self):
        """Returns the names of the weights of the task's head."""
        names = self.session.optimizer.weights
        return [n for n in names if not n.startswith(pretrained.BODY)]

    def _introduce(self, examples, plan):
        """Says what is about to be trained, and what may go wrong."""
        recipe = self.recipe
        said = [*self.task.describe_data(), self._describe_training(examples)]
        unknown = coverage.describe_unknown(examples.ids, self.start.tokenizer)
        if unknown:
            said.append(f"WARNING: {unknown}")
        num_kept = recipe.keep_checkpoint_max
        num_steps = self.session.num_train_steps
        num_written = math.ceil(
            num_steps / recipe.find_interval(num_steps, is_scored=False)
        )
        if self.evaluator is None and 0 < num_kept < num_written:
            said.append(
                f"WARNING: Of {num_written} checkpoints, the last {num_kept} "
                "will be kept, and none is scored. To find the best one later, "
                "keep all (keep_checkpoint_max=0), or give dev data, which "
                "scores them while training."
            )
        warning = memory.warn_of_training(
            self.config,
            recipe,
            int(plan.lengths.max()),
            None,  # At most; some heads read [CLS] alone.
            available=distribution.find_cpu_memory(self.session.strategy),
            compute_dtype=self.session.compute_dtype,
            num_choices=examples.num_choices,
        )
        if warning:
            said.append(f"WARNING: {warning}")
        for text in said:
            self.reporter.say(text)

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
            f"{self.recipe.classifier_dropout}. "
            f"Seed {self.recipe.random_seed}."
        )

    def list_assets(self, folder=None, head=None) -> dict:
        """Returns config, vocabulary and head by file name.

        Args:
          folder: as for `task_heads.describe_head`.
          head: the head to describe; None for the task's.
        """
        tokenizer = self.start.tokenizer
        files = {
            CONFIG_FILE: self.config.to_dict(),
            tokenization.SETTINGS_FILE: tokenizer.settings,
            vocabulary_files.choose_name(tokenizer.settings): tokenizer.content,
        }
        if head := head or self.task.head:
            files[task_heads.HEAD_FILE] = task_heads.describe_head(head, folder)
        return files

    def export(
        self,
        write,
        folder,
        head=None,
        *,
        labels=None,
        is_compact=False,
        **kwargs,
    ) -> str:
        """Exports the current model as a SavedModel.

        It computes in float32, for any device, unless the recipe specifies a
        compute_dtype.

        Args:
          write: function of `export.serving` or `export.text_serving`.
          folder: parent folder of the SavedModel's versions.
          head: as for `list_assets`.
          labels: as for `saved_models.Contents`.
          is_compact: as for `saved_models.Contents`.
          **kwargs: task-specific arguments of `write`.

        Returns:
          The folder of the new version.

        Raises:
          ValueError: if the model has no weights yet.
        """
        self._check_weights()
        model = self.model
        is_auto = self.recipe.compute_dtype == "auto"
        if is_auto and self.session.compute_dtype != "float32":
            model = self._build_float32()
        files = self.list_assets(head=head)
        with tempfile.TemporaryDirectory() as temporary:
            return write(
                folder,
                model,
                max_seq_length=self.task.max_seq_length,
                contents=saved_models.Contents(
                    assets=session.write_files(temporary, files),
                    labels=labels,
                    is_compact=is_compact,
                ),
                **kwargs,
            )

    def _build_float32(self):
        """Returns a copy of the model that computes in float32."""
        model = self._build_model("float32")
        weights = modeling.named_weights(self.model)
        for name, weight in modeling.named_weights(model).items():
            weight.assign(weights[name])
        return model

    def find_threshold(self) -> float | None:
        """Returns the threshold with which the current weights were scored.

        None if it is unknown, or the task has none.
        """
        # As in `restore_best`: the folder's own weights come first.
        if self.source and task_heads.find_trained(self.folder):
            known = task_heads.find_threshold(self.folder, self.source)
            # Of a copy with the best one alone, no scores are noted.
            if checkpoints.list_checkpoints(self.folder):
                return known
        else:
            head = self.start.head
            known = head.threshold if head else None
        if self.scored_threshold is not None:
            return self.scored_threshold
        return known

    @property
    def is_within_training(self) -> bool:
        """Whether a training goes on, after some steps."""
        return 0 < self.reporter.step < self.session.num_train_steps

    def predict(
        self, examples: Examples, exit_threshold: float | None = None
    ) -> dict[str, np.ndarray]:
        """Returns the model's outputs for examples, in order: [N, ...].

        Args:
          examples: N examples.
          exit_threshold: for a classifier: as in `model.exits.predict`, whose
            outputs are returned. None computes all layers.

        Raises:
          ValueError: if the model has no weights yet.
        """
        self._check_weights()
        if exit_threshold not in self._predictors:
            self._predictors[exit_threshold] = evaluation.Predictor(
                self.session.strategy, self.model, exit_threshold
            )
        return self._run(self._predictors[exit_threshold], examples)

    def _run(self, predictor, examples):
        """Returns a predictor's outputs in the recipe's batches."""
        return predictor(
            examples,
            self.task.max_seq_length,
            self.recipe.tokens_per_batch,
            batch_size=self.recipe.predict_batch_size,
            min_length=self.task.min_seq_length,
        )

    def _check_weights(self):
        """Raises ValueError if the model has no weights that are of use."""
        if self.source is None:
            raise ValueError(
                f"The model of {self.folder} has random weights, or those of "
                "a run that diverged. Call restore_best() for those of its "
                "best checkpoint or, if it has none, of the start."
            )

    def restore_best(self) -> str:
        """Restores the best checkpoint, or the newest if none is marked best.

        If the folder has no checkpoint, all weights of `start` are restored,
        including those of the head, with its outputs in the task's order.

        Returns:
          The source of the weights.

        Raises:
          ValueError: if a weight is missing, or the head is absent or of
            another kind.
        """
        if source := self.session.restore_best():
            return source
        source, values = self.start.source, self._read_values(self.start)
        weights = self.session.optimizer.weights
        if self._new_head is None and not self.session.step:
            self._new_head = {
                name: weights[name].numpy() for name in self._list_head()
            }
        checkpoints.restore(weights, values, source)
        self.source = source
        return source

    def _read_values(self, start):
        """Returns all values of a model, with the head as the task has it."""
        values, remark = start.values, None
        if start.head and self.task.head:  # An error if they differ.
            values, remark = task_heads.reorder_outputs(
                values, start.head, self.task.head, start.source
            )
        names = self._list_head()
        if names and not any(name in values for name in names):
            raise ValueError(
                f"{start.source} has no head for the task {self.task.name} (no "
                f"{names[0]}): it was not fine-tuned. Train first, "
                "or give the folder of a fine-tuned model."
            )
        if remark:
            self.reporter.say(remark)
        return values

    @session.owning_folder
    def evaluate(self) -> list[dict]:
        """Evaluates every checkpoint of the folder, or `start` without any.

        Returns:
          A dict from metric to float for each evaluation so far.

        Raises:
          BlockingIOError: if another process writes to the folder.
          ValueError: if the task has no dev data.
        """
        if self.evaluator is None:
            raise ValueError(f"The task {self.task.name} has no dev data.")
        if checkpoints.list_checkpoints(self.folder):
            self.session.evaluate_folder(self.evaluator)
        else:
            self.reporter.say(f"Evaluating {self.restore_best()}.")
            if task_heads.find_trained(self.folder):
                self.session.compare_again()
                self.session.manifest.write_scored()
            self.evaluator.evaluate(0)
        return self.evaluator.results()
