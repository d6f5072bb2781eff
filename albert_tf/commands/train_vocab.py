"""Trains a SentencePiece vocabulary as the released English one was trained.

    albert train_vocab --input_file=all.txt \
        --model_prefix=30k-clean --vocab_size=30000

writes `30k-clean.model`, `30k-clean.vocab` and, beside them,
`tokenizer_settings.json`, and replaces none that is there. The text is
normalized as the tokenizer will normalize it. It is read twice and never held:
first to check and count the lines, then to draw `input_sentence_size` of them,
so a corpus may be far larger than memory.
"""

import dataclasses
import os

from albert_tf import flags

PROGRAM = "albert_tf.tools.train_vocab"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainVocabFlags(flags.Flags):
    """What to train on and what to make of it."""

    input_file: str = flags.flag(
        required=True,
        help="Text files, UTF-8: a comma-separated list of globs.",
    )
    model_prefix: str = flags.flag(
        required=True, help="Where to write: PREFIX.model and PREFIX.vocab."
    )
    vocab_size: int = flags.flag(
        30000,
        "Number of pieces, with the 13 that are always there.",
        at_least=14,
        at_most=10_000_000,
    )
    do_lower_case: bool = flags.flag(True, "Whether to lower-case the text.")
    keep_accents: bool = flags.flag(
        False, "Whether to keep accents and other combining characters."
    )
    input_sentence_size: int = flags.flag(
        10_000_000,
        "Lines to train on; of more, so many are drawn at random.",
        at_least=1,
        at_most=1_000_000_000,
    )
    character_coverage: float = flags.flag(
        0.99995,
        "Share of the text's characters that get a piece.",
        at_least=0.98,
        at_most=1,
    )
    random_seed: int = flags.flag(
        12345,
        "Seed of the drawing of lines.",
        at_least=0,
        at_most=flags.MAX_SEED,
    )
    num_threads: int = flags.flag(
        os.cpu_count() or 1,
        "Threads; the scores depend slightly on how many there are.",
        at_least=1,
        at_most=1024,
    )


def main():
    """The command."""
    flags.launch(PROGRAM, TrainVocabFlags)
