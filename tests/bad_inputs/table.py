"""What a row of bad inputs is, and the changes of files that rows consist of.

A row's paths are relative to a copy of `world`.
"""

import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Row:
    """A command that must end in one sentence.

    Attributes:
      name: what is wrong, in words.
      command: program and flags; see `commands.split_command`.
      says: pattern that the sentence must match.
      changes: functions without arguments that damage the folder.
      owned: paths that another process owns meanwhile; a folder's contents
        where a slash stands at the end.
      may_write: glob patterns of what may be different or new afterwards.
        Everything else must have the bytes and the time that it had.
    """

    name: str
    command: str
    says: str
    changes: tuple[Callable, ...] = ()
    owned: tuple = ()
    may_write: tuple = ()


@dataclasses.dataclass(frozen=True)
class Accepted:
    """A command that looks odd, and must do its work.

    Attributes:
      name: what is odd, in words.
      command: as in `Row`.
      says: pattern that is found in what is printed.
      changes: as in `Row`.
      writes: files that must exist afterwards.
      check: function without arguments with further assertions, or None.
    """

    name: str
    command: str
    says: str = ""
    changes: tuple[Callable, ...] = ()
    writes: tuple = ()
    check: Callable | None = None


@dataclasses.dataclass(frozen=True)
class Request:
    """What a SavedModel must refuse.

    Attributes:
      name: what is wrong, in words.
      model: its folder, or the one of its versions.
      signature: name of one of its signatures.
      inputs: dict from name to what makes a tensor.
      says: pattern that the error must match.
    """

    name: str
    model: str
    signature: str
    inputs: dict
    says: str


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of the library that must be refused.

    Attributes:
      name: what is wrong, in words.
      function: without arguments.
      says: pattern that the error must match.
    """

    name: str
    function: Callable
    says: str


# What flags.py says of a number, and absl of what is none or no choice.
_WRONG = r".*(wanted|invalid literal|could not convert|should be one of)"


def rows_of_flags(program, table, says=None):
    """Rows whose only fault is the value of a flag.

    Args:
      program: its name.
      table: lines of a flag's name and the values to try.
      says: pattern that the sentence must match; by default name and value.
    """
    rows = []
    for line in table.strip().splitlines():
        name, *values = line.split()
        for value in values:
            rows.append(
                Row(
                    f"{name}={value}",
                    f"{program} --{name}={value}",
                    says or rf"--{name}={_WRONG}",
                )
            )
    return rows


def put(path, content):
    """A change: writes a file, of bytes, text, or what becomes JSON."""

    def change():
        file = pathlib.Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            file.write_bytes(content)
        elif isinstance(content, str):
            file.write_text(content, encoding="utf-8")
        else:
            file.write_text(json.dumps(content), encoding="utf-8")

    return change


def edit(path, function):
    """A change: replaces a file's bytes by a function of them."""

    def change():
        file = pathlib.Path(path)
        file.write_bytes(function(file.read_bytes()))

    return change


def edit_json(path, function):
    """A change: lets a function change a file's JSON in place."""

    def change():
        file = pathlib.Path(path)
        values = json.loads(file.read_text())
        function(values)
        file.write_text(json.dumps(values))

    return change


def set_json(path, **values):
    """A change: sets keys of a file's JSON object."""
    return edit_json(path, lambda found: found.update(values))


def drop_json(path, *names):
    """A change: removes keys of a file's JSON object."""
    return edit_json(path, lambda found: [found.pop(n) for n in names])


def cut(path, num_bytes=None):
    """A change: keeps some bytes, by default half of them."""
    return edit(path, lambda x: x[: num_bytes or len(x) // 2])


def append(path, content):
    """A change: adds bytes to a file's end."""
    return edit(path, lambda x: x + content)


def replace(path, old, new):
    """A change: replaces a text, which must be there."""

    def function(content):
        assert old.encode() in content, (path, old)
        return content.replace(old.encode(), new.encode())

    return edit(path, function)


def remove(*paths):
    """A change: removes files and folders."""

    def change():
        for path in paths:
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.remove(path)

    return change


def copy(source, target):
    """A change: copies a file or a folder."""

    def change():
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        if os.path.isdir(source):
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)

    return change


def link(source, target):
    """A change: makes a symbolic link."""
    return lambda: os.symlink(source, target)
