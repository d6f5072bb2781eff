r"""Counts what a model is made of: parameters, operations and memory.

    albert analyze --albert_config_file=configs/model/v2/base.json \
        --compare=configs/model/bert/base.json --output_file=analysis.html

No model is built: all figures follow from the configs, except with
--measure_speed. Prints tables; the page also has plots, which require
matplotlib: pip install matplotlib.
"""

import dataclasses

from albert_tf import flags
from albert_tf.commands import groups
from albert_tf.data.pretraining import rules
from albert_tf.flags import flag

# Of batches and sequences.
MAX_SIZE = 1 << 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnalyzeFlags(groups.PageFlags):
    """Configs, and sizes of batches."""

    albert_config_file: str = flag(
        required=True, help="JSON file with the architecture."
    )
    compare: str | None = flag(
        help="Other configs to show beside --albert_config_file: "
        "comma-separated globs."
    )
    batch_sizes: str = flag(
        "8", "Comma-separated batch sizes to estimate memory for."
    )
    seq_lengths: str = flag(
        "",
        "Comma-separated sequence lengths to estimate memory for, in tokens. "
        "Default: 128 and 512, if all models have so many positions.",
    )
    max_predictions_per_seq: int = flag(
        rules.MaskingRule.max_predictions,
        "Maximum number of masked tokens per sequence.",
        at_least=1,
        at_most=1 << 16,
    )
    measure_speed: bool = flag(
        False,
        "Also train the models, of random weights, for some steps of the "
        "smallest batch size and length: minutes for large ones. They take "
        "turns, so all must fit into memory together.",
    )

    def check(self):
        """Raises ValueError if a list or an output file is malformed."""
        super().check()
        self.parse_sizes("batch_sizes")
        if self.seq_lengths:
            self.parse_sizes("seq_lengths")

    def parse_sizes(self, name):
        """Returns the numbers of batch_sizes or seq_lengths, ascending.

        Raises:
          ValueError: if one is not a whole number from 1 to MAX_SIZE.
        """
        return flags.parse_numbers(
            name, getattr(self, name), at_least=1, at_most=MAX_SIZE
        )


COMMAND = "albert_tf.lab.analyze", AnalyzeFlags
