r"""Converts a pretrained checkpoint to another format and verifies the result.

    albert convert_checkpoint \
        --from=albert_base_v2.tar.gz --to=hf --format=hf

The output folder contains weights, config and vocabulary. It appears only
after it has been read back and its weights and outputs match the original.
"""

import dataclasses
from typing import Literal

from albert_tf.commands import groups
from albert_tf.flags import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertFlags(groups.FormatFlags, groups.CopyFlags):
    """Source, destination and format of a conversion."""

    head: Literal[
        "auto", "classes", "regression", "multi_label", "choices", "tags"
    ] = flag(
        "auto",
        "Kind of a fine-tuned model's output_weights if there is no head.json "
        "next to it; choices: RACE; tags: of words.",
    )
    keep_slots: bool = flag(
        False, "Whether to keep the optimizer slots and the step."
    )


COMMAND = "albert_tf.programs.convert_checkpoint", ConvertFlags
