"""Finds, reads and atomically writes local and remote files.

Names may be remote, such as gs://bucket/file. TensorFlow, which implements
remote files, is imported inside the functions, because worker processes that
only read local files do not need it.
"""

import collections
import contextlib
import fnmatch
import glob
import hashlib
import itertools
import json
import logging
import os
import pathlib
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from albert_tf import file_kinds

Path = str | os.PathLike


def is_remote(path: Path) -> bool:
    """Returns whether a path is remote, such as gs://bucket/file."""
    return "://" in str(path)


def _gfile():
    # Not at the top: TensorFlow loads for seconds.
    import tensorflow as tf

    return tf.io.gfile


def _choose(path, local_module):
    """Returns the module for a path: the given one, or tf.io.gfile.

    The functions that both have are called alike; gfile's take only strings.
    """
    return _gfile() if is_remote(path) else local_module


def exists(path: Path) -> bool:
    """Returns whether a file or folder exists."""
    return _choose(path, os.path).exists(str(path))


def is_folder(path: Path) -> bool:
    """Returns whether a path is a folder."""
    # isdir of TensorFlow is False where the server cannot be asked; exists is
    # an error then.
    if is_remote(path) and not exists(path):
        return False
    return _choose(path, os.path).isdir(str(path))


def folder_of(path: Path) -> str:
    """Returns a folder itself, or the folder of a file or a prefix of files."""
    return str(path) if is_folder(path) else os.path.dirname(path)


def size(path: Path) -> int:
    """Returns the size of a file, in bytes."""
    if is_remote(path):
        return _gfile().stat(str(path)).length
    return os.path.getsize(path)


def modified(path: Path) -> int:
    """Returns the modification time of a file, in nanoseconds."""
    if is_remote(path):
        return _gfile().stat(str(path)).mtime_nsec
    return os.stat(path).st_mtime_ns


def remove(path: Path) -> None:
    """Removes a file."""
    _choose(path, os).remove(str(path))


def remove_folder(folder: Path) -> None:
    """Removes a folder and its contents."""
    _choose(folder, shutil).rmtree(str(folder))


def copy(path: Path, target: Path) -> None:
    """Copies a file; replaces `target` if it exists."""
    if is_remote(path) or is_remote(target):
        _gfile().copy(str(path), str(target), overwrite=True)
    else:
        shutil.copyfile(path, target)


def open_file(path: Path, mode: str = "rb"):
    """Opens a file, like `open`."""
    if is_remote(path):
        file = _gfile().GFile(str(path), mode)
        if mode.startswith("w"):
            file.write("")  # Creates the file, even if nothing else does.
        return file
    return open(path, mode)


def read_file(path: Path) -> bytes:
    """Returns the content of a file, as bytes.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: see `check_can_be_reread`.
    """
    if is_remote(path) and not exists(path):
        raise FileNotFoundError(f"There is no file {path}.")
    check_can_be_reread(path)
    with open_file(path) as file:
        return file.read()


def compute_digest(path: Path, name: str = "sha256") -> str:
    """Returns a digest of a file's content, in hexadecimal."""
    digest = hashlib.new(name, usedforsecurity=False)
    with open_file(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check_can_be_reread(path: Path) -> None:
    """Raises ValueError for a pipe or device, which can be read only once."""
    if kind := _find_stream(path):
        raise ValueError(
            f"{path} is {kind}; wanted a file, because it is read more than "
            "once. Write the data to a file first."
        )


def _find_stream(path):
    """Returns what a path is, if it is neither a file nor a folder."""
    if is_remote(path) or not os.path.exists(path):
        return None
    mode = os.stat(path).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return None
    return "a pipe" if stat.S_ISFIFO(mode) else "a device or a socket"


def decode(
    content: bytes, path: Path, complaint: str, encoding="utf-8-sig"
) -> str:
    """Decodes UTF-8, with or without a byte order mark.

    Args:
      content: the bytes.
      path: their file, for the error message.
      complaint: the error message, with the fields {path} and {error}.
      encoding: the encoding.

    Raises:
      ValueError: with the complaint, if the bytes are invalid.
    """
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(complaint.format(path=path, error=error)) from None


def read_json(path: Path) -> dict:
    """Reads a file that contains one JSON object; raises as `parse_json`."""
    return parse_json(read_file(path), path)


def _guess_format(content):
    """Returns a sentence on what content that is not JSON may be."""
    if isinstance(content, bytes):
        if kind := file_kinds.describe(content):
            return f"It is {kind}."
        try:
            content = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            return "Save it as UTF-8."
    lines = [line.strip() for line in content.splitlines() if line.strip()]
    if len(lines) > 1 and all(map(_is_json, lines[:2])):
        return "It is JSON lines, an object on each line; wanted one object."
    if lines and lines[0] in ("{", "["):
        return (
            "Is it truncated? In JSON lines, each line must be a complete "
            "object."
        )
    if re.match(r"\s*\[?\s*{\s*['\u2018\u201c\u201d]", content):
        return (
            "It is Python's notation or has curly quotes; JSON needs straight "
            "double quotes."
        )
    if re.search(r",\s*[}\]]|},\s*$", content):
        return "Does it have a comma before a closing bracket or at its end?"
    if lines and lines[0][0] not in '{["':
        return (
            f"It begins with {lines[0]!r:.30}; an object begins with a brace."
        )
    return "Is it truncated?"


def _is_json(line):
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def parse_json(
    content: bytes | str, where: Path, *, is_strict: bool = True
) -> dict:
    """Parses a JSON object; arguments and errors are those of `parse_any_json`.

    Raises:
      ValueError: also if it is another type of JSON.
    """
    value = parse_any_json(content, where, is_strict=is_strict)
    if not isinstance(value, dict):
        hint = " JSON lines have one on each line."
        raise ValueError(
            f"{where}: found JSON of type {type(value).__name__}, wanted an "
            f"object.{hint if isinstance(value, list) else ''}"
        )
    return value


def _build_object(pairs):
    """Returns a dict of pairs; raises KeyError if a key is there twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = collections.Counter(name for name, _ in pairs)
        raise KeyError(max(counts, key=counts.__getitem__))
    return found


def parse_any_json(
    content: bytes | str, where: Path, *, is_strict: bool = True
) -> object:
    """Parses JSON.

    Args:
      content: bytes or a string.
      where: its source, for error messages: a file, or a file and a line.
      is_strict: whether a key that an object has twice is an error.

    Raises:
      ValueError: if it is not JSON, contains an unpaired surrogate, or has a
        key twice in an object. The message guesses what it is instead, such as
        JSON lines or gzip.
    """
    stored = content
    try:
        if isinstance(content, bytes):
            content = content.decode("utf-8-sig")
        if not content.strip("\0 \r\n\t"):
            raise ValueError("it is empty")
        hook = _build_object if is_strict else None
        value = json.loads(content, object_pairs_hook=hook)
        if "\\ud" in content.lower():
            # An unpaired surrogate is not a character; tokenizers reject it.
            json.dumps(value, ensure_ascii=False).encode()
    except KeyError as error:
        raise ValueError(
            f"{where}: an object has the key {error} twice. Were files joined?"
        ) from None
    except RecursionError:
        raise ValueError(
            f"{where} is not readable JSON: it is nested too deeply."
        ) from None
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{where} contains an unpaired surrogate, "
            f"{error.object[error.start]!r}, which is not a character. Was a "
            "text cut within a character?"
        ) from None
    except ValueError as error:
        raise ValueError(
            f"{where} is not JSON: {error}. {_guess_format(stored)}"
        ) from None
    return value


@contextlib.contextmanager
def local_copy(path: Path) -> Iterator[Path]:
    """Context manager: yields a local path, a temporary copy if remote."""
    if not is_remote(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="albert_tf-") as folder:
        local = os.path.join(folder, os.path.basename(path))
        pathlib.Path(local).write_bytes(read_file(path))
        yield local


def list_folder(folder: Path) -> list[str]:
    """Returns the sorted names in a folder; empty if there is no folder."""
    folder = str(folder) or "."
    if not is_folder(folder):
        return []
    names = _choose(folder, os).listdir(folder)
    # TensorFlow returns names of folders with a trailing slash.
    return sorted(name.rstrip("/") for name in names)


def split_list(text: str | None) -> list[str]:
    """Returns the words of a comma-separated list, without empty ones."""
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def split_paths(text: str | None) -> list[str]:
    """As `split_list`; commas in the name of a file or folder divide nothing.

    That is one that exists.
    """
    words = split_list(text)
    if not text or len(words) < 2 or text.count("://") > 1:
        return words
    folder = os.path.dirname(text)
    is_one = exists(text) or ("," in folder and is_folder(folder))
    return [text] if is_one else words


def expand_files(patterns: str | None) -> list[str]:
    """Returns the sorted files that match comma-separated names or globs.

    If the whole text is the name of a file, its commas belong to the name. A
    file that matches under several names (links) is listed once.

    Raises:
      ValueError: if there is no pattern, a pattern matches nothing, or a match
        is a folder, a pipe or a device.
    """
    files: dict = {}
    for path in sorted(set(expand_in_order(patterns))):
        check_can_be_reread(path)
        first = files.setdefault(identity(path), path)
        if first != path:
            logging.warning("%s is %s; it is read once.", path, first)
    return list(files.values())


def expand_in_order(patterns: str | None) -> list[str]:
    """Like `expand_files`, in the order given and with repetitions.

    Only the matches of one glob are sorted. As in a shell, "*" does not match
    a leading dot, and "**" matches any number of folders.
    """
    found = map(_find_matches, split_paths(patterns))
    files = [*itertools.chain.from_iterable(found)]
    if not files:
        raise ValueError(f"Found no file name in {patterns!r}; wanted one.")
    if wrong := next(filter(is_folder, files), None):
        raise ValueError(
            f"{wrong} is a folder; wanted files, such as "
            f"'{os.path.join(wrong, '*')}'."
        )
    return files


def expand_models(patterns: str) -> list[str]:
    """Returns the paths of comma-separated names or globs, in this order.

    Names without wildcards stay as they are: they may be prefixes of files.

    Raises:
      ValueError: if a glob matches nothing.
    """
    found = (
        [path]
        if not set("*?[") & set(path) or exists(f"{path}.index")
        else _find_matches(path)
        for path in split_paths(patterns)
    )
    return [*itertools.chain.from_iterable(found)]


def _find_matches(pattern):
    """Returns the sorted paths that match a glob, or raises ValueError."""
    # Names of existing files and folders may contain "[" or "*".
    folder, name = os.path.split(pattern)
    if exists(pattern):
        matches = [pattern]
    elif set("[]*?") & set(folder) and exists(folder):
        matches = find_files(folder, name)
    elif is_remote(pattern):
        matches = _find_remote(pattern)
    else:
        # As in a shell, "[^" means the same as "[!".
        matches = glob.glob(pattern.replace("[^", "[!"), recursive=True)
        if "**" in pattern:
            matches = [path for path in matches if not is_folder(path)]
    if not matches:
        raise ValueError(
            f"No file matches {pattern!r}. Is the path correct, relative to "
            f"{os.getcwd()}?"
        )
    return sorted(matches)


def _find_remote(pattern):
    """Returns the paths that match a glob, of files or folders."""
    if "**" in pattern:  # To TensorFlow, it is a single asterisk.
        raise ValueError(
            f"{pattern}: ** works in local paths only. Give a glob for each "
            "level, separated by commas."
        )
    matches = _gfile().glob(pattern)
    if os.path.basename(pattern).startswith("."):
        return matches
    return [x for x in matches if not os.path.basename(x).startswith(".")]


def find_files(folder: Path, pattern: str) -> list[str]:
    """Returns the sorted paths in a folder whose names match a pattern.

    Unlike in a glob, brackets and asterisks in the folder's name are literal.
    As in a glob, "*" does not match a leading dot: macOS stores a file's
    attributes in another file named "._" and its name.
    """
    return [
        os.path.join(folder, name)
        for name in list_folder(folder)
        if fnmatch.fnmatchcase(name, pattern)
        and (pattern.startswith(".") or not name.startswith("."))
    ]


@contextlib.contextmanager
def named_plainly(path: Path) -> Iterator[str]:
    """Context manager: yields a name without glob characters for a path.

    TensorFlow interprets paths of checkpoints as patterns. A path with such
    characters gets a temporary symbolic link; others are yielded as they are.

    Args:
      path: a folder, or a prefix of file names such as a checkpoint's.

    Raises:
      ValueError: if a remote path cannot be named.
    """
    path = str(path)
    check_can_be_named(path)
    if is_remote(path) or not set("[]*?\\") & set(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="albert_tf-") as folder:
        link = os.path.join(folder, "link")
        real, name = (path, "") if is_folder(path) else os.path.split(path)
        os.symlink(os.path.abspath(real), link)
        yield os.path.join(link, name) if name else link


def check_can_be_named(path: Path) -> None:
    """Raises ValueError for a remote path that, as a glob, is another."""
    if is_remote(path) and set("[\\") & set(str(path)):
        raise ValueError(
            f"{path}: TensorFlow cannot read checkpoints from remote folders "
            "whose path contains [ or \\. Choose or rename the folder."
        )


def name_briefly(parts: list[list[str]]) -> list[str]:
    """Returns the shortest unique endings of different paths in parts."""
    names: list[str] = []
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(some[-length:]) for some in parts]
        if len(set(names)) == len(names):
            break
    return names


def list_briefly(names: Sequence[str], most: int = 3) -> str:
    """Returns the first names, and how many others there are, in words."""
    listed = ", ".join(names[:most])
    num_others = len(names) - most
    return listed + (f" and {num_others:,} others" if num_others > 0 else "")


def make_folder(folder: Path) -> None:
    """Creates a folder and its parents, unless it exists."""
    folder = str(folder) or "."
    if folder.split(os.sep)[0] == "~":
        raise ValueError(
            f"{folder}: ~ is not expanded. Give {os.path.expanduser(folder)}."
        )
    if is_remote(folder):
        _gfile().makedirs(folder)
        return
    try:
        os.makedirs(folder, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise NotADirectoryError(
            f"{folder} cannot be a folder: it, or a part of its path, is a "
            "file. Choose another path."
        ) from None


def check_can_be_written(path: Path) -> None:
    """Checks that a file can be created at a path; leaves no file behind.

    The folder of a remote path is created, as this asks the server.

    Raises:
      ValueError: for a pipe or device: renaming a file to it would replace it.
      OSError: if the file cannot be created.
    """
    if is_remote(path):
        if is_folder(path):
            raise IsADirectoryError(f"{path} is a folder; wanted a file.")
        if is_remote(folder := os.path.dirname(path)):  # Has a bucket.
            make_folder(folder)
        return
    kind = _find_stream(path)
    if kind or _is_standard_stream(path):
        raise ValueError(
            f"{path} is {kind or 'a standard stream'}; wanted the name of a "
            "file, which is written anew."
        )
    if os.path.isdir(path):
        raise IsADirectoryError(f"{path} is a folder; wanted a file.")
    folder = os.path.dirname(os.path.abspath(path))
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise NotADirectoryError(
            f"{folder} cannot be a folder for {path}: it is a file. Choose "
            "another path."
        )
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _is_standard_stream(path):
    # Even if it is redirected to a file, renaming would replace /dev/stdout.
    names = "/dev/(stdin|stdout|stderr|fd/.*)|/proc/[^/]+/fd/.*"
    return re.fullmatch(names, os.path.abspath(path)) is not None


def check_outputs(outputs: dict[str, list], inputs: dict[str, list]):
    """Checks that output files can be written, and that none is an input.

    Args:
      outputs: dict from a flag to the paths that will be written for it.
      inputs: dict from a flag to the paths that are read; None is ignored.

    Raises:
      ValueError: if an output and an input are the same file, under any names.
      OSError: as `check_can_be_written`.
    """
    read = {
        identity(path): (name, path)
        for name, paths in inputs.items()
        for path in paths
        if path
    }
    for name, paths in outputs.items():
        for path in paths:
            if identity(path) in read:
                other, known = read[identity(path)]
                raise ValueError(
                    f"{name} would overwrite {path}, which {other} reads as "
                    f"{known}. Write to another file."
                )
            check_can_be_written(path)


def check_ending(flag: str, path: str | None, endings: Sequence[str]) -> None:
    """Raises ValueError if a flag's file, if any, has none of some endings."""
    if path and not path.endswith(tuple(endings)):
        raise ValueError(f"{flag}={path} must end in {' or '.join(endings)}.")


def check_folders_apart(outputs: dict[str, Path], inputs: dict[str, Path]):
    """Raises ValueError if an output is an input, or one contains the other.

    Both are dicts from a flag to its folder; an input may be a file.
    """
    for name, path in outputs.items():
        for other, known in inputs.items():
            if is_remote(path) != is_remote(known):
                continue
            resolve = os.path.normpath if is_remote(path) else os.path.realpath
            folders = [resolve(path), resolve(known)]
            if os.path.commonpath(folders) in folders:
                raise ValueError(
                    f"{name}={path} and {other}={known} are the same folder, "
                    "or one contains the other. Write to another folder."
                )


def identity(path: Path):
    """Returns a value that is equal for all names of the same file."""
    if is_remote(path):
        return str(path)
    with contextlib.suppress(OSError):
        status = os.stat(path)
        return status.st_dev, status.st_ino
    return os.path.realpath(path)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[str]:
    """Context manager: yields a temporary name, then renames it to `path`.

    If writing fails, the previous file is kept. The folder is created.
    """
    path = str(path)
    make_folder(os.path.dirname(path))
    temporary = f"{path}.incomplete"
    try:
        yield temporary
        rename(temporary, path)
    except BaseException:
        # Frees space on a full disk.
        if not is_remote(path):
            with contextlib.suppress(OSError):
                os.remove(temporary)
        raise


def rename(temporary: Path, path: Path) -> None:
    """Renames a complete file or folder; flushes a file to disk first."""
    if is_remote(path):
        _gfile().rename(temporary, path, overwrite=not is_folder(temporary))
        return
    if not os.path.isdir(temporary):
        # Without the flush, a power failure could leave an empty file.
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
    os.replace(temporary, path)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Context manager: yields a file for bytes, which then replaces `path`."""
    with replacing(path) as temporary, open_file(temporary, "wb") as file:
        yield file


def write_json(path: Path, values) -> None:
    """Writes values as JSON, atomically."""
    write_file(path, json.dumps(values, indent=2) + "\n")


def write_file(path: Path, content: str | bytes) -> None:
    """Writes a file atomically; strings as UTF-8."""
    if isinstance(content, str):
        content = content.encode()
    with writing(path) as file:
        file.write(content)


def cache_folder() -> str:
    """Returns the folder of this package in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    cache = os.path.expanduser(cache)
    if cache.startswith("~"):  # There is no home.
        cache = tempfile.gettempdir()
    return os.path.join(cache, "albert_tf")


def find_folder_with(path: str) -> pathlib.Path:
    """Returns the working folder, or the nearest above it, that has a path.

    A notebook runs in its own folder, and its data may be in one above.

    Args:
      path: a file or folder, relative to the folder that is returned.

    Raises:
      FileNotFoundError: if no folder has it.
    """
    here = pathlib.Path.cwd()
    for folder in (here, *here.parents):
        if (folder / path).exists():
            return folder
    raise FileNotFoundError(
        f"There is no {path} in {here} or a folder above. Was it written to "
        "another place, or not yet?"
    )


def shipped_configs() -> pathlib.Path:
    """Returns the folder of configs and recipes."""
    package = pathlib.Path(__file__).resolve().parent
    inside = package / "configs"  # Of an installed package, but not a clone.
    return inside if inside.is_dir() else package.parent / "configs"
