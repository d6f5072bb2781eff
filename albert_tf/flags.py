"""Command-line flags defined by frozen dataclasses.

A flag is a field with a name, type, default and help, and for numbers a range.
A subclass changes a default in one line and inherits the rest:

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class RaceFlags(FineTuningFlags):
        learning_rate: float = flags.flag(1e-5)

    if __name__ == "__main__":
        flags.launch(run, RaceFlags)

Importing a script defines no flags, so several scripts can be imported
together, and a test can call `run(RaceFlags(...))`.
"""

import contextlib
import dataclasses
import functools
import os
import re
import select
import signal
import sys
import textwrap
import threading
import types
import typing
from collections.abc import Callable, Sequence
from typing import Literal

from absl import app, logging
from absl import flags as absl_flags

from albert_tf import errors, messages, quiet_import, settings

# Lets --help list the flags under the script that calls `launch`.
absl_flags.disclaim_key_flags()

flag = settings.setting

# Flags of prose, besides those that have lines. All others may be paths.
_PROSE = "paragraph", "title"

# A number, or the word "auto".
NumberOrAuto = float | Literal["auto"]


class _NumberOrAuto(absl_flags.ArgumentParser):
    syntactic_help = 'a number, or "auto"'

    def parse(self, argument):
        return "auto" if argument == "auto" else float(argument)

    def flag_type(self):
        return "float or auto"


# Type of a field -> function that defines its flag.
_DEFINE: dict[object, Callable] = {
    str: absl_flags.DEFINE_string,
    int: absl_flags.DEFINE_integer,
    float: absl_flags.DEFINE_float,
    bool: absl_flags.DEFINE_bool,
    NumberOrAuto: functools.partial(absl_flags.DEFINE, _NumberOrAuto()),
}


def parse_numbers(
    name: str, text: str, *, at_least: int, at_most: int
) -> list[int]:
    """Returns the numbers of a comma-separated flag, each once, ascending.

    Raises:
      ValueError: if an item is not a number from `at_least`, 0 or more, to
        `at_most`.
    """
    words = [word.strip() for word in text.split(",")]
    limits = range(at_least, at_most + 1)
    if not all(word.isdecimal() and int(word) in limits for word in words):
        raise ValueError(
            f"--{name}={text}; wanted whole numbers from {at_least} to "
            f"{at_most}, separated by commas."
        )
    return sorted({int(word) for word in words})


def parse_names(name: str, text: str, known: Sequence[str]) -> list[str]:
    """Returns the names of a flag, separated by semicolons; if empty, all.

    Raises:
      ValueError: if a name is unknown.
    """
    words = [word.strip() for word in text.split(";")] if text else known
    if unknown := sorted(set(words) - set(known)):
        raise ValueError(
            f"--{name}={text} names {unknown}; wanted some of "
            f"{'; '.join(known)}."
        )
    return list(words)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """Base class of all flags; validates them on construction.

    Raises:
      ValueError: if a number is out of range, NaN or infinite, if a required
        text is empty, if a text is not UTF-8, if a path begins with "~/", or
        from `check`.
    """

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, str):
                name = f"--{_flag_name(field)}"
                _check_text(name, value, _is_required(field))
                if not self._is_prose(field.name):
                    _check_is_expanded(name, value)
        settings.check(self, lambda name: f"--{name.rstrip('_')}")
        self.check()

    def check(self):
        """Raises ValueError if flags contradict each other; for subclasses."""

    def _is_prose(self, name):
        has_lines = settings.inherited(type(self), name, "has_lines")
        return has_lines or name in _PROSE


def _check_text(name, value, is_required):
    if is_required and not value.strip():
        raise ValueError(f"{name} is empty; wanted a value.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name}={value!r:.80} is not UTF-8.") from None
    if "\0" in value:
        raise ValueError(f"{name}={value!r:.80} contains a NUL character.")


def _check_is_expanded(name, value):
    paths = value.split(",")
    if any(path.startswith("~/") for path in paths):
        expanded = ",".join(map(os.path.expanduser, paths))
        raise ValueError(
            f"{name}={value}: the shell does not expand ~ after '='. Write "
            f"{name}={expanded}."
        )


class Terminated(KeyboardInterrupt):
    """Raised on SIGTERM and SIGHUP, at which work is saved as at ctrl-C."""


def launch(run, flags_class):
    """Parses the command line into `flags_class` and calls `run` with it.

    On an error, the program prints `errors.explain` and exits with status 1;
    --verbosity=1 shows the traceback. Ctrl-C exits with 130, SIGTERM and SIGHUP
    with 143, after `run` has saved its work.

    Args:
      run: function of an instance of `flags_class`; or the name of a module
        with a function `run`, which is imported after the flags are parsed.
      flags_class: frozen dataclass with fields from `flag`.
    """
    values = absl_flags.FLAGS
    _define(flags_class, values)
    # --help prints the docstring of __main__.
    program = sys.modules[flags_class.__module__]
    sys.modules["__main__"].__doc__ = program.__doc__
    for field in dataclasses.fields(flags_class):
        values.register_key_flag_for_module(
            sys.argv[0], values[_flag_name(field)]
        )

    def main(argv):
        _raise_on_sigterm()
        return _status_of(
            lambda: call(run, _parsed(flags_class, values, argv[1:])),
            flags_class,
        )

    with quiet_pipe():
        app.run(main, flags_parser=functools.partial(_parse, flags_class))


@contextlib.contextmanager
def quiet_pipe():
    """Exits without a traceback if standard output cannot be written.

    It is closed, as by `head`, or on a full disk. If it was closed before the
    program began, as by `>&-`, nothing is written.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # The lowest number that is free is that of the stream.
            mode = "w" if number else "r"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))
    if hasattr(sys.stdout, "reconfigure"):
        # As standard error does with what its encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        finally:
            _flush()
    except BrokenPipeError:
        _drop_output()
        sys.exit(128 + signal.SIGPIPE)


def _flush():
    """Flushes standard output; exits if its disk is full."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _drop_output()
        print(f"Standard output: {errors.explain(error)}", file=sys.stderr)
        sys.exit(1)


def _drop_output():
    """Lets Python's last flush at exit not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parse(flags_class, argv):
    """Parses a command line as absl does, but --help exits with status 0."""
    if not {"--help", "-help", "-h", "-?"}.isdisjoint(argv[1:]):
        print(format_help(flags_class, absl_flags.FLAGS))
        sys.exit(0)
    try:
        for name, problem in _find_repeated(argv[1:], absl_flags.FLAGS):
            print(f"--{name} is {problem}", file=sys.stderr)
        return absl_flags.FLAGS(argv)
    except SystemExit:  # Only flags such as --help raise it, with status 1.
        sys.exit(0)
    except absl_flags.Error:
        return app.parse_flags_with_usage(argv)  # Prints it, exits with 1.
    except ValueError as error:  # Such as a flagfile that is not UTF-8.
        print(f"{argv[0]}: {error}", file=sys.stderr)
        sys.exit(1)


def _find_repeated(words, values):
    """Yields flags of which only one value counts, and why."""
    names = _list_names(words, values)
    for name in sorted({n for n in names if names.count(n) > 1}):
        yield name, "given twice; the last one counts."
    for i, word in enumerate(words):
        name, _, path = word.lstrip("-").partition("=")
        end = i + (1 if path else 2)
        path = path or "".join(words[i + 1 : end])
        # A pipe can be read only once.
        if name != "flagfile" or not os.path.isfile(os.path.expanduser(path)):
            continue
        read = values.read_flags_from_files(words[i:end])
        before, within, after = (
            {*_list_names(part, values)}
            for part in (words[:i], read, words[end:])
        )
        for name in sorted(before & within - after):
            yield name, "given before --flagfile, whose value counts."


def _list_names(words, values):
    """Returns the names of the flags among words that are no lists."""
    names = [w.lstrip("-").partition("=")[0] for w in words if w[:1] == "-"]
    names = [n if n in values else n.removeprefix("no") for n in names]
    return [
        name
        for name in names
        if name in values
        and name != "flagfile"
        and not values[name].flag_type().startswith("multi ")
    ]


def format_help(flags_class, values):
    """Returns the help of a program: what it does, and its flags in groups.

    The groups are those of the classes that `flags_class` is made of, between
    the flags that must be given and those that do nothing.
    """
    required: list = []
    ignored: list = []
    groups: dict = {owner: [] for owner in flags_class.__mro__}
    for field in dataclasses.fields(flags_class):
        (*_, owner) = (
            base
            for base in flags_class.__mro__
            if field.name in vars(base).get("__annotations__", {})
        )
        name = _flag_name(field)
        text = values[name].help.split(";\n")[0]  # Without absl's advice.
        group = groups[owner]
        if _is_required(field):
            group = required
        elif text.startswith("Ignored"):
            group = ignored
        # Identity, because 0 is worth saying.
        elif all(field.default is not x for x in (None, False, "")):
            text += f" (default: {str(field.default).lower()})"
        no = "[no]" if values[name].boolean else ""
        group.append((name, f"--{no}{name}: {text}"))
    titled = {"Required": required}
    for owner, group in groups.items():
        # Up to the first full stop or semicolon: what the class is about.
        about = re.split(r"[.;]", owner.__doc__ or "")[0]
        titled.setdefault(about, []).extend(group)
    lines = [(sys.modules[flags_class.__module__].__doc__ or "").strip()]
    for title, group in {**titled, "Without effect": ignored}.items():
        lines += [f"\n{title}:"] if group else []
        for _, text in sorted(group):
            lines.append(
                textwrap.fill(
                    text,
                    80,
                    initial_indent="  ",
                    subsequent_indent="    ",
                    break_on_hyphens=False,
                )
            )
    lines.append("\n--flagfile=FILE reads flags from a file, one on each line.")
    return "\n".join(lines)


def run_command(run, flags_class, words):
    """Runs a command line in this process; returns the exit status.

    `words` are those after the program's name; the rest is as for `launch`.
    """
    return _status_of(lambda: call(run, parse(flags_class, words)), flags_class)


def parse(flags_class, words):
    """Returns a `flags_class` of the arguments of a command line.

    Raises:
      ValueError: if a flag is unknown, or its value invalid.
    """
    values = absl_flags.FlagValues()
    _define(flags_class, values)
    try:
        _, *stray_words = values(["program", *words])
    except (absl_flags.Error, ValueError) as error:
        raise ValueError(str(error)) from error
    return _parsed(flags_class, values, stray_words)


def call(run, args):
    """Calls a function, or the function `run` of a module given by name."""
    if isinstance(run, str):
        run = quiet_import.import_quietly(run).run
    run(args)


def _status_of(call, flags_class):
    """Calls a function; prints an error to stderr; returns the exit status.

    Messages show arguments that are fields of `flags_class` as its flags.
    """
    with messages.showing(_shown_names(flags_class)):
        try:
            call()
        except Terminated:
            return 128 + signal.SIGTERM
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
        except Exception as error:
            is_pipe = isinstance(error, BrokenPipeError) and _is_output_closed()
            if is_pipe or logging.get_verbosity() >= 1:
                raise
            print(
                f"{sys.argv[0]}: {messages.show(errors.explain(error))}\n"
                "(Details: --verbosity=1)",
                file=sys.stderr,
            )
            return 1
    return 0


def _is_output_closed():
    # The pipe that broke may be another, such as one to a worker.
    poll = select.poll()
    poll.register(sys.stdout, 0)  # Errors are always reported.
    return bool(poll.poll(0))


def _raise_on_sigterm():
    report = sys.unraisablehook

    def terminate(signum, frame):
        del frame
        # Only once: a second signal must not interrupt saving.
        signal.signal(signum, signal.SIG_IGN)
        raise Terminated

    def repeat(ignored):
        if not issubclass(ignored.exc_type, Terminated):
            report(ignored)
            return
        # A finalizer raised it, which Python ignores: again, outside of it.
        signal.signal(signal.SIGTERM, terminate)
        send = functools.partial(os.kill, os.getpid(), signal.SIGTERM)
        threading.Timer(0.1, send).start()

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, terminate)
        # A terminal that is closed, unless `nohup` ignores that.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(
                signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM)
            )
        sys.unraisablehook = repeat


def _define(flags_class, values):
    hints = typing.get_type_hints(flags_class)
    names = _shown_names(flags_class)
    for field in dataclasses.fields(flags_class):
        name = _flag_name(field)
        kind = _without_none(hints[field.name])
        default: typing.Any = None if _is_required(field) else field.default
        text = settings.inherited(flags_class, field.name, "help")
        if not text:
            raise ValueError(
                f"{flags_class.__name__}.{field.name} has no help."
            )
        if limits := settings.inherited(flags_class, field.name, "range"):
            text += f" Range: {limits}."
        # The library's settings name others as arguments.
        with messages.showing(names):
            text = messages.show(text)
        more = {}
        if settings.inherited(flags_class, field.name, "has_lines"):
            define: Callable = absl_flags.DEFINE_multi_string
        elif typing.get_origin(kind) is typing.Literal:
            define = absl_flags.DEFINE_enum
            more = {"enum_values": typing.get_args(kind)}
        else:
            define = _DEFINE[kind]
        define(
            name=name, default=default, help=text, flag_values=values, **more
        )


def _shown_names(flags_class):
    """Returns the flags of a class by the names that the library uses."""
    fields = dataclasses.fields(flags_class)
    return {field.name: _flag_name(field) for field in fields}


def _flag_name(field):
    return field.name.rstrip("_")  # The field of --from is `from_`.


def _without_none(hint):
    """Returns T for an annotation `T | None`, else the annotation."""
    if hint == NumberOrAuto:
        return hint
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = set(typing.get_args(hint)) - {types.NoneType}
    return hint


def _is_required(field):
    return field.default is dataclasses.MISSING


def _parsed(flags_class, flag_values, stray_words):
    if stray_words:
        # absl reads "--do_train False" as --do_train and a stray word.
        raise ValueError(f"Write --flag=value; got {stray_words}.")
    fields = dataclasses.fields(flags_class)
    values = {f.name: flag_values[_flag_name(f)].value for f in fields}
    for name, value in values.items():
        if isinstance(value, list):
            values[name] = "\n".join(value)
    missing = [
        f"--{_flag_name(f)} ({settings.inherited(flags_class, f.name, 'help')})"
        for f in fields
        if _is_required(f) and values[f.name] is None
    ]
    if missing:
        raise ValueError(f"Please give {', '.join(missing)}; see --help.")
    return flags_class(**values)
