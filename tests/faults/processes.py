"""Programs in forked processes.

TensorFlow's import takes seconds. A fork of a process that has imported it
starts at once, and works as long as that process has run no operation.
"""

import atexit
import contextlib
import functools
import multiprocessing
import os
import pathlib
import runpy
import signal
import sys
import tempfile
import threading
import time
import traceback

import psutil

from albert_tf import flags
from tests import cluster
from tests.faults import changes

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STARTED = "started"
# Of what is killed or told to stop; a program that hangs is a fault.
MAX_SECONDS = 300


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
        self.others = []  # Workers that train together with this one.

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

    def left_over(self, seconds=30):
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
      at: see `changes.Changes`.
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
        watcher = changes.Changes(
            folder / "home", process.changes_path, at, when, act
        )
        status = _run_program(words, watcher)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def start_workers(count, words, folder, name, prepare=None, **kwargs):
    """Starts processes that train together.

    Args:
      count: how many.
      words: see `start`.
      folder: likewise.
      name: likewise; those after the first are NAME.1 and so on.
      prepare: as for `start`, called in the first one.
      **kwargs: arguments of `start` for the first one.

    Returns:
      The first Process, with the others in `others`.
    """
    addresses = cluster.free_addresses(count)

    def prepare_worker(index):
        os.environ["TF_CONFIG"] = cluster.describe(
            index=index, worker=addresses
        )
        if prepare and not index:
            prepare()

    first, *others = (
        start(
            words,
            folder,
            f"{name}.{i}" if i else name,
            prepare=functools.partial(prepare_worker, i),
            **({} if i else kwargs),
        )
        for i in range(count)
    )
    first.others = others
    return first


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


def _run_program(words, watcher):
    """Runs a program as Python does; returns its exit status."""
    launch = flags.launch

    def noted_launch(run, flags_class):
        def noted_run(args):
            watcher.note(STARTED)
            return flags.call(run, args)

        launch(noted_run, flags_class)

    flags.launch = noted_launch
    watcher.watch()
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
    # As Python ends.
    threading._shutdown()
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
