"""Summarizes the scores of one or several runs of a task."""

import contextlib
import dataclasses
import math
import operator
import os
import statistics

from albert_tf import filesystem
from albert_tf.data import submissions
from albert_tf.training import manifest, results_file
from albert_tf.weights import checkpoints, task_heads
from albert_tf.weights.checkpoints import STEP


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a run of a task has reached.

    Attributes:
      folder: folder of the run.
      dev: what `describe_run` returns of all scores on dev data so far, which
        may have chosen the checkpoint; None if there are none.
      score: its best score; -infinity if there is none.
      test: scores on test data, with the STEP of their checkpoint unless it is
        the best; empty if there are none.
      is_of_best: whether `test` is of the checkpoint that is best on dev, or
        of a model that was scored without training.
    """

    folder: str
    dev: dict | None
    score: float
    test: dict
    is_of_best: bool


def describe_outcome(tuning, test: dict) -> Outcome:
    """Returns a run's Outcome; its weights have the `test` scores, if any."""
    folder, dev, score = tuning.folder, None, -math.inf
    metric = tuning.task.best_metric
    if tuning.evaluator is None:
        metric = _read_known(folder).get("metric", metric)
    rows = results_file.read_results(folder)
    if task_heads.best_row(rows, metric):
        dev = describe_run(folder, rows, metric)
        score = dev["best"][metric]
    if task_heads.find_trained(folder):
        is_of_best = tuning.source == checkpoints.find_best(folder)
        if test and not is_of_best:
            test = {**test, STEP: checkpoints.step_of(tuning.source)}
    else:
        scored = manifest.read_setting(folder, "scored")
        is_of_best = scored is None or scored == tuning.describe_weights()
    return Outcome(folder, dev, score, test, is_of_best)


def write(folder, task, outcomes: list[Outcome], seconds: float) -> str:
    """Writes the summary of a task's runs, and that of each of several.

    What is not known now stays as in an earlier summary: the baseline of the
    training data, how long the scoring took, and the scores on test data of the
    same checkpoints.

    Args:
      folder: where the summary of all is.
      task: the `finetuning.Task`.
      outcomes: those of the runs.
      seconds: how long all took, in this call.

    Returns:
      The summary of all as a table of text; empty if the task has no dev data.
    """
    values = _write_one(folder, task, outcomes, seconds)
    for outcome in outcomes:
        if outcome.folder != folder:
            each = seconds / len(outcomes)
            _write_one(outcome.folder, task, [outcome], each)
    if not task.is_scored:
        return ""
    return format_summary(values, values["baseline"])


def _write_one(folder, task, outcomes, seconds):
    """Writes a summary; returns it. The arguments are as for `write`."""
    path = os.path.join(folder, submissions.SUMMARY_FILE)
    known, values = _read_known(folder), {}
    rows = [r for o in outcomes for r in results_file.read_results(o.folder)]
    if rows and not any(best in rows for best in _list_best(known)):
        known = {}  # It is of results that were removed.
    if all(outcome.is_of_best for outcome in outcomes):
        values = dict(known)
    runs = [outcome.dev for outcome in outcomes if outcome.dev]
    if len(runs) < len(outcomes) or not (task.is_scored or "metric" in known):
        runs = []
    if runs:
        now = {
            "metric": task.best_metric,
            "baseline": task.baseline,
            "seconds": round(seconds, 1),
        }
        kept = ["baseline"] if task.train is None else []
        if not task.is_scored:
            kept = [*now]
        now |= {name: known[name] for name in kept if known.get(name)}
        values = {**summarize(now["metric"], runs), "task": task.name, **now}
    tests = [outcome.test for outcome in outcomes]
    if not any(tests) and _list_best(known) == _list_best(values):
        tests = known.get("test", tests)
    values["test"] = tests
    if runs or any(tests):
        filesystem.write_json(path, values)
    return values


def _read_known(folder):
    """Returns the summary that a folder has; empty if there is none."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        path = os.path.join(folder, submissions.SUMMARY_FILE)
        return filesystem.read_json(path)
    return {}


def _list_best(values):
    """Returns the best result of each run of a summary."""
    return [run.get("best") for run in values.get("runs", ())]


def summarize(metric: str, runs: list[dict]) -> dict:
    """Summarizes the results of several runs.

    Args:
      metric: name of the metric that selects the best checkpoint.
      runs: what `describe_run` returns of each run.

    Returns:
      Dict of
        metric, runs: the arguments.
        folder, last, best: those of the run whose best score is the median.
        median, spread: median and standard deviation of the best scores.
    """
    scores = [run["best"][metric] for run in runs]
    middle = statistics.median_low(scores)
    return {
        "metric": metric,
        **runs[scores.index(middle)],
        "median": statistics.median(scores),
        "spread": statistics.stdev(scores) if len(scores) > 1 else 0.0,
        "runs": runs,
    }


def describe_run(folder, rows: list[dict], metric: str) -> dict:
    """Returns `folder`, and the rows `last` and, by a metric, `best`."""
    return {
        "folder": folder,
        "last": max(rows, key=operator.itemgetter(STEP)),
        "best": task_heads.best_row(rows, metric),
    }


def format_summary(summary: dict, baseline: dict) -> str:
    """Returns a summary of `summarize` and a baseline as a table of text."""
    metric = summary["metric"]
    known = summary["last"].keys() & baseline.keys()
    names = [name for name in summary["best"] if name in known]
    lines = [
        f"{'':24}{'last':>10}{'best on dev':>14}{'baseline':>12}",
        *(
            f"{name:24}{summary['last'][name]:10.4f}"
            f"{summary['best'][name]:14.4f}{baseline[name]:12.4f}"
            for name in sorted(names)
        ),
        f"The last step is {summary['last'][STEP]:.0f}, the best "
        f"{summary['best'][STEP]:.0f}, chosen by {metric} on dev: expect lower "
        "scores on other data.",
    ]
    if len(summary["runs"]) > 1:
        lines.append(
            f"{len(summary['runs'])} runs: best {metric} has median "
            f"{summary['median']:.4f} and standard deviation "
            f"{summary['spread']:.4f}; the table shows the median run."
        )
    return "\n".join(lines)
