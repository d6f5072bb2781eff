"""Draws the curves of trainings from their metrics.jsonl."""

import logging
import os

from albert_tf import filesystem

ENDINGS = (".svg", ".png", ".pdf")
# Title, and the names of what is drawn in the panel.
PANELS = (
    ("Masked-LM loss", ("masked_lm_loss",)),
    ("Masked-LM accuracy", ("masked_lm_accuracy",)),
    ("Sentence-order accuracy", ("sentence_order_accuracy",)),
    ("Loss below that of frequencies", ("frequency_gain",)),
    ("Entropy of attention", ("attention_entropy",)),
    ("Loss", ("loss", "eval_loss")),
    ("Accuracy", ("accuracy", "eval_accuracy")),
    ("F1", ("f1",)),
    ("Exact match", ("exact_match", "exact")),
    ("Matthews correlation", ("matthew_corr",)),
    ("Pearson correlation", ("pearson",)),
    ("Spearman correlation", ("spearman",)),
    ("Mean squared error", ("MSE",)),
    ("Exact spans in training", ("exact_span",)),
    ("Answerability in training", ("answerability_accuracy",)),
    ("Learning rate", ("learning_rate",)),
)
# What stands before the names of scores of a part of the dev data.
PARTS = ("mm", "middle", "high", "HasAns", "NoAns")
COLORS = {"train": "tab:gray", "eval": "tab:red"}
# Lines of several runs differ in colour, those of one run in style.
STYLES = {"train": ":", "eval": "-"}
# A line of fewer points shows each of them: a single one has no line.
FEW_POINTS = 20


def read_series(path):
    """The values of a training by split and name.

    Returns:
      Dict from (split, name) to a list of steps and a list of values.

    Raises:
      ValueError: if there is none, or the file is something else.
    """
    series: dict = {}
    for record in read_records(path):
        for name in record.keys() - {"split", "step", "time"}:
            key = record["split"], name
            steps, values = series.setdefault(key, ([], []))
            steps.append(record["step"])
            values.append(record[name])
    if not series:
        raise ValueError(f"{path} holds no metrics. Has the training begun?")
    return series


def read_records(path):
    """Yields the objects of the lines of a metrics.jsonl.

    A last line that a kill or a full disk has torn is left out.
    """
    # What stands behind the last end of a line was not written whole.
    *lines, rest = filesystem.read_file(path).split(b"\n")
    for number, line in enumerate([*lines, rest], 1):
        where = f"{path}, line {number}"
        try:
            record = filesystem.parse_json(line, where)
            if not {"split", "step"} <= record.keys():
                raise ValueError(
                    f"{where} lacks split or step. Is it of a training?"
                )
        except ValueError:
            if number <= len(lines):
                raise
            if rest:
                logging.warning("%s is torn and left out.", where)
            return
        yield record


def import_matplotlib():
    """Returns the module, with `figure` in it.

    Raises:
      ImportError: if it is not there.
    """
    try:
        import matplotlib
        import matplotlib.figure
    except ImportError as error:
        raise ImportError(
            "Drawing needs matplotlib: pip install matplotlib."
        ) from error
    return matplotlib


def name_runs(paths):
    """Names runs by the folders of their files, as short as tells them apart.

    Args:
      paths: N different ones.

    Returns:
      N names: the folder, or where two are alike the folder it is in, too.
    """
    parts = [os.path.abspath(path).split(os.sep) for path in paths]
    # Files of one folder are told apart by their own names.
    folders = [some[:-1] for some in parts]
    parts = folders if len({*map(tuple, folders)}) == len(paths) else parts
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(some[-length:]) for some in parts]
        if len(set(names)) == len(names):
            break
    return names


def find_lines(series, names):
    """Finds what one panel shows of a run.

    Args:
      series: from `read_series`.
      names: those of the panel.

    Returns:
      Dict from a label, such as "train", "eval" or "NoAns", to (split, name).
    """
    lines = {}
    for split, name in sorted(series, reverse=True):  # "train" is the first.
        part, _, rest = name.partition("_")
        if name in names:
            lines[split] = split, name
        elif part in PARTS and rest in names:
            lines[part] = split, name
    return lines


def choose_panels(runs):
    """Returns those of PANELS that any of several runs has values for.

    Args:
      runs: dict from the name of a run to its series.

    Raises:
      ValueError: if there is none.
    """
    panels = [
        (title, names)
        for title, names in PANELS
        if any(find_lines(series, names) for series in runs.values())
    ]
    titles = [title for title, _ in panels]
    # Pretraining's is a sum of losses, of which the first tells more.
    if PANELS[0][0] in titles and "Loss" in titles:
        del panels[titles.index("Loss")]
    if not panels:
        known = sorted({name for _, names in PANELS for name in names})
        raise ValueError(
            f"{', '.join(runs)}: no metric is any of {', '.join(known)}. Are "
            "they of a training?"
        )
    return panels


def draw_panel(axes, runs, title, names):
    """Draws one of PANELS.

    Args:
      axes: matplotlib's.
      runs: as for `choose_panels`.
      title: of the panel.
      names: likewise.
    """
    for number, (run, series) in enumerate(runs.items()):
        for label, key in find_lines(series, names).items():
            steps, values = series[key]
            kwargs = {"color": COLORS.get(label), "label": label}
            if len(runs) > 1:
                kwargs = {
                    "color": f"C{number}",
                    "label": f"{run}: {label}",
                    "linestyle": STYLES.get(label, "--"),
                }
            marker = "." if len(steps) < FEW_POINTS else ""
            axes.plot(steps, values, marker=marker, **kwargs)
    axes.set(title=title, xlabel="step")
    axes.locator_params("x", integer=True)
    if len(runs) == 1:
        axes.legend(frameon=False, fontsize="small")


def draw(runs, title=""):
    """Returns matplotlib's figure with a panel for each that was measured.

    Args:
      runs: dict from the name of a run to its series, from `read_series`.
      title: heading of the picture.

    Raises:
      ImportError: if matplotlib is not there.
      ValueError: as `choose_panels`.
    """
    figure = import_matplotlib().figure
    panels = choose_panels(runs)
    columns = -(-len(panels) // 2)
    picture = figure.Figure(figsize=(4 * columns, 6), layout="constrained")
    picture.suptitle(title)
    for place, panel in enumerate(panels, 1):
        draw_panel(picture.add_subplot(2, columns, place), runs, *panel)
    if len(runs) > 1:  # One legend for all: each panel would be full of it.
        lines = {
            line.get_label(): line
            for axes in picture.axes
            for line in axes.get_lines()
        }
        picture.legend(
            lines.values(), lines, loc="outside lower center", ncols=2 * columns
        )
    return picture


def run(args):
    """Writes a picture with one panel for each of PANELS that was measured."""
    files = filesystem.expand_files(args.metrics_file)
    filesystem.check_outputs(
        {"--output_file": [args.output_file]}, {"--metrics_file": files}
    )
    if not args.output_file.endswith(ENDINGS):
        raise ValueError(
            f"--output_file={args.output_file} must end in one of "
            f"{', '.join(ENDINGS)}."
        )
    runs = dict(zip(name_runs(files), map(read_series, files), strict=True))
    picture = draw(runs, args.title)
    with filesystem.replacing(args.output_file) as temporary:
        picture.savefig(temporary, format=args.output_file.rpartition(".")[2])
    print(f"Wrote {args.output_file}.")
