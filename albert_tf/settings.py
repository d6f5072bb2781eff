"""Fields of frozen dataclasses that carry their help text and their range.

A setting of the library and a flag of a program are such fields. A class of
flags inherits the settings, so that the name, type, default, help and range
of each are written once.
"""

import dataclasses
import inspect
import math
import os
import typing
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

MAX_BATCH_SIZE = 1 << 20
MAX_TOKENS = 1 << 30
SEED = 12345
# Several runs add their index to the seed, which must still fit into 32 bits.
MAX_SEED = 2_000_000_000
OptimizerName = Literal["adamw", "lamb", "muon"]
ComputeDtype = Literal["auto", "float32", "bfloat16"]
Pooling = Literal["mean", "mean_all", "cls"]


class Range(NamedTuple):
    """The allowed range of a number; None means no limit."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    def __contains__(self, value):
        return (
            abs(value) < math.inf
            and (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )

    def __str__(self):
        return " and ".join(
            f"{name.replace('_', ' ')} {limit}"
            for name, limit in self._asdict().items()
            if limit is not None
        )


def setting(
    default: Any = None,
    help: str | None = None,
    *,
    required: bool = False,
    has_lines: bool = False,
    **limits: float,
) -> Any:
    """Returns a dataclass field, which `flags.launch` can define as a flag.

    Args:
      default: default value.
      help: a sentence with meaning and unit. Inherited if None.
      required: whether the field must be set; it has no default then.
      has_lines: whether the values of a flag that is given several times are
        joined as lines. Of other flags, the last one counts, with a warning.
      **limits: fields of the `Range` of a number. Inherited if none is given.
    """
    metadata = {
        "help": help,
        "range": Range(**limits) if limits else None,
        "has_lines": has_lines or None,
    }
    if required:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def seed_setting(help: str) -> Any:
    """Returns the field of a random seed."""
    return setting(SEED, help, at_least=0, at_most=MAX_SEED)


def inherited(cls: type, name: str, key: str):
    """Returns a field's metadata from the nearest base class, or None."""
    for base in cls.__mro__:
        field = getattr(base, "__dataclass_fields__", {}).get(name)
        if field is not None and field.metadata.get(key) is not None:
            return field.metadata[key]
    return None


def check(values, show: Callable[[str], str] = str) -> None:
    """Checks the fields of a dataclass against their ranges and choices.

    Args:
      values: an instance of a dataclass with fields from `setting`.
      show: returns the name of a field as the message shows it.

    Raises:
      ValueError: if a number is out of its range, NaN or infinite, or a value
        is none of the field's choices or of another type.
    """
    hints = typing.get_type_hints(type(values))
    for field in dataclasses.fields(values):
        value, hint = getattr(values, field.name), hints[field.name]
        wanted: Any = None
        if typing.get_origin(hint) is typing.Literal:
            wanted = typing.get_args(hint)
        elif not _is_of(hint, value):
            raise ValueError(
                f"{show(field.name)}={value!r:.80}; wanted "
                f"{inspect.formatannotation(hint)}."
            )
        elif isinstance(value, int | float) and not isinstance(value, bool):
            wanted = inherited(type(values), field.name, "range")
        if wanted is not None and value not in wanted:
            raise ValueError(
                f"{show(field.name)}={value!r:.80}; wanted {wanted}."
            )


class Checked:
    """Base class of settings that are checked when they are made."""

    def __post_init__(self):
        check(self)


def _is_of(hint, value):
    """Whether a value has the type of a hint.

    An int is a float, too, and a path object is a str; a bool is no number.
    """
    if typing.get_origin(hint) is typing.Literal:
        return value in typing.get_args(hint)
    if kinds := typing.get_args(hint):
        return any(_is_of(kind, value) for kind in kinds)
    if hint is str:
        return isinstance(value, str | os.PathLike)
    if hint in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, int | hint if hint is float else hint)


def take(cls: type, source, **changes):
    """Returns an instance of a dataclass made of another object's attributes.

    Args:
      cls: the dataclass, such as a class of settings.
      source: an object that has attributes of its fields' names, such as the
        flags of a program.
      **changes: values of fields to use instead.
    """
    names = {field.name for field in dataclasses.fields(cls)} - changes.keys()
    return cls(**{name: getattr(source, name) for name in names}, **changes)
