"""Converts text to pretraining records: masked n-grams and segment pairs."""

import dataclasses
import logging
import os

from albert_tf import filesystem
from albert_tf.data.pretraining import markup, rules, shards
from albert_tf.model.config import CONFIG_FILE, AlbertConfig
from albert_tf.settings import take
from albert_tf.text import coverage, tokenization
from albert_tf.weights import vocabulary_files

# More passes gain nothing for dynamic records: their masks differ in each epoch
# anyway, and a few passes suffice to vary the segments.
MANY_PASSES = 10
MUCH_LOST = 0.25  # About 0.1 is usual, of the ends of sequences.
BEAM_PACKAGES = "apache_beam", "google_crc32c"


def run(args):
    """Writes records and their sidecars; returns the statistics."""
    args = choose_lengths(args)
    settings = make_settings(args)
    outputs = shards.output_names(args.output_file, args.num_shards)
    create = create_with_beam if args.runner else create_locally
    statistics = create(args, outputs, settings)
    report(statistics, args)
    return statistics


def choose_lengths(args):
    """Returns the flags with the lengths that are not given."""
    length = args.max_seq_length or find_length(args)
    chosen = {
        "max_seq_length": length,
        "max_predictions_per_seq": args.max_predictions_per_seq
        or min(rules.MaskingRule.max_predictions, length),
    }
    return dataclasses.replace(args, **chosen)


def find_length(args):
    """Returns the length of records for the model beside the vocabulary."""
    vocabulary = args.spm_model_file or args.vocab_file or ""
    path = os.path.join(filesystem.folder_of(vocabulary), CONFIG_FILE)
    if not filesystem.exists(path):
        return 512
    return AlbertConfig.from_json_file(path).choose_length(None)


def create_locally(args, outputs, settings):
    """Writes the records with processes of this machine."""
    inputs = filesystem.expand_files(args.input_file)
    check_outputs(args, outputs, inputs)
    print(f"Reading {filesystem.list_briefly(inputs)}.", flush=True)
    warn_of_losses(inputs, settings)
    return shards.create_shards(
        inputs,
        outputs,
        settings,
        num_workers=args.num_workers,
        flags=dataclasses.asdict(args),
        has_progress=args.progress,
    )


def warn_of_losses(inputs, settings):
    """Warns if the tokenizer seems to be of another language."""
    tokenizer = tokenization.build_tokenizer(**dict(settings.tokenizer))
    lines = list(coverage.read_sample(inputs, settings.text.open))
    ids = [i for row in tokenizer.encode_batch(lines) for i in row]
    for warning in (
        coverage.find_lost_marks(lines, tokenizer.normalize),
        coverage.describe_unknown(ids, tokenizer),
        coverage.find_unsplit(lines),
        coverage.find_markup(lines),
    ):
        if warning:
            logging.warning("In the first lines, %s", warning)


def create_with_beam(args, outputs, settings):
    """Writes the records with an Apache Beam pipeline."""
    logging.disable(logging.WARNING)  # Beam warns of services it lacks.
    try:
        from albert_tf.data.pretraining import beam_pipeline
    except ModuleNotFoundError as error:
        if not str(error.name).startswith(BEAM_PACKAGES):
            raise
        raise ImportError(
            f"--runner={args.runner} requires Apache Beam, the extra `beam`: "
            "pip install 'apache-beam>=2.77,<3' google-crc32c."
        ) from None
    finally:
        logging.disable(logging.NOTSET)
    files = beam_pipeline.find_files(args.input_file, args.beam_options)
    check_outputs(args, outputs, [file.path for file in files])
    return beam_pipeline.create_shards(
        files,
        outputs,
        settings,
        runner=args.runner,
        options=args.beam_options,
        num_workers=args.num_workers,
        flags=dataclasses.asdict(args),
    )


def check_outputs(args, outputs, inputs):
    """Checks that no output is an input."""
    filesystem.check_outputs(
        {"--output_file": shards.written_files(outputs)},
        {
            "--input_file": inputs,
            "--spm_model_file": [args.spm_model_file],
            "--vocab_file": [args.vocab_file],
        },
    )


def make_settings(args):
    """Returns the `shards.Settings` given by the flags, with lengths."""
    files = vocabulary_files.choose_file(args.spm_model_file, args.vocab_file)
    if not files:
        raise ValueError(
            "Please give --spm_model_file (English) or --vocab_file (Chinese)."
        )
    (path,) = files.values()
    casing = vocabulary_files.read_casing(path)
    casing |= tokenization.take_casing(vars(args))
    if args.masking == "dynamic" and args.dupe_factor > MANY_PASSES:
        logging.warning(
            "--masking=dynamic with --dupe_factor=%d: the text is written %d "
            "times, where once suffices (--dupe_factor=1).",
            args.dupe_factor,
            args.dupe_factor,
        )
    return shards.Settings(
        tokenizer=tuple(sorted((files | casing).items())),
        sequence=take(
            rules.SequenceRule, args, sentence_objective=_objective(args)
        ),
        masking=take(
            rules.MaskingRule,
            args,
            max_predictions=args.max_predictions_per_seq,
        ),
        is_dynamic=args.masking == "dynamic",
        dupe_factor=args.dupe_factor,
        seed=args.random_seed,
        text=markup.TextFormat(args.input_format, args.text_key),
        words_from_spaces=args.words_from_spaces,
    )


def _objective(args):
    if not args.random_next_sentence:
        return args.sentence_objective
    if args.sentence_objective == "none":
        raise ValueError(
            "--random_next_sentence contradicts --sentence_objective=none. "
            "Give one of the two."
        )
    return "nsp"


def report(statistics, args):
    """Prints the statistics, and warns if few tokens are masked."""
    s = statistics
    masks = "Training will mask" if args.masking == "dynamic" else "Masked"
    print(
        f"Wrote {s['sequences']:,} sequences, {s['tokens']:,} tokens, from "
        f"{s['input_documents']:,} documents, {s['input_sentences']:,} "
        f"sentences, {s['input_tokens']:,} tokens, {args.dupe_factor} times "
        f"each.\n{masks} {s['masked_share']:.1%} of the tokens; swapped "
        f"{s['swapped_share']:.1%} and shortened {s['short_share']:.1%} of "
        f"the sequences. Dropped {s['dropped_words']:,} single words."
    )
    num_texts = s["tokens"] - rules.NUM_SPECIAL_TOKENS * s["sequences"]
    lost = 1 - num_texts / (s["input_tokens"] * args.dupe_factor)
    if lost > MUCH_LOST:
        logging.warning(
            "%.0f%% of the tokens are in no sequence, as lines are long for "
            "--max_seq_length=%d. Give more, or if they are paragraphs, "
            "divide them with split_sentences.",
            100 * lost,
            args.max_seq_length,
        )
    mean = s["tokens"] / s["sequences"]
    if mean < args.max_seq_length / 2 and s["short_share"] < 0.5:
        logging.warning(
            "Sequences have %.0f tokens in the mean, so most of each record is "
            "padding, which costs time. Are blank lines between documents "
            "only, not between paragraphs? If documents are so short, give a "
            "lower --max_seq_length than %d.",
            mean,
            args.max_seq_length,
        )
    if s["masked_share"] >= args.masked_lm_prob * 2 / 3:
        return
    wanted = round(args.max_seq_length * args.masked_lm_prob)
    cure = "set --nodo_whole_word_mask: the words are too long to be masked as "
    cure += "a whole"
    if args.max_predictions_per_seq < wanted:
        cure = f"set --max_predictions_per_seq to {wanted}"
    logging.warning(
        "Only %.1f%% of the tokens are masked. To mask %g%% of %d tokens, %s.",
        100 * s["masked_share"],
        100 * args.masked_lm_prob,
        args.max_seq_length,
        cure,
    )
