"""Answerer, FillMask and Embedder, called from Python.

That their answers are right is tested with the programs that are made of them.
"""

import dataclasses
import logging

import numpy as np
import pytest

from albert_tf import Answerer, Embedder, FillMask, read_pretrained
from albert_tf.data.windows import WindowSettings
from albert_tf.inference import masks
from albert_tf.tasks.recipes import AnswerSettings
from albert_tf.tasks.squad import Answering
from tests import tiny

TEXTS = ["w1 w2 w3", "", "w4 w5"]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    return tiny.write_model(tmp_path_factory.mktemp("pretrained"))


@pytest.fixture(scope="module")
def answering(tmp_path_factory):
    return tiny.write_answering(tmp_path_factory.mktemp("answering"), "v2")


def test_vectors_are_rows_of_an_array(pretrained):
    means = Embedder(pretrained)(TEXTS)
    assert means.shape == (3, tiny.CONFIG.hidden_size)
    assert means.dtype == np.float32
    tokens = Embedder(pretrained, pooling="tokens")(TEXTS)
    assert [len(row["vectors"]) for row in tokens] == [3, 0, 2]
    np.testing.assert_allclose(
        tokens[0]["vectors"].mean(axis=0), means[0], atol=1e-5
    )
    parts = [TEXTS[2][start:end] for start, end in tokens[2]["offsets"]]
    assert parts == ["w4", "w5"] and len(tokens[2]["ids"]) == 2
    assert Embedder(pretrained)([]).shape == (0, tiny.CONFIG.hidden_size)


def test_a_layer_and_a_length_can_be_chosen(pretrained):
    first = Embedder(pretrained, layer=0, max_seq_length=3)
    np.testing.assert_allclose(first(["w1 w2"]), first(["w1 w9"]), atol=1e-6)
    assert abs(first(["w1"]) - Embedder(pretrained)(["w1"])).max() > 1e-3
    with pytest.raises(ValueError, match="the model has 2 layers"):
        Embedder(pretrained, layer=2)
    with pytest.raises(ValueError, match="pooling='max'; wanted"):
        Embedder(pretrained, pooling="max")


def test_vectors_of_long_texts_are_said(pretrained, caplog):
    embedder = Embedder(pretrained, max_seq_length=4)
    embedder(["w1 w2 w3", "w1"])
    embedder(["w1 w2 w3"])
    assert caplog.text.count("1 of 2 texts are truncated to 4 tokens") == 1
    assert caplog.text.count("truncated") == 1
    with pytest.raises(ValueError, match="max_seq_length=2; wanted at least 3"):
        Embedder(pretrained, max_seq_length=2)


@pytest.mark.parametrize("kind", ["masks", "answers"])
def test_text_of_another_language_is_said_once(
    pretrained, answering, caplog, kind
):
    text = "北 京 [MASK]"
    model, requests = (
        (FillMask(pretrained), [text])
        if kind == "masks"
        else (Answerer(answering), [("w1", text)])
    )
    caplog.clear()
    for _ in range(2):
        model(requests)
    (record,) = caplog.records
    assert "pieces are unknown to the vocabulary" in record.message


def test_masks_are_filled_in_batches_as_alone(pretrained, monkeypatch):
    fill_mask = FillMask(pretrained)
    texts = ["w1 [MASK]", "[MASK] w2 w3 [MASK]", "w4 w5 [MASK] w6"]
    monkeypatch.setattr(masks, "BATCH_SIZE", 2)
    together = fill_mask(texts, top_k=2)
    for found, text in zip(together, texts, strict=True):
        (alone,) = fill_mask([text], top_k=2)
        assert len(found["masks"]) == text.count("[MASK]")
        for a, b in zip(found["masks"], alone["masks"], strict=True):
            assert list(a) == list(b)
            np.testing.assert_allclose([*a.values()], [*b.values()], atol=1e-6)
        assert "in_order" not in found


def test_pairs_need_no_mask(pretrained):
    fill_mask = FillMask(pretrained)
    first, second = fill_mask([("w1", "w2 w3"), ["w4", "[MASK]"]])
    assert first["masks"] == [] and len(second["masks"]) == 1
    assert 0 < first["in_order"] < 1
    with pytest.raises(ValueError, match=r"no \[MASK\] in the text 'w1'"):
        fill_mask(["w1"])


def test_texts_and_pairs_can_be_in_one_list(pretrained):
    fill_mask = FillMask(pretrained)
    rows = ["w1 [MASK]", ("w1 [MASK]", "w2"), "[MASK] w3"]
    mixed = fill_mask(rows)
    assert ["in_order" in answer for answer in mixed] == [False, True, False]
    for found, row in zip(mixed, rows, strict=True):
        (alone,) = fill_mask([row])
        for a, b in zip(found["masks"], alone["masks"], strict=True):
            assert list(a) == list(b)
            np.testing.assert_allclose([*a.values()], [*b.values()], atol=1e-6)
    with pytest.raises(ValueError, match=r"no \[MASK\] in the text 'w4'"):
        fill_mask([("w1", "w2"), "w4"])


@pytest.mark.parametrize("empty", ["", " \n"])
def test_an_empty_next_text_is_none(pretrained, empty):
    fill_mask = FillMask(pretrained)
    assert fill_mask([("w1 [MASK]", empty)]) == fill_mask(["w1 [MASK]"])
    with pytest.raises(ValueError, match=r"no \[MASK\] in the text 'w4'"):
        fill_mask([("w4", empty)])


def test_questions_are_answered_from_their_own_paragraph(answering):
    answerer = Answerer(
        answering,
        max_seq_length=16,
        doc_stride=4,
        max_query_length=4,
        settings=AnswerSettings(n_best_size=3, null_score_diff_threshold=99.0),
    )
    pairs = [
        ("w1", "w2 w3 " * 20),
        ("w1 w4", "w5 w6 w7"),
        ("w1", "w5 w6 w7"),
        ["w8", ""],
    ]
    found = answerer(pairs)
    assert [len(x["answers"]) for x in found] == [3, 3, 3, 1]
    for (_, paragraph), answer in zip(pairs, found, strict=True):
        best = answer["answers"][0]
        assert answer["prediction"] == best["text"]
        assert paragraph[best["start"] : best["end"]] == best["text"]
        assert answer["null_odds"] < 99
    for pair, answer in zip(pairs, found, strict=True):
        (alone,) = answerer([pair])
        assert alone["prediction"] == answer["prediction"]
        np.testing.assert_allclose(
            alone["null_odds"], answer["null_odds"], atol=1e-5
        )
    answerer.threshold = -99.0
    assert {x["prediction"] for x in answerer(pairs)} == {""}
    assert answerer([]) == []


def test_an_unknown_threshold_is_said(answering, caplog):
    with caplog.at_level(logging.WARNING):
        assert Answerer(answering).threshold == 0
    assert "best no-answer threshold is unknown" in caplog.text
    caplog.clear()
    settings = AnswerSettings(null_score_diff_threshold=1.5)
    assert Answerer(answering, settings=settings).threshold == 1.5
    assert not caplog.text


def test_a_model_that_always_answers_has_no_threshold(tmp_path):
    settings = AnswerSettings(null_score_diff_threshold=0.0)
    with pytest.raises(ValueError, match="SQuAD 1.1, which always answers"):
        Answerer(tiny.write_answering(tmp_path), settings=settings)


def test_windows_are_those_of_the_fine_tuning(answering):
    windows = {"max_seq_length": 20, "doc_stride": 5, "max_query_length": 6}
    start = read_pretrained(answering)
    start.head.lengths.update(windows)
    assert Answerer(start).windows == (20, 5, 6)
    assert Answerer(start, doc_stride=4).windows == (20, 4, 6)
    assert Answerer(start, max_seq_length=16).windows == (16, 128, 6)


def test_the_beam_is_that_of_the_fine_tuning(answering):
    settings = AnswerSettings(start_n_top=20, end_n_top=3, max_answer_length=7)
    windows = WindowSettings(24, 5, 6)
    head = Answering("v2", windows, settings=settings).head
    answerer = Answerer(
        dataclasses.replace(read_pretrained(answering), head=head)
    )
    assert answerer.settings == settings
    model = answerer.model
    assert (model.start_n_top, model.end_n_top) == (20, 3)
    assert answerer([("w1", "w2 w3")])[0]["answers"]


def test_long_questions_are_said_once(answering, caplog):
    answerer = Answerer(answering, max_seq_length=16, max_query_length=2)
    caplog.clear()
    for _ in range(2):
        answerer([("w1 w2 w3", "w4 w5"), ("w1", "w4 w5")])
    (record,) = caplog.records
    assert "1 of 2 questions are truncated to 2 tokens" in record.message


class Table(list):
    """A table whose elements are the names of its columns, as in pandas."""

    columns = ("text", "label")


@pytest.mark.parametrize("kind", [Embedder, FillMask])
def test_what_is_no_list_of_texts_is_refused(pretrained, kind):
    model = kind(pretrained)
    named = {"[MASK]": "w1"}
    for wrong in ["w1 [MASK]", None, named, {*named}, Table(["[MASK]"])]:
        with pytest.raises(ValueError, match="wanted a list"):
            model(wrong)
    for wrong in [None, float("nan"), {"w1": 1, "[MASK]": 2}]:
        with pytest.raises(ValueError, match=r"texts\[1\] is .* wanted a text"):
            model(["[MASK]", wrong])


def test_texts_may_come_from_an_iterator(pretrained, answering):
    texts = ["w1 [MASK]", "[MASK] w2"]
    assert FillMask(pretrained)(iter(texts)) == FillMask(pretrained)(texts)
    assert Embedder(pretrained)(iter(texts)).shape[0] == 2
    answerer = Answerer(answering)
    assert answerer(zip(["w1"], ["w2"], strict=True)) == answerer(
        [("w1", "w2")]
    )


def test_what_is_no_question_is_refused(answering):
    answerer = Answerer(answering)
    question = {"question": "w1", "paragraph": "w2 w3"}
    for wrong in ["why", ("why", "a", "b"), question, ("w1", None), None]:
        with pytest.raises(ValueError, match="wanted pairs of a question"):
            answerer([wrong])
    for wrong in ["why", {("w1", "w2")}, None]:
        with pytest.raises(ValueError, match="wanted a list"):
            answerer(wrong)


def test_models_of_another_kind_are_refused(pretrained, tmp_path):
    with pytest.raises(ValueError, match="no head of a task; wanted a model"):
        Answerer(pretrained)
    classifier = tiny.write_classifier(tmp_path)
    with pytest.raises(ValueError, match="the head 'classes'; wanted a model"):
        Answerer(read_pretrained(classifier))
    with pytest.raises(ValueError, match="'classes'; wanted a pretrained mod"):
        FillMask(classifier)
