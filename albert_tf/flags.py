"""Command-line flags made from frozen dataclasses.

A flag is one field: name, type, default, help. A subclass changes a default in
one line and inherits the help:

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class RaceFlags(TrainFlags):
        learning_rate: float = flags.flag(1e-5)

    if __name__ == "__main__":
        flags.launch(run, RaceFlags)

Nothing is defined at import, so scripts can be imported side by side, and a
test calls `run(RaceFlags(...))`.
"""

import dataclasses
import signal
import sys
import traceback
import types
import typing

from absl import app, logging
from absl import flags as absl_flags

# Lets --help list the flags under the script that launched us.
absl_flags.disclaim_key_flags()

_DEFINE = {
    str: absl_flags.DEFINE_string,
    int: absl_flags.DEFINE_integer,
    float: absl_flags.DEFINE_float,
    bool: absl_flags.DEFINE_bool,
}


def flag(default=None, help=None, *, required=False):
    """A dataclass field that `launch` turns into a flag.

    Args:
      default: value where the command line says nothing.
      help: meaning and unit, a sentence. Inherited if None.
      required: whether the command line must give it; it has no default then.
    """
    metadata = {"help": help}
    if required:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def launch(run, flags_class):
    """Parses the command line into `flags_class` and calls `run` with it.

    What `run` returns is dropped: absl would exit with it. An error that is
    meant for the user ends the program with its message alone; --verbosity=1
    shows where it came from.

    Args:
      run: called with one instance of `flags_class`.
      flags_class: frozen dataclass whose fields were made by `flag`.
    """
    _define(flags_class)

    def main(argv):
        try:
            run(_parsed(flags_class, argv[1:]))
        except KeyboardInterrupt:
            sys.exit(128 + signal.SIGINT)
        except (ValueError, OSError, ImportError, ArithmeticError) as error:
            if logging.get_verbosity() >= 1 or not _is_for_the_user(error):
                raise
            sys.exit(f"{sys.argv[0]}: {error}\n(Details: --verbosity=1)")

    app.run(main)


def _define(flags_class):
    hints = typing.get_type_hints(flags_class)
    for field in dataclasses.fields(flags_class):
        kind = _without_none(hints[field.name])
        default = None if _is_required(field) else field.default
        text = _inherited_help(flags_class, field.name)
        if typing.get_origin(kind) is typing.Literal:
            choices = typing.get_args(kind)
            absl_flags.DEFINE_enum(field.name, default, choices, text)
        else:
            _DEFINE[kind](field.name, default, text)


def _without_none(hint):
    """The type T of the annotation `T | None`, or the annotation itself."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = set(typing.get_args(hint)) - {types.NoneType}
    return hint


def _is_required(field):
    return field.default is dataclasses.MISSING


def _inherited_help(flags_class, name):
    """The help of the nearest class in the hierarchy that states one."""
    for base in flags_class.__mro__:
        field = getattr(base, "__dataclass_fields__", {}).get(name)
        if field is not None and field.metadata["help"]:
            return field.metadata["help"]
    raise ValueError(f"{flags_class.__name__}.{name} has no help.")


def _parsed(flags_class, stray_words):
    if stray_words:
        # absl reads "--do_train False" as --do_train and a stray word.
        raise ValueError(f"Write --flag=value; got {stray_words}.")
    fields = dataclasses.fields(flags_class)
    values = {f.name: absl_flags.FLAGS[f.name].value for f in fields}
    missing = [
        f"--{f.name} ({_inherited_help(flags_class, f.name)})"
        for f in fields
        if _is_required(f) and values[f.name] is None
    ]
    if missing:
        raise ValueError(f"Please give {', '.join(missing)}; see --help.")
    return flags_class(**values)


def _is_for_the_user(error):
    """Whether its message alone helps: a missing file, or raised by us."""
    if isinstance(error, OSError):
        return True
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    module = frame.f_globals["__name__"]
    return module == "__main__" or module.split(".")[0] == "albert_tf"
