"""One line that says how far a long piece of work is, how fast, how long."""

import sys
import time

TERMINAL_SECONDS = 0.5
LOG_SECONDS = 30


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
        self.is_terminal = sys.stderr.isatty()
        self.amount = 0
        self.start = self.last = time.monotonic()

    def add(self, amount):
        """Counts work that was done."""
        self.amount += amount
        pause = TERMINAL_SECONDS if self.is_terminal else LOG_SECONDS
        if time.monotonic() - self.last >= pause:
            self._show()

    def finish(self):
        """Shows the last state, and leaves the line."""
        self._show()
        if self.is_shown and self.is_terminal:
            print(file=sys.stderr)

    def _show(self):
        self.last = time.monotonic()
        if not self.is_shown:
            return
        seconds = max(self.last - self.start, 1e-3)
        rate = self.amount / seconds
        left = max(0, self.total - self.amount) / max(rate, 1e-3)
        text = (
            f"{self.what}: {self.amount / max(self.total, 1):4.0%} of "
            f"{self.total:,.0f} {self.unit}, {rate:,.0f} a second, "
            f"{format_seconds(seconds)} gone, {format_seconds(left)} left"
        )
        if self.is_terminal:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)


def format_seconds(seconds):
    """Returns h:mm:ss."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
