"""Metrics of classification and regression, and of a constant baseline.

Shapes: N examples, C classes. The form of `label_ids` depends on the
objective of `heads.AlbertClassifier`: "classes": [N] integers; "regression":
[N] floats; "multi_label": [N, C] of 0 and 1.
"""

import functools
import warnings

import numpy as np
from scipy import special, stats
from sklearn import metrics as sklearn_metrics

# A model that does not go below this share of the baseline's loss has learned
# nothing.
LEARNED_BELOW = 0.99
ADVICE = (
    "Lower the learning rate (large models need 1e-5 or 5e-6), use a longer "
    "warmup, use a larger batch, and train v2 models without dropout in the "
    "encoder."
)


def _f1(labels, predictions, num_classes):
    """Computes F1: binary for 2 classes, macro for more, micro for [N, C].

    The mean of "macro" is over the classes that occur in the labels or in the
    predictions.
    """
    if labels.ndim == 2:
        average = "micro"
    else:
        average = "macro" if num_classes > 2 else "binary"
    return sklearn_metrics.f1_score(
        labels, predictions, average=average, zero_division=0
    )


def _correlation(function):
    def score(labels, predictions):
        if len(labels) < 2:
            return 0.0
        value = function(labels, predictions).statistic
        return 0.0 if np.isnan(value) else value

    return score


# Functions of labels and predictions; F1 also needs the number of classes.
# For multi_label, eval_accuracy requires all labels of a row to be correct.
METRICS = {
    "eval_accuracy": sklearn_metrics.accuracy_score,
    "matthew_corr": sklearn_metrics.matthews_corrcoef,
    "pearson": _correlation(stats.pearsonr),
    "spearman": _correlation(stats.spearmanr),
    # Unlike scikit-learn's, accepts values that are not finite.
    "MSE": lambda labels, found: np.square(labels - found).mean(),
}
# The metrics of each objective.
METRICS_OF = {
    "classes": ("eval_accuracy", "f1", "matthew_corr"),
    "regression": ("pearson", "spearman", "MSE"),
    "multi_label": ("f1", "eval_accuracy"),
}


def predict_labels(logits: np.ndarray, objective: str) -> np.ndarray:
    """Converts logits [N, C] to predictions in the form of `label_ids`."""
    if objective == "classes":
        return logits.argmax(axis=1).astype(np.int32)
    if objective == "regression":
        return logits[:, 0]
    return (logits > 0).astype(np.int32)


def probabilities(logits: np.ndarray, objective: str) -> np.ndarray:
    """Converts logits to probabilities, [N, C]; a regression's stay as is."""
    if objective == "regression":
        return logits
    logits = np.asarray(logits, np.float64)
    if objective == "classes":
        return special.softmax(logits, axis=1)
    return special.expit(logits)


def loss(logits, label_ids, objective: str) -> float:
    """Returns the mean loss of `heads.AlbertClassifier`."""
    logits = np.asarray(logits, np.float64)
    if objective == "classes":
        log_probs = special.log_softmax(logits, axis=1)
        return float(-log_probs[np.arange(len(label_ids)), label_ids].mean())
    if objective == "regression":
        return float(np.square(logits[:, 0] - label_ids).mean())
    signed = np.where(np.asarray(label_ids) > 0.5, logits, -logits)
    with np.errstate(invalid="ignore"):  # Logits of a diverged model are NaN.
        return float(np.logaddexp(0, -signed).mean())


def score(logits, label_ids, objective: str, metrics) -> dict[str, float]:
    """Computes the loss and metrics of predictions.

    Undefined metrics, such as the correlation of constant predictions, are 0.

    Returns:
      Dict of `eval_loss` and the metrics, floats.

    Raises:
      ValueError: if a metric is unknown or not defined for the objective.
    """
    unknown = [name for name in metrics if name not in METRICS_OF[objective]]
    if unknown:
        raise ValueError(
            f"Unknown metrics {unknown} for {objective!r}; known: "
            f"{', '.join(METRICS_OF[objective])}."
        )
    logits, label_ids = np.asarray(logits), np.asarray(label_ids)
    predictions = predict_labels(logits, objective)
    f1 = functools.partial(_f1, num_classes=logits.shape[1])
    functions = {**METRICS, "f1": f1}
    values = {"eval_loss": loss(logits, label_ids, objective)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # About undefined metrics.
        for name in metrics:
            values[name] = float(functions[name](label_ids, predictions))
    return values


def baseline(
    train_labels,
    label_ids,
    objective: str,
    metrics,
    num_classes: int = 0,
    is_possible: np.ndarray | None = None,
) -> dict[str, float]:
    """Scores a constant baseline, which ignores the texts.

    It predicts the most frequent class of the training data, with the label
    distribution as probabilities; for regression, the mean.

    Args:
      train_labels: labels of the training data, as `label_ids`.
      label_ids: see the module docstring.
      objective: an objective of `heads.AlbertClassifier`.
      metrics: names of metrics.
      num_classes: C of the model, which may have classes that the data lack.
      is_possible: [N, C] whether an example may have a class; None for all.

    Returns:
      A dict as from `score`.
    """
    train_labels, label_ids = np.asarray(train_labels), np.asarray(label_ids)
    logits: np.ndarray
    if objective == "regression":
        logits = np.full(1, train_labels.mean())
    elif objective == "classes":
        most = max(train_labels.max(), label_ids.max())
        num_classes = max(num_classes, 1 + most)
        counts = np.bincount(train_labels, minlength=num_classes)
        logits = np.log((counts + 0.5) / (counts + 0.5).sum())
    else:
        share = (train_labels.sum(axis=0) + 0.5) / (len(train_labels) + 1)
        logits = special.logit(share)
    logits = np.tile(logits, (len(label_ids), 1))
    if is_possible is not None:
        # The training data may have more classes than the dev data, or fewer.
        possible = np.zeros(logits.shape, bool)
        width = min(logits.shape[1], is_possible.shape[1])
        possible[:, :width] = is_possible[:, :width]
        logits[~possible] = -np.inf
    return score(logits, label_ids, objective, metrics)


def find_collapse(
    logits: np.ndarray, label_ids, objective, *, loss: float, prior_loss: float
) -> str | None:
    """Detects a model that diverged, collapsed or does not generalize.

    Args:
      logits: [N, C].
      label_ids: see the module docstring.
      objective: an objective of `heads.AlbertClassifier`.
      loss: the loss of these logits.
      prior_loss: the loss of `baseline`.

    Returns:
      A warning with advice, or None.
    """
    if not np.isfinite(logits).all():
        return f"The model diverged: its outputs are not finite. {ADVICE}"
    predictions = predict_labels(np.asarray(logits), objective)
    if objective == "regression":
        is_constant = predictions.std() < 1e-2 * np.std(label_ids)
    else:
        is_constant = (predictions == predictions[0]).all()
        is_constant &= not (label_ids == label_ids[0]).all()
    if is_constant and len(predictions) > 1:
        return f"The model predicts the same for every example. {ADVICE}"
    if loss > LEARNED_BELOW * prior_loss:
        return (
            f"The loss on dev, {loss:.4f}, is not below that of a constant "
            f"guess, {prior_loss:.4f}. The model is undertrained or "
            f"overfitting. If this persists: {ADVICE}"
        )
    return None
