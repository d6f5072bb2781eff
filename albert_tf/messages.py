"""Shows arguments as flags in the messages of a program.

The library's messages name arguments as Python writes them:
`train_batch_size`, or `runner="DirectRunner"`. That is right in a notebook;
the user of a program is shown --train_batch_size.
"""

import contextlib
import logging
import re

from absl import logging as absl_logging

# Argument -> flag of the running program.
_flags: dict[str, str] = {}
# A word in backquotes, or one that is not part of a flag, path or quotation.
_WORD = re.compile(
    r"`(?P<quoted>[a-z]\w*)`|"
    r"(?<![\w\"'/.=-])(?P<name>[a-z]\w*)(?P<value>=True\b|=(?!=)|(?![\w/]|\.\w))"
)


@contextlib.contextmanager
def showing(flags: dict[str, str]):
    """Shows arguments as flags: in `show`, and in lines of absl's log."""
    handler, outer = absl_logging.get_absl_handler(), dict(_flags)
    _flags.update(flags)
    handler.addFilter(_show_record)
    try:
        yield
    finally:
        handler.removeFilter(_show_record)
        _flags.clear()
        _flags.update(outer)


def show(text: str) -> str:
    """Returns a text with arguments as flags of the running program, if any.

    An argument is a word with an underscore, one followed by "=", or one in
    backquotes: other words, such as "seed", may be plain English.
    """
    return _WORD.sub(_show_word, text) if _flags else text


def _show_word(match):
    quoted, name, value = match["quoted"], match["name"], match["value"]
    flag = _flags.get(quoted or name)
    if flag is None or not (quoted or value or "_" in name):
        return match[0]
    return f"--{flag}" + (value if value == "=" else "")


def _show_record(record: logging.LogRecord) -> bool:
    """Rewrites a line of the log."""
    record.msg, record.args = show(record.getMessage()), ()
    return True
