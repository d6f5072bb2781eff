"""RACE: multiple-choice questions about a passage.

RACE's own have four options; those of other data may have two to six.

Shapes: N questions, C options, padding included.
"""

import functools
import os
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from albert_tf.data import race, submissions
from albert_tf.data.examples import Examples
from albert_tf.metrics import classification
from albert_tf.model import heads
from albert_tf.tasks.finetuning import DROPOUT, Task
from albert_tf.training import manifest
from albert_tf.weights.task_heads import TaskHead

METRICS = ("eval_accuracy",)


class Part(NamedTuple):
    """The questions of train, dev or test.

    Attributes:
      questions: N questions.
      examples: their encoded examples, with `label_ids` [N]; -1 for unknown.
    """

    questions: list[race.Question]
    examples: Examples


class MultipleChoice(Task):
    """The RACE task, or that of other questions with options.

    Args:
      parts: dict from "train", "dev" or "test" to a Part; each is optional.
      max_seq_length: maximum length of passage, question and option together,
        in tokens.
      max_qa_length: maximum length of question and option together, in tokens.

    Example:
      >>> from albert_tf import MultipleChoice
      >>> task = MultipleChoice({}, max_seq_length=512, max_qa_length=128)
      >>> task.head.kind, task.best_metric
      ('choices', 'eval_accuracy')
    """

    best_metric = METRICS[0]

    def __init__(
        self, parts: dict[str, Part], *, max_seq_length: int, max_qa_length: int
    ):
        self.parts = parts
        for name in parts.keys() - {"test"}:
            check_answers(name, parts[name].questions)
        levels = {
            level_of(q) for part in parts.values() for q in part.questions
        }
        self.name = "race" if levels <= {*race.LEVELS} else "choices"
        self.max_seq_length = max_seq_length
        self.max_qa_length = max_qa_length
        self.head = TaskHead(
            "choices",
            lengths={
                "max_seq_length": max_seq_length,
                "max_qa_length": max_qa_length,
            },
        )
        self.train = parts["train"].examples if "train" in parts else None
        self.num_train = len(self.train or ())
        self.is_scored, self.is_predicted = "dev" in parts, "test" in parts
        self.baseline = self._score_baseline() if self.is_scored else {}

    @functools.cached_property
    def made_of(self):
        return {
            "task": {"name": self.name, "max_qa_length": self.max_qa_length},
            "data": {
                name: manifest.describe_examples(part.examples)
                for name, part in self.parts.items()
            },
        }

    def build_model(self, config, dropout=DROPOUT, dtype="float32"):
        return heads.AlbertMultipleChoice(
            config, dropout_prob=dropout, dtype=dtype
        )

    def _score_baseline(self):
        """Returns the constant baseline's scores on the dev data."""
        questions, encoded = self.parts["dev"]
        known = (self.train or encoded).arrays["label_ids"]
        return score_levels(
            lambda labels, is_option: classification.baseline(
                known, labels, "classes", METRICS, is_possible=is_option
            ),
            questions,
            encoded.arrays["label_ids"],
            encoded.lengths.reshape(len(questions), -1) > 0,  # [N, C]
        )

    def score(self, tuning):
        questions, encoded = self.parts["dev"]
        logits = tuning.predict(encoded)["logits"]
        label_ids = encoded.arrays["label_ids"]
        scores = score_levels(score_logits, questions, logits, label_ids)
        probabilities = classification.probabilities(logits, "classes")
        tuning.dev_rows = [
            {
                "id": question.id,
                "text": question.choices,
                "label": race.LETTERS[label],
                "prediction": race.LETTERS[row.argmax()],
                "probabilities": row[: len(question.choices)].tolist(),
            }
            for question, label, row in zip(
                questions, label_ids, probabilities, strict=True
            )
        ]
        self.warn_of_collapse(tuning, logits, label_ids, "classes", scores)
        return scores

    def write_predictions(self, tuning):
        """Writes an answer per question; returns scores if labels are known.

        `predictions.tsv` contains the questions' ids, `test_results.tsv` the
        probabilities: C columns, 0 for options that a question does not have.
        """
        questions, encoded = self.parts["test"]
        logits = tuning.predict(encoded)["logits"]
        letters = [race.LETTERS[i] for i in logits.argmax(axis=1)]
        path = os.path.join(tuning.folder, "predictions.tsv")
        submissions.write_submission(path, [q.id for q in questions], letters)
        submissions.write_test_results(
            os.path.join(tuning.folder, "test_results.tsv"),
            classification.probabilities(logits, "classes"),
        )
        tuning.reporter.say(f"{len(letters)} answers: {path}")
        label_ids = encoded.arrays["label_ids"]
        if (label_ids < 0).any():
            return {}
        scores = score_levels(score_logits, questions, logits, label_ids)
        tuning.reporter.say(f"test: {scores}")
        return {"test": scores}


def level_of(question: race.Question) -> str:
    """Returns the level that a question is of."""
    return question.id.split("/")[0]


def score_levels(
    score: Callable, questions: list[race.Question], *arrays: np.ndarray
) -> dict:
    """Scores all questions and, if there are two levels, each level.

    Args:
      score: function from arrays of some questions to a dict of scores.
      questions: N questions.
      *arrays: arguments of `score`, [N, ...] each.

    Returns:
      Dict of scores; the level prefixes the names of its scores.
    """
    values = score(*arrays)
    levels = np.array([level_of(question) for question in questions])
    for level in race.LEVELS:
        is_in = levels == level
        if is_in.any() and not is_in.all():
            scores = score(*(array[is_in] for array in arrays))
            values |= {f"{level}_{name}": v for name, v in scores.items()}
    return values


def score_logits(logits: np.ndarray, label_ids: np.ndarray) -> dict:
    """Returns loss and accuracy of logits [N, C]."""
    return classification.score(logits, label_ids, "classes", METRICS)


def check_answers(name: str, questions) -> None:
    """Raises ValueError if a question has no answer."""
    unknown = [q.id for q in questions if q.label is None]
    if unknown:
        raise ValueError(
            f"{name} has {len(unknown)} questions without an answer, such as "
            f"{unknown[0]}; wanted an answer to each. Is it the test data?"
        )
