"""The answer tool: its output and its errors."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.commands.answer import AnswerFlags
from albert_tf.data import answers
from albert_tf.export import requests, saved_models, serving, text_serving
from albert_tf.model import heads, span_heads
from albert_tf.programs import answer
from albert_tf.text import tokenization
from tests import tiny
from tests.conftest import ROOT

ASSETS = ("albert_config.json", "tokenizer_settings.json", "vocab.txt")
FLAGS = AnswerFlags(
    saved_model="/nowhere", question="Who?\n \nWhen?", paragraph="Ann, today."
)


def test_no_answer_is_printed_if_its_score_reaches_the_threshold(
    tmp_path, monkeypatch, capsys
):
    asked = []

    def ask(saved_model, texts, paragraph, lengths, **kwargs):
        asked.append((texts, paragraph, kwargs))
        nbest = [{"text": "Ann", "probability": 0.75}]
        found = answers.Answers({}, dict.fromkeys("01", nbest), odds)
        return found, 1.5 if odds else None

    monkeypatch.setattr(answer, "ask", ask)
    odds = {"0": 1.0, "1": 1.5}
    (tmp_path / "paragraph.txt").write_text("Ann, today.")
    from_file = dataclasses.replace(
        FLAGS, paragraph=None, paragraph_file=str(tmp_path / "paragraph.txt")
    )
    answer.run(from_file)
    assert capsys.readouterr().out.splitlines() == [
        "Who?",
        "    no-answer score 1.00, threshold 1.50",
        "     75% Ann",
        "When?",
        "    no answer: no-answer score 1.50, threshold 1.50",
        "     75% Ann",
    ]
    odds = {}
    answer.run(FLAGS)
    assert "odds" not in capsys.readouterr().out
    assert asked[0] == asked[1]
    assert asked[0][:2] == (["Who?", "When?"], "Ann, today.")


WRONG = {
    "no question": ({"question": " \n"}, "--question is empty"),
    "no paragraph": ({"paragraph": None}, "either --paragraph or"),
    "two paragraphs": ({"paragraph_file": "x"}, "either --paragraph or"),
    "no answers": ({"n_best_size": 0}, "--n_best_size"),
    "no tokens": ({"max_answer_length": 0}, "--max_answer_length"),
    "no text": ({"paragraph": " "}, "The paragraph is empty"),
    "no model": ({}, "There is no SavedModel in /nowhere"),
}


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_work_is_refused(changes, message):
    with pytest.raises((ValueError, OSError), match=message):
        answer.run(dataclasses.replace(FLAGS, **changes))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answer")
    tiny.write_model(folder)
    contents = saved_models.Contents(assets=[folder / name for name in ASSETS])
    kwargs = {"max_seq_length": 16, "contents": contents}
    model = span_heads.AlbertConditionalSpans(tiny.CONFIG)
    serving.export_spans(folder / "spans", model, **kwargs)
    model = heads.AlbertClassifier(tiny.CONFIG, num_labels=2)
    serving.export_classifier(folder / "classes", model, **kwargs)
    serving.export_spans(
        folder / "no vocabulary",
        span_heads.AlbertSpans(tiny.CONFIG),
        max_seq_length=16,
    )
    (folder / "torn").mkdir()
    (folder / "torn/saved_model.pb").write_bytes(b"\0torn")
    return folder


def make_flags(folder, model="spans", **kwargs):
    return AnswerFlags(
        saved_model=str(folder / model),
        question="w1 w2",
        **{
            "paragraph": "w3 w4 w5 " * 200,
            "max_seq_length": 16,
            "max_query_length": 4,
            "doc_stride": 2,
            **kwargs,
        },
    )


def test_windows_are_answered_in_batches(folder, capsys, monkeypatch):
    asked = []
    answer_windows = answer.answer_windows

    def compare_batches(serve, encoded):
        asked.append(len(encoded))
        outputs = answer_windows(serve, encoded)
        monkeypatch.setattr(answer, "BATCH_SIZE", len(encoded))
        for name, values in answer_windows(serve, encoded).items():
            assert len(values) == len(encoded)
            np.testing.assert_allclose(outputs[name], values, atol=1e-5)
        return outputs

    monkeypatch.setattr(answer, "answer_windows", compare_batches)
    paragraph = " ".join(f"w{i * i % 19}" for i in range(150))
    answer.run(make_flags(folder, paragraph=paragraph))
    assert "no threshold was exported" in capsys.readouterr().out
    assert asked[0] > 2 * 32 and asked[0] % 32


def test_a_model_without_spans_is_refused(tmp_path):
    spec = [tf.TensorSpec([None, None], tf.int32, n) for n in requests.FEATURES]
    call = tf.function(lambda *x: {"logits": x[0]}, input_signature=spec)
    tf.saved_model.save(tf.Module(), str(tmp_path / "other"), call)
    with pytest.raises(ValueError, match=r"found one from .* to \['logits'\]"):
        answer.run(make_flags(tmp_path, "other"))


UNFIT = {
    "a classifier": ({"model": "classes"}, "does not answer questions from"),
    "no vocabulary": ({"model": "no vocabulary"}, "has no vocabulary"),
    "a torn model": ({"model": "torn"}, "cannot be loaded as a SavedModel"),
    "too long": (
        {"max_seq_length": 17},
        r"longer than the max_seq_length .* 17 tokens",
    ),
    "no room": ({"max_query_length": 13}, "max_seq_length=16 must exceed"),
    "no answers": ({"n_best_size": 0}, "--n_best_size=0; wanted at least 1"),
    "no stride": ({"doc_stride": 0}, "--doc_stride=0; wanted at least 1"),
    "no paragraph": ({"paragraph": None}, "Give either --paragraph"),
}


@pytest.mark.parametrize(("changes", "message"), UNFIT.values(), ids=UNFIT)
def test_what_cannot_be_answered_is_refused(folder, changes, message):
    with pytest.raises(ValueError, match=message):
        answer.run(make_flags(folder, **changes))


def test_an_export_that_takes_text_is_named(tmp_path):
    """In a new process, which has not loaded tensorflow-text."""
    tiny.write_model(tmp_path)
    text_serving.export_text_spans(
        str(tmp_path / "text"),
        span_heads.AlbertSpans(tiny.CONFIG),
        tokenizer=tokenization.build_tokenizer(
            vocab_file=str(tmp_path / "vocab.txt")
        ),
        max_seq_length=32,
        max_query_length=8,
    )
    found = subprocess.run(
        [sys.executable, "-m", "albert_tf", "answer", "--question=w1"]
        + ["--paragraph=w2", f"--saved_model={tmp_path / 'text'}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert found.returncode == 1
    assert "does not answer questions from ids" in found.stderr


def test_another_text_encoding_is_reported(folder, tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes("w3 é w4".encode("latin-1"))
    wrong = dataclasses.replace(
        make_flags(folder), paragraph=None, paragraph_file=str(path)
    )
    with pytest.raises(ValueError, match=r"latin\.txt is not UTF-8: .* byte 3"):
        answer.run(wrong)


def test_a_folder_named_with_brackets_is_read(folder, tmp_path, capsys):
    model = span_heads.AlbertSpans(tiny.CONFIG)
    path = serving.export_spans(
        tmp_path / "a[0-9]*?b",
        model,
        max_seq_length=16,
        contents=saved_models.Contents(
            assets=[folder / name for name in ASSETS]
        ),
    )
    assert tf.io.gfile.exists(path)
    answer.run(make_flags(tmp_path, "a[0-9]*?b"))
    assert "%" in capsys.readouterr().out
