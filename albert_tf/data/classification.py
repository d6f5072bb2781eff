"""Tables of text as the classifier reads them: train, dev and test.

Shapes: N examples.
"""

import functools
import logging
import os
from typing import NamedTuple

from albert_tf.data import examples, table_tasks, tables


class Split(NamedTuple):
    """Some rows as the model reads them.

    Attributes:
      ids: of the rows, N strings.
      examples: an `examples.Examples`; with `label_ids` where there are labels.
    """

    ids: list
    examples: examples.Examples


class Data(NamedTuple):
    """What was asked for.

    Attributes:
      train: a Split, or None.
      dev: dict from a part of its results' names to Split.
      test: dict from the name of a submission to Split.
    """

    train: Split | None
    dev: dict
    test: dict


def read_data(
    data_dir,
    task,
    tokenizer,
    max_seq_length,
    *,
    with_train,
    with_dev,
    with_test,
    cached_dir=None,
):
    """Reads and encodes a task's tables.

    Args:
      data_dir: folder that the tables' files are in.
      task: a `table_tasks.TableTask`.
      tokenizer: the model's.
      max_seq_length: tokens of a sequence; longer ones are cut.
      with_train: whether training data is wanted.
      with_dev: whether dev data is.
      with_test: whether test data is.
      cached_dir: where encoded data is kept, or None.

    Returns:
      The task, with its labels where these stand in the training data alone,
      and Data.

    Raises:
      FileNotFoundError: if a table is absent; of several dev or test tables
        only the first must be there.
      ValueError: if a row or a label is not as the task says.
    """
    train, dev, test = {}, {}, {}
    has_labels = task.labels is not None or task.objective == "regression"
    if with_train or not has_labels or (with_dev and task.dev_share):
        train = _read_tables(data_dir, {"": task.train})
        path, table, rows = train[""]
        if not has_labels:
            task = table_tasks.with_labels(task, rows)
        if task.dev_share:
            rows, held_out = table_tasks.split_rows(rows, task.dev_share)
            train, dev = (
                {"": (path, table, rows)},
                {"": (path, table, held_out)},
            )
    if with_dev and not task.dev_share:
        dev = _read_tables(data_dir, task.dev)
    if with_test:
        test = _read_tables(data_dir, task.test)
    encode = functools.partial(
        _encode, task, tokenizer, max_seq_length, cached_dir
    )
    train, dev, test = (
        {name: encode(*found) for name, found in part.items() if is_wanted}
        for part, is_wanted in (
            (train, with_train),
            (dev, with_dev),
            (test, with_test),
        )
    )
    return task, Data(train.get(""), dev, test)


def _read_tables(data_dir, named_tables):
    """The tables that are there: dict of name -> (path, table, rows)."""
    found = {}
    for name, table in named_tables.items():
        path = os.path.join(data_dir, table.file)
        try:
            found[name] = path, table, tables.read_table(path, table)
        except FileNotFoundError:
            if not found:
                raise
            logging.warning("There is no %s; it is left out.", path)
    return found


def _encode(task, tokenizer, max_seq_length, cached_dir, path, table, rows):
    """The Split of some rows."""
    arrays = {}
    if table.label is not None:
        arrays["label_ids"] = table_tasks.encode_labels(rows, task, path)
    texts_a = [row.text_a for row in rows]
    texts_b = [row.text_b for row in rows]

    def build():
        sequences = examples.pack_pairs(
            tokenizer, texts_a, texts_b, max_seq_length
        )
        return examples.Examples(*sequences, arrays)

    key = examples.cache_key(
        texts_a,
        texts_b,
        {name: values.tolist() for name, values in arrays.items()},
        tokenizer.settings,
        max_seq_length,
    )
    name = f"{task.name}-{os.path.basename(path)}"
    encoded = examples.cached_examples(cached_dir, name, key, build)
    return Split([row.id for row in rows], encoded)
