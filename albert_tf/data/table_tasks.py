"""Classification and regression tasks: GLUE's, and a user's own."""

import dataclasses
import difflib
import functools
import hashlib
import logging
import math
import numbers
import types
import typing
from collections.abc import Iterable

import numpy as np

from albert_tf import filesystem
from albert_tf.data import label_values, repeats, submissions, tables
from albert_tf.data.tables import Row, Table
from albert_tf.metrics import classification

OBJECTIVES = tuple(classification.METRICS_OF)
DEFAULT_METRICS = classification.METRICS_OF | {"classes": ("eval_accuracy",)}
# Weights with which every class has the same share in the loss.
BALANCED = "balanced"
# File names that run_classifier.py uses for every task.
_RESERVED_FILES = (submissions.TEST_RESULTS_FILE, submissions.SUBMISSION_FILE)


@dataclasses.dataclass(frozen=True)
class TableTask:
    """A task on tables of text.

    Attributes:
      name: its name.
      train: the training Table, or None.
      dev: dict from a suffix of result names (may be "") to Table.
      test: dict from the name of a submission to Table.
      objective: one of OBJECTIVES.
      labels: names of the classes; None for regression, or to collect them
        from the training data.
      metrics: names; the first selects the best checkpoint.
      bounds: (minimum, maximum) of a regression's predictions, or None.
      dev_share: share of the training rows to hold out if there is no dev
        table.
      label_separator: separates the labels of a row, for "multi_label".
      class_weight: factors of the training loss of each class: BALANCED, or a
        dict from each label to a number; None for 1.

    Example:
      >>> table = Table("reviews.tsv", text=("review",), label="stars")
      >>> task = TableTask("stars", table, {}, {}, dev_share=0.1)
      >>> task.objective, task.metrics
      ('classes', ('eval_accuracy',))
    """

    name: str
    train: Table | None
    dev: dict[str, Table]
    test: dict[str, Table]
    objective: str = "classes"
    labels: tuple[str, ...] | None = None
    metrics: tuple[str, ...] = ("eval_accuracy",)
    bounds: tuple[float, float] | None = None
    dev_share: float = 0.0
    label_separator: str = ","
    class_weight: str | dict | None = None

    def __post_init__(self):
        for field, is_valid, wanted in self._rules():
            if not is_valid:
                raise ValueError(
                    f"{field} of the task {self.name!r} is "
                    f"{getattr(self, field)!r}; wanted {wanted}."
                )

    @property
    def tables(self) -> list[Table]:
        """All tables of the task."""
        tables = [self.train, *self.dev.values(), *self.test.values()]
        return [table for table in tables if table]

    def _rules(self):
        """Yields (field, whether it is valid, what is wanted)."""
        is_file_name = self.name and not set(self.name) & set("/\0\t\r\n")
        yield "name", is_file_name, "part of a file name"
        is_free = f"{self.name}.tsv" not in _RESERVED_FILES
        yield "name", is_free, "another name; result files use this one"
        known = classification.METRICS_OF.get(self.objective, ())
        yield "objective", known, f"one of {OBJECTIVES}"
        is_known = self.metrics and set(self.metrics) <= set(known)
        yield "metrics", is_known, f"some of {known}"
        yield (
            "metrics",
            self.metrics[:1] != ("MSE",),
            "another first metric: the checkpoint with its highest value is "
            "chosen",
        )
        yield (
            "dev_share",
            0 <= self.dev_share < 1 and not (self.dev_share and self.dev),
            "a share of at least 0 and below 1, and 0 with a dev table",
        )
        yield "label_separator", self.label_separator, "at least one character"
        if self.labels is not None:
            yield from self._label_rules(self.labels)
        if self.class_weight is not None:
            yield from self._weight_rules(self.class_weight)

    def _label_rules(self, labels):
        is_regression = self.objective == "regression"
        yield "labels", not is_regression, "none for regression"
        are_different = len({*labels}) == len(labels) > 1
        yield "labels", are_different, "two or more, all different"
        yield (
            "labels",
            all(x.splitlines() == [x] and "\t" not in x for x in labels),
            "names without tabs and line breaks, of a character or more",
        )
        yield (
            "labels",
            self.objective != "multi_label"
            or not any(self.label_separator in x for x in labels),
            f"names without {self.label_separator!r}, the label_separator",
        )

    def _weight_rules(self, given):
        is_classes = self.objective == "classes"
        yield "class_weight", is_classes, f"none for {self.objective!r}"
        if given == BALANCED:
            return
        yield (
            "class_weight",
            isinstance(given, dict),
            f'"{BALANCED}", or a number for each label',
        )
        yield (
            "class_weight",
            all(
                _is_of(weight, numbers.Real) and 0 <= weight < math.inf
                for weight in given.values()
            )
            and any(given.values()),
            "numbers of at least 0, not all 0",
        )
        if self.labels is not None:
            known = label_values.Labels(self.labels)
            ids = [known.find(label_values.name_of(name)) for name in given]
            unknown = [n for n, i in zip(given, ids, strict=True) if i is None]
            missing = [n for i, n in enumerate(self.labels) if i not in ids]
            is_twice = len({*ids}) < len(ids)
            yield (
                "class_weight",
                not (unknown or missing or is_twice),
                f"one number for each label: {missing} have none"
                + f", and {unknown} are no labels" * bool(unknown),
            )


# Column of the server's index in GLUE's test files.
_INDEX = 0
_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_table = functools.partial(Table, is_glue=True)


def _glue(folder, text, label, *, test_text=None, form=None, **kwargs):
    """Builds a GLUE task; its test file may have other columns and no label."""
    table = _table(f"{folder}/train.tsv", text, label, **form or {})
    test = _table(f"{folder}/test.tsv", test_text or text, id=_INDEX)
    return TableTask(
        folder.lower(),
        train=table,
        dev={"": dataclasses.replace(table, file=f"{folder}/dev.tsv")},
        test={folder: test},
        **kwargs,
    )


_COLA = {"labels": _BINARY, "metrics": ("matthew_corr", "eval_accuracy")}
_PARAPHRASE = {"labels": _BINARY, "metrics": ("eval_accuracy", "f1")}
_SIMILARITY = {
    "objective": "regression",
    "metrics": DEFAULT_METRICS["regression"],
    "bounds": (0.0, 5.0),
}
_SHORT = {"skips_short_rows": True}  # Some rows of QQP lack columns.


def _mnli(split, label=-1, id=None):
    return _table(f"MNLI/{split}.tsv", (8, 9), label, id)


_MISMATCHED = {"MNLI-mm": _mnli("test_mismatched", None, _INDEX)}
_AX = {"AX": _table("diagnostic/diagnostic.tsv", (1, 2), id=_INDEX)}
_MNLI = TableTask(
    "mnli",
    train=_mnli("train"),
    dev={"": _mnli("dev_matched"), "mismatched": _mnli("dev_mismatched")},
    test={"MNLI-m": _mnli("test_matched", None, _INDEX), **_MISMATCHED, **_AX},
    labels=("contradiction", "entailment", "neutral"),
)
_MISMNLI = dataclasses.replace(
    _MNLI, name="mismnli", dev={"": _MNLI.dev["mismatched"]}, test=_MISMATCHED
)

# Source: classifier_utils.py, the processors; AX was not registered there.
GLUE = {
    task.name: task
    for task in (
        _glue(
            "CoLA", (3,), 1, test_text=(1,), form={"has_header": False}, **_COLA
        ),
        _glue("SST-2", (0,), 1, test_text=(1,), labels=_BINARY),
        _glue("MRPC", (3, 4), 0, **_PARAPHRASE),
        _glue("STS-B", (7, 8), -1, **_SIMILARITY),
        _glue("QQP", (3, 4), 5, test_text=(1, 2), form=_SHORT, **_PARAPHRASE),
        _MNLI,
        _MISMNLI,
        _glue("QNLI", (1, 2), -1, labels=_ENTAILMENT),
        _glue("RTE", (1, 2), -1, labels=_ENTAILMENT),
        _glue("WNLI", (1, 2), -1, labels=_BINARY),
        TableTask("ax", None, dev={}, test=_AX, labels=_MNLI.labels),
    )
}

_STRING = (str, "a string")
_COLUMN = str | int
_LABEL = (
    _COLUMN | list[_COLUMN],
    "a column, or a list of one column for each label",
)
# Keys of a task's file: type, and its description in an error.
_KEYS: dict[str, tuple] = {
    "name": _STRING,
    "train": _STRING,
    "text": (_COLUMN | list[_COLUMN], "a column or a list of two"),
    "label": _LABEL,
    "dev": _STRING,
    "dev_share": (int | float, "a number"),
    "test": _STRING,
    "test_label": _LABEL,
    "format": _STRING,
    "delimiter": _STRING,
    "has_header": (bool, "true or false"),
    "id": (_COLUMN, "a name or a number"),
    "objective": _STRING,
    "labels": (
        list[str | int | float | bool],
        "a list of strings, numbers, true and false",
    ),
    "label_separator": _STRING,
    "metrics": (list[str], "a list of strings"),
    "class_weight": (str | dict, f'"{BALANCED}", or a number for each label'),
}


def read_task_config(path: filesystem.Path) -> TableTask:
    """Reads the configuration of a user's own task; docs/tasks.md has its keys.

    Raises:
      FileNotFoundError: if there is no file.
      ValueError: if a key is unknown or missing, or a value is invalid.
    """
    values = filesystem.read_json(path)
    _check_keys(path, values)
    try:
        return _build_task(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def choose_task(name: str | None, config: filesystem.Path | None) -> TableTask:
    """Returns the task of a file or, without one, that of GLUE."""
    return read_task_config(config) if config else GLUE[str(name).lower()]


def _check_keys(path, values):
    for key, value in values.items():
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"{path}: unknown key {key!r}; known: {', '.join(_KEYS)}.{hint}"
            )
        kind, wanted = _KEYS[key]
        if value is not None and not _is_of(value, kind):
            raise ValueError(
                f"{path}: {key} is {value!r:.80}; wanted {wanted}."
            )
    required = ("name", "train", "text", "label")
    missing = [key for key in required if values.get(key) is None]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}.")


def _is_of(value, kind):
    """Returns whether a value has a type; a bool is not a number here."""
    if isinstance(kind, types.UnionType):
        return any(_is_of(value, part) for part in kind.__args__)
    if items := typing.get_args(kind):
        return isinstance(value, list) and all(
            _is_of(item, items[0]) for item in value
        )
    return isinstance(value, kind) and isinstance(value, bool) == (kind is bool)


def _build_task(values):
    test_label = values.get("test_label", values["label"])
    values = {key: value for key, value in values.items() if value is not None}
    name, text, label = (values[key] for key in ("name", "text", "label"))
    labels = [*map(label_values.name_of, values.get("labels", ()))]
    has_columns = isinstance(label, list)
    objective = values.get(
        "objective", "multi_label" if has_columns else "classes"
    )
    if has_columns and objective != "multi_label":
        raise ValueError(
            f"label is a list of columns, which the objective {objective!r} "
            'does not have; wanted one column, or "multi_label".'
        )
    if has_columns and not labels:
        labels = [*map(str, label)]

    def build_table(key, label=label, id=None):
        return Table(
            values[key],
            tuple(text) if isinstance(text, list) else (text,),
            _order_columns(label, labels) if isinstance(label, list) else label,
            id,
            values.get("format") or tables.format_of(values[key]),
            has_header=values.get("has_header", True),
            delimiter=values.get("delimiter"),
        )

    dev, test = {}, {}
    if "dev" in values:
        dev[""] = build_table("dev")
    if "test" in values:
        test[name] = build_table("test", test_label, values.get("id"))
    return TableTask(
        name,
        train=build_table("train"),
        dev=dev,
        test=test,
        objective=objective,
        labels=tuple(labels) or None,
        metrics=tuple(
            values.get("metrics") or DEFAULT_METRICS.get(objective, ())
        ),
        dev_share=values.get("dev_share", 0.0 if dev else 0.1),
        label_separator=values.get("label_separator", ","),
        class_weight=values.get("class_weight"),
    )


def _order_columns(columns, labels):
    """Returns the column of each label; columns may have the labels' names."""
    if set(columns) == set(labels):
        return tuple(labels)
    if len(columns) != len(labels):
        raise ValueError(
            f"label lists {len(columns)} columns and labels {len(labels)} "
            "names; wanted one name for each column."
        )
    return tuple(columns)


def with_labels(task: TableTask, rows: list[Row]) -> TableTask:
    """Returns the task with the sorted labels of the given rows.

    Raises:
      ValueError: if there are fewer than two labels, or a row has none.
    """
    source = f"The training data of {task.name}"
    named = [_label_names(row, task, source) for row in rows]
    names = sorted({name for row_names in named for name in row_names})
    has_lists = max(map(len, named)) > 1
    is_multi = task.objective == "multi_label"
    if is_multi and has_lists and label_values.are_zero_or_one(names):
        raise ValueError(
            f"{source} has lists of the labels {names} only; wanted "
            "lists of names. If they are one-hot, a number for each label, "
            'give the names of the labels in order: "labels" (label_names).'
        )
    if is_multi and not has_lists:
        logging.warning(
            "%s: no row has several labels; labels are such as %s. Is the "
            "label_separator another one than %r?",
            source,
            names[:3],
            task.label_separator,
        )
    # 1 and 1.0, True and true, and names that look the same, are one.
    kept = {label_values.canonical(name): name for name in names[::-1]}
    if len(kept) < 2:
        raise ValueError(
            f"{source} has the labels {names}; wanted two or more. Is "
            "it the right column?"
        )
    return dataclasses.replace(task, labels=tuple(sorted(kept.values())))


def _label_names(row, task, source, known=frozenset()):
    """Returns the labels of a row as a list of strings.

    Those that are `known` are never missing.
    """
    where = f"{source}, line {row.line}"
    if task.objective == "multi_label":
        names = label_values.split(row.label, task.label_separator)
    elif isinstance(row.label, Iterable) and not isinstance(row.label, str):
        raise ValueError(
            f"{where}: label {row.label!r}; wanted one label. Is the objective "
            "multi_label?"
        )
    else:
        names = [label_values.name_of(row.label)]
    if any(label_values.is_missing(name, known) for name in names):
        raise ValueError(
            f"{where}: label {row.label!r}; wanted a label. If this is one, "
            f'name it in "labels" (label_names). {label_values.HINT}'
        )
    return names


def encode_labels(rows: list[Row], task: TableTask, path: filesystem.Path):
    """Encodes labels as arrays for the loss.

    Returns:
      [N] int32 for classes, [N] float32 for regression, [N, C] float32 of 0
      and 1 for multi_label.

    Raises:
      ValueError: if a label is unknown or not a number.
    """
    if task.objective == "regression":
        return np.array([_number(row, path) for row in rows], np.float32)
    known = label_values.Labels(task.labels or ())
    is_several = task.objective == "multi_label"
    encoded = np.zeros(len(rows), np.int32)
    if is_several:
        encoded = np.zeros((len(rows), len(known.names)), np.float32)
    own_names = frozenset(task.labels or ())
    for number, row in enumerate(rows):
        names = _label_names(row, task, path, own_names)
        if is_several:
            names = label_values.decode_one_hot(names, known)
        for name in names:
            index = known.find(name)
            if index is None:
                listed = filesystem.list_briefly(known.names, 50)
                raise ValueError(
                    f"{path}, line {row.line}: label {name!r}; known: {listed}."
                    f" Is it the right column? {label_values.HINT}"
                )
            if is_several:
                encoded[number, index] = 1
            else:
                encoded[number] = index
    return encoded


def find_class_weights(
    task: TableTask, label_ids: np.ndarray
) -> list[float] | None:
    """Returns the factor of each class in the training loss; None for 1.

    Args:
      task: a task with its labels, C.
      label_ids: labels of the N training examples, [N].

    Returns:
      C numbers. Balanced ones are N / (C * n) for a class of n examples, as in
      scikit-learn, so that their mean over the examples is 1; C does not count
      classes without examples.
    """
    labels = task.labels or ()
    if isinstance(task.class_weight, dict):
        known = label_values.Labels(labels)
        by_id = {
            known.find(label_values.name_of(name)): float(weight)
            for name, weight in task.class_weight.items()
        }
        return [by_id[i] for i in range(len(labels))]
    if task.class_weight is None:
        return None
    counts = np.bincount(label_ids, minlength=len(labels))
    shares = np.count_nonzero(counts) * counts / len(label_ids)
    return [1 / share if share else 0.0 for share in shares.tolist()]


def _number(row, path):
    value = label_values.number_of(row.label)
    if not abs(value) <= float(np.finfo(np.float32).max):
        raise ValueError(
            f"{path}, line {row.line}: label {row.label!r}; wanted a number "
            f"such as 1.5. Is it the right column? {label_values.HINT}"
        )
    return value


def split_rows(rows: list[Row], share: float) -> tuple[list[Row], list[Row]]:
    """Holds out a share of the rows, chosen by a hash of their text.

    The split does not depend on the order of rows, and rows with nearly equal
    texts, see `repeats.key_of`, are never separated.

    Returns:
      The training rows and the held-out rows.

    Raises:
      ValueError: if either would be empty.
    """
    keys = [repeats.key_of(row) for row in rows]
    # The first text of those that are nearly equal stands for all of them.
    texts: dict[str, str] = {}
    for key, row in zip(keys, rows, strict=True):
        text = f"{row.text_a}\t{row.text_b or ''}"
        texts[key] = min(text, texts.get(key, text))

    def is_held_out(key):
        digest = hashlib.sha256(texts[key].encode()).digest()
        return int.from_bytes(digest[:8], "big") < share * 2**64

    train: list[Row] = []
    held_out: list[Row] = []
    for key, row in zip(keys, rows, strict=True):
        (held_out if is_held_out(key) else train).append(row)
    if not train or not held_out:
        raise ValueError(
            f"dev_share={share} holds out {len(held_out)} of {len(rows)} rows; "
            "wanted rows in both parts. Is there too little training data?"
        )
    return train, held_out
