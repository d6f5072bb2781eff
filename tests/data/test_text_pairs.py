"""Pairs of texts: what columns they are read from, and how they are encoded."""

import json

import numpy as np
import pytest

from albert_tf.data import text_pairs
from albert_tf.text import tokenization
from tests import tiny


def write(path, *rows, delimiter="\t"):
    path.write_text("".join(delimiter.join(row) + "\n" for row in rows))
    return path


def test_a_table_has_known_columns(tmp_path):
    path = write(
        tmp_path / "a.tsv",
        ("index", "sentence1", "sentence2", "score"),
        ("0", "one", "two", "4.5"),
        ("1", "three", 'a "quoted', "0"),
    )
    found = text_pairs.read_pairs(path)
    assert found.texts == [("one", "two"), ("three", 'a "quoted')]
    assert found.scores == [1, 0]
    assert "divided by 4.5" in found.description
    path = write(
        tmp_path / "b.csv", ("query", "positive"), ("a", "b"), delimiter=","
    )
    found = text_pairs.read_pairs(path)
    assert (found.texts, found.scores) == ([("a", "b")], None)


def test_columns_may_be_named(tmp_path):
    path = write(
        tmp_path / "a.tsv",
        ("x", "y", "z", "how"),
        ("a", "b", "c", "1"),
        ("d", "e", " ", "2"),
    )
    found = text_pairs.read_pairs(path, ["x", "y", "z"])
    assert found.texts == [("a", "b", "c"), ("d", "e", "")]
    found = text_pairs.read_pairs(path, ["y", "x"], "how")
    assert found.texts == [("b", "a"), ("e", "d")]
    assert found.scores == [0.5, 1]
    # A third text may be absent in JSON.
    rows = [
        {"anchor": "a", "positive": "b", "negative": None},
        {"anchor": "c", "positive": "d", "negative": "e"},
    ]
    path_of_json = tmp_path / "b.jsonl"
    path_of_json.write_text("\n".join(map(json.dumps, rows)))
    found = text_pairs.read_pairs(path_of_json)
    assert found.texts == [("a", "b", ""), ("c", "d", "e")]
    rows[1]["positive"] = None
    path_of_json.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(ValueError, match="line 2: one of the two texts is"):
        text_pairs.read_pairs(path_of_json)
    with pytest.raises(ValueError, match="wanted such as sentence1"):
        text_pairs.read_pairs(path)
    with pytest.raises(ValueError, match="line 2: the score is 'a'"):
        text_pairs.read_pairs(path, ["y", "how"], "x")


def test_single_texts_are_paired_with_themselves(tmp_path):
    for name in ("a.txt", "B.TXT"):
        (tmp_path / name).write_text("one\n\ntwo\n")
        found = text_pairs.read_pairs(tmp_path / name)
        assert found.texts == [("one", "one"), ("two", "two")]
    lines = [json.dumps({"text": text}) for text in ("x", "y")]
    (tmp_path / "b.jsonl").write_text("\n".join(lines))
    found = text_pairs.read_pairs(tmp_path / "b.jsonl")
    assert found.texts == [("x", "x"), ("y", "y")]
    (tmp_path / "c.txt").write_text("\n")
    with pytest.raises(ValueError, match="has no texts"):
        text_pairs.read_pairs(tmp_path / "c.txt")


def test_contradictions_are_wrong_second_texts(tmp_path):
    rows = [
        ("p", "e1", "entailment"),
        ("p", "c1", "contradiction"),
        ("p", "n1", "neutral"),
        ("p", "e2", "entailment"),
        ("p", "c2", "contradiction"),
        ("q", "e3", "entailment"),
        ("r", "c3", "contradiction"),
        ("s", "x", "-"),
    ]
    header = ("premise", "hypothesis", "gold_label")
    path = write(tmp_path / "nli.tsv", header, *rows)
    found = text_pairs.read_pairs(path)
    assert found.texts == [
        ("p", "e1", "c1"),
        ("p", "e2", "c2"),
        ("q", "e3", ""),
    ]
    assert found.description == "entailments"
    path = write(tmp_path / "none.tsv", header, rows[1])
    with pytest.raises(ValueError, match="no pair with the label entailment"):
        text_pairs.read_pairs(path)


def test_entailments_are_read_from_two_labels(tmp_path):
    path = write(
        tmp_path / "qnli.tsv",
        ("index", "question", "sentence", "label"),
        ("0", "q", "s1", "not_entailment"),
        ("1", "q", "s2", "entailment"),
    )
    found = text_pairs.read_pairs(path)
    assert found.texts == [("q", "s2")]  # Nothing is contradicted.
    assert found.numbers == [1]  # So that predictions are of this row.
    assert found.unused == ["index"]


def test_rows_are_encoded_with_the_numbers_of_their_texts():
    tokenizer = tokenization.build_tokenizer(spm_model_file=str(tiny.RELEASED))
    texts = [("a", "b c", ""), ("b c", "a", "d")]
    encoded = text_pairs.encode_rows(texts, tokenizer, 8)
    assert len(encoded) == 2 and encoded.num_choices == 3
    assert encoded.arrays["text_ids"].tolist() == [[0, 1, -1], [1, 0, 3]]
    flat = [text for row in texts for text in row]
    for start, length, text in zip(
        encoded.starts, encoded.lengths, flat, strict=True
    ):
        ids = encoded.ids[start : start + length].tolist()
        wanted = [tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id]
        assert ids == wanted
    once, places = text_pairs.encode_once(texts, tokenizer, 8)
    assert len(once) == 2
    np.testing.assert_array_equal(places, [[0, 1], [1, 0]])
    # Texts that the model cannot tell apart.
    texts = [("a", "Paris is big"), ("b", " paris is small")]
    encoded = text_pairs.encode_rows(texts, tokenizer, 3)
    assert encoded.arrays["text_ids"].tolist() == [[0, 1], [2, 1]]
    _, places = text_pairs.encode_once(texts, tokenizer, 3)
    assert places[0, 1] == places[1, 1]


def test_a_label_that_is_not_used_is_said(tmp_path, caplog):
    rows = ("text_a", "text_b", "label"), ("a", "b", "x"), ("c", "d", "1")
    found = text_pairs.read_pairs(write(tmp_path / "a.tsv", *rows))
    assert (found.scores, found.description) == (None, "pairs")
    assert "'label' with values such as 'x', which is not used" in caplog.text


@pytest.mark.parametrize("values", ["02", ("0.0", "5.0"), ("true", "false")])
def test_numbers_of_labels_are_refused(tmp_path, values):
    """As of datasets: 0 may be entailment, or the opposite of alike."""
    pairs = [("a", "b", values[0]), ("c", "d", values[1])]
    path = write(tmp_path / "a.tsv", ("premise", "hypothesis", "label"), *pairs)
    with pytest.raises(ValueError, match="numbers in the column 'label'"):
        text_pairs.read_pairs(path)
    if values[0] != "true":
        assert text_pairs.read_pairs(path, (), "label").scores == [0, 1]


def test_a_score_is_of_two_texts(tmp_path):
    path = write(tmp_path / "a.tsv", ("text", "score"), ("good", "5"))
    found = text_pairs.read_pairs(path)
    assert (found.texts, found.scores) == ([("good", "good")], None)
    assert found.unused == ["score"]
    with pytest.raises(ValueError, match="one text in a row, which has no"):
        text_pairs.read_pairs(path, (), "score")


def test_a_table_that_ends_in_txt_is_refused(tmp_path):
    path = write(
        tmp_path / "SICK.txt", ("sentence_A", "sentence_B"), ("a", "b")
    )
    with pytest.raises(ValueError, match="Rename it to .tsv"):
        text_pairs.read_pairs(path)
    path = write(tmp_path / "lines.txt", ("a", "b"), ("c", "d"))
    assert text_pairs.read_pairs(path).texts[0] == ("a\tb", "a\tb")
    with pytest.raises(ValueError, match="Rename it to .tsv"):
        text_pairs.read_pairs(path, ["a", "b"])
    # Columns that are named may be of another file.
    assert text_pairs.read_pairs(path, ["left", "right"], "gold").texts
    path = write(
        tmp_path / "a.tsv", ("anchor", "positive", "negative"), ("a", "b", "c")
    )
    assert text_pairs.read_pairs(path, (), "gold").texts == [("a", "b", "c")]


def test_columns_are_found_whatever_their_capitals(tmp_path):
    header = (" Sentence1", "SENTENCE2", "Score ", "genre")
    path = write(tmp_path / "a.tsv", header, ("a", "b", "3", "x"))
    for given in ((), (["sentence1", "Sentence2"], "score")):
        found = text_pairs.read_pairs(path, *given)
        assert (found.texts, found.scores) == ([("a", "b")], [1])
        assert found.unused == ["genre"]
    for wrong in (["sentence1", "nix"], ["sentence1"] * 2, ["genre"] * 4):
        with pytest.raises(ValueError, match="has no column 'nix'|different"):
            text_pairs.read_pairs(path, wrong)


def test_json_lines_have_the_columns_of_all_lines(tmp_path):
    rows = [{"text_a": "a", "text_b": "b"} for _ in range(2)]
    rows[1]["score"] = 1
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(ValueError, match=r"line 1: \['score'\] are missing"):
        text_pairs.read_pairs(path)


def test_a_label_of_inference_among_others_is_refused(tmp_path):
    rows = [("premise", "hypothesis", "label"), ("a", "b", "Entailment")]
    path = write(tmp_path / "a.tsv", *rows)
    assert text_pairs.read_pairs(path).texts == [("a", "b")]
    path = write(tmp_path / "a.tsv", *rows, ("a", "b", "neutrl"))
    with pytest.raises(ValueError, match="line 3: the label is 'neutrl'"):
        text_pairs.read_pairs(path)
