"""DREAM and C3: what is read, and what is refused."""

import json

import pytest

from albert_tf.data import dream

QUESTION = {
    "question": "Where are they?",
    "choice": ["At home.", "On a plane.", "On a train."],
    "answer": "On a plane.",
}
PASSAGE = [["W: Yes, Sir. You called?", "M: Yes."], [QUESTION], "2-77"]


def write(folder, content, name="dev.json"):
    path = folder / name
    if not isinstance(content, str):
        content = json.dumps(content, ensure_ascii=False)
    path.write_text(content, encoding="utf-8")
    return str(path)


def test_the_files_of_a_part_are_found(tmp_path):
    for name in (
        "dev.json",
        "train.json",
        "mydev.json",
        "dev.txt",
        "._c3-d-dev.json",
    ):
        write(tmp_path, [], name)
    assert dream.find_files(str(tmp_path), "dev") == [
        str(tmp_path / "dev.json")
    ]
    both = [write(tmp_path, [], f"c3-{kind}-test.json") for kind in "dm"]
    assert dream.find_files(str(tmp_path), "test") == both
    assert dream.find_files(str(tmp_path / "absent"), "test") == []


def test_turns_and_questions_are_read(tmp_path):
    unknown = {"question": "Why?", "choice": ["a", "b"]}
    other = [
        ["他不喜欢刮风。"],
        [unknown, {**QUESTION, "answer": "At home."}],
        7,
    ]
    found = dream.read_dream([write(tmp_path, [PASSAGE, other])])
    assert [q.id for q in found] == ["dev/2-77/0", "dev/7/0", "dev/7/1"]
    assert found[0].article == "W: Yes, Sir. You called?\nM: Yes."
    assert found[0].choices[2] == "Where are they? On a train."
    assert [len(q.choices) for q in found] == [3, 2, 3]
    assert [q.label for q in found] == [1, None, 0]
    # The same id in another file is another question.
    paths = [write(tmp_path, [PASSAGE], f"c3-{k}-dev.json") for k in "dm"]
    found = dream.read_dream(paths)
    assert [q.id for q in found] == ["c3-d-dev/2-77/0", "c3-m-dev/2-77/0"]


BROKEN = {
    "no JSON": ("[[", "dev.json is not JSON"),
    "an object": ({"data": []}, "type dict. Wanted the format of DREAM"),
    "no passages": ([], "has no questions"),
    "a passage without questions": ([[["a"], [], "1"]], "has no questions"),
    "a passage of two parts": (
        [PASSAGE, PASSAGE[:2]],
        "passage 2: the passage: found 2 parts. Wanted",
    ),
    "turns that are none": (
        [["a", [QUESTION], "1"]],
        "passage 1: the turns: found 'a', wanted a list",
    ),
    "a turn that is none": ([[[1], [QUESTION], "1"]], "a turn: found 1, wan"),
    "a question that is none": (
        [[["a"], ["b"], "1"]],
        "a question: found 'b', wanted an object",
    ),
    "no options": (
        [[["a"], [{"question": "b"}], "1"]],
        "passage 1: lacks 'choice'",
    ),
    "an answer that is no option": (
        [[["a"], [{**QUESTION, "answer": "B"}], "1"]],
        "passage 1: answer: found 'B', wanted one of .'At home",
    ),
    "one option": (
        [[["a"], [{**QUESTION, "choice": ["On a plane."]}], "1"]],
        "passage 1: question 0 has 1 options, wanted 2 to 6",
    ),
    "an option that is none": (
        [[["a"], [{**QUESTION, "choice": ["On a plane.", 2]}], "1"]],
        "question 0 and its options must be strings",
    ),
    "a list for an id": ([[["a"], [QUESTION], []]], "id: found .., wanted"),
    "an id twice": ([PASSAGE, PASSAGE], "the question dev/2-77/0 twice"),
}


@pytest.mark.parametrize(("content", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_refused(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        dream.read_dream([write(tmp_path, content)])
