"""Reads and writes `eval_results.txt`: the scores of a folder's checkpoints.

The release's format: a block of "name = value" lines for each evaluation.
"""

import logging
import os

from albert_tf import filesystem
from albert_tf.weights import task_heads
from albert_tf.weights.checkpoints import STEP

RESULTS_FILE = "eval_results.txt"
HEADER = "***** Eval results *****\n"


def read_results(folder: filesystem.Path) -> list[dict]:
    """Returns a dict from name to float for each evaluation in a folder.

    Blocks truncated by a full disk or a kill are skipped.
    """
    return [row for row, _ in read_blocks(folder)]


def find_trained(folder: filesystem.Path) -> list[str]:
    """Returns `task_heads.find_trained`, with what these results have scored.

    Without a head, as in pretraining, only they say it.
    """
    steps = [int(row[STEP]) for row in read_results(folder)]
    return task_heads.find_trained(folder, steps)


def read_blocks(folder: filesystem.Path) -> list[tuple[dict, str]]:
    """Returns (values, text) of each complete block of a folder's results."""
    path = os.path.join(folder, RESULTS_FILE)
    if not filesystem.exists(path):
        return []
    text = filesystem.read_file(path).decode("utf-8", errors="replace")
    _, *texts = text.split(HEADER)
    blocks = [(_parse_block(text), text) for text in texts]
    return [(row, text) for row, text in blocks if row]


def _parse_block(text):
    """Returns the values of a block, or None if it is truncated."""
    row = {}
    for line in text.removesuffix("\n").split("\n"):
        name, _, value = line.partition(" = ")
        try:
            row[name] = float(value)
        except ValueError:
            return None
    is_whole = text.endswith("\n") and STEP in row
    return row if is_whole else None


def write_blocks(folder: filesystem.Path, texts: list[str]) -> None:
    """Writes blocks of results atomically, and notes them in `head.json`."""
    # In this order: a run that is killed in between evaluates again.
    rows = [_parse_block(text) for text in texts]
    task_heads.note_scores(folder, rows)
    path = os.path.join(folder, RESULTS_FILE)
    _keep_other(path)
    filesystem.write_file(path, "".join(HEADER + text for text in texts))


def _keep_other(path):
    """Renames results without HEADER, such as the release's own."""
    content = filesystem.read_file(path) if filesystem.exists(path) else b""
    if content.strip() and HEADER.encode() not in content:
        filesystem.rename(path, f"{path}.old")
        logging.warning(
            "%s has other results: they are now %s.old.", path, path
        )
