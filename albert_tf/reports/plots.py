"""Plots for a page: inline SVG in the colors of its text."""

import io
import json
import re
import warnings

from albert_tf.reports import page, plot_metrics

# Inches; about the width of a phone, so that text keeps its size there.
SIZE = (4.2, 3.0)
# Scatter plots with more points are rasterized.
MANY_POINTS = 2000


def arrange(figures):
    """Returns the figures of a generator side by side, as Markup.

    If it raises ImportError, for lack of matplotlib, that is the result.
    """
    try:
        return page.element("div", *figures, class_="plots")
    except ImportError as error:
        return page.remark(error)


def draw_curves(runs, baseline):
    """Yields a figure for each panel of one or several runs, as Markup.

    Args:
      runs: dict from the name of a run to its `plot_metrics.collect_series`.
      baseline: dict from metric to the score of a constant prediction, a thin
        line in the panel of the metric.

    Raises:
      ValueError: if there is nothing to draw.
    """
    for title, names in plot_metrics.choose_panels(runs):
        picture, axes = begin()
        plot_metrics.draw_panel(axes, runs, title, names)
        curves = [
            # JSON has no NaN.
            [line.get_label(), *zip(*points, strict=True)]
            for line in axes.get_lines()
            if (points := [(x, f"{y:.5g}") for x, y in line.get_xydata()])
        ]
        for name in set(names) & baseline.keys():
            axes.axhline(
                baseline[name],
                color="tab:gray",
                linewidth=0.8,
                linestyle="--",
                label="baseline",
            )
        add_legend(axes, axes.get_lines())
        axes.set_title("")
        yield finish(picture, title, curves)


def draw_scatter(labels, predictions):
    """Yields a scatter plot of N predictions over N labels, as Markup."""
    picture, axes = begin()
    is_many = len(labels) > MANY_POINTS
    axes.scatter(labels, predictions, s=8, alpha=0.4, rasterized=is_many)
    ends = [min(labels), max(labels)]
    axes.plot(ends, ends, color="tab:gray", linestyle=":")
    axes.set(xlabel="label", ylabel="prediction")
    yield finish(picture, "Prediction against label")


def draw_exits(rows, metric):
    """Yields the score over the mean number of layers, as Markup.

    `rows` have the fields of a `metrics.exits.Exit` for each threshold.
    """
    picture, axes = begin()
    axes.plot(
        [row["num_layers"] for row in rows], [row["score"] for row in rows], "."
    )
    axes.set(xlabel="mean number of layers", ylabel=metric, xlim=(0, None))
    yield finish(picture, "Answers after as few layers as a text needs")


def begin():
    """Returns a matplotlib Figure, and its Axes."""
    figure = plot_metrics.import_matplotlib().figure
    picture = figure.Figure(figsize=SIZE, layout="constrained")
    return picture, picture.add_subplot()


def add_legend(axes, lines):
    """Adds a legend of lines, also of those with a label like "_name"."""
    # matplotlib's own choice of lines leaves these out.
    labels = [line.get_label() for line in lines]
    axes.legend(lines, labels, frameon=False, fontsize="small")


def finish(picture, title, curves=None):
    """Returns the figure with its caption, as Markup.

    Args:
      picture: a matplotlib Figure.
      title: the caption.
      curves: lists of a label, steps and values, which the page's script shows
        where one points at the picture; or None.
    """
    matplotlib = plot_metrics.import_matplotlib()
    buffer = io.StringIO()
    # Keeps text as text, and makes the ids in the SVG deterministic.
    settings = {"svg.fonttype": "none", "svg.hashsalt": title}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # The reader's fonts have other glyphs than matplotlib's.
        warnings.filterwarnings("ignore", "Glyph")
        picture.savefig(
            buffer,
            format="svg",
            transparent=True,
            metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")),
        )
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace("#000000", "currentColor")
    # Ids must be unique in the page, not only in the figure.
    prefix = re.sub(r"\W+", "-", title)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
    attributes = {"role": "img", "aria_label": title}
    if curves:
        (axes,) = picture.axes
        box = axes.get_position()  # As fractions of the picture.
        attributes["class_"] = "curves"
        attributes["data_curves"] = json.dumps(
            {
                "box": [box.x0, box.x1],
                "limits": axes.get_xlim(),
                "lines": curves,
            }
        )
    return page.element(
        "figure",
        page.element("figcaption", title),
        page.element("div", page.Markup(text), **attributes),
    )
