"""The tool that answers: what it prints and what it refuses."""

import dataclasses

import pytest

from albert_tf.data import answers
from albert_tf.tools import answer

FLAGS = answer.AnswerFlags(
    saved_model="/nowhere", question="Who?\n \nWhen?", paragraph="Ann, today."
)


def test_no_answer_is_said_where_the_odds_reach_the_threshold(
    tmp_path, monkeypatch, capsys
):
    asked = []

    def ask(saved_model, texts, paragraph, settings, **kwargs):
        asked.append((texts, paragraph, settings, kwargs))
        nbest = [{"text": "Ann", "probability": 0.75}]
        found = answers.Answers({}, dict.fromkeys("01", nbest), odds)
        return found, odds and [1.5]

    monkeypatch.setattr(answer, "ask", ask)
    odds = {"0": 1.0, "1": 1.5}
    (tmp_path / "paragraph.txt").write_text("Ann, today.")
    from_file = dataclasses.replace(
        FLAGS, paragraph=None, paragraph_file=str(tmp_path / "paragraph.txt")
    )
    answer.run(from_file)
    assert capsys.readouterr().out.splitlines() == [
        "Who?",
        "    odds of none 1.00, threshold 1.50",
        "     75% Ann",
        "When?",
        "    no answer: odds of none 1.50, threshold 1.50",
        "     75% Ann",
    ]
    odds = {}
    answer.run(FLAGS)
    assert "odds" not in capsys.readouterr().out
    assert asked[0] == asked[1]
    assert asked[0][:3] == (["Who?", "When?"], "Ann, today.", (384, 128, 64))


WRONG = {
    "no question": ({"question": " \n"}, "no question"),
    "no paragraph": ({"paragraph": None}, "either --paragraph or"),
    "two paragraphs": ({"paragraph_file": "x"}, "either --paragraph or"),
    "no answers": ({"n_best_size": 0}, "--n_best_size"),
    "no tokens": ({"max_answer_length": 0}, "--max_answer_length"),
    "no room": ({"max_seq_length": 66}, "--max_seq_length=66"),
    "no model": ({}, "There is no SavedModel in /nowhere"),
}


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_work_is_refused(changes, message):
    with pytest.raises((ValueError, OSError), match=message):
        answer.run(dataclasses.replace(FLAGS, **changes))
