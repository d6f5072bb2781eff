"""Tables and plots of an ablation, beside the paper's results."""

from albert_tf.reports import markdown, page, plots

FIRST, LAST = ("parameters", "M tokens"), ("seconds", "commit")
NOTE = (
    "Mean ± standard deviation over seeds, and the number of seeds in "
    "parentheses; scores in percent. A seed decides on the initialization and "
    "the order of the data, not on the records. Parameters are those of the "
    "encoder, tokens include padding. Speeds are those that the machine had at "
    "the time, seconds are all tokens at the median speed."
)


def list_columns(results, kind="summary"):
    """Returns the names of all columns with scores and speeds.

    Args:
      results: dict from a row's name to `GridRunner.collect`'s results.
      kind: "summary" for our columns, or "paper".
    """
    names = dict.fromkeys(n for row in results.values() for n in row[kind])
    return [name for name in names if not name.endswith("seconds")]


def tabulate(results):
    """Returns rows of texts: each column's means, next to the paper's."""
    own = [*FIRST, *list_columns(results), *LAST]
    paper = list_columns(results, "paper")
    columns = [["", *results]]
    for name in dict.fromkeys([*own, *paper]):
        if name in own:
            cells = [format_own(name, row) for row in results.values()]
            columns.append([name, *cells])
        if name in paper:
            cells = [format_paper(name, row) for row in results.values()]
            columns.append([f"paper: {name}", *cells])
    return list(zip(*columns, strict=True))


def format_own(name, row):
    """Returns a cell: "mean ± deviation (number of seeds)", or a number."""
    match name:
        case "parameters":
            return f"{row['parameters']:,}"
        case "M tokens":
            return f"{row['tokens'] / 1e6:.1f}"
        case "seconds":
            return format_seconds(row)
        case "commit":
            return " ".join(row["commits"])
    if name not in row["summary"]:
        return ""
    summary = row["summary"][name]
    text = format_value(name, summary["mean"])
    if summary["deviation"] is not None:
        text += f" ± {format_value(name, summary['deviation'])}"
    return f"{text} ({summary['count']})"


def format_value(name, value):
    """Returns a speed, seconds, or a score in percent as text."""
    is_score = not name.endswith(("tokens/s", "seconds"))
    return f"{100 * value:.1f}" if is_score else f"{value:,.0f}"


def format_seconds(row):
    """Returns the mean time of all phases, or "" if not all are known."""
    means = [
        summary["mean"]
        for name, summary in row["summary"].items()
        if name.endswith("seconds")
    ]
    return f"{sum(means):,.0f}" if len(means) == row["phases"] else ""


def format_paper(name, row):
    """Returns the paper's number as text, or ""."""
    if name not in row["paper"]:
        return ""
    value = row["paper"][name]
    return f"{value / 1e6:.0f}M" if name == "parameters" else f"{value}"


def tabulate_seeds(results):
    """Returns rows of texts: the values of each seed, in the same order."""
    names = dict.fromkeys(n for row in results.values() for n in row["columns"])
    seeds = list_seeds(results)
    rows = [["", *names]]
    for row_name, row in results.items():
        cells = [row_name]
        for name in names:
            values = row["columns"].get(name, {})
            texts = [
                format_value(name, values[seed]) if seed in values else "–"
                for seed in seeds
            ]
            cells.append(" ".join(texts) if values else "")
        rows.append(cells)
    return rows


def list_seeds(results):
    """Returns the seeds of all results, texts, in ascending order."""
    columns = (c for row in results.values() for c in row["columns"].values())
    return sorted({seed for column in columns for seed in column}, key=int)


def format_markdown(title, results):
    """Returns two tables in Markdown, means and each seed, with notes."""
    means = markdown.format_table(tabulate(results))
    table = f"# {title}\n\n{means}\n\n{NOTE}\n"
    if seeds := list_seeds(results):
        table += f"\nOf the seeds {', '.join(seeds)}, in this order:\n\n"
        values = markdown.format_table(tabulate_seeds(results))
        table += f"{values}\n"
    return table


def build_page(title, results):
    """Returns the HTML page of an ablation."""
    values = [
        [name, column, seed, f"{value}"]
        for name, row in results.items()
        for column, by_seed in row["columns"].items()
        for seed, value in by_seed.items()
    ]
    folders = [
        [name, seed, folder]
        for name, row in results.items()
        for seed, folder in row["folders"].items()
    ]
    return page.page(
        title,
        page.element("h1", title),
        page.section(
            "Results",
            page.remark(NOTE),
            plots.arrange(draw(results)),
            page.number_table(tabulate(results)),
            name="results",
        ),
        page.section(
            "Runs",
            page.table(values, head=["", "column", "seed", "value"]),
            name="runs",
        ),
        page.section(
            "Checkpoints",
            page.table(folders, head=["", "seed", "in the output folder"]),
            name="checkpoints",
        ),
    )


def draw(results):
    """Yields a plot for each column, followed by the paper's same column."""
    own, paper = list_columns(results), list_columns(results, "paper")
    for name in dict.fromkeys([*own, *paper]):
        if name in own:
            yield draw_own(results, name)
        if name in paper:
            values = [row["paper"].get(name) for row in results.values()]
            yield draw_points(f"Paper: {name}", results, values)


def draw_own(results, name):
    """Returns a plot of a column's means with their deviations."""
    scale = 1 if name.endswith("tokens/s") else 100
    means, deviations = [], []
    for row in results.values():
        summary = row["summary"].get(name, {"mean": None, "deviation": None})
        means.append(summary["mean"] and scale * summary["mean"])
        deviations.append(scale * (summary["deviation"] or 0))
    return draw_points(name, results, means, deviations)


def draw_points(title, names, values, deviations=None):
    """Returns a plot of a value per row; None is left empty."""
    picture, axes = plots.begin()
    numbers = [float("nan") if value is None else value for value in values]
    axes.errorbar(
        numbers,
        range(len(numbers)),
        xerr=deviations,
        fmt="o",
        color="tab:blue" if deviations else "tab:gray",
        capsize=3,
    )
    axes.set_yticks(range(len(numbers)), names)
    axes.set_ylim(len(numbers) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3)
    return plots.finish(picture, title)
