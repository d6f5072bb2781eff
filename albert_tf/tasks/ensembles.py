"""Ensembles: several fine-tuned models that answer together.

The best results of the paper are those of ensembles (section 4.9).

Shapes: N examples, M models, S spans that all models propose in a window.
"""

import dataclasses
import functools
import os
from collections.abc import Sequence

import numpy as np
from scipy import special

from albert_tf import filesystem
from albert_tf.data.examples import Examples
from albert_tf.model import layers, modeling
from albert_tf.tasks.finetuning import FineTuning, Task
from albert_tf.tasks.recipes import Recipe
from albert_tf.training import evaluation, manifest
from albert_tf.weights import checkpoints, pretrained, task_heads


class Ensemble(FineTuning):
    """Fine-tuned models whose outputs are averaged, see `average`.

    A task scores it and writes its predictions as those of one model. It is not
    trained or exported, and computes all layers.

    Args:
      folder: folder for results, in which nothing was trained.
      task: a Task.
      models: M models, each a `pretrained.Pretrained` or what `read_pretrained`
        takes. They have the same vocabulary; their sizes may differ.
      recipe: a Recipe, of which batches of prediction and the data type count.
      strategy: a tf.distribute.Strategy; None for the current one.
      flags: dict to record as the flags of the run.

    Attributes:
      models: M `pretrained.Complete`, outputs of their heads in the order of
        the task's.

    Raises:
      ValueError: if a model was not fine-tuned for the task, or has another
        vocabulary than the first; if there are fewer than two.

    Example:
      >>> from albert_tf import Answering
      >>> from albert_tf.data.windows import WindowSettings
      >>> task = Answering("v1", WindowSettings(384, 128, 64))
      >>> Ensemble("out", task, ["run_1"])
      Traceback (most recent call last):
      ValueError: An ensemble of 1 model; wanted two or more.
    """

    computes_all_layers = True

    def __init__(
        self,
        folder: str | os.PathLike,
        task: Task,
        models: Sequence,
        recipe: Recipe | None = None,
        *,
        strategy=None,
        flags: dict | None = None,
    ):
        if len(models) < 2:
            raise ValueError(
                f"An ensemble of {len(models)} model; wanted two or more."
            )
        self.models = [pretrained.complete(model) for model in models]
        _check_folder(folder, self.models)
        weights = [manifest.digest(model.values) for model in self.models]
        self._weights = {"sha256": manifest.digest({}, sorted(weights))}
        first = self.models[0]
        super().__init__(
            folder, task, first, recipe, strategy=strategy, flags=flags
        )
        self._check_models()
        if len({*weights}) < len(weights):
            self.reporter.say(
                "WARNING: Some of the models have the same weights, and count "
                f"several times: {self.restore_best()}."
            )
        self.models = [
            dataclasses.replace(model, values=self._read_values(model))
            for model in self.models
        ]
        # The session has a model of the first.
        self._by_config = {
            first.config: evaluation.Predictor(
                self.session.strategy, self.model
            )
        }
        for model in self.models:  # An error now, not after others predicted.
            self._restore(model)
        self.source = self.restore_best()

    def _check_models(self):
        """Raises ValueError if a model does not belong to the others."""
        first, head = self.start, self.task.head
        for model in self.models[1:]:
            self._check_start(model, model.config)
            own = model.tokenizer.settings  # Maybe not as it is recorded.
            pretrained.check_same_vocabulary(
                dataclasses.replace(model, tokenizer_settings=own),
                first.tokenizer.settings,
            )
        for model in self.models:
            theirs, ours = (x and x.pooling for x in (model.head, head))
            if theirs and theirs != ours:
                raise ValueError(
                    f"{model.source} has vectors of the pooling {theirs!r}, "
                    f"the ensemble of {ours!r}."
                )
        # What is guessed of labels is that of one model.
        known = [
            (model.source, model.head.labels)
            for model in self.models
            if head and model.head and model.head.kind == head.kind
        ]
        if not (head and head.labels) or len({x for _, x in known if x}) < 2:
            return
        wanted = sorted(map(str.casefold, head.labels))
        for source, labels in known:
            if labels and sorted(map(str.casefold, labels)) != wanted:
                raise ValueError(
                    f"{source} has the labels {list(labels)}, the task "
                    f"{list(head.labels)}, and other models others. If they "
                    "mean the same, correct the labels next to the models."
                )

    def describe_weights(self):
        return self._weights

    def _restore(self, model):
        """Returns a Predictor with a model's weights."""
        if model.config not in self._by_config:
            strategy = self.session.strategy
            dtype = layers.POLICIES[self.session.compute_dtype]
            with strategy.scope():
                built = self._build_model(dtype, model.config)
            self._by_config[model.config] = evaluation.Predictor(
                strategy, built
            )
        predictor = self._by_config[model.config]
        weights = modeling.named_weights(predictor.model)
        checkpoints.restore(weights, model.values, model.source)
        return predictor

    def restore_best(self) -> str:
        """Returns the models' sources; each is restored when it predicts."""
        return ", ".join(model.source for model in self.models)

    def find_threshold(self) -> float | None:
        """Returns the threshold of "no answer", or None.

        It is that of the last scores, or the mean of the models' thresholds, as
        the scores of "no answer" are means, too.
        """
        if self.scored_threshold is not None:
            return self.scored_threshold
        known = [
            model.head.threshold
            for model in self.models
            if model.head and model.head.kind == "conditional_spans"
        ]
        thresholds = [x for x in known if x is not None]
        if len(thresholds) < len(self.models):
            return None
        return float(np.mean(thresholds))

    def predict(
        self, examples: Examples, exit_threshold: float | None = None
    ) -> dict[str, np.ndarray]:
        """Returns the averaged outputs for examples, as `FineTuning.predict`.

        Raises:
          ValueError: if `exit_threshold` is not None.
        """
        if exit_threshold is not None:
            raise ValueError(
                f"exit_threshold={exit_threshold:g}, but an ensemble computes "
                "all layers. Give it a task without exit_threshold."
            )
        return average(
            [
                self._run(self._restore(model), examples)
                for model in self.models
            ],
            self.task.head.kind if self.task.head else None,
        )

    def train(self):
        """Raises ValueError."""
        raise ValueError(
            "An ensemble is not trained: train its models, each in a folder of "
            "its own."
        )

    def export(self, *_, **__):
        """Raises ValueError."""
        raise ValueError("An ensemble is not exported: export its models.")


def _check_folder(folder, models):
    """Raises ValueError if a folder for results has a training or a model."""
    if task_heads.find_trained(folder):
        raise ValueError(
            f"{folder} has checkpoints of a training; wanted another folder "
            "for the results of the ensemble."
        )
    folders = [filesystem.folder_of(model.source) for model in models]
    if filesystem.identity(folder) in map(filesystem.identity, folders):
        raise ValueError(
            f"{folder} has one of the models; wanted another folder for the "
            "results of the ensemble."
        )


def average(
    outputs: Sequence[dict[str, np.ndarray]], kind: str | None
) -> dict[str, np.ndarray]:
    """Averages the outputs of M models for N examples.

    `kind` is the kind of their head, see `task_heads.TaskHead`: "classes",
    "choices" and "tags" get logits of the mean probabilities, "multi_label" of
    those of each label, and "vectors" vectors whose cosines are the means;
    "conditional_spans" a beam with all spans, of which a model without a span
    gives it a probability of 0. Scores of "spans", of no answer and all others
    are means of logits or values: they are compared between windows, for which
    probabilities within one say nothing.

    Returns:
      Dict from name to [N, ...], as of one model.

    Example:
      >>> import numpy as np
      >>> logits = [np.log([[0.5, 0.5]]), np.log([[0.9, 0.1]])]
      >>> mean = average([{"logits": x} for x in logits], "classes")
      >>> np.exp(mean["logits"]).round(2)
      array([[0.7, 0.3]])
    """
    if kind == "conditional_spans":
        return _join_beams(outputs)
    function = _AVERAGES.get(kind or "", _mean)
    return {
        name: (function if name in ("logits", "vectors") else _mean)(
            [output[name] for output in outputs]
        )
        for name in outputs[0]
    }


def _mean(values):
    """Returns the means of M arrays [N, ...]."""
    return np.mean(values, axis=0)


def _log_mean(function, logits):
    """Returns the logarithms of the means of exp(function(x)), [N, ...].

    Two arrays are held at a time, as those of all models may be large.
    """
    log_probs = (function(np.asarray(x, np.float64)) for x in logits)
    return functools.reduce(np.logaddexp, log_probs) - np.log(len(logits))


def _average_classes(logits):
    """Returns the logarithms of the mean probabilities, [N, ..., C]."""
    return _log_mean(lambda x: special.log_softmax(x, axis=-1), logits)


def _average_labels(logits):
    """Returns the logits of the mean probabilities of each label, [N, C]."""
    is_absent = _log_mean(lambda x: special.log_expit(-x), logits)
    return _log_mean(special.log_expit, logits) - is_absent


def _join_vectors(vectors):
    """Returns vectors [N, M * H] whose products are the models' means."""
    return np.concatenate(vectors, axis=-1) / len(vectors) ** 0.5


_AVERAGES = {
    **dict.fromkeys(("classes", "choices", "tags"), _average_classes),
    "multi_label": _average_labels,
    task_heads.VECTORS: _join_vectors,
}


def _join_beams(outputs):
    """Returns beams of all models' spans, [N, S], with one end for each start.

    A span of several models is there several times, with the same scores.
    """
    num_models = len(outputs)
    parts = {name: [x[name] for x in outputs] for name in outputs[0]}
    starts, start_probs, ends, end_probs = (
        np.concatenate(parts.pop(name), axis=1)
        for name in (
            "start_top_index",
            "start_top_log_probs",
            "end_top_index",
            "end_top_log_probs",
        )
    )  # [N, M * K] and [N, M * K * J]
    num_ends = ends.shape[1] // starts.shape[1]  # J
    start_means = _mean_of_equal(starts, start_probs, num_models)
    starts, start_probs, start_means = (
        np.repeat(x, num_ends, axis=1)
        for x in (starts, start_probs, start_means)
    )  # [N, S]
    spans = starts * (1 + ends.max(initial=0)) + ends
    span_means = _mean_of_equal(spans, start_probs + end_probs, num_models)
    return {
        "start_top_index": starts,
        "start_top_log_probs": start_means,
        "end_top_index": ends,
        "end_top_log_probs": span_means - start_means,
        **{name: _mean(values) for name, values in parts.items()},
    }


def _mean_of_equal(keys, log_probs, num_models):
    """Returns the logarithms of mean probabilities, [N, S].

    The probabilities of equal keys of a row are those of different models; that
    of a model without the key is 0.
    """
    rows = np.arange(len(keys))[:, np.newaxis] * (1 + keys.max(initial=0))
    _, places = np.unique(rows + keys, return_inverse=True)
    places = places.ravel()
    sums = np.full(1 + places.max(initial=0), -np.inf)
    np.logaddexp.at(sums, places, log_probs.astype(np.float64).ravel())
    return sums[places].reshape(keys.shape) - np.log(num_models)
