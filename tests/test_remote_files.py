"""Remote paths: TensorFlow's ram:// stands for gs://."""

import pytest
import tensorflow as tf

from albert_tf import filesystem


@pytest.fixture
def remote(tmp_path):
    """Path of a remote folder that no other test uses."""
    return f"ram://{tmp_path}"


def test_remote_globs_are_those_that_tensorflow_has(remote):
    for name in ("a.txt", "._a.txt", "b/c.txt"):
        filesystem.write_file(f"{remote}/{name}", "text")
    found = filesystem.expand_files(f"{remote}/*.txt,{remote}/b/*")
    assert found == [f"{remote}/a.txt", f"{remote}/b/c.txt"]
    assert filesystem.expand_files(f"{remote}/.*") == [f"{remote}/._a.txt"]
    with pytest.raises(ValueError, match="each level"):
        filesystem.expand_files(f"{remote}/**/*.txt")


def test_a_server_that_refuses_is_no_absent_folder(remote, monkeypatch):
    """Else a run that resumes would begin anew."""

    def refuse(path):
        raise tf.errors.PermissionDeniedError(None, None, path)

    filesystem.write_file(f"{remote}/a.txt", "text")
    assert filesystem.list_folder(remote) == ["a.txt"]
    assert filesystem.list_folder(f"{remote}/b") == []
    monkeypatch.setattr(tf.io.gfile, "exists", refuse)
    monkeypatch.setattr(tf.io.gfile, "isdir", lambda path: False)
    with pytest.raises(tf.errors.PermissionDeniedError):
        filesystem.list_folder(remote)


def test_a_remote_output_is_checked_before_the_work(remote):
    filesystem.check_can_be_written(f"{remote}/new/a.txt")
    assert filesystem.list_folder(remote) == ["new"]
    assert filesystem.list_folder(f"{remote}/new") == []
    with pytest.raises(IsADirectoryError, match="wanted a file"):
        filesystem.check_can_be_written(f"{remote}/new")


def test_remote_folders_are_kept_apart():
    apart = {"output_dir": "ram://a/glue2"}
    filesystem.check_folders_apart(apart, {"data_dir": "ram://a/glue"})
    filesystem.check_folders_apart(apart, {"data_dir": "/a"})
    inside = {"output_dir": "ram://a/glue/CoLA/"}
    with pytest.raises(ValueError, match="contains the other"):
        filesystem.check_folders_apart(inside, {"data_dir": "ram://a/glue/"})


def test_remote_checkpoints_need_a_name_that_tensorflow_reads(remote):
    with filesystem.named_plainly(f"{remote}/a*?") as name:
        assert name == f"{remote}/a*?"
    with (
        pytest.raises(ValueError, match="rename the folder"),
        filesystem.named_plainly(f"{remote}/lr[1e-4]"),
    ):
        pass


def test_a_remote_file_that_nothing_is_written_to_exists(remote):
    with filesystem.writing(f"{remote}/a.txt"):
        pass
    assert filesystem.read_file(f"{remote}/a.txt") == b""
