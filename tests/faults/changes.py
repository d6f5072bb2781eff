"""Counts what a program changes in files, to hurt it exactly there.

Changes are seen where Python calls for them: files that are opened for
writing, each write, renames, removals, folders, checkpoints. What TensorFlow
does within one call is one change.
"""

import builtins
import contextlib
import io
import os

import tensorflow as tf
from tensorflow.python.checkpoint import functional_saver
from tensorflow.python.lib.io import file_io

WHEN = ("before", "within", "after")


class Changes:
    """Counts the changes in a folder, and does something at one of them.

    Args:
      folder: the folder; what changes elsewhere does not count.
      log: file that gets a line for each change, before it is made.
      at: number of the change, from 1; 0 for none.
      when: one of WHEN. Only a write has a "within".
      act: function of no arguments that is called then.
    """

    def __init__(self, folder, log, at=0, when="before", act=None):
        self.folder = os.path.realpath(folder)
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.at, self.when, self.act = at, when, act
        self.count = 0

    def relative(self, path, folder_handle=None):
        """The path in the folder, or None where it is not in there."""
        path = os.fsdecode(path)
        if folder_handle is not None:
            folder = os.readlink(f"/proc/self/fd/{folder_handle}")
            path = os.path.join(folder, path)
        path = os.path.relpath(os.path.abspath(path), self.folder)
        return None if path.split(os.sep)[0] == ".." else path

    @contextlib.contextmanager
    def change(self, name, path, half=None, folder_handle=None):
        """Goes around a change.

        Args:
          name: what is done.
          path: to what.
          half: function that does half of it.
          folder_handle: of the folder that the path is in.
        """
        path = self.relative(path, folder_handle)
        if path is None:
            yield
            return
        self.count += 1
        is_it = self.count == self.at
        self.note(f"{name} {path}")
        if is_it and self.when == "within" and half:
            half()
        if is_it and self.when != "after":
            self.act()
        try:
            yield
        finally:
            if is_it and self.when == "after":
                self.act()

    def note(self, line):
        os.write(self.log, f"{line}\n".encode())

    def watch(self):
        """Replaces the functions of this process that change files."""
        self._watch_open()
        self._watch_functions(
            os, "rename replace unlink remove rmdir mkdir truncate"
        )
        for name, public in (
            ("rename_v2", "rename"),
            ("copy_v2", "copy"),
            ("delete_file_v2", "remove"),
            ("delete_recursively_v2", "rmtree"),
            ("create_dir_v2", "mkdir"),
            ("recursive_create_dir_v2", "makedirs"),
        ):
            self._watch_functions(file_io, name)
            setattr(tf.io.gfile, public, getattr(file_io, name))
        self._watch_gfile()
        self._watch_functions(tf.raw_ops, "SaveV2", lambda prefix, **_: prefix)
        self._watch_functions(
            functional_saver.MultiDeviceSaver,
            "save",
            # Of a SavedModel; where it goes is known to the graph alone.
            lambda *_, **__: os.path.join(self.folder, "variables"),
        )
        self._watch_records()

    def _watch_functions(
        self, owner, names, path_of=lambda path, *_, **__: path
    ):
        for name in names.split():
            original = getattr(owner, name)

            def watched(*args, name=name, original=original, **kwargs):
                handle = kwargs.get("dir_fd")
                with self.change(
                    name, path_of(*args, **kwargs), folder_handle=handle
                ):
                    return original(*args, **kwargs)

            setattr(owner, name, watched)

    def _watch_open(self):
        original = io.open

        def open_file(
            file,
            mode="r",
            buffering=-1,
            encoding=None,
            errors=None,
            newline=None,
            closefd=True,
            opener=None,
        ):
            is_watched = (
                not isinstance(file, int)
                and set(mode) & set("wax+")
                and self.relative(file) is not None
            )
            if not is_watched:
                return original(
                    file,
                    mode,
                    buffering,
                    encoding,
                    errors,
                    newline,
                    closefd,
                    opener,
                )
            with self.change("open", file):
                raw = _WatchedFile(self, file, mode, opener)
            if buffering == 0:
                return raw
            kind = io.BufferedRandom if "+" in mode else io.BufferedWriter
            buffer = kind(raw)
            if "b" in mode:
                return buffer
            return io.TextIOWrapper(buffer, encoding, errors, newline)

        builtins.open = io.open = open_file

    def _watch_gfile(self):
        write, close = file_io.FileIO.write, file_io.FileIO.close

        def watched_write(file, content):
            def half():
                write(file, content[: len(content) // 2])
                file.flush()

            with self.change("write", file.name, half):
                return write(file, content)

        def watched_close(file):
            if file._writable_file is None:
                return close(file)
            with self.change("close", file.name):
                return close(file)

        file_io.FileIO.write = watched_write
        file_io.FileIO.close = watched_close

    def _watch_records(self):
        changes = self

        class Writer(tf.io.TFRecordWriter):
            def __init__(self, path, options=None):
                self.path = path
                with changes.change("open", path):
                    super().__init__(path, options)

            def close(self):
                with changes.change("close", self.path):
                    super().close()

            def __exit__(self, *args):
                self.close()

        tf.io.TFRecordWriter = Writer


class _WatchedFile(io.FileIO):
    """A file whose writes and truncations are changes."""

    def __init__(self, changes, path, mode, opener):
        super().__init__(path, mode.translate({98: "", 116: ""}), opener=opener)
        self.changes = changes

    def write(self, content):
        def half():
            io.FileIO.write(self, bytes(content)[: len(content) // 2])

        with self.changes.change("write", self.name, half):
            return super().write(content)

    def truncate(self, size=None):
        with self.changes.change("truncate", self.name):
            return super().truncate(size)
