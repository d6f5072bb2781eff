"""Shows what a pretrained model's files hold: names, shapes, counts, heads.

albert inspect_checkpoint --init_checkpoint=out
"""

import dataclasses

from albert_tf import flags

PROGRAM = "albert_tf.tools.inspect_checkpoint"


@dataclasses.dataclass(frozen=True, kw_only=True)
class InspectFlags(flags.Flags):
    """What to look at."""

    init_checkpoint: str = flags.flag(
        required=True,
        help="Model: TF1 prefix, .index file, folder or tar, or Hugging Face "
        "folder.",
    )


def main():
    """The command."""
    flags.launch(PROGRAM, InspectFlags)
