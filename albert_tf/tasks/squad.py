"""Questions about paragraphs: SQuAD 1.1, 2.0, and what is written like it."""

import functools
import os

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
from albert_tf.tasks.finetuning import Task
from albert_tf.training import evaluation, manifest
from albert_tf.weights.checkpoints import STEP

PREDICTIONS_FILE = "predictions.json"
NBEST_FILE = "nbest_predictions.json"
NULL_ODDS_FILE = "null_odds.json"
THRESHOLD = "null_score_diff_threshold"


class Answering(Task):
    """Answers are spans of a paragraph; in version "v2" maybe none.

    Args:
      version: "v1" or "v2", which has another head.
      windows: what the data was cut into.
      train: windows of questions to train on, or None.
      num_train: those questions.
      asked: the Squad to answer, or None.
      encoded: its windows.
      n_best_size: answers of each question in `nbest_predictions.json`.
      max_answer_length: tokens of the longest answer.
      start_n_top: v2: starts of the beam.
      end_n_top: v2: ends of the beam for each start.
      dropout: v2: before the logit that there is no answer.
      threshold: v2: answers where the odds of none are below it; None for
        the best on `asked`, or the one the model was scored with.
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
        n_best_size: int = 20,
        max_answer_length: int = 30,
        start_n_top: int = 5,
        end_n_top: int = 5,
        dropout: float = 0.1,
        threshold: float | None = None,
    ):
        self.name, self.version = f"squad_{version}", version
        self.windows, self.max_seq_length = windows, windows.max_seq_length
        self.train, self.num_train = train, num_train
        self.asked = asked or Squad([], [])
        self.encoded = encoded
        self.n_best_size = n_best_size
        self.max_answer_length = max_answer_length
        self.start_n_top, self.end_n_top = start_n_top, end_n_top
        if version == "v2":
            self.min_seq_length = max(start_n_top, end_n_top)
        self.dropout, self.threshold = dropout, threshold
        self.is_predicted = asked is not None
        self.is_scored = self.is_predicted and self.asked.has_answers
        self.gold: dict[str, list[str]] = {}
        if self.is_scored:
            self.gold = {
                question.id: [a.text for a in question.answers or ()]
                for question in self.asked.questions
            }
            self.baseline = self._score_silence()

    @functools.cached_property
    def made_of(self):
        data = {}
        if self.train is not None:
            data["train"] = manifest.describe_examples(self.train)
        if self.is_predicted:
            data["dev" if self.is_scored else "test"] = (
                manifest.describe_examples(self.encoded, self.asked.questions)
            )
        return {
            "task": {"name": self.name},
            "windows": self.windows._asdict(),
            "answers": {
                "n_best_size": self.n_best_size,
                "max_answer_length": self.max_answer_length,
            },
            "data": data,
        }

    def build_model(self, config, dtype="float32"):
        if self.version == "v1":
            return span_heads.AlbertSpans(config, dtype=dtype)
        return span_heads.AlbertConditionalSpans(
            config,
            start_n_top=self.start_n_top,
            end_n_top=self.end_n_top,
            dropout_prob=self.dropout,
            dtype=dtype,
        )

    def _score_silence(self):
        """What it gets to answer nothing at all."""
        silence = dict.fromkeys(self.gold, "")
        if self.version == "v1":
            return metrics.score_v1(self.gold, silence)
        return metrics.score_v2(self.gold, silence)

    def find_answers(self, tuning) -> answers.Answers:
        """Returns what the model, as it stands, answers."""
        if self.encoded is None:
            raise ValueError("Nothing is asked: give `asked` and `encoded`.")
        return answers.find_answers(
            self.asked,
            self.encoded,
            tuning.predict(self.encoded),
            n_best_size=self.n_best_size,
            max_answer_length=self.max_answer_length,
        )

    def score_answers(self, given: answers.Answers) -> tuple[dict, dict]:
        """Scores answers as SQuAD's script of the version does.

        Returns:
          The predictions, a dict of question id -> text, and a dict of scores.
        """
        gold = self.gold
        if self.version == "v1":
            return given.best, metrics.score_v1(gold, given.best)
        best = metrics.score_best_thresholds(gold, given.best, given.null_odds)
        threshold = self.threshold
        if threshold is None:
            threshold = best["best_f1_thresh"]
            if best["best_f1"] <= self.baseline["f1"]:
                # SQuAD's script says 0 where it is best never to answer.
                threshold = min(given.null_odds.values())
        predictions = answers.apply_threshold(given, threshold)
        scores = metrics.score_v2(gold, predictions)
        return predictions, {**scores, **best, THRESHOLD: threshold}

    def score(self, tuning):
        given = self.find_answers(tuning)
        predictions, scores = self.score_answers(given)
        tuning.dev_rows = self._describe_rows(given, predictions)
        if len(predictions) > 1 and len(set(predictions.values())) == 1:
            tuning.reporter.say(
                "WARNING: The model answers every question with "
                f"{next(iter(predictions.values()))!r:.80}. "
                f"{classification.ADVICE}"
            )
        return scores

    def _describe_rows(self, given, predictions) -> list[dict]:
        """A row of `dev_predictions.jsonl` for each question."""
        exact, f1 = metrics.score_questions(self.gold, predictions)
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
        """Writes the release's files; returns scores where they can be had."""
        given = self.find_answers(tuning)
        predictions, scores = given.best, dict[str, float]()
        if self.is_scored:
            predictions, scores = self.score_answers(given)
            if THRESHOLD in scores and self.threshold is None:
                tuning.reporter.say(
                    f"The threshold {scores[THRESHOLD]:.4f} is the best for "
                    "these very questions: expect less on others."
                )
        elif self.version == "v2":
            predictions = answers.apply_threshold(
                given,
                self.choose_threshold(tuning, os.path.dirname(tuning.source)),
            )
        files = {PREDICTIONS_FILE: predictions, NBEST_FILE: given.nbest}
        if self.version == "v2":
            files[NULL_ODDS_FILE] = given.null_odds
        for name, values in files.items():
            filesystem.write_json(os.path.join(tuning.folder, name), values)
        path = os.path.join(tuning.folder, PREDICTIONS_FILE)
        tuning.reporter.say(f"{len(predictions)} answers: {path}")
        return scores

    def choose_threshold(self, tuning, folder) -> float:
        """Returns the threshold of v2 where no answers are at hand.

        That is the task's, else the one with which the best evaluation in a
        folder was scored, else 0, where both are equally probable. Of several
        evaluations of one step, such as 0 for models from elsewhere, the last
        counts.
        """
        threshold = self.threshold
        if threshold is None:
            rows = evaluation.read_results(folder)
            rows = {row[STEP]: row for row in rows if THRESHOLD in row}.values()
            best = max(
                rows, key=lambda row: row["f1"], default={THRESHOLD: 0.0}
            )
            threshold = best[THRESHOLD]
        tuning.reporter.say(
            f"Answers where the odds of none are below {threshold}."
        )
        return threshold

    def export(self, tuning, folder):
        return self._export(serving.export_spans, tuning, folder)

    def export_text(self, tuning, folder):
        from albert_tf.export import text_serving

        return self._export(
            text_serving.export_text_spans,
            tuning,
            folder,
            tokenizer=tuning.start.tokenizer,
            max_query_length=self.windows.max_query_length,
            max_answer_length=self.max_answer_length,
        )

    def _export(self, write, tuning, folder, **kwargs):
        """Writes a SavedModel with the threshold that scored the model."""
        threshold = None
        if self.version == "v2":
            is_here = self.is_scored
            beside = (
                tuning.folder if is_here else os.path.dirname(tuning.source)
            )
            threshold = self.choose_threshold(tuning, beside)
        return tuning.export(write, folder, threshold=threshold, **kwargs)
