"""Metrics of answers, equal to those of SQuAD's own scripts.

Gold answers are dicts from question id to a list of texts, which is empty for
an unanswerable question; predictions are dicts from question id to a text, ""
for no answer.
"""

import collections
import functools
import operator
import re
import string
from collections.abc import Iterable

Gold = dict[str, list[str]]
Texts = dict[str, str]
Scores = dict[str, float]
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lower-cases; removes ASCII punctuation, articles, extra whitespace."""
    text = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def score_exact(gold: str, predicted: str) -> float:
    """Returns 1.0 if the normalized answers are equal, else 0.0."""
    return float(normalize_answer(gold) == normalize_answer(predicted))


def score_f1(gold: str, predicted: str) -> float:
    """Returns the word-level F1 of the normalized answers."""
    wanted, words = (normalize_answer(t).split() for t in (gold, predicted))
    shared = collections.Counter(wanted) & collections.Counter(words)
    num_shared = sum(shared.values())
    if not num_shared:
        return 0.0
    precision = num_shared / len(words)
    recall = num_shared / len(wanted)
    return 2 * precision * recall / (precision + recall)


def score_v1(gold_answers: Gold, predictions: Texts) -> Scores:
    """Returns `exact_match` and `f1` in percent, as for SQuAD 1.1.

    Source: SQuAD's evaluate-v1.1.py.
    """
    exact, f1 = score_questions(gold_answers, predictions, "v1")
    return {"exact_match": percent(exact.values()), "f1": percent(f1.values())}


def score_questions(
    gold_answers: Gold, predictions: Texts, version: str
) -> tuple[Scores, Scores]:
    """Scores each question, as for SQuAD 1.1 ("v1") or 2.0 ("v2").

    Each prediction is compared with its best-matching gold answer, or with ""
    if there is none; a question without a prediction scores 0. In "v2", gold
    answers of only punctuation and articles are ignored if there are others,
    and an answer without words is correct if the gold answer has none.

    Returns:
      Two dicts of question id -> exact match and F1, from 0 to 1.

    Source: SQuAD's evaluate-v1.1.py and evaluate-v2.0.py.
    """
    exact, f1 = {}, {}
    for question_id, texts in gold_answers.items():
        if version == "v2":
            texts = [text for text in texts if normalize_answer(text)]
        texts = texts or [""]
        predicted = predictions.get(question_id)
        if predicted is None:
            exact[question_id] = f1[question_id] = 0.0
            continue
        exact[question_id] = max(score_exact(t, predicted) for t in texts)
        f1[question_id] = max(score_f1(t, predicted) for t in texts)
        is_empty = "" in texts or not normalize_answer(predicted)
        if version == "v2" and is_empty:
            f1[question_id] = exact[question_id]
    return exact, f1


def score_v2(gold_answers: Gold, predictions: Texts) -> Scores:
    """Scores predictions after thresholding, as for SQuAD 2.0.

    Returns:
      Dict of `exact` and `f1` in percent and `total`, the number of questions;
      also with the prefixes `HasAns_` and `NoAns_` for answerable and
      unanswerable questions, if there are any.
    """
    exact, f1 = score_questions(gold_answers, predictions, "v2")
    values = {
        "exact": percent(exact.values()),
        "f1": percent(f1.values()),
        "total": float(len(exact)),
    }
    for prefix, has_answer in (("HasAns", True), ("NoAns", False)):
        ids = [
            i for i, texts in gold_answers.items() if any(texts) == has_answer
        ]
        if ids:
            values |= {
                f"{prefix}_exact": percent(exact[i] for i in ids),
                f"{prefix}_f1": percent(f1[i] for i in ids),
                f"{prefix}_total": float(len(ids)),
            }
    return values


def score_best_thresholds(
    gold_answers: Gold, best: Texts, null_odds: Scores
) -> Scores:
    """Finds the thresholds that maximize the scores.

    The predictions here are never "no answer"; large odds mean that a question
    has no answer.

    Returns:
      Dict of `best_exact`, `best_exact_thresh`, `best_f1` and
      `best_f1_thresh`.

    Source: SQuAD's evaluate-v2.0.py, `find_all_best_thresh`, which answers a
    question if its odds are at most the threshold.
    """
    values = {}
    scores = score_questions(gold_answers, best, "v2")
    for name, by_question in zip(("exact", "f1"), scores, strict=True):
        value, threshold = find_best_threshold(
            gold_answers, best, by_question, null_odds
        )
        values[f"best_{name}"] = value
        values[f"best_{name}_thresh"] = threshold
    return values


def find_best_threshold(
    gold_answers, best, scores, null_odds
) -> tuple[float, float]:
    """Returns the best score in percent, and its threshold."""
    has_answer = {i: any(texts) for i, texts in gold_answers.items()}
    current = top = float(sum(not has for has in has_answer.values()))
    threshold = 0.0  # Of no answers at all, as in SQuAD's script.
    for question_id in sorted(
        (i for i in null_odds if i in scores), key=null_odds.__getitem__
    ):
        if has_answer[question_id]:
            current += scores[question_id]
        elif best.get(question_id):
            current -= 1
        if current > top:
            top, threshold = current, null_odds[question_id]
    return 100.0 * top / len(scores), float(threshold)


def percent(values: Iterable[float]) -> float:
    """Returns the mean of values from 0 to 1, in percent."""
    values = list(values)
    # Added one by one: since Python 3.12, `sum` corrects for rounding, and the
    # last digits would differ from the official ones.
    return 100.0 * functools.reduce(operator.add, values) / len(values)
