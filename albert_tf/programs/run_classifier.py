"""Fine-tunes and scores ALBERT on GLUE, or on any table of text.

python run_classifier.py --flagfile=configs/glue/mrpc.flags \
    --data_dir=glue --init_checkpoint=albert_base.tar.gz --output_dir=out \
    --do_train --do_eval --do_predict
"""

import dataclasses
import functools
import os

from albert_tf import flags, ownership
from albert_tf.data import classification as data_reader
from albert_tf.data import submissions, table_tasks
from albert_tf.export import serving
from albert_tf.flags import flag
from albert_tf.metrics import classification
from albert_tf.model import heads
from albert_tf.programs import finetuning, shared_flags, tasks
from albert_tf.training import manifest


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierFlags(shared_flags.FineTuningFlags):
    """The release's flags; what is ours stands last."""

    data_dir: str = flag(
        required=True, help="Folder with a folder for each task."
    )
    task_name: str | None = flag(help=f"One of {', '.join(table_tasks.GLUE)}.")
    output_dir: str = flag(required=True)
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
    finetuning.check_flags(args)


def read_task(args):
    """Returns the `tasks.Task` that flags name.

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


def score(task, data, baseline, run):
    """Returns what a run's model, as it stands, gets on the dev data."""
    values = {}
    for part, split in data.dev.items():
        logits = run.predict(split.examples)["logits"]
        label_ids = split.examples.arrays["label_ids"]
        found = classification.score(
            logits, label_ids, task.objective, task.metrics
        )
        tasks.warn_of_collapse(
            run, logits, label_ids, task.objective, found, baseline
        )
        prefix = f"{part}_" if part else ""
        values |= {f"{prefix}{n}": value for n, value in found.items()}
    return values


def score_baseline(task, data):
    """Returns what the best guess without looking gets on the dev data."""
    values = {}
    for part, split in data.dev.items():
        label_ids = split.examples.arrays["label_ids"]
        known = label_ids
        if data.train:
            known = data.train.examples.arrays["label_ids"]
        found = classification.baseline(
            known, label_ids, task.objective, task.metrics
        )
        prefix = f"{part}_" if part else ""
        values |= {f"{prefix}{n}": value for n, value in found.items()}
    return values


def write_predictions(task, data, run):
    """Writes predictions of the test data; returns scores where it has labels.

    The release's names go to the first table; the names that the GLUE server
    takes to all.
    """
    scores = {}
    for number, (name, split) in enumerate(data.test.items()):
        logits = run.predict(split.examples)["logits"]
        labels = classification.predict_labels(logits, task.objective)
        predictions = submissions.format_predictions(
            labels, task.labels, task.objective, task.bounds
        )
        paths = [os.path.join(run.folder, f"{name}.tsv")]
        if number == 0:
            submissions.write_test_results(
                os.path.join(run.folder, "test_results.tsv"),
                classification.probabilities(logits, task.objective),
            )
            paths.append(os.path.join(run.folder, "submit_results.tsv"))
        for path in paths:
            submissions.write_submission(path, split.ids, predictions)
        run.reporter.say(f"{len(predictions)} predictions: {paths[0]}")
        if "label_ids" in split.examples.arrays:
            scores[name] = classification.score(
                logits,
                split.examples.arrays["label_ids"],
                task.objective,
                task.metrics,
            )
            run.reporter.say(f"{name}: {scores[name]}")
    return scores


def build_exports(args, task, tokenizer, text_export):
    """Returns the functions that write what --export_* ask for."""
    common = {"labels": task.labels, "threshold": args.threshold_to_export}
    exports = []
    if args.export_dir:
        exports.append(
            functools.partial(
                tasks.export_model,
                serving.export_classifier,
                folder=args.export_dir,
                **common,
            )
        )
    if args.export_text_dir:
        tables = [task.train, *task.dev.values(), *task.test.values()]
        table = next(table for table in tables if table)
        exports.append(
            functools.partial(
                tasks.export_model,
                text_export.export_text_classifier,
                folder=args.export_text_dir,
                tokenizer=tokenizer,
                has_pairs=len(table.text) == 2,
                **common,
            )
        )
    return tuple(exports)


def describe(task, data):
    """Returns what a manifest says of the task and its data."""
    splits = {
        "train": [data.train] if data.train else [],
        "dev": [*data.dev.values()],
        "test": [*data.test.values()],
    }
    return {
        "task": {
            "name": task.name,
            "objective": task.objective,
            "labels": task.labels,
            "metrics": task.metrics,
        },
        "data": {
            part: {
                str(number): manifest.describe_examples(split.examples)
                for number, split in enumerate(found)
            }
            for part, found in splits.items()
            if found
        },
    }


def run(args):
    """Trains, evaluates, predicts and exports as the flags say."""
    check_flags(args)
    with ownership.owning_folder(args.output_dir):
        run_task(args)


def run_task(args):
    """Does what `run` does, in a folder that nobody else writes to."""
    text_export = None
    if args.export_text_dir:
        text_export = tasks.import_text_export("--export_text_dir")
    start = finetuning.read_start(args)
    if text_export:
        text_export.text_graph.check_tokenizer(start[0].tokenizer)
    task, data = data_reader.read_data(
        args.data_dir,
        read_task(args),
        start[0].tokenizer,
        args.max_seq_length,
        with_train=args.do_train,
        with_dev=args.do_eval,
        with_test=args.do_predict,
        cached_dir=args.cached_dir,
    )
    baseline = score_baseline(task, data)
    train = data.train.examples if args.do_train else None
    exports = build_exports(args, task, start[0].tokenizer, text_export)
    program = tasks.Task(
        name=task.name,
        build_model=functools.partial(
            heads.AlbertClassifier,
            num_labels=len(task.labels or [""]),
            objective=task.objective,
            dropout_prob=args.classifier_dropout,
        ),
        train=train,
        num_train=len(train or ()),
        score=functools.partial(score, task, data, baseline)
        if args.do_eval
        else None,
        best_metric=task.metrics[0],
        baseline=baseline,
        predict=functools.partial(write_predictions, task, data)
        if args.do_predict
        else None,
        exports=exports,
        made_of=describe(task, data),
    )
    tasks.run_task(args, program, start)


def main():
    """The command."""
    flags.launch(run, ClassifierFlags)
