"""Output of a program before its own first line."""

import os
import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf

from albert_tf import quiet_import
from albert_tf.__main__ import PROGRAMS, TOOLS
from albert_tf.commands import run_classifier
from albert_tf.data import table_tasks

ROOT = pathlib.Path(__file__).parent.parent
# Modules that are too slow to import for --help.
SLOW = {"numpy", "scipy", "sklearn", "sentencepiece", "keras", "tensorflow"}
CHILD = """
import os, sys
from albert_tf import quiet_import
sys.path.insert(0, sys.argv[1])
quiet_import.import_quietly("noisy")
os.write(2, b"after\\n")
"""
NOISY = """
import os
os.write(2, b"WARNING: All log messages before absl::InitializeLog() are\\n")
os.write(2, b"I0000 oneDNN custom operations are on. You may\\n")
os.write(2, b"E0000 failed call to cuInit: UNKNOWN ERROR\\n")
os.write(2, b"I0000 Could not find cuda drivers on your machine\\n")
os.write(2, b"E0000 something is wrong\\n")
"""


def run_child(*arguments, **kwargs):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        check=False,
        cwd=ROOT,
        text=True,
        **kwargs,
    )


def test_help_imports_no_slow_modules():
    names = [*PROGRAMS, *TOOLS]
    done = run_child(
        "-c",
        "import sys\n"
        "from albert_tf import commands\n"
        f"for name in {names}: commands.find(name)\n"
        "print(*sys.modules)",
    )
    assert done.returncode == 0, done.stderr
    assert not SLOW & set(done.stdout.split())


def test_the_help_lists_all_tasks():
    assert run_classifier.GLUE == tuple(table_tasks.GLUE)


@pytest.mark.parametrize(
    ("rest", "has_driver", "says"),
    [
        ("", False, ["E0000 something is wrong", "after"]),
        (
            "",
            True,
            [
                "E0000 failed call to cuInit: UNKNOWN ERROR",
                "I0000 Could not find cuda drivers on your machine",
                "E0000 something is wrong",
                "after",
            ],
        ),
        ("os.abort()", False, ["E0000 something is wrong"]),
    ],
)
def test_other_output_is_forwarded_even_in_a_crash(
    tmp_path, rest, has_driver, says
):
    (tmp_path / "noisy.py").write_text(NOISY + rest)
    driver = ROOT if has_driver else tmp_path / "none"
    set_driver = f"\nquiet_import.NVIDIA_DRIVER = {str(driver)!r}"
    code = CHILD.replace(
        "import quiet_import", f"import quiet_import{set_driver}"
    )
    done = run_child("-c", code, str(tmp_path))
    assert done.stderr.splitlines() == says
    assert bool(done.returncode) == bool(rest)


def test_an_error_of_the_import_is_raised_and_shown(tmp_path):
    (tmp_path / "noisy.py").write_text(NOISY + "import nowhere")
    done = run_child("-c", CHILD, str(tmp_path))
    assert done.returncode == 1
    assert "E0000 something is wrong" in done.stderr
    assert done.stderr.endswith("No module named 'nowhere'\n")


@pytest.mark.skipif(
    os.path.exists(quiet_import.NVIDIA_DRIVER), reason="TensorFlow says more"
)
def test_a_program_prints_only_its_own_lines():
    # As for users; the test suite itself sets a level.
    environment = {**os.environ}
    del environment["TF_CPP_MIN_LOG_LEVEL"]
    done = run_child(
        *("-m", "albert_tf", "inspect_checkpoint", "--init_checkpoint=none"),
        env=environment,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("albert inspect_checkpoint: ")


def test_there_is_no_fork_after_tensorflow_is_imported(monkeypatch):
    assert tf.__name__ in sys.modules
    monkeypatch.delattr(os, "fork")
    monkeypatch.setattr(os, "pipe", None)
    assert quiet_import.import_quietly("albert_tf.quiet_import") is quiet_import
