"""Converts exceptions to error messages: one sentence on how to fix them.

The messages of this package's own errors are kept. Errors of TensorFlow and of
the operating system that users can cause, such as a full disk, are rewritten.
All others are shown with the path of a file that has the traceback.
"""

import errno
import os
import sys
import tempfile
import traceback

# Whose errors are written for users: the package, and scripts that use `flags`.
OURS = ("albert_tf", "__main__")
AGAIN = "Free some space and rerun the same command; a training resumes."
_OS_ERRORS = {
    errno.ENOSPC: f"the disk is full. {AGAIN}",
    errno.EDQUOT: f"the disk quota is used up. {AGAIN}",
    errno.ENOENT: "there is no such file or folder.",
    errno.EROFS: "the file system is read-only. Choose another path.",
    errno.EACCES: "permission denied. Does it belong to another user?",
    errno.EPERM: "permission denied. Does it belong to another user?",
    errno.ENOTDIR: "a part of this path is a file, not a folder.",
    errno.EISDIR: "it is a folder; wanted a file.",
    errno.ENAMETOOLONG: "the name is too long.",
    errno.EMFILE: "too many open files; see ulimit -n.",
}
# TensorFlow's error classes, and the start of the message for each.
_TENSORFLOW_ERRORS = {
    "NotFoundError": "Not found",
    "PermissionDeniedError": "Permission denied",
    "FailedPreconditionError": "Cannot continue",
    "DataLossError": "Damaged data",
    "InvalidArgumentError": "Invalid data",
    "OutOfRangeError": "Unexpected end of data",
    "AlreadyExistsError": "Already exists",
    "UnavailableError": "Service unavailable",
    "DeadlineExceededError": "Timeout",
    "UnimplementedError": "Not supported",
    "AbortedError": "Aborted",
    "InternalError": "TensorFlow failed",
    "UnknownError": "TensorFlow failed",
}
# Prefixes of lines on the position in a graph, which precede the cause.
_GRAPH_LOCATIONS = (
    "Graph execution error",
    "Detected at node",
    "Exception encountered when calling",
    "<stack traces unavailable>",
    'File "',
)
_ASSERTION = "assertion failed: "


def explain(error):
    """Returns the error message for a user, one or a few sentences."""
    if isinstance(error, MemoryError):
        return _out_of_memory(error)
    if isinstance(error, RecursionError):
        return "The data is nested too deeply to be read."
    if isinstance(error, OSError):
        return _explain_os_error(error)
    expected = ValueError | ImportError | ArithmeticError | EOFError
    if isinstance(error, expected) and _is_raised_by_us(error):
        return str(error)
    # By its name: importing the class would slow down every command.
    if type(error).__name__ == "BrokenProcessPool":
        return (
            "A worker process was killed, perhaps for lack of memory. Lower "
            "num_workers; finished work is kept."
        )
    # If TensorFlow is not imported, it did not raise the error.
    tf = sys.modules.get("tensorflow")
    if tf is not None and isinstance(error, tf.errors.OpError):
        return _explain_tensorflow_error(error)
    return (
        f"{type(error).__name__}: {first_line(error)}\nThis error is "
        f"unexpected. Please report it with its traceback in "
        f"{_keep_traceback(error)}"
    )


def first_line(error):
    """Returns the first meaningful line of an error, without addresses."""
    text = str(error).replace("\x1b[1m", "").replace("\x1b[0m", "")  # Bold.
    lines = [line.strip() for line in text.splitlines()]
    lines = [x for x in lines if x and not x.startswith(_GRAPH_LOCATIONS)]
    line = lines[0] if lines else type(error).__name__
    # "{{function_node __wrapped__X_device_/job...}} text [Op:X] name: "
    if line.startswith("{{"):
        line = line.split("}}", 1)[-1].strip()
    line = line.split(" [Op:")[0]
    if line.startswith(_ASSERTION):
        # Each of its texts and numbers is in brackets.
        line = line.removeprefix(_ASSERTION).strip("[]").replace("] [", " ")
    return line[:300]


def _explain_os_error(error):
    if error.errno in _OS_ERRORS and error.filename:
        return f"{error.filename}: {_OS_ERRORS[error.errno]}"
    if error.errno == errno.ENOSPC:
        return f"The disk is full. {AGAIN}"
    return str(error)


def _explain_tensorflow_error(error):
    text = first_line(error)
    if "No space left on device" in str(error):
        return f"The disk is full ({text}). {AGAIN}"
    if "Read-only file system" in str(error):
        return f"The file system is read-only ({text}). Choose another path."
    _, aborted, cause = str(error).partition("Collective ops is aborted by:")
    if aborted:
        return (
            "Another worker stopped, see its own message, or the files of the "
            "hosts differ. Start the same command on every host again: it "
            "resumes from the newest checkpoint. (TensorFlow says:"
            f"{cause.partition(chr(10))[0]:.200})"
        )
    if type(error).__name__ == "ResourceExhaustedError":
        return _out_of_memory(error)
    start = _TENSORFLOW_ERRORS.get(type(error).__name__, "TensorFlow failed")
    return f"{start}: {text}"


def _out_of_memory(error):
    return (
        f"There is not enough memory: {first_line(error)}. In training, "
        "gradient_accumulation_steps=2 or more needs less and gives the same "
        "result but for the masks of dropout, as does remat=True, where each "
        "step uses the last layer only. Otherwise lower the batch size or the "
        "sequence length, or use a smaller model."
    )


def _is_raised_by_us(error):
    frames = list(traceback.walk_tb(error.__traceback__))
    module = frames[-1][0].f_globals.get("__name__", "") if frames else ""
    return module.split(".")[0] in OURS


def _keep_traceback(error):
    handle, path = tempfile.mkstemp(prefix="albert_tf-error-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.writelines(traceback.format_exception(error))
    return path
