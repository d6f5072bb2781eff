"""A progress line for long work: amount done, speed, remaining time."""

import os
import sys
import time

from albert_tf import messages

TERMINAL_SECONDS = 0.5
LOG_SECONDS = 30
# A log, such as a notebook's output, gets a line at least this often.
QUIET_SECONDS = 60
# The number of columns if the terminal's is unknown.
WIDE = 1000


class Line:
    """Writes lines for the user; a terminal's status line is updated in place.

    Args:
      stream: output stream, by default stderr.
    """

    def __init__(self, stream=None):
        self._stream = stream
        self.last = time.monotonic()

    @property
    def stream(self):
        """Where lines are written; stderr may be redirected at any time."""
        return self._stream or sys.stderr

    @property
    def is_terminal(self) -> bool:
        """Whether the stream is a terminal."""
        return self.stream.isatty() and os.environ.get("TERM") != "dumb"

    def show(self, text: str, end: str = ""):
        """Updates a terminal's status line; a log gets a line once a minute.

        Args:
          text: cut if the terminal is too narrow, because a line that wraps
            cannot be updated.
          end: follows `text`, and is never cut.
        """
        if self.is_terminal:
            room = max(0, self._num_columns() - 1 - len(end))
            if len(text) > room:
                text = f"{text[: max(0, room - 1)]}…"
            self._write(f"\r\x1b[K{text}{end}")
        elif text and time.monotonic() - self.last >= QUIET_SECONDS:
            self.say(text + end)

    def _num_columns(self):
        try:
            return os.get_terminal_size(self.stream.fileno()).columns or WIDE
        except (OSError, ValueError):  # No terminal, as in a notebook.
            return WIDE

    def say(self, text: str):
        """Writes a permanent line."""
        self.last = time.monotonic()
        start = "\r\x1b[K" if self.is_terminal else ""
        self._write(f"{start}{messages.show(text)}\n")

    def end(self):
        """Ends a terminal's status line."""
        if self.is_terminal:
            self._write("\n")

    def _write(self, text):
        # A full disk, or a log that nobody reads any more (`| tee` ends at
        # ctrl-C, too), must not cost the work.
        try:
            self.stream.write(text)
            self.stream.flush()
        except BrokenPipeError:
            # Written at the end, the rest would change the exit status.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stream.fileno())
            os.close(nowhere)
        except OSError:
            pass


class Progress:
    """Shows progress: updates one line of a terminal, adds lines to a log.

    Args:
      what: the name of the work.
      total: its total amount, or None if it is unknown.
      unit: the unit of the amount, plural.
      is_shown: whether to write anything.
    """

    def __init__(self, what, total, unit, is_shown=True):
        self.what = what
        self.total = total
        self.unit = unit
        self.is_shown = is_shown
        self.line = Line()
        self.amount = 0
        self.start = self.last = time.monotonic()

    def add(self, amount):
        """Adds an amount of finished work."""
        self.amount += amount
        pause = TERMINAL_SECONDS if self.line.is_terminal else LOG_SECONDS
        if time.monotonic() - self.last >= pause:
            self._show()

    def finish(self):
        """Shows the final state and ends the line."""
        self._show()
        if self.is_shown:
            self.line.end()

    def clear(self):
        """Clears the line of a terminal; does nothing for a log."""
        self.line.show("")

    def _show(self):
        self.last = time.monotonic()
        if not self.is_shown:
            return
        seconds = max(self.last - self.start, 1e-3)
        rate = self.amount / seconds
        done = f"{self.amount:,.0f}"
        if self.total is not None:
            share = self.amount / max(self.total, 1)
            done = f"{share:4.0%} of {self.total:,.0f}"
        text = f"{self.what}: {done} {self.unit}"
        end = (
            f", {rate:,.{0 if rate >= 10 else 1}f} per second, "
            f"{format_seconds(seconds)} elapsed"
        )
        if self.total is not None:
            remaining = max(0, self.total - self.amount) / max(rate, 1e-3)
            end += f", {format_seconds(remaining)} remaining"
        if self.line.is_terminal:
            self.line.show(text, end)
        else:
            self.line.say(text + end)


def format_seconds(seconds):
    """Formats seconds as h:mm:ss."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
