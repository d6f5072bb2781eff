"""Scores of answers, as SQuAD's own scripts compute them.

Gold answers are dicts from question id to a list of texts, empty where there
is no answer; predictions from question id to a text, "" for no answer.
"""

import collections
import re
import string
from collections.abc import Iterable

Gold = dict[str, list[str]]
Texts = dict[str, str]
Scores = dict[str, float]
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lower-cases; drops ASCII punctuation, articles and extra white space."""
    text = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def score_exact(gold: str, predicted: str) -> float:
    """Returns 1.0 if two answers are equal once normalized, else 0.0."""
    return float(normalize_answer(gold) == normalize_answer(predicted))


def score_f1(gold: str, predicted: str) -> float:
    """Returns the F1 of the words that two answers share, once normalized."""
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

    The gold answer that fits best counts, "" where there is none; a question
    without a prediction scores 0.

    Source: SQuAD's evaluate-v1.1.py.
    """
    values = {}
    for name, score in (("exact_match", score_exact), ("f1", score_f1)):
        values[name] = percent(
            max(score(text, predictions[question_id]) for text in texts or [""])
            if question_id in predictions
            else 0.0
            for question_id, texts in gold_answers.items()
        )
    return values


def score_questions(
    gold_answers: Gold, predictions: Texts
) -> tuple[Scores, Scores]:
    """Scores each question as for SQuAD 2.0.

    Other than in 1.1, gold answers that are nothing but punctuation and
    articles do not count where there are others, and an answer without words
    is right where the gold answer has none.

    Returns:
      Two dicts of question id -> exact match and F1, from 0 to 1.

    Source: SQuAD's evaluate-v2.0.py.
    """
    exact, f1 = {}, {}
    for question_id, texts in gold_answers.items():
        texts = [text for text in texts if normalize_answer(text)] or [""]
        predicted = predictions.get(question_id)
        if predicted is None:
            exact[question_id] = f1[question_id] = 0.0
            continue
        exact[question_id] = max(score_exact(t, predicted) for t in texts)
        f1[question_id] = max(score_f1(t, predicted) for t in texts)
        if "" in texts or not normalize_answer(predicted):
            f1[question_id] = exact[question_id]
    return exact, f1


def score_v2(gold_answers: Gold, predictions: Texts) -> Scores:
    """Scores predictions, below the threshold or "", as for SQuAD 2.0.

    Returns:
      Dict of `exact`, `f1` and `total`, in percent and questions, and the same
      of those with (`HasAns_`) and without (`NoAns_`) an answer, if any.
    """
    exact, f1 = score_questions(gold_answers, predictions)
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
    """Finds the thresholds with which predictions would score best.

    Predictions are here never "no answer"; the larger the odds of a question,
    the less there is an answer.

    Returns:
      Dict of `best_exact`, `best_exact_thresh`, `best_f1` and
      `best_f1_thresh`.

    Source: SQuAD's evaluate-v2.0.py, `find_all_best_thresh`; it answers where
    the odds are at most the threshold.
    """
    values = {}
    scores = score_questions(gold_answers, best)
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
    """Returns the best score in percent, and the odds up to which to answer."""
    has_answer = {i: any(texts) for i, texts in gold_answers.items()}
    current = top = float(sum(not has for has in has_answer.values()))
    threshold = 0.0
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
    """Returns 100 times the mean of values from 0 to 1."""
    values = list(values)
    return 100.0 * sum(values) / len(values)
