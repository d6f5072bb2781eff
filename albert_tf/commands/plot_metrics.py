r"""Plots the training curves of a metrics.jsonl.

    albert plot_metrics --metrics_file=out/metrics.jsonl \
        --output_file=curves.svg

Requires matplotlib: pip install matplotlib.
"""

import dataclasses

from albert_tf import flags

PROGRAM = "albert_tf.tools.plot_metrics"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlotFlags(flags.Flags):
    """Metrics file, output file and title."""

    metrics_file: str = flags.flag(
        required=True, help="metrics.jsonl of a training run."
    )
    output_file: str = flags.flag(
        required=True, help="Output image: .svg, .png or .pdf."
    )
    title: str = flags.flag("", "Title of the plot.")


def main():
    """Runs the command."""
    flags.launch(PROGRAM, PlotFlags)
