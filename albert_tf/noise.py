"""Imports TensorFlow without the lines that it prints about itself.

They cannot be turned off: TensorFlow writes them before it reads
TF_CPP_MIN_LOG_LEVEL. All else that it prints, errors too, is passed on.
"""

import contextlib
import importlib
import os
import signal
import sys

NOISE = (
    b"All log messages before absl::InitializeLog()",
    b"oneDNN custom operations are on",
    b"Could not find cuda drivers on your machine",
)
# An error on a machine with a GPU, where it says why the GPU is not used.
NO_GPU_NOISE = (b"failed call to cuInit",)
NVIDIA_DRIVER = "/proc/driver/nvidia"


def import_quietly(name):
    """Returns a module, imported with all that it needs."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # A fork beside TensorFlow's threads may hang.
    if "tensorflow" in sys.modules or not hasattr(os, "fork"):
        return importlib.import_module(name)
    with _filtered_stderr():
        module = importlib.import_module(name)
        if "tensorflow" in sys.modules:
            # Looks for GPUs here rather than at the first tensor.
            sys.modules["tensorflow"].config.list_physical_devices()
    return module


@contextlib.contextmanager
def _filtered_stderr():
    """Drops the lines of noise that are written to file descriptor 2."""
    sys.stderr.flush()
    source, sink = os.pipe()
    # A process, not a thread, so that the last words of a crash get through.
    child = os.fork()
    if not child:
        os.close(sink)
        _pass_on(source)
    os.close(source)
    terminal = os.dup(2)
    os.dup2(sink, 2)
    os.close(sink)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        os.close(terminal)
        os.waitpid(child, 0)


def _pass_on(source):
    """Copies lines to file descriptor 2, without noise, and ends."""
    noise = NOISE if os.path.exists(NVIDIA_DRIVER) else NOISE + NO_GPU_NOISE
    # Ctrl-C is for the program; what it then prints comes through here.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    status = 1
    try:
        with os.fdopen(source, "rb") as lines:
            for line in lines:
                if not any(words in line for words in noise):
                    os.write(2, line)
        status = 0
    finally:
        os._exit(status)
