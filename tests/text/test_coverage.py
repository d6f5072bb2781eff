"""What is said of text that a tokenizer does not suit."""

import logging
import re
import types

import pytest

from albert_tf.commands.create_pretraining_data import DataFlags
from albert_tf.programs import create_pretraining_data
from albert_tf.text import coverage, normalization, tokenization
from tests import tiny


@pytest.mark.parametrize(
    ("text", "example"),
    [
        ("がぎぐ パパ", "'がぎぐ' becomes 'かきく'"),
        ("क्या हिन्दी", "'क्या' becomes"),
        ("má mà mả", "'má' becomes 'ma'"),
        ("Die Ärzte müssen", "'Ärzte' becomes 'arzte'"),
        ("A café" + " in the town of many words" * 20, None),
        ("東京 Москва", None),
        ("", None),
    ],
)
@pytest.mark.parametrize("kind", ["SentenceNormalizer", "WordNormalizer"])
def test_a_warning_shows_an_example_of_lost_marks(kind, text, example):
    build = getattr(normalization, kind)
    said = coverage.find_lost_marks([text, text], build(True, False).normalize)
    assert (example in said) if example else (said is None)
    keeping = build(False, True).normalize
    assert coverage.find_lost_marks([text], keeping) is None


def test_another_language_causes_a_warning(tmp_path, caplog):
    tiny.write_model(tmp_path)
    paths = {}
    for name, line in (("own", "w1 w2 w3 w4"), ("other", "un déjà vu été")):
        paths[name] = tmp_path / f"{name}.txt"
        paths[name].write_text(f"{line}\n{line}\n\n" * 9, encoding="utf-8")
        args = DataFlags(
            input_file=str(paths[name]),
            output_file=str(tmp_path / f"{name}.tfrecord"),
            vocab_file=str(tmp_path / "vocab.txt"),
            max_seq_length=16,
            max_predictions_per_seq=3,
        )
        with caplog.at_level(logging.WARNING):
            create_pretraining_data.run(args)
        is_said = [
            words in caplog.text
            for words in ("'déjà' becomes 'deja'", "100% of the pieces are unk")
        ]
        assert is_said == [name == "other"] * 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("17\tA sentence.", "20 of 20 begin with a number .* '17"),
        ("17 | A sentence.", "begin with a number"),
        ('<document id="3">', "are tags, such as '<document id="),
        ("Bread &amp; butter.", "have entities of HTML, such as '&amp;'"),
        ("17 men, 3 < 4 & 5 > 4; a <b.", None),
    ],
)
def test_what_is_learned_as_text_draws_a_warning(line, said):
    found = coverage.find_markup([line] * 20)
    assert re.search(said, found) if said else found is None


def test_a_sample_has_lines_of_each_file(tmp_path, monkeypatch):
    monkeypatch.setattr(coverage, "NUM_LINES", 3)
    for name in "ab":
        lines = "".join(f"\n{name}{i}\n" for i in range(5))
        (tmp_path / name).write_text(lines)
    (tmp_path / "c").write_bytes(b"\xff\n")
    files = [str(tmp_path / name) for name in "abc"]
    assert [*coverage.read_sample(files)] == ["a0", "b0", "\ufffd"]
    assert [*coverage.read_sample(files[:2])] == ["a0", "a1", "b0", "b1"]
    monkeypatch.setattr(coverage, "NUM_FILES", 2)
    assert [*coverage.read_sample(files)] == ["a0", "a1", "\ufffd"]


@pytest.mark.parametrize(
    ("ids", "is_said"),
    [
        ([1, 7, 8], False),
        ([1, 7, 1], True),
        ([], False),
        ([2, 6, 1, 3, 0], True),  # A whole text is one unknown piece.
    ],
)
def test_one_unknown_piece_among_others_makes_no_other_language(ids, is_said):
    tokenizer = types.SimpleNamespace(
        unk_id=1,
        special_ids=[0, 1, 2, 3, 4],
        pieces=[
            "<pad>",
            "<unk>",
            "[CLS]",
            "[SEP]",
            "[MASK]",
            "x",
            "▁",
            "a",
            "b",
        ],
        settings={"vocabulary": "vocab.txt"},
        encode_batch=lambda texts: [[7] for _ in texts],
    )
    said = coverage.describe_unknown(ids, tokenizer)
    assert (said is not None) == is_said


def test_dialogue_in_the_release_s_chinese_is_no_other_language(shared):
    """Its vocabulary has no quotation marks but ASCII's."""
    path = shared / "data/zh/vocab.txt"
    tokenizer = tokenization.build_tokenizer(vocab_file=path)
    ids = tokenizer.encode("“我不去。”她说，“你去吧……”")
    said = coverage.describe_unknown(ids, tokenizer)
    assert "Has it “ ” ‘ ’ — …, which this one lacks?" in said


def test_printed_english_is_no_other_language(shared):
    path = shared / "data/albert_en/30k-clean.model"
    tokenizer = tokenization.build_tokenizer(spm_model_file=path)
    ids = tokenizer.encode("“I don’t know,” she said.")
    said = coverage.describe_unknown(ids, tokenizer)
    assert "Has it “ ” ‘ ’ —, which this one lacks? Write \" ' - ..." in said


def test_abbreviations_before_small_letters_end_no_sentence():
    line = "Родился 5 мая 1890 г. в с. Ивановка Самарской губ. в семье."
    assert coverage.find_unsplit([line] * 9) is None
    assert coverage.find_unsplit(["Gem. § 433 Abs. 2 BGB."] * 9) is None


def test_sentences_may_begin_in_a_script_without_capitals():
    assert coverage.find_unsplit(["ეს წიგნია. ეს სახლია. ეს ქალაქია."] * 9)


def test_a_quotation_ends_a_sentence():
    lines = ["「是的。」", "“不是。”", "（走吧！）"]
    assert coverage.find_unsplit(lines) is None
    assert coverage.find_unsplit([f"{line}走了。" for line in lines])


def test_a_share_is_of_letters():
    normalize = normalization.SentenceNormalizer(True, False).normalize
    said = coverage.find_lost_marks(["\u1ebf \u1ec1 ab"], normalize)
    assert said.startswith("50% of the letters")
