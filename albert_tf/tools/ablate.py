"""Trains a grid of models that differ in one thing each, and compares them."""

import dataclasses
import os
import time

from albert_tf import filesystem, flags
from albert_tf.analysis import grids
from albert_tf.commands import (
    create_pretraining_data,
    run_classifier,
    run_pretraining,
)
from albert_tf.tools import ablation_page, grid_jobs, grid_reports
from albert_tf.weights import vocabulary_files

# Seconds between two looks at what other processes are working on.
WAIT = 10
PROGRAMS = {
    "create_pretraining_data": create_pretraining_data.DataFlags,
    "run_pretraining": run_pretraining.PretrainingFlags,
    "run_classifier": run_classifier.ClassifierFlags,
}


def run(args):
    """Does the jobs of the chosen rows and seeds; writes all results.

    Raises:
      ValueError: if the grid or its flags are invalid, or programs failed.
    """
    grid = grids.read_grid(args.grid)
    check_flags(grid)
    check_casing(grid)
    check_texts(args.train_text, args.heldout_text)
    folders = parse_tasks(args.task_data, grid, args.output_dir)
    grid = dataclasses.replace(
        grid,
        tasks={
            name: grid.tasks[name] | {"data_dir": folder}
            for name, folder in folders.items()
        },
    )
    rows, seeds = choose_rows(grid, args.only), choose_seeds(grid, args.seeds)
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


def choose_rows(grid, names):
    """Returns the rows that --only names, by default all.

    Raises:
      ValueError: if there is no such row.
    """
    wanted = [name.strip() for name in names.split(";")] if names else []
    known = [row.name for row in grid.rows]
    if unknown := set(wanted) - set(known):
        raise ValueError(
            f"--only={names} names {sorted(unknown)}; the grid has the rows "
            f"{'; '.join(known)}."
        )
    return [row for row in grid.rows if not wanted or row.name in wanted]


def choose_seeds(grid, text):
    """Returns the seeds of --seeds, by default the grid's."""
    if not text:
        return grid.seeds
    return flags.parse_numbers(
        "seeds", text, at_least=0, at_most=flags.MAX_SEED
    )


def parse_tasks(text, grid, output_dir):
    """Returns a dict from task to folder, of NAME=FOLDER,NAME=FOLDER."""
    found = {}
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
        found[name] = folder
    return found


def check_flags(grid):
    """Raises ValueError if a program has no flag of the grid's."""
    phases = [phase for row in grid.rows for phase in row.phases]
    used = {
        "create_pretraining_data": [
            grid.held_out,
            *(phase.records for phase in phases),
        ],
        "run_pretraining": [phase.flags for phase in phases],
        "run_classifier": [
            *grid.tasks.values(),
            *(flags for row in grid.rows for flags in row.tasks.values()),
        ],
    }
    for program, flags_class in PROGRAMS.items():
        names = {name for values in used[program] for name in values}
        known = {field.name for field in dataclasses.fields(flags_class)}
        if unknown := sorted(names - known):
            raise ValueError(
                f"The grid has flags that {program} does not: {unknown}."
            )
        if reserved := sorted(names & grid_jobs.RESERVED):
            raise ValueError(
                f"The grid has flags of {program} that `albert ablate` sets "
                f"itself: {reserved}."
            )


def check_casing(grid):
    """Raises ValueError if training and held-out text get other pieces."""
    for name in sorted(vocabulary_files.CASING):
        default = getattr(create_pretraining_data.DataFlags, name)
        wanted = grid.held_out.get(name, default)
        for row in grid.rows:
            for phase in row.phases:
                found = phase.records.get(name, default)
                if str(found).lower() != str(wanted).lower():
                    raise ValueError(
                        f"Row {row.name!r} is trained on records with {name} "
                        f"{found}; held_out has {wanted}. Give both the same."
                    )


def check_texts(train, held_out):
    """Raises ValueError if a file is to be trained and scored on."""
    trained_on = set(map(filesystem.identity, filesystem.expand_files(train)))
    for path in filesystem.expand_files(held_out):
        if filesystem.identity(path) in trained_on:
            raise ValueError(
                f"{path} is in --train_text and in --heldout_text. Score on "
                "other documents."
            )


def do_all(runner, todo):
    """Does all jobs; yields after each model how it failed, or None.

    Models that another process is working on are done by it, or later.

    Args:
      runner: a `grid_jobs.GridRunner`.
      todo: list of (row, seed).
    """
    said = None
    while todo:
        busy = []
        for row, seed in todo:
            try:
                runner.do_row(row, seed)
            except grid_jobs.BusyError:
                busy.append((row, seed))
                continue
            except (grid_jobs.ProgramError, OSError, ValueError) as error:
                print(error, flush=True)
                yield f"{row.name}, seed {seed}: {error}"
                continue
            yield None
        if busy == todo:
            names = ", ".join(f"{row.name}, seed {seed}" for row, seed in busy)
            if names != said:
                print(f"\nWaiting for another process: {names}.", flush=True)
            said = names
            time.sleep(WAIT)
        todo = busy


def report(runner, seeds, path, others=()):
    """Writes all results that there are; returns the table.

    Waits while another process writes to the same folder.

    Args:
      runner: a `grid_jobs.GridRunner`.
      seeds: seeds beside the grid's, and those of an earlier report.
      path: path of the results, with the ending .json; the table and the page
        get other endings.
      others: reports, as of `grid_reports.read_report`, with results that the
        folder may lack; the first that has one counts.
    """
    grid = runner.grid
    seeds = {*grid.seeds, *seeds}
    stem = os.path.splitext(path)[0]
    with grid_jobs.waiting_for_folder(os.path.dirname(path)):
        if filesystem.exists(path):
            for row in filesystem.read_json(path).values():
                seeds |= {int(s) for c in row["columns"].values() for s in c}
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


if __name__ == "__main__":
    from albert_tf.commands import ablate

    ablate.main()
