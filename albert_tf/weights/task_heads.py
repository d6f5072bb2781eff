"""Heads of fine-tuned models: their kinds, labels and thresholds.

The weights of a regression and of RACE have the same names and shapes, so
`head.json` next to a checkpoint specifies the kind.
"""

import dataclasses
import math
import os
from collections.abc import Iterable

from albert_tf import filesystem
from albert_tf.model import heads, span_heads, tag_heads, vector_heads
from albert_tf.model.config import AlbertConfig
from albert_tf.weights import checkpoints
from albert_tf.weights.checkpoints import STEP, step_of

HEAD_FILE = "head.json"
THRESHOLD = "null_score_diff_threshold"
EXIT_THRESHOLD = "exit_threshold"
# Kinds of heads that have a threshold -> its name.
THRESHOLDS = {"conditional_spans": THRESHOLD, "classes": EXIT_THRESHOLD}
# What was scored in a run: a dict from step to threshold.
SCORED = "scored"
# Kinds of heads -> prefixes of the names of their weights.
KINDS = {
    **dict.fromkeys(heads.OBJECTIVES, "output_"),
    "choices": "output_",
    "tags": "output_",
    "spans": "cls/squad/output_",
    "conditional_spans": "answer_class/",
}
# A kind without weights, of vectors of texts.
VECTORS = "vectors"
HAS_ONE_OUTPUT = ("regression", "choices")


@dataclasses.dataclass(frozen=True)
class TaskHead:
    """The head of a fine-tuned model.

    Attributes:
      kind: an objective of `heads.AlbertClassifier`: "classes", "regression",
        "multi_label"; "choices" of `heads.AlbertMultipleChoice`; "tags" of
        `tag_heads.AlbertTagger`; "spans" and "conditional_spans" of
        `span_heads`; "vectors" of `vector_heads.AlbertVectors`, which has no
        weights of its own.
      labels: names of the outputs of a classifier or tagger, or None if
        unknown;
        `default_labels` are converted to None.
      threshold: for "conditional_spans": a question is answered if its
        no-answer score is below this; for "classes": a layer answers if its
        uncertainty is below this, see `model.exits`. None if unknown.
      lengths: dict of what limited texts in training, such as
        `max_seq_length`, in tokens; empty if unknown. Not compared.
      pooling: for "vectors": one of `vector_heads.POOLINGS`.
      is_normalized: for "vectors": whether they have the length 1.
      has_pairs: whether a classifier was trained on pairs of texts; None if
        unknown. Not compared.

    Raises:
      ValueError: if the kind is unknown or has no threshold, or another field
        has the wrong type.

    Example:
      >>> head = TaskHead("classes", ["entailment", "not_entailment"])
      >>> describe_head(head)
      {'kind': 'classes', 'labels': ('entailment', 'not_entailment')}
    """

    kind: str
    labels: tuple[str, ...] | None = None
    threshold: float | None = None
    lengths: dict[str, int] = dataclasses.field(
        default_factory=dict, compare=False
    )
    pooling: str | None = None
    is_normalized: bool = True
    has_pairs: bool | None = dataclasses.field(default=None, compare=False)

    def __post_init__(self):
        kinds = [*KINDS, VECTORS]
        if self.kind not in kinds:
            raise ValueError(
                f"the head's kind is {self.kind!r}; wanted one of {kinds}"
            )
        is_vectors = self.kind == VECTORS
        poolings = [*vector_heads.POOLINGS] if is_vectors else [None]
        if self.pooling not in poolings:
            raise ValueError(
                f"the head's pooling is {self.pooling!r:.80}; wanted one of "
                f"{poolings}"
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
        lengths = self.lengths
        if not isinstance(lengths, dict) or not all(
            type(x) is int and x > 0 for x in lengths.values()
        ):
            raise ValueError(
                f"the head's lengths are {lengths!r:.80}; wanted an object of "
                "positive integers"
            )
        _check_truth("is_normalized", self.is_normalized, bool)
        _check_truth("has_pairs", self.has_pairs, bool | None)
        if self.threshold is None:
            return
        if self.kind not in THRESHOLDS:
            raise ValueError(
                f"the head {self.kind!r} has the threshold "
                f"{self.threshold!r:.80}; wanted None, as only the heads "
                f"{[*THRESHOLDS]} have one"
            )
        if not is_number(self.threshold):
            raise ValueError(
                f"the head's {THRESHOLDS[self.kind]} is "
                f"{self.threshold!r:.80}; wanted a number"
            )

    @property
    def has_second_text(self) -> bool:
        """Whether the head was trained on inputs of two texts."""
        is_built_of_two = self.kind == "choices" or "spans" in self.kind
        return is_built_of_two or bool(self.has_pairs)


def _check_truth(name, value, kind):
    """Raises ValueError if a value is not of a kind, bool or bool | None."""
    if not isinstance(value, kind):
        raise ValueError(
            f"the head's {name} is {value!r:.80}; wanted true or false"
        )


def is_number(value) -> bool:
    """Returns whether a value of a JSON file is a finite number."""
    is_real = isinstance(value, float | int) and not isinstance(value, bool)
    return is_real and math.isfinite(value)


def default_labels(num_outputs: int) -> tuple[str, ...]:
    """Returns transformers' names of outputs without labels."""
    return tuple(f"LABEL_{i}" for i in range(num_outputs))


def describe_head(
    head: TaskHead, folder: filesystem.Path | None = None
) -> dict:
    """Returns the content of `head.json`.

    That of a run's folder includes what `note_scores` has noted of its
    checkpoints.
    """
    described: dict = {"kind": head.kind, "labels": head.labels}
    if head.threshold is not None:
        described[THRESHOLDS[head.kind]] = head.threshold
    if head.lengths:
        described["lengths"] = head.lengths
    if head.pooling:
        described["pooling"] = head.pooling
    if not head.is_normalized:
        described["is_normalized"] = False
    if head.has_pairs is not None:
        described["has_pairs"] = head.has_pairs
    if folder and (numbered := checkpoints.list_checkpoints(folder)):
        newest = step_of(numbered[-1])  # Later steps are trained anew.
        known = _read_scored(folder).items()
        if scored := {s: x for s, x in known if int(s) <= newest}:
            described[SCORED] = scored
    return described


def read_head(folder: filesystem.Path) -> TaskHead | None:
    """Reads `head.json` of a folder; returns None if there is none.

    Raises:
      ValueError: if it is invalid.
    """
    path = os.path.join(folder, HEAD_FILE)
    if not filesystem.exists(path):
        return None
    values = filesystem.read_json(path)
    kind = values.get("kind", "")
    try:
        return TaskHead(
            kind,
            values.get("labels"),
            values.get(THRESHOLDS[kind]) if kind in [*THRESHOLDS] else None,
            values.get("lengths", {}),
            values.get("pooling"),
            values.get("is_normalized", True),
            values.get("has_pairs"),
        )
    except ValueError as error:
        raise ValueError(f"{path} is invalid: {error}.") from None


def find_threshold(
    folder: filesystem.Path, source: filesystem.Path
) -> float | None:
    """Returns the threshold with which some weights were scored, or None.

    `folder` has a `head.json`. The checkpoint `source` is there or elsewhere.
    """
    step = checkpoints.read_step(source)
    threshold = _read_scored(folder).get(str(step))
    head = read_head(folder)
    return head.threshold if threshold is None and head else threshold


def best_row(rows: list[dict], metric: str, step: str = STEP) -> dict | None:
    """Returns the row with the highest value of a metric, or None.

    Of equal ones, it is that of the lowest loss, and then the first. Rows
    without the metric are skipped. That of step 0 counts only if it is alone:
    it is of initial weights, which have no checkpoint. `step` is the key of the
    steps.
    """
    rows = [row for row in rows if not math.isnan(row.get(metric, math.nan))]
    return max(
        rows,
        key=lambda row: (
            row[step] > 0,
            row[metric],
            -row.get("eval_loss", math.inf),
        ),
        default=None,
    )


def note_scores(folder: filesystem.Path, rows: list[dict]) -> None:
    """Notes in a run's `head.json`, if there is one, what was scored.

    Readers of the checkpoints need the thresholds, and must know which
    checkpoints are newer than the last one that was scored.

    `rows` has a dict from name to float for each evaluation, which may have a
    threshold.
    """
    path = os.path.join(folder, HEAD_FILE)
    if not filesystem.exists(path):
        return
    # Step 0 is of weights without training here, such as those of a copy,
    # whose thresholds stay.
    if rows and not any(row[STEP] for row in rows):
        return
    rows = [row for row in rows if row[STEP]]
    described = filesystem.read_json(path)
    name = THRESHOLDS.get(described["kind"], THRESHOLD)
    # Those of checkpoints that are to be scored again stay until they are.
    steps = {str(step_of(p)) for p in checkpoints.list_checkpoints(folder)}
    known = _read_scored(folder).items()
    scored = {step: threshold for step, threshold in known if step in steps}
    scored |= {str(int(row[STEP])): row.get(name) for row in rows}
    filesystem.write_json(path, described | {SCORED: scored})


def _read_scored(folder) -> dict[str, float | None]:
    """Returns the thresholds of scored checkpoints, by step.

    They are None for heads without a threshold.
    """
    path = os.path.join(folder, HEAD_FILE)
    values = filesystem.read_json(path) if filesystem.exists(path) else {}
    scored = values.get(SCORED, {})
    if isinstance(scored, dict):
        scored.pop("best", None)  # The checkpoint itself has its step.
    if not isinstance(scored, dict) or not all(
        step.isdecimal() and (threshold is None or is_number(threshold))
        for step, threshold in scored.items()
    ):
        raise ValueError(
            f"{path} is invalid: {SCORED} is {scored!r:.80}; wanted an object "
            "from step to threshold."
        )
    return scored


def find_trained(
    folder: filesystem.Path, scored_steps: Iterable[int] = ()
) -> list[str]:
    """Returns the prefixes of a folder's checkpoints, the one to use last.

    That is the best one; or the newest, if it is newer than all that were
    scored, as training went on without dev data.

    Args:
      folder: folder of the checkpoints.
      scored_steps: steps that were scored, besides those that `note_scores`
        has noted.
    """
    numbered = checkpoints.list_checkpoints(folder)
    best = checkpoints.find_best(folder)
    if best is None:
        return numbered
    steps = [*map(int, _read_scored(folder)), *scored_steps]
    # If it is unknown what was scored, as in a copy, the best one is used.
    newest = max(steps, default=math.inf)
    newer = [
        prefix
        for prefix in numbered
        if step_of(prefix) > newest
        and not filesystem.exists(prefix + checkpoints.MARK)
    ]
    return [*(p for p in numbered if p not in newer), best, *newer]


def find_head(
    values: dict, given: TaskHead | None, source: filesystem.Path
) -> TaskHead | None:
    """Returns the head of some weights; None if it is ambiguous or absent.

    A file or a flag may have `given` it; `values` are by canonical name.

    Raises:
      ValueError: if `given` does not fit the weights; `source` is named.
    """
    kinds = [
        kind
        for kind, prefix in KINDS.items()
        if any(name.startswith(prefix) for name in values)
    ]
    if not kinds:
        return given if given and given.kind == VECTORS else None
    if given and given.kind not in kinds:
        raise ValueError(
            f"{source} has weights of the head {' or '.join(kinds)}; the "
            f"specified head is {given.kind!r}. Does {HEAD_FILE} belong to "
            "another model?"
        )
    if "output_bias" not in values:
        return given or TaskHead(kinds[0])
    num_outputs = len(values["output_bias"])
    if given is None:
        return TaskHead("classes") if num_outputs > 1 else None
    wanted = len(given.labels) if given.labels else num_outputs
    if given.kind in HAS_ONE_OUTPUT:
        wanted = 1
    if num_outputs != wanted:
        raise ValueError(
            f"{source} has {num_outputs} outputs; the head {given.kind!r} with "
            f"the labels {given.labels} has {wanted}. Was the model fine-tuned "
            "for another task?"
        )
    return given


def reorder_outputs(
    values: dict, head: TaskHead, wanted: TaskHead, source: filesystem.Path
) -> tuple[dict, str | None]:
    """Reorders the outputs of a head for a task with the same labels.

    Labels may differ in case. `values`, by canonical name, have the `head` that
    `find_head` returns; the task has the `wanted` one.

    Returns:
      `values` with the outputs in the order of the task's labels, and a remark
      on what was done or could not be compared, or None.

    Raises:
      ValueError: if the kinds differ; `source` is named.
    """
    # Without labels, "classes" is a guess: see `find_head`.
    is_guess = head == TaskHead("classes") and wanted.kind == "multi_label"
    if head.kind != wanted.kind and not is_guess:
        raise ValueError(
            f"{source} has the head {head.kind!r}; the task wants "
            f"{wanted.kind!r}. Was the model fine-tuned for another task?"
        )
    if not wanted.labels or head.labels == wanted.labels:
        return values, None
    if not head.labels:
        return values, (
            f"WARNING: The labels of {source} are unknown: its outputs are "
            f"taken to be {list(wanted.labels)}, in this order. If that is "
            'wrong, give the task "labels" in their order.'
        )
    theirs = [label.casefold() for label in head.labels]
    names = [label.casefold() for label in wanted.labels]
    described = f"labels {list(head.labels)}, the task {list(wanted.labels)}"
    if sorted(theirs) != sorted(names) or len(set(names)) < len(names):
        return values, (
            f"WARNING: {source} has the {described}. They are taken to mean "
            "the same, in this order. If that is wrong, correct the labels "
            "next to the model."
        )
    order = [theirs.index(name) for name in names]
    if order == sorted(order):
        return values, None
    outputs = {
        name: values[name][order] for name in ("output_weights", "output_bias")
    }
    return values | outputs, (
        f"{source} has the {described}: its outputs are reordered."
    )


def build_model(start, config: AlbertConfig, **kwargs):
    """Builds the model of a fine-tuned `Pretrained`, with random weights.

    `kwargs` are its `dtype` and the beam of "conditional_spans".
    """
    head = start.head
    size = len(start.values.get("output_bias", ()))
    if head.kind == "choices":
        return heads.AlbertMultipleChoice(config, **kwargs)
    if head.kind == "spans":
        return span_heads.AlbertSpans(config, **kwargs)
    if head.kind == "conditional_spans":
        return span_heads.AlbertConditionalSpans(config, **kwargs)
    if head.kind == VECTORS:
        kwargs["pooling"] = head.pooling
        return vector_heads.AlbertVectors(config, **kwargs)
    if head.kind == "tags":
        return tag_heads.AlbertTagger(config, num_labels=size, **kwargs)
    return heads.AlbertClassifier(
        config, num_labels=size, objective=head.kind, **kwargs
    )
