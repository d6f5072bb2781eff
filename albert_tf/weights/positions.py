"""Continues position embeddings beyond those that a model was trained with."""

import os

import numpy as np

from albert_tf import filesystem
from albert_tf.model import initial_values
from albert_tf.weights import locations

NAME = "bert/embeddings/position_embeddings"
# With more frequencies the rows are fitted better, but what follows is not:
# frequencies that the rows cannot tell apart fall out of step after them.
MAX_FREQUENCIES = 24
# Weight of the penalty on the coefficients, relative to the data's.
RIDGE = 0.1


def continue_rows(rows: np.ndarray, num_rows: int) -> np.ndarray:
    """Returns a longer table that begins with `rows`.

    Row i is fitted by a sum over frequencies w of a_w sin(w i) + b_w cos(w i)
    and a constant, by ridge regression; what follows has the mean and variance
    of the given rows. Repeated rows would be worse: heads that look at
    neighbors would also look at the same position of other repetitions
    (docs/results/pretraining.md).

    Args:
      rows: [T, E], trained position embeddings.
      num_rows: number of rows of the result, at least T.

    Returns:
      [num_rows, E], float32.
    """
    num_trained = len(rows)
    num_frequencies = min(MAX_FREQUENCIES, num_trained // 4)
    waves = initial_values.SLOWEST ** np.linspace(0, 1, num_frequencies)
    angles = np.outer(np.arange(num_rows), waves)
    basis = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)  # [., 2F]
    mean = rows.mean(axis=0, dtype=np.float64)
    known = basis[:num_trained]
    penalty = RIDGE * num_trained / 2 * np.eye(known.shape[1])
    coefficients = np.linalg.solve(
        known.T @ known + penalty, known.T @ (rows - mean)
    )
    new = basis[num_trained:] @ coefficients  # [., E]
    new *= np.std(rows - mean) / max(np.std(new), 1e-30) if new.size else 1
    return np.concatenate([rows, new + mean]).astype(np.float32)


def continue_positions(
    values: dict[str, np.ndarray],
    num_rows: int | None = None,
    num_trained: int | None = None,
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Gives a model the positions that it was not trained with.

    Args:
      values: dict from canonical name to array.
      num_rows: number of positions that are wanted; None for those there are.
        Fewer change nothing.
      num_trained: how many of the first rows were trained; None for all.

    Returns:
      The values, with as many positions, and a list of a remark if they
      changed.
    """
    rows = values.get(NAME)
    if rows is None:
        return values, []
    num_rows = len(rows) if num_rows is None else num_rows
    trained = rows[:num_trained]
    if num_rows < len(rows) or num_rows == len(trained):
        return values, []
    remark = (
        f"positions from {len(trained)} on, with which it was not trained, "
        "continue those before"
    )
    return values | {NAME: continue_rows(trained, num_rows)}, [remark]


def read_trained(folder: filesystem.Path) -> int | None:
    """Returns how many positions the run in a folder has trained, if known."""
    path = os.path.join(folder, locations.MANIFEST_FILE)
    if not filesystem.exists(path):
        return None
    try:
        made_of = filesystem.read_json(path)["made_of"]
        return made_of.get("trained_positions")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # A damaged file does not make the weights useless.
