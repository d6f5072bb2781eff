"""Runs a part of a benchmark in a process of its own."""

import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def call(module, words, **environment):
    """Runs a module; returns the JSON of the last line that it prints.

    Args:
      module: dotted name.
      words: its arguments.
      **environment: environment variables.
    """
    printed = subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=ROOT,
        env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    ).stdout
    return json.loads(printed.splitlines()[-1])
