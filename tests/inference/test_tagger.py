"""Tagger, called from Python."""

import numpy as np
import pytest

from albert_tf import Tagger, read_pretrained
from tests import tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.write_tagger(tmp_path_factory.mktemp("t"))


@pytest.fixture(scope="module")
def tagger(folder):
    return Tagger(folder)


def test_each_word_has_a_tag_and_its_place(tagger):
    texts = ["W1 w2, w3-w4 ", "w5", " ", "w6 w7"]
    found = tagger(texts)
    assert [[w["word"] for w in answer["words"]] for answer in found] == [
        ["W1", "w2", ",", "w3", "-", "w4"],
        ["w5"],
        [],
        ["w6", "w7"],
    ]
    for text, answer in zip(texts, found, strict=True):
        for word in answer["words"]:
            assert text[word["start"] : word["end"]] == word["word"]
            assert word["tag"] in tagger.labels
            assert 1 / 3 <= word["probability"] <= 1
        (alone,) = tagger([text])
        assert [w["tag"] for w in alone["words"]] == [
            w["tag"] for w in answer["words"]
        ]
        np.testing.assert_allclose(
            [w["probability"] for w in alone["words"]],
            [w["probability"] for w in answer["words"]],
            atol=1e-5,
        )


def test_spans_are_made_of_their_words(tagger):
    answers = tagger(
        [" ".join(f"w{i}" for i in range(k, 20)) for k in range(9)]
    )
    spans = [span for answer in answers for span in answer["spans"]]
    assert spans
    for answer in answers:
        inside = [w for w in answer["words"] if w["tag"] != "O"]
        places = {(s["start"], s["end"]) for s in answer["spans"]}
        for word in inside:
            assert any(a <= word["start"] < word["end"] <= b for a, b in places)
        for span in answer["spans"]:
            words = [
                w
                for w in answer["words"]
                if span["start"] <= w["start"] < span["end"]
            ]
            assert span["text"] == " ".join(w["word"] for w in words)
            assert span["label"] == "X"
            assert span["probability"] == min(w["probability"] for w in words)


def test_plain_tags_have_no_spans(tmp_path):
    tagger = Tagger(tiny.write_tagger(tmp_path, ("NOUN", "VERB")))
    (answer,) = tagger(["w1 w2"])
    assert set(answer) == {"words"}


def test_lists_of_words_are_taken_as_they_are(tagger):
    (by_text,), (by_words,) = tagger(["w1 w2"]), tagger([("w1", "w2")])
    assert by_text == by_words
    # Rows of one batch may differ by rounding.
    for answer in tagger(["w1 w2", ("w1", "w2")]):
        for found, wanted in zip(
            answer["words"], by_text["words"], strict=True
        ):
            near = pytest.approx(wanted["probability"], rel=1e-5)
            assert found == {**wanted, "probability": near}
    (answer,) = tagger([["w1, w2", "w3"]])
    assert [w["word"] for w in answer["words"]] == ["w1, w2", "w3"]
    assert tagger([]) == [] == tagger([])


def test_texts_longer_than_the_model_are_tagged_in_windows(folder):
    text = " ".join(tiny.WORDS * 5)
    (answer,) = Tagger(folder, max_seq_length=16, doc_stride=4)([text])
    assert [w["word"] for w in answer["words"]] == text.split()
    # With the whole context of the model, the first words are as alone.
    (alone,) = Tagger(folder, max_seq_length=16)([" ".join(tiny.WORDS[:14])])
    for a, b in zip(alone["words"][:5], answer["words"], strict=False):
        assert a["tag"] == b["tag"]


def test_lengths_are_those_of_the_fine_tuning(folder):
    start = read_pretrained(folder)
    start.head.lengths.update(max_seq_length=12)
    tagger = Tagger(start)
    assert (tagger.max_seq_length, tagger.doc_stride) == (12, 6)


@pytest.mark.parametrize("wrong", [None, 3, [""], ["w1", 2], {"w1": 1}])
def test_what_is_no_text_is_refused(tagger, wrong):
    with pytest.raises(ValueError, match="wanted a text, or a list of words"):
        tagger([wrong])


def test_models_of_another_kind_are_refused(tmp_path):
    folder = tiny.write_classifier(tmp_path)
    with pytest.raises(
        ValueError, match="has the head 'classes'; wanted a tag"
    ):
        Tagger(folder)
