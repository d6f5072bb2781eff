"""SQuAD's scores: the official numbers of official predictions, and by hand."""

import json

import numpy as np
import pytest

from albert_tf.data import squad as reader
from albert_tf.metrics import squad


def read(shared, name):
    questions = reader.read_squad(str(shared / "data/squad" / name)).questions
    return {q.id: [answer.text for answer in q.answers] for q in questions}


def predictions(shared, name):
    path = shared / "data/squad/predictions" / name
    return json.loads(path.read_text())


@pytest.mark.parametrize(
    ("name", "exact", "f1"),
    [
        ("v1.1_bert_ensemble.json", 86.20624408703878, 92.19557978351145),
        ("v1.1_match_lstm.json", 67.63481551561021, 76.75556184979695),
    ],
)
def test_version_1_matches_the_official_scores(shared, name, exact, f1):
    gold = read(shared, "dev-v1.1.json")
    assert squad.score_v1(gold, predictions(shared, name)) == {
        "exact_match": exact,
        "f1": f1,
    }


def test_version_2_matches_the_official_scores(shared):
    gold = read(shared, "dev-v2.0.part.json")
    found = predictions(shared, "v2.0_bert.json")
    assert squad.score_v2(gold, found) == {
        "exact": 71.22408687068115,
        "f1": 74.85808190686036,
        "total": 6078,
        "HasAns_exact": 72.16494845360825,
        "HasAns_f1": 79.75512777659726,
        "HasAns_total": 2910,
        "NoAns_exact": 70.35984848484848,
        "NoAns_f1": 70.35984848484848,
        "NoAns_total": 3168,
    }
    odds = predictions(shared, "v2.0_bert_null_odds.json")
    assert squad.score_best_thresholds(gold, found, odds) == {
        "best_exact": 73.01743994735111,
        "best_exact_thresh": -6.868708610534668,
        "best_f1": 76.06377432237126,
        "best_f1_thresh": -6.845048308372498,
    }


@pytest.mark.parametrize("length", [384, 128])
def test_the_releases_scores_are_reproduced(recordings, length):
    folder = recordings / "squad"
    for version, name in (("v1", "exact_match"), ("v2", "exact")):
        data = reader.read_squad(str(folder / f"{version}_data.json"))
        gold = {q.id: [a.text for a in q.answers] for q in data.questions}
        case = f"{version}_{length}_lower"
        found = json.loads((folder / f"{case}_predictions.json").read_text())
        score = squad.score_v1 if version == "v1" else squad.score_v2
        values = score(gold, found)
        wanted = json.loads((folder / f"{case}_eval.json").read_text())
        # Version 2's thresholds are below 1 here; above it, the release counts
        # questions as not answered because it takes logits for probabilities.
        for key in (name, "f1"):
            np.testing.assert_allclose(values[key], wanted[key])


@pytest.mark.parametrize(
    ("gold", "predicted", "exact", "f1"),
    [
        ("The Cat!", "cat", 1, 1),
        ("a cat", "an  the CAT.", 1, 1),
        ("black cat", "cat", 0, 2 / 3),
        ("cat cat", "cat", 0, 2 / 3),
        ("cat", "dog", 0, 0),
        ("another", "nother", 0, 0),
        ("12–3", "123", 0, 0),
        ("12-3", "123", 1, 1),
    ],
)
def test_answers_are_normalized_before_comparison(gold, predicted, exact, f1):
    assert squad.score_exact(gold, predicted) == exact
    np.testing.assert_allclose(squad.score_f1(gold, predicted), f1)
    found = squad.score_v1({"q": ["xyz", gold]}, {"q": predicted})
    np.testing.assert_allclose([*found.values()], [100 * exact, 100 * f1])


def test_answers_without_words_are_scored_as_each_version_does():
    gold, found = {"q": ["the"]}, {"q": "a"}
    assert squad.score_v1(gold, found) == {"exact_match": 100, "f1": 0}
    assert squad.score_questions(gold, found, "v2") == ({"q": 1}, {"q": 1})
    gold = {"q": ["the", "cat"]}
    assert squad.score_v1(gold, found)["exact_match"] == 100
    assert squad.score_questions(gold, found, "v2") == ({"q": 0}, {"q": 0})


def test_questions_without_answer_or_prediction_count():
    gold = {"has": ["cat"], "none": [], "lost": ["dog"]}
    found = squad.score_v2(gold, {"has": "black cat", "none": ""})
    third = 100 / 3
    np.testing.assert_allclose(
        [found["exact"], found["f1"], found["HasAns_f1"], found["NoAns_f1"]],
        [third, 5 / 3 * third, third, 100],
    )
    assert squad.score_v1(gold, {"has": "cat"})["f1"] == third
    only = squad.score_v2({"has": ["cat"]}, {"has": "cat"})
    assert "NoAns_exact" not in only


def test_version_1_treats_no_answer_as_an_empty_one():
    gold = {"q": [], "r": ["cat"]}
    for predicted, exact in (("", 50), ("cat", 0)):
        found = squad.score_v1(gold, {"q": predicted})
        assert found["exact_match"] == exact


def test_odds_of_other_questions_are_ignored():
    gold = {"a": ["cat"], "b": [], "c": ["cat"]}
    best = {"a": "cat", "b": "dog", "x": "cat"}
    found = squad.score_best_thresholds(
        gold, best, {"a": 1.0, "b": 2.0, "x": 0.0, "y": 9.0, "z": -3.0}
    )
    np.testing.assert_allclose(found["best_f1"], 200 / 3)
    assert found["best_f1_thresh"] == 1.0


def test_the_best_threshold_equals_an_exhaustive_search():
    rng = np.random.default_rng(4)
    ids = [f"q{i}" for i in range(40)]
    gold = {i: ["cat"] if rng.random() < 0.8 else [] for i in ids}
    best = {i: rng.choice(["cat", "cat", "black cat", "dog", ""]) for i in ids}
    odds = {i: float(rng.normal()) for i in ids}
    found = squad.score_best_thresholds(gold, best, odds)
    for name in ("exact", "f1"):
        values = {
            t: squad.score_v2(
                gold, {i: best[i] if odds[i] <= t else "" for i in ids}
            )[name]
            for t in odds.values()
        }
        top = max(values.values())
        np.testing.assert_allclose(found[f"best_{name}"], top)
        np.testing.assert_allclose(values[found[f"best_{name}_thresh"]], top)
