"""Reports of a grid that contain results of several output folders."""

import os

from albert_tf import filesystem
from albert_tf.lab import grids
from albert_tf.model import parameters


def read_report(path, grid):
    """Reads a JSON file that `albert ablate` has written for a grid.

    Returns:
      A dict from the name of a row to `grid_jobs.GridRunner.collect`'s results.
    """
    report = filesystem.read_json(path)
    rows = {row.name: row for row in grid.rows}
    if not report or report.keys() - rows:
        raise ValueError(
            f"{path} has the keys {list(report)}; wanted rows of the grid, "
            f"{list(rows)}. Is it the report of another grid?"
        )
    for name, results in report.items():
        check_results(f"{path}, row {name!r},", results, rows[name])
    return report


def read_seeds(path):
    """Returns the seeds of an earlier report; none if there is no file.

    Raises:
      ValueError: if it, or a file beside it, is no such report.
    """
    stem = os.path.splitext(path)[0]
    for other in (f"{stem}.md", f"{stem}.html"):
        if filesystem.exists(other) and not filesystem.exists(path):
            raise ValueError(
                f"{other} would be overwritten: without {path} beside it, it "
                "may be no report of `albert ablate`. Rename or remove it."
            )
    report = filesystem.read_json(path) if filesystem.exists(path) else {}
    seeds: set[int] = set()
    for row in report.values():
        if not isinstance(row, dict) or not are_columns(row.get("columns")):
            raise ValueError(
                f"{path} is no report of `albert ablate`, and would be "
                "overwritten. Rename it."
            )
        seeds |= {int(s) for c in row["columns"].values() for s in c}
    return seeds


def check_results(where, results, row):
    """Raises ValueError if a report's row does not describe a grid's row."""
    wanted = {
        "parameters": parameters.count_encoder(row.config),
        "tokens": row.count_tokens(),
    }
    known = [*wanted, "columns", "commits"]
    if not isinstance(results, dict) or not results.keys() >= set(known):
        raise ValueError(f"{where} is {results!r:.80}; wanted {known}.")
    actual = {key: results[key] for key in wanted}
    if actual != wanted:
        raise ValueError(
            f"{where} has {actual}; the grid has {wanted}. Is it the report of "
            "another grid?"
        )
    columns, commits = results["columns"], results["commits"]
    if not are_columns(columns):
        raise ValueError(
            f"{where} has columns {columns!r:.80}; wanted a number by column "
            "and seed."
        )
    if not isinstance(commits, list) or not all(
        isinstance(commit, str) for commit in commits
    ):
        raise ValueError(f"{where} has commits {commits!r:.80}; wanted texts.")


def are_columns(columns):
    """Returns whether a value is a dict: column -> seed -> number."""
    return isinstance(columns, dict) and all(
        isinstance(values, dict)
        and all(
            seed.isdecimal() and type(value) in (int, float)
            for seed, value in values.items()
        )
        for values in columns.values()
    )


def add_results(results, other):
    """Returns a row's results, completed by those of another report."""
    columns = {name: dict(v) for name, v in results["columns"].items()}
    commits = set(results["commits"])
    for name, values in other["columns"].items():
        known = columns.setdefault(name, {})
        if values.keys() - known:
            columns[name] = dict(
                sorted((values | known).items(), key=lambda item: int(item[0]))
            )
            commits |= set(other["commits"])
    return results | {
        "columns": columns,
        "summary": summarize(columns),
        "commits": sorted(commits),
    }


def summarize(columns):
    """Returns a dict from column to the summary of its seeds' results."""
    return {
        name: grids.summarize(list(values.values()))
        for name, values in columns.items()
    }
