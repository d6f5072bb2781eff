"""Draws the curves of a training from its metrics.jsonl.

    albert plot_metrics --metrics_file=out/metrics.jsonl \
        --output_file=curves.svg

Needs matplotlib: pip install 'albert_tf[plots]'.
"""

import dataclasses

from albert_tf import flags

PROGRAM = "albert_tf.tools.plot_metrics"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlotFlags(flags.Flags):
    """What to draw, and where."""

    metrics_file: str = flags.flag(
        required=True, help="metrics.jsonl of a training."
    )
    output_file: str = flags.flag(
        required=True, help="Picture to write: .svg, .png or .pdf."
    )
    title: str = flags.flag("", "Heading of the picture.")


def main():
    """The command."""
    flags.launch(PROGRAM, PlotFlags)
