"""Benchmarks are downloaded in the layout that the programs read."""

import hashlib
import io
import json
import os
import re
import sys
import tarfile
import zipfile

import pytest

from albert_tf import __main__, flags
from albert_tf.commands.download import DownloadFlags
from albert_tf.data import race, table_tasks
from albert_tf.programs import download
from albert_tf.weights import downloads
from tests import servers

TABLES = {
    table.file for task in table_tasks.GLUE.values() for table in task.tables
}
# Of three pairs, the second is of dev.
HEAD = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
ROWS = [f"{i % 2}\t{10 + i}\t{20 + i}\tw{i} .\tw{i} !\r\n" for i in range(3)]
MRPC = {
    "msr_paraphrase_train.txt": "".join([HEAD, *ROWS]).encode(),
    "msr_paraphrase_test.txt": "".join([HEAD, *ROWS[:2]]).encode(),
    "mrpc_dev_ids.tsv": b"11\t21\n",
}
QUESTION = {
    "article": "a",
    "questions": ["q"],
    "answers": ["A"],
    "options": [["1", "2", "3", "4"]],
    "id": "x",
}


def make_files():
    """Returns small files of the benchmarks, by name."""
    files = {name: name.encode() * 999 for name in download.SQUAD}
    for folder, (name, *_) in download.GLUE.items():
        if not name.endswith(".zip"):
            continue
        target = io.BytesIO()
        with zipfile.ZipFile(target, "w") as packed:
            for table in sorted(TABLES):
                if table.startswith(f"{folder}/"):
                    packed.writestr(table, f"content of {table}")
            packed.writestr(f"{folder}/original/README.md", "large")
        files[name] = target.getvalue()
    target = io.BytesIO()
    question = json.dumps(QUESTION).encode()
    with tarfile.open(fileobj=target, mode="w:gz") as packed:
        for part in ("train", "dev", "test"):
            member = tarfile.TarInfo(f"RACE/{part}/middle/1.txt")
            member.size = len(question)
            packed.addfile(member, io.BytesIO(question))
    return {**files, **MRPC, "AX.tsv": b"ax", "RACE.tar.gz": target.getvalue()}


@pytest.fixture
def server(monkeypatch):
    with servers.Server(files=make_files()).running() as running:
        sources = {
            name: (running.url + name, hashlib.sha256(content).hexdigest())
            for name, content in running.files.items()
        }
        monkeypatch.setattr(download, "SOURCES", sources)
        monkeypatch.setattr(downloads, "PAUSES", (0, 0))
        yield running


def run(data, folder):
    download.run(DownloadFlags(data=data, to=str(folder)))


def list_files(folder):
    return {str(p.relative_to(folder)) for p in folder.rglob("*.*")}


def test_every_table_of_glue_is_there_once(server, tmp_path):
    folder = tmp_path / "glue"
    run("glue", folder)
    assert list_files(folder) == TABLES
    unchanged = TABLES - {f"MRPC/{x}.tsv" for x in ("train", "dev", "test")}
    for file in unchanged - {"diagnostic/diagnostic.tsv"}:
        assert (folder / file).read_text() == f"content of {file}"
    assert (folder / "diagnostic/diagnostic.tsv").read_text() == "ax"
    num_requests = len(server.requests)
    assert num_requests == 12
    run("glue", folder)
    assert len(server.requests) == num_requests
    # What was lost comes again, and nothing else.
    for name in ("MNLI", "MRPC"):
        (folder / name / "train.tsv").unlink()
    own = ("MNLI/dev_matched.tsv", "MRPC/dev.tsv", "MRPC/test.tsv")
    for file in own:
        (folder / file).write_text("mine")
    run("glue", folder)
    assert len(server.requests) == num_requests + 4
    assert list_files(folder) == TABLES
    assert {(folder / file).read_text() for file in own} == {"mine"}
    assert (folder / "MRPC/train.tsv").read_text().startswith(HEAD[:8])


def test_mrpc_is_divided_as_by_the_script_of_glue(server, tmp_path):
    run("glue", tmp_path)
    folder = tmp_path / "MRPC"
    head, *rows = [line.replace("\r", "") for line in (HEAD, *ROWS)]
    wanted = {
        "train": [head, rows[0], rows[2]],
        "dev": [head, rows[1]],
        "test": [
            "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n",
            "0\t10\t20\tw0 .\tw0 !\n",
            "1\t11\t21\tw1 .\tw1 !\n",
        ],
    }
    for name, lines in wanted.items():
        path = folder / f"{name}.tsv"
        assert path.read_bytes().decode() == "".join(lines)


def test_what_was_cut_off_continues(server, tmp_path):
    server.cuts = [1000]
    run("squad", tmp_path)
    assert server.requests == [None, "bytes=1000-", None, None, None]
    assert list_files(tmp_path) == {*download.SQUAD}
    for name in download.SQUAD:
        assert (tmp_path / name).read_bytes() == server.files[name]
    run("squad", tmp_path)
    assert len(server.requests) == 5


def test_race_is_unpacked_as_a_whole(server, tmp_path):
    (tmp_path / "RACE.incomplete").mkdir()
    (tmp_path / "RACE.incomplete/left.txt").touch()
    run("race", tmp_path)
    assert os.listdir(tmp_path) == ["RACE"]
    (question,) = race.read_race(str(tmp_path / "RACE/dev"), ["middle"])
    assert question.label == 0
    run("race", tmp_path)
    assert len(server.requests) == 1


@pytest.mark.parametrize("data", ["glue", "squad", "race"])
def test_what_is_not_there_is_said(server, tmp_path, data):
    server.status = 404
    with pytest.raises(ConnectionError, match="server says 404 Not Found"):
        run(data, tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_another_content_is_refused(server, tmp_path):
    name = download.SQUAD[1]
    content = server.files[name]
    server.files[name] = b"?" + content[1:]
    with pytest.raises(ConnectionError, match="SHA-256 digest differs from"):
        run("squad", tmp_path)
    assert list_files(tmp_path) == {download.SQUAD[0]}
    server.files[name] = content
    run("squad", tmp_path)
    # The user's own file stays.
    (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError, match=f"{name} has SHA-256 .*Was it edit"):
        run("squad", tmp_path)
    assert (tmp_path / name).read_text() == "mine"


def test_a_remote_folder_is_refused():
    with pytest.raises(ValueError, match="--to=gs://a/b is remote"):
        run("glue", "gs://a/b")


@pytest.mark.parametrize("word", ["squad", "--data=squad"])
def test_the_name_needs_no_flag(monkeypatch, word):
    monkeypatch.setattr(sys, "argv", ["albert", "download", word, "--to=a"])
    monkeypatch.setattr(flags, "launch", lambda *_: None)
    __main__.main()
    assert sys.argv[1:] == ["--data=squad", "--to=a"]


def test_each_file_has_an_address_and_a_digest():
    named = {name for names in download.GLUE.values() for name in names}
    named |= {*download.SQUAD, download.RACE}
    assert named == download.SOURCES.keys()
    for url, sha256 in download.SOURCES.values():
        assert re.fullmatch(r"https?://\S+", url)
        assert re.fullmatch(r"[0-9a-f]{64}", sha256)
    assert download.GLUE.keys() == {file.split("/")[0] for file in TABLES}
