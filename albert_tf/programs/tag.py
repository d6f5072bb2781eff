"""Tags the words of texts of the command line or of a file."""

import itertools
import json

from albert_tf import filesystem, ownership, progress
from albert_tf.data import tables
from albert_tf.inference.tagger import Tagger
from albert_tf.programs import models

# Texts that are tagged at once.
CHUNK = 4096


def run(args):
    """Prints the tags of texts, or writes them to a file."""
    output = args.output_file
    if output:
        filesystem.check_outputs(
            {"--output_file": [output]},
            {"--input_file": [args.input_file], **models.input_files(args)},
        )
    if args.input_file:
        texts = list(tables.read_lines(args.input_file))
    else:
        texts = [line for line in args.text.splitlines() if line.strip()]
    if not texts:
        raise ValueError(
            f"There are no texts in {args.input_file or '--text'}."
        )
    tagger = Tagger(
        models.read_pretrained(args.init_checkpoint, args),
        max_seq_length=args.max_seq_length,
        compute_dtype=args.compute_dtype,
    )
    if not output:
        for text, answer in tag(tagger, texts):
            print(text)
            for line in describe(answer):
                print(f"    {line}")
        return
    with ownership.owning(output):
        lines = [
            json.dumps({"text": text, **answer}, ensure_ascii=False)
            for text, answer in tag(tagger, texts)
        ]
        filesystem.write_file(output, "".join(f"{line}\n" for line in lines))
    print(f"Wrote {len(lines):,} texts with tags to {output}.")


def tag(tagger, texts):
    """Yields each text with its answer."""
    done = progress.Progress("tagging", len(texts), "texts")
    rows = iter(texts)
    while some := list(itertools.islice(rows, CHUNK)):
        yield from zip(some, tagger(some), strict=True)
        done.add(len(some))
    done.clear()


def describe(answer):
    """Returns lines: a span each, or all words with their tags."""
    if "spans" not in answer:
        return [" ".join(f"{w['word']}/{w['tag']}" for w in answer["words"])]
    return [
        f"{span['probability']:4.0%} {span['label']} {span['text']}"
        for span in answer["spans"]
    ]
