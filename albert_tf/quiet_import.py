"""Imports TensorFlow without its messages about itself.

TensorFlow writes these messages before it reads TF_CPP_MIN_LOG_LEVEL, so they
cannot be turned off. All other output, including errors, is passed on.
"""

import contextlib
import importlib
import os
import signal
import sys

NOISE = (
    b"All log messages before absl::InitializeLog()",
    b"oneDNN custom operations are on",
)
# On a machine with a GPU these explain why TensorFlow does not use it.
NO_GPU_NOISE = (
    b"failed call to cuInit",
    b"Could not find cuda drivers on your machine",
)
NVIDIA_DRIVER = "/proc/driver/nvidia"


def import_quietly(name):
    """Imports and returns a module, without TensorFlow's messages."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # A fork while TensorFlow's threads run may hang.
    if "tensorflow" in sys.modules or not hasattr(os, "fork"):
        return importlib.import_module(name)
    with _filtered_stderr():
        module = importlib.import_module(name)
        if "tensorflow" in sys.modules:
            # Searches for GPUs now instead of at the first tensor.
            sys.modules["tensorflow"].config.list_physical_devices()
    return module


@contextlib.contextmanager
def _filtered_stderr():
    """Filters lines of noise from file descriptor 2."""
    sys.stderr.flush()
    source, sink = os.pipe()
    # A process, not a thread, so that it also forwards the output of a crash.
    child = os.fork()
    if not child:
        os.close(sink)
        _forward(source)
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


def _forward(source):
    """Copies lines except noise to file descriptor 2, then exits."""
    noise = NOISE if os.path.exists(NVIDIA_DRIVER) else NOISE + NO_GPU_NOISE
    # The program handles signals; this process must forward its last output.
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
