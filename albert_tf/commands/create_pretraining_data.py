r"""Turns text into pretraining records: masked n-grams and ordered segments.

The text is UTF-8, one sentence a line, with a blank line between documents.

    python create_pretraining_data.py --input_file='text/*.txt' \
        --output_file=records/train.tfrecord --num_shards=16 --num_workers=8 \
        --spm_model_file=30k-clean.model --max_seq_length=512
"""

import dataclasses
from typing import Literal

from albert_tf import flags
from albert_tf.data.pretraining import limits

PROGRAM = "albert_tf.programs.create_pretraining_data"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataFlags(flags.Flags):
    """What is read, what is written, and how sequences are made of it."""

    input_file: str = flags.flag(
        required=True, help="Text files: globs, separated by commas."
    )
    output_file: str = flags.flag(
        required=True,
        help="Record files, separated by commas; or one name, see num_shards.",
    )
    num_shards: int = flags.flag(
        1,
        "Files to write: above 1, named NAME-00000-of-NNNNN.tfrecord.",
        at_least=1,
        at_most=limits.MAX_NUM_SHARDS,
    )
    num_workers: int = flags.flag(
        1,
        "Processes. The records are the same for any number.",
        at_least=1,
        at_most=256,
    )
    spm_model_file: str | None = flags.flag(
        help="SentencePiece model of the English models."
    )
    vocab_file: str | None = flags.flag(
        help="WordPiece vocabulary of the Chinese models; not needed, and not "
        "read, with spm_model_file."
    )
    do_lower_case: bool = flags.flag(True, "Whether to lower-case the text.")
    keep_accents: bool = flags.flag(
        False, "Whether combining characters (accents) stay in the text."
    )
    max_seq_length: int = flags.flag(
        512,
        "Tokens per sequence.",
        at_least=5,
        at_most=limits.MAX_SEQ_LENGTH,
    )
    sentence_objective: Literal["sop", "nsp", "none"] = flags.flag(
        "sop",
        "Label 1 means: segments swapped (sop), the second segment from "
        "another document (nsp), never given (none).",
    )
    random_next_sentence: bool = flags.flag(
        False, "The release's name for sentence_objective=nsp."
    )
    short_seq_prob: float = flags.flag(
        0.1,
        "Share of documents whose sequences are made short.",
        at_least=0,
        at_most=1,
    )
    masked_lm_prob: float = flags.flag(
        0.15, "Share of a sequence's tokens to mask.", above=0, at_most=1
    )
    max_predictions_per_seq: int = flags.flag(
        20, "Tokens to mask in a sequence at most.", at_least=1
    )
    ngram: int = flags.flag(
        3,
        "Words of the longest masked n-gram.",
        at_least=1,
        at_most=limits.MAX_NGRAM,
    )
    favor_shorter_ngram: bool = flags.flag(
        True, "Whether n words have a chance of 1/n, or the reverse."
    )
    do_whole_word_mask: bool = flags.flag(
        True, "Whether to mask whole words, or single tokens."
    )
    do_permutation: bool = flags.flag(
        False, "Whether to also shuffle and predict as many other n-grams."
    )
    dupe_factor: int = flags.flag(
        40,
        "Times each document is used, with other masks and splits.",
        at_least=1,
        at_most=limits.MAX_DUPE_FACTOR,
    )
    random_seed: int = flags.flag(
        12345,
        "Decides everything random.",
        at_least=0,
        at_most=flags.MAX_SEED,
    )
    progress: bool = flags.flag(True, "Whether to show progress on stderr.")
    input_file_mode: str = flags.flag(
        "r", "Ignored: text is read as UTF-8, in either mode."
    )


def main():
    """The command."""
    flags.launch(PROGRAM, DataFlags)
