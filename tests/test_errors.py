"""Error messages are one sentence."""

import errno
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import errors
from albert_tf.model import config


def caught(function, *args):
    with pytest.raises(BaseException) as info:
        function(*args)
    return info.value


def raise_it(error):
    raise error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space", "x"), "x: the disk is full"),
        (OSError(errno.EROFS, "Read-only", "x"), "x: the file system is read-"),
        (OSError(errno.EISDIR, "Is a", "x"), "x: it is a folder"),
        (OSError("There is no x."), "There is no x."),
        (MemoryError("68 GiB"), "not enough memory: 68 GiB"),
        (RecursionError("depth"), "nested too deeply"),
        (
            tf.errors.ResourceExhaustedError(
                None, None, "out/x; No space left on device"
            ),
            "The disk is full (out/x",
        ),
        (
            tf.errors.ResourceExhaustedError(None, None, "OOM [1, 2]\nmore"),
            "not enough memory: OOM [1, 2].",
        ),
        (
            tf.errors.FailedPreconditionError(None, None, "x; Is a directory"),
            "Cannot continue: x; Is a directory",
        ),
    ],
)
def test_errors_that_users_cause_are_one_sentence(error, words):
    said = errors.explain(caught(raise_it, error))
    assert words in said
    assert "\n" not in said


def test_addresses_are_removed_from_tensorflow_errors():
    error = caught(tf.io.decode_raw, tf.constant("abc"), tf.int32)
    said = errors.explain(error)
    assert said.startswith("Invalid data: ")
    assert "{{" not in said and "[Op:" not in said


def test_our_own_errors_are_not_changed():
    error = caught(config.AlbertConfig.from_dict, {})
    assert errors.explain(error) == str(error)


def test_the_traceback_of_an_unexpected_error_is_kept():
    said = errors.explain(caught(np.zeros, "shape"))
    path = pathlib.Path(said.split("traceback in ")[1])
    assert said.startswith("TypeError: ")
    assert "Traceback" in path.read_text()
    path.unlink()
