"""One line that says how far a long piece of work is, how fast, how long."""

import os
import sys
import time

TERMINAL_SECONDS = 0.5
LOG_SECONDS = 30
# Columns of a terminal that does not say how many it has.
WIDE = 1000


class Line:
    """Lines for whoever waits; on a terminal one is rewritten in place.

    Args:
      stream: where they go.
    """

    def __init__(self, stream=None):
        self.stream = stream or sys.stderr
        self.is_terminal = self.stream.isatty()

    def show(self, text: str, end: str = ""):
        """Rewrites the line of a terminal; a log does not get it.

        Args:
          text: is cut where the terminal is too narrow: what wraps cannot be
            rewritten.
          end: comes after it, and stays.
        """
        if self.is_terminal:
            room = max(0, self._num_columns() - 1 - len(end))
            if len(text) > room:
                text = f"{text[: max(0, room - 1)]}…"
            self._write(f"\r\x1b[K{text}{end}")

    def _num_columns(self):
        try:
            return os.get_terminal_size(self.stream.fileno()).columns or WIDE
        except (OSError, ValueError):  # It has none, as in a notebook.
            return WIDE

    def say(self, text: str):
        """Writes a line that stays."""
        start = "\r\x1b[K" if self.is_terminal else ""
        self._write(f"{start}{text}\n")

    def _write(self, text):
        self.stream.write(text)
        self.stream.flush()


class Progress:
    """Shows progress: rewrites one line of a terminal, adds lines to a log.

    Args:
      what: the work, as a few words.
      total: its amount.
      unit: what is counted, plural.
      is_shown: whether anything is written at all.
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
        """Counts work that was done."""
        self.amount += amount
        pause = TERMINAL_SECONDS if self.line.is_terminal else LOG_SECONDS
        if time.monotonic() - self.last >= pause:
            self._show()

    def finish(self):
        """Shows the last state, and leaves the line."""
        self._show()
        if self.is_shown and self.line.is_terminal:
            print(file=self.line.stream)

    def clear(self):
        """Takes the line off a terminal; a log keeps what it got."""
        self.line.show("")

    def _show(self):
        self.last = time.monotonic()
        if not self.is_shown:
            return
        seconds = max(self.last - self.start, 1e-3)
        rate = self.amount / seconds
        remaining = max(0, self.total - self.amount) / max(rate, 1e-3)
        text = (
            f"{self.what}: {self.amount / max(self.total, 1):4.0%} of "
            f"{self.total:,.0f} {self.unit}"
        )
        end = (
            f", {rate:,.{0 if rate >= 10 else 1}f} a second, "
            f"{format_seconds(seconds)} elapsed, "
            f"{format_seconds(remaining)} remaining"
        )
        if self.line.is_terminal:
            self.line.show(text, end)
        else:
            self.line.say(text + end)


def format_seconds(seconds):
    """Returns h:mm:ss."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
