"""Fine-tunes every GLUE task found in a folder, each with its own recipe."""

import os
import shlex

from albert_tf import filesystem, ownership
from albert_tf.data import submissions, table_tasks
from albert_tf.programs import subprograms

# Command line of run_classifier, without flags.
CLASSIFIER = (*subprograms.ALBERT, "run_classifier")
# The release's mismnli is part of mnli here, and ax has no training data.
TASKS = [name for name in table_tasks.GLUE if name not in ("mismnli", "ax")]


def find_tasks(data_dir, names=""):
    """Returns the tasks with training data in a folder, or those of `names`."""
    present = [
        name
        for name in TASKS
        if (table := table_tasks.GLUE[name].train)
        and filesystem.exists(os.path.join(data_dir, table.file))
    ]
    wanted = [name.lower() for name in filesystem.split_list(names)]
    missing = [name for name in wanted if name not in present]
    if missing or not present:
        raise ValueError(
            f"{data_dir} has training data for {present or 'no task'}"
            + (f", but not for {missing}" if missing else "")
            + f"; known tasks: {TASKS}. It must contain files such as "
            "CoLA/train.tsv."
        )
    return wanted or present


def split_flags(text):
    """Splits --extra_flags into words like a shell."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ValueError(
            f"--extra_flags={text!r:.200}: {error}. Is a quotation mark "
            "missing?"
        ) from None


def build_command(args, name, classifier):
    """Returns the command line of one task, with `extra_flags` last."""
    command = [
        *classifier,
        f"--flagfile={os.path.join(args.recipes, name)}.flags",
        f"--task_name={name}",
        f"--data_dir={args.data_dir}",
        f"--output_dir={os.path.join(args.output_dir, name)}",
        "--do_train",
        "--do_eval",
    ]
    test_table = next(iter(table_tasks.GLUE[name].test.values()))
    if filesystem.exists(os.path.join(args.data_dir, test_table.file)):
        command.append("--do_predict")
    if args.init_checkpoint:
        command.append(f"--init_checkpoint={args.init_checkpoint}")
    return command + split_flags(args.extra_flags)


def run_task(args, name, classifier, place):
    """Runs one task; returns its summary, or None if it failed.

    `place` is shown, such as "2 of 8".
    """
    command = build_command(args, name, classifier)
    print(f"\nTask {place}, {name}: {shlex.join(command)}", flush=True)
    status = subprograms.run_program(command)
    path = os.path.join(args.output_dir, name, submissions.SUMMARY_FILE)
    # There is none if the extra flags switch --do_eval off.
    if status or not filesystem.exists(path):
        return None
    summary = filesystem.read_json(path)
    return summary if summary.get("baseline") else None


def format_table(summaries):
    """Formats the summary of each task, None if it failed, as a table."""
    lines = [
        f"{'task':8}{'metric':16}{'last':>9}{'best':>9}{'baseline':>10}"
        f"{'minutes':>9}"
    ]
    for name, summary in summaries.items():
        if summary is None:
            lines.append(f"{name:8}failed; see above")
            continue
        metric = summary["metric"]
        values = (summary[k][metric] for k in ("last", "best", "baseline"))
        last, best, baseline = (100 * value for value in values)
        lines.append(
            f"{name:8}{metric:16}{last:9.1f}{best:9.1f}{baseline:10.1f}"
            f"{summary['seconds'] / 60:9.1f}"
        )
    done = [summary for summary in summaries.values() if summary]
    if done:
        mean = sum(100 * f["best"][f["metric"]] for f in done) / len(done)
        lines.append(
            f"Mean of the best scores of {len(done)} tasks: {mean:.1f}. All "
            "scores are on dev data, which also selected the best checkpoints. "
            "Minutes are of each task's last call."
        )
    return "\n".join(lines)


def run(args, classifier=CLASSIFIER):
    """Runs the tasks one after another; ValueError at the end if one failed.

    `classifier` is the command line of the classifier, without flags.
    """
    names = find_tasks(args.data_dir, args.tasks)
    split_flags(args.extra_flags)
    for name in names:
        recipe = f"{os.path.join(args.recipes, name)}.flags"
        if not os.path.isfile(recipe):
            raise ValueError(
                f"There is no {recipe}; wanted one recipe per task in the "
                f"local folder --recipes={args.recipes}."
            )
    with ownership.owning_folder(args.output_dir):
        summaries = {
            name: run_task(args, name, classifier, f"{i} of {len(names)}")
            for i, name in enumerate(names, 1)
        }
    print("\n" + format_table(summaries))
    failed = [name for name, summary in summaries.items() if summary is None]
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(names)} tasks failed: {failed}"
        )
