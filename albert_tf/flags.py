"""Command-line flags made from frozen dataclasses.

A flag is one field: name, type, default, help, and for a number its range. A
subclass changes a default in one line and inherits the rest:

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class RaceFlags(FineTuningFlags):
        learning_rate: float = flags.flag(1e-5)

    if __name__ == "__main__":
        flags.launch(run, RaceFlags)

Nothing is defined at import, so scripts can be imported side by side, and a
test calls `run(RaceFlags(...))`.
"""

import dataclasses
import math
import signal
import sys
import threading
import types
import typing
from collections.abc import Callable
from typing import NamedTuple

from absl import app, logging
from absl import flags as absl_flags

from albert_tf import errors, noise

# Lets --help list the flags under the script that launched us.
absl_flags.disclaim_key_flags()

MAX_BATCH_SIZE = 1 << 20
MAX_TOKENS = 1 << 30
# With one more for each of several runs it still has 32 bits.
MAX_SEED = 2_000_000_000

_DEFINE: dict[type, Callable] = {
    str: absl_flags.DEFINE_string,
    int: absl_flags.DEFINE_integer,
    float: absl_flags.DEFINE_float,
    bool: absl_flags.DEFINE_bool,
}


class Range(NamedTuple):
    """The numbers that a flag may have; None for no limit on that side."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    def __contains__(self, value):
        return (
            math.isfinite(value)
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


def flag(default=None, help=None, *, required=False, **limits):
    """A dataclass field that `launch` turns into a flag.

    Args:
      default: value where the command line says nothing.
      help: meaning and unit, a sentence. Inherited if None.
      required: whether the command line must give it; it has no default then.
      **limits: of a number, as `Range` names them. Inherited if none is given.
    """
    metadata = {"help": help, "range": Range(**limits) if limits else None}
    if required:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """What all classes of flags are: checked when made.

    Raises:
      ValueError: if a number is out of its range, NaN or infinite, a required
        text empty, or a text no UTF-8; and as `check`.
    """

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            name = f"--{_flag_name(field)}"
            if isinstance(value, str):
                _check_text(name, value, _is_required(field))
            elif isinstance(value, int | float) and not isinstance(value, bool):
                limits = _inherited(type(self), field.name, "range")
                if limits is not None and value not in limits:
                    raise ValueError(f"{name}={value}; wanted {limits}.")
        self.check()

    def check(self):
        """Refuses flags that contradict each other, or ask for nothing.

        Raises:
          ValueError: if they do.
        """


def _check_text(name, value, is_required):
    if is_required and not value.strip():
        raise ValueError(f"{name} is empty; wanted a value.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name}={value!r:.80} is not UTF-8.") from None
    if "\0" in value:
        raise ValueError(f"{name}={value!r:.80} holds a character 0.")


class Terminated(KeyboardInterrupt):
    """SIGTERM: whoever keeps work on ctrl-C keeps it then, too."""


def launch(run, flags_class):
    """Parses the command line into `flags_class` and calls `run` with it.

    What `run` returns is dropped: absl would exit with it. An error ends the
    program with what `errors.explain` says of it and exit status 1;
    --verbosity=1 shows where it came from. Ctrl-C ends it with 130, SIGTERM
    with 143, after `run` kept what it could.

    Args:
      run: called with one instance of `flags_class`; or the name of a module
        whose `run` is, which is imported once the flags are parsed.
      flags_class: frozen dataclass whose fields were made by `flag`.
    """
    values = absl_flags.FLAGS
    _define(flags_class, values)
    # What --help tells, whatever module started the program.
    program = sys.modules[flags_class.__module__]
    sys.modules["__main__"].__doc__ = program.__doc__
    for field in dataclasses.fields(flags_class):
        values.register_key_flag_for_module(
            sys.argv[0], values[_flag_name(field)]
        )

    def main(argv):
        _raise_on_sigterm()
        sys.exit(
            _status_of(
                lambda: call(run, _parsed(flags_class, values, argv[1:]))
            )
        )

    app.run(main)


def run_command(run, flags_class, words):
    """Does in this process what a command line would; returns exit status.

    Args:
      run: as for `launch`.
      flags_class: likewise.
      words: of the command line, without the program's name.
    """

    def parse_and_run():
        values = absl_flags.FlagValues()
        _define(flags_class, values)
        try:
            _, *stray_words = values(["program", *words])
        except absl_flags.Error as error:
            raise ValueError(str(error)) from error
        call(run, _parsed(flags_class, values, stray_words))

    return _status_of(parse_and_run)


def call(run, args):
    """Calls a function, or the one called `run` of the module so named."""
    if isinstance(run, str):
        run = noise.import_quietly(run).run
    run(args)


def _status_of(call):
    """Calls a function; returns exit status, and tells stderr of an error."""
    try:
        call()
    except Terminated:
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:
        if logging.get_verbosity() >= 1:
            raise
        print(
            f"{sys.argv[0]}: {errors.explain(error)}\n(Details: --verbosity=1)",
            file=sys.stderr,
        )
        return 1
    return 0


def _raise_on_sigterm():
    def terminate(signum, frame):
        del frame
        # Once: what is being kept is not broken off by a second one.
        signal.signal(signum, signal.SIG_IGN)
        raise Terminated

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, terminate)


def _define(flags_class, values):
    hints = typing.get_type_hints(flags_class)
    for field in dataclasses.fields(flags_class):
        name = _flag_name(field)
        kind = _without_none(hints[field.name])
        default: typing.Any = None if _is_required(field) else field.default
        text = _inherited_help(flags_class, field.name)
        if limits := _inherited(flags_class, field.name, "range"):
            text += f" Range: {limits}."
        if typing.get_origin(kind) is typing.Literal:
            choices = typing.get_args(kind)
            absl_flags.DEFINE_enum(
                name, default, choices, text, flag_values=values
            )
        else:
            _DEFINE[kind](name, default, text, flag_values=values)


def _flag_name(field):
    """A word that Python keeps for itself has an underscore as a field."""
    return field.name.rstrip("_")


def _without_none(hint):
    """The type T of the annotation `T | None`, or the annotation itself."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = set(typing.get_args(hint)) - {types.NoneType}
    return hint


def _is_required(field):
    return field.default is dataclasses.MISSING


def _inherited(flags_class, name, key):
    """What the nearest class in the hierarchy says of a flag, or None."""
    for base in flags_class.__mro__:
        field = getattr(base, "__dataclass_fields__", {}).get(name)
        if field is not None and field.metadata.get(key) is not None:
            return field.metadata[key]
    return None


def _inherited_help(flags_class, name):
    text = _inherited(flags_class, name, "help")
    if not text:
        raise ValueError(f"{flags_class.__name__}.{name} has no help.")
    return text


def _parsed(flags_class, flag_values, stray_words):
    if stray_words:
        # absl reads "--do_train False" as --do_train and a stray word.
        raise ValueError(f"Write --flag=value; got {stray_words}.")
    fields = dataclasses.fields(flags_class)
    values = {f.name: flag_values[_flag_name(f)].value for f in fields}
    missing = [
        f"--{_flag_name(f)} ({_inherited_help(flags_class, f.name)})"
        for f in fields
        if _is_required(f) and values[f.name] is None
    ]
    if missing:
        raise ValueError(f"Please give {', '.join(missing)}; see --help.")
    return flags_class(**values)
