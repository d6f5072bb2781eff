r"""Computes vectors of lines of text.

    albert embed --init_checkpoint=out \
        --input_file=lines.txt --output_file=vectors.npz

A .npz file contains `vectors` [N, H], one per line, including blank lines.
With --pooling=tokens it contains `vectors` [all tokens, H], `lengths` [N],
`ids` and `offsets` [all tokens, 2]: the start and end of each token, as
character positions in its line. A .jsonl file contains one object per line,
with the same names.

Lines are read as they are needed, from files of any size or from a pipe
(--input_file=/dev/stdin); memory does not grow with their number. Writing an
.npz file takes twice its size on the disk.
"""

import dataclasses
from typing import Literal

from albert_tf import settings
from albert_tf.commands import groups
from albert_tf.flags import flag
from albert_tf.model.config import MAX_LAYERS
from albert_tf.tasks.recipes import Recipe

Poolings = Literal["mean", "mean_all", "cls", "pooled", "tokens"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbedFlags(groups.ModelFlags):
    """Model, input lines and pooling."""

    input_file: str = flag(
        required=True,
        help="Text files, one text per line: comma-separated paths or globs.",
    )
    output_file: str = flag(required=True, help="Output file: .npz or .jsonl.")
    pooling: Poolings | None = flag(
        help="mean: mean of all tokens except [CLS] and [SEP]; mean_all: with "
        "them; cls: the vector of [CLS]; pooled: the model's pooled output; "
        "tokens: one vector per token, without [CLS] and [SEP]. Default: that "
        "of a model of run_embedding, else mean."
    )
    layer: int = flag(
        -1,
        "Layer to read the tokens from, counted from 0; -1 is the last. "
        "Unused with --pooling=pooled.",
        at_least=-MAX_LAYERS,
        below=MAX_LAYERS,
    )
    max_seq_length: int | None = flag(
        help="Maximum length of a line, in tokens with [CLS] and [SEP]; longer "
        "lines are truncated. Default: that of run_embedding, else 512, or "
        "the model's number of positions if that is less.",
        at_least=3,
    )
    tokens_per_batch: int = flag(
        Recipe.tokens_per_batch,
        "Number of tokens per batch, padding included.",
        at_least=1,
        at_most=settings.MAX_TOKENS,
    )


COMMAND = "albert_tf.programs.embed", EmbedFlags
