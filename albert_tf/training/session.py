"""A training session: the part that pretraining and fine-tuning share.

A session builds model and optimizer, restores the newest checkpoint or the
initial weights, and writes checkpoints, results and summaries to its folder.
It does not depend on flags, so a notebook can use it as the programs do.
"""

import functools
import os
import random
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from albert_tf import filesystem, ownership
from albert_tf.model import layers, modeling
from albert_tf.training import (
    distribution,
    evaluation,
    manifest,
    optimization,
    reporting,
    results_file,
    workers,
)
from albert_tf.training.settings import Schedule, Settings
from albert_tf.weights import checkpoints, initialization, task_heads


class Session:
    """Model, optimizer, and the checkpoints and results of their training.

    Args:
      folder: folder for checkpoints and results.
      build_model: function of `dtype` that returns the model.
      settings: a `settings.Settings`.
      schedule: a `settings.Schedule`.
      made_of: dict of the run's settings and data, see `manifest.Manifest`. A
        `compute_dtype` in it is replaced by the chosen one.
      strategy: a tf.distribute.Strategy; None for the current one.

    Attributes:
      settings, strategy: as above.
      num_train_steps: step at which training ends.
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

    Example:
      >>> from albert_tf import AlbertConfig, AlbertForPreTraining, Session
      >>> config = AlbertConfig(
      ...     vocab_size=30, hidden_size=8, num_attention_heads=2
      ... )
      >>> session = Session(
      ...     "out",
      ...     lambda dtype: AlbertForPreTraining(config, dtype=dtype),
      ...     Settings(compute_dtype="float32"),
      ...     Schedule(learning_rate=1e-3, num_train_steps=10),
      ...     made_of={"config": config.to_dict()},
      ... )
      >>> session.step, session.num_train_steps
      (0, 10)
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        build_model,
        settings: Settings,
        schedule: Schedule,
        made_of: dict,
        *,
        strategy=None,
    ):
        self.folder, self.settings = str(folder), settings
        self.strategy = strategy or tf.distribute.get_strategy()
        self.workers = workers.find_workers(self.strategy)
        self.num_train_steps = schedule.num_train_steps
        self.compute_dtype = distribution.choose_compute_dtype(
            settings.compute_dtype, self.strategy
        )
        if "compute_dtype" in made_of:
            made_of = made_of | {"compute_dtype": self.compute_dtype}
        self.manifest = manifest.Manifest(self.folder, made_of)
        self._remarks = self._compare()
        self._build(build_model, optimization.build_schedule(*schedule))
        self.manager = checkpoints.CheckpointManager(
            self.folder,
            {},
            settings.keep_checkpoint_max,
            is_writing=self.workers.is_chief,
        )
        self._leave_out_frozen()
        # Of a training that has begun and has not been recorded.
        self._list_files: Callable[[], dict] | None = None
        self.reporter = reporting.Reporter(
            self.folder, is_silent=not self.workers.is_chief
        )
        for remark in self._remarks:
            self.reporter.say(remark)
        if self.compute_dtype != settings.compute_dtype:
            (other,) = layers.POLICIES.keys() - {self.compute_dtype}
            self.reporter.say(
                f"Computing in {self.compute_dtype}, the faster choice for "
                f"this device (compute_dtype={other} overrides it)."
            )

    def _compare(self, **sections):
        """Compares the folder's run; returns remarks, as `Manifest.check`."""
        has_scores = bool(results_file.read_results(self.folder))
        return self.manifest.check(
            has_scores or task_heads.find_trained(self.folder),
            self.settings.accept_changes,
            has_scores=has_scores,
            **sections,
        )

    def compare_again(self, **sections):
        """Compares the folder's run, which may be another than before.

        Args:
          **sections: as for `manifest.Manifest.check`.

        Raises:
          ValueError: if it has other settings or data.
        """
        self.manifest.read()
        for remark in self._compare(**sections):
            if remark not in self._remarks:
                self.reporter.say(remark)

    def _build(self, build_model, schedule):
        """Builds the model, deterministically from the seed, and optimizer.

        The caller's generators go on as before; of TensorFlow's, whose state
        cannot be read, the seed is set.
        """
        states = random.getstate(), np.random.get_state()
        keras.utils.set_random_seed(self.settings.random_seed)
        try:
            self._build_parts(build_model, schedule)
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])

    def _build_parts(self, build_model, schedule):
        with self.strategy.scope():
            self.model = build_model(dtype=layers.POLICIES[self.compute_dtype])
            weights = modeling.named_weights(self.model)
            self.optimizer = optimization.build_optimizer(
                self.settings.optimizer,
                {name: weight.value for name, weight in weights.items()},
                schedule,
                beta_2=self.settings.beta_2,
            )
        if self.settings.remat and getattr(self.model, "reads_layers", False):
            raise ValueError(
                "The model reads all layers, of which remat=True keeps the "
                "last one only: omit remat=True."
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
        self.compare_again(frozen=self.frozen)
        if self.frozen:
            self.reporter.say(
                f"Frozen: {len(self.frozen)} of {num_weights} weights, such as "
                f"{self.frozen[0]}."
            )

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

    def resume_or_start(self, config, start=None, **kwargs) -> None:
        """Restores the newest checkpoint, or another model, on all workers.

        Args:
          config: the model's AlbertConfig.
          start: as for `begin`.
          **kwargs: others, as for `initialization.initialize`.
        """
        self.reporter.say(
            initialization.initialize(
                self.manager, self.optimizer.weights, config, start, **kwargs
            )
        )
        self.workers.share_variables(self.manager.variables)

    def evaluate_folder(self, evaluator) -> None:
        """Scores all checkpoints, and records on what data.

        `evaluator` is an `evaluation.Evaluator`.
        """
        self.compare_again()
        if checkpoints.list_checkpoints(self.folder):
            # Before the first result, after which a kill may come.
            self.manifest.write_scored()
        evaluator.evaluate_folder()

    def begin(
        self, config, start=None, *, list_files, evaluator=None, **kwargs
    ) -> int:
        """Resumes from the newest checkpoint, or starts from another model.

        Args:
          config: the model's AlbertConfig.
          start: the `pretrained.Pretrained` to start from; None for random
            weights.
          list_files: function that returns the files that a reader of the
            checkpoints needs: name -> JSON value, or bytes.
          evaluator: an `evaluation.Evaluator` to bring up to date, or None.
          **kwargs: as for `resume_or_start`.

        Returns:
          The step at which training starts.

        Raises:
          ValueError: if the step cannot be divided by replicas and parts, the
            weights do not fit, or there is nothing to train.
        """
        self._check_step()
        checkpoints.check_free(self.folder)
        if self.step and not checkpoints.list_checkpoints(self.folder):
            raise ValueError(
                f"The model was trained for {self.step} steps, but "
                f"{self.folder} has no checkpoint of it. To start over, make "
                "a new object of the same kind."
            )
        self._begin_frozen()
        self.resume_or_start(config, start, **kwargs)
        step = self.step
        is_interrupted = self.manager.is_interrupted(self.manager.prefix(step))
        checkpoints.check_end(self.folder, step, self.num_train_steps)
        if evaluator:
            evaluator.check_best(step)
        else:
            # The score of an interruption's checkpoint would stay.
            is_lost = is_interrupted and step < self.num_train_steps
            self._check_results(step, is_lost)
        if step == self.num_train_steps:
            self.manager.confirm_latest()
        is_resumed = bool(checkpoints.list_checkpoints(self.folder))
        if is_resumed:
            list_files()  # An error now, not at the first checkpoint.
            if evaluator:
                self.manifest.write_scored()
        self.manifest.update(step, self.settings.train_batch_size)
        self._list_files = list_files
        if not is_resumed:
            self._record()
        if evaluator:
            # As in an uninterrupted run, which has no result of this step if
            # it is one of an interruption, or of weights without training.
            is_kept = step and not is_interrupted
            evaluator.forget_after(step if is_kept else step - 1)
            if self.workers.share(evaluator.is_missing(step)):
                evaluator.evaluate(step, self.manager.prefix(step))
        return step

    def _record(self):
        """Writes the settings, data and files of the training, once.

        A resumed run has those of its checkpoints until it writes a new one: it
        may have nothing to do, or end before.
        """
        if self._list_files:
            self.manifest.write_updated()
            write_files(self.folder, self._list_files())
            self._list_files = None

    def save(self, **kwargs) -> str:
        """Writes a checkpoint, as `checkpoints.CheckpointManager.save`."""
        self._record()
        return self.manager.save(**kwargs)

    def _check_results(self, step, is_lost):
        """Raises ValueError for results of steps that are trained anew.

        `is_lost` is whether that of `step` will be of no checkpoint.
        """
        rows = results_file.read_results(self.folder)
        later = [r[checkpoints.STEP] for r in rows]
        if max(later, default=0) > step - is_lost:
            raise ValueError(
                f"{self.folder} has results until step {max(later):.0f}, but "
                f"training continues from step {step}. Give the dev data "
                f"again, or remove {results_file.RESULTS_FILE}, "
                f"model.ckpt-best.*, {task_heads.HEAD_FILE} and "
                "dev_predictions.jsonl."
            )

    def _check_step(self):
        """Raises ValueError if the devices cannot compute such steps."""
        distribution.check_batch_size(
            self.strategy,
            self.settings.train_batch_size,
            "train_batch_size",
            self.settings.gradient_accumulation_steps,
        )
        num_replicas = self.strategy.num_replicas_in_sync
        is_tpu = distribution.is_tpu(self.strategy)
        if self.settings.xla and num_replicas > 1 and not is_tpu:
            raise ValueError(
                f"xla=True compiles a step for one device, but {num_replicas} "
                "are used. Omit it, or give distribution=one_device."
            )

    def check_frozen(self):
        """Raises ValueError if other weights are trainable than in `begin`."""
        if self._list_frozen() != self.frozen:
            raise ValueError(
                "Layers were frozen or unfrozen after `begin`: call `begin` "
                "again, which also restores the weights."
            )

    def restore_best(self) -> str | None:
        """Restores the checkpoint that `task_heads.find_trained` names last.

        Returns:
          The checkpoint; None if the folder has none, and nothing changed.
        """
        prefixes = results_file.find_trained(self.folder)
        if not prefixes:
            return None
        source, values = checkpoints.read_newest(prefixes)
        checkpoints.restore(self.optimizer.weights, values, source)
        self.manager.source = source
        self._say_step(source, values)
        return source

    def _say_step(self, source, values):
        """Says of which step a checkpoint is, and if it was never scored."""
        step = values.get(checkpoints.STEP)
        best = checkpoints.find_best(self.folder)
        remark = ""
        if best and source != best:
            remark = (
                f" It is newer than the best checkpoint that was scored, "
                f"{best}, and was not scored itself."
            )
        self.reporter.say(f"{source} is of step {step}.{remark}")


def owning_folder(method):
    """Decorator of a method: locks the folder of its object's session.

    Of several workers, only the chief writes there.
    """

    @functools.wraps(method)
    def run_alone(self):
        if not self.session.workers.is_chief:
            return method(self)
        with ownership.owning_folder(self.folder, is_shared=True):
            return method(self)

    return run_alone


def write_files(folder, files: dict) -> list[str]:
    """Writes files, as for `Session.begin`; returns their paths."""
    contents = {os.path.join(folder, name): x for name, x in files.items()}
    for path, content in contents.items():
        if isinstance(content, bytes):
            filesystem.write_file(path, content)
        else:
            filesystem.write_json(path, content)
    return list(contents)
