"""Fine-tunes and evaluates ALBERT on GLUE, or on any table of text."""

import dataclasses
import os

from albert_tf import filesystem, settings
from albert_tf.data import submissions, table_tasks, text_data
from albert_tf.programs import finetuning
from albert_tf.tasks.classification import Classification
from albert_tf.tasks.recipes import ExitSettings


def find_task(args):
    """Returns the `table_tasks.TableTask` given by the flags.

    Raises:
      ValueError: if it lacks a table that the flags require.
    """
    task = table_tasks.choose_task(args.task_name, args.task_config)
    for name, is_wanted, table in (
        ("do_train", args.do_train, task.train),
        ("do_eval", args.do_eval, task.dev or task.dev_share),
        ("do_predict", args.do_predict, task.test),
    ):
        if is_wanted and not table:
            raise ValueError(f"--{name}: {task.name} has no data for it.")
    return task


def check_outputs(args, task):
    """Raises ValueError if predictions would overwrite the task's data."""
    names = [f"{name}.tsv" for name in task.test]
    names += [submissions.TEST_RESULTS_FILE, submissions.SUBMISSION_FILE]
    tables = [os.path.join(args.data_dir, table.file) for table in task.tables]
    finetuning.check_outputs(args, names, {"--data_dir": tables})


def read_task(args, model):
    """Returns the `Classification` with the data that the flags require."""
    task = find_task(args)
    check_outputs(args, task)
    head, table = model.head, task.train and task.train.file
    # A table's labels are those of its training data, which may be absent.
    is_absent = not table or not filesystem.exists(
        os.path.join(args.data_dir, table)
    )
    if is_absent and head and head.kind == task.objective:
        task = dataclasses.replace(task, labels=task.labels or head.labels)
    task, data = text_data.read_data(
        args.data_dir,
        task,
        model.tokenizer,
        args.max_seq_length,
        with_train=args.do_train,
        with_dev=args.do_eval,
        with_test=args.do_predict,
        cached_dir=args.cached_dir,
    )
    return Classification(
        task,
        data,
        max_seq_length=args.max_seq_length,
        threshold=args.threshold_to_export,
        exits=settings.take(ExitSettings, args),
    )


def run(args):
    """Trains, evaluates, predicts and exports as requested by the flags."""
    finetuning.run(args, read_task)
