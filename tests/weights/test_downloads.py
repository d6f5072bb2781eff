"""Models are downloaded by name, from a server of this machine."""

import base64
import fnmatch
import hashlib
import multiprocessing
import os
import signal
import sys
import tarfile
import time
import types

import numpy as np
import pytest

from albert_tf import read_pretrained
from albert_tf.weights import downloads, locations
from tests import servers, tiny

NAME = "albert_base_v2"


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The bytes of a model's archive, as the release has it."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "albert_base").mkdir()
    tiny.write_model(folder / "albert_base")
    with tarfile.open(folder / "file.tar.gz", "w:gz") as file:
        file.add(folder / "albert_base", "albert_base")
    return (folder / "file.tar.gz").read_bytes()


@pytest.fixture
def server(archive, tmp_path, monkeypatch):
    with servers.Server(archive).running() as running:
        url = f"{running.url}{{}}.tar.gz"
        monkeypatch.setattr(downloads, "URL", url)
        monkeypatch.setattr(downloads, "PAUSES", (0, 0))
        monkeypatch.setattr(downloads, "BLOCK", 1 << 10)
        monkeypatch.setenv(downloads.CACHE, str(tmp_path / "cache"))
        yield running


def cached(tmp_path):
    folder = tmp_path / "cache"
    return sorted(path.name for path in folder.iterdir())


def test_a_model_is_downloaded_once(server, tmp_path, capsys):
    first = read_pretrained(NAME)
    assert first.config == tiny.CONFIG and first.tokenizer
    file = str(tmp_path / f"cache/{NAME}.tar.gz")
    assert f"{NAME} was downloaded to {file}." in capsys.readouterr().err
    second = read_pretrained(NAME)
    assert server.requests == [None]
    for name, value in first.values.items():
        np.testing.assert_array_equal(value, second.values[name])
    assert cached(tmp_path) == [f"{NAME}.tar.gz"]


def test_what_was_cut_off_continues(server, archive, tmp_path):
    server.cuts = [2000, 1000]
    file = downloads.find_model(NAME)
    assert server.requests == [None, "bytes=2000-", "bytes=3000-"]
    with open(file, "rb") as found:
        assert found.read() == archive


def test_a_server_without_ranges_begins_again(server, archive):
    server.knows_ranges, server.cuts = False, [2000]
    with open(downloads.find_model(NAME), "rb") as found:
        assert found.read() == archive
    assert server.requests == [None, "bytes=2000-"]


def test_a_server_that_does_not_say_the_length_is_believed(server, archive):
    server.says_length = False
    with open(downloads.find_model(NAME), "rb") as found:
        assert found.read() == archive


def test_it_is_given_up_and_continued_later(server, archive, tmp_path):
    server.cuts = [2000, 1000, 500]
    with pytest.raises(ConnectionError) as caught:
        downloads.find_model(NAME)
    assert "it ended after 3,500 of" in str(caught.value)
    assert "are kept: try again. Or download it where" in str(caught.value)
    assert str(tmp_path / f"cache/{NAME}.tar.gz") in str(caught.value)
    assert cached(tmp_path) == [f"{NAME}.tar.gz.part"]
    with open(downloads.find_model(NAME), "rb") as found:
        assert found.read() == archive
    assert server.requests[-1] == "bytes=3500-"


def test_a_killed_download_continues(server, archive, tmp_path):
    server.pause = 0.05
    child = multiprocessing.get_context("fork").Process(
        target=downloads.find_model, args=[NAME]
    )
    child.start()
    part = tmp_path / f"cache/{NAME}.tar.gz.part"
    while not (part.exists() and part.stat().st_size > 1000):
        assert child.is_alive()
        time.sleep(0.01)
    with pytest.raises(BlockingIOError, match="is in use by process"):
        downloads.find_model(NAME)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    server.pause = 0.0
    size = part.stat().st_size
    with open(downloads.find_model(NAME), "rb") as found:
        assert found.read() == archive
    assert server.requests[-1] == f"bytes={size}-"


@pytest.mark.parametrize("extra", [0, 100])
def test_a_rest_that_is_too_long_begins_again(server, archive, extra, tmp_path):
    (tmp_path / "cache").mkdir()
    part = tmp_path / f"cache/{NAME}.tar.gz.part"
    part.write_bytes(archive + bytes(extra))
    with open(downloads.find_model(NAME), "rb") as found:
        assert found.read() == archive


def test_a_wrong_digest_is_refused(server, archive, tmp_path):
    digest = base64.b64encode(hashlib.md5(archive).digest()).decode()
    server.headers = {"x-goog-hash": f"crc32c=n03x6A==,md5={digest}"}
    # Any other byte: the archive has random weights.
    changed = bytes([archive[-9] ^ 1])
    server.content = archive[:-9] + changed + archive[-8:]
    with pytest.raises(ConnectionError, match="MD5 digest differs"):
        downloads.find_model(NAME)
    assert cached(tmp_path) == []
    server.content = archive
    assert downloads.find_model(NAME)


def test_an_archive_that_is_damaged_is_said(server, archive):
    server.content = archive[:3000] + bytes(50) + archive[3050:]
    with pytest.raises(ValueError, match="cannot be unpacked"):
        read_pretrained(NAME)


def test_what_is_not_there_is_said_at_once(server, tmp_path):
    server.status = 404
    with pytest.raises(ConnectionError, match="the server says 404 Not Found"):
        downloads.find_model(NAME)
    assert len(server.requests) == 1 and cached(tmp_path) == []


def test_without_a_network_one_sentence_says_what_to_do(
    server, tmp_path, monkeypatch
):
    # Nobody listens on port 1.
    monkeypatch.setattr(downloads, "URL", "http://127.0.0.1:1/{}.tar.gz")
    with pytest.raises(ConnectionError) as caught:
        downloads.find_model(NAME)
    said = str(caught.value)
    assert "http://127.0.0.1:1/albert_base_v2.tar.gz cannot be" in said
    assert f"copy it to {tmp_path}/cache/{NAME}.tar.gz." in said


def test_a_cache_that_cannot_be_written_is_named(server, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv(downloads.CACHE, str(tmp_path / "file/cache"))
    wanted = f"{NAME} cannot be .*Set {downloads.CACHE} to a folder that can"
    with pytest.raises(OSError, match=wanted):
        downloads.find_model(NAME)
    assert server.requests == []


def test_local_models_come_first(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir(NAME)
    tiny.write_model(tmp_path / NAME)
    assert read_pretrained(NAME).config == tiny.CONFIG
    assert locations.locate(f"./{NAME}").path == f"./{NAME}"
    assert server.requests == []
    with pytest.raises(FileNotFoundError, match="such as albert_base_v2"):
        locations.locate("albert_base_v3")


def test_models_of_the_hub_are_found(server, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match="pip install huggingface_hub"):
        downloads.find_model("hf:albert/albert-base-v2")

    def fetch(name, allow_patterns):
        # Of this package, transformers, sentence-transformers and KerasHub.
        for file in (
            "albert_config.json",
            "model.ckpt-best.data-00000-of-00001",
            "vocab_extended.txt",
            "head.json",
            "config.json",
            "model-00001-of-00002.safetensors",
            "spiece.model",
            "tokenizer_config.json",
            "modules.json",
            "1_Pooling/config.json",
            "sentence_bert_config.json",
            "model.weights.h5",
            "task.json",
            "assets/tokenizer/vocabulary.spm",
        ):
            assert any(fnmatch.fnmatch(file, p) for p in allow_patterns)
        for file in "onnx/model.onnx", "pytorch_model.bin", "rust_model.ot":
            assert not any(fnmatch.fnmatch(file, p) for p in allow_patterns)
        if name == "albert/albert-base-v2":
            return str(tmp_path)
        raise RuntimeError("offline\n\nmore\nand more")

    fake = types.SimpleNamespace(snapshot_download=fetch)
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    assert downloads.find_model("hf:albert/albert-base-v2") == str(tmp_path)
    with pytest.raises(ConnectionError, match="downloaded: offline more Or"):
        downloads.find_model("hf:other")


def test_the_addresses_are_the_releases():
    assert len(downloads.NAMES) == 12
    assert downloads.URL.format("albert_xxlarge_zh") == (
        "https://storage.googleapis.com/albert_models/albert_xxlarge_zh.tar.gz"
    )
