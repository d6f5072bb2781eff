"""Progress: one line on a terminal, several permanent lines in a log."""

import contextlib
import io
import os
import pathlib

import pytest

from albert_tf import progress


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self):
        return True


def build(monkeypatch, stream):
    """A Progress of ten things, one per second, that writes to a stream."""
    now = iter(range(100))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(now)))
    monkeypatch.setattr(progress.sys, "stderr", stream)
    return progress.Progress("counting", 10, "things")


def test_a_terminal_has_one_line_that_can_be_cleared(monkeypatch):
    stream = Terminal()
    done = build(monkeypatch, stream)
    for _ in range(4):
        done.add(1)
    done.clear()
    lines = stream.getvalue().split("\r\x1b[K")
    assert "counting:  40% of 10 things" in lines[-2]
    assert lines[-1] == "" and "\n" not in stream.getvalue()


def test_a_log_has_no_lines_of_short_work(monkeypatch):
    stream = io.StringIO()
    done = build(monkeypatch, stream)
    for _ in range(4):
        done.add(1)
    done.clear()
    assert stream.getvalue() == ""
    done.finish()
    assert "40% of 10 things" in stream.getvalue()


def test_a_log_has_a_line_at_intervals(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(progress, "LOG_SECONDS", 6)
    done = build(monkeypatch, stream)
    for _ in range(12):
        done.add(1)
    assert stream.getvalue().count("\n") == 2


def test_without_a_total_what_is_done_is_counted(monkeypatch):
    stream = io.StringIO()
    done = build(monkeypatch, stream)
    done.total = None
    done.add(1234)
    done.finish()
    assert "counting: 1,234 things, " in stream.getvalue()
    assert "remaining" not in stream.getvalue() and "%" not in stream.getvalue()


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (0, "counting: 40% of ten, at 3 a second"),
        (36, "counting: 40% of ten, at 3 a second"),
        (35, "counting: 40% of t…, at 3 a second"),
        (10, "…, at 3 a second"),
    ],
)
def test_a_line_is_cut_before_it_wraps_and_keeps_its_end(
    monkeypatch, columns, shown
):
    stream = Terminal()
    stream.fileno = lambda: 7
    monkeypatch.setattr(
        os, "get_terminal_size", lambda _: os.terminal_size((columns, 24))
    )
    line = progress.Line(stream)
    line.show("counting: 40% of ten", ", at 3 a second")
    assert stream.getvalue() == f"\r\x1b[K{shown}"


def test_a_terminal_that_hides_its_width_gets_all():
    stream = Terminal()
    progress.Line(stream).show("a" * 200, "b")
    assert stream.getvalue().endswith("a" * 200 + "b")


def test_a_log_is_never_silent_for_long(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    line = progress.Line(stream)
    for step in range(13):  # One in ten seconds, a line of its own after 9.
        now[0] = 10.0 * step
        line.show(f"step {step}", ", ETA")
        if step == 9:
            line.say("a line")
    said = stream.getvalue().splitlines()
    assert said == ["step 6, ETA", "a line"]


def test_a_log_that_nobody_reads_or_that_is_full_ends_no_work():
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as stream:
        line = progress.Line(stream)
        line.say("step 1")
        line.say("step 2")
    # Closed without an error: nothing is left to be written.
    line = progress.Line(pathlib.Path("/dev/full").open("w"))
    line.say("step 1")
    with pytest.raises(OSError, match="No space left"):
        line.stream.close()


def test_lines_outlive_a_file_to_which_stderr_was_redirected(tmp_path, capsys):
    path = tmp_path / "log"
    with path.open("w") as log, contextlib.redirect_stderr(log):
        line = progress.Line()
        line.say("step 1")
    line.say("step 2")
    assert path.read_text() == "step 1\n"
    assert capsys.readouterr().err == "step 2\n"
