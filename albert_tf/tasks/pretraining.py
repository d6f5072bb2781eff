"""Pretrains with masked LM and sentence order: trains, evaluates, resumes.

`Pretraining` does so in a notebook as in the program.
"""

import functools
import logging
import math
import os

import tensorflow as tf

from albert_tf import filesystem
from albert_tf.data.pretraining import (
    agreement,
    label_counts,
    opening,
    sidecars,
)
from albert_tf.model import heads, initial_values
from albert_tf.model.config import CONFIG_FILE, AlbertConfig
from albert_tf.tasks.recipes import PretrainingRecipe
from albert_tf.text import tokenization
from albert_tf.training import (
    distribution,
    divergence,
    evaluation,
    loop,
    manifest,
    memory,
    optimization,
    plateau,
    session,
    workers,
)
from albert_tf.weights import (
    checkpoints,
    positions,
    pretrained,
    vocabulary_files,
)

# Maximum number of records read to estimate piece frequencies.
MAX_COUNTED = 20_000


class Pretraining:
    """One pretraining run in its own folder.

    Args:
      folder: folder for checkpoints and results. Training resumes from its
        newest checkpoint, if there is one.
      config: the model's AlbertConfig.
      records: training records: comma-separated paths or globs, or the
        `opening.PretrainingRecords` that `opening.open_records` returns for
        other masks; None only evaluates.
      held_out: records to evaluate on, in the same way, or None.
      recipe: a PretrainingRecipe.
      start: the model to start from, or to evaluate, a `pretrained.Pretrained`
        or what `read_pretrained` takes; None for random weights. A run that
        resumes can do without it.
      strategy: a tf.distribute.Strategy; None for the current one.
      flags: dict to record as the flags of the run.

    Attributes:
      folder, config, records, held_out, recipe, start: as above.
      sentence_weight: factor of the sentence loss.
      session: its `session.Session`.
      reporter: the session's `reporting.Reporter`.
      evaluator: an `evaluation.Evaluator`, or None without held-out records.

    Raises:
      ValueError: if the records do not fit the config or each other, or the
        run in the folder has other settings or data.

    Example:
      >>> import numpy as np
      >>> from albert_tf import AlbertConfig, Pretraining, PretrainingRecipe
      >>> from albert_tf.data.pretraining import records
      >>> shapes = records.pretraining_features(16, 2).items()
      >>> rows = {name: np.ones([4, *s], kind) for name, (s, kind) in shapes}
      >>> encoded = records.encode_examples(rows)
      >>> records.write_records("train.tfrecord", encoded)
      4
      >>> config = AlbertConfig(
      ...     vocab_size=30, hidden_size=8, num_attention_heads=2
      ... )
      >>> recipe = PretrainingRecipe(train_batch_size=4)
      >>> run = Pretraining("out", config, "train.tfrecord", recipe=recipe)
      >>> run.sentence_weight  # And run.train(), which takes longer.
      1.0
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        config: AlbertConfig,
        records=None,
        held_out=None,
        recipe: PretrainingRecipe | None = None,
        *,
        start: pretrained.Pretrained | filesystem.Path | None = None,
        strategy=None,
        flags: dict | None = None,
    ):
        self.folder, self.config = str(folder), config
        self.recipe = recipe or PretrainingRecipe()
        has_checkpoints = checkpoints.list_checkpoints(self.folder)
        if not isinstance(start, pretrained.Pretrained | None):
            start = pretrained.read_start(start, has_checkpoints)
        self.start, self.flags = start, flags or {}
        self.recipe.check_start(start.source if start and records else None)
        self.records = self._open("records", records)
        self.held_out = self._open("held_out", held_out)
        if not (self.records or self.held_out):
            raise ValueError("Give records, held_out, or both: nothing to do.")
        self._any_records = self.records or self.held_out
        if not self.records and has_checkpoints:
            self.start = None  # The folder's own models are evaluated.
        self.sentence_weight = self._choose_sentence_weight()
        strategy = strategy or tf.distribute.get_strategy()
        self._check_records(strategy)
        schedule = self.recipe.schedule()
        self.session = self._build_session(schedule, strategy)
        self.reporter = self.session.reporter
        if self.recipe.learning_rate == "auto":
            self.reporter.say(
                f"Learning rate {schedule.learning_rate:.3g} after "
                f"{schedule.num_warmup_steps} warmup steps, scaled to batches "
                f"of {self.recipe.train_batch_size} (learning_rate=auto)."
            )
        self.evaluator: evaluation.Evaluator | None = None
        if self.held_out:
            self.evaluator = self._build_evaluator()

    def _build_session(self, schedule, strategy):
        """Returns the session, after the files of all workers are compared."""
        together = workers.find_workers(strategy)
        made_of = self._describe_run(schedule)
        # Before the model, for which workers wait for each other.
        for name in ("config", "vocabulary", "data"):
            together.check_equal(
                f"{name} files",
                made_of.get(name),
                "Are the files of all hosts copies of the same ones?",
            )
        return session.Session(
            self.folder,
            functools.partial(
                self._build_model,
                num_pieces=self._find_size(together),
                begins_on_neighbors=self._begins_on_neighbors(together),
            ),
            self.recipe,
            schedule,
            made_of,
            strategy=strategy,
        )

    def _open(self, name, records):
        """Returns PretrainingRecords of what the constructor takes."""
        if isinstance(records, str | os.PathLike):
            return opening.open_records(str(records), self.config)
        if not isinstance(records, opening.PretrainingRecords | None):
            raise ValueError(
                f"{name}={records!r:.200}; wanted comma-separated paths or "
                "globs, or what `opening.open_records` returns."
            )
        return records

    def _choose_sentence_weight(self):
        """Returns the factor of the sentence loss; nobody else decides it.

        It is the recipe's, else, to evaluate, that of the model to evaluate,
        else that of the records' objective.
        """
        if self.recipe.sentence_weight is not None:
            return self.recipe.sentence_weight
        usual = 0.0 if self._any_records.sentence_objective == "none" else 1.0
        if self.records:
            return usual
        folders = [self.folder]
        if self.start:
            folders.append(filesystem.folder_of(self.start.source))
        for folder in folders:
            known = manifest.read_setting(folder, "sentence_weight")
            if known is not None:
                # A weight of 1 is the default of other records: those without
                # a sentence objective have nothing for it to weigh.
                return usual if known == 1 else known
        return usual

    def _check_records(self, strategy):
        """Raises ValueError if records contradict the recipe or each other."""
        if self.records:
            agreement.check_batch_size(
                self.records, self.recipe.train_batch_size
            )
        if self.records and self.held_out:
            agreement.check_held_out(
                self.records, self.held_out, self.sentence_weight
            )
        if self.held_out:
            distribution.check_batch_size(
                strategy, self.recipe.eval_batch_size, "eval_batch_size"
            )
            known = positions.read_trained(self.folder)
            if not self.records and known and known < self.held_out.num_tokens:
                logging.warning(
                    "%s was trained with %d positions, the held-out sequences "
                    "have %d tokens: it is scored with positions that are not "
                    "trained. With init_checkpoint=%s and another output_dir, "
                    "they continue those before.",
                    self.folder,
                    known,
                    self.held_out.num_tokens,
                    self.folder,
                )

    def _build_model(self, dtype, num_pieces, begins_on_neighbors):
        """Returns a `heads.AlbertForPreTraining` with the initial values."""
        model = heads.AlbertForPreTraining(
            self.config,
            sentence_weight=self.sentence_weight,
            num_pieces=num_pieces,
            min_num_layers=self.recipe.min_num_layers,
            num_sampled_pieces=self.recipe.num_sampled_pieces,
            dtype=dtype,
        )
        if begins_on_neighbors:
            initial_values.begin_on_neighbors(
                model, self.config, self._piece_counts
            )
        return model

    def _begins_on_neighbors(self, together):
        """Whether to replace random values; a resumed run has others."""
        return (
            self.records
            and self.recipe.initialization == "neighbors"
            # Other workers than the chief have no checkpoints.
            and not together.share(
                bool(checkpoints.list_checkpoints(self.folder))
            )
        )

    @functools.cached_property
    def _piece_counts(self):
        """How often each piece is to be predicted in training, [V]."""
        with opening.naming_damage(self.records):
            return label_counts.count_masked_pieces(self.records, MAX_COUNTED)

    def _find_size(self, together):
        """Returns the size of the vocabulary, or None if nothing says it."""
        if self._any_records.sidecar:
            return self._any_records.sidecar["tokenizer"].get("vocab_size")
        known = (self.start and self.start.num_pieces) or 0
        return together.share(known) or None

    def _count_trained_positions(self):
        """Returns how many positions texts reach, in this run or before.

        None if the run starts from a model that does not say it.
        """
        known, start = self.records.num_tokens, self.start
        if checkpoints.list_checkpoints(self.folder):
            known = positions.read_trained(self.folder)
        elif start:
            known = positions.read_trained(filesystem.folder_of(start.source))
            rows = start.values.get(positions.NAME)
            if known is None and rows is not None:
                if initial_values.are_initial(
                    rows, start.config or self.config
                ):
                    known = self.records.num_tokens
                elif len(rows) < self.config.max_position_embeddings:
                    known = len(rows)  # The others are new.
        return known and max(known, self.records.num_tokens)

    def _describe_data(self):
        """Returns the manifest's description of the records."""
        parts: dict = {}
        if self.records:
            parts["train"] = self.records, self.records.files
        if self.held_out:
            files = self.held_out.files
            if not (self.held_out.masker or self.recipe.max_eval_steps):
                # All of them are scored, with the masks that they have.
                files = sorted(files, key=os.path.basename)
            parts["dev"] = self.held_out, files
        return {
            part: manifest.describe_files(files, opened.num_records)
            | opened.describe()
            for part, (opened, files) in parts.items()
        }

    def _describe_run(self, schedule):
        """Returns the manifest's description of the run."""
        recipe, sidecar = self.recipe, self._any_records.sidecar
        objective = self._any_records.sentence_objective
        made_of: dict = {
            "config": self.config.to_dict(),
            "task": {"sentence_objective": objective},
            "data": self._describe_data(),
        }
        if sidecar:
            made_of["vocabulary"] = tokenization.take_identity(
                sidecar["tokenizer"]
            )
        if self.held_out:
            num_records = self.held_out.num_records
            wanted = recipe.max_eval_steps * recipe.eval_batch_size
            made_of["evaluation"] = {
                "records": min(wanted or num_records, num_records)
            }
        if self.start:
            section = "begins_from" if self.records else "scored"
            made_of[section] = manifest.describe_weights(self.start.values)
        elif self.records and not checkpoints.list_checkpoints(self.folder):
            made_of["begins_from"] = manifest.describe_weights({})
        if not self.records:
            return made_of
        if not self.start:
            made_of["initialization"] = recipe.initialization
        if trained := self._count_trained_positions():
            made_of["trained_positions"] = trained
        return {
            **made_of,
            "optimizer": {
                **optimization.describe(recipe.optimizer),
                **schedule._asdict(),
                "beta_2": recipe.beta_2,
            },
            "sentence_weight": self.sentence_weight,
            "min_num_layers": recipe.min_num_layers,
            "num_sampled_pieces": recipe.num_sampled_pieces,
            "train_batch_size": recipe.train_batch_size,
            "shuffle_buffer": recipe.shuffle_buffer,
            "random_seed": recipe.random_seed,
            "compute_dtype": recipe.compute_dtype,
        }

    def _build_evaluator(self):
        """Returns an `evaluation.Evaluator` on the held-out records."""
        strategy, model = self.session.strategy, self.session.model
        batch_size = self.recipe.eval_batch_size
        score = functools.partial(
            evaluation.evaluate,
            strategy,
            model,
            evaluation.build_eval_function(strategy, model),
            self.held_out.read_pass(batch_size),
            self.recipe.max_eval_steps,
            math.ceil(self.held_out.num_records / batch_size),
        )
        return self.session.build_evaluator(score, "masked_lm_accuracy")

    @property
    def model(self):
        """The `heads.AlbertForPreTraining`, with its current weights."""
        return self.session.model

    @session.owning_folder
    def train(self):
        """Trains, resuming from the newest checkpoint if there is one.

        With held-out records, the weights of the start and of each checkpoint
        are evaluated.

        Raises:
          BlockingIOError: if another process writes to the folder.
          ValueError: if there are no training records, or one is damaged.
          FloatingPointError: if the run diverges.
        """
        if not self.records:
            raise ValueError("There are no records to train on.")
        together = self.session.workers
        together.check_equal(
            "data types of matrix products",
            self.session.compute_dtype,
            "Are the hosts of different kinds? Set compute_dtype.",
        )
        self._warn_of_memory()
        with opening.naming_damage(self.records, self.held_out):
            step = self.session.begin(
                self.config,
                self.start,
                list_files=self._list_files,
                evaluator=self.evaluator,
                **self._start_settings,
            )
            if self.evaluator and not step:
                self._evaluate_start(self.evaluator)
            num_read = self.session.manifest.count_examples(step)
            read_part = functools.partial(
                self.records.read_part,
                batch_size=self.recipe.train_batch_size,
                seed=self.recipe.random_seed,
                start=together.share(num_read),
                shuffle_buffer=self.recipe.shuffle_buffer,
            )
            loop.train(
                self.session,
                {"records": read_part},
                evaluator=self.evaluator,
                gauge=self._build_gauge(),
                # Only the chief has read the losses of earlier steps.
                guard=divergence.Guard(
                    self.recipe.stop_on_divergence
                    and (together.is_chief or not step),
                    loss="masked_lm_loss",
                ),
            )
        self.reporter.say(f"Checkpoints and results are in {self.folder}.")

    @session.owning_folder
    def evaluate(self) -> list[dict]:
        """Evaluates every checkpoint of the folder, or `start` without any.

        Returns:
          A dict from metric to float for each evaluation so far.

        Raises:
          BlockingIOError: if another process writes to the folder.
          ValueError: if there are no held-out records, or one is damaged.
          FileNotFoundError: if there is no model to evaluate.
        """
        if self.evaluator is None:
            raise ValueError("There are no held-out records to evaluate on.")
        has_checkpoints = checkpoints.list_checkpoints(self.folder)
        begins = self.start and not has_checkpoints
        with opening.naming_damage(self.held_out):
            if not self.session.workers.share(bool(begins)):
                self.session.evaluate_folder(self.evaluator)
            else:
                self.session.compare_again()
                self.session.resume_or_start(
                    self.config, self.start, **self._start_settings
                )
                self._evaluate_start(self.evaluator)
        run = self.session.manifest
        is_recorded = has_checkpoints and "task" in run.stored["made_of"]
        if not self.records and not is_recorded:
            run.write()
        return self.evaluator.results()

    def restore_best(self) -> str:
        """Restores the best checkpoint, or the newest if none is marked best.

        Returns:
          The checkpoint.

        Raises:
          FileNotFoundError: if the folder has none.
        """
        if source := self.session.restore_best():
            return source
        raise FileNotFoundError(f"{self.folder} has no checkpoint.")

    @property
    def _start_settings(self):
        sidecar = self._any_records.sidecar
        return {
            "from_group0": self.recipe.init_from_group0,
            "tokenizer_settings": sidecar and sidecar["tokenizer"],
            "untrained": "random weights, "
            f"initialization={self.recipe.initialization}",
        }

    def _evaluate_start(self, evaluator):
        """Evaluates the initial weights, after a baseline, as step 0."""
        masked_lm, sentence_order = label_counts.score_best_guess(self.held_out)
        said = f"masked LM accuracy {masked_lm:.1%}"
        if "sentence_order_accuracy" in self.model.metric_names:
            said += f", sentence order accuracy {sentence_order:.1%}"
        self.reporter.say(
            f"{self.held_out.num_records} held-out sequences. Majority-class "
            f"baseline: {said}."
        )
        evaluator.evaluate(0)

    def _list_files(self):
        """Returns the files that a reader of the checkpoints needs, by name."""
        files = manifest.list_flags(self.folder, self.flags)
        if not self._has_config():
            files[CONFIG_FILE] = self.config.to_dict()
        return files | self._list_vocabulary()

    def _list_vocabulary(self):
        """Returns the records' vocabulary and its settings, by file name.

        What the records do not say is taken from the model that a run starts
        from; without either, nothing is known.
        """
        sidecar, start = self._any_records.sidecar, self.start
        settings = sidecar and sidecar["tokenizer"]
        content = sidecar and sidecars.decode_vocabulary(sidecar)
        is_new = not checkpoints.list_checkpoints(self.folder)
        if not content and start and start.tokenizer and is_new:
            known = start.tokenizer.settings
            if not settings or settings.get("sha256") == known["sha256"]:
                settings, content = settings or known, start.tokenizer.content
        if not settings:
            return {}
        files = {tokenization.SETTINGS_FILE: settings}
        if content:
            files[vocabulary_files.choose_name(settings)] = content
        return files

    def _has_config(self):
        """Whether the folder has the config already, with its comments."""
        path = os.path.join(self.folder, CONFIG_FILE)
        try:
            return AlbertConfig.from_json_file(path) == self.config
        except (OSError, ValueError):
            return False

    def _warn_of_memory(self):
        """Says so if the machine's memory seems too small for a step."""
        warning = memory.warn_of_training(
            self.config,
            self.recipe,
            self.records.num_tokens,
            self.records.num_predictions,
            available=distribution.find_cpu_memory(self.session.strategy),
            compute_dtype=self.session.compute_dtype,
            num_sampled_pieces=self.recipe.num_sampled_pieces,
        )
        if warning:
            self.reporter.say(f"WARNING: {warning}")

    def _build_gauge(self):
        """Returns a `plateau.Gauge`, on held-out records if there are any."""
        measured = self.held_out or self.records
        strategy = self.session.strategy
        # Of one replica: each computes few tokens at a time.
        num_sequences = max(1, plateau.TOKENS_AT_A_TIME // measured.num_tokens)
        num_tokens = num_sequences * measured.num_tokens
        batches = measured.read_pass(
            num_sequences * strategy.num_replicas_in_sync
        )
        return plateau.Gauge(
            strategy,
            self.model,
            batches.take(max(1, plateau.TOKENS // num_tokens)),
            self._piece_counts,
            list_remedies(
                self.config,
                self.recipe,
                self.records,
                self.sentence_weight,
                self.session.manifest.stored["made_of"],
            ),
        )


def list_remedies(config, recipe, records, sentence_weight, made_of):
    """Returns what left the plateau earlier and a run does not do.

    In the order of "What helps besides" in docs/plateau.md.

    Args:
      config: the AlbertConfig.
      recipe: the PretrainingRecipe.
      records: the `opening.PretrainingRecords` to train on.
      sentence_weight: factor of the sentence loss.
      made_of: what the manifest has stored.
    """
    is_initialized = "sha256" in made_of.get("begins_from", {})
    # A resumed run began as it is recorded, not as it is told now.
    initialization = made_of.get("initialization", recipe.initialization)
    masks = records.mask_settings
    num_rounds = 1 + masks.get("do_permutation", False)
    num_masked = records.num_predictions // num_rounds
    wanted = round(0.4 * records.num_tokens)
    # 0.05 for H = 256, and what gives the same variances for other widths.
    initializer_range = 0.8 / math.sqrt(config.hidden_size)
    remedies = {
        "initialization=neighbors": (
            not is_initialized and initialization == "release"
        ),
        "records of short sequences (max_seq_length=64)": (
            records.num_tokens > 64
        ),
        "records with 40% of the pieces masked (masked_lm_prob=0.4, "
        f"max_predictions_per_seq={wanted})": (
            masks.get("masked_lm_prob", 0) < 0.4 or num_masked < wanted
        ),
        "sentence_weight=0": sentence_weight > 0,
        "records without n-grams (ngram=1)": masks.get("ngram", 3) > 1,
        "beta_2=0.98": recipe.beta_2 > 0.98,
        f'"initializer_range": {initializer_range:.2g} in the config': (
            not is_initialized
            and config.initializer_range < 0.6 * initializer_range
        ),
        "larger batches at a larger rate (train_batch_size=64)": (
            recipe.train_batch_size < 64
        ),
        "more steps": True,
    }
    return [remedy for remedy, is_left in remedies.items() if is_left]
