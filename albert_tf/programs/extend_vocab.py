"""Adds words to a model's vocabulary."""

import itertools

from albert_tf import filesystem
from albert_tf.data import tables
from albert_tf.programs import models
from albert_tf.text import extension, normalization
from albert_tf.weights import new_pieces, pretrained

NUM_SHOWN = 5


def run(args):
    """Extends a model, writes it and prints which words were added."""
    if bool(args.input_file) == bool(args.words_file):
        raise ValueError(
            "Give either --input_file, a text, or --words_file, a list of "
            "words."
        )
    with models.creating_folder(args.to, args.from_) as folder:
        model = pretrained.complete(models.read_pretrained(args.from_, args))
        if args.input_file:
            lines = models.read_text(args)
        else:
            files = filesystem.expand_files(args.words_file)
            lines = [*itertools.chain(*map(tables.read_lines, files))]
            check_scripts(lines, args.words_file, model.tokenizer.kind)
        units = extension.count_units(lines, model.tokenizer)
        wanted = choose_words(args, units, model.tokenizer)
        extended, words = new_pieces.add_words(model, wanted)
        if not words:
            raise ValueError(
                f"None of the {len(wanted)} words can be a piece, such as "
                f"{wanted[0].text!r}. Has the vocabulary their characters?"
            )
        pretrained.write_pretrained(folder, extended, "own")
    models.print_remarks(extended)
    if left_out := len(wanted) - len(words):
        print(f"{left_out} words are left out: they would still be split.")
    print(describe(model, extended, words))
    if args.input_file:
        before, after = (
            extension.count_pieces(units, m.tokenizer).sum()
            for m in (model, extended)
        )
        print(
            f"The text has {after:,} pieces instead of {before:,} "
            f"({after / before - 1:+.1%})."
        )
    name = extended.tokenizer.settings["vocabulary"]
    print(f"Wrote the model and its vocabulary {name} to {args.to}.")


def check_scripts(words, file, kind):
    """Raises ValueError if words of a list would not be found in a text.

    `kind` is that of the vocabulary. For WordPiece, each ideograph is a word.
    """
    found = [
        word
        for word in map(str.strip, words)
        if any(map(normalization.is_unspaced, word))
        and (kind == "sentencepiece" or len(word) > 1)
    ]
    if found:
        raise ValueError(
            f"{file} has {len(found)} words, such as {found[0]!r}, of scripts "
            "without spaces between words. New pieces are found only where a "
            "word begins: leave them out."
        )


def choose_words(args, units, tokenizer):
    """Returns the words to add, as `extension.find_split` does."""
    if args.words_file:
        split = extension.find_split(units, tokenizer)
        if not split:
            raise ValueError(
                f"{args.words_file} has {len(units)} words. The vocabulary "
                "splits none of them, so none is to be added. Is it extended "
                "already?"
            )
        return split
    words = extension.find_words(units)
    often = {w: count for w, count in words.items() if count >= args.min_count}
    split = extension.find_split(often, tokenizer)
    if not split:
        raise ValueError(
            f"{args.input_file} has {len(words)} different words. The "
            "vocabulary splits none of those that it has at least "
            f"{args.min_count} times. Lower --min_count, or give more text."
        )
    return split[: args.num_words]


def describe(model, extended, words):
    """Returns how many pieces there are, and the first new ones."""
    pieces = model.tokenizer.pieces
    shown = ", ".join(
        f"{word.text} ({'|'.join(pieces[i] for i in word.parts)})"
        for word in words[:NUM_SHOWN]
    )
    return (
        f"Added {len(words):,} words to {model.tokenizer.vocab_size:,} pieces, "
        f"which is {extended.tokenizer.vocab_size:,}: {shown}"
        f"{', ...' if len(words) > NUM_SHOWN else '.'}"
    )
