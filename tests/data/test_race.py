"""RACE: the release's recorded features, and what is refused."""

import gzip
import json

import numpy as np
import pytest

from albert_tf.data import examples, race
from albert_tf.text import tokenization


@pytest.fixture(scope="module")
def folder(recordings):
    return recordings / "race"


@pytest.mark.parametrize(
    ("lengths", "casing"),
    [((128, 32), "lower"), ((128, 32), "cased"), ((512, 128), "lower")],
)
@pytest.mark.parametrize("part", ["train", "dev"])
def test_features_are_the_releases(shared, folder, part, casing, lengths):
    recorded = np.load(folder / "features.npz")
    prefix = f"{part}/{lengths[0]}_{lengths[1]}/{casing}"
    tokenizer = tokenization.build_tokenizer(
        spm_model_file=str(shared / "data/albert_en/30k-clean.model"),
        do_lower_case=casing == "lower",
    )
    questions = race.read_race(str(folder / "RACE" / part))
    encoded = race.encode_race(questions, tokenizer, *lengths)
    found = examples.pad_examples(encoded, range(len(encoded)), lengths[0])
    for name in ("input_ids", "input_mask", "segment_ids", "label_ids"):
        np.testing.assert_array_equal(
            found[name], recorded[f"{prefix}/{name}"], err_msg=name
        )


@pytest.mark.parametrize("levels", [("high",), ("middle",), race.LEVELS])
def test_levels_are_read_as_the_release_does(folder, levels):
    recorded = json.loads(
        gzip.decompress((folder / "examples.json.gz").read_bytes())
    )
    only = levels[0] if len(levels) == 1 else None
    key = (
        f"train/cased/high_only={only == 'high'}/middle_only={only == 'middle'}"
    )
    found = race.read_race(str(folder / "RACE/train"), levels)
    assert [q.label for q in found] == [x["label"] for x in recorded[key]]
    for question, example in zip(found, recorded[key], strict=True):
        level, name, _ = question.id.split("/")
        assert level in levels
        assert name == example["id"]


def test_the_distributed_data_set_is_read(shared):
    found = race.read_race(str(shared / "data/race/dev"))
    assert len(found) == 1114
    assert len({question.id for question in found}) == 1114
    assert {question.id.split("/")[0] for question in found} == {
        "middle",
        "high",
    }
    assert sum(q.label == 2 for q in found) == 307


@pytest.mark.parametrize(
    ("question", "choice"),
    [
        ("Who ran?", "Who ran? the cat"),
        ("_ ran.", "the cat ran."),
        ("The ___ was   _  .", "The the cat was   the cat  ."),
        ("What is \\1?", "What is \\1? the cat"),
        (" Who is \uff3f\uff3f? ", "Who is the cat?"),
        ("\ufe4d_\ufe4e\ufe4f or \ufe33\ufe34 ran.", "the cat or the cat ran."),
    ],
)
def test_an_option_replaces_each_blank(question, choice):
    assert race.join_choice(question, "the cat ") == choice
    assert race.join_choice("_!", r"\1 \g<0>") == r"\1 \g<0>!"


def passage(**changes):
    fields = {
        "article": "The cat ran.",
        "questions": ["Who ran?", "What did it _ ?"],
        "options": [["cat", "dog", "cow", "hen"], ["do", "eat", "see", "say"]],
        "answers": ["A", "D"],
        "id": "1.txt",
        **changes,
    }
    return {name: value for name, value in fields.items() if value is not ...}


def write(folder, *passages, name="1.txt", level="high"):
    (folder / level).mkdir(exist_ok=True)
    lines = [p if isinstance(p, str) else json.dumps(p) for p in passages]
    (folder / level / name).write_text("\n".join(lines))
    return str(folder)


def test_all_txt_replaces_the_other_files(tmp_path):
    write(tmp_path, passage(id=...), name="7.txt")
    folder = write(tmp_path, passage(id="9.txt"), name="10.txt")
    found = race.read_race(folder, ("high",))
    assert [q.id for q in found] == [
        "high/9.txt/0",
        "high/9.txt/1",
        "high/7.txt/0",
        "high/7.txt/1",
    ]
    assert found[1].choices[1] == "What did it eat ?"
    assert [q.label for q in found] == [0, 3, 0, 3]
    write(tmp_path, passage(id="a"), passage(id="b"), "", name="all.txt")
    found = race.read_race(folder, ("high",))
    assert [q.id for q in found][::2] == ["high/a/0", "high/b/0"]


def test_files_of_operating_systems_are_no_passages(tmp_path):
    folder = write(tmp_path, passage(id="a"), name="1.TXT")
    level = tmp_path / "high"
    (level / "._1.TXT").write_bytes(b"\0\x05\x16\x07")
    (level / "Thumbs.db").write_bytes(b"\xd0\xcf")
    found = race.read_race(folder, (level.name,))
    assert {q.id.split("/")[1] for q in found} == {"a"}


def test_what_is_not_read_is_named(tmp_path, caplog):
    folder = write(tmp_path, passage())
    for name in ("1.json", "README"):
        write(tmp_path, "", name=name)
    race.read_race(folder, ("high",))
    assert f"{folder}: not read: high/1.json, high/README." in caplog.text
    write(tmp_path, passage(), name="all.txt")
    write(tmp_path, passage(), level="college")
    race.read_race(folder, ("high",))
    assert "college, high/1.json, high/1.txt and 1 others." in caplog.text


def test_an_object_may_have_several_lines(tmp_path):
    folder = write(tmp_path, json.dumps(passage(), indent=2))
    assert len(race.read_race(folder, ("high",))) == 2


def test_empty_choices_are_logged(tmp_path, caplog):
    options = [["cat", "\u200b", "cow", "hen"], ["do", "eat", "see", "say"]]
    race.read_race(write(tmp_path, passage(options=options)), ("high",))
    assert "line 1: the article, a question or an option is" in caplog.text


def test_answers_may_be_unknown(tmp_path):
    folder = write(tmp_path, passage(answers=...))
    found = race.read_race(folder, ("high",))
    assert [q.label for q in found] == [None, None]


def test_one_answer_may_be_unknown(tmp_path):
    folder = write(tmp_path, passage(answers=["B", None]))
    found = race.read_race(folder, ("high",))
    assert [q.label for q in found] == [1, None]


def test_passages_of_one_file_get_different_ids(tmp_path):
    folder = write(tmp_path, passage(id=...), passage(id=None), name="all.txt")
    found = race.read_race(folder, ("high",))
    assert len({question.id for question in found}) == 4


def test_byte_order_mark_and_lines_of_windows_are_read(tmp_path):
    folder = write(tmp_path, passage())
    content = "\ufeff" + json.dumps(passage()) + "\r\n \r\n\r\n"
    (tmp_path / "high" / "1.txt").write_bytes(content.encode())
    (tmp_path / "high" / "README").write_text("no passage")
    found = race.read_race(folder, ("high",))
    assert [q.id for q in found] == ["high/1.txt/0", "high/1.txt/1"]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b'{"article": "caf\xe9"}', "not UTF-8"),
        (json.dumps(passage()).encode("utf-16"), "text in UTF-16"),
        (gzip.compress(b"{}", mtime=0), "gzip"),
    ],
)
def test_a_file_in_another_encoding_is_named(tmp_path, content, kind):
    folder = write(tmp_path, passage())
    (tmp_path / "high" / "7.txt").write_bytes(content)
    with pytest.raises(ValueError, match=rf"7\.txt is {kind}"):
        race.read_race(folder, ("high",))


BROKEN = {
    "no JSON": ('{"article": ', "line 1 is not JSON"),
    "a list": ("[]", "line 1: found JSON of type list"),
    "too deep": ("[" * 100_000, "line 1 is not .* nested too deeply"),
    "half a pair": (
        passage(article="\udc00"),
        "contains an unpaired surrogate",
    ),
    "nothing but NULs": ("\0" * 9, "line 1 contains a NUL"),
    "a list for an id": (passage(id=["a"]), r"id: found \['a'\]"),
    "an id of two lines": (passage(id="a\nb"), "id: found .*, wanted a str"),
    "an id twice": (
        "\n".join([json.dumps(passage())] * 2),
        "question high/1.txt/0 twice",
    ),
    "no article": (passage(article=...), "lacks 'article'"),
    "a number": (passage(article=3), "wanted a string"),
    "null for questions": (passage(questions=None), "questions: found None"),
    "null for options": (passage(options=None), "options: found None"),
    "a word for options": (
        passage(options=["catx", ["a", "b", "c", "d"]]),
        "options: found 'catx', wanted a list",
    ),
    "a word for answers": (passage(answers="AD"), "answers: found 'AD'"),
    "a broken second line": (json.dumps(passage()) + "\n[", "line 2 is not"),
    "one option": (
        passage(options=[["a"], ["a", "b", "c", "d"]]),
        "question 0 has 1 options, wanted 2 to 6",
    ),
    "seven options": (
        passage(options=[["a", "b"], list("abcdefg")]),
        "question 1 has 7 options, wanted 2 to 6",
    ),
    "a letter of no option": (
        passage(options=[["a", "b"], ["a", "b", "c"]]),
        "question 1 is 'D', wanted a letter of ABC",
    ),
    "no such letter": (passage(answers=["A", "E"]), "question 1 is 'E'"),
    "no letter": (passage(answers=["", "A"]), "question 0 is ''"),
    "too few answers": (passage(answers=["A"]), "wanted equal numbers"),
    "too few options": (passage(options=[["a"] * 4]), "wanted equal numbers"),
    "a question that is none": (
        passage(questions=["x", 1]),
        "question 1 and its options must be strings",
    ),
    "no passage": ("", "has no questions"),
}


@pytest.mark.parametrize(("content", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_refused(tmp_path, content, message):
    folder = write(tmp_path, content)
    with pytest.raises(ValueError, match=message):
        race.read_race(folder, ("high",))


def test_a_missing_level_is_named(tmp_path):
    folder = write(tmp_path, passage())
    with pytest.raises(FileNotFoundError, match=r"no \*\.txt in .*middle"):
        race.read_race(folder)


def write_letters(folder):
    """Writes a vocabulary of a few letters; returns a tokenizer."""
    path = folder / "vocab.txt"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
    path.write_text("\n".join(pieces) + "\n")
    return pieces, tokenization.build_tokenizer(vocab_file=str(path))


def test_questions_may_have_two_to_six_options(tmp_path):
    options = [["b", "c"], ["d", "e", "f", "g", "h", "a"]]
    folder = write(
        tmp_path,
        passage(article="a", options=options, answers=["B", "F"]),
        passage(
            article="a",
            options=[["b", "c", "d"]] * 2,
            answers=["A", "C"],
            id="2.txt",
        ),
    )
    found = race.read_race(folder, ("high",))
    assert [q.label for q in found] == [1, 5, 0, 2]
    _, tokenizer = write_letters(tmp_path)
    encoded = race.encode_race(found, tokenizer, 24, 12)
    assert encoded.num_choices == 6
    has_tokens = encoded.lengths.reshape(4, 6) > 0
    assert has_tokens.sum(axis=1).tolist() == [2, 6, 3, 3]
    # Each question alone has the same sequences.
    padded = examples.pad_examples(encoded, range(4), 24)
    for index, question in enumerate(found):
        alone = race.encode_race([question], tokenizer, 24, 12)
        count = len(question.choices)
        assert alone.num_choices == count
        wanted = examples.pad_examples(alone, [0], 24)
        for name in ("input_ids", "input_mask", "segment_ids"):
            values = padded[name][index]
            np.testing.assert_array_equal(values[:count], wanted[name][0])
            assert not values[count:].any()


def test_an_article_keeps_its_beginning_and_a_choice_its_end(tmp_path):
    pieces, tokenizer = write_letters(tmp_path)
    question = race.Question("q", "a b c d e", ("f g h", "h", "", "g"), 1)
    encoded = race.encode_race([question], tokenizer, 8, 2)
    rows = np.split(encoded.ids, np.cumsum(encoded.lengths)[:-1])
    assert [" ".join(pieces[i] for i in row) for row in rows] == [
        "[CLS] a b c [SEP] g h [SEP]",
        "[CLS] a b c d [SEP] h [SEP]",
        "[CLS] a b c d e [SEP] [SEP]",
        "[CLS] a b c d [SEP] g [SEP]",
    ]
    assert encoded.first_lengths.tolist() == [5, 6, 7, 6]
    assert encoded.arrays["label_ids"].tolist() == [1]
    question = question._replace(article="", label=None)
    empty = race.encode_race([question], tokenizer, 5, 2)
    assert empty.lengths.tolist() == [5, 4, 3, 4]
    assert empty.arrays["label_ids"].tolist() == [-1]
