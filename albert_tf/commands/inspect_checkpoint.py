"""Prints a checkpoint's weight names, shapes, parameter counts and heads.

albert inspect_checkpoint --init_checkpoint=out
"""

import dataclasses

from albert_tf.commands import groups


@dataclasses.dataclass(frozen=True, kw_only=True)
class InspectFlags(groups.CheckpointFlags):
    """Checkpoint to inspect."""


COMMAND = "albert_tf.programs.inspect_checkpoint", InspectFlags
