"""What happens to a job, and what must be true then."""

import contextlib
import ctypes
import dataclasses
import functools
import os
import signal
import subprocess
import time

from tests.faults import artifacts, jobs, processes

IN_USE = "is in use by"
DISK_IS_FULL = "disk is full"
READ_ONLY = ("read-only", "permission denied")
# How long a program that was told to stop may take.
SECONDS_TO_STOP = 30
# What a worker says of one that stopped, and how one may end then.
LOST_WORKER = "another worker stopped"
ORDERLY = (0, 1, 128 + signal.SIGINT, 128 + signal.SIGTERM)
KILLED = -signal.SIGKILL


@dataclasses.dataclass(frozen=True)
class Reference:
    """A run to which nothing happened.

    Attributes:
      artifacts: what it left; see `artifacts.describe`.
      changes: a line for each change of a file that it made.
      seconds: that its own work took.
      num_bytes: of what it left.
    """

    artifacts: dict
    changes: list
    seconds: float
    num_bytes: int


class Trial:
    """A job to which something happens.

    Args:
      program: key of `jobs.JOBS`.
      reference: its Reference.
      folder: for the trial alone.
      place: where in the job it happens, from 0 to 1.
    """

    def __init__(self, program, reference, folder, place):
        self.job = jobs.JOBS[program]
        self.reference = reference
        self.folder = folder
        self.place = place
        self.complaints = []
        self.processes = []
        self.what = ""
        self.stack = contextlib.ExitStack()

    @property
    def home(self):
        """The folder in which the job works."""
        return self.folder / "home"

    def start(self, **kwargs):
        """Starts the job's command, with `processes.start`."""
        name = f"start{len(self.processes)}"
        process = processes.start_workers(
            self.job.num_workers, self.job.words, self.folder, name, **kwargs
        )
        self.processes += [process, *process.others]
        return process

    def start_and_wait(self, place):
        """Starts the command and waits until a share of it is done.

        A third of the places mean time, most of which is TensorFlow's
        compilation; the others changes of files.
        """
        process = self.start()
        process.wait(process.has_started)
        if place < 1 / 3:
            seconds = 3 * place * self.reference.seconds
            deadline = time.monotonic() + seconds
            process.wait(lambda: time.monotonic() > deadline)
            self.what = f"after {seconds:.2f} of {self.reference.seconds:.2f} s"
        else:
            total = len(self.reference.changes)
            count = int((3 * place - 1) / 2 * total)
            process.wait(lambda: len(process.changes()) >= count)
            self.what = f"during change {count} of {total}"
        return process

    def choose_change(self, is_wanted=lambda number, line: True):
        """Number of a change of the reference, at this trial's place."""
        lines = self.reference.changes
        numbers = [n for n, s in enumerate(lines, 1) if is_wanted(n, s)]
        if not numbers:
            raise Skipped("the program makes no such change")
        number = numbers[int(self.place * len(numbers))]
        self.what = f"change {number} of {len(lines)}, {lines[number - 1]}"
        return number

    def refusals(self):
        """What a second copy may say."""
        words = (IN_USE, self.job.refused_when_done)
        return [word for word in words if word]

    def expect(self, is_true, complaint):
        """Notes a complaint unless something is true."""
        if not is_true:
            self.complaints.append(complaint)

    def expect_orderly_end(self, process, statuses, words=()):
        """Waits for a process; notes what is wrong with its end.

        Args:
          process: a `processes.Process`.
          statuses: exit statuses that are right.
          words: some of these it must say, where it does not end with 0.
        """
        name = process.output_path.stem
        try:
            status = process.wait()
        except TimeoutError as error:
            self.complaints.append(f"{name}: {error}")
            return
        output = process.output()
        lines = [x for x in output.splitlines() if x and x[0] != "("]
        end = lines[-1] if lines else "it says nothing"
        self.expect(
            status in statuses,
            f"{name}: exit status {status}, wanted {statuses}: {end}",
        )
        self.expect("Traceback" not in output, f"{name}: a traceback")
        if status and words:
            is_said = any(word in output.lower() for word in words)
            self.expect(is_said, f"{name}: says nothing of {words}: {end}")

    def finish(self):
        """Runs the command until it has ended well; compares the results."""
        for process in self.processes:
            for other in process.others:
                words = (LOST_WORKER,) if other.wait() == 1 else ()
                self.expect_orderly_end(other, ORDERLY, words)
            left = process.left_over()
            self.expect(not left, f"processes go on: {left}")
        process = self.start()
        status = process.wait()
        refusal = self.job.refused_when_done
        is_refused = status == 1 and refusal and refusal in process.output()
        if not is_refused:
            for one in (process, *process.others):
                self.expect_orderly_end(one, (0,))
        found = processes.call(artifacts.describe, self.home)
        self.complaints += artifacts.differences(
            found, self.reference.artifacts
        )


class Skipped(Exception):
    """What cannot be tried here."""


# What happens to a job. Each function takes a Trial.


def kill(trial):
    """SIGKILL at some time, and again while the job goes on."""
    for place in (trial.place, 1 - trial.place):
        process = trial.start_and_wait(place)
        process.signal(signal.SIGKILL)
        status = process.wait()
        trial.expect(status in (0, KILLED), "ended before the kill")
        if status == 0:  # Done before the signal: it may refuse another start.
            return


def kill_at_change(when, trial):
    """SIGKILL exactly before, within or after a change of a file."""
    number = trial.choose_change(
        lambda _, line: when != "within" or line.startswith("write")
    )
    process = trial.start(
        at=number,
        when=when,
        act=lambda: os.kill(os.getpid(), signal.SIGKILL),
    )
    status = process.wait()
    trial.expect(status == KILLED, f"was to be killed; exit status {status}")


def tell_to_stop(number, trial):
    """SIGINT to all processes, as a terminal does, or SIGTERM to one."""
    process = trial.start_and_wait(trial.place)
    process.signal(number, to_group=number == signal.SIGINT)
    began = time.monotonic()
    trial.expect_orderly_end(process, (128 + number, 0))
    seconds = time.monotonic() - began
    trial.expect(seconds < SECONDS_TO_STOP, f"took {seconds:.0f} s to stop")
    for other in process.others:
        other.wait()
    left = [path.name for path in (trial.folder / "tmp").iterdir()]
    trial.expect(not left, f"temporary files are left: {left}")


def harm_another_worker(number, statuses, trial):
    """SIGKILL or SIGTERM to a worker that is not the chief."""
    process = trial.start_and_wait(trial.place)
    if not process.others:
        raise Skipped("it is one process")
    process.others[0].signal(number)
    began = time.monotonic()
    words = (LOST_WORKER,) if process.wait() == 1 else ()
    trial.expect_orderly_end(process, statuses, words)
    seconds = time.monotonic() - began
    trial.expect(seconds < SECONDS_TO_STOP, f"took {seconds:.0f} s to stop")
    process.others.clear()


def stop_and_continue(trial):
    """SIGSTOP; a second copy is refused; SIGCONT."""
    if trial.job.num_workers > 1:
        raise Skipped("workers that wait for each other")
    locks = [
        number
        for number, line in enumerate(trial.reference.changes, 1)
        if line.startswith(("open", "unlink")) and line.endswith(".lock")
    ]
    if not locks:
        raise Skipped("it takes no lock")
    number = trial.choose_change(lambda n, _: locks[0] < n <= locks[-1])
    process = trial.start(
        at=number, act=lambda: os.kill(os.getpid(), signal.SIGSTOP)
    )
    process.wait(lambda: process.is_stopped)
    try:
        second = trial.start()
        trial.expect_orderly_end(second, (1,), trial.refusals())
    finally:
        process.signal(signal.SIGCONT)
    trial.expect_orderly_end(process, (0,))


def start_two(trial):
    """Two copies at once, or the second while the first is at work."""
    if trial.job.num_workers > 1:
        raise Skipped("workers that wait for each other")
    late = max(0, trial.place - 0.5)
    processes = [trial.start_and_wait(late) if late else trial.start()]
    processes.append(trial.start())
    for process in processes:
        trial.expect_orderly_end(process, (0, 1), trial.refusals())
    statuses = [process.status for process in processes]
    trial.what = f"exit statuses {statuses}"
    trial.expect(0 in statuses, f"none of two ended well: {statuses}")


def run_again(trial):
    """Nothing happens, but the command is given twice."""
    trial.expect_orderly_end(trial.start(), (0,))


def fill_disk(trial):
    """A disk that is full after some bytes, then has space again."""
    size = int(trial.place * trial.reference.num_bytes) // 4096 * 4096 + 4096
    trial.what = f"{size} of {trial.reference.num_bytes} bytes"
    trial.stack.enter_context(mounted(trial.home, size))
    trial.expect_orderly_end(trial.start(), (0, 1), (DISK_IS_FULL,))
    remount(trial.home, f"size={1 << 30}")


def mount_read_only(trial):
    """A file system that is read-only, after a job was killed in it."""
    trial.stack.enter_context(mounted(trial.home, 1 << 30))
    if trial.place > 0.5:
        process = trial.start_and_wait(trial.place)
        process.signal(signal.SIGKILL)
        process.wait()
        process.left_over()
    remount(trial.home, "ro")
    trial.expect_orderly_end(trial.start(), (1,), READ_ONLY)
    remount(trial.home, "rw")


def deny_writing(trial):
    """Folders that nothing more can be added to, from some change on."""
    number = trial.choose_change()
    process = trial.start(
        at=number,
        act=functools.partial(change_modes, trial.home, 0o555),
        prepare=give_up_override,
    )
    try:
        trial.expect_orderly_end(process, (0, 1), READ_ONLY)
    finally:
        change_modes(trial.home, 0o755)


KINDS = {
    "kill": kill,
    "before": functools.partial(kill_at_change, "before"),
    "full": fill_disk,
    "term": functools.partial(tell_to_stop, signal.SIGTERM),
    "after": functools.partial(kill_at_change, "after"),
    "two": start_two,
    "int": functools.partial(tell_to_stop, signal.SIGINT),
    "within": functools.partial(kill_at_change, "within"),
    "denied": deny_writing,
    "stop": stop_and_continue,
    "readonly": mount_read_only,
    "again": run_again,
    "other-kill": functools.partial(
        harm_another_worker, signal.SIGKILL, (0, 1)
    ),
    # Before the first step, the chief finds that a worker is missing.
    "other-term": functools.partial(
        harm_another_worker, signal.SIGTERM, (0, 1, 128 + signal.SIGTERM)
    ),
}
# Of these any number is worth while.
ENDLESS = ("before", "after", "within", "kill", "full", "int", "term", "denied")
# Of a program that starts others, which import TensorFlow, each of these once.
FEW = ("kill", "int", "term", "two", "full")


def change_modes(folder, mode):
    """Gives a folder and those in it a mode."""
    for path, _, _ in list(os.walk(folder)):
        os.chmod(path, mode)


def give_up_override():
    """Makes this process heed the modes of files, even as root."""
    if os.geteuid():
        return
    cap_dac_override, drop_from_bounding_set, version = 1, 24, 0x20080522
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(drop_from_bounding_set, cap_dac_override, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(version, 0)
    data = (ctypes.c_uint32 * 6)()
    libc.capget(header, data)
    for i in (0, 1, 2):  # Effective, permitted, inheritable.
        data[i] &= ~(1 << cap_dac_override)
    if libc.capset(header, data):
        raise OSError(ctypes.get_errno(), "capset")


@contextlib.contextmanager
def mounted(folder, size):
    """A file system of some bytes in memory.

    Raises:
      Skipped: if mounting is not allowed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={size}"
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError):
        raise Skipped("mounting is not allowed") from None
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def remount(folder, options):
    """Changes the options of a mounted file system."""
    options = f"remount,{options}"
    subprocess.run(["mount", "-o", options, folder], check=True)


def run_trial(program, kind, reference, folder, place):
    """Returns the Trial, after it was run.

    Raises:
      Skipped: if it cannot be run here.
    """
    trial = Trial(program, reference, folder, place)
    with trial.stack:
        try:
            KINDS[kind](trial)
            trial.finish()
        except TimeoutError as error:
            trial.complaints.append(str(error))
        finally:
            for process in trial.processes:
                process.signal(signal.SIGKILL, to_group=True)
    return trial
