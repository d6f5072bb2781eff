"""SQuAD's JSON: what is read, and what is refused."""

import json
import logging

import pytest

from albert_tf.data import squad
from albert_tf.data.squad import Answer

CONTEXT = "The cat sat. The cat ran."
ANSWERED = {
    "id": "q2",
    "question": "Who sat?",
    "answers": [{"text": "cat", "answer_start": 4}],
}


def document(*others, context=CONTEXT, **changes):
    qa = {
        "id": "q1",
        "question": "Who ran?",
        "answers": [{"text": "cat", "answer_start": 17}],
        **changes,
    }
    qa = {name: value for name, value in qa.items() if value is not ...}
    qas = [qa, *others]
    return {"data": [{"paragraphs": [{"context": context, "qas": qas}]}]}


def read(tmp_path, content):
    path = tmp_path / "squad.json"
    if not isinstance(content, (str, bytes)):
        content = json.dumps(content)
    if isinstance(content, str):
        content = content.encode()
    path.write_bytes(content)
    return squad.read_squad(str(path))


def test_answers_keep_their_stated_position(tmp_path, caplog):
    found = read(tmp_path, document())
    assert found.contexts == [CONTEXT]
    assert found.questions == [
        squad.Question("q1", "Who ran?", 0, (Answer("cat", 17),))
    ]
    assert found.has_answers
    assert not caplog.text


@pytest.mark.parametrize(
    ("stated", "found"),
    [
        ({"text": "cat", "answer_start": 16}, Answer("cat", 17)),
        ({"text": "cat", "answer_start": 6}, Answer("cat", 4)),
        ({"text": "cat", "answer_start": -1}, Answer("cat", 4)),
        ({"text": "cat", "answer_start": 900}, Answer("cat", 17)),
        ({"text": " ran.\n", "answer_start": 20}, Answer("ran.", 21)),
        ({"text": "The", "answer_start": -1}, Answer("The", 0)),
        ({"text": "The", "answer_start": 10**30}, Answer("The", 13)),
    ],
)
def test_a_misplaced_answer_moves_to_its_nearest_occurrence(
    tmp_path, caplog, stated, found
):
    with caplog.at_level(logging.WARNING):
        read_again = read(tmp_path, document(answers=[stated]))
    assert read_again.questions[0].answers == (found,)
    assert "1 of 1 questions, such as q1" in caplog.text


@pytest.mark.parametrize(
    ("changes", "answers"),
    [
        ({"answers": ...}, None),
        ({"answers": []}, ()),
        ({"is_impossible": True}, ()),
        ({"is_impossible": True, "answers": ...}, ()),
        ({"is_impossible": False, "answers": []}, None),
        ({"is_impossible": False}, (Answer("cat", 17),)),
    ],
)
def test_no_answer_and_an_unknown_answer_differ(tmp_path, changes, answers):
    found = read(tmp_path, document(ANSWERED, **changes))
    assert found.questions[0].answers == answers
    assert found.has_answers == (answers is not None)


@pytest.mark.parametrize("is_marked", [False, True])
def test_answers_are_unknown_if_all_are_missing(tmp_path, caplog, is_marked):
    """Test data are often written with empty lists."""
    marked = {"is_impossible": True} if is_marked else {}
    found = read(
        tmp_path, document(ANSWERED | {"answers": []}, answers=[], **marked)
    )
    assert found.has_answers == is_marked
    assert ("no question has an answer" in caplog.text) != is_marked


def test_what_is_not_used_is_said(tmp_path, caplog):
    read(tmp_path, document(answer="cat", is_impossible=True))
    assert "fields of questions that are not used: answer." in caplog.text
    assert "1 of 1 questions, such as q1, are marked is_imp" in caplog.text


def test_answers_that_occur_nowhere_are_counted(tmp_path, caplog):
    answers = [{"text": "cow", "answer_start": 3}]
    read(tmp_path, document(ANSWERED, answers=answers))
    assert (
        "1 of 2 questions, such as q1, have answers that are n" in caplog.text
    )
    assert "1 of them, such as q1, have answers that are not in" in caplog.text


def test_the_first_of_equally_near_occurrences_is_used(tmp_path):
    stated = {"text": "b", "answer_start": 3}
    found = read(tmp_path, document(context="a b c b", answers=[stated]))
    assert found.questions[0].answers == (Answer("b", 2),)
    stated = {"text": "b", "answer_start": 4}
    found = read(tmp_path, document(context="a b c b", answers=[stated]))
    assert found.questions[0].answers == (Answer("b", 2),)


def test_answers_are_known_only_where_all_are(tmp_path):
    found = read(tmp_path, document({"id": 2, "question": "Who sat?"}))
    assert [question.id for question in found.questions] == ["q1", "2"]
    assert not found.has_answers


def test_a_broken_paragraph_is_named(tmp_path):
    broken = document()
    broken["data"] *= 2
    paragraphs = broken["data"][0]["paragraphs"]
    broken["data"][1] = {"paragraphs": [{"qas": []}, *paragraphs]}
    with pytest.raises(ValueError, match="paragraph 1 of article 2: lacks"):
        read(tmp_path, broken)


def test_paragraphs_may_be_empty_and_unicode(tmp_path):
    found = read(tmp_path, document(context="", answers=[]))
    assert found.contexts == [""]
    context = "Ünïcödé – 北京 👩‍👩‍👧 é."
    start = context.index("👩")
    answers = [{"text": "👩‍👩‍👧", "answer_start": start}]
    found = read(tmp_path, document(context=context, answers=answers))
    assert found.questions[0].answers == (Answer("👩‍👩‍👧", start),)


BROKEN = {
    "no JSON": ('{"data": [', "is not JSON: .*truncated"),
    "a list": ([], r"squad\.json: found JSON of type list"),
    "null": ("null", "found JSON of type NoneType"),
    "an empty file": ("", "is not JSON: it is empty"),
    "nothing but NULs": (b"\0" * 9, "is not JSON: it is empty"),
    "too deep": ("[" * 100_000, "nested too deeply"),
    "half a pair": (
        document(question="\ud83d"),
        "contains an unpaired surrogate",
    ),
    "articles by name": ({"data": {"a": {}}}, "data: found .*, wanted a list"),
    "text for an article": (
        {"data": ["a"]},
        "article 1: found 'a', wanted an object",
    ),
    "null for paragraphs": (
        {"data": [{"paragraphs": None}]},
        "article 1: paragraphs: found None, wanted a list",
    ),
    "one answer outside a list": (
        document(answers={"text": "cat", "answer_start": 17}),
        "question q1: answers: found .*, wanted a list",
    ),
    **{
        f"{question_id} for an id": (
            document(id=question_id),
            "paragraph 1 of article 1: id: found .*, wanted a string",
        )
        for question_id in (None, True, 4.5, ["q1"])
    },
    "no data": ({}, "lacks 'data'"),
    "no questions": ({"data": []}, "has no questions"),
    "no context": (
        {"data": [{"paragraphs": [{"qas": []}]}]},
        "paragraph 1 of article 1: lacks 'context'",
    ),
    "no question": (document(question=...), "question q1: lacks 'question'"),
    "no id": (document(id=...), "lacks 'id'"),
    "a number for a question": (document(question=3), "wanted a string"),
    "null for a context": (document(context=None), "wanted a string"),
    "no answer_start": (
        document(answers=[{"text": "cat"}]),
        "question q1: lacks 'answer_start'",
    ),
    **{
        f"{start} for an answer_start": (
            document(answers=[{"text": "cat", "answer_start": start}]),
            "question q1: answer_start: found .*, wanted a whole number",
        )
        for start in (None, "4", 4.5, True, float("inf"), float("nan"))
    },
    "a word for is_impossible": (
        document(is_impossible="false"),
        "question q1: is_impossible: found 'false', wanted true or false",
    ),
    "a blank answer": (
        document(answers=[{"text": " \u200b", "answer_start": 3}]),
        "question q1: an answer is empty; .*is_impossible",
    ),
    "a key twice": (
        '{"data": [], "data": []}',
        r"squad\.json: an object has the key 'data' twice",
    ),
    "no UTF-8": (b'{"data": "\xff"}', "is not JSON"),
}


@pytest.mark.parametrize(("content", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_refused(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, content)


def test_an_answer_must_be_in_its_paragraph_only_for_training(tmp_path):
    answers = [{"text": "dog", "answer_start": 0}]
    found = read(tmp_path, document(answers=answers))
    assert found.questions[0].answers == (Answer("dog", squad.NOWHERE),)
    with pytest.raises(ValueError, match="q1: the answer 'dog' is not in its"):
        squad.check_version(found, "v1", "x")


def test_only_the_first_answer_must_be_in_its_paragraph(tmp_path):
    answers = [
        {"text": "cat", "answer_start": 4},
        {"text": "dog", "answer_start": 0},
    ]
    squad.check_version(read(tmp_path, document(answers=answers)), "v1", "x")


def test_empty_questions_are_logged(tmp_path, caplog):
    read(tmp_path, document(question=" \u200b"))
    assert "1 questions are empty" in caplog.text


def test_duplicate_ids_are_refused(tmp_path):
    twice = document()
    twice["data"] *= 2
    with pytest.raises(ValueError, match="id q1 twice"):
        read(tmp_path, twice)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.json"):
        squad.read_squad(str(tmp_path / "nowhere.json"))


def test_training_data_must_match_the_version(tmp_path):
    squad.check_version(read(tmp_path, document()), "v1", "x")
    empty = read(tmp_path, document(ANSWERED, answers=[]))
    squad.check_version(empty, "v2", "x")
    with pytest.raises(ValueError, match="squad_version=v2"):
        squad.check_version(empty, "v1", "x")
    unknown = read(tmp_path, document(answers=...))
    for version in ("v1", "v2"):
        with pytest.raises(ValueError, match="training requires answers"):
            squad.check_version(unknown, version, "x")
