"""Reads and encodes tables of text for classification: train, dev and test.

Shapes: N examples.
"""

import dataclasses
import functools
import logging
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from albert_tf import filesystem
from albert_tf.data import examples, label_values, repeats, table_tasks, tables
from albert_tf.text import tokenization


class Split(NamedTuple):
    """The encoded rows of a table.

    Attributes:
      ids: N row ids, strings.
      examples: an `examples.Examples`, with `label_ids` if there are labels.
      texts: one or two texts of each row; empty for training data.
    """

    ids: list[str]
    examples: examples.Examples
    texts: Sequence[tuple[str, ...]] = ()


class Data(NamedTuple):
    """The requested splits of a task.

    Attributes:
      train: a Split, or None.
      dev: dict from a suffix of result names to Split.
      test: dict from the name of a submission to Split.
    """

    train: Split | None
    dev: dict[str, Split]
    test: dict[str, Split]


def read_data(
    data_dir: filesystem.Path,
    task: table_tasks.TableTask,
    tokenizer: tokenization.Tokenizer,
    max_seq_length: int,
    *,
    with_train: bool,
    with_dev: bool,
    with_test: bool,
    cached_dir: filesystem.Path | None = None,
) -> tuple[table_tasks.TableTask, Data]:
    """Reads and encodes a task's tables.

    Sequences of more than `max_seq_length` tokens are truncated. `cached_dir`
    is the folder of the cache of encoded data, or None.

    Returns:
      The task, with labels from the training data if it defines none, and
      Data.

    Raises:
      FileNotFoundError: if a table is missing; of several dev or test tables,
        only the first is required.
      ValueError: if a row or a label does not match the task.
    """
    train, dev, test = None, {}, {}
    is_own = task.train is None or not task.train.is_glue
    has_labels = task.labels is not None or task.objective == "regression"
    if with_train or not has_labels or (with_dev and task.dev_share):
        path, table, rows = _read_tables(data_dir, {"": task.train})[""]
        if not has_labels:
            task = table_tasks.with_labels(task, rows)
        if task.dev_share:
            rows, held_out = table_tasks.split_rows(rows, task.dev_share)
            dev = {"": (path, table, held_out)}
            logging.warning(
                "%s: %d of %d rows are held out to evaluate.",
                path,
                len(held_out),
                len(rows) + len(held_out),
            )
        train = path, table, rows
    if with_dev and not task.dev_share:
        dev = _read_tables(data_dir, task.dev)
    if with_test:
        test = _read_tables(data_dir, task.test)
    if is_own:
        _warn_of_unread(data_dir, task)
    if train and with_train:
        _warn_of_repeats(task, train, [*dev.values(), *test.values()])
    encode = functools.partial(
        _encode, task, tokenizer, max_seq_length, cached_dir
    )
    return task, Data(
        # Without the texts, which would stay in memory during training.
        encode(*train)._replace(texts=()) if train and with_train else None,
        {n: encode(*table) for n, table in dev.items()} if with_dev else {},
        {n: encode(*table) for n, table in test.items()},
    )


def _warn_of_unread(data_dir, task):
    """Warns of tables in the folder that the task does not name."""
    known = {
        os.path.normpath(os.path.join(data_dir, table.file))
        for table in task.tables
    }
    unread = [
        name
        for name in filesystem.list_folder(data_dir)
        if name.endswith((".tsv", ".csv", ".jsonl"))
        and not name.startswith(".")
        and os.path.normpath(os.path.join(data_dir, name)) not in known
    ]
    if unread:
        logging.warning(
            "The task %r does not use %s of %s.",
            task.name,
            filesystem.list_briefly(unread),
            data_dir,
        )


def _warn_of_repeats(task, train, others):
    """Warns of texts with several labels, and of those in other data, too.

    `train` and `others` are a path, its Table and its rows.
    """
    path, _, rows = train
    said = []
    keys = [repeats.key_of(row) for row in rows]
    if task.objective == "classes":
        said.append((path, repeats.describe_conflicts(rows, keys)))
    known = set(keys)
    said += [
        (other, repeats.describe_overlap(other_rows, known))
        for other, _, other_rows in others
    ]
    for name, sentence in said:
        if sentence:
            logging.warning("%s: %s", name, sentence)


def encode_texts(
    tokenizer,
    train: tuple[Sequence, Sequence],
    dev: tuple[Sequence, Sequence] | None = None,
    *,
    max_seq_length: int,
    objective: str = "classes",
    label_names: Sequence[str] | None = None,
) -> tuple[table_tasks.TableTask, Data]:
    """Encodes texts and labels in memory, instead of tables.

    `train` and `dev`, which is held out, have N texts, or N pairs of texts, and
    N labels. `label_names` are the labels in order, None for those of the
    training data. Sequences of more than `max_seq_length` tokens are truncated.

    Returns:
      A task with its labels, and Data.

    Raises:
      ValueError: if the numbers of texts and labels differ.
    """
    rows = make_rows(*train)
    if label_names is not None:
        label_names = tuple(map(label_values.name_of, label_names))
    has_pairs = any(row.text_b is not None for row in rows)
    columns = ("text_a", "text_b")[: 1 + has_pairs]
    task = table_tasks.TableTask(
        "texts",
        train=tables.Table("texts", columns, "label"),
        dev={},
        test={},
        objective=objective,
        labels=label_names or None,
        metrics=table_tasks.DEFAULT_METRICS.get(objective, ()),
    )
    if objective != "regression" and not label_names:
        task = table_tasks.with_labels(task, rows)
    encode = functools.partial(
        _encode, task, tokenizer, max_seq_length, None, "texts", task.train
    )
    return task, Data(
        encode(rows), {"": encode(make_rows(*dev))} if dev else {}, {}
    )


def make_rows(
    texts: Iterable, labels: Sequence | None = None
) -> list[tables.Row]:
    """Converts texts (or pairs of texts) into table rows.

    They have `labels`, or none if these are None.

    Raises:
      ValueError: if one is neither a text nor a pair, or there are labels of
        another number, or of no texts.
    """
    texts = list_texts(texts)
    if labels is None:
        labels = [None] * len(texts)
    else:
        labels = list_texts(labels, "labels")
        if len(texts) != len(labels) or not texts:
            raise ValueError(
                f"{len(texts)} texts and {len(labels)} labels; wanted one "
                "label for each text, and at least one text."
            )
    rows = []
    for i, (text, label) in enumerate(zip(texts, labels, strict=True)):
        parts = split_pair(text)
        if not parts:
            raise ValueError(
                f"texts[{i}] is {text!r:.80}; wanted a text or a pair of texts."
            )
        rows.append(tables.Row(str(i), *parts, label, i + 1))
    return rows


def list_texts(texts: Iterable, name: str = "texts") -> list:
    """Returns a list of what a caller gives as texts, in any iterable.

    `name` is that of the argument.

    Raises:
      ValueError: if it is one text, has names instead of texts, as a dict or a
        table has, or no order, as a set.
    """
    is_other = isinstance(texts, str | Mapping | Set)
    if is_other or hasattr(texts, "columns") or not isinstance(texts, Iterable):
        raise ValueError(
            f"The {name} are {texts!r:.80}; wanted a list, or one column of a "
            "table (of several, their array of values)."
        )
    return list(texts)


def split_pair(text) -> tuple[str, str | None] | None:
    """Returns the two texts of a pair, or a text and None.

    What is neither gives None; so do a dict and a set, which have no order.
    """
    if isinstance(text, str):
        return text, None
    if not isinstance(text, Iterable) or isinstance(text, Mapping | Set):
        return None
    parts = tuple(text)
    if len(parts) != 2 or not all(isinstance(part, str) for part in parts):
        return None
    return parts


def _read_tables(data_dir, named_tables):
    """Reads tables that exist into a dict of name -> (path, table, rows)."""
    loaded = {}
    for name, table in named_tables.items():
        path = os.path.join(data_dir, table.file)
        try:
            loaded[name] = path, table, tables.read_table(path, table)
        except FileNotFoundError:
            if not loaded:
                raise
            logging.warning("%s does not exist; it is skipped.", path)
    return loaded


def _encode(task, tokenizer, max_seq_length, cached_dir, path, table, rows):
    """Encodes rows as a Split."""
    arrays = {}
    if table.label is not None:
        arrays["label_ids"] = table_tasks.encode_labels(rows, task, path)
    texts_a = [row.text_a for row in rows]
    texts_b = [row.text_b for row in rows]

    def build():
        packed = examples.pack_pairs(
            tokenizer, texts_a, texts_b, max_seq_length
        )
        return dataclasses.replace(packed, arrays=arrays)

    labels = {name: values.tolist() for name, values in arrays.items()}
    encoded = examples.cached_examples(
        cached_dir,
        f"{task.name}-{os.path.basename(path)}",
        [texts_a, texts_b, labels, tokenizer.settings, max_seq_length],
        build,
    )
    texts = [
        (row.text_a,) if row.text_b is None else (row.text_a, row.text_b)
        for row in rows
    ]
    return Split([row.id for row in rows], encoded, texts)
