r"""Splits text into sentences, one on each line, as pretraining needs them.

    albert split_sentences --input_file='wiki/*' --output_file=text.txt \
        --language=en

A blank line after each document stays. The package sentencex splits; it has
rules for about 60 languages, and for others those of a related language or of
English. It needs the extra `corpus`.
"""

import dataclasses

from albert_tf.commands import groups
from albert_tf.flags import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitFlags(groups.TextFlags):
    """Text, its language, and where to write the sentences."""

    input_file: str = flag(
        required=True, help="Text files: comma-separated paths or globs."
    )
    output_file: str = flag(required=True, help="Text file to write.")
    language: str = flag(
        required=True, help="Code of the language (ISO 639), such as en or hi."
    )
    join_lines: bool = flag(
        False,
        "Whether lines are wrapped: those between blank lines are joined.",
    )


COMMAND = "albert_tf.programs.split_sentences", SplitFlags
