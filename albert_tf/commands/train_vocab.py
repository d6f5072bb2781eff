r"""Trains a SentencePiece vocabulary like the released English one.

    albert train_vocab --input_file=all.txt \
        --model_prefix=30k-clean --vocab_size=30000

writes `30k-clean.model`, `30k-clean.vocab` and, next to them,
`tokenizer_settings.json`; it never overwrites existing files. The text is
normalized exactly as the tokenizer will normalize it. It is streamed twice,
first to check and count the lines, then to sample `input_sentence_size` of
them, so a corpus may be far larger than memory.
"""

import dataclasses
import os

from albert_tf import settings
from albert_tf.commands import groups
from albert_tf.flags import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainVocabFlags(groups.TextFlags):
    """Training text and properties of the vocabulary."""

    do_lower_case: bool = flag(True, "Whether to lowercase the text.")
    keep_accents: bool = flag(
        False, "Whether to keep accents and other combining characters."
    )
    input_file: str = flag(
        required=True, help="UTF-8 text files: comma-separated paths or globs."
    )
    model_prefix: str = flag(
        required=True,
        help="Prefix of the output files PREFIX.model and PREFIX.vocab.",
    )
    vocab_size: int = flag(
        30000,
        "Number of pieces, including the 13 predefined ones.",
        at_least=14,
        at_most=10_000_000,
    )
    input_sentence_size: int = flag(
        10_000_000,
        "Maximum number of lines to train on, sampled at random.",
        at_least=101,
        at_most=1_000_000_000,
    )
    character_coverage: float = flag(
        0.99995,
        "Fraction of the text's characters covered by the pieces.",
        at_least=0.98,
        at_most=1,
    )
    random_seed: int = settings.seed_setting("Seed of the line sampling.")
    num_threads: int = flag(
        os.cpu_count() or 1,
        "Number of threads; it slightly affects the scores.",
        at_least=1,
        at_most=1024,
    )


COMMAND = "albert_tf.programs.train_vocab", TrainVocabFlags
