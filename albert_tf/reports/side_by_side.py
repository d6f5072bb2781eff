"""The part of a report that shows several runs beside each other.

Runs are a dict from a name to a `report.Run`; the first is the report's own.
"""

import itertools

from albert_tf.reports import page, plot_metrics
from albert_tf.training import manifest

# Of a hash, enough characters to tell two apart.
HASH_CHARACTERS = 8


def describe(runs):
    """Returns a section with the scores and the settings of runs."""
    return page.section(
        "Side by side",
        tabulate_scores({name: run.best or {} for name, run in runs.items()}),
        tabulate_differences(runs),
        name="beside",
    )


def tabulate_scores(best):
    """Returns a table of scores, and of their differences from the first.

    `best` is a dict from the name of a run to its best evaluation, or to {}.
    """
    first, *others = best
    rows = []
    for metric in dict.fromkeys(itertools.chain(*best.values())):
        if metric in plot_metrics.NO_METRICS:
            continue
        values = [scores.get(metric, "") for scores in best.values()]
        row = [metric, values[0]]
        for value in values[1:]:
            is_both = "" not in (value, values[0])
            change = f"{value - values[0]:+.4f}" if is_both else ""
            row += [value, page.element("td", change, class_="number")]
        rows.append(row)
    steps = (
        f"{name} (step {scores['step']:,})" if scores else f"{name} (none)"
        for name, scores in best.items()
    )
    heads = itertools.chain(*((name, "difference") for name in others))
    return page.table(
        rows,
        head=["", first, *heads],
        caption=f"Scores of the best checkpoints on dev data: "
        f"{', '.join(steps)}.",
    )


def tabulate_differences(runs):
    """Returns a table of the settings and data that differ between runs."""
    settings = [manifest.flatten(run.made_of) for run in runs.values()]
    rows = []
    for key in dict.fromkeys(itertools.chain(*settings)):
        values = [page.format_value(flat.get(key)) for flat in settings]
        if len(set(values)) > 1:
            end = HASH_CHARACTERS if key.endswith("sha256") else None
            rows.append([key, *(value[:end] for value in values)])
    if not rows:
        return page.remark("The settings and data of the runs are the same.")
    return page.table(
        rows, head=["", *runs], caption="Settings and data that differ."
    )
