"""The TPU compiler, in an environment of its own.

jax and libtpu compile for TPUs without one. Their versions are fixed, because
`tpu_compiler` needs private parts of jaxlib, and the memory that a step needs
may depend on the version.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import venv

from albert_tf import filesystem, ownership
from albert_tf.programs import subprograms

PACKAGES = ("jax==0.10.2", "jaxlib==0.10.2", "libtpu==0.0.51")
OLDEST_PYTHON = (3, 11)
SCRIPT = pathlib.Path(__file__).with_name("tpu_compiler.py")


def find_python(folder):
    """Returns the path of the environment's Python, which may not exist."""
    name = "-".join(package.replace("==", "-") for package in PACKAGES)
    return os.path.join(folder, name, "bin", "python")


def prepare(folder):
    """Makes the environment unless it exists; returns its Python's path."""
    python = find_python(folder)
    if os.path.exists(python):
        return python
    if sys.version_info < OLDEST_PYTHON:
        raise ValueError(
            f"{PACKAGES[0]} needs Python {'.'.join(map(str, OLDEST_PYTHON))} "
            f"or newer; this is {sys.version.split()[0]}."
        )
    place = os.path.dirname(os.path.dirname(python))
    print(f"Installing {', '.join(PACKAGES)} into {place}.")
    # An interrupted run may have left a part of it.
    incomplete = f"{place}.incomplete"
    filesystem.make_folder(incomplete)
    with ownership.owning(place):
        if os.path.exists(python):  # Another process was faster.
            return python
        shutil.rmtree(incomplete, ignore_errors=True)
        filesystem.make_folder(incomplete)
        try:
            _install(incomplete)
            os.replace(incomplete, place)
        finally:
            shutil.rmtree(incomplete, ignore_errors=True)
    return python


def _install(place):
    """Makes a virtual environment and installs PACKAGES into it."""
    try:
        venv.create(place, with_pip=True)
    except subprocess.CalledProcessError as error:
        raise ValueError(
            "Python cannot make a virtual environment. On Debian and Ubuntu: "
            "apt-get install python3-venv"
        ) from error
    python = os.path.join(place, "bin", "python")
    options = ["-q", "--disable-pip-version-check", "--no-input"]
    done = subprocess.run(
        [python, "-m", "pip", "install", *options, *PACKAGES],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        lines = [x for x in done.stderr.splitlines() if x.startswith("ERROR")]
        raise ValueError(
            f"pip could not install {', '.join(PACKAGES)}: "
            f"{' '.join(lines[-1:]) or done.stderr[-300:]} Is there a "
            "connection to a package index that has them?"
        )


class Compiler:
    """Compiles for one TPU topology.

    Args:
      python: path of the environment's Python, from `prepare`.
      topology: such as "v3:2x2".

    Attributes:
      device: kind of the chips, such as "TPU v3".
      num_cores: number of cores of the topology.
      available_bytes: memory of a core.

    Raises:
      ValueError: if there is no such topology.
    """

    def __init__(self, python, topology):
        self.command = [python, str(SCRIPT), f"--topology={topology}"]
        described = self._run([])
        if "error" in described:
            raise ValueError(
                f"--topology={topology}: {described['error']} Wanted a "
                "generation and its chips in each direction, such as v3:2x2, "
                "v4:2x2x1, v5e:2x4 or v6e:2x4."
            )
        self.device = described["device"]
        self.num_cores = described["num_cores"]
        self.available_bytes = described["available_bytes"]

    def compile(self, hlo, num_replicas):
        """Compiles a module; returns a dict of figures.

        Args:
          hlo: bytes of an HloModuleProto.
          num_replicas: number of replicas, at most `num_cores`.

        Returns:
          The figures of `tpu_compiler.measure` and "seconds"; if the step does
          not fit, only "seconds", "error" and, if known, "needed_bytes".

        Raises:
          ValueError: if the compiler fails for another reason than memory.
        """
        with tempfile.TemporaryDirectory(prefix="albert_tf-") as folder:
            path = os.path.join(folder, "step.hlo")
            pathlib.Path(path).write_bytes(hlo)
            figures = self._run([path, f"--num_replicas={num_replicas}"])
        if "error" in figures and not figures["is_out_of_memory"]:
            raise ValueError(f"The TPU compiler refused: {figures['error']}")
        return figures

    def _run(self, words):
        """Runs the script; returns the JSON of its last line."""
        with (
            tempfile.TemporaryFile("w+") as output,
            tempfile.TemporaryFile("w+") as log,
        ):
            status = subprograms.run_program(
                self.command + words, stdout=output, stderr=log
            )
            output.seek(0)
            log.seek(0)
            lines = output.read().splitlines()
            if status or not lines:
                raise ValueError(
                    f"The TPU compiler ended with status {status}"
                    f"{' (killed: out of memory?)' if status == -9 else ''}: "
                    f"{log.read()[-1000:].strip()}"
                )
        return json.loads(lines[-1])
