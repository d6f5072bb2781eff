"""A plugin of pytest that prints the CPU seconds of every test file.

    python -m pytest -p tests.cpu_seconds tests/training

CPU seconds, with those of the processes that a test starts and waits for,
hardly depend on what else the machine does. The wall times of --durations do.
"""

import collections
import os

import pytest

NUM_TESTS = 15  # Of how many single tests the seconds are printed.

by_test: collections.Counter[str] = collections.Counter()
mark = 0.0


def seconds():
    """Returns the CPU seconds of this process and of its ended children."""
    times = os.times()
    return sum(times[:4])


def pytest_runtest_logstart():
    global mark
    mark = seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call):
    """Adds to a report what its phase cost: xdist sends it with the report."""
    global mark
    report = yield
    before, mark = mark, seconds()
    report.cpu_seconds = mark - before
    return report


def pytest_runtest_logreport(report):
    by_test[report.nodeid] += getattr(report, "cpu_seconds", 0)


def pytest_terminal_summary(terminalreporter):
    write = terminalreporter.write_line
    by_file: collections.Counter[str] = collections.Counter()
    for name, cost in by_test.items():
        by_file[name.partition("::")[0]] += cost
    terminalreporter.section("CPU seconds")
    for title, costs in (
        ("files", by_file.most_common()),
        ("tests", by_test.most_common(NUM_TESTS)),
    ):
        write(f"{title}:")
        for name, cost in costs:
            write(f"{cost:8.1f} {name}")
    write(f"{sum(by_file.values()):8.1f} in all, without imports")
