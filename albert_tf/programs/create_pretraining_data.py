r"""Turns text into pretraining records: masked n-grams and ordered segments.

The text is UTF-8, one sentence a line, with a blank line between documents.

    python create_pretraining_data.py --input_file='text/*.txt' \
        --output_file=records/train.tfrecord --num_shards=16 --num_workers=8 \
        --spm_model_file=30k-clean.model --max_seq_length=512
"""

import dataclasses
import logging
from typing import Literal

from albert_tf import filesystem, flags
from albert_tf.data.pretraining import masking, sequences, shards


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
        at_most=shards.MAX_NUM_SHARDS,
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
        at_most=shards.MAX_SEQ_LENGTH,
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
        at_most=shards.MAX_NGRAM,
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
        at_most=shards.MAX_DUPE_FACTOR,
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


def run(args):
    """Writes records and their sidecars; returns the statistics."""
    settings = make_settings(args)
    inputs = filesystem.expand_files(args.input_file)
    outputs = shards.output_names(args.output_file, args.num_shards)
    filesystem.check_outputs(
        {"--output_file": shards.written_files(outputs)},
        {
            "--input_file": inputs,
            "--spm_model_file": [args.spm_model_file],
            "--vocab_file": [args.vocab_file],
        },
    )
    statistics = shards.create_shards(
        inputs,
        outputs,
        settings,
        num_workers=args.num_workers,
        flags=dataclasses.asdict(args),
        has_progress=args.progress,
    )
    report(statistics, args)
    return statistics


def make_settings(args):
    """The settings of the library, from the flags."""
    if not args.spm_model_file and not args.vocab_file:
        raise ValueError(
            "Please give --spm_model_file (English) or --vocab_file (Chinese)."
        )
    if args.spm_model_file and args.vocab_file:
        logging.warning(
            "--vocab_file=%s is not read: --spm_model_file holds the "
            "vocabulary.",
            args.vocab_file,
        )
    objective = args.sentence_objective
    if args.random_next_sentence:
        if objective == "none":
            raise ValueError(
                "--random_next_sentence contradicts --sentence_objective=none."
            )
        objective = "nsp"
    return shards.Settings(
        tokenizer=(
            ("spm_model_file", args.spm_model_file or None),
            ("vocab_file", None if args.spm_model_file else args.vocab_file),
            ("do_lower_case", args.do_lower_case),
            ("keep_accents", args.keep_accents),
        ),
        sequence=sequences.SequenceRule(
            max_seq_length=args.max_seq_length,
            short_seq_prob=args.short_seq_prob,
            sentence_objective=objective,
        ),
        masking=masking.MaskingRule(
            max_predictions=args.max_predictions_per_seq,
            masked_lm_prob=args.masked_lm_prob,
            ngram=args.ngram,
            favor_shorter_ngram=args.favor_shorter_ngram,
            do_whole_word_mask=args.do_whole_word_mask,
            do_permutation=args.do_permutation,
        ),
        dupe_factor=args.dupe_factor,
        seed=args.random_seed,
    )


def report(statistics, args):
    """Prints what was written, and warns of too few masks."""
    s = statistics
    print(
        f"Wrote {s['sequences']:,} sequences, {s['tokens']:,} tokens, from "
        f"{s['input_documents']:,} documents, {s['input_sentences']:,} "
        f"sentences, {s['input_tokens']:,} tokens times {args.dupe_factor}.\n"
        f"Masked {s['masked_share']:.1%} of the tokens; swapped "
        f"{s['swapped_share']:.1%} and made short {s['short_share']:.1%} of "
        f"the sequences. Left out {s['dropped_words']:,} single words."
    )
    if s["masked_share"] < 0.1:
        wanted = round(args.max_seq_length * args.masked_lm_prob)
        logging.warning(
            "Only %.1f%% of the tokens are masked. For %g%% of %d tokens, "
            "--max_predictions_per_seq would have to be %d.",
            100 * s["masked_share"],
            100 * args.masked_lm_prob,
            args.max_seq_length,
            wanted,
        )


def main():
    """The command."""
    flags.launch(run, DataFlags)
