"""What users give wrongly: one sentence, exit status 1, nothing touched.

The rows stand in `tests/bad_inputs`. They run in one process and in a folder
that is made once, and mended after each; a few have a process of their own.
"""

import contextlib
import dataclasses
import fnmatch
import importlib
import os
import pathlib
import pkgutil
import re
import shutil
import signal
import subprocess
import sys
import time
import typing

import pytest

from albert_tf import commands as albert_commands
from albert_tf import flags, ownership, settings
from tests import eager
from tests.bad_inputs import (
    accepted_rows,
    commands,
    data_rows,
    export_rows,
    fine_tuning_rows,
    pretraining_rows,
    request_rows,
    resume_rows,
    tool_rows,
    world,
)
from tests.bad_inputs.table import Row

# Of CPU, here and in child processes: other work on the machine takes none.
SECONDS = 20
pytestmark = pytest.mark.usefixtures("eager_steps")
FOLDER = "a folder"
DETAILS = "(Details: --verbosity=1)"
ROWS = [
    row
    for module in (
        data_rows,
        pretraining_rows,
        fine_tuning_rows,
        resume_rows,
        export_rows,
        tool_rows,
    )
    for row in module.ROWS
]


def name_of(row):
    if hasattr(row, "command"):
        return f"{row.command.split()[0]}: {row.name}"
    return row.name


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """The folder as it is before each row."""
    folder = tmp_path_factory.mktemp("world")
    before = os.getcwd()
    with eager.steps():
        world.make(folder)
    os.chdir(before)
    return folder


@pytest.fixture(scope="session")
def copied(made, processes, tmp_path_factory):
    """A copy of it, and what is in it; `processes` run beside the rows."""
    del processes
    folder = tmp_path_factory.mktemp("copies") / "world"
    return shutil.copytree(made, folder), look_at(made)


@pytest.fixture
def folder(made, copied, monkeypatch):
    """The current folder: a copy of everything."""
    folder, wanted = copied
    monkeypatch.chdir(folder)
    yield folder
    mend(folder, made, wanted)


def cpu_seconds():
    """CPU time of this process and of the children that have ended."""
    return sum(os.times()[:4])


@contextlib.contextmanager
def limit_time(seconds=SECONDS):
    """Fails on too much CPU time, and breaks off what hangs.

    A wait takes no CPU time, so there is a limit of elapsed time, too.
    """

    def stop(signum, frame):
        raise AssertionError(f"hung for {10 * seconds} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)
    start = cpu_seconds()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert cpu_seconds() - start < seconds


def look_at(folder, found=None, prefix=""):
    """What is there: dict of path -> target of a link, or what a change alters.

    Whoever writes to a file changes the time, whatever is written.
    """
    found = {} if found is None else found
    for entry in os.scandir(folder):
        name = prefix + entry.name
        if entry.is_symlink():
            found[name] = os.readlink(entry.path)
        elif entry.is_dir():
            found[name] = FOLDER
            look_at(entry.path, found, f"{name}/")
        else:
            stat = entry.stat()
            found[name] = stat.st_size, stat.st_mtime_ns
    return found


def differences(before, after, may_write=()):
    """The paths that are new, gone or different, but for those that may be."""
    return [
        path
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
        and not any(fnmatch.fnmatch(path, p) for p in may_write)
    ]


def mend(folder, made, wanted):
    """Makes a folder what it was copied from."""
    found = look_at(folder)
    different = differences(wanted, found)
    for path in reversed(different):
        if path in found:
            remove = os.rmdir if found[path] == FOLDER else os.remove
            remove(folder / path)
    for path in different:
        if wanted.get(path) == FOLDER:
            os.mkdir(folder / path)
        elif path in wanted:
            shutil.copy2(made / path, folder / path)


def run_row(row, seconds=SECONDS):
    for change in row.changes:
        change()
    with contextlib.ExitStack() as stack:
        for path in getattr(row, "owned", ()):
            is_folder = path.endswith("/")
            own = ownership.owning_folder if is_folder else ownership.owning
            stack.enter_context(own(path))
        before = look_at(pathlib.Path.cwd())
        stack.enter_context(limit_time(seconds))
        status = commands.call(row.command)
        after = look_at(pathlib.Path.cwd())
    return status, before, after


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_a_bad_input_ends_in_one_sentence(row, folder, capfd, monkeypatch):
    monkeypatch.setattr("sys.argv", ["the_program"])
    check_refusal(row, capfd)


def check_refusal(row, capfd):
    status, before, after = run_row(row)
    said = capfd.readouterr()
    assert status == 1, f"accepted: {said.out[-500:]}{said.err[-500:]}"
    assert said.err.count(DETAILS) == 1 and "Traceback" not in said.err
    message = said.err.split("the_program: ")[-1].split(f"\n{DETAILS}")[0]
    assert "error is unexpected" not in message, message
    assert re.search(row.says, message, re.DOTALL), message
    # What a run is made of may differ in many ways, a line each.
    assert len(message) < 2000 and message.count("\n") <= 15, message
    assert differences(before, after, row.may_write) == []


@pytest.mark.parametrize("row", accepted_rows.ROWS, ids=name_of)
def test_what_looks_odd_is_taken(row, folder, capfd, caplog):
    status, *_ = run_row(row, seconds=5 * SECONDS)
    said = "".join(capfd.readouterr()) + caplog.text
    assert status == 0, said[-1000:]
    assert "Traceback" not in said
    assert re.search(row.says, said, re.DOTALL), said[-1000:]
    for path in row.writes:
        assert os.path.exists(path), (path, sorted(os.listdir()))
    if row.check:
        row.check()


@pytest.mark.parametrize("row", request_rows.ROWS, ids=name_of)
def test_a_bad_request_is_refused(row, made):
    answer = request_rows.ask(made / row.model, row.signature, row.inputs)
    assert re.search(row.says, answer, re.DOTALL), answer


@pytest.mark.parametrize(("model", "signature", "inputs"), request_rows.EMPTY)
def test_an_empty_batch_has_an_empty_answer(made, model, signature, inputs):
    outputs = request_rows.answer(made / model, signature, inputs)
    assert {len(values) for values in outputs.values()} == {0}


@pytest.mark.parametrize("row", request_rows.CALLS, ids=name_of)
def test_a_bad_call_is_refused(row, folder):
    with pytest.raises((ValueError, OSError), match=row.says), limit_time():
        row.function()


@pytest.fixture
def disk(folder):
    """A small file system of its own, where the machine lets us mount one."""
    os.mkdir("disk")
    command = ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", "disk"]
    if os.getuid() or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("only root can mount a file system")
    yield folder / "disk"
    subprocess.run(["umount", "--lazy", str(folder / "disk")], check=True)


def fill():
    with contextlib.suppress(OSError), open("disk/all_else", "wb", 0) as file:
        while True:
            file.write(bytes(512))


def forbid_writing():
    command = ["mount", "-o", "remount,ro", "disk"]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.parametrize(
    "command", commands.WRITING, ids=lambda c: c.split()[0]
)
@pytest.mark.parametrize(
    ("change", "says"),
    [(fill, "disk is full"), (forbid_writing, "file system is read-only")],
    ids=["full", "read-only"],
)
def test_an_error_says_that_a_disk_is_full_or_read_only(
    disk, capfd, monkeypatch, command, change, says
):
    monkeypatch.setattr("sys.argv", ["the_program"])
    row = Row("", command, says, (change,), may_write=("disk/*",))
    check_refusal(row, capfd)


# Command, variables of its environment, status, and what is printed.
PROCESSES = {
    "another backend of Keras": (
        ["-m", "albert_tf", "inspect_checkpoint", "--init_checkpoint=model"],
        {"KERAS_BACKEND": "torch"},
        0,
        "KERAS_BACKEND=torch is ignored.*total +1,768 in",
    ),
    "help": (["run_squad.py", "--help"], {}, 0, "--doc_stride: .*at least 1"),
    "a script": (
        ["run_race.py", "--data_dir=no", "--output_dir=new", "--num_runs=0"],
        {},
        1,
        "run_race.py: --num_runs=0; wanted at least 1",
    ),
}


@pytest.fixture(scope="session")
def processes(made):
    """Programs in processes of their own, all started at once."""
    root = pathlib.Path(__file__).resolve().parent.parent
    return {
        name: subprocess.Popen(
            [
                sys.executable,
                *(str(root / w) if w.endswith(".py") else w for w in words),
            ],
            cwd=made,
            env=os.environ | {"PYTHONPATH": str(root)} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name, (words, environment, *_) in PROCESSES.items()
    }


@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_ends_as_a_call_does(processes, name):
    *_, status, says = PROCESSES[name]
    said, _ = processes[name].communicate(timeout=120)
    assert processes[name].returncode == status, said
    assert re.search(says, said, re.DOTALL), said
    assert "Traceback" not in said


def classes_of_flags():
    """Every class of flags or settings that a program has or inherits."""
    names = [
        f"{albert_commands.__name__}.{module.name}"
        for module in pkgutil.iter_modules(albert_commands.__path__)
    ]
    modules = [importlib.import_module(name) for name in names]
    found = {
        base
        for module in modules
        for name, value in vars(module).items()
        if name.endswith("Flags")
        for base in value.__mro__
        if dataclasses.is_dataclass(base)
    }
    return sorted(found, key=lambda c: (c.__module__, c.__qualname__))


@pytest.mark.parametrize(
    "flags_class",
    classes_of_flags(),
    ids=lambda c: f"{c.__module__}.{c.__qualname__}",
)
def test_a_default_is_said_once(flags_class):
    said_twice = [
        field.name
        for field in dataclasses.fields(flags_class)
        if field.default not in (None, False, "", dataclasses.MISSING)
        and "Default:"
        in (settings.inherited(flags_class, field.name, "help") or "")
    ]
    assert not said_twice


@pytest.mark.parametrize(
    "flags_class",
    classes_of_flags(),
    ids=lambda c: f"{c.__module__}.{c.__qualname__}",
)
def test_every_number_has_a_range(flags_class):
    hints = typing.get_type_hints(flags_class)
    kinds = {name: flags._without_none(hint) for name, hint in hints.items()}
    unlimited = [
        field.name
        for field in dataclasses.fields(flags_class)
        if kinds[field.name] in (int, float)
        and settings.inherited(flags_class, field.name, "range") is None
    ]
    assert not unlimited


def test_the_limit_counts_the_cpu_time_of_children_and_no_waiting():
    work = "import time\nwhile time.process_time() < 0.3: pass"
    with limit_time(0.2):
        time.sleep(0.3)
    with pytest.raises(AssertionError), limit_time(0.2):
        subprocess.run([sys.executable, "-c", work], check=True)


def test_no_row_is_there_twice_and_there_are_enough():
    names = [name_of(row) for row in [*ROWS, *accepted_rows.ROWS]]
    assert len(set(names)) == len(names)
    assert len(ROWS) >= 200
