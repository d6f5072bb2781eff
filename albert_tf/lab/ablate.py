"""Trains a grid of models that differ in one thing each, and compares them."""

import contextlib
import dataclasses
import os
import time

import tensorflow as tf

from albert_tf import commands, filesystem, flags, settings
from albert_tf.lab import ablation_page, grid_jobs, grid_reports, grids
from albert_tf.text import tokenization
from albert_tf.weights import vocabulary_files

# Seconds between two attempts to do the jobs that other processes have locked.
WAIT = 10
# Command -> values for the flags that are required.
REQUIRED = {
    "create_pretraining_data": {"input_file": "x", "output_file": "x"},
    "run_pretraining": {
        "albert_config_file": "x",
        "input_file": "x",
        "output_dir": "x",
    },
    "run_classifier": {"data_dir": "x", "output_dir": "x", "do_train": True},
}


def run(args):
    """Does the jobs of the chosen rows and seeds; writes all results."""
    # This process only scores; it would keep the memory that trainings need.
    with contextlib.suppress(RuntimeError):  # TensorFlow has begun.
        tf.config.set_visible_devices([], "GPU")
    grid = grids.read_grid(args.grid)
    check_flags(grid)
    check_casing(grid, args.spm_model_file or args.vocab_file)
    check_texts(args.train_text, args.heldout_text)
    tasks = parse_tasks(args.task_data, grid, args.output_dir)
    grid = dataclasses.replace(grid, tasks=tasks)
    names = flags.parse_names("only", args.only, [r.name for r in grid.rows])
    rows = [row for row in grid.rows if row.name in names]
    seeds = list(grid.seeds)
    if args.seeds:
        limits = {"at_least": 0, "at_most": settings.MAX_SEED}
        seeds = flags.parse_numbers("seeds", args.seeds, **limits)
    runner = grid_jobs.GridRunner(grid, args)
    path = os.path.join(args.output_dir, os.path.basename(args.grid))
    others = filesystem.split_list(args.other_results)
    filesystem.check_outputs(
        {"--output_dir": [path]},
        {"--grid": [args.grid], "--other_results": others},
    )
    reports = [grid_reports.read_report(other, grid) for other in others]
    failures: list[str] = []
    table = report(runner, seeds, path, reports)
    if not args.report_only:
        todo = [(row, seed) for seed in seeds for row in rows]
        for failure in do_all(runner, todo):
            if failure:
                failures.append(failure)
            table = report(runner, seeds, path, reports)
    print(table)
    if failures:
        raise ValueError(
            f"{len(failures)} of {len(todo)} models failed; rerun the same "
            f"command to resume. {' '.join(failures)}"
        )


def parse_tasks(text, grid, output_dir):
    """Returns the grid's tasks that --task_data gives folders for."""
    tasks = {}
    for item in filesystem.split_list(text):
        name, _, folder = item.partition("=")
        if name not in grid.tasks or not filesystem.is_folder(folder):
            raise ValueError(
                f"--task_data has {item!r}; wanted NAME=FOLDER with an "
                "existing folder and one of the grid's tasks, "
                f"{list(grid.tasks)}."
            )
        # What is written there must not change the digest of the data.
        filesystem.check_folders_apart(
            {"--output_dir": output_dir}, {"--task_data": folder}
        )
        tasks[name] = grid.tasks[name] | {"data_dir": folder}
    return tasks


def check_flags(grid):
    """Checks the flags of all jobs, and the lengths of sequences.

    A job may run for hours before the next one would notice an error.
    """
    for row in grid.rows:
        records = [phase.records for phase in row.phases]
        if row.phases:
            records.append(grid.held_out)
        lengths = [
            parse("create_pretraining_data", values).max_seq_length or 512
            for values in records
        ]
        for phase in row.phases:
            parse("run_pretraining", phase.flags)
        for task, values in grid.tasks.items():
            values = values | row.tasks.get(task, {})
            # A length that is not given follows the model.
            lengths.append(parse("run_classifier", values).max_seq_length or 0)
        longest = max(lengths)
        if longest > row.config.max_position_embeddings:
            raise ValueError(
                f"Row {row.name!r} is to read sequences of {longest} tokens "
                "(max_seq_length of records, held_out and tasks; of records, "
                "512 by default), but its model has max_position_embeddings "
                f"{row.config.max_position_embeddings}."
            )


def parse(program, values):
    """Returns the flags of a program, with values from the grid."""
    _, flags_class = commands.find(program)
    known = {field.name for field in dataclasses.fields(flags_class)}
    if unknown := sorted(values.keys() - known):
        raise ValueError(
            f"The grid has flags that {program} does not: {unknown}. Are they "
            f"misspelt? albert {program} --help lists them."
        )
    if reserved := sorted(values.keys() & grid_jobs.RESERVED):
        raise ValueError(
            f"The grid has flags of {program} that `albert ablate` sets "
            f"itself: {reserved}. Remove them."
        )
    given = values | REQUIRED[program]
    words = [f"--{name}={value}" for name, value in given.items()]
    try:
        return flags.parse(flags_class, words)
    except ValueError as error:
        raise ValueError(
            f"The grid's flags of {program} are {values}: {error}"
        ) from error


def check_casing(grid, vocabulary):
    """Raises ValueError if a row's texts are tokenized in different ways.

    `vocabulary` is its file.
    """
    recorded = vocabulary_files.read_casing(vocabulary)
    for name in tokenization.CASING:
        # What an absent flag means.
        default = recorded.get(name, name == "do_lower_case")
        wanted = grid.held_out.get(name, default)
        for row in grid.rows:
            for phase in row.phases:
                actual = phase.records.get(name, default)
                if str(actual).lower() != str(wanted).lower():
                    raise ValueError(
                        f"Row {row.name!r} is trained on records with {name} "
                        f"{actual}; held_out has {wanted}. Give both the same."
                    )


def check_texts(train, held_out):
    """Raises ValueError if a file is used both to train and to score."""
    trained_on = set(map(filesystem.identity, filesystem.expand_files(train)))
    for path in filesystem.expand_files(held_out):
        if filesystem.identity(path) in trained_on:
            raise ValueError(
                f"{path} is in --train_text and in --heldout_text. Score on "
                "other documents."
            )


def do_all(runner, todo):
    """Does the jobs of each (row, seed); yields after each a failure, or None.

    Models that another process is working on are tried again later.
    """
    last_names = None
    while todo:
        busy = []
        for row, seed in todo:
            try:
                runner.do_row(row, seed)
            except BlockingIOError:
                busy.append((row, seed))
                continue
            except (OSError, ValueError) as error:
                print(error, flush=True)
                yield f"{row.name}, seed {seed}: {error}"
                continue
            yield None
        if busy == todo:
            names = ", ".join(f"{row.name}, seed {seed}" for row, seed in busy)
            if names != last_names:
                print(f"\nWaiting for another process: {names}.", flush=True)
            last_names = names
            time.sleep(WAIT)
        todo = busy


def report(runner, seeds, path, others=()):
    """Writes all results so far; returns the table.

    Waits while another process writes to the same folder.

    Args:
      runner: a `grid_jobs.GridRunner`.
      seeds: seeds besides the grid's and those of an earlier report.
      path: path of the results, with the ending .json; the table and the page
        get other endings.
      others: reports from `grid_reports.read_report` with results that the
        folder may lack; the first that has one counts.
    """
    grid = runner.grid
    seeds = {*grid.seeds, *seeds}
    stem = os.path.splitext(path)[0]
    with grid_jobs.waiting_for_folder(os.path.dirname(path)):
        seeds |= grid_reports.read_seeds(path)
        results = {
            row.name: runner.collect(row, sorted(seeds)) for row in grid.rows
        }
        for other in others:
            for name in other:
                results[name] = grid_reports.add_results(
                    results[name], other[name]
                )
        table = ablation_page.format_markdown(grid.title, results)
        filesystem.write_json(path, results)
        filesystem.write_file(f"{stem}.md", table)
        filesystem.write_file(
            f"{stem}.html", ablation_page.build_page(grid.title, results)
        )
    return f"\n{table}\nWrote {path}, .md and .html."
