"""`albert classify` prints and writes labels of texts and of files."""

import csv
import io
import json
import types

import numpy as np
import pytest

from albert_tf import Classifier
from albert_tf.commands.classify import ClassifyFlags
from albert_tf.programs import classify, models
from tests import tiny

LABELS = ("no", "yes")
TEXTS = ["w1 w2 w3", "w4 w5", "w6"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A classifier with random weights, and files of texts."""
    folder = tmp_path_factory.mktemp("classifier")
    (folder / "start").mkdir()
    tiny.write_classifier(folder / "start").rename(folder / "model")
    for name in ("lines.txt", "LINES.TXT"):
        (folder / name).write_text("".join(f"{x}\n" for x in TEXTS))
    (folder / "pairs.csv").write_text(
        'id,question,answer\n7,"w1, w2",w3\n8,w4,\n'
    )
    rows = [json.dumps({"text": x}) + "\n" for x in TEXTS]
    (folder / "rows.jsonl").write_text("".join(rows))
    return folder


def run(folder, **kwargs):
    args = ClassifyFlags(
        init_checkpoint=str(folder / "model"),
        compute_dtype="float32",
        **{name: str(value) for name, value in kwargs.items()},
    )
    args.check()
    classify.run(args)


@pytest.fixture(scope="module")
def answers(folder):
    return Classifier(folder / "model", compute_dtype="float32")(TEXTS)


def test_texts_are_printed_with_their_labels(folder, answers, capsys):
    run(folder, text="\n".join(TEXTS))
    lines = capsys.readouterr().out.splitlines()
    assert lines[::2] == TEXTS
    for line, answer in zip(lines[1::2], answers, strict=True):
        best = answer["prediction"]
        assert line.startswith(
            f"    {best} {answer['probabilities'][best]:.0%}, "
        )


@pytest.mark.parametrize("name", ["lines.txt", "LINES.TXT", "rows.jsonl"])
def test_lines_of_a_file_are_written(folder, answers, tmp_path, name):
    path = tmp_path / "out.jsonl"
    run(folder, input_file=folder / name, output_file=path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows == [
        {"text": [text], **answer}
        for text, answer in zip(TEXTS, answers, strict=True)
    ]


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_columns_of_pairs_become_a_table(folder, tmp_path, ending):
    path = tmp_path / f"out.{ending}"
    run(
        folder,
        input_file=folder / "pairs.csv",
        text_columns="question,answer",
        output_file=path,
    )
    with open(path, newline="") as file:
        dialect = "excel" if ending == "csv" else "excel-tab"
        head, *rows = csv.reader(file, dialect)
    assert head == ["text_a", "text_b", "prediction", *LABELS]
    pairs = [("w1, w2", "w3"), ("w4", "")]
    assert [tuple(row[:2]) for row in rows] == pairs
    wanted = Classifier(folder / "model", compute_dtype="float32")(pairs)
    for row, answer in zip(rows, wanted, strict=True):
        assert row[2] == answer["prediction"]
        found = [float(x) for x in row[3:]]
        np.testing.assert_allclose(found, [*answer["probabilities"].values()])


def test_fields_may_have_another_delimiter(folder, tmp_path, capsys):
    path = tmp_path / "table.csv"
    path.write_text('frage;antwort\n"w1; w2";w3\n')
    columns = {"input_file": path, "text_columns": "frage,antwort"}
    run(folder, **columns, delimiter=";")
    assert capsys.readouterr().out.startswith("w1; w2 | w3\n")


def test_the_name_of_a_column_may_have_a_comma(folder, tmp_path, capsys):
    for name, content in (
        ("table.csv", '"How, now?",b\nw1,w2\n'),
        ("rows.jsonl", '{"How, now?": "w1"}\n'),
    ):
        (tmp_path / name).write_text(content)
        run(folder, input_file=tmp_path / name, text_columns="How, now?")
        assert capsys.readouterr().out.startswith("w1\n")


def test_second_texts_are_given_beside_the_first(folder, capsys):
    run(folder, text="w1\nw2", next_text="w3\nw4")
    assert capsys.readouterr().out.splitlines()[::2] == ["w1 | w3", "w2 | w4"]
    with pytest.raises(ValueError, match="wanted a second text for each"):
        run(folder, text="w1\nw2", next_text="w3")


def test_many_texts_are_classified_in_parts(
    folder, answers, tmp_path, monkeypatch
):
    monkeypatch.setattr(models, "CHUNK", 2)
    path = tmp_path / "out.jsonl"
    run(folder, input_file=folder / "lines.txt", output_file=path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [r["prediction"] for r in rows] == [a["prediction"] for a in answers]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({}, "Give either --text or --input_file"),
        ({"text": "a", "input_file": "b.txt"}, "Give either"),
        ({"input_file": "b.txt", "next_text": "a"}, "two --text_columns"),
        ({"text": "a", "delimiter": ";"}, "--delimiter is for --input_file"),
        ({"input_file": "pairs.csv", "delimiter": ";;"}, "one character"),
        (
            {"input_file": "a.txt", "text_columns": "a,b"},
            "--text_columns is for tables",
        ),
        ({"input_file": "A.TXT", "delimiter": ";"}, "--delimiter is for ta"),
        ({"text": "a", "output_file": "x.npz"}, "must end in .jsonl"),
        ({"text": " \n "}, "There are no texts in --text"),
        ({"input_file": "rows.jsonl", "text_columns": "x"}, "'x'"),
        (
            {"input_file": "rows.jsonl", "text_columns": "a,b,c"},
            "1 to 2 columns",
        ),
        ({"input_file": "nothing.txt"}, "nothing.txt"),
        ({"input_file": "blank.txt"}, "line 2 is empty"),
        (
            {"input_file": "lines.txt", "output_file": "lines.csv/x.csv"},
            "lines.csv",
        ),
    ],
)
def test_bad_input_is_refused(folder, tmp_path, monkeypatch, kwargs, message):
    monkeypatch.chdir(folder)
    (folder / "lines.csv").write_text("")
    (folder / "blank.txt").write_text("w1\n \nw2\n")
    with pytest.raises((ValueError, OSError), match=message):
        run(folder, **kwargs)


def test_labels_with_commas_are_separated_by_another_sign():
    classifier = types.SimpleNamespace(labels=["Umwelt, Klima", "Sport"])
    answers = [(("a",), {"prediction": ["Umwelt, Klima", "Sport"]})]
    file = io.BytesIO()
    classify.write_rows(file, answers, "out.tsv", classifier.labels, 1)
    text = file.getvalue().decode()
    assert text.split("\n")[1].strip() == "a\tUmwelt, Klima;Sport"


def test_lines_of_a_text_end_as_in_files():
    text = "a\u2028b\x0bc\r\n \r\nd\re\n"
    assert models.split_lines(text) == ["a\u2028b\x0bc", "d", "e"]
