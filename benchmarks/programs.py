"""Runs the programs of this checkout."""

import os
import pathlib
import shlex
import sys

from albert_tf.tools import subprograms

ROOT = pathlib.Path(__file__).parent.parent


def run(*arguments):
    """Shows and runs one of the programs; ends with it if it fails."""
    print(shlex.join(["python", *arguments]), flush=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    status = subprograms.run_program(
        [sys.executable, *arguments], env=environment
    )
    if status:
        sys.exit(status)
