"""Shows what a pretrained model's files hold: names, shapes, counts, heads.

albert inspect_checkpoint --init_checkpoint=out
"""

import dataclasses

from albert_tf import flags
from albert_tf.commands import groups

PROGRAM = "albert_tf.tools.inspect_checkpoint"


@dataclasses.dataclass(frozen=True, kw_only=True)
class InspectFlags(groups.CheckpointFlags):
    """What to look at."""


def main():
    """The command."""
    flags.launch(PROGRAM, InspectFlags)
