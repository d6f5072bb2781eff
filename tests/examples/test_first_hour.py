"""What a newcomer types, as the pages print it, in an empty folder."""

import csv
import pathlib
import re
import shlex
import subprocess

import numpy as np
import pytest

import quickstart
from albert_tf import commands as albert_commands
from albert_tf import flags
from albert_tf.programs import subprograms
from albert_tf.weights import downloads
from tests import tiny
from tests.conftest import ROOT

MESSAGES = {
    "billing": ["I was charged {} times.", "My invoice {} is wrong."],
    "delivery": ["Parcel {} is late.", "Where is my order {}?"],
}


def type_command(line):
    """Runs `albert NAME ...` in this process; it must end without an error."""
    _, name, *words = shlex.split(line.replace("\\\n", " "))
    program, flags_class = albert_commands.find(name)
    assert not flags.run_command(program, flags_class, words), line


@pytest.fixture
def released(tmp_path, monkeypatch):
    """albert_base_v2 in the cache: a small model with random weights."""
    (tmp_path / "cache").mkdir()
    tiny.write_archive(tmp_path / "cache/albert_base_v2.tar.gz")
    monkeypatch.setenv(downloads.CACHE, str(tmp_path / "cache"))


def write_tickets(folder):
    """Writes the tables that docs/tasks.md names."""
    rows = [
        (text.format(i), topic)
        for i in range(2, 12)
        for topic, texts in MESSAGES.items()
        for text in texts
    ]
    (folder / "tickets").mkdir()
    for path, columns, size in (
        ("tickets/train.csv", ["message", "topic"], len(rows)),
        ("tickets/new.csv", ["message"], 3),
        ("more.csv", ["message"], 2),
    ):
        with open(folder / path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(row[: len(columns)] for row in rows[:size])


def read_table(path, **kwargs):
    with open(path, newline="") as file:
        return list(csv.DictReader(file, **kwargs))


def test_from_a_csv_file_to_a_served_model(
    released, tmp_path, monkeypatch, capsys
):
    """The steps of docs/tasks.md."""
    pytest.importorskip("tensorflow_text")
    monkeypatch.chdir(tmp_path)
    write_tickets(tmp_path)
    text = (ROOT / "docs/tasks.md").read_text()
    text = text.partition("## From a CSV")[2].partition("\n## ")[0]
    kinds = []
    for kind, block in re.findall(r"```(json|sh|python)\n(.*?)```", text, re.S):
        kinds.append(kind)
        if kind == "json":
            pathlib.Path("tickets.json").write_text(block)
        elif kind == "sh":
            for line in re.split(r"\n(?=albert )", block):
                type_command(line)
        else:
            (folder,) = pathlib.Path("out/text").iterdir()
            capsys.readouterr()
            exec(re.sub(r"out/text/\d+", str(folder), block), {})
            assert capsys.readouterr().out.split()[0] in MESSAGES
    assert kinds == ["json", "sh", "sh", "python"]
    predicted = read_table("out/tickets/tickets.tsv", delimiter="\t")
    assert len(predicted) == 3
    labels = read_table("labels.csv")
    assert [row["prediction"] in MESSAGES for row in labels] == [True, True]
    type_command("albert report --output_dir=out/tickets")
    assert "billing" in pathlib.Path("out/tickets/report.html").read_text()


def run_here(command, **_):
    """As `subprograms.run_program`; runs `albert` in this process."""
    if command[1:3] == list(quickstart.ALBERT):
        program, flags_class = albert_commands.find(command[3])
        return flags.run_command(program, flags_class, command[4:])
    return subprocess.run(command, check=False).returncode


def test_from_own_text_to_vectors(tmp_path, monkeypatch, capsys):
    """The quickstart with --text, and what docs/embeddings.md says to type."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprograms, "run_program", run_here)
    rng = np.random.default_rng(0)
    words = [f"{a}{b}" for a in ("ka", "lo", "mi") for b in ("nu", "pe", "ti")]
    documents = [
        "\n".join(" ".join(rng.choice(words, 6)) + "." for _ in range(8))
        for _ in range(40)
    ]
    pathlib.Path("text").mkdir()
    pathlib.Path("text/a.txt").write_text("\n\n".join(documents))
    assert not flags.run_command(
        quickstart.run,
        quickstart.QuickstartFlags,
        ["--output_dir=own", "--text=text/*.txt", "--vocab_size=27"]
        + ["--num_train_steps=12", "--train_batch_size=4"],
    )
    assert "masked word accuracy" in capsys.readouterr().out
    pathlib.Path("lines.txt").write_text("kanu lope.\nmiti.\n")
    type_command(
        "albert embed --init_checkpoint=own/model --input_file=lines.txt "
        "--output_file=vectors.npz"
    )
    vectors = np.load("vectors.npz")["vectors"]
    assert vectors.shape[0] == 2 and np.isfinite(vectors).all()
