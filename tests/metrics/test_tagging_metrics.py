"""Metrics of tagged words: against seqeval's and against naive formulas."""

import json
import pathlib

import numpy as np
import pytest

from albert_tf.metrics import tagging

RECORDED = pathlib.Path(__file__).parent.parent / "golden" / "seqeval.json"


def random_case(rng):
    """Draws gold and predicted tags, as many of them odd as not."""
    tags = ["O", *(f"{p}-{x}" for p in "BIIES" for x in ("PER", "LOC", "A-B"))]
    gold, predicted = [], []
    for _ in range(rng.integers(1, 4)):
        row = list(rng.choice(tags, rng.integers(1, 9)))
        is_kept = rng.random(len(row)) < 0.7
        other = rng.choice(tags, len(row))
        gold.append(row)
        predicted.append(list(np.where(is_kept, row, other)))
    return gold, predicted


def record(path):
    """Writes random cases and what seqeval computes for them."""
    from seqeval import metrics
    from seqeval.metrics import sequence_labeling

    rng = np.random.default_rng(46)
    cases = []
    for _ in range(200):
        gold, predicted = random_case(rng)
        report = metrics.classification_report(
            gold, predicted, output_dict=True, zero_division=0
        )
        names = ("f1-score", "precision", "recall", "support")
        cases.append(
            {
                "gold": [" ".join(row) for row in gold],
                "predicted": [" ".join(row) for row in predicted],
                "spans": [
                    [[x, first, last + 1] for x, first, last in entities]
                    for entities in map(sequence_labeling.get_entities, gold)
                ],
                "accuracy": metrics.accuracy_score(gold, predicted),
                "types": {
                    label: [float(values[name]) for name in names]
                    for label, values in report.items()
                    if "weighted" not in label and "macro" not in label
                },
            }
        )
    lines = ",\n".join(map(json.dumps, cases))
    pathlib.Path(path).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


@pytest.fixture(scope="module")
def cases():
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def split(rows):
    return [row.split() for row in rows]


def test_spans_equal_those_of_seqeval(cases):
    assert len(cases) == 200
    for case in cases:
        for tags, wanted in zip(case["gold"], case["spans"], strict=True):
            found = tagging.find_spans(tags.split())
            assert found == [tuple(span) for span in wanted], tags


def test_scores_equal_those_of_seqeval(cases):
    for case in cases:
        gold, predicted = split(case["gold"]), split(case["predicted"])
        wanted = case["types"]
        found = tagging.score(gold, predicted)
        overall = wanted.pop("micro avg")[:3]
        assert [*found.values()][:3] == pytest.approx(overall)
        assert found["eval_accuracy"] == pytest.approx(case["accuracy"])
        types = tagging.score_types(gold, predicted)
        assert list(types) == sorted(wanted)
        for label, values in types.items():
            assert [*values] == ["f1", "precision", "recall", "support"]
            assert [*values.values()] == pytest.approx(wanted[label])
        f1 = [value for value, *_ in wanted.values()]
        assert found["macro_f1"] == pytest.approx(np.mean(f1 or [0]))


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        ("B-X I-X B-X", [("X", 0, 2), ("X", 2, 3)]),
        ("I-X B-X O I-X I-Y", [("X", 0, 1), ("X", 1, 2), ("X", 3, 4)]),
        ("U-X L-X L-X", [("X", 0, 1), ("X", 1, 2), ("X", 2, 3)]),
        ("B-X I-X L-X I-X", [("X", 0, 3), ("X", 3, 4)]),
        ("B-X M-X E-X S-X", [("X", 0, 3), ("X", 3, 4)]),
        ("B-A-B I-A-B", [("A-B", 0, 2)]),
        ("O NOUN B I B- X-Y", []),
        ("", []),
    ],
)
def test_spans_of_other_schemes_and_plain_tags(tags, wanted):
    found = tagging.find_spans(tags.split())
    assert found == wanted + [("Y", 4, 5)] * ("I-Y" in tags)


def test_plain_tags_are_scored_word_by_word():
    gold = [["DET", "NOUN"], ["VERB", "NOUN", "O"]]
    predicted = [["DET", "NOUN"], ["NOUN", "DET", "ADJ"]]
    found = tagging.score(gold, predicted)
    assert list(found) == ["eval_accuracy", "macro_f1"]
    assert found["eval_accuracy"] == pytest.approx(2 / 5)
    # ADJ is not in gold, and counts as in seqeval; O and VERB are never right.
    assert found["macro_f1"] == pytest.approx((2 / 3 + 1 / 2 + 0 + 0 + 0) / 5)
    types = tagging.score_types(gold, predicted)
    assert list(types) == ["ADJ", "DET", "NOUN", "O", "VERB"]
    assert types["DET"] == {
        "f1": pytest.approx(2 / 3),
        "precision": 0.5,
        "recall": 1.0,
        "support": 1,
    }
    assert types["ADJ"]["f1"] == types["ADJ"]["support"] == 0


def test_macro_f1_is_of_all_labels_that_occur():
    found = tagging.score([["B-X", "O"]], [["B-X", "B-Y"]])
    assert found["macro_f1"] == 1 / 2
    assert found["f1"] == pytest.approx(2 / 3)


def test_nothing_to_find_scores_zero():
    found = tagging.score([["O", "O"]], [["O", "O"]])
    assert found.pop("eval_accuracy") == 1
    assert set(found.values()) == {0.0}
    assert set(tagging.score([], []).values()) == {0.0}
    assert tagging.score_types([], []) == {}


def test_other_numbers_of_sentences_or_words_are_refused():
    with pytest.raises(ValueError, match="1 sentences are predicted; wanted 2"):
        tagging.score([["O"], ["O"]], [["O"]])
    with pytest.raises(ValueError, match="Sentence 1 has 2 .* for 1 words"):
        tagging.score_types([["O"], ["O"]], [["O"], ["O", "O"]])
