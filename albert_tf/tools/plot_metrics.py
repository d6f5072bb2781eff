"""Draws the curves of a training from its metrics.jsonl.

    python -m albert_tf.tools.plot_metrics --metrics_file=out/metrics.jsonl \
        --output_file=curves.svg

Needs matplotlib: pip install 'albert_tf[plots]'.
"""

import dataclasses
import json
import pathlib

from albert_tf import flags

PANELS = (
    ("Masked-LM loss", "masked_lm_loss"),
    ("Masked-LM accuracy", "masked_lm_accuracy"),
    ("Sentence-order accuracy", "sentence_order_accuracy"),
    ("Learning rate", "learning_rate"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlotFlags:
    """What to draw, and where."""

    metrics_file: str = flags.flag(
        required=True, help="metrics.jsonl of a training."
    )
    output_file: str = flags.flag(
        required=True, help="Picture to write: .svg, .png or .pdf."
    )
    title: str = flags.flag("", "Heading of the picture.")


def read_series(path):
    """The values of a training by split and name.

    Args:
      path: a metrics.jsonl.

    Returns:
      Dict from (split, name) to a list of steps and a list of values.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if it holds nothing.
    """
    series = {}
    for line in pathlib.Path(path).read_text().splitlines():
        record = json.loads(line)
        for name, value in record.items():
            if name not in ("split", "step", "time"):
                steps, values = series.setdefault(
                    (record["split"], name), ([], [])
                )
                steps.append(record["step"])
                values.append(value)
    if not series:
        raise ValueError(f"{path} holds no metrics. Has the training begun?")
    return series


def run(args):
    """Writes a picture with one panel for each metric."""
    series = read_series(args.metrics_file)
    try:
        from matplotlib import figure
    except ImportError as error:
        raise ImportError(
            "Drawing needs matplotlib: pip install 'albert_tf[plots]'."
        ) from error
    picture = figure.Figure(figsize=(10, 6), layout="constrained")
    picture.suptitle(args.title)
    for axes, (title, name) in zip(
        picture.subplots(2, 2).flat, PANELS, strict=True
    ):
        for split, color in (("train", "tab:gray"), ("eval", "tab:red")):
            if (split, name) in series:
                axes.plot(*series[split, name], color=color, label=split)
        axes.set(title=title, xlabel="step")
        if axes.lines:
            axes.legend()
    picture.savefig(args.output_file)
    print(f"Wrote {args.output_file}.")


if __name__ == "__main__":
    flags.launch(run, PlotFlags)
