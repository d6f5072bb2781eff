"""Tables and plots of an ablation, beside the paper's results."""

from albert_tf.tools import page, plots

# Ends of columns that are no results of a seed to compare.
LEFT_OUT = "seconds", "commit"


def list_columns(results):
    """Returns the names of all columns with results, and of the paper's.

    Args:
      results: dict from a row's name to results, as of `GridRunner.collect`.
    """
    own = dict.fromkeys(
        name
        for row in results.values()
        for name in row["summary"]
        if not name.endswith(LEFT_OUT)
    )
    paper = dict.fromkeys(
        name for row in results.values() for name in row["paper"]
    )
    return list(own), list(paper)


def tabulate(results):
    """Returns rows of texts: means, deviations of seeds, and the paper's.

    `seconds` are those of all phases, `commit` is that of the last.
    """
    own, paper = list_columns(results)
    rows = [
        [
            "",
            "parameters",
            "M tokens",
            *own,
            "seconds",
            "commit",
            *(f"paper: {name}" for name in paper),
        ]
    ]
    for name, row in results.items():
        cells = [name, f"{row['parameters']:,}", f"{row['tokens'] / 1e6:.1f}"]
        cells += [format_summary(c, row["summary"].get(c)) for c in own]
        cells += [sum_seconds(row["summary"]), name_commits(row["columns"])]
        cells += [str(row["paper"].get(column, "")) for column in paper]
        rows.append(cells)
    return rows


def sum_seconds(summary):
    """Returns the mean time of all phases, as text."""
    seconds = [
        phase["mean"]
        for name, phase in summary.items()
        if name.endswith("seconds")
    ]
    return f"{sum(seconds):,.0f}" if seconds else ""


def name_commits(columns):
    """Returns the commits of all seeds, shortened."""
    commits = filter(None, columns.get("commit", {}).values())
    return " ".join(sorted({commit[:7] for commit in commits}))


def format_summary(column, summary):
    """Returns "mean ± deviation (number of seeds)", or "" without results."""
    if not summary:
        return ""
    mean, deviation = summary["mean"], summary["deviation"]
    if column.endswith("tokens/s"):
        return f"{mean:,.0f}"
    text = f"{100 * mean:.1f}"
    if deviation is not None:
        text += f" ± {100 * deviation:.1f}"
    return f"{text} ({summary['count']})"


def format_markdown(rows):
    """Returns rows of texts as a table in Markdown."""
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def build_page(title, results):
    """Returns the HTML page of an ablation."""
    remark = (
        "Means and standard deviations over seeds, in percent; the number of "
        "seeds in parentheses."
    )
    return page.page(
        title,
        page.element("h1", title),
        page.section(
            "Results",
            page.element("p", remark, class_="soft"),
            plots.arrange(draw(results)),
            page.number_table(tabulate(results)),
            name="results",
        ),
        page.section("Runs", tabulate_runs(results), name="runs"),
    )


def tabulate_runs(results):
    """Returns a table with every number of every seed."""
    rows = [
        [name, column, seed, f"{value}"]
        for name, row in results.items()
        for column, values in row["columns"].items()
        for seed, value in values.items()
    ]
    return page.table(rows, head=["", "column", "seed", "value"])


def draw(results):
    """Yields a plot for each column, then for each of the paper's."""
    own, paper = list_columns(results)
    for column in own:
        yield draw_own(results, column)
    for column in paper:
        yield draw_paper(results, column)


def draw_own(results, column):
    """Returns bars of a column's means with their deviations."""
    there = {
        n: r["summary"][column]
        for n, r in results.items()
        if column in r["summary"]
    }
    scale = 1 if column.endswith("tokens/s") else 100
    means = [scale * summary["mean"] for summary in there.values()]
    errors = [scale * (s["deviation"] or 0) for s in there.values()]
    return draw_bars(column, list(there), means, "tab:blue", xerr=errors)


def draw_paper(results, column):
    """Returns bars of the paper's results that are numbers."""
    there = {
        name: row["paper"][column]
        for name, row in results.items()
        if isinstance(row["paper"].get(column), int | float)
    }
    return draw_bars(
        f"Paper: {column}", list(there), list(there.values()), "tab:gray"
    )


def draw_bars(title, names, values, color, **kwargs):
    """Returns horizontal bars, on an axis that shows their differences."""
    picture, axes = plots.begin()
    axes.barh(names, values, color=color, **kwargs)
    axes.invert_yaxis()
    if values and min(values) > 0:
        spread = max(values) - min(values)
        axes.set_xlim(max(0, min(values) - spread - 0.02 * max(values)))
    return plots.finish(picture, title)
