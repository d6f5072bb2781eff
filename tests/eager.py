"""Runs training and evaluation steps as Python, operation by operation.

To trace and compile the step of a tiny model takes about two CPU seconds, to
run it a hundredth. A program that trains for six steps, so that a test can look
at the files that it leaves, need not compile them.

Tests of `training` and `model` trace as users do. So does every program in a
test with the mark `traced`: some mistakes show only there, such as a value that
is read once, while the step is traced.
"""

import contextlib

import pytest

from albert_tf.model import compiled, onednn

is_on = False
trace_once = compiled.trace_once


def trace_once_or_call(function):
    """Like `compiled.trace_once`, but eager steps call the function itself."""
    traced = trace_once(function)
    return lambda *tensors: (function if is_on else traced)(*tensors)


# Before the kernels are defined, which it decorates.
compiled.trace_once = trace_once_or_call

from albert_tf.training import evaluation, replicas  # noqa: E402


@contextlib.contextmanager
def steps(wanted=True):
    """Steps that are built inside are eager; with wanted=False, traced."""
    global is_on
    before, is_on = is_on, wanted
    with pytest.MonkeyPatch.context() as patch:
        if wanted:
            replace_all(patch)
        yield
    is_on = before


def python(function):
    """Returns the Python function of a tf.function."""
    return getattr(function, "python_function", function)


def replace_all(patch):
    """Replaces what traces, as long as `is_on`."""
    build = evaluation.build_eval_function
    trace = replicas.Traces.trace
    is_available = onednn.is_available
    patch.setattr(
        evaluation,
        "build_eval_function",
        lambda *args: python(build(*args)) if is_on else build(*args),
    )
    patch.setattr(
        replicas.Traces,
        "trace",
        lambda self, *args: (
            python(self.function) if is_on else trace(self, *args)
        ),
    )
    # Its operations exist in graphs only.
    patch.setattr(
        onednn, "is_available", lambda dtype: not is_on and is_available(dtype)
    )
