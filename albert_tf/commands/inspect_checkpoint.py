"""Prints a checkpoint's weight names, shapes, parameter counts and heads.

albert inspect_checkpoint --init_checkpoint=out
"""

import dataclasses
import functools

from albert_tf import flags
from albert_tf.commands import groups

PROGRAM = "albert_tf.programs.inspect_checkpoint"


@dataclasses.dataclass(frozen=True, kw_only=True)
class InspectFlags(groups.CheckpointFlags):
    """Checkpoint to inspect."""


main = functools.partial(flags.launch, PROGRAM, InspectFlags)
