"""What several trainings of a task achieved, in numbers and in words."""

import statistics

from albert_tf.weights.checkpoints import STEP


def summarize(evaluators: list) -> dict:
    """What several runs achieved.

    Args:
      evaluators: the `evaluation.Evaluator` of each run.

    Returns:
      Dict with `metric`, the name of what the best is chosen by; `runs`, a
      dict of `last` and `best` values for each; and, of the run with the
      median of the best, `last` and `best`; `median` and `spread` (standard
      deviation) of the best.
    """
    metric = evaluators[0].best_metric
    runs = []
    for evaluator in evaluators:
        results = evaluator.results()
        runs.append(
            {
                "folder": evaluator.manager.folder,
                "last": max(results, key=lambda r: r[STEP]),
                "best": max(results, key=lambda r: r[metric]),
            }
        )
    scores = [run["best"][metric] for run in runs]
    middle = statistics.median_low(scores)
    return {
        "metric": metric,
        **runs[scores.index(middle)],
        "median": statistics.median(scores),
        "spread": statistics.stdev(scores) if len(scores) > 1 else 0.0,
        "runs": runs,
    }


def format_summary(summary: dict, baseline: dict) -> str:
    """Returns a few lines that say what was achieved.

    Args:
      summary: from `summarize`.
      baseline: dict from metric to what the best guess without looking gets.
    """
    metric = summary["metric"]
    names = [name for name in summary["best"] if name in baseline]
    lines = [
        f"{'':24}{'last':>10}{'best on dev':>14}{'baseline':>12}",
        *(
            f"{name:24}{summary['last'][name]:10.4f}"
            f"{summary['best'][name]:14.4f}{baseline[name]:12.4f}"
            for name in sorted(names)
        ),
        f"Step {summary['last'][STEP]:.0f} is the last, "
        f"{summary['best'][STEP]:.0f} the best, chosen by {metric} on dev: "
        "expect less on other data.",
    ]
    if len(summary["runs"]) > 1:
        lines.append(
            f"{len(summary['runs'])} runs: best {metric} has median "
            f"{summary['median']:.4f}, standard deviation "
            f"{summary['spread']:.4f}; above is the median run."
        )
    return "\n".join(lines)
