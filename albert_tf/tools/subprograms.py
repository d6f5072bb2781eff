"""Runs a program for a tool: it ends when the tool ends, whatever ends that."""

import ctypes
import signal
import subprocess
import sys

from albert_tf import flags

_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux's prctl.


def run_program(command, **kwargs):
    """Runs a program to its end; returns its exit status.

    Where this process gets ctrl-C or SIGTERM, the program gets it too and has
    time to save what it has. Where this process is killed, the program gets
    SIGTERM, on Linux.

    Args:
      command: its words.
      **kwargs: of `subprocess.Popen`.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        kwargs["preexec_fn"] = lambda: libc.prctl(
            _SET_DEATH_SIGNAL, signal.SIGTERM
        )
    with subprocess.Popen(command, **kwargs) as program:
        try:
            program.wait()
        except KeyboardInterrupt as stop:
            # The terminal sends ctrl-C to both, but SIGTERM goes to one.
            if isinstance(stop, flags.Terminated):
                program.terminate()
            program.wait()
            raise
    return program.returncode
