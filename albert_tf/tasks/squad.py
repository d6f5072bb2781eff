"""Questions about paragraphs: SQuAD 1.1, 2.0, or data in their format."""

import dataclasses
import functools
import os
import string
import unicodedata

import numpy as np
from scipy import special

from albert_tf import filesystem
from albert_tf.data import answers
from albert_tf.data.examples import Examples
from albert_tf.data.squad import Squad
from albert_tf.data.windows import WindowSettings
from albert_tf.export import serving
from albert_tf.metrics import classification
from albert_tf.metrics import squad as metrics
from albert_tf.model import span_heads
from albert_tf.tasks.finetuning import DROPOUT, Task
from albert_tf.tasks.recipes import BEAM, AnswerSettings
from albert_tf.text import normalization
from albert_tf.training import manifest
from albert_tf.weights import task_heads
from albert_tf.weights.task_heads import THRESHOLD, TaskHead

PREDICTIONS_FILE = "predictions.json"
NBEST_FILE = "nbest_predictions.json"
NULL_ODDS_FILE = "null_odds.json"
# Score of answers in Chinese, Japanese or Thai.
CHARACTER_F1 = "character_f1"


class Answering(Task):
    """Extractive question answering; in version "v2", some have no answer.

    Args:
      version: "v1" or "v2"; v2 uses a different head.
      windows: `WindowSettings` that the data was encoded with.
      train: encoded training windows, or None.
      num_train: number of training questions; 0 for those with a window.
      asked: the Squad to answer, or None.
      encoded: its encoded windows.
      settings: an AnswerSettings. Without a threshold, it is the best one on
        `asked`, or the one that the model was scored with.

    Raises:
      ValueError: if the version is unknown.

    Example:
      >>> from albert_tf import Answering
      >>> from albert_tf.data.windows import WindowSettings
      >>> task = Answering("v2", WindowSettings(384, 128, 64))
      >>> task.name, task.head.kind
      ('squad_v2', 'conditional_spans')
    """

    best_metric = "f1"

    def __init__(
        self,
        version: str,
        windows: WindowSettings,
        *,
        train: Examples | None = None,
        num_train: int = 0,
        asked: Squad | None = None,
        encoded: Examples | None = None,
        settings: AnswerSettings | None = None,
    ):
        if version not in ("v1", "v2"):
            raise ValueError(f"version={version!r}; wanted 'v1' or 'v2'.")
        self.name, self.version = f"squad_{version}", version
        self.windows, self.max_seq_length = windows, windows.max_seq_length
        self.train, self.num_train = train, num_train
        if train is not None and not num_train:
            self.num_train = len(np.unique(train.arrays["question_index"]))
        self.asked = asked or Squad([], [])
        self.encoded = encoded
        self.settings = settings or AnswerSettings()
        self.threshold = self.settings.null_score_diff_threshold
        self.beam: dict[str, int] = {}
        if version == "v2":
            self.beam = {name: getattr(self.settings, name) for name in BEAM}
            self.min_seq_length = max(self.beam.values())
        recalled = {"max_answer_length": self.settings.max_answer_length}
        self.head: TaskHead = TaskHead(
            "spans" if version == "v1" else "conditional_spans",
            lengths=windows._asdict() | recalled | self.beam,
        )
        self.is_predicted = asked is not None
        self.is_scored = self.is_predicted and self.asked.has_answers
        self.gold: dict[str, list[str]] = {}
        if self.is_scored:
            self.gold = {
                question.id: [a.text for a in question.answers or ()]
                for question in self.asked.questions
            }
            empty = dict.fromkeys(self.gold, "")
            self.baseline = self._score_predictions(empty)

    @functools.cached_property
    def made_of(self):
        data = {}
        if self.train is not None:
            data["train"] = manifest.describe_examples(self.train)
        if self.is_predicted:
            data["dev" if self.is_scored else "test"] = (
                manifest.describe_examples(
                    self._find_encoded(), self.asked.questions
                )
            )
        made_of = {
            "task": {"name": self.name},
            "windows": self.windows._asdict(),
            "answers": {
                "n_best_size": self.settings.n_best_size,
                "max_answer_length": self.settings.max_answer_length,
            },
            "data": data,
        }
        if self.version == "v2" and self.is_scored and self.train is not None:
            # The best checkpoint is chosen by these scores.
            made_of["scored_answers"] = self.beam | {THRESHOLD: self.threshold}
        return made_of

    def build_model(self, config, dropout=DROPOUT, dtype="float32"):
        if self.version == "v1":
            return span_heads.AlbertSpans(config, dtype=dtype)
        return span_heads.AlbertConditionalSpans(
            config, **self.beam, dropout_prob=dropout, dtype=dtype
        )

    def _score_predictions(self, predictions: dict[str, str]) -> dict:
        """Returns the scores of SQuAD's script.

        If most gold answers are in a script without spaces between words, whose
        F1 is little more than the exact match, there is also CHARACTER_F1.
        """
        score = {"v1": metrics.score_v1, "v2": metrics.score_v2}[self.version]
        scores = score(self.gold, predictions)
        if self._divided_gold:
            divided = {key: divide(text) for key, text in predictions.items()}
            scores[CHARACTER_F1] = score(self._divided_gold, divided)["f1"]
        return scores

    @functools.cached_property
    def _divided_gold(self) -> dict | None:
        """Gold answers with divided characters; None if most have spaces."""
        texts = [text for texts in self.gold.values() for text in texts]
        found = [any(map(normalization.is_unspaced, text)) for text in texts]
        if sum(found) <= len(found) / 2:
            return None
        return {
            key: [divide(text) for text in texts]
            for key, texts in self.gold.items()
        }

    def _find_encoded(self) -> Examples:
        """Returns the windows; raises ValueError if there are none."""
        if self.encoded is None:
            raise ValueError(
                "There are no questions: give `asked` and `encoded`."
            )
        return self.encoded

    def find_answers(self, tuning) -> answers.Answers:
        """Returns the current model's answers."""
        encoded = self._find_encoded()
        return answers.find_answers(
            self.asked,
            encoded,
            tuning.predict(encoded),
            n_best_size=self.settings.n_best_size,
            max_answer_length=self.settings.max_answer_length,
        )

    def score_answers(self, given: answers.Answers) -> tuple[dict, dict]:
        """Scores answers like SQuAD's official script.

        Returns:
          The predictions, a dict of question id -> text, and a dict of scores.
        """
        gold = self.gold
        if self.version == "v1":
            return given.best, self._score_predictions(given.best)
        best = metrics.score_best_thresholds(gold, given.best, given.null_odds)
        threshold = self.threshold
        if threshold is None:
            threshold = best["best_f1_thresh"]
            if best["best_f1"] <= self.baseline["f1"]:
                # If never answering is best, SQuAD's script returns 0.
                threshold = min(given.null_odds.values())
        predictions = answers.apply_threshold(given, threshold)
        scores = self._score_predictions(predictions)
        return predictions, {**scores, **best, THRESHOLD: threshold}

    def score(self, tuning):
        given = self.find_answers(tuning)
        predictions, scores = self.score_answers(given)
        tuning.scored_threshold = scores.get(THRESHOLD)
        tuning.dev_rows = self._describe_rows(given, predictions)
        is_constant = len(predictions) > 1 == len(set(predictions.values()))
        if is_constant and not tuning.is_within_training:
            tuning.reporter.say(
                "WARNING: The model answers every question with "
                f"{next(iter(predictions.values()))!r:.80}. "
                f"{classification.ADVICE}"
            )
        return scores

    def _describe_rows(self, given, predictions) -> list[dict]:
        """Returns a row of `dev_predictions.jsonl` for each question."""
        exact, f1 = metrics.score_questions(
            self.gold, predictions, self.version
        )
        rows = []
        for question in self.asked.questions:
            key = question.id
            probability = given.nbest[key][0]["probability"]
            if key in given.null_odds and not predictions[key]:
                probability = float(special.expit(given.null_odds[key]))
            rows.append(
                {
                    "id": key,
                    "text": [question.text],
                    "label": self.gold[key],
                    "prediction": predictions[key],
                    "probability": probability,
                    "exact": exact[key],
                    "f1": f1[key],
                }
            )
        return rows

    def write_predictions(self, tuning):
        """Writes the release's files; returns no scores of test data.

        Known answers are those of the dev data.
        """
        given = self.find_answers(tuning)
        predictions = given.best
        if self.is_scored:
            predictions, scores = self.score_answers(given)
            tuning.reporter.say(f"{PREDICTIONS_FILE}: {scores}")
            if THRESHOLD in scores and self.threshold is None:
                tuning.reporter.say(
                    f"The threshold {scores[THRESHOLD]:.4f} was chosen on "
                    "these questions: expect lower scores on others."
                )
        elif self.version == "v2":
            predictions = answers.apply_threshold(
                given, self.choose_threshold(tuning)
            )
        files = {PREDICTIONS_FILE: predictions, NBEST_FILE: given.nbest}
        if self.version == "v2":
            files[NULL_ODDS_FILE] = given.null_odds
        for name, values in files.items():
            filesystem.write_json(os.path.join(tuning.folder, name), values)
        path = os.path.join(tuning.folder, PREDICTIONS_FILE)
        tuning.reporter.say(f"{len(predictions)} answers: {path}")
        return {}

    def choose_threshold(self, tuning) -> float:
        """Returns the threshold of v2 for questions without known answers.

        It is the task's threshold, else that with which the current weights
        were scored, here or where they come from, else 0, at which answer and
        no answer are equally probable.
        """
        threshold = self.threshold
        if threshold is None:
            threshold = tuning.find_threshold()
        if threshold is None:
            threshold = 0.0
            tuning.reporter.say(
                f"WARNING: {tuning.source} was not scored, or without "
                f"{task_heads.HEAD_FILE} next to it, so its best threshold is "
                f"unknown. Give {THRESHOLD}=... if you know it."
            )
        tuning.reporter.say(
            f"Answering questions with a no-answer score below {threshold}."
        )
        return threshold

    def export(self, tuning, folder, **kwargs):
        return self._export(serving.export_spans, tuning, folder, **kwargs)

    def export_text(self, tuning, folder, **kwargs):
        from albert_tf.export import text_serving

        return self._export(
            text_serving.export_text_spans,
            tuning,
            folder,
            tokenizer=tuning.start.tokenizer,
            max_query_length=self.windows.max_query_length,
            max_answer_length=self.settings.max_answer_length,
            **kwargs,
        )

    def _export(self, write, tuning, folder, **kwargs):
        """Exports a SavedModel with the threshold that scored the model."""
        threshold = None
        if self.version == "v2":
            threshold = self.choose_threshold(tuning)
        head = dataclasses.replace(self.head, threshold=threshold)
        return tuning.export(write, folder, head, threshold=threshold, **kwargs)


def divide(text: str) -> str:
    """Returns the words of a text, without punctuation, divided by spaces.

    Characters of scripts without spaces between words are words, as in MLQA's
    script. Articles are doubled, so that SQuAD's script does not remove them.

    Example:
      >>> from albert_tf.tasks.squad import divide
      >>> divide("《红楼梦》, 1,791 A, 25℃")
      '红 楼 梦 1791 AA 25℃'
    """
    found = [""]
    for char in text:
        is_alone = found[-1] and normalization.is_unspaced(found[-1][0])
        if char.isspace():
            found.append("")
        elif (
            unicodedata.category(char)[0] == "P"
            or char in string.punctuation
            or normalization.is_invisible(char)
        ):
            continue
        elif not normalization.is_mark(char) and (
            is_alone or normalization.is_unspaced(char)
        ):
            found.append(char)
        else:
            found[-1] += char
    return " ".join(
        word if metrics.normalize_answer(word) else 2 * word
        for word in filter(None, found)
    )
