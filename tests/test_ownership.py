"""A folder has one owner at a time; the lock of a dead process is void."""

import os

import pytest

from albert_tf import ownership


@pytest.fixture
def owner(own_elsewhere, tmp_path):
    """A process that owns tmp_path / out."""
    return own_elsewhere(tmp_path / "out", "owning_folder")


def test_the_error_names_the_owning_process(owner, tmp_path):
    with pytest.raises(BlockingIOError, match=f"process {owner.pid} on "):
        with ownership.owning_folder(tmp_path / "out"):
            raise AssertionError("two owners")
    with ownership.owning_folder(tmp_path / "other"):
        pass


def test_a_killed_owner_blocks_nobody(owner, tmp_path):
    owner.kill()
    owner.wait()
    assert (tmp_path / "out" / ownership.LOCK_FILE).exists()
    with ownership.owning_folder(tmp_path / "out"):
        pass
    assert not (tmp_path / "out").exists() or not os.listdir(tmp_path / "out")


def test_locks_and_empty_folders_are_removed(tmp_path):
    with ownership.owning_folder(tmp_path / "new"):
        with ownership.owning(tmp_path / "a.tfrecord"):
            assert (tmp_path / "new").is_dir()
            assert (tmp_path / ".a.tfrecord.lock").exists()
    assert not os.listdir(tmp_path)
    with pytest.raises(KeyError), ownership.owning_folder(tmp_path / "new"):
        (tmp_path / "new" / "file").touch()
        raise KeyError
    assert os.listdir(tmp_path / "new") == ["file"]


def test_one_process_owns_a_file_once(tmp_path):
    path = tmp_path / "a.tfrecord"
    with ownership.owning(path, path), ownership.owning(tmp_path / "b.bin"):
        with pytest.raises(BlockingIOError, match="in use"):
            with ownership.owning(path):
                raise AssertionError("two owners")
    with ownership.owning(path):
        pass


def test_a_process_may_share_its_own_lock_alone(owner, tmp_path):
    folder, link = tmp_path / "mine", tmp_path / "link"
    link.symlink_to(folder)
    with ownership.owning_folder(folder):
        with ownership.owning_folder(link, is_shared=True):
            pass
        with pytest.raises(BlockingIOError, match="in use"):
            with ownership.owning_folder(folder):
                raise AssertionError("two owners")
    with ownership.owning_folder(folder, is_shared=True):  # Nobody owns it.
        with pytest.raises(BlockingIOError, match="in use"):
            with ownership.owning_folder(folder):
                raise AssertionError("two owners")
    with pytest.raises(BlockingIOError, match=f"process {owner.pid} on "):
        with ownership.owning_folder(tmp_path / "out", is_shared=True):
            raise AssertionError("two owners")


def test_a_file_instead_of_a_folder_is_an_error(tmp_path):
    (tmp_path / "out").touch()
    with pytest.raises(NotADirectoryError, match="is a file"):
        with ownership.owning_folder(tmp_path / "out"):
            raise AssertionError("owned a file")
