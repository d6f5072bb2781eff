"""Trains a SentencePiece vocabulary like the released English one."""

import io
import logging
import os
import random
import re
import tempfile
import textwrap

import sentencepiece

from albert_tf import filesystem, ownership
from albert_tf.data.pretraining import corpus, markup
from albert_tf.text import coverage, normalization, tokenization

# The options of the released vocabulary, from the release's README.
_RELEASED_OPTIONS: dict = {
    "model_type": "unigram",
    "pad_id": 0,
    "unk_id": 1,
    "bos_id": -1,
    "eos_id": -1,
    "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
    # A list: in a single string, the quotation mark would hide what follows.
    "user_defined_symbols": ["(", ")", '"', "-", ".", "–", "£", "€"],
    "shuffle_input_sentence": True,
}
# SentencePiece skips lines of more than 4192 bytes.
_MAX_LINE_CHARS = 1000
_WARNINGS_ONLY = 1


def run(args):
    """Trains a vocabulary and writes it; returns the path of the model."""
    files = filesystem.expand_files(args.input_file)
    path = f"{args.model_prefix}.model"
    with ownership.owning(path):
        _check_outputs(path, files)
        return _train_files(files, path, args)


def _check_outputs(path, files):
    """Raises ValueError if outputs exist, except of an unfinished run."""
    if os.path.basename(path) == ".model":
        raise ValueError(
            f"--model_prefix={path.removesuffix('.model')} is a folder; wanted "
            "a path that includes the start of a file name."
        )
    listing = f"{path.removesuffix('.model')}.vocab"
    folder = os.path.dirname(path)
    settings_file = os.path.join(folder, tokenization.SETTINGS_FILE)
    outputs = [path, listing, settings_file]
    filesystem.check_outputs(
        {"--model_prefix": outputs}, {"--input_file": files}
    )
    settings = tokenization.read_settings(folder) or {}
    if settings.get("vocabulary") == os.path.basename(path):
        outputs = [path]  # It is written last.
    for output in outputs:
        if filesystem.exists(output):
            raise ValueError(
                f"{output} already exists and belongs to another vocabulary. "
                "Each vocabulary needs a folder of its own: "
                "--model_prefix=FOLDER/NAME."
            )


def _train_files(files, path, args):
    """Trains on the lines of files and writes the outputs."""
    text = _text_format(args)
    markup.say_formats(map(text.detect, filter(filesystem.size, files)))
    num_lines = sum(1 for _ in _read_lines(files, args))
    if not num_lines:
        raise ValueError(f"There is no text in {', '.join(files)}.")
    sample = list(coverage.read_sample(files, text.open))
    normalize = _build_normalizer(args).normalize
    for warning in (
        coverage.find_lost_marks(sample, normalize),
        coverage.find_markup(sample),
    ):
        if warning:
            logging.warning("In the first lines, %s", warning)
    num_sampled = min(num_lines, args.input_sentence_size)
    print(f"Training on {num_sampled:,} of {num_lines:,} lines.", flush=True)
    model = _train(_training_text(files, num_lines, args), args)
    num_pieces = _write(model, path, args)
    print(
        f"Wrote {num_pieces:,} pieces to {path}; next to it are the list of "
        f"pieces (.vocab) and {tokenization.SETTINGS_FILE}."
    )
    return path


def _text_format(args):
    return markup.TextFormat(args.input_format, args.text_key)


def _read_lines(files, args):
    """Yields the lines of files that are not blank."""
    lines = corpus.read_lines(files, _text_format(args).open)
    return (line for line in lines if not normalization.is_blank(line))


def _build_normalizer(args):
    return normalization.SentenceNormalizer(
        args.do_lower_case, args.keep_accents
    )


def _training_text(files, num_lines, args):
    """Yields a random sample of lines, normalized; splits long ones."""
    normalizer = _build_normalizer(args)
    draw = random.Random(args.random_seed).random
    wanted = args.input_sentence_size
    for position, line in enumerate(_read_lines(files, args)):
        # `wanted` of the remaining lines: exact sampling without replacement.
        if draw() * (num_lines - position) >= wanted:
            continue
        wanted -= 1
        text = normalizer.normalize(line)
        if len(text) <= _MAX_LINE_CHARS:
            yield text
        else:
            yield from textwrap.wrap(
                text, _MAX_LINE_CHARS, break_on_hyphens=False
            )


def _train(lines, args):
    """Returns the trained model as bytes, after checking its special ids."""
    output, caught = io.BytesIO(), []

    def yield_lines():
        try:
            yield from lines
        except BaseException as error:  # SentencePiece hides it.
            caught.append(error)
            raise

    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=yield_lines(),
            model_writer=output,
            vocab_size=args.vocab_size,
            input_sentence_size=args.input_sentence_size,
            character_coverage=args.character_coverage,
            num_threads=args.num_threads,
            minloglevel=_WARNINGS_ONLY,
            **_RELEASED_OPTIONS,
        )
    except RuntimeError as error:
        if caught and not isinstance(caught[0], GeneratorExit):
            raise caught[0] from None
        raise ValueError(_explain(str(error), args)) from error
    model = sentencepiece.SentencePieceProcessor(model_proto=output.getvalue())
    wanted = tokenization.SentencePieceTokenizer.special_pieces
    first_pieces = tuple(model.IdToPiece(i) for i in range(len(wanted)))
    if first_pieces != wanted:
        raise ValueError(
            f"SentencePiece gave the first ids to {first_pieces}; wanted "
            f"{wanted}. Is its version newer than the tested ones?"
        )
    return output.getvalue()


def _explain(error, args):
    """Returns an error message with advice for a SentencePiece error."""
    if largest := re.search(r"size too high .* <= (\d+)", error):
        return (
            f"--vocab_size={args.vocab_size} is too large for this text: "
            f"at most {largest[1]} is possible. Lower it or give more text."
        )
    if needed := re.search(r"smaller than required_chars. \d+ vs (\d+)", error):
        return (
            f"--vocab_size={args.vocab_size} is too small: characters and "
            f"special pieces alone need {needed[1]}. Raise it, or lower "
            f"--character_coverage={args.character_coverage}."
        )
    return f"SentencePiece could not train a vocabulary: {error}"


def _write(model, path, args):
    """Writes settings, list and, last, the model; returns its size."""
    with tempfile.TemporaryDirectory(prefix="albert_tf-") as folder:
        copy = os.path.join(folder, os.path.basename(path))
        filesystem.write_file(copy, model)
        tokenizer = tokenization.build_tokenizer(
            spm_model_file=copy,
            do_lower_case=args.do_lower_case,
            keep_accents=args.keep_accents,
        )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    listing = "".join(
        f"{processor.IdToPiece(i)}\t{processor.GetScore(i):g}\n"
        for i in range(len(processor))
    )
    tokenizer.write_settings(os.path.dirname(path))
    filesystem.write_file(f"{path.removesuffix('.model')}.vocab", listing)
    filesystem.write_file(path, model)
    return len(processor)
