"""Files: found by globs, read, and written whole or not at all.

Names may be remote, such as gs://bucket/file. TensorFlow, which knows these,
is imported inside the functions: worker processes that only read local files
do not pay for it.
"""

import contextlib
import fnmatch
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

Path = str | os.PathLike


def is_remote(path: Path) -> bool:
    """Whether a path names a file system, such as gs://."""
    return "://" in str(path)


def _gfile():
    """What knows remote files. TensorFlow wants names as strings."""
    import tensorflow as tf

    return tf.io.gfile


def exists(path: Path) -> bool:
    """Whether there is a file or folder."""
    if is_remote(path):
        return _gfile().exists(str(path))
    return os.path.exists(path)


def is_folder(path: Path) -> bool:
    """Whether there is a folder."""
    if is_remote(path):
        return _gfile().isdir(str(path))
    return os.path.isdir(path)


def size(path: Path) -> int:
    """Returns the bytes of a file, as a number."""
    if is_remote(path):
        return _gfile().stat(str(path)).length
    return os.path.getsize(path)


def modified(path: Path) -> int:
    """Returns when a file was last changed, in nanoseconds."""
    if is_remote(path):
        return _gfile().stat(str(path)).mtime_nsec
    return os.stat(path).st_mtime_ns


def remove(path: Path) -> None:
    """Removes a file."""
    if is_remote(path):
        _gfile().remove(str(path))
    else:
        os.remove(path)


def remove_folder(folder: Path) -> None:
    """Removes a folder and what is in it."""
    if is_remote(folder):
        _gfile().rmtree(str(folder))
    else:
        shutil.rmtree(folder)


def copy(path: Path, target: Path) -> None:
    """Copies a file; what is at `target` is replaced."""
    if is_remote(path) or is_remote(target):
        _gfile().copy(str(path), str(target), overwrite=True)
    else:
        shutil.copyfile(path, target)


def open_file(path: Path, mode: str = "rb"):
    """Opens a file as `open` does."""
    if is_remote(path):
        return _gfile().GFile(str(path), mode)
    return open(path, mode)


def read_file(path: Path) -> bytes:
    """Returns the content of a file, as bytes.

    Raises:
      FileNotFoundError: if there is none.
    """
    if is_remote(path) and not exists(path):
        raise FileNotFoundError(f"There is no file {path}.")
    with open_file(path) as file:
        return file.read()


def decode(
    content: bytes, path: Path, complaint: str, encoding="utf-8-sig"
) -> str:
    """Decodes UTF-8, with or without a byte order mark.

    Raises:
      ValueError: the complaint, in which {path} and {error} stand, of bytes
        that are something else.
    """
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(complaint.format(path=path, error=error)) from None


def read_json(path: Path) -> dict:
    """Reads a file that holds one JSON object.

    Raises:
      FileNotFoundError: if there is none.
      ValueError: as `parse_json`.
    """
    return parse_json(read_file(path), path)


def parse_json(content: bytes | str, where: Path) -> dict:
    """Parses a JSON object; whatever is wrong is a ValueError that says where.

    Args:
      content: bytes or a string.
      where: what it is, for messages: a file, or a file and a line.

    Raises:
      ValueError: if it is empty, cut off, not UTF-8, nested too deeply, no
        object, or holds half of a surrogate pair.
    """
    try:
        if isinstance(content, bytes):
            content = content.decode("utf-8-sig")
        if not content.strip("\0 \r\n\t"):
            raise ValueError("it is empty")
        value = json.loads(content)
        if "\\ud" in content.lower():
            # Half of a surrogate pair is no character: no tokenizer takes it.
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError(
            f"{where} is not readable JSON: it is nested too deeply."
        ) from None
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{where} holds half of a surrogate pair, "
            f"{error.object[error.start]!r}, which is no character. Was a text "
            "cut in the middle of one?"
        ) from None
    except ValueError as error:
        raise ValueError(
            f"{where} is not JSON: {error}. Was it cut off?"
        ) from None
    if not isinstance(value, dict):
        raise ValueError(
            f"{where}: found JSON of the type {type(value).__name__}, wanted "
            "an object."
        )
    return value


@contextlib.contextmanager
def local_copy(path: Path) -> Iterator[Path]:
    """Yields the path of a file, or of a copy of a remote one, for a while."""
    if not is_remote(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="albert_tf-") as folder:
        local = os.path.join(folder, os.path.basename(path))
        pathlib.Path(local).write_bytes(read_file(path))
        yield local


def list_folder(folder: Path) -> list[str]:
    """Returns the names in a folder, sorted; none where there is no folder."""
    folder = str(folder) or "."
    if not is_folder(folder):
        return []
    listdir = _gfile().listdir if is_remote(folder) else os.listdir
    # TensorFlow's names of folders end in a slash.
    return sorted(name.rstrip("/") for name in listdir(folder))


def expand_files(patterns: str | None) -> list[str]:
    """The files that a comma-separated list of globs stands for, sorted.

    Raises:
      ValueError: if nothing is named, or a pattern matches nothing.
    """
    files = set()
    for pattern in filter(None, map(str.strip, (patterns or "").split(","))):
        # A name may hold "[" or "*" and still be a name; so may its folder's.
        folder, name = os.path.split(pattern)
        if exists(pattern):
            matches = [pattern]
        elif set("[]*?") & set(folder) and exists(folder):
            matches = find_files(folder, name)
        else:
            matches = _gfile().glob(pattern)
        if not matches:
            raise ValueError(
                f"No file matches {pattern!r}. Is the path right, seen from "
                f"{os.getcwd()}?"
            )
        files.update(matches)
    if not files:
        raise ValueError(f"No file is named; got {patterns!r}.")
    if wrong := next(filter(is_folder, files), None):
        raise ValueError(
            f"{wrong} is a folder; wanted files, such as "
            f"'{os.path.join(wrong, '*')}'."
        )
    return sorted(files)


def find_files(folder: Path, pattern: str) -> list[str]:
    """Returns the paths in a folder whose names match, sorted.

    Unlike a glob it takes the folder's own name as it is, whatever brackets
    and asterisks that has.
    """
    return [
        os.path.join(folder, name)
        for name in list_folder(folder)
        if fnmatch.fnmatchcase(name, pattern)
    ]


@contextlib.contextmanager
def named_plainly(path: Path) -> Iterator[str]:
    """Gives another name to a path that TensorFlow would take for a pattern.

    It does so where it restores variables. The other name leads through a
    link, and is there for a while.

    Args:
      path: of a folder, or of what begins the names of files, as a prefix of
        checkpoints does.

    Yields:
      The path itself where it has no `[`, `*`, `?` or backslash, or is remote.
    """
    path = str(path)
    if is_remote(path) or not set("[]*?\\") & set(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="albert_tf-") as folder:
        link = os.path.join(folder, "link")
        real, name = (path, "") if is_folder(path) else os.path.split(path)
        os.symlink(os.path.abspath(real), link)
        yield os.path.join(link, name) if name else link


def make_folder(folder: Path) -> None:
    """Makes a folder, and those it is in, unless it is there.

    Raises:
      NotADirectoryError: if a part of the path is a file.
      OSError: if it cannot be made.
    """
    folder = str(folder) or "."
    if is_remote(folder):
        _gfile().makedirs(folder)
        return
    try:
        os.makedirs(folder, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise NotADirectoryError(
            f"{folder} cannot be a folder: it, or a part of its path, is a "
            "file. Name another place."
        ) from None


def check_outputs(outputs: dict[str, list], inputs: dict[str, list]):
    """Refuses to write a file that is also read.

    Args:
      outputs: dict from what a path was given as, such as a flag, to paths
        that will be written.
      inputs: likewise, of paths that are read; None among them is left out.

    Raises:
      ValueError: if two of them are one file, whatever their names.
    """
    read = {
        identity(path): (name, path)
        for name, paths in inputs.items()
        for path in paths
        if path
    }
    for name, paths in outputs.items():
        for path in paths:
            if found := read.get(identity(path)):
                other, known = found
                raise ValueError(
                    f"{name} would overwrite {path}, which {other} reads as "
                    f"{known}. Write to another file."
                )


def check_folders_apart(outputs: dict[str, Path], inputs: dict[str, Path]):
    """Refuses to write a folder that is, holds or lies in one that is read.

    Args:
      outputs: dict from a flag to the folder that it names.
      inputs: likewise; a path among them may also be no folder.

    Raises:
      ValueError: if two of them are not apart.
    """
    for name, path in outputs.items():
        for other, known in inputs.items():
            if is_remote(path) or is_remote(known):
                continue
            folders = [os.path.realpath(path), os.path.realpath(known)]
            if os.path.commonpath(folders) in folders:
                raise ValueError(
                    f"{name}={path} and {other}={known} are one folder, or "
                    "one is in the other. Write beside it."
                )


def identity(path: Path):
    """Returns what is equal for two names of one file."""
    if is_remote(path):
        return str(path)
    with contextlib.suppress(OSError):
        stat = os.stat(path)
        return stat.st_dev, stat.st_ino
    return os.path.realpath(path)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[str]:
    """Gives another name to write to, and renames it to `path` at the end.

    Where the writing fails, what stood at `path` stays.

    Args:
      path: the file's name. Its folder is made if it is absent.

    Yields:
      The name to write to.
    """
    path = str(path)
    make_folder(os.path.dirname(path))
    temporary = f"{path}.incomplete"
    if is_remote(path):
        yield temporary
        rename(temporary, path)
        return
    try:
        yield temporary
        rename(temporary, path)
    except BaseException:
        # On a full disk it would also stand in the way.
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise


def rename(temporary: Path, path: Path) -> None:
    """Renames what is complete: a file, once the disk has it, or a folder.

    Otherwise a power cut could leave the new name with nothing behind it.
    """
    if is_remote(path):
        _gfile().rename(temporary, path, overwrite=not is_folder(temporary))
        return
    if not os.path.isdir(temporary):
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
    os.replace(temporary, path)


def write_json(path: Path, values) -> None:
    """Writes values as JSON, whole or not at all."""
    write_file(path, json.dumps(values, indent=2) + "\n")


def write_file(path: Path, content: str | bytes) -> None:
    """Writes a file whole or not at all; strings as UTF-8."""
    if isinstance(content, str):
        content = content.encode()
    with replacing(path) as temporary, open_file(temporary, "wb") as file:
        file.write(content)


def shipped_configs() -> pathlib.Path:
    """Returns the folder of configs and recipes, as a `pathlib.Path`.

    An installed package holds it, a clone of the repository has it beside.
    """
    package = pathlib.Path(__file__).resolve().parent
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"
