"""Draws the curves of a training from its metrics.jsonl."""

import logging

from albert_tf import filesystem

ENDINGS = (".svg", ".png", ".pdf")
PANELS = (
    ("Masked-LM loss", "masked_lm_loss"),
    ("Masked-LM accuracy", "masked_lm_accuracy"),
    ("Sentence-order accuracy", "sentence_order_accuracy"),
    ("Loss below that of frequencies", "frequency_gain"),
    ("Entropy of attention", "attention_entropy"),
    ("Learning rate", "learning_rate"),
)


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


def run(args):
    """Writes a picture with one panel for each of PANELS that was measured."""
    filesystem.check_outputs(
        {"--output_file": [args.output_file]},
        {"--metrics_file": [args.metrics_file]},
    )
    if not args.output_file.endswith(ENDINGS):
        raise ValueError(
            f"--output_file={args.output_file} must end in one of "
            f"{', '.join(ENDINGS)}."
        )
    series = read_series(args.metrics_file)
    try:
        from matplotlib import figure
    except ImportError as error:
        raise ImportError(
            "Drawing needs matplotlib: pip install matplotlib."
        ) from error
    names = {name for _, name in series}
    panels = [panel for panel in PANELS if panel[1] in names]
    if not panels:
        raise ValueError(
            f"{args.metrics_file} holds none of "
            f"{', '.join(name for _, name in PANELS)}. Is it of a pretraining?"
        )
    columns = -(-len(panels) // 2)
    picture = figure.Figure(figsize=(4 * columns, 6), layout="constrained")
    picture.suptitle(args.title)
    for place, (title, name) in enumerate(panels, 1):
        axes = picture.add_subplot(2, columns, place)
        for split, color in (("train", "tab:gray"), ("eval", "tab:red")):
            if (split, name) in series:
                axes.plot(*series[split, name], color=color, label=split)
        axes.set(title=title, xlabel="step")
        axes.legend()
    with filesystem.replacing(args.output_file) as temporary:
        picture.savefig(temporary, format=args.output_file.rpartition(".")[2])
    print(f"Wrote {args.output_file}.")
