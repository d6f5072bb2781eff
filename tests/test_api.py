"""docs/api.md names what there is, with the arguments that it has."""

import ast
import importlib
import inspect
import pathlib
import re

import pytest

import albert_tf

ROOT = pathlib.Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
# A call in a cell: `name(arguments)`, or `.name(arguments)` of the row's.
CALL = re.compile(r"`(\.?[A-Za-z_][\w.]*)\((.*?)\)`")
KINDS = inspect.Parameter


def rows():
    """(modules of the heading, a row of the table below it)."""
    modules = []
    for line in TEXT.splitlines():
        if line.startswith("## "):
            modules = re.findall(r"`(albert_tf[\w.]*)`", line)
        elif line.startswith("| `") and modules:
            yield modules, line


def calls():
    """(name for a test, modules, dotted name, arguments) of every call."""
    for modules, line in rows():
        own = None
        for name, arguments in CALL.findall(line):
            if name.startswith("."):
                name = f"{own}{name}"
            else:
                own = own or name
            yield pytest.param(modules, name, arguments, id=name)


def find(modules, name):
    """What a dotted name means below one of some modules."""
    for module in modules:
        parts = name.split(".")
        # A heading of several modules is of the last words of their names.
        for start in (module, module.rpartition(".")[0]):
            for i in range(len(parts)):
                try:
                    value = importlib.import_module(
                        ".".join([start, *parts[:i]])
                    )
                    for part in parts[i:]:
                        value = getattr(value, part)
                    return value
                except (ImportError, AttributeError):
                    continue
    raise AssertionError(f"{name} is in none of {modules}")


def parse(arguments):
    """What is written before the star and after it, and whether it is cut.

    The first two are dicts from name to default, as syntax, or None.
    """
    text, is_cut = re.subn(r",? ?\.\.\.$", "", arguments)
    text = re.sub(r", \*$", "", text)
    args = ast.parse(f"def f({text}): pass").body[0].args
    plain = [a.arg for a in args.args]
    defaults = [None] * (len(plain) - len(args.defaults)) + args.defaults
    plain = dict(zip(plain, defaults, strict=True))
    named = [a.arg for a in args.kwonlyargs]
    named = dict(zip(named, args.kw_defaults, strict=True))
    return plain, named, bool(is_cut)


@pytest.mark.parametrize(("modules", "name", "arguments"), [*calls()])
def test_a_call_is_as_it_is_written(modules, name, arguments):
    value = find(modules, name)
    known = dict(inspect.signature(value).parameters)
    known.pop("self", None)
    extra = [n for n, p in known.items() if p.kind == KINDS.VAR_KEYWORD]
    for unnamed in extra:
        del known[unnamed]
    plain, named, is_cut = parse(arguments)
    required = {n for n, p in known.items() if p.default is KINDS.empty}
    assert required <= plain.keys() | named.keys() <= known.keys()
    if not is_cut:
        assert plain.keys() | named.keys() == known.keys() and not extra
    # In order: those before the star can be given without their names.
    assert list(plain) == list(known)[: len(plain)]
    for argument, default in {**plain, **named}.items():
        parameter = known[argument]
        is_named = parameter.kind == KINDS.KEYWORD_ONLY
        assert is_named == (argument in named), argument
        written = KINDS.empty
        if default is not None:
            written = ast.literal_eval(default)
        assert parameter.default == written, argument


def test_every_public_name_is_there():
    written = re.findall(r"`albert_tf\.(\w+)`", TEXT.split("## ")[0])
    assert set(written) == set(albert_tf._MODULES)
    assert len(written) == len(set(written))
    for name in written:
        assert getattr(albert_tf, name).__name__ == name
        assert name in dir(albert_tf)
    with pytest.raises(AttributeError, match="no attribute 'Albert'"):
        albert_tf.Albert  # noqa: B018


def test_the_rows_are_many():
    assert len(list(calls())) > 80
