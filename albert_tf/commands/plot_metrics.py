"""Draws the curves of trainings from their metrics.jsonl.

    albert plot_metrics --metrics_file=out/metrics.jsonl \
        --output_file=curves.svg

Several runs are drawn over each other, named by their folders:

    albert plot_metrics --metrics_file='out/run_*/metrics.jsonl' \
        --output_file=runs.svg

Needs matplotlib: pip install 'albert_tf[plots]'.
"""

import dataclasses

from albert_tf import flags

PROGRAM = "albert_tf.tools.plot_metrics"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlotFlags(flags.Flags):
    """What to draw, and where."""

    metrics_file: str = flags.flag(
        required=True,
        help="metrics.jsonl of a training, or of several: globs, with commas.",
    )
    output_file: str = flags.flag(
        required=True, help="Picture to write: .svg, .png or .pdf."
    )
    title: str = flags.flag("", "Heading of the picture.")


def main():
    """The command."""
    flags.launch(PROGRAM, PlotFlags)
