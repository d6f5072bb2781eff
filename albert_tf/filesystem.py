"""Files: found by globs, read, and written whole or not at all.

Names may be remote, such as gs://bucket/file. TensorFlow, which knows these,
is imported inside the functions: worker processes that only read local files
do not pay for it.
"""

import contextlib
import json
import os
import pathlib
import tempfile


def is_remote(path):
    """Whether a path names a file system, such as gs://."""
    return "://" in str(path)


def exists(path):
    """Whether there is a file or folder."""
    if not is_remote(path):
        return os.path.exists(path)
    import tensorflow as tf

    return tf.io.gfile.exists(str(path))


def read_file(path):
    """Returns the bytes of a file.

    Raises:
      FileNotFoundError: if there is none.
    """
    if not is_remote(path):
        return pathlib.Path(path).read_bytes()
    import tensorflow as tf

    if not tf.io.gfile.exists(str(path)):
        raise FileNotFoundError(f"There is no file {path}.")
    with tf.io.gfile.GFile(str(path), "rb") as file:
        return file.read()


@contextlib.contextmanager
def local_copy(path):
    """Yields the path of a file, or of a copy of a remote one, for a while."""
    if not is_remote(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, os.path.basename(path))
        pathlib.Path(local).write_bytes(read_file(path))
        yield local


def list_folder(folder):
    """Returns the names in a folder, sorted; none where there is no folder."""
    import tensorflow as tf

    folder = str(folder) or "."
    if not tf.io.gfile.isdir(folder):
        return []
    # On gs:// the names of folders end in a slash.
    return sorted(name.rstrip("/") for name in tf.io.gfile.listdir(folder))


def expand_files(patterns):
    """The files that a comma-separated list of globs stands for, sorted.

    Raises:
      ValueError: if nothing is named, or a pattern matches nothing.
    """
    import tensorflow as tf

    files = set()
    for pattern in (patterns or "").split(","):
        if not pattern.strip():
            continue
        matches = tf.io.gfile.glob(pattern.strip())
        if not matches:
            raise ValueError(
                f"No file matches {pattern.strip()!r}. Is the path right, "
                f"seen from {os.getcwd()}?"
            )
        files.update(matches)
    if not files:
        raise ValueError(f"No file is named; got {patterns!r}.")
    return sorted(files)


@contextlib.contextmanager
def replacing(path):
    """Gives another name to write to, and renames it to `path` at the end.

    Where the writing fails, what stood at `path` stays.

    Args:
      path: the file's name. Its folder is made if it is absent.

    Yields:
      The name to write to.
    """
    import tensorflow as tf

    tf.io.gfile.makedirs(os.path.dirname(path) or ".")
    temporary = f"{path}.incomplete"
    yield temporary
    tf.io.gfile.rename(temporary, path, overwrite=True)


def write_json(path, values):
    """Writes values as JSON, whole or not at all."""
    write_file(path, json.dumps(values, indent=2) + "\n")


def write_file(path, content):
    """Writes a file whole or not at all.

    Args:
      path: its name.
      content: a string, written as UTF-8, or bytes.
    """
    import tensorflow as tf

    mode = "w" if isinstance(content, str) else "wb"
    with replacing(str(path)) as temporary:
        with tf.io.gfile.GFile(temporary, mode) as file:
            file.write(content)
