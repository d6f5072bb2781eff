"""Classifies texts of the command line or of a file."""

import codecs
import csv
import dataclasses
import json

from albert_tf import filesystem, ownership
from albert_tf.data import tables
from albert_tf.inference.classifier import Classifier
from albert_tf.programs import models

# Labels of a text that are printed.
MAX_PRINTED = 5


def run(args):
    """Prints the labels of texts, or writes them to a file."""
    models.check_output_file(args)
    texts = read_texts(args)
    classifier = Classifier(
        models.read_checkpoint(args),
        max_seq_length=args.max_seq_length,
        exit_threshold=args.exit_threshold,
        compute_dtype=args.compute_dtype,
    )
    output = args.output_file
    answers = models.answer_texts(
        lambda some: classifier([t if len(t) == 2 else t[0] for t in some]),
        texts,
        "classifying",
    )
    if not output:
        for text, answer in answers:
            print(" | ".join(text))
            print(f"    {describe(answer)}")
        return
    with ownership.owning(output), filesystem.writing(output) as file:
        write_rows(file, answers, output, classifier.labels, len(texts[0]))
    print(f"Wrote {len(texts):,} predictions to {output}.")


def read_texts(args):
    """Returns tuples of a text, or of two."""
    path = args.input_file
    if not path:
        texts = models.pair_lines(args.text, args.next_text)
    elif path.lower().endswith(".txt"):
        texts = [(line,) for line in tables.read_lines(path)]
        blank = [i for i, (text,) in enumerate(texts, 1) if not text.strip()]
        if blank:
            raise ValueError(
                f"{path}, line {blank[0]} is empty ({len(blank)} such lines); "
                "wanted a text on each line."
            )
    else:
        names: tuple[str, ...] = (args.text_columns,)
        form, delimiter = tables.format_of(path), args.delimiter
        table = tables.Table(path, names, format=form, delimiter=delimiter)
        header, records = tables.read_records(path, table)
        if args.text_columns not in (header or records[0][1]):
            names = tuple(filesystem.split_list(args.text_columns))
            table = dataclasses.replace(table, text=names)
        texts = [
            (row.text_a,) if len(names) == 1 else (row.text_a, row.text_b or "")
            for row in tables.select_rows(path, table, header, records)
        ]
    if not texts:
        raise ValueError(f"There are no texts in {path or '--text'}.")
    return texts


def describe(answer):
    """Returns the most probable labels of a text, or its number, in words."""
    if "probabilities" not in answer:
        words = f"{answer['prediction']:.4g}"
    else:
        ranked = sorted(answer["probabilities"].items(), key=lambda x: -x[1])
        words = ", ".join(f"{n} {p:.0%}" for n, p in ranked[:MAX_PRINTED])
    if "num_layers" in answer:
        words += f" (layer {answer['num_layers']})"
    return words


def write_rows(file, pairs, path, labels, num_texts):
    """Writes pairs of texts and their answer to a binary file.

    Its form is that of the name `path`; each answer is of `num_texts` texts.
    """
    if path.endswith(".jsonl"):
        for text, answer in pairs:
            record = {"text": list(text), **answer}
            line = json.dumps(record, ensure_ascii=False)
            file.write(f"{line}\n".encode())
        return
    writer = csv.writer(
        codecs.getwriter("utf-8")(file),
        "excel" if path.endswith(".csv") else "excel-tab",
    )
    names = ("text",) if num_texts == 1 else ("text_a", "text_b")
    writer.writerow([*names, "prediction", *labels])
    # Of several labels.
    joined = "".join(labels)
    separator = next((x for x in ",;|" if x not in joined), ",")
    for text, answer in pairs:
        prediction = answer["prediction"]
        if isinstance(prediction, list):
            prediction = separator.join(prediction)
        probabilities = answer.get("probabilities", {}).values()
        writer.writerow([*text, prediction, *probabilities])
