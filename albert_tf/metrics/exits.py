"""What leaving a classifier early costs and saves, for every threshold.

The logits after every layer give the answers for all thresholds at once.

Shapes: N examples, L layers, C classes.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
from scipy import special

from albert_tf.metrics import classification

# Uncertainties below which an answer counts as sure; nothing is below 0. Small
# ones matter to models that are sure of nearly everything.
THRESHOLDS = (
    0.0,
    *np.geomspace(0.001, 0.1, 21).round(4).tolist(),
    *np.linspace(0.12, 1, 45).round(2).tolist(),
)


class Exit(NamedTuple):
    """A threshold, and what answers so given are worth on some data.

    Attributes:
      threshold: an answer is given after the first layer whose uncertainty is
        below this.
      score: a metric of these answers.
      num_layers: mean number of layers.
      error: standard error of the score's difference from all layers', at
        least that of `find_least_error` if an answer was early.
    """

    threshold: float
    score: float
    num_layers: float
    error: float = 0.0


def uncertainty(logits: np.ndarray) -> np.ndarray:
    """Returns the entropy of softmax, as a share of the largest: [...].

    `logits` are [..., C].
    """
    log_probs = special.log_softmax(np.asarray(logits, np.float64), axis=-1)
    entropy = -(np.exp(log_probs) * log_probs).sum(axis=-1)
    return entropy / np.log(logits.shape[-1])


def leave(
    layer_logits: np.ndarray, threshold: float, unsure: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the logits [N, C] and the number of layers [N] of each answer.

    `layer_logits` are [N, L, C], `unsure` their `uncertainty`, if it is known.
    """
    if unsure is None:
        unsure = uncertainty(layer_logits)
    is_sure = unsure < threshold  # [N, L]
    is_sure[:, -1] = True
    last = is_sure.argmax(axis=1)  # [N]
    return layer_logits[np.arange(len(last)), last], last + 1


def list_exits(
    layer_logits: np.ndarray, label_ids: np.ndarray, metric: str, more=()
) -> list[Exit]:
    """Returns an `Exit` for each of THRESHOLDS and `more`, in order.

    `layer_logits` are [N, L, C], `label_ids` [N] integers; `metric` is one of
    "classes" in `classification`.
    """

    def score(logits, index=slice(None)):
        found = logits[index], label_ids[index], "classes", [metric]
        return classification.score(*found)[metric]

    # By layer, as the logits of all take many times their memory.
    by_layer = layer_logits.swapaxes(0, 1)
    unsure = np.stack([uncertainty(x) for x in by_layer], axis=1)  # [N, L]
    whole = layer_logits[:, -1]  # [N, C]
    least = find_least_error(whole, label_ids, score)
    parts = leave_out(len(label_ids))
    whole_scores = [score(whole, part) for part in parts]
    rows = []
    for threshold in sorted({*THRESHOLDS, *more}):
        logits, num_layers = leave(layer_logits, threshold, unsure)
        has_left = num_layers.min() < layer_logits.shape[1]
        error = least if has_left else 0.0
        if (logits.argmax(axis=1) != whole.argmax(axis=1)).any():
            scores = [score(logits, part) for part in parts]
            error = max(error, jackknife(np.subtract(scores, whole_scores)))
        mean = float(num_layers.mean())
        rows.append(Exit(threshold, score(logits), mean, error))
    return rows


def find_least_error(logits, label_ids, score) -> float:
    """Returns what a single right answer that changes costs, of any label.

    Even if no answer of N differs, one in N may on other data. That is 1 / N of
    accuracy, and more of the F1 of a rare label.

    Args:
      logits: [N, C], of all layers.
      label_ids: [N] integers.
      score: function of logits [N, C].
    """
    is_right = logits.argmax(axis=1) == label_ids  # [N]
    whole, least = score(logits), 1 / len(label_ids)
    for label in np.unique(label_ids[is_right]):
        row = np.flatnonzero(is_right & (label_ids == label))[0]
        changed = logits.copy()
        changed[row] = np.roll(changed[row], 1)
        # Rounded, so that it is 1 / N if that is what it is.
        least = max(least, round(whole - score(changed), 9))
    return float(least)


def leave_out(count: int, num_parts: int = 20) -> list[np.ndarray]:
    """Returns the indices of `count` examples, without each part of them.

    A single example has no parts.
    """
    parts = np.arange(count) % num_parts
    size = min(num_parts, count) if count > 1 else 0
    return [np.flatnonzero(parts != i) for i in range(size)]


def jackknife(values) -> float:
    """Returns the standard error of a measure, of its `values` without parts.

    The parts are those of `leave_out`. It is infinite for less than two.
    """
    if len(values) < 2:
        return math.inf
    return float(np.std(values) * math.sqrt(len(values) - 1))


def choose_exit(rows: list[Exit], tolerance: float) -> Exit:
    """Returns the last Exit before the first that may lose too much.

    Its loss and one standard error of it together are `tolerance` at most. A
    higher threshold that loses less again does so by chance; choosing that one,
    or without the error, costs more on other data (docs/results/speed.md).

    `rows` are from `list_exits`, the first one for all layers. Of several as
    fast, it is the one with the lowest threshold.
    """
    least = rows[0].score - tolerance
    enough = itertools.takewhile(
        lambda row: row.score - row.error >= least, rows
    )
    return min(enough, key=lambda row: row.num_layers)
