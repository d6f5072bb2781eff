"""Heads of fine-tuned models: which one a model has, and its labels.

Weights alone do not always tell: a regression's head has the names and shapes
of RACE's. `head.json` beside a checkpoint tells.
"""

import dataclasses
import os

from albert_tf import filesystem
from albert_tf.model import heads, span_heads
from albert_tf.model.config import AlbertConfig

HEAD_FILE = "head.json"
# Kinds of heads -> what the names of their weights begin with.
KINDS = {
    **dict.fromkeys(heads.OBJECTIVES, "output_"),
    "choices": "output_",
    "spans": "cls/squad/output_",
    "conditional_spans": "answer_class/",
}
HAS_ONE_OUTPUT = ("regression", "choices")


@dataclasses.dataclass(frozen=True)
class TaskHead:
    """What a model was fine-tuned for.

    Attributes:
      kind: an objective of `heads.AlbertClassifier`: "classes", "regression",
        "multi_label"; "choices" of `heads.AlbertMultipleChoice`; "spans" and
        "conditional_spans" of `span_heads`.
      labels: names of a classifier's outputs, or None where they are unknown;
        `default_labels` become None, too.

    Raises:
      ValueError: if the kind is unknown, or labels are no strings.
    """

    kind: str
    labels: tuple[str, ...] | None = None

    def __post_init__(self):
        if self.kind not in list(KINDS):
            raise ValueError(
                f"the head's kind is {self.kind!r}; known are {[*KINDS]}"
            )
        labels = self.labels
        if labels is not None:
            is_list = isinstance(labels, list | tuple)
            if not is_list or not all(isinstance(x, str) for x in labels):
                raise ValueError(
                    f"the head's labels are {labels!r:.80}; wanted a list of "
                    "strings"
                )
            is_default = tuple(labels) == default_labels(len(labels))
            known = None if is_default else tuple(labels)
            object.__setattr__(self, "labels", known)


def default_labels(num_outputs: int) -> tuple[str, ...]:
    """The names that transformers gives to outputs without names."""
    return tuple(f"LABEL_{i}" for i in range(num_outputs))


def describe_head(head: TaskHead) -> dict:
    """Returns a head as values for JSON."""
    return {"kind": head.kind, "labels": head.labels}


def read_head(folder: filesystem.Path) -> TaskHead | None:
    """Reads `head.json` of a folder, if there is one.

    Raises:
      ValueError: if it is damaged.
    """
    path = os.path.join(folder, HEAD_FILE)
    if not filesystem.exists(path):
        return None
    values = filesystem.read_json(path)
    try:
        return TaskHead(values.get("kind", ""), values.get("labels"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}.") from None


def find_head(
    values: dict, told: TaskHead | None, source: filesystem.Path
) -> TaskHead | None:
    """Finds out which head some weights are of.

    Args:
      values: dict from canonical name to array.
      told: what is said of them, or None.
      source: where they are from, for messages.

    Returns:
      None where there is no head, or where it can be several.

    Raises:
      ValueError: if what is said does not fit the weights.
    """
    kinds = [
        kind
        for kind, prefix in KINDS.items()
        if any(name.startswith(prefix) for name in values)
    ]
    if not kinds:
        return None
    if told and told.kind not in kinds:
        raise ValueError(
            f"{source} is told to have a head of the kind {told.kind!r}; its "
            f"weights are of {' or '.join(kinds)}. Is {HEAD_FILE} of another "
            "model?"
        )
    if "output_bias" not in values:
        return told or TaskHead(kinds[0])
    num_outputs = len(values["output_bias"])
    if told is None:
        return TaskHead("classes") if num_outputs > 1 else None
    wanted = len(told.labels) if told.labels else num_outputs
    if told.kind in HAS_ONE_OUTPUT:
        wanted = 1
    if num_outputs != wanted:
        raise ValueError(
            f"{source} has {num_outputs} outputs; a head of the kind "
            f"{told.kind!r} with the labels {told.labels} has {wanted}. Was it "
            "fine-tuned for another task?"
        )
    return told


def build_model(head: TaskHead, config: AlbertConfig, num_outputs: int):
    """Builds the model of a head with random weights.

    Args:
      head: of any kind but "conditional_spans", whose beam is not known.
      config: an AlbertConfig.
      num_outputs: of a classifier.
    """
    if head.kind == "choices":
        return heads.AlbertMultipleChoice(config)
    if head.kind == "spans":
        return span_heads.AlbertSpans(config)
    return heads.AlbertClassifier(
        config, num_labels=num_outputs, objective=head.kind
    )
