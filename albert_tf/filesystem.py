"""Files: found by globs, and written whole or not at all.

TensorFlow, which reads and writes remote files too, is imported inside the
functions: worker processes that need none of them do not pay for it.
"""

import contextlib
import json
import os


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
