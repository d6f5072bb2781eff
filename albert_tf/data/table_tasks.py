"""Classification and regression tasks: GLUE's, and a user's own."""

import dataclasses
import difflib
import functools
import hashlib
import logging
import typing
from collections.abc import Iterable

import numpy as np

from albert_tf import filesystem
from albert_tf.data import label_values, submissions, tables
from albert_tf.data.tables import Row, Table
from albert_tf.metrics import classification

OBJECTIVES = tuple(classification.METRICS_OF)
DEFAULT_METRICS = classification.METRICS_OF | {"classes": ("eval_accuracy",)}
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
        """Yields rows of (field, whether it is valid, what is wanted)."""
        name = self.name
        known = classification.METRICS_OF.get(self.objective, ())
        yield from (
            (
                "name",
                name and not set(name) & set("/\0\t\r\n"),
                "part of a file name",
            ),
            (
                "name",
                f"{name}.tsv" not in _RESERVED_FILES,
                "another name; result files use this one",
            ),
            ("objective", known, f"one of {OBJECTIVES}"),
            (
                "metrics",
                self.metrics and set(self.metrics) <= set(known),
                f"some of {known}",
            ),
            (
                "metrics",
                self.metrics[:1] != ("MSE",),
                "another first metric: the checkpoint with its highest value "
                "is chosen",
            ),
            (
                "dev_share",
                0 <= self.dev_share < 1 and not (self.dev_share and self.dev),
                "a share of at least 0 and below 1, and 0 with a dev table",
            ),
            ("label_separator", self.label_separator, "at least one character"),
        )
        if self.labels is not None:
            yield from self._label_rules(self.labels)

    def _label_rules(self, labels):
        """Like `_rules`, of the labels if there are any."""
        return (
            ("labels", self.objective != "regression", "none for regression"),
            (
                "labels",
                len({*labels}) == len(labels) > 1,
                "two or more, all different",
            ),
            (
                "labels",
                all(x.splitlines() == [x] and "\t" not in x for x in labels),
                "names without tabs and line breaks, of a character or more",
            ),
            (
                "labels",
                self.objective != "multi_label"
                or not any(self.label_separator in x for x in labels),
                f"names without {self.label_separator!r}, the label_separator",
            ),
        )


# Column of the server's index in GLUE's test files.
_INDEX = 0
_table = functools.partial(Table, is_glue=True)


def _glue(name, folder, text, label, *, test_text=None, form=None, **kwargs):
    """Builds a GLUE task whose files share their columns except the label."""
    table = _table(f"{folder}/train.tsv", text, label, **form or {})
    return TableTask(
        name,
        train=table,
        dev={"": dataclasses.replace(table, file=f"{folder}/dev.tsv")},
        test={
            folder: _table(f"{folder}/test.tsv", test_text or text, id=_INDEX)
        },
        **kwargs,
    )


_BINARY = ("0", "1")
_PARAPHRASE = {"labels": _BINARY, "metrics": ("eval_accuracy", "f1")}
_ENTAILMENT = ("entailment", "not_entailment")
_MNLI = ("contradiction", "entailment", "neutral")


def _mnli(split, label=-1, id=None):
    return _table(f"MNLI/{split}.tsv", (8, 9), label, id)


_DIAGNOSTIC = {"AX": _table("diagnostic/diagnostic.tsv", (1, 2), id=_INDEX)}

# Source: classifier_utils.py, the processors; AX was not registered there.
GLUE = {
    task.name: task
    for task in (
        _glue(
            "cola",
            "CoLA",
            (3,),
            1,
            test_text=(1,),
            form={"has_header": False},
            labels=_BINARY,
            metrics=("matthew_corr", "eval_accuracy"),
        ),
        _glue("sst-2", "SST-2", (0,), 1, test_text=(1,), labels=_BINARY),
        _glue("mrpc", "MRPC", (3, 4), 0, **_PARAPHRASE),
        _glue(
            "sts-b",
            "STS-B",
            (7, 8),
            -1,
            objective="regression",
            metrics=DEFAULT_METRICS["regression"],
            bounds=(0.0, 5.0),
        ),
        _glue(
            "qqp",
            "QQP",
            (3, 4),
            5,
            test_text=(1, 2),
            form={"skips_short_rows": True},
            **_PARAPHRASE,
        ),
        TableTask(
            "mnli",
            train=_mnli("train"),
            dev={
                "": _mnli("dev_matched"),
                "mismatched": _mnli("dev_mismatched"),
            },
            test={
                "MNLI-m": _mnli("test_matched", None, _INDEX),
                "MNLI-mm": _mnli("test_mismatched", None, _INDEX),
                **_DIAGNOSTIC,
            },
            labels=_MNLI,
        ),
        TableTask(
            "mismnli",
            train=_mnli("train"),
            dev={"": _mnli("dev_mismatched")},
            test={"MNLI-mm": _mnli("test_mismatched", None, _INDEX)},
            labels=_MNLI,
        ),
        _glue("qnli", "QNLI", (1, 2), -1, labels=_ENTAILMENT),
        _glue("rte", "RTE", (1, 2), -1, labels=_ENTAILMENT),
        _glue("wnli", "WNLI", (1, 2), -1, labels=_BINARY),
        TableTask("ax", train=None, dev={}, test=_DIAGNOSTIC, labels=_MNLI),
    )
}

_STRING = (str, "a string")
_COLUMN = (str | int, "a name or a number")
_LABEL = (str | int | list, "a column, or a list of one column for each label")
# Keys of a task's file: type, and what an error says is wanted.
_KEYS = {
    "name": _STRING,
    "train": _STRING,
    "text": (str | int | list, "a column or a list of two"),
    "label": _LABEL,
    "dev": _STRING,
    "dev_share": (int | float, "a number"),
    "test": _STRING,
    "test_label": _LABEL,
    "format": _STRING,
    "delimiter": _STRING,
    "has_header": (bool, "true or false"),
    "id": _COLUMN,
    "objective": _STRING,
    "labels": (list, "a list of strings, numbers, true and false"),
    "label_separator": _STRING,
    "metrics": (list, "a list of strings"),
}
# Types of the items of list values.
_ITEMS = {
    "text": str | int,
    "label": str | int,
    "test_label": str | int,
    "labels": str | int | float | bool,
    "metrics": str,
}


def read_task_config(path: filesystem.Path) -> TableTask:
    """Reads the configuration of a user's own task.

    An example; only the first four keys are required:

        {
          "name": "film_reviews",
          "train": "train.tsv",          relative to data_dir
          "text": "text",                or two: ["question", "answer"]
          "label": "label",              a column's name, or its number from 0;
                                         -1: the last column; or a list of one
                                         column of 0 and 1 for each label
          "dev": "dev.tsv",              or "dev_share": 0.1 to hold out
                                         training rows (the default)
          "test": "test.tsv",            predicted, and scored if labelled
          "test_label": null,            its label column; null: no labels;
                                         default: same as "label"
          "format": "tsv",               or "csv", "jsonl"; default: by the
                                         file's ending, else "tsv"
          "delimiter": ";",              of fields that may be quoted; default:
                                         a comma in a CSV file
          "has_header": true,
          "id": null,                    the test file's id column; null: the
                                         row number
          "objective": "classes",        or "regression", "multi_label"
          "labels": ["0", "1"],          default: those of the training data
          "label_separator": ",",        between the labels of a row
          "metrics": ["eval_accuracy"]   the first selects the checkpoint
        }

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


def _check_keys(path, values):
    for key, value in values.items():
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"{path}: unknown key {key!r}; known: {', '.join(_KEYS)}.{hint}"
            )
        kind, wanted = _KEYS[key]
        items = value if isinstance(value, list) else []
        if not _is_of(value, kind | None) or not all(
            _is_of(item, _ITEMS[key]) for item in items
        ):
            raise ValueError(
                f"{path}: {key} is {value!r:.80}; wanted {wanted}."
            )
    required = ("name", "train", "text", "label")
    missing = [key for key in required if values.get(key) is None]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}.")


def _is_of(value, kind):
    """Returns whether a value has a type; a bool is not a number here."""
    is_allowed = bool in typing.get_args(kind) or not isinstance(value, bool)
    return isinstance(value, kind) and is_allowed


def _build_task(values):
    test_label = values.get("test_label", values["label"])
    values = {key: value for key, value in values.items() if value is not None}

    def given(*keys):
        return {key: values[key] for key in keys if key in values}

    columns = values["text"]
    names = [*map(label_values.name_of, values.get("labels", ()))]
    objective = values.get("objective", "classes")
    if isinstance(values["label"], list):
        objective = values.setdefault("objective", "multi_label")
        if objective != "multi_label":
            raise ValueError(
                f"label is a list of columns, which the objective {objective!r}"
                ' does not have; wanted one column, or "multi_label".'
            )
        names = names or [str(column) for column in values["label"]]

    def build_table(file, label, **kwargs):
        return Table(
            file,
            tuple(columns) if isinstance(columns, list) else (columns,),
            tuple(label) if isinstance(label, list) else label,
            format=values.get("format") or tables.format_of(file),
            label_names=_names_of_columns(label, names),
            **given("has_header", "delimiter"),
            **kwargs,
        )

    table = build_table(values["train"], values["label"])
    dev, test = {}, {}
    if "dev" in values:
        dev[""] = build_table(values["dev"], values["label"])
    if "test" in values:
        test[values["name"]] = build_table(
            values["test"], test_label, id=values.get("id")
        )
    metrics = values.get("metrics") or DEFAULT_METRICS.get(objective, ())
    return TableTask(
        values["name"],
        train=table,
        dev=dev,
        test=test,
        labels=tuple(names) or None,
        metrics=tuple(metrics),
        dev_share=values.get("dev_share", 0.0 if dev else 0.1),
        **given("objective", "label_separator"),
    )


def _names_of_columns(label, names):
    """Returns the label of each column, if there is one for each label."""
    if not isinstance(label, list):
        return None
    if set(label) == set(names):
        return tuple(label)
    if len(label) != len(names):
        raise ValueError(
            f"label lists {len(label)} columns and labels {len(names)} names; "
            "wanted one name for each column."
        )
    return tuple(names)


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
    # 1 and 1.0, or True and true, are the same.
    kept = {label_values.canonical(name): name for name in names[::-1]}
    if len(kept) < 2:
        raise ValueError(
            f"{source} has the labels {names}; wanted two or more. Is "
            "it the right column?"
        )
    return dataclasses.replace(task, labels=tuple(sorted(kept.values())))


def _label_names(row, task, source):
    """Returns the labels of a row as a list of strings."""
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
    if any(label_values.is_missing(name, task.labels) for name in names):
        raise ValueError(
            f"{where}: label {row.label!r}; wanted a label. If this is one, "
            f'name it in "labels". {label_values.HINT}'
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
    encoded = np.zeros((len(rows), len(known.names)), np.float32)
    for number, row in enumerate(rows):
        names = _label_names(row, task, path)
        if task.objective == "multi_label":
            names = label_values.decode_one_hot(names, known)
        for name in names:
            index = known.find(name)
            if index is None:
                raise ValueError(
                    f"{path}, line {row.line}: label {name!r}; known: "
                    f"{', '.join(known.names)}. Is it the right column? "
                    + label_values.HINT
                )
            encoded[number, index] = 1
    if task.objective == "multi_label":
        return encoded
    return encoded.argmax(axis=1).astype(np.int32)


def _number(row, path):
    try:
        value = float(row.label)
    except (TypeError, ValueError):
        value = float("nan")
    if not abs(value) <= float(np.finfo(np.float32).max):
        raise ValueError(
            f"{path}, line {row.line}: label {row.label!r}; wanted a number "
            f"such as 1.5. Is it the right column? {label_values.HINT}"
        )
    return value


def split_rows(rows: list[Row], share: float) -> tuple[list[Row], list[Row]]:
    """Holds out a share of the rows, chosen by a hash of their text.

    The split does not depend on the order of rows, and rows with equal texts
    are never separated.

    Returns:
      The training rows and the held-out rows.

    Raises:
      ValueError: if either would be empty.
    """

    def is_held_out(row):
        text = f"{row.text_a}\t{row.text_b or ''}".encode()
        digest = hashlib.sha256(text).digest()
        return int.from_bytes(digest[:8], "big") < share * 2**64

    train = [row for row in rows if not is_held_out(row)]
    held_out = [row for row in rows if is_held_out(row)]
    if not train or not held_out:
        raise ValueError(
            f"dev_share={share} holds out {len(held_out)} of {len(rows)} rows; "
            "wanted rows in both parts. Is there too little training data?"
        )
    return train, held_out
