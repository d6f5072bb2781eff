"""What a program tells of an error: one sentence, for whoever can mend it.

Errors that this package raises are written for users. Those of TensorFlow and
of the operating system that a user can cause, such as a full disk, are put
into words here; of all others the program tells type and first line, and
where it kept the rest.
"""

import errno
import os
import sys
import tempfile
import traceback

# Modules whose errors are written for users: the package and the programs,
# which `flags.run_command` does not call by the name __main__.
OURS = (
    "albert_tf",
    "__main__",
    "create_pretraining_data",
    "export_to_tfhub",
    "run_classifier",
    "run_pretraining",
    "run_race",
    "run_squad",
)
AGAIN = "Free some space; the same command then goes on."
_OS_ERRORS = {
    errno.ENOSPC: f"the disk is full. {AGAIN}",
    errno.EDQUOT: f"the disk quota is used up. {AGAIN}",
    errno.ENOENT: "there is no such file or folder.",
    errno.EROFS: "the file system is read-only. Name another place.",
    errno.EACCES: "permission denied. Whose file or folder is it?",
    errno.EPERM: "permission denied. Whose file or folder is it?",
    errno.ENOTDIR: "a part of this path is a file, not a folder.",
    errno.EISDIR: "it is a folder; wanted a file.",
    errno.ENAMETOOLONG: "the name is too long.",
    errno.EMFILE: "too many open files; see ulimit -n.",
}
# What TensorFlow's errors are called, and how a sentence about them begins.
_TENSORFLOW_ERRORS = {
    "NotFoundError": "Not found",
    "PermissionDeniedError": "Permission denied",
    "FailedPreconditionError": "Cannot go on",
    "DataLossError": "Damaged data",
    "InvalidArgumentError": "Unfit data",
    "OutOfRangeError": "Data ended early",
    "AlreadyExistsError": "Already there",
    "UnavailableError": "Not to be reached",
    "DeadlineExceededError": "No answer in time",
    "UnimplementedError": "Not possible here",
    "AbortedError": "Broken off",
    "InternalError": "TensorFlow failed",
    "UnknownError": "TensorFlow failed",
}
# Lines about a place in a graph, before the one that says what is wrong.
_WHERE_IN_GRAPH = (
    "Graph execution error",
    "Detected at node",
    "Exception encountered when calling",
    "<stack traces unavailable>",
    'File "',
)
_ASSERTION = "assertion failed: "


def explain(error):
    """Returns what to tell a user of an error, one sentence or few."""
    if isinstance(error, MemoryError):
        return _out_of_memory(error)
    if isinstance(error, RecursionError):
        return "The data is nested too deeply to be read."
    if isinstance(error, OSError):
        return _explain_os_error(error)
    meant = ValueError | ImportError | ArithmeticError | EOFError
    if isinstance(error, meant) and _is_raised_by_us(error):
        return str(error)
    if type(error).__name__ == "BrokenProcessPool":
        return (
            "A worker process was killed, perhaps for lack of memory. Give "
            "fewer --num_workers; what is finished is kept."
        )
    if _is_of_tensorflow(error):
        return _explain_tensorflow_error(error)
    return (
        f"{type(error).__name__}: {first_line(error)}\nThis error was not "
        f"foreseen. Where it came from is in {_keep_traceback(error)}; please "
        "report it."
    )


def first_line(error):
    """The first line of an error that says something, without addresses."""
    text = str(error).replace("\x1b[1m", "").replace("\x1b[0m", "")  # Bold.
    lines = [line.strip() for line in text.splitlines()]
    lines = [x for x in lines if x and not x.startswith(_WHERE_IN_GRAPH)]
    line = lines[0] if lines else type(error).__name__
    # "{{function_node __wrapped__X_device_/job...}} text [Op:X] name: "
    if line.startswith("{{"):
        line = line.split("}}", 1)[-1].strip()
    line = line.split(" [Op:")[0]
    if line.startswith(_ASSERTION):
        # Its texts and numbers stand in brackets each.
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
        return f"The file system is read-only ({text}). Name another place."
    if type(error).__name__ == "ResourceExhaustedError":
        return _out_of_memory(error)
    start = _TENSORFLOW_ERRORS.get(type(error).__name__, "TensorFlow failed")
    return f"{start}: {text}"


def _out_of_memory(error):
    return (
        f"There is not enough memory: {first_line(error)}. Lower the batch "
        "size or the length of sequences, or take a smaller model."
    )


def _is_of_tensorflow(error):
    # Where TensorFlow was not imported, it raised nothing.
    module = sys.modules.get("tensorflow")
    return module is not None and isinstance(error, module.errors.OpError)


def _is_raised_by_us(error):
    """Whether the frame that raised it is of this package or the script."""
    frames = list(traceback.walk_tb(error.__traceback__))
    module = frames[-1][0].f_globals.get("__name__", "") if frames else ""
    return module.split(".")[0] in OURS


def _keep_traceback(error):
    handle, path = tempfile.mkstemp(prefix="albert_tf-error-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.writelines(traceback.format_exception(error))
    return path
