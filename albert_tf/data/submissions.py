"""Writes predictions: the release's files, and those the GLUE server takes.

`dev_predictions.jsonl` is ours: what the best checkpoint says of the dev data.
"""

import json

import numpy as np

from albert_tf import filesystem

DEV_PREDICTIONS_FILE = "dev_predictions.jsonl"


def format_predictions(
    predictions, labels, objective: str, bounds=None
) -> list[str]:
    """Turns predictions into words.

    Args:
      predictions: [N] class indices or numbers, or [N, C] of 0 and 1.
      labels: names of the classes; None for a regression.
      objective: as `heads.AlbertClassifier` knows it.
      bounds: least and largest number of a regression, or None.

    Returns:
      N strings; several labels have commas between them.
    """
    if objective == "classes":
        return [labels[i] for i in predictions]
    if objective == "multi_label":
        return [
            ",".join(labels[i] for i in np.flatnonzero(row))
            for row in predictions
        ]
    if bounds:
        predictions = np.clip(predictions, *bounds)
    return [f"{value:.3f}" for value in predictions]


def write_test_results(path: filesystem.Path, probabilities: np.ndarray):
    """Writes a row of probabilities for each example, with tabs between."""
    lines = ["\t".join(str(float(p)) for p in row) for row in probabilities]
    filesystem.write_file(path, "".join(f"{line}\n" for line in lines))


def write_submission(
    path: filesystem.Path, ids: list[str], predictions: list[str]
):
    """Writes `index` and `prediction` of each row, in the order of the rows.

    Raises:
      ValueError: if there are not as many predictions as rows.
    """
    if len(ids) != len(predictions):
        raise ValueError(
            f"{len(predictions)} predictions for the {len(ids)} rows of "
            f"{path}; wanted one for each. Did a batch get lost?"
        )
    rows = [("index", "prediction"), *zip(ids, predictions, strict=True)]
    filesystem.write_file(path, "".join(f"{i}\t{word}\n" for i, word in rows))


def write_dev_predictions(path: filesystem.Path, step: int, rows: list[dict]):
    """Writes what a model said of the dev data: JSON lines, in its order.

    Args:
      path: of the file.
      step: steps that the model was trained.
      rows: a dict for each example. `id`; `text`, a list of what was read;
        `label` and `prediction`, in words or numbers; `probabilities`, of each
        label, or `probability`, of the prediction, except for a regression.
    """
    lines = (json.dumps({"step": step, **r}, ensure_ascii=False) for r in rows)
    filesystem.write_file(path, "".join(f"{line}\n" for line in lines))
