"""The driver of kills and faults: a few trials, and what it must notice."""

import collections
import pathlib
import subprocess
import sys

import pytest

from tests.faults import changes, driver, trials

ROOT = pathlib.Path(__file__).parent.parent


def run_driver(code, *words):
    """Runs the driver where TensorFlow has run no operation yet."""
    return subprocess.run(
        [sys.executable, *code, *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize(
    ("programs", "num_trials"),
    [
        ("convert_checkpoint", 3),
        pytest.param(
            "create_pretraining_data,convert_checkpoint,"
            "create_pretraining_data+workers,run_classifier",
            10,
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_what_is_killed_or_starved_ends_as_if_nothing_had_happened(
    programs, num_trials
):
    done = run_driver(
        ["-m", "tests.faults"],
        f"--programs={programs}",
        f"--trials={num_trials}",
    )
    assert done.returncode == 0, done.stdout
    assert "0 failed" in done.stdout


# It writes in place, believes what is there, and locks nothing.
CARELESS = """
import dataclasses, os
from albert_tf import flags

@dataclasses.dataclass(frozen=True, kw_only=True)
class CarelessFlags(flags.Flags):
    pass

def run(args):
    if not os.path.exists("out.txt"):
        # Not pathlib: on Python 3.10 it keeps its own reference to `open`.
        with open("out.txt", "w") as file:
            file.write("a line\\n" * 9)
    os.mkdir("temp-1")
    os.rmdir("temp-1")

if __name__ == "__main__":
    flags.launch(run, CarelessFlags)
"""
DRIVE = """
import sys
from tests.faults import driver, jobs

jobs.JOBS["careless"] = jobs.Job((sys.argv[1],))
sys.exit(driver.main(sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def said_of_careless(tmp_path_factory):
    script = tmp_path_factory.mktemp("careless") / "careless.py"
    script.write_text(CARELESS)
    names = [f"careless:{kind}:0" for kind in ("within", "stop", "again")]
    names += [f"careless:{when}:{i}" for when in changes.WHEN for i in range(4)]
    done = run_driver(
        ["-c", DRIVE], str(script), f"--only={','.join(dict.fromkeys(names))}"
    )
    assert done.returncode == 1, done.stdout
    return done.stdout


@pytest.mark.parametrize(
    "complaint",
    [
        "write out.txt:\n  out.txt differs",
        "File exists: 'temp-1'",
        "rmdir temp-1:\n  start1: exit status 1",
        "stop: it takes no lock",
        "--seed=0 --only=careless:within:0",
    ],
)
def test_a_careless_program_is_caught(complaint, said_of_careless):
    assert complaint in said_of_careless


def test_a_few_trials_are_of_many_programs_and_kinds():
    programs, kinds = list("abcde"), list(trials.KINDS)
    first = driver.plan(10, 0, programs, kinds, few=())
    assert {p for p, *_ in first} == set(programs)
    assert len({kind for _, kind, _ in first}) >= 6
    many = driver.plan(100, 0, programs, kinds, few="e")
    assert len(set(many)) == 100
    counts = collections.Counter(program for program, *_ in many)
    assert counts["e"] == len(trials.FEW)
    assert many == driver.plan(100, 0, programs, kinds, few="e")
