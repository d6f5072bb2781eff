r"""Plots the training curves of one or several runs.

    albert plot_metrics --metrics_file=out/metrics.jsonl \
        --output_file=curves.svg

Several runs share the panels and are named by their folders:

    albert plot_metrics --metrics_file='out/run_*/metrics.jsonl' \
        --output_file=runs.svg

Runs with different batches are compared over the tokens they have seen:

    albert plot_metrics --metrics_file='a/metrics.jsonl,b/metrics.jsonl' \
        --tokens_per_step=4096,8192 --output_file=runs.svg

Requires matplotlib: pip install matplotlib.
"""

import dataclasses

from albert_tf import flags
from albert_tf.flags import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlotFlags(flags.Flags):
    """Metrics files, output file, title, and what to draw them over."""

    metrics_file: str = flag(
        required=True,
        help="metrics.jsonl of one or several training runs: comma-separated "
        "globs.",
    )
    output_file: str = flag(
        required=True, help="Output image: .svg, .png or .pdf."
    )
    title: str = flag("", "Title of the plot.")
    tokens_per_step: str = flag(
        "",
        "Tokens of a training step, train_batch_size * max_seq_length, to draw "
        "over tokens instead of steps. Comma-separated for several runs, in "
        "the order of their files.",
    )


COMMAND = "albert_tf.reports.plot_metrics", PlotFlags
