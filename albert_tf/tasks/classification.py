"""Classification and regression of texts or pairs: GLUE and custom tasks.

Shapes: N examples, C labels.
"""

import dataclasses
import functools
import math
import os
from collections.abc import Sequence

import numpy as np

from albert_tf import filesystem
from albert_tf.data import examples, submissions, table_tasks, text_data
from albert_tf.data.table_tasks import TableTask
from albert_tf.export import serving
from albert_tf.metrics import classification, exits
from albert_tf.model import heads
from albert_tf.tasks.finetuning import DROPOUT, FineTuning, Task
from albert_tf.tasks.recipes import ExitSettings
from albert_tf.training import manifest
from albert_tf.weights.task_heads import EXIT_THRESHOLD, TaskHead

# Number of labels to list.
MAX_LISTED = 20


class Classification(Task):
    r"""A `TableTask` with its data.

    Args:
      task: the `table_tasks.TableTask`, with its labels.
      data: the `text_data.Data` to train, score and predict on.
      max_seq_length: maximum length of a sequence, in tokens.
      threshold: constant output of an exported SavedModel, or None.
      exits: an `ExitSettings`: answers after fewer layers than all.

    Example:
      >>> import pathlib
      >>> from albert_tf import Classification, build_tokenizer
      >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] good bad".split()
      >>> size = pathlib.Path("vocab.txt").write_text("\n".join(words))
      >>> task = Classification.from_texts(
      ...     build_tokenizer(vocab_file="vocab.txt"), ["good", "bad"], [1, 0]
      ... )
      >>> task.num_train, task.head.labels
      (2, ('0', '1'))
    """

    def __init__(
        self,
        task: TableTask,
        data: text_data.Data,
        *,
        max_seq_length: int,
        threshold: float | None = None,
        exits: ExitSettings | None = None,
    ):
        self.task, self.data = task, data
        self.name, self.best_metric = task.name, task.metrics[0]
        self.max_seq_length = max_seq_length
        self.threshold = threshold
        self.exits = exits or ExitSettings()
        leaves = self.exits.exit_loss or self.exits.exit_threshold
        if task.objective != "classes" and leaves:
            raise ValueError(
                f"{task.name} has the objective {task.objective!r}: answers "
                "after fewer layers (exit_loss, exit_threshold) are given for "
                "'classes' alone."
            )
        self.head: TaskHead = TaskHead(
            task.objective,
            task.labels,
            lengths={"max_seq_length": max_seq_length},
            has_pairs=self.has_pairs,
        )
        self.train = data.train.examples if data.train else None
        self.num_train = len(self.train or ())
        self.class_weights: list[float] | None = None
        if self.train is not None:
            self.class_weights = table_tasks.find_class_weights(
                task, self.train.arrays["label_ids"]
            )
        self.is_scored, self.is_predicted = bool(data.dev), bool(data.test)
        self.baseline = self._score_baseline()

    @classmethod
    def from_texts(
        cls,
        tokenizer,
        texts: Sequence,
        labels: Sequence,
        *,
        dev: tuple[Sequence, Sequence] | None = None,
        max_seq_length: int = 512,
        objective: str = "classes",
        label_names: Sequence[str] | None = None,
        class_weight: str | dict | None = None,
        **kwargs,
    ) -> "Classification":
        """Builds a task from texts in memory.

        Args:
          tokenizer: tokenizer of the pretrained model.
          texts: N texts, or N pairs of texts.
          labels: N labels, strings or numbers; for a regression, floats; for
            "multi_label", N lists of names, or of 0 and 1 for `label_names`.
          dev: texts and labels to score on, or None.
          max_seq_length: maximum length of a sequence, in tokens; longer ones
            are truncated.
          objective: "classes", "regression" or "multi_label".
          label_names: the labels in order; None for those of the training
            data, sorted.
          class_weight: factors of the training loss of each class: "balanced",
            or a dict from each label to a number; None for 1.
          **kwargs: further arguments of the class.

        Raises:
          ValueError: if the labels do not match the texts.
        """
        task, data = text_data.encode_texts(
            tokenizer,
            (texts, labels),
            dev,
            max_seq_length=max_seq_length,
            objective=objective,
            label_names=label_names,
        )
        task = dataclasses.replace(task, class_weight=class_weight)
        built = cls(task, data, max_seq_length=max_seq_length, **kwargs)
        built.vocabulary = tokenizer.settings
        return built

    def _list_labels(self):
        """Returns the labels [N] of train and dev, by name."""
        splits = {"train": self.data.train} if self.data.train else {}
        splits |= {
            f"dev {name}".strip(): x for name, x in self.data.dev.items()
        }
        return {n: x.examples.arrays["label_ids"] for n, x in splits.items()}

    @functools.cached_property
    def made_of(self):
        task, data = self.task, self.data
        splits = {
            "train": [data.train] if data.train else [],
            "dev": [*data.dev.values()],
            "test": [*data.test.values()],
        }
        trained = {
            "exits": {"exit_loss": self.exits.exit_loss},
            "loss": {"class_weights": self.class_weights},
        }
        return {
            **(trained if data.train and task.objective == "classes" else {}),
            "task": {
                "name": task.name,
                "objective": task.objective,
                "labels": task.labels,
                "metrics": task.metrics,
            },
            "data": {
                part: {
                    str(number): manifest.describe_examples(split.examples)
                    for number, split in enumerate(some)
                }
                for part, some in splits.items()
                if some
            },
        }

    @property
    def prior_loss(self):
        # Trained with weights of classes, probabilities are not those of dev.
        has_weights = self.task.class_weight is not None
        return math.inf if has_weights else super().prior_loss

    def describe_data(self):
        if self.task.objective == "regression":
            return [
                f"Labels of {name} from {ids.min():g} to {ids.max():g}, mean "
                f"{ids.mean():.4g}."
                for name, ids in self._list_labels().items()
            ]
        if self.train is None or self.task.labels is None:
            return []
        label_ids = self.train.arrays["label_ids"]
        if self.task.objective == "classes":
            counts = np.bincount(label_ids, minlength=len(self.task.labels))
        else:
            counts = label_ids.sum(axis=0).astype(int)
        said = describe_labels(self.task.labels, counts.tolist())
        if self.class_weights:
            listed = [f"{weight:.3g}" for weight in self.class_weights]
            said.append(f"Their weights: {', '.join(listed[:MAX_LISTED])}.")
        return said

    def build_model(self, config, dropout=DROPOUT, dtype="float32"):
        return heads.AlbertClassifier(
            config,
            num_labels=len(self.task.labels or [""]),
            objective=self.task.objective,
            dropout_prob=dropout,
            exit_loss=self.exits.exit_loss,
            class_weights=self.class_weights,
            dtype=dtype,
        )

    def score(self, tuning):
        task = self.task
        values: dict[str, float] = {}
        tuning.dev_rows, tuning.exit_rows = [], []
        tuning.scored_threshold = self._find_known_exit(tuning)
        for part, split in self.data.dev.items():
            label_ids = split.examples.arrays["label_ids"]
            if self._leaves_early(tuning):
                outputs = tuning.predict(split.examples, exit_threshold=0.0)
                layer_logits = outputs["layer_logits"]  # [N, L, C]
                logits = layer_logits[:, -1]
                rows = self._list_exits(tuning, layer_logits, label_ids)
                if not values:
                    tuning.exit_rows = rows
                values |= _prefixed(part, self._score_exit(tuning, rows))
            else:
                logits = tuning.predict(split.examples)["logits"]
            scores = classification.score(
                logits, label_ids, task.objective, task.metrics
            )
            self.warn_of_collapse(
                tuning, logits, label_ids, task.objective, scores
            )
            values |= _prefixed(part, scores)
            tuning.dev_rows += self._describe_rows(part, split, logits)
        return values

    def _leaves_early(self, tuning) -> bool:
        """Returns whether answers after fewer layers are wanted."""
        if self.task.objective != "classes":
            return False
        if self.exits.exit_threshold is not None:
            return True
        if tuning.computes_all_layers:
            return False
        if self.exits.exit_loss:
            return True
        if self.num_train:
            return False
        trained = tuning.session.manifest.stored["made_of"].get("exits") or {}
        return bool(
            trained.get("exit_loss") or tuning.find_threshold() is not None
        )

    def _find_known_exit(self, tuning) -> float | None:
        """Returns the threshold to score with; None to choose one.

        A model that is only evaluated keeps its own.
        """
        if self.exits.exit_threshold is not None:
            return self.exits.exit_threshold
        if self.exits.exit_loss or self.num_train:
            return None
        return tuning.find_threshold()

    def _list_exits(self, tuning, layer_logits, label_ids):
        """Returns a `metrics.exits.Exit` for each threshold.

        One is chosen on the first part of the dev data, unless it is known.
        """
        known = tuning.scored_threshold
        rows = exits.list_exits(
            layer_logits,
            label_ids,
            self.best_metric,
            [] if known is None else [known],
        )
        if known is None:
            tolerance = self.exits.exit_tolerance / 100
            chosen = exits.choose_exit(rows, tolerance)
            tuning.scored_threshold = chosen.threshold
        return rows

    def _score_exit(self, tuning, rows) -> dict:
        """Returns the chosen threshold, and what its answers are worth."""
        chosen = {row.threshold: row for row in rows}[tuning.scored_threshold]
        return {
            EXIT_THRESHOLD: chosen.threshold,
            f"exit_{self.best_metric}": chosen.score,
            "exit_num_layers": chosen.num_layers,
        }

    def choose_exit(self, tuning) -> float | None:
        """Returns the threshold of predictions; None computes all layers."""
        if not self._leaves_early(tuning):
            return None
        given = self.exits.exit_threshold
        # With 0, no row leaves: the loop would be of no use.
        return (tuning.find_threshold() if given is None else given) or None

    def _predict(self, tuning, split) -> np.ndarray:
        """Returns the logits of examples, [N, C], and reports early answers."""
        threshold = self.choose_exit(tuning)
        outputs = tuning.predict(split, threshold)
        if threshold is not None:
            mean = outputs["num_layers"].mean()
            tuning.reporter.say(
                f"Answers after {mean:.1f} of "
                f"{tuning.config.num_hidden_layers} layers on average "
                f"({EXIT_THRESHOLD}={threshold:g})."
            )
        return outputs["logits"]

    def _describe_rows(self, part, split, logits) -> list[dict]:
        """Returns the rows of `dev_predictions.jsonl` for logits [N, C]."""
        objective, labels = self.task.objective, self.task.labels or ()

        def name(values):
            if objective == "regression":
                return values.tolist()
            if objective == "classes":
                return [labels[i] for i in values]
            return [[labels[i] for i in row.nonzero()[0]] for row in values]

        columns = {
            "id": split.ids,
            "text": split.texts,
            "label": name(split.examples.arrays["label_ids"]),
            "prediction": name(
                classification.predict_labels(logits, objective)
            ),
        }
        if objective != "regression":
            probabilities = classification.probabilities(logits, objective)
            columns["probabilities"] = probabilities.tolist()
        if part:
            columns["part"] = [part] * len(split.ids)
        return [
            dict(zip(columns, row, strict=True))
            for row in zip(*columns.values(), strict=True)
        ]

    def _score_baseline(self):
        """Returns the constant baseline's scores on the dev data."""
        values: dict[str, float] = {}
        for part, split in self.data.dev.items():
            label_ids = split.examples.arrays["label_ids"]
            known = (self.train or split.examples).arrays["label_ids"]
            scores = classification.baseline(
                known,
                label_ids,
                self.task.objective,
                self.task.metrics,
                num_classes=len(self.task.labels or ()),
            )
            values |= _prefixed(part, scores)
        return values

    def write_predictions(self, tuning):
        """Writes predictions of the test data; returns scores if it has labels.

        The first table also gets the release's file names; all tables get the
        names that the GLUE server accepts.
        """
        task = self.task
        scores: dict[str, dict] = {}
        for number, (name, split) in enumerate(self.data.test.items()):
            logits = self._predict(tuning, split.examples)
            predictions = self._format(logits)
            paths = [os.path.join(tuning.folder, f"{name}.tsv")]
            if number == 0:
                submissions.write_test_results(
                    os.path.join(tuning.folder, submissions.TEST_RESULTS_FILE),
                    classification.probabilities(logits, task.objective),
                )
                paths.append(
                    os.path.join(tuning.folder, submissions.SUBMISSION_FILE)
                )
            for path in paths:
                submissions.write_submission(path, split.ids, predictions)
            tuning.reporter.say(f"{len(predictions)} predictions: {paths[0]}")
            if "label_ids" in split.examples.arrays:
                scores[name] = classification.score(
                    logits,
                    split.examples.arrays["label_ids"],
                    task.objective,
                    task.metrics,
                )
                tuning.reporter.say(f"{name}: {scores[name]}")
        return scores

    def predict(self, tuning: FineTuning, texts: Sequence) -> list[str]:
        """Returns the current model's predictions for texts or pairs."""
        rows = text_data.make_rows(texts)
        packed = examples.pack_pairs(
            tuning.start.tokenizer,
            [row.text_a for row in rows],
            [row.text_b for row in rows],
            self.max_seq_length,
        )
        return self._format(self._predict(tuning, packed))

    def _format(self, logits) -> list[str]:
        """Converts logits [N, C] to N labels or numbers."""
        task = self.task
        return submissions.format_predictions(
            classification.predict_labels(logits, task.objective),
            task.labels,
            task.objective,
            task.bounds,
            task.label_separator,
        )

    def export(self, tuning, folder, **kwargs):
        return self._export(serving.export_classifier, tuning, folder, **kwargs)

    def export_text(self, tuning, folder, **kwargs):
        from albert_tf.export import text_serving

        return self._export(
            text_serving.export_text_classifier,
            tuning,
            folder,
            tokenizer=tuning.start.tokenizer,
            has_pairs=self.has_pairs,
            **kwargs,
        )

    def _export(self, write, tuning, folder, **kwargs):
        """Exports a SavedModel that answers as `predict` does."""
        exit_threshold = self.choose_exit(tuning)
        return tuning.export(
            write,
            folder,
            dataclasses.replace(self.head, threshold=exit_threshold),
            labels=self.task.labels,
            threshold=self.threshold,
            exit_threshold=exit_threshold,
            **kwargs,
        )

    @property
    def has_pairs(self) -> bool:
        """Whether an example is a pair of texts."""
        return len(self.task.tables[0].text) == 2


def describe_labels(labels: Sequence[str], counts: Sequence[int]) -> list[str]:
    """Returns sentences about a task's labels: their counts, and doubts."""
    listed = ", ".join(
        f"{name!r} {count:,}"
        for name, count in list(zip(labels, counts, strict=True))[:MAX_LISTED]
    )
    more = ", ..." if len(labels) > MAX_LISTED else "."
    said = [f"{len(labels)} labels: {listed}{more}"]
    alike: dict[str, list[str]] = {}
    for name in labels:
        alike.setdefault(name.casefold(), []).append(name)
    if doubles := [names for names in alike.values() if len(names) > 1]:
        listed = filesystem.list_briefly([*map(str, doubles)])
        said.append(f"WARNING: The labels {listed} differ only in case.")
    if empty := [n for n, c in zip(labels, counts, strict=True) if not c]:
        said.append(
            f"WARNING: No training example has the labels {empty[:MAX_LISTED]}:"
            " they will not be predicted."
        )
    num_rare = sum(count < 2 for count in counts)
    if len(labels) > MAX_LISTED and num_rare > len(labels) / 2:
        said.append(
            f"WARNING: {num_rare} of {len(labels)} labels occur at most once. "
            'Numbers to be predicted need "objective": "regression".'
        )
    return said


def _prefixed(part: str, scores: dict) -> dict:
    """Prefixes the names of scores with the data part's name, if any."""
    prefix = f"{part}_" if part else ""
    return {f"{prefix}{name}": value for name, value in scores.items()}
