"""Runs a program in its own process and stops it when this process stops."""

import ctypes
import signal
import subprocess
import sys

from albert_tf import flags

# Command line of `albert`, without the command.
ALBERT = (sys.executable, "-m", "albert_tf")
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux's prctl.


def run_program(command, **kwargs):
    """Runs a program until it exits; returns its exit status.

    If this process receives ctrl-C or SIGTERM, so does the program, which then
    has time to save its work. If this process is killed, the program receives
    SIGTERM (on Linux).

    Other arguments are those of `subprocess.Popen`.
    """
    # An exception during the start could lose track of the program.
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
                _wait(program, before)
            except KeyboardInterrupt:
                # A second ctrl-C would end this process, and so the program,
                # while that saves its work.
                _wait(program, before | {signal.SIGINT})
                raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return program.returncode


def _wait(program, blocked):
    """Waits until a program ends, without some signals; passes SIGTERM on."""
    try:
        # Also one that has been pending until now.
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        program.wait()
    except flags.Terminated:
        # The terminal sends ctrl-C to both processes, but SIGTERM reaches only
        # this one.
        program.terminate()
        program.wait()
        raise
