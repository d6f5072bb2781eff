"""The answer tool: its output and its errors."""

import dataclasses

import pytest

from albert_tf import Answerer
from albert_tf.commands.answer import AnswerFlags
from albert_tf.programs import answer
from tests import tiny


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A dict from "v1" or "v2" to the folder of a model with random weights."""
    return {
        version: tiny.write_answering(tmp_path_factory.mktemp(version), version)
        for version in ("v1", "v2")
    }


def make_flags(folder, **kwargs):
    return AnswerFlags(
        init_checkpoint=str(folder),
        **{
            "question": "w1 w2\n \nw7",
            "paragraph": "w3 w4 w5 " * 20,
            "max_seq_length": 16,
            "max_query_length": 4,
            "doc_stride": 2,
            **kwargs,
        },
    )


def ask(folder, threshold=None):
    given = make_flags(folder)
    answerer = Answerer(
        folder, max_seq_length=16, max_query_length=4, doc_stride=2
    )
    if threshold is not None:
        answerer.threshold = threshold
    questions = ("w1 w2", "w7")
    return answerer([(text, given.paragraph) for text in questions])


def test_each_question_is_printed_with_its_best_answers(folders, capsys):
    answer.run(make_flags(folders["v1"], n_best_size=2))
    wanted = []
    for text, found in zip(("w1 w2", "w7"), ask(folders["v1"]), strict=True):
        wanted.append(text)
        wanted += [
            f"    {x['probability']:4.0%} {x['text']}"
            for x in found["answers"][:2]
        ]
    assert capsys.readouterr().out.splitlines() == wanted


@pytest.mark.parametrize(("shift", "says"), [(-1, "no answer: "), (1, "")])
def test_no_answer_is_printed_if_its_score_reaches_the_threshold(
    folders, tmp_path, capsys, shift, says
):
    odds = ask(folders["v2"])[0]["null_odds"]
    folder = tiny.write_answering(tmp_path, "v2", threshold=odds + shift)
    path = tmp_path / "paragraph.txt"
    path.write_text(make_flags(folder).paragraph)
    answer.run(make_flags(folder, paragraph=None, paragraph_file=str(path)))
    assert capsys.readouterr().out.splitlines()[1] == (
        f"    {says}no-answer score {odds:.2f}, threshold {odds + shift:.2f}"
    )


WRONG = {
    "no question": ({"question": " \n"}, "question"),
    "no paragraph": ({"paragraph": None}, "either --paragraph or"),
    "two paragraphs": ({"paragraph_file": "x"}, "either --paragraph or"),
    "no answers": ({"n_best_size": 0}, "--n_best_size"),
    "no tokens": ({"max_answer_length": 0}, "--max_answer_length"),
    "no text": ({"paragraph": " "}, "The paragraph is empty"),
    "no model": ({"init_checkpoint": "/nowhere"}, "/nowhere"),
    "too long": ({"max_seq_length": 33}, "the model has 32 positions"),
    "no room": ({"max_query_length": 13}, "max_seq_length=16 must exceed"),
    "no stride": ({"doc_stride": 0}, "--doc_stride=0; wanted at least 1"),
}


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_work_is_refused(folders, changes, message):
    flags = make_flags(folders["v2"])
    with pytest.raises((ValueError, OSError), match=message):
        answer.run(dataclasses.replace(flags, **changes))


def test_another_text_encoding_is_reported(folders, tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes("w3 é w4".encode("latin-1"))
    wrong = make_flags(folders["v1"], paragraph=None, paragraph_file=str(path))
    with pytest.raises(ValueError, match=r"latin\.txt is not UTF-8: .* byte 3"):
        answer.run(wrong)
