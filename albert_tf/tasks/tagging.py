"""Tagging: a tag for each word, as of named entities or parts of speech.

Shapes: N windows, W words of all sentences, C tags.
"""

import functools
import itertools
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.data import tagged, word_windows
from albert_tf.data.examples import NO_LABEL, Examples
from albert_tf.export import serving
from albert_tf.metrics import classification, tagging
from albert_tf.model import tag_heads
from albert_tf.tasks.classification import describe_labels
from albert_tf.tasks.finetuning import DROPOUT, Task
from albert_tf.training import manifest
from albert_tf.weights.task_heads import TaskHead

KIND = "tags"


class Part(NamedTuple):
    """The sentences of train, dev or test.

    Attributes:
      file: a `tagged.TaggedFile`.
      examples: their windows, from `word_windows.encode_sentences`.
    """

    file: tagged.TaggedFile
    examples: Examples

    @property
    def tags(self) -> list[list[str]]:
        """The tags of each sentence; none if they are unknown."""
        return [sentence.tags or [] for sentence in self.file.sentences]


class Tagging(Task):
    """The task of tagging words.

    Args:
      parts: dict from "train", "dev" or "test" to a Part; each is optional.
      labels: C tags in the order of the model's outputs.
      max_seq_length: maximum length of a sequence, in tokens.
      doc_stride: as for `word_windows.encode_sentences`.

    Example:
      >>> from albert_tf.tasks.tagging import Tagging
      >>> labels = ["O", "B-LOC", "I-LOC"]
      >>> task = Tagging({}, labels, max_seq_length=128, doc_stride=64)
      >>> task.head.kind, task.best_metric
      ('tags', 'f1')
    """

    name = "tagging"

    def __init__(
        self,
        parts: dict[str, Part],
        labels: Sequence[str],
        *,
        max_seq_length: int,
        doc_stride: int,
    ):
        self.parts, self.labels = parts, tuple(labels)
        self.max_seq_length, self.doc_stride = max_seq_length, doc_stride
        are_spans = all(map(tagging.is_span_tag, self.labels))
        self.best_metric = "f1" if are_spans else "eval_accuracy"
        lengths = {"max_seq_length": max_seq_length, "doc_stride": doc_stride}
        self.head = TaskHead(KIND, self.labels, lengths=lengths)
        self.train = parts["train"].examples if "train" in parts else None
        self.num_train = len(self.train or ())
        self.is_scored, self.is_predicted = "dev" in parts, "test" in parts
        self.baseline = self._score_baseline() if self.is_scored else {}

    @functools.cached_property
    def made_of(self):
        return {
            "task": {
                "name": self.name,
                "metrics": [self.best_metric],
                "tags": self.labels,
            },
            "data": {
                name: manifest.describe_examples(part.examples)
                for name, part in self.parts.items()
            },
        }

    def describe_data(self):
        if "train" not in self.parts:
            return []
        sentences = self.parts["train"].file.sentences
        tags = self._index(self.parts["train"])  # [W]
        counts = np.bincount(tags, minlength=len(self.labels)).tolist()
        # Spans of a label may all have one word, and then no I-.
        occurring = {
            label: count
            for label, count in zip(self.labels, counts, strict=True)
            if count
        }
        return [
            f"{len(sentences):,} sentences of {len(tags):,} words.",
            *describe_labels([*occurring], [*occurring.values()]),
        ]

    def build_model(self, config, dropout=DROPOUT, dtype="float32"):
        return tag_heads.AlbertTagger(
            config,
            num_labels=len(self.labels),
            dropout_prob=dropout,
            dtype=dtype,
        )

    def _index(self, part):
        """Returns the index of each word's tag, [W]; NO_LABEL if unknown."""
        known = {label: i for i, label in enumerate(self.labels)}
        tags = itertools.chain.from_iterable(part.tags)
        return np.array([known.get(tag, NO_LABEL) for tag in tags], np.int32)

    def _name(self, part, logits) -> list[list[str]]:
        """Returns the tags of each sentence for logits [W, C]."""
        names = (self.labels[i] for i in logits.argmax(axis=1))
        return [
            list(itertools.islice(names, len(sentence.words)))
            for sentence in part.file.sentences
        ]

    def predict(self, tuning, examples: Examples) -> np.ndarray:
        """Returns the current model's logits of each word, [W, C]."""
        logits = tuning.predict(examples)["logits"]  # [N, T, C]
        return word_windows.take_words(logits, examples)

    def _score(self, part, logits):
        """Returns the scores of logits [W, C], and the tags they give."""
        label_ids = self._index(part)
        is_known = label_ids != NO_LABEL
        loss = classification.loss(
            logits[is_known], label_ids[is_known], "classes"
        )
        predicted = self._name(part, logits)
        return (
            {"eval_loss": loss, **tagging.score(part.tags, predicted)},
            predicted,
        )

    def _score_baseline(self):
        """Returns the scores on dev of the most frequent tag of all."""
        part = self.parts["dev"]
        known = self._index(self.parts.get("train", part))
        counts = np.bincount(known[known >= 0], minlength=len(self.labels))
        logits = np.log((counts + 0.5) / (counts + 0.5).sum())  # [C]
        num_words = sum(len(s.words) for s in part.file.sentences)
        return self._score(part, np.tile(logits, (num_words, 1)))[0]

    def score(self, tuning):
        part = self.parts["dev"]
        logits = self.predict(tuning, part.examples)
        scores, predicted = self._score(part, logits)
        tuning.dev_rows = [
            {
                "id": str(number),
                "text": sentence.words,
                "label": sentence.tags,
                "prediction": tags,
            }
            for number, (sentence, tags) in enumerate(
                zip(part.file.sentences, predicted, strict=True)
            )
        ]
        label_ids = self._index(part)
        is_known = label_ids != NO_LABEL
        self.warn_of_collapse(
            tuning, logits[is_known], label_ids[is_known], "classes", scores
        )
        return scores

    def write_predictions(self, tuning):
        """Writes the test data with predicted tags, in their own form.

        Tags of spans are in their own scheme; if they have none, or that of the
        training data fits them as well, in that, or in IOB2. Returns scores if
        the tags are known.
        """
        part = self.parts["test"]
        logits = self.predict(tuning, part.examples)
        file, ending = part.file, os.path.splitext(part.file.path)[1]
        is_tagged = all(s.tags is not None for s in file.sentences)
        train = self.parts.get("train")
        usual = train.file.scheme if train else "IOB2"
        if not is_tagged or tagged.fits(file, usual):
            file = file._replace(scheme=usual)
        path = os.path.join(tuning.folder, f"predictions{ending}")
        tagged.write_tagged(path, file, self._name(part, logits))
        tuning.reporter.say(f"{len(logits)} words with tags: {path}")
        if not is_tagged:
            return {}
        scores, _ = self._score(part, logits)
        name = os.path.basename(part.file.path)
        tuning.reporter.say(f"{name}: {scores}")
        return {name: scores}

    def export(self, tuning, folder, **kwargs):
        return tuning.export(
            serving.export_tagger, folder, labels=self.labels, **kwargs
        )

    def export_text(self, tuning, folder, **kwargs):
        from albert_tf.export import text_tags

        return tuning.export(
            text_tags.export_text_tagger,
            folder,
            labels=self.labels,
            tokenizer=tuning.start.tokenizer,
            doc_stride=self.doc_stride,
            **kwargs,
        )
