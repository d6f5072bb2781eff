"""Writes predictions: the release's files, GLUE submissions, and JSON lines.

`dev_predictions.jsonl` contains the best checkpoint's predictions for the dev
data.
"""

import json

import numpy as np

from albert_tf import filesystem

DEV_PREDICTIONS_FILE = "dev_predictions.jsonl"
# Scores of the same checkpoint if it answers after fewer layers than all.
EXITS_FILE = "exits.json"
# Scores of all runs of a task, see `tasks.summary`.
SUMMARY_FILE = "summary.json"
# The release's names: of probabilities, and of predictions.
TEST_RESULTS_FILE = "test_results.tsv"
SUBMISSION_FILE = "submit_results.tsv"


def format_predictions(
    predictions, labels, objective: str, bounds=None, separator: str = ","
) -> list[str]:
    """Formats predictions as N strings.

    `predictions` are [N] class indices or numbers, or [N, C] of 0 and 1, whose
    labels are joined by `separator`. Those of a regression are clipped to
    `bounds`, (minimum, maximum), unless it is None.
    """
    if objective == "classes":
        return [labels[i] for i in predictions]
    if objective == "multi_label":
        return [
            separator.join(labels[i] for i in np.flatnonzero(row))
            for row in predictions
        ]
    if bounds:  # STS-B; GLUE's example submission has three decimals.
        return [f"{value:.3f}" for value in np.clip(predictions, *bounds)]
    return [f"{value:.6g}" for value in predictions]


def write_test_results(path: filesystem.Path, probabilities: np.ndarray):
    """Writes one row of tab-separated probabilities per example."""
    lines = ["\t".join(str(float(p)) for p in row) for row in probabilities]
    filesystem.write_file(path, "".join(f"{line}\n" for line in lines))


def write_submission(
    path: filesystem.Path, ids: list[str], predictions: list[str]
):
    """Writes the columns `index` and `prediction`, in row order.

    Raises:
      ValueError: if the numbers of predictions and rows differ.
    """
    if len(ids) != len(predictions):
        raise ValueError(
            f"{len(predictions)} predictions for the {len(ids)} rows of "
            f"{path}; wanted one for each. Is a batch missing?"
        )
    rows = [("index", "prediction"), *zip(ids, predictions, strict=True)]
    filesystem.write_file(path, "".join(f"{i}\t{word}\n" for i, word in rows))


def write_dev_predictions(path: filesystem.Path, step: int, rows: list[dict]):
    """Writes the predictions of a training step for the dev data as JSON lines.

    Each example, in the order of the data, has a dict: `id`; `text`, a list of
    texts; `label` and `prediction`, strings or numbers; and, except for
    regression, `probabilities` of all labels or the `probability` of the
    prediction.
    """
    lines = (json.dumps({"step": step, **r}, ensure_ascii=False) for r in rows)
    text = "".join(f"{line}\n" for line in lines)
    # Texts that were given in Python may have half a character.
    filesystem.write_file(path, text.encode(errors="replace"))
