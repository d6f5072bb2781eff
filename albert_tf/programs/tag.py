"""Tags the words of texts of the command line or of a file."""

import json

from albert_tf import filesystem, ownership
from albert_tf.data import tables
from albert_tf.inference.tagger import Tagger
from albert_tf.programs import models


def run(args):
    """Prints the tags of texts, or writes them to a file."""
    models.check_output_file(args)
    if args.input_file:
        models.check_are_lines([args.input_file])
        texts = list(tables.read_lines(args.input_file))
    else:
        texts = models.split_lines(args.text)
    if not texts:
        raise ValueError(
            f"There are no texts in {args.input_file or '--text'}."
        )
    tagger = Tagger(
        models.read_checkpoint(args),
        max_seq_length=args.max_seq_length,
        compute_dtype=args.compute_dtype,
    )
    output = args.output_file
    answers = models.answer_texts(tagger, texts, "tagging")
    if not output:
        for text, answer in answers:
            print(text)
            for line in describe(answer):
                print(f"    {line}")
        return
    with ownership.owning(output), filesystem.writing(output) as file:
        for text, answer in answers:
            line = json.dumps({"text": text, **answer}, ensure_ascii=False)
            file.write(f"{line}\n".encode())
    print(f"Wrote {len(texts):,} texts with tags to {output}.")


def describe(answer):
    """Returns lines: a span each, or all words with their tags."""
    if "spans" not in answer:
        return [" ".join(f"{w['word']}/{w['tag']}" for w in answer["words"])]
    return [
        f"{span['probability']:4.0%} {span['label']} {span['text']}"
        for span in answer["spans"]
    ]
