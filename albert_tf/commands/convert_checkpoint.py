"""Writes a pretrained model in another form, and checks what was written.

    albert convert_checkpoint \
        --from=albert_base.tar.gz --to=hf --format=hf

The folder that is written holds weights, config and vocabulary. It appears
only after it was read again and found to be the same, in weights and outputs.
"""

import dataclasses
from typing import Literal

from albert_tf import flags
from albert_tf.commands import groups

PROGRAM = "albert_tf.tools.convert_checkpoint"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertFlags(groups.FilesFlags):
    """What to read and what to write."""

    from_: str = flags.flag(
        required=True,
        help="Model: TF1 prefix, .index file, folder or tar, TF Hub module of "
        "TF1, or Hugging Face folder.",
    )
    to: str = flags.flag(
        required=True, help="Folder to write; it must not exist, or be empty."
    )
    format: Literal["tf1", "own", "hf"] = flags.flag(
        "hf",
        "tf1 for the release's scripts, own, or hf for Hugging Face.",
    )
    head: Literal["auto", "classes", "regression", "multi_label", "choices"] = (
        flags.flag(
            "auto",
            "What a fine-tuned model's output_weights compute, where no "
            "head.json beside it tells: choices are RACE's.",
        )
    )
    keep_slots: bool = flags.flag(
        False, "Whether to keep the optimizer's slots and the step."
    )


def main():
    """The command."""
    flags.launch(PROGRAM, ConvertFlags)
