"""One owner at a time: who writes to a folder tells the others to wait.

The lock is the operating system's (`flock`), so it ends with the process that
holds it, however that ends: a stale file blocks nobody. Remote folders
(gs://) cannot be locked.
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
# How often a lock's file may vanish while it is opened.
_TRIES = 100


@contextlib.contextmanager
def owning(*paths):
    """Owns what will be written for a while: files, or folders as a whole.

    The lock is a hidden file beside; it is removed at the end.

    Args:
      *paths: of files, or of folders that will appear at once.

    Raises:
      BlockingIOError: if another process owns one of them; says which.
      OSError: if the folder around cannot be made or written.
    """
    with contextlib.ExitStack() as stack:
        for lock_file in sorted(set(map(_lock_beside, paths))):
            stack.enter_context(_locked(lock_file))
        yield


@contextlib.contextmanager
def owning_folder(folder):
    """Owns a folder in which files will be written, for a while.

    The lock is a hidden file in it, which is removed at the end, and so is the
    folder, if it had to be made and is still empty.

    Raises:
      BlockingIOError: if another process owns it; says which.
      OSError: if it cannot be made or written.
    """
    with _locked(os.path.join(str(folder), LOCK_FILE)):
        yield


def _lock_beside(path):
    folder, name = os.path.split(str(path).rstrip("/"))
    if not filesystem.is_remote(folder):
        # One folder has several names: relative, by links.
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
    try:
        with file:
            file.write(_describe_this_process())
            file.flush()
            yield
            os.unlink(lock_file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(lock_file)
        raise
    finally:
        if is_new:
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # Only where nothing was written.


def _open_locked(lock_file):
    """Returns the lock's file, open and locked, or raises BlockingIOError."""
    try:
        import fcntl
    except ImportError:  # No Unix: there is nothing to lock with.
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
                f"{owner or 'another process'}. Wait for it, stop it, or name "
                "another place."
            ) from None
        except OSError:  # A file system without locks.
            return file
        # Its last owner may have removed the file in between.
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(lock_file)):
                file.truncate(0)
                return file
        file.close()
    raise BlockingIOError(f"{lock_file} comes and goes; try again.")


def _describe_this_process():
    program = pathlib.PurePath(sys.argv[0]).name
    command = shlex.join([program, *sys.argv[1:]])
    return (
        f"process {os.getpid()} on {socket.gethostname()}, since "
        f"{datetime.datetime.now():%Y-%m-%d %H:%M:%S}: {command:.200}\n"
    )
