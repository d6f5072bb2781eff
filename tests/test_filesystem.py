"""Files are found by globs and written atomically."""

import gzip
import os

import pytest

from albert_tf import filesystem
from albert_tf.data.pretraining import shards


def test_globs_are_expanded_and_sorted(tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.txt").write_text("text")
    pattern = f"{tmp_path}/2.txt,{tmp_path}/[01].txt"
    names = [name[-5:] for name in filesystem.expand_files(pattern)]
    assert names == ["0.txt", "1.txt", "2.txt"]
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "3.txt").touch()
    found = filesystem.expand_files(f"{tmp_path}/**/*.txt")
    assert [name[-5:] for name in found] == [f"{i}.txt" for i in range(4)]
    with pytest.raises(ValueError, match=r"nothing\*"):
        filesystem.expand_files(f"{tmp_path}/0.txt,{tmp_path}/nothing*")
    with pytest.raises(ValueError, match="Found no file name"):
        filesystem.expand_files("")


def test_local_globs_mean_what_they_mean_in_a_shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(filesystem, "_gfile", None)  # TensorFlow is slow.
    (tmp_path / "a").mkdir()
    for name in "1.txt", "2.txt", "._1.txt", "a/3.txt", "a/.4.txt":
        (tmp_path / name).touch()
    for pattern, wanted in (
        ("*.txt", ["1.txt", "2.txt"]),
        (".*.txt", ["._1.txt"]),
        ("?.txt", ["1.txt", "2.txt"]),
        ("[!1].txt", ["2.txt"]),
        ("[^1].txt", ["2.txt"]),
        ("*/*.txt", ["a/3.txt"]),
        ("**", ["1.txt", "2.txt", "a/3.txt"]),
        ("2.txt,?.txt", ["2.txt", "1.txt", "2.txt"]),
    ):
        assert filesystem.expand_in_order(pattern) == wanted
    with pytest.raises(ValueError, match="a is a folder"):
        filesystem.expand_in_order("*")


def test_the_name_of_one_file_may_have_commas(tmp_path):
    for name in "a", "b, c", "b":
        (tmp_path / name).touch()
    for name, wanted in ("b, c", ["b, c"]), ("a,{}/b", ["a", "b"]):
        found = filesystem.expand_files(f"{tmp_path}/{name.format(tmp_path)}")
        assert [path[len(f"{tmp_path}/") :] for path in found] == wanted


def test_the_name_of_a_folder_may_have_commas(tmp_path):
    (tmp_path / "b, c").mkdir()
    for name in "1.txt", "2.txt":
        (tmp_path / "b, c" / name).touch()
    found = filesystem.expand_files(f"{tmp_path}/b, c/*.txt")
    assert found == [f"{tmp_path}/b, c/{i}.txt" for i in (1, 2)]
    # Of a file that is to be written, too.
    name = f"{tmp_path}/b, c/x.tfrecord"
    assert shards.output_names(name, 1) == [name]
    assert len(shards.output_names(name, 3)) == 3
    names = [f"{tmp_path}/a/x", f"{tmp_path}/b/x"]
    assert shards.output_names(", ".join(names), 1) == names


def test_a_tilde_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in "~", "~/new":
        with pytest.raises(ValueError, match=f"^{name}: ~ is not expanded"):
            filesystem.make_folder(name)
    assert not [*tmp_path.iterdir()]
    filesystem.make_folder("new/~")


@pytest.mark.parametrize("content", ["Zoë\n", b"\x00\xff"])
def test_a_file_is_written_to_a_new_folder(tmp_path, content):
    path = tmp_path / "new" / "file"
    filesystem.write_file(path, content)
    is_text = isinstance(content, str)
    wanted = content.encode() if is_text else content
    assert path.read_bytes() == wanted
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyError), filesystem.replacing(str(path)) as name:
        with open(name, "w") as file:
            file.write("ne")
        raise KeyError
    assert path.read_text() == "old"


def test_the_folder_of_a_pattern_may_contain_glob_characters(tmp_path):
    folder = tmp_path / "a[1]*"
    folder.mkdir()
    for name in ("b.txt", "c.txt", "d.bin"):
        (folder / name).touch()
    found = filesystem.expand_files(f"{folder}/*.txt")
    assert found == [f"{folder}/b.txt", f"{folder}/c.txt"]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (gzip.compress(b'{"a": 1}', mtime=0), "It is gzip."),
        ('{"a": 1}'.encode("utf-16"), "It is text in UTF-16."),
        ('{"a": 1}'.encode("utf-16-le"), "It is text in UTF-16."),
        (b"%PDF-1.7", "It is a PDF document."),
        (b"<!DOCTYPE html><p>", "It is an HTML page."),
        (b'{"a": 1}\n{"a": 2}\n', "It is JSON lines"),
        (b'{\n "a": 1,\n', "each line must be a complete object"),
        (b'{"a": 1},\n{"a": 2},\n', "a comma before a closing bracket or at"),
        (b"{'a': 1}", "It is Python's notation"),
        ("{\u201ca\u201d: 1}".encode(), "curly quotes"),
        (b"name: x\n", "It begins with 'name: x'"),
        (b'{"a": "caf\xe9"}', "Save it as UTF-8"),
        (b'{"a": 1,}', "a comma before a closing bracket"),
        (b'{"a": [1, 2', "Is it truncated"),
        (b'[{"a": 1}]', "type list, wanted an object. JSON lines have one on"),
    ],
)
def test_what_is_not_json_is_said(content, kind):
    with pytest.raises(ValueError, match=f"^a.json.*{kind}"):
        filesystem.parse_json(content, "a.json")


def test_a_device_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/null", "/dev/stdout"):
        with pytest.raises(ValueError, match="wanted the name of a file"):
            filesystem.check_can_be_written(str(path))
    assert not filesystem._is_standard_stream("/dev/stdout.model")
    assert not filesystem._is_standard_stream("/proc/served/file")


def test_the_nearest_folder_with_a_path_is_found(tmp_path, monkeypatch):
    inner = tmp_path / "a/b/c"
    inner.mkdir(parents=True)
    (tmp_path / "data/x").mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert filesystem.find_folder_with("data/x").samefile(tmp_path)
    (tmp_path / "a/data").mkdir()
    assert filesystem.find_folder_with("data/x").samefile(tmp_path)
    (tmp_path / "a/data/x").touch()
    assert filesystem.find_folder_with("data/x").samefile(tmp_path / "a")
    with pytest.raises(FileNotFoundError, match="no data/y in .*above"):
        filesystem.find_folder_with("data/y")
