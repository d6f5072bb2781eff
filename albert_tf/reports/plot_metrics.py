"""Plots training curves from metrics.jsonl."""

import io
import logging
import operator
import os

from albert_tf import filesystem

ENDINGS = (".svg", ".png", ".pdf")
# Title and metrics of each panel.
PANELS = (
    ("Masked-LM loss", ("masked_lm_loss",)),
    ("Masked-LM accuracy", ("masked_lm_accuracy",)),
    ("Sentence-order accuracy", ("sentence_order_accuracy",)),
    ("Gain over unigram loss", ("frequency_gain",)),
    ("Attention entropy", ("attention_entropy",)),
    ("Loss", ("loss", "eval_loss")),
    ("Accuracy", ("accuracy", "eval_accuracy")),
    ("F1", ("f1",)),
    ("Macro F1", ("macro_f1",)),
    ("Exact match", ("exact_match", "exact")),
    ("Matthews correlation", ("matthew_corr",)),
    ("Pearson correlation", ("pearson",)),
    ("Spearman correlation", ("spearman",)),
    ("Mean reciprocal rank", ("mrr",)),
    ("Recall at 1", ("recall_at_1",)),
    ("Recall at 10", ("recall_at_10",)),
    ("Mean squared error", ("MSE",)),
    ("Exact spans (training)", ("exact_span",)),
    ("Answerability accuracy (training)", ("answerability_accuracy",)),
    ("Learning rate", ("learning_rate",)),
)
# What a record has besides metrics.
NO_METRICS = {"split", "step", "time"}
# Prefixes of the scores of parts of the dev data.
PARTS = ("mismatched", "middle", "high", "HasAns", "NoAns")
COLORS = {"train": "tab:gray", "eval": "tab:red"}
# With several runs, the color identifies the run and the style the line.
STYLES = {"train": ":", "eval": "-"}
# Lines with fewer points have markers, because a single point has no line.
FEW_POINTS = 20


def read_series(path):
    """Returns `collect_series` of a metrics.jsonl, which must not be empty."""
    series = collect_series(read_records(path))
    if not series:
        raise ValueError(
            f"{path} contains no metrics. Has the training started?"
        )
    return series


def collect_series(records):
    """Returns a dict from (split, metric) to lists of steps and of values."""
    series: dict = {}
    for record in sorted(records, key=operator.itemgetter("step")):
        if record["split"] == "warning":
            continue
        for name in record.keys() - NO_METRICS:
            key = record["split"], name
            steps, values = series.setdefault(key, ([], []))
            steps.append(record["step"])
            values.append(record[name])
    return series


def read_records(path):
    """Yields the objects of a metrics.jsonl, one per line.

    An incomplete last line, from a killed run or a full disk, is skipped.
    """
    # A last line without a line break is incomplete.
    *lines, rest = filesystem.read_file(path).split(b"\n")
    for number, line in enumerate([*lines, rest], 1):
        where = f"{path}, line {number}"
        try:
            record = filesystem.parse_json(line, where)
            if not {"split", "step"} <= record.keys():
                raise ValueError(
                    f"{where} lacks split or step. Was it written by a "
                    "training?"
                )
        except ValueError:
            if number <= len(lines):
                raise
            if rest:
                logging.warning("%s is incomplete and skipped.", where)
            return
        yield record


def import_matplotlib():
    """Returns the module matplotlib, with its submodule `figure`."""
    try:
        import matplotlib
        import matplotlib.figure
    except ImportError as error:
        raise ImportError(
            "Plots require matplotlib: pip install matplotlib."
        ) from error
    return matplotlib


def name_runs(paths):
    """Returns the shortest unique names of runs, from their files' folders."""
    parts = [os.path.abspath(path).split(os.sep) for path in paths]
    # Files in the same folder are distinguished by their own names.
    folders = [some[:-1] for some in parts]
    parts = folders if len({*map(tuple, folders)}) == len(paths) else parts
    return filesystem.name_briefly(parts)


def find_lines(series, names):
    """Finds the lines of a run's series in a panel of some metrics.

    Returns:
      Dict from a label, such as "train", "eval" or "NoAns", to (split, name).
    """
    lines = {}
    for split, name in sorted(series, reverse=True):  # "train" first.
        part, _, rest = name.partition("_")
        if name in names:
            lines[split] = split, name
        elif part in PARTS and rest in names:
            lines[part] = split, name
    return lines


def choose_panels(runs):
    """Returns the PANELS for which a run has values, or raises ValueError."""
    panels = [
        (title, names)
        for title, names in PANELS
        if any(find_lines(series, names) for series in runs.values())
    ]
    # The total loss of pretraining says less than its masked-LM loss.
    names = dict(panels)
    if PANELS[0][0] in names and not any(
        find_lines(series, names.get("Loss", ()))
        for series in runs.values()
        if not find_lines(series, PANELS[0][1])
    ):
        panels = [panel for panel in panels if panel[0] != "Loss"]
    if not panels:
        known = sorted({name for _, names in PANELS for name in names})
        raise ValueError(
            f"{', '.join(runs)}: there are no known metrics; wanted at least "
            f"one of {', '.join(known)}. Were they written by a training run?"
        )
    return panels


def draw_panel(axes, runs, title, names, tokens_per_step=None):
    """Draws one of PANELS, its title and metrics; see `draw`."""
    for number, (run, series) in enumerate(runs.items()):
        for label, key in find_lines(series, names).items():
            steps, values = series[key]
            if tokens_per_step:
                steps = [s * tokens_per_step[run] / 1e6 for s in steps]
            kwargs = {"color": COLORS.get(label), "label": label}
            if len(runs) > 1:
                kwargs = {
                    "color": f"C{number}",
                    "label": f"{run}: {label}",
                    "linestyle": STYLES.get(label, "--"),
                }
            marker = "." if len(steps) < FEW_POINTS else ""
            axes.plot(steps, values, marker=marker, **kwargs)
    axes.set(title=title, xlabel="M tokens" if tokens_per_step else "step")
    axes.locator_params("x", integer=not tokens_per_step)
    if len(runs) == 1:
        axes.legend(frameon=False, fontsize="small")


def draw(runs, title="", tokens_per_step=None):
    """Returns a matplotlib Figure with all panels that have values.

    Args:
      runs: dict from the name of a run to its series.
      title: title of the figure.
      tokens_per_step: dict from the name of a run to the tokens of a step, to
        draw over tokens instead of steps.

    Raises:
      ImportError: if matplotlib is not installed.
    """
    figure = import_matplotlib().figure
    panels = choose_panels(runs)
    columns = -(-len(panels) // 2)
    picture = figure.Figure(figsize=(4 * columns, 6), layout="constrained")
    picture.suptitle(title)
    for place, (name, metrics) in enumerate(panels, 1):
        axes = picture.add_subplot(2, columns, place)
        draw_panel(axes, runs, name, metrics, tokens_per_step)
    if len(runs) > 1:  # One legend for all panels: it would cover each.
        lines = {
            line.get_label(): line
            for axes in picture.axes
            for line in axes.get_lines()
        }
        picture.legend(
            lines.values(), lines, loc="outside lower center", ncols=2 * columns
        )
    return picture


def parse_tokens(text, names):
    """Returns a dict from run to --tokens_per_step, or None without it."""
    if not text:
        return None
    words = [word.strip() for word in text.split(",")]
    are_positive = all(
        word.isascii() and word.isdecimal() and int(word) > 0 for word in words
    )
    if len(words) != len(names) or not are_positive:
        raise ValueError(
            f"--tokens_per_step={text}; wanted a whole number above 0 for each "
            f"of the {len(names)} runs, {', '.join(names)}."
        )
    return dict(zip(names, map(int, words), strict=True))


def run(args):
    """Writes the figure of all given runs."""
    files = list(dict.fromkeys(filesystem.expand_in_order(args.metrics_file)))
    filesystem.check_outputs(
        {"--output_file": [args.output_file]}, {"--metrics_file": files}
    )
    filesystem.check_ending("--output_file", args.output_file, ENDINGS)
    names = name_runs(files)
    tokens = parse_tokens(args.tokens_per_step, names)
    runs = dict(zip(names, map(read_series, files), strict=True))
    picture = draw(runs, args.title, tokens)
    # matplotlib cannot open remote files.
    buffer = io.BytesIO()
    picture.savefig(buffer, format=args.output_file.rpartition(".")[2])
    filesystem.write_file(args.output_file, buffer.getvalue())
    print(f"Wrote {args.output_file}.")
