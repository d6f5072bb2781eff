"""Writes predictions: the release's files, and those the GLUE server takes."""

import numpy as np

from albert_tf import filesystem


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
