"""Tests of split_sentences.py: paragraphs become lines of one sentence."""

import pytest

from albert_tf.commands.split_sentences import SplitFlags
from albert_tf.programs import split_sentences


def split(folder, text, language="en", **changes):
    """The text that comes of a text."""
    (folder / "a.txt").write_text(text, encoding="utf-8")
    args = SplitFlags(
        input_file=str(folder / "a.txt"),
        output_file=str(folder / "b.txt"),
        language=language,
        **changes,
    )
    split_sentences.run(args)
    return (folder / "b.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("language", "text", "wanted"),
    [
        (
            "en",
            "Mr. Ape eats. Bees fly!\n\nC.",
            "Mr. Ape eats.\nBees fly!\n\nC.\n",
        ),
        ("hi", "यह एक है। दूसरा।", "यह एक है।\nदूसरा।\n"),
        ("ar", "هل هذه جملة؟ نعم.", "هل هذه جملة؟\nنعم.\n"),
        ("zh", "一个句子。第二个！", "一个句子。\n第二个！\n"),
        ("zh", "一个句子。2010年！3.5。", "一个句子。\n2010年！\n3.5。\n"),
        # sentencex alone ends with a panic of Rust here.
        ("de", "Weg A\u00a0. Er kam. Gut.", "Weg A\u00a0. Er kam.\nGut."),
        ("ja", "プラン A\u3000. 終わり。", "プラン A\u3000. 終わり。"),
    ],
)
def test_each_sentence_is_a_line(tmp_path, language, text, wanted):
    assert split(tmp_path, text, language).rstrip("\n") == wanted.rstrip("\n")


def test_wrapped_lines_are_joined(tmp_path):
    text = "Apes\nsleep. Bees\nfly.\n\nCats."
    found = split(tmp_path, text, join_lines=True)
    assert found.startswith("Apes sleep.\nBees fly.\n\nCats.\n")


def test_wrapped_lines_of_chinese_are_joined_without_spaces(tmp_path):
    text = "历史，\n他锲而\n不舍 地。\nApes\n吃。"
    found = split(tmp_path, text, "zh", join_lines=True)
    assert found.rstrip("\n") == "历史，他锲而不舍 地。\nApes 吃。"
    text = "他说：\n“好”\n然后——\n走了……\n“a”\n“b”。"
    found = split(tmp_path, text, "zh", join_lines=True)
    assert found.rstrip("\n") == "他说：“好”然后——走了…… “a” “b”。"


@pytest.mark.parametrize("language", ["English", "e", "12"])
def test_a_wrong_language_is_named_as_it_was_written(tmp_path, language):
    with pytest.raises(ValueError, match=f"--language={language} is no code"):
        split(tmp_path, "A.", language)


def test_the_output_may_be_remote(tmp_path):
    (tmp_path / "a.txt").write_text("Apes eat. Bees fly.")
    args = SplitFlags(
        input_file=f"file://{tmp_path}/a.txt",
        output_file=f"file://{tmp_path}/b.txt",
        language="en",
    )
    split_sentences.run(args)
    text = (tmp_path / "b.txt").read_text()
    assert text.rstrip("\n") == "Apes eat.\nBees fly."
