"""Locks for output files and folders: one process writes at a time.

The lock is the operating system's (`flock`). It is released when its process
ends for any reason, so a stale lock file blocks nobody. Remote folders (gs://)
cannot be locked.
"""

import contextlib
import datetime
import os
import pathlib
import shlex
import socket
import sys

from albert_tf import filesystem

LOCK_FILE = ".lock"
# Lock files that this process has locked.
_LOCKED: set[str] = set()
# How often a lock file may disappear while it is opened.
_TRIES = 100


@contextlib.contextmanager
def owning(*paths):
    """Context manager: locks files, or folders that are created atomically.

    The lock is a hidden file next to each path; it is removed at the end.

    Raises:
      BlockingIOError: if another process has locked one; names the process.
    """
    with contextlib.ExitStack() as stack:
        for lock_file in sorted(set(map(_lock_file, paths))):
            stack.enter_context(_locked(lock_file))
        yield


@contextlib.contextmanager
def owning_folder(folder, is_shared=False):
    """Context manager: locks a folder in which files are written; yields it.

    The lock is a hidden file in the folder; it is removed at the end. If the
    folder was created for the lock and is still empty, it is removed, too.

    Args:
      folder: the folder.
      is_shared: whether to share a lock that this process has already.

    Raises:
      BlockingIOError: if another process has locked it; names the process.
    """
    lock_file = os.path.join(str(folder), LOCK_FILE)
    if is_shared and os.path.realpath(lock_file) in _LOCKED:
        yield str(folder)
        return
    with _locked(lock_file):
        yield str(folder)


def _lock_file(path):
    folder, name = os.path.split(str(path).rstrip("/"))
    if not filesystem.is_remote(folder):
        # A folder may have several names: relative paths, links.
        folder = os.path.realpath(folder)
    return os.path.join(folder, f".{name}{LOCK_FILE}")


@contextlib.contextmanager
def _locked(lock_file):
    if filesystem.is_remote(lock_file):
        yield
        return
    folder = os.path.dirname(lock_file)
    is_new = not os.path.isdir(folder)
    filesystem.make_folder(folder)
    file = _open_locked(lock_file)
    name = os.path.realpath(lock_file)
    _LOCKED.add(name)
    try:
        with file:
            file.write(_describe_this_process())
            file.flush()
            yield
            os.unlink(lock_file)
    except BaseException:
        # Also if the file could not be written, as on a full disk.
        with contextlib.suppress(OSError):
            os.unlink(lock_file)
        raise
    finally:
        _LOCKED.discard(name)
        if is_new:
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # Fails unless it is empty.


def _open_locked(lock_file):
    """Opens and locks the lock file, or raises BlockingIOError."""
    try:
        import fcntl
    except ImportError:  # Not on Unix: no locks.
        return open(os.devnull, "w", encoding="utf-8")
    for _ in range(_TRIES):
        file = open(lock_file, "a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip()
            file.close()
            raise BlockingIOError(
                f"{os.path.dirname(lock_file)} is in use by "
                f"{owner or 'another process'}. Wait for it, stop it, or "
                "choose another path."
            ) from None
        except OSError:  # A file system without locks.
            return file
        # The previous owner may have removed the file in the meantime.
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(lock_file)):
                file.truncate(0)
                return file
        file.close()
    raise BlockingIOError(
        f"{lock_file} is repeatedly created and removed by other processes. "
        "Try again."
    )


def _describe_this_process():
    program = pathlib.PurePath(sys.argv[0]).name
    command = shlex.join([program, *sys.argv[1:]])
    return (
        f"process {os.getpid()} on {socket.gethostname()}, since "
        f"{datetime.datetime.now():%Y-%m-%d %H:%M:%S}: {command:.200}\n"
    )
