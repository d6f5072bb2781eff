"""Fine-tunes and scores ALBERT on GLUE, or on any table of text.

python run_classifier.py --flagfile=configs/glue/mrpc.flags \
    --data_dir=glue --init_checkpoint=albert_base.tar.gz --output_dir=out \
    --do_train --do_eval --do_predict
"""

import dataclasses

from albert_tf import flags
from albert_tf.data import classification as text_data
from albert_tf.data import table_tasks
from albert_tf.flags import flag
from albert_tf.programs import finetuning, shared_flags
from albert_tf.tasks.classification import Classification


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierFlags(shared_flags.FineTuningFlags):
    """The release's flags; what is ours stands last."""

    data_dir: str = flag(
        required=True, help="Folder with a folder for each task."
    )
    task_name: str | None = flag(help=f"One of {', '.join(table_tasks.GLUE)}.")
    do_eval: bool = flag(
        False,
        "Whether to evaluate on the dev data: at every checkpoint; without "
        "--do_train every checkpoint that is there.",
    )
    export_dir: str | None = flag(
        help="Where a SavedModel of the best checkpoint goes."
    )
    export_text_dir: str | None = flag(
        help="Where a SavedModel that takes text goes; it needs "
        "tensorflow-text here and where it is loaded."
    )
    threshold_to_export: float | None = flag(
        help="A number that the SavedModel gives out as `threshold`.",
        at_least=-1e9,
        at_most=1e9,
    )
    task_config: str | None = flag(
        help="JSON file that describes a table of text, instead of "
        "--task_name; see docs/tasks.md."
    )


def check_flags(args):
    """Refuses what cannot work before anything is loaded."""
    if not (args.do_train or args.do_eval or args.do_predict):
        raise ValueError(
            "Give --do_train, --do_eval or --do_predict: nothing to do."
        )
    if bool(args.task_name) == bool(args.task_config):
        raise ValueError("Give either --task_name or --task_config.")
    if args.task_name and args.task_name.lower() not in table_tasks.GLUE:
        raise ValueError(
            f"--task_name={args.task_name}; known: "
            f"{', '.join(table_tasks.GLUE)}. "
            "Describe your own data with --task_config."
        )


def find_task(args):
    """Returns the `table_tasks.TableTask` that flags name.

    Raises:
      ValueError: if it lacks a table that flags ask for.
    """
    if args.task_config:
        task = table_tasks.read_task_config(args.task_config)
    else:
        task = table_tasks.GLUE[args.task_name.lower()]
    for name, is_wanted, table in (
        ("do_train", args.do_train, task.train),
        ("do_eval", args.do_eval, task.dev or task.dev_share),
        ("do_predict", args.do_predict, task.test),
    ):
        if is_wanted and not table:
            raise ValueError(f"--{name}: {task.name} has no data for that.")
    return task


def read_task(args, tokenizer):
    """Returns the `Classification` with the data that flags ask for."""
    task, data = text_data.read_data(
        args.data_dir,
        find_task(args),
        tokenizer,
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
        dropout=args.classifier_dropout,
        threshold=args.threshold_to_export,
    )


def run(args):
    """Trains, evaluates, predicts and exports as the flags say."""
    check_flags(args)
    finetuning.run(args, read_task)


def main():
    """The command."""
    flags.launch(run, ClassifierFlags)
