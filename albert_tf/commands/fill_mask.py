"""Lets a pretrained model guess the words that stand as [MASK] in a text.

    albert fill_mask --init_checkpoint=out \
        --spm_model_file=30k-clean.model --text="The cat [MASK] on the mat."

prints the text and, for each [MASK], the most probable pieces; with
--next_text also how probable it is that the second text follows the first.
"""

import dataclasses

from albert_tf import flags
from albert_tf.commands import groups

PROGRAM = "albert_tf.tools.fill_mask"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FillMaskFlags(groups.ModelFlags):
    """A model and a text with gaps."""

    text: str = flags.flag(
        required=True, help="Texts with [MASK] in them, one a line."
    )
    next_text: str | None = flags.flag(
        help="What follows each text, one a line: shows how probable it is "
        "that the two are in order. [MASK]s are then optional."
    )
    top_k: int = flags.flag(
        5, "Guesses for each [MASK].", at_least=1, at_most=100_000
    )


def main():
    """The command."""
    flags.launch(PROGRAM, FillMaskFlags)
