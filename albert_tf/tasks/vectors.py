"""Vectors of texts: near for texts of the same meaning.

Shapes: N pairs, U different texts, H hidden_size.
"""

import functools
import os
from typing import NamedTuple

import numpy as np

from albert_tf import filesystem
from albert_tf.data import text_pairs
from albert_tf.data.examples import Examples
from albert_tf.export import serving
from albert_tf.metrics import vectors
from albert_tf.model import vector_heads
from albert_tf.tasks.finetuning import DROPOUT, Task
from albert_tf.tasks.recipes import VectorSettings
from albert_tf.training import manifest
from albert_tf.weights.task_heads import VECTORS, TaskHead

# The first is of dev data with scores, the second of other data.
METRICS = ("spearman", "mrr")
PREDICTIONS_FILE = "predictions.tsv"


class Part(NamedTuple):
    """The pairs of dev or test.

    Attributes:
      file: a `text_pairs.PairsFile`.
      examples: its U different texts, from `text_pairs.encode_once`.
      places: [N, 2], which of them are those of a pair.
    """

    file: text_pairs.PairsFile
    examples: Examples
    places: np.ndarray

    def score(self, found: np.ndarray) -> dict[str, float]:
        """Returns the scores of vectors [U, H]."""
        if self.file.scores is None:
            return vectors.score_ranking(found, self.places)
        cosines = vectors.cosines(found, self.places)
        return vectors.score_similarity(cosines, self.file.scores)

    @property
    def baseline(self) -> dict[str, float]:
        """The scores to expect of random vectors."""
        if self.file.scores is not None:
            return dict.fromkeys(("spearman", "pearson"), 0.0)
        return vectors.expect_ranking(len(np.unique(self.places[:, 1])))


class Vectors(Task):
    """The task of vectors of texts.

    Args:
      train: Examples of `text_pairs.encode_rows`; with `label_ids` [N], scores
        from -1 to 1, cosines are to be these. None without training data.
      parts: dict from "dev" or "test" to a Part; each is optional.
      max_seq_length: maximum length of a sequence, in tokens.
      settings: a VectorSettings.

    Example:
      >>> from albert_tf.tasks.vectors import Vectors
      >>> task = Vectors(None, {}, max_seq_length=128)
      >>> task.head.kind, task.head.pooling
      ('vectors', 'mean_all')
    """

    name = VECTORS

    def __init__(
        self,
        train: Examples | None,
        parts: dict[str, Part],
        *,
        max_seq_length: int,
        settings: VectorSettings | None = None,
    ):
        self.train, self.parts = train, parts
        self.max_seq_length = max_seq_length
        self.settings = settings or VectorSettings()
        self.num_train = len(train or ())
        has_scores = train is not None and "label_ids" in train.arrays
        self.objective = "similarity" if has_scores else "ranking"
        self.is_scored, self.is_predicted = "dev" in parts, "test" in parts
        is_ranked = self.is_scored and parts["dev"].file.scores is None
        self.best_metric = METRICS[is_ranked]
        self.head = TaskHead(
            VECTORS,
            lengths={"max_seq_length": max_seq_length},
            pooling=self.settings.pooling,
        )
        self.baseline = parts["dev"].baseline if self.is_scored else {}

    @functools.cached_property
    def made_of(self):
        data = {
            name: manifest.describe_examples(
                part.examples, part.places.tolist(), part.file.scores
            )
            | {"examples": len(part.places)}
            for name, part in self.parts.items()
        }
        if self.train is not None:
            data["train"] = manifest.describe_examples(self.train)
        made_of = {
            "task": {
                "name": self.name,
                "metrics": METRICS,
                "vectors": self.settings.pooling,
            },
            "data": data,
        }
        if self.train is not None and self.objective == "ranking":
            made_of["loss"] = {"temperature": self.settings.temperature}
        return made_of

    def build_model(self, config, dropout=DROPOUT, dtype="float32"):
        del dropout  # There is no output layer.
        return vector_heads.AlbertVectors(
            config,
            pooling=self.settings.pooling,
            objective=self.objective,
            temperature=self.settings.temperature,
            dtype=dtype,
        )

    def compute(self, tuning, examples: Examples) -> np.ndarray:
        """Returns the current model's vectors of texts, [U, H]."""
        return tuning.predict(examples)["vectors"]

    def score(self, tuning):
        part = self.parts["dev"]
        found = self.compute(tuning, part.examples)
        tuning.dev_rows = self._describe_rows(part, found)
        return part.score(found)

    def _describe_rows(self, part, found):
        """Returns a dict of each pair: its texts, score and cosine."""
        cosines = vectors.cosines(found, part.places).tolist()
        scores = part.file.scores or [None] * len(cosines)
        numbers = part.file.numbers or range(len(cosines))
        return [
            {
                "id": str(number),
                "text": list(texts[:2]),
                "label": score,
                "prediction": cosine,
            }
            for number, texts, score, cosine in zip(
                numbers, part.file.texts, scores, cosines, strict=True
            )
        ]

    def write_predictions(self, tuning):
        """Writes the cosine of each pair; returns the scores."""
        part = self.parts["test"]
        found = self.compute(tuning, part.examples)
        rows = self._describe_rows(part, found)
        lines = ["index\tcosine"]
        lines += [f"{row['id']}\t{row['prediction']:.6f}" for row in rows]
        path = os.path.join(tuning.folder, PREDICTIONS_FILE)
        filesystem.write_file(path, "".join(f"{line}\n" for line in lines))
        tuning.reporter.say(f"{len(rows)} pairs with cosines: {path}")
        name, scores = os.path.basename(part.file.path), part.score(found)
        tuning.reporter.say(f"{name}: {scores}")
        return {name: scores}

    def export(self, tuning, folder, **kwargs):
        return tuning.export(serving.export_vectors, folder, **kwargs)

    def export_text(self, tuning, folder, **kwargs):
        from albert_tf.export import text_serving

        return tuning.export(
            text_serving.export_text_vectors,
            folder,
            tokenizer=tuning.start.tokenizer,
            **kwargs,
        )
