"""Heads of fine-tuned models in Hugging Face's format.

In config.json, `architectures` and `problem_type` specify the head, `id2label`
its labels.
"""

import numpy as np

from albert_tf import filesystem
from albert_tf.model.config import AlbertConfig
from albert_tf.weights import checkpoints, sentence_transformers
from albert_tf.weights.task_heads import HEAD_FILE, TaskHead, default_labels

CLASSIFIER = "AlbertForSequenceClassification"
CHOICES = "AlbertForMultipleChoice"
TAGS = "AlbertForTokenClassification"
SPANS = "AlbertForQuestionAnswering"
PROBLEM_TYPES = {
    "single_label_classification": "classes",
    "regression": "regression",
    "multi_label_classification": "multi_label",
}
# Kinds of heads -> class names of transformers' models.
ARCHITECTURES = {
    **dict.fromkeys(PROBLEM_TYPES.values(), CLASSIFIER),
    "choices": CHOICES,
    "tags": TAGS,
    "spans": SPANS,
}
# Kinds of heads whose architecture has no pooler.
WITHOUT_POOLER = ("tags", "spans")
PRETRAINING = "AlbertForPreTraining"
# Without a task's head: what the pretraining heads in the weights make it.
ENCODER, MASKED_LM = "AlbertModel", "AlbertForMaskedLM"
# Architectures -> rows like those of `huggingface.HEADS`.
LAYERS = {
    **dict.fromkeys((CLASSIFIER, CHOICES, TAGS), [("", "classifier", "head")]),
    SPANS: [("cls/squad", "qa_outputs", "head")],
}
POOLER = "bert/pooler/dense"


def read_head(
    folder: filesystem.Path, described: dict, values: dict
) -> TaskHead | None:
    """Returns the head that a config.json describes, or None.

    Its content is `described`; `values` are the folder's weights by canonical
    name. A head that this package does not have is None.

    Raises:
      ValueError: if the description is invalid; `folder` is named.
    """
    architecture = find_architecture(described)
    if architecture in (CHOICES, SPANS):
        # Of several lengths, transformers has one alone.
        return TaskHead({CHOICES: "choices", SPANS: "spans"}[architecture])
    positions = described.get(
        "max_position_embeddings", AlbertConfig.max_position_embeddings
    )
    lengths = sentence_transformers.read_lengths(folder, positions)
    if architecture == TAGS:
        labels = _read_labels(folder, described.get("id2label"))
        return TaskHead("tags", labels, lengths=lengths)
    if architecture != CLASSIFIER:
        return None
    problem = described.get("problem_type")
    if problem is None:
        # transformers decides the same for integer labels.
        is_single = len(values["output_bias"]) == 1
        problem = "regression" if is_single else "single_label_classification"
    if problem not in list(PROBLEM_TYPES):
        raise ValueError(
            f"{folder}: config.json has problem_type {problem!r}; wanted one "
            f"of {', '.join(PROBLEM_TYPES)}."
        )
    labels = _read_labels(folder, described.get("id2label"))
    return TaskHead(PROBLEM_TYPES[problem], labels, lengths=lengths)


def find_architecture(described: dict) -> str:
    """Returns the first known architecture in the content of a config.json."""
    names = described.get("architectures")
    names = names if isinstance(names, list) else []
    return next((name for name in LAYERS if name in names), PRETRAINING)


def architecture_of(head: TaskHead | None) -> str:
    """Returns the architecture of a head, or that of pretraining for None."""
    return ARCHITECTURES.get(head.kind, PRETRAINING) if head else PRETRAINING


def _read_labels(folder, id2label):
    """Returns the labels in the order of outputs, or None."""
    if id2label is None:
        return None
    names = id2label if isinstance(id2label, dict) else {}
    labels = tuple(names.get(str(i)) for i in range(len(names)))
    # Those of tables with numbers as labels are written as numbers.
    labels = tuple(str(x) if type(x) is int else x for x in labels)
    if not labels or not all(isinstance(label, str) for label in labels):
        raise ValueError(
            f"{folder}: config.json has id2label {id2label!r:.80}; wanted "
            "names for '0', '1' and so on."
        )
    return labels


def describe_head(head: TaskHead | None, values: dict) -> dict:
    """Returns the entries of config.json for a head and its labels.

    Without a head, the `values`, by canonical name, say which heads of
    pretraining there are.
    """
    architecture = architecture_of(head)
    if architecture == PRETRAINING:
        has_words, has_order = (
            f"cls/{x}/output_bias" in values
            for x in ("predictions", "seq_relationship")
        )
        without_order = MASKED_LM if has_words else ENCODER
        architecture = PRETRAINING if has_order else without_order
    described: dict = {"architectures": [architecture]}
    kinds = {kind: problem for problem, kind in PROBLEM_TYPES.items()}
    if head and head.kind in kinds:
        described["problem_type"] = kinds[head.kind]
    if head and head.kind in (*kinds, "tags"):
        labels = head.labels or default_labels(len(values["output_bias"]))
        described |= {
            "id2label": {str(i): label for i, label in enumerate(labels)},
            "label2id": {label: i for i, label in enumerate(labels)},
        }
    return described


def check_is_known(values: dict, names: dict, head: TaskHead | None) -> None:
    """Raises ValueError if Hugging Face's format cannot represent a weight.

    The keys of `names` are the canonical names that it can represent.
    """
    others = values.keys() - names.keys() - checkpoints.find_slots(values)
    if not others:
        return
    if head and head.kind == "conditional_spans":
        raise ValueError(
            "The model has the head of SQuAD 2.0, with ends that depend on "
            f"starts and a no-answer logit; transformers' {SPANS} scores "
            "starts and ends independently. Convert to another format, or "
            "fine-tune on SQuAD 1.1."
        )
    if "output_bias" in others:
        raise ValueError(
            "The model has one output, either a regression or RACE's score of "
            f"a choice; there is no {HEAD_FILE} that specifies which. Give "
            "head=regression or head=choices."
        )
    raise ValueError(
        f"Hugging Face's ALBERT lacks {len(others)} of the model's weights, "
        f"such as {sorted(others)[:2]}. Convert to another format."
    )


def add_pooler(values: dict, config: AlbertConfig, head: TaskHead) -> list[str]:
    """Adds a pooler of zeros if there is none; returns remarks.

    Our models always have a pooler, those of WITHOUT_POOLER never; the logits
    of spans and tags do not depend on it.
    """
    size = config.hidden_size
    shapes = {f"{POOLER}/kernel": (size, size), f"{POOLER}/bias": (size,)}
    if any(name in values for name in shapes):
        return []
    values |= {n: np.zeros(shape, np.float32) for n, shape in shapes.items()}
    name = architecture_of(head)
    return [f"{name} has no pooler; {POOLER} was set to zeros"]


def drop_empty_pooler(values: dict) -> None:
    """Removes the zeros that `add_pooler` added."""
    names = [f"{POOLER}/kernel", f"{POOLER}/bias"]
    if not any(values[name].any() for name in names if name in values):
        for name in names:
            values.pop(name, None)
