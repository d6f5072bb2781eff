"""Scores of classifiers and regressions, beside the best guess.

Shapes: N examples, C classes. What `label_ids` are depends on the objective:
"classes": [N] integers; "regression": [N] floats; "multi_label": [N, C] of 0
and 1. The objective is that of `heads.AlbertClassifier`.
"""

import functools
import warnings

import numpy as np
from scipy import special, stats
from sklearn import metrics as sklearn_metrics

# Losses above this share of the best blind guess's mean that nothing was
# learned.
LEARNED_BELOW = 0.99
ADVICE = (
    "Lower the learning rate (large models want 1e-5 or 5e-6), warm up "
    "longer, take a larger batch, and train v2 models without dropout in the "
    "body."
)


def _f1(labels, predictions, num_classes):
    """F1 of class 1 of two; the mean over classes of more; over all labels."""
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


def _mean_squared_error(labels, predictions):
    """Unlike scikit-learn's, of numbers that are not finite too."""
    return np.square(labels - predictions).mean()


# Each from labels and predictions, f1 also from the number of classes.
# eval_accuracy of multi_label asks for all labels of a row.
METRICS = {
    "eval_accuracy": sklearn_metrics.accuracy_score,
    "f1": _f1,
    "matthew_corr": sklearn_metrics.matthews_corrcoef,
    "pearson": _correlation(stats.pearsonr),
    "spearman": _correlation(stats.spearmanr),
    "MSE": _mean_squared_error,
}
# By objective, the ones that suit it.
METRICS_OF = {
    "classes": ("eval_accuracy", "f1", "matthew_corr"),
    "regression": ("pearson", "spearman", "MSE"),
    "multi_label": ("f1", "eval_accuracy"),
}


def predict_labels(logits: np.ndarray, objective: str) -> np.ndarray:
    """Turns logits [N, C] into predictions of the labels' form."""
    if objective == "classes":
        return logits.argmax(axis=1).astype(np.int32)
    if objective == "regression":
        return logits[:, 0]
    return (logits > 0).astype(np.int32)


def probabilities(logits: np.ndarray, objective: str) -> np.ndarray:
    """Turns logits [N, C] into probabilities [N, C]; a regression's stay."""
    if objective == "regression":
        return logits
    function = special.softmax if objective == "classes" else special.expit
    kwargs = {"axis": 1} if objective == "classes" else {}
    return function(np.asarray(logits, np.float64), **kwargs)


def loss(logits, label_ids, objective: str) -> float:
    """Returns the mean loss, as `heads.AlbertClassifier` defines it."""
    logits = np.asarray(logits, np.float64)
    if objective == "classes":
        log_probs = special.log_softmax(logits, axis=1)
        return float(-log_probs[np.arange(len(label_ids)), label_ids].mean())
    if objective == "regression":
        return float(np.square(logits[:, 0] - label_ids).mean())
    signed = np.where(np.asarray(label_ids) > 0.5, logits, -logits)
    with np.errstate(invalid="ignore"):  # A diverged model's are NaN.
        return float(np.logaddexp(0, -signed).mean())


def score(logits, label_ids, objective: str, metrics) -> dict[str, float]:
    """Scores predictions.

    What is undefined, such as the correlation of constant predictions, is 0.

    Returns:
      Dict of `eval_loss` and the metrics, floats.

    Raises:
      ValueError: if a metric is unknown or does not suit the objective.
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
        warnings.simplefilter("ignore")  # Of what is undefined.
        for name in metrics:
            values[name] = float(functions[name](label_ids, predictions))
    return values


def baseline(
    train_labels, label_ids, objective: str, metrics
) -> dict[str, float]:
    """Scores the best guess that does not look at the texts.

    It always says what is most frequent in the training data, or its mean,
    with the probabilities that labels have there.

    Returns:
      As from `score`.
    """
    train_labels, label_ids = np.asarray(train_labels), np.asarray(label_ids)
    if objective == "regression":
        logits = np.full(1, train_labels.mean())
    elif objective == "classes":
        num_classes = 1 + max(train_labels.max(), label_ids.max())
        counts = np.bincount(train_labels, minlength=num_classes)
        logits = np.log((counts + 0.5) / (counts + 0.5).sum())
    else:
        share = (train_labels.sum(axis=0) + 0.5) / (len(train_labels) + 1)
        logits = special.logit(share)
    logits = np.tile(logits, (len(label_ids), 1))
    return score(logits, label_ids, objective, metrics)


def find_collapse(
    logits: np.ndarray, label_ids, objective, *, loss: float, prior_loss: float
) -> str | None:
    """Says whether a model seems to have learned nothing.

    Args:
      logits: [N, C].
      label_ids: see the module.
      objective: as `heads.AlbertClassifier` knows it.
      loss: that of these logits.
      prior_loss: that of the best guess without looking.

    Returns:
      A sentence with advice, or None.
    """
    if not np.isfinite(logits).all():
        return f"The model's outputs are not finite: it diverged. {ADVICE}"
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
            f"The loss on dev, {loss:.4f}, is not below that of guessing "
            f"without looking, {prior_loss:.4f}. Nothing learned yet, or too "
            f"much by heart. If it stays so: {ADVICE}"
        )
    return None
