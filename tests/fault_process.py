"""Programs in forked processes, hurt at an exact change of a file.

TensorFlow's import takes seconds. A fork of a process that has imported it
starts at once, and works as long as that process has run no operation.

What a program changes is seen where Python calls for it: files that are
opened for writing, each write, renames, removals, folders, checkpoints. What
TensorFlow does within one call is one change.
"""

import atexit
import builtins
import contextlib
import io
import multiprocessing
import os
import pathlib
import runpy
import signal
import sys
import tempfile
import time
import traceback

import psutil
import tensorflow as tf
from tensorflow.python.checkpoint import functional_saver
from tensorflow.python.lib.io import file_io

from albert_tf import flags

ROOT = pathlib.Path(__file__).resolve().parent.parent
WHEN = ("before", "within", "after")
STARTED = "started"
# Of what is killed or told to stop; a program that hangs is a fault.
MAX_SECONDS = 300


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


class Process:
    """A program that was started.

    Args:
      pid: its process, which leads a group.
      folder: from `start`.
      name: likewise.
    """

    def __init__(self, pid, folder, name):
        self.pid = pid
        self.output_path = folder / f"{name}.log"
        self.changes_path = folder / f"{name}.changes"
        self.status = None
        self.is_stopped = False

    def output(self):
        """What it wrote to stdout and stderr."""
        return self.output_path.read_text(errors="replace")

    def changes(self):
        """The lines of its log of changes, without the one of its start."""
        lines = self.changes_path.read_text().splitlines()
        return [line for line in lines if line != STARTED]

    def has_started(self):
        """Whether the program's own work has begun."""
        if not self.changes_path.exists():
            return False
        return f"{STARTED}\n" in self.changes_path.read_text()

    def poll(self):
        """Whether it has ended; notes it where it was stopped."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                self.is_stopped = True
            elif pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def wait(self, until=None, seconds=MAX_SECONDS):
        """Waits for its end, or until a function returns true.

        Returns:
          Its exit status; minus a signal's number; or None where it runs.

        Raises:
          TimeoutError: if it takes longer; it is killed then.
        """
        deadline = time.monotonic() + seconds
        while not self.poll() and not (until and until()):
            if time.monotonic() > deadline:
                self.signal(signal.SIGKILL, to_group=True)
                self.wait()
                raise TimeoutError(f"It took longer than {seconds:.0f} s.")
            time.sleep(0.005)
        return self.status

    def signal(self, number, to_group=False):
        """Sends a signal, unless it has ended."""
        if to_group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)
        elif self.status is None:
            os.kill(self.pid, number)

    def left_over(self, seconds=10):
        """Processes of its group that do not end, though it has; kills them."""
        deadline = time.monotonic() + seconds
        while found := _processes_of_group(self.pid):
            if time.monotonic() > deadline:
                self.signal(signal.SIGKILL, to_group=True)
                return found
            time.sleep(0.05)
        return []


def _processes_of_group(group):
    """Command lines of its processes, but for those that have ended."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) != group:
                continue
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline())[:200])
    return found


def start(words, folder, name, *, at=0, when="before", act=None, prepare=None):
    """Starts a program in a process of its own.

    Args:
      words: its command line: a script of ROOT, or a module; then its flags.
      folder: where it works, in `home`; temporary files go to `tmp`.
      name: of this start; NAME.log and NAME.changes are written.
      at: see `Changes`.
      when: likewise.
      act: likewise.
      prepare: function that is called in the new process.

    Returns:
      A Process.
    """
    for path in (folder / "home", folder / "tmp"):
        path.mkdir(parents=True, exist_ok=True)
    process = Process(_fork(), folder, name)
    if process.pid:
        return process
    status = 1
    try:
        _redirect(process.output_path)
        os.setpgid(0, 0)
        os.chdir(folder / "home")
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if prepare:
            prepare()
        changes = Changes(folder / "home", process.changes_path, at, when, act)
        status = _run_program(words, changes)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _fork():
    sys.stdout.flush()
    sys.stderr.flush()
    return os.fork()


def _redirect(path):
    for number, name, mode in (
        (0, os.devnull, os.O_RDONLY),
        (1, path, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    ):
        handle = os.open(name, mode)
        os.dup2(handle, number)
        os.close(handle)
    os.dup2(1, 2)


def _run_program(words, changes):
    """Runs a program as Python does; returns its exit status."""
    launch = flags.launch

    def noted_launch(run, flags_class):
        def noted_run(args):
            changes.note(STARTED)
            return run(args)

        launch(noted_run, flags_class)

    flags.launch = noted_launch
    changes.watch()
    sys.argv = list(words)
    try:
        if words[0].endswith(".py"):
            sys.argv[0] = str(ROOT / words[0])
            runpy.run_path(sys.argv[0], run_name="__main__")
        else:
            runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 0
    # A signal that comes now comes too late.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    atexit._run_exitfuncs()
    return status


def call(function, *args):
    """Calls a function in a forked process; returns what it returns.

    TensorFlow may be used in it, which must not be used in this process.

    Raises:
      RuntimeError: if it raises anything.
    """
    receiver, sender = multiprocessing.Pipe(duplex=False)
    pid = _fork()
    if not pid:
        try:
            sender.send((function(*args), None))
        except BaseException:
            sender.send((None, traceback.format_exc()))
        finally:
            os._exit(0)
    sender.close()
    try:
        value, error = receiver.recv()
    finally:
        os.waitpid(pid, 0)
    if error:
        raise RuntimeError(error)
    return value
