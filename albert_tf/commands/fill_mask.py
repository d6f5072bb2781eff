r"""Predicts the [MASK] tokens of a text with a pretrained checkpoint.

    albert fill_mask --init_checkpoint=out --text="The cat [MASK] on the mat."

prints the text and the most probable pieces for each [MASK]. With --next_text
it also prints the probability that the second text follows the first.
"""

import dataclasses

from albert_tf.commands import groups
from albert_tf.flags import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class FillMaskFlags(groups.ModelFlags):
    """Model and masked text."""

    text: str = flag(
        required=True,
        help="Texts that contain [MASK], one per line, or in several flags.",
        has_lines=True,
    )
    next_text: str | None = flag(
        help="Continuation of each text, one per line: prints the probability "
        "that the two are in order. [MASK] is then optional.",
        has_lines=True,
    )
    top_k: int = flag(
        5, "Number of predictions per [MASK].", at_least=1, at_most=100_000
    )


COMMAND = "albert_tf.programs.fill_mask", FillMaskFlags
