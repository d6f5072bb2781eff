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
    # While it starts, an exception could be lost, and the program with it.
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM}
    )
    libc = ctypes.CDLL(None)

    def prepare():
        if sys.platform == "linux":
            libc.prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        with subprocess.Popen(command, preexec_fn=prepare, **kwargs) as program:
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                program.wait()
            except KeyboardInterrupt as stop:
                # The terminal sends ctrl-C to both, but SIGTERM goes to one.
                if isinstance(stop, flags.Terminated):
                    program.terminate()
                program.wait()
                raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return program.returncode
