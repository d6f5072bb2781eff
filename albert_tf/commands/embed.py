"""Turns lines of text into vectors.

    albert embed --init_checkpoint=out \
        --input_file=lines.txt --output_file=vectors.npz

A .npz holds `vectors` [N, H], one for each line, blank ones too; with
--pooling=tokens it holds `vectors` [all tokens, H], `lengths` [N], `ids` and
`offsets` [all tokens, 2], which are characters of the line (start, end). A
.jsonl holds one object a line with the same names.

Lines are read as they are needed, from files of any size or from a pipe
(--input_file=/dev/stdin); the memory used does not grow with their number. An
.npz takes twice its size on the disk while it is written.
"""

import dataclasses
from typing import Literal

from albert_tf import flags
from albert_tf.commands import groups
from albert_tf.model.config import MAX_LAYERS

PROGRAM = "albert_tf.tools.embed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbedFlags(groups.ModelFlags):
    """A model, lines, and what a vector of them is."""

    input_file: str = flags.flag(
        required=True, help="Text files, a text a line: globs, with commas."
    )
    output_file: str = flags.flag(
        required=True, help="File to write: .npz or .jsonl."
    )
    pooling: Literal["pooled", "mean", "tokens"] = flags.flag(
        "mean",
        "pooled: the model's own vector; mean: of all tokens, without [CLS] "
        "and [SEP]; tokens: one for each of these.",
    )
    layer: int = flags.flag(
        -1,
        "Layer to take tokens of, from 0; -1 is the last. Not for pooled.",
        at_least=-MAX_LAYERS,
        below=MAX_LAYERS,
    )
    max_seq_length: int = flags.flag(
        512,
        "Tokens a line, with [CLS] and [SEP]; longer ones are cut.",
        at_least=3,
    )
    tokens_per_batch: int = flags.flag(
        4096,
        "Tokens computed at a time, with padding.",
        at_least=1,
        at_most=flags.MAX_TOKENS,
    )


def main():
    """The command."""
    flags.launch(PROGRAM, EmbedFlags)
