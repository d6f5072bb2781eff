"""Warnings of models that are asked many times."""

import logging

from albert_tf.text import coverage


class Remarks:
    """Logs a warning of each kind once.

    Example:
      >>> remarks = Remarks()
      >>> remarks.say("long", "2 of 3 texts are truncated.")
      >>> remarks.say("long", "1 of 4 texts are truncated.")  # Says nothing.
    """

    def __init__(self):
        self._said: set[str] = set()

    def say(self, kind: str, text: str | None) -> None:
        """Logs a text unless it is empty, or one of its kind was logged."""
        if text and kind not in self._said:
            logging.warning("%s", text)
            self._said.add(kind)

    def say_unknown(self, ids, tokenizer) -> None:
        """Logs a warning if many of some ids are those of unknown pieces."""
        self.say("unknown", coverage.describe_unknown(ids, tokenizer))
