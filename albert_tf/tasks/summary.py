"""Summarizes the scores of one or several runs of a task."""

import statistics

from albert_tf.weights import task_heads
from albert_tf.weights.checkpoints import STEP


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


def describe_run(evaluator) -> dict:
    """Returns the folder of a run and its scores.

    Args:
      evaluator: the run's `evaluation.Evaluator`.

    Returns:
      Dict of `folder`, and of the values `last` and `best`.
    """
    results, metric = evaluator.results(), evaluator.best_metric
    return {
        "folder": evaluator.manager.folder,
        "last": max(results, key=lambda r: r[STEP]),
        "best": task_heads.best_row(results, metric),
    }


def format_summary(summary: dict, baseline: dict) -> str:
    """Returns a summary as a table of text.

    Args:
      summary: from `summarize`.
      baseline: dict from metric to the score of a constant prediction.
    """
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
