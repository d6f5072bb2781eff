"""The examples in docstrings run, and every public class has one."""

import doctest
import inspect
import sys

import pytest

from tests import test_api

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def read_public():
    """Returns the functions and classes of docs/api.md, by dotted name."""
    values = {}
    for parameter in test_api.calls():
        modules, name, _ = parameter.values
        value = test_api.find(modules, name)
        if "." not in value.__qualname__:  # Methods belong to their class.
            values[f"{value.__module__}.{value.__name__}"] = value
    return values


PUBLIC = read_public()
CLASSES = sorted(n for n, value in PUBLIC.items() if inspect.isclass(value))


def find_examples(name):
    """Returns the doctests of a function, or of a class and its methods."""
    value = PUBLIC[name]
    module = sys.modules[value.__module__]
    found = doctest.DocTestFinder().find(value, value.__name__, module)
    return [test for test in found if test.examples]


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_the_examples_of_a_docstring_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # Files that an example writes.
    printed = []
    for test in find_examples(name):
        runner = doctest.DocTestRunner(optionflags=OPTIONS)
        runner.run(test, out=printed.append)
        assert not runner.failures, "".join(printed)


@pytest.mark.parametrize("name", CLASSES)
def test_a_public_class_has_an_example(name):
    assert find_examples(name)
