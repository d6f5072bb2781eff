"""Heads of fine-tuned models in Hugging Face's form.

Which head a folder has is said in its config.json, by `architectures` and
`problem_type`; the labels are `id2label` there.
"""

import numpy as np

from albert_tf import filesystem
from albert_tf.model.config import AlbertConfig
from albert_tf.weights import checkpoints
from albert_tf.weights.task_heads import HEAD_FILE, TaskHead, default_labels

CLASSIFIER = "AlbertForSequenceClassification"
CHOICES = "AlbertForMultipleChoice"
SPANS = "AlbertForQuestionAnswering"
# Kinds of heads -> what their models are called there.
ARCHITECTURES = {
    "classes": CLASSIFIER,
    "regression": CLASSIFIER,
    "multi_label": CLASSIFIER,
    "choices": CHOICES,
    "spans": SPANS,
}
PRETRAINING = "AlbertForPreTraining"
# Architectures -> rows as `huggingface.HEADS`.
LAYERS = {
    CLASSIFIER: [("", "classifier", "head")],
    CHOICES: [("", "classifier", "head")],
    SPANS: [("cls/squad", "qa_outputs", "head")],
}
PROBLEM_TYPES = {
    "single_label_classification": "classes",
    "regression": "regression",
    "multi_label_classification": "multi_label",
}
POOLER = "bert/pooler/dense"


def read_head(
    folder: filesystem.Path, described: dict, values: dict
) -> TaskHead | None:
    """What a config.json says of a fine-tuned model's head.

    Args:
      folder: where it lies, for messages.
      described: what it holds.
      values: the weights beside it, dict from canonical name to array.

    Returns:
      None where there is no head, or none that we have.

    Raises:
      ValueError: if it is damaged.
    """
    architecture = find_architecture(described)
    if architecture != CLASSIFIER:
        kinds = {CHOICES: "choices", SPANS: "spans"}
        kind = kinds.get(architecture)
        return TaskHead(kind) if kind else None
    problem = described.get("problem_type")
    if problem is None:
        # As transformers decides, for labels that are whole numbers.
        is_single = len(values["output_bias"]) == 1
        problem = "regression" if is_single else "single_label_classification"
    if problem not in list(PROBLEM_TYPES):
        raise ValueError(
            f"{folder}: config.json has problem_type {problem!r}; known are "
            f"{', '.join(PROBLEM_TYPES)}."
        )
    labels = _read_labels(folder, described.get("id2label"))
    return TaskHead(PROBLEM_TYPES[problem], labels)


def find_architecture(described: dict) -> str:
    """The architecture in a config.json whose head we have."""
    names = described.get("architectures")
    names = names if isinstance(names, list) else []
    return next((name for name in LAYERS if name in names), PRETRAINING)


def architecture_of(head: TaskHead | None) -> str:
    """The architecture that has a head, or the one of pretraining."""
    return ARCHITECTURES.get(head.kind, PRETRAINING) if head else PRETRAINING


def _read_labels(folder, id2label):
    """The names of outputs, in order, or None."""
    if id2label is None:
        return None
    names = id2label if isinstance(id2label, dict) else {}
    labels = tuple(names.get(str(i)) for i in range(len(names)))
    if not labels or not all(isinstance(label, str) for label in labels):
        raise ValueError(
            f"{folder}: config.json has id2label {id2label!r:.80}; wanted a "
            "name for each of '0', '1' and so on."
        )
    return labels


def describe_head(head: TaskHead | None, values: dict) -> dict:
    """What config.json says of a model's head and its outputs.

    Args:
      head: None for a model of pretraining.
      values: dict from canonical name to array.
    """
    described: dict = {"architectures": [architecture_of(head)]}
    kinds = {kind: problem for problem, kind in PROBLEM_TYPES.items()}
    if head and head.kind in kinds:
        labels = head.labels or default_labels(len(values["output_bias"]))
        described |= {
            "problem_type": kinds[head.kind],
            "id2label": {str(i): label for i, label in enumerate(labels)},
            "label2id": {label: i for i, label in enumerate(labels)},
        }
    return described


def check_is_known(values: dict, names: dict, head: TaskHead | None) -> None:
    """Raises ValueError if a model has weights that this form has no name for.

    Args:
      values: dict from canonical name to array.
      names: dict whose keys are the canonical names that it has.
      head: the model's, or None.
    """
    others = [
        n for n in values if n not in names and not checkpoints.is_slot(n)
    ]
    if not others:
        return
    if head and head.kind == "conditional_spans":
        raise ValueError(
            "The model answers SQuAD 2.0: its ends depend on starts, and it "
            "has a logit for questions without an answer. Hugging Face's "
            f"ALBERT has no such head: {SPANS} scores starts and ends apart. "
            "Convert to another format, or fine-tune on SQuAD 1.1."
        )
    if "output_bias" in others:
        raise ValueError(
            "The model has one output: of a regression or, as RACE's, for "
            f"each choice. The weights look alike, and there is no {HEAD_FILE} "
            "beside them that tells. Give --head=regression or --head=choices."
        )
    raise ValueError(
        f"Hugging Face's ALBERT has no place for {len(others)} of the model's "
        f"weights, such as {sorted(others)[:2]}. Convert to another format."
    )


def add_pooler(values: dict, config: AlbertConfig) -> list[str]:
    """Adds a pooler of zeros, if there is none, and returns remarks.

    AlbertForQuestionAnswering has none, and our models always do; the logits
    of spans do not depend on it.
    """
    size = config.hidden_size
    shapes = {f"{POOLER}/kernel": (size, size), f"{POOLER}/bias": (size,)}
    if any(name in values for name in shapes):
        return []
    values |= {n: np.zeros(shape, np.float32) for n, shape in shapes.items()}
    return [f"{SPANS} has no pooler: {POOLER} is zeros"]


def drop_empty_pooler(values: dict) -> None:
    """Removes what `add_pooler` added."""
    names = [f"{POOLER}/kernel", f"{POOLER}/bias"]
    if not any(values[name].any() for name in names if name in values):
        for name in names:
            values.pop(name, None)
