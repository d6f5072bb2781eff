"""Classifies texts of the command line or of a file."""

import csv
import io
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
    with ownership.owning(output):
        pairs = list(answers)
        filesystem.write_file(output, format_file(classifier, pairs, output))
    print(f"Wrote {len(pairs):,} predictions to {output}.")


def read_texts(args):
    """Returns tuples of a text, or of two."""
    path = args.input_file
    if not path:
        columns = [
            models.split_lines(text)
            for text in (args.text, args.next_text)
            if text
        ]
        if len({len(column) for column in columns}) > 1:
            raise ValueError(
                f"--text has {len(columns[0])} lines, --next_text "
                f"{len(columns[1])}; wanted a second text for each text."
            )
        texts = list(zip(*columns, strict=True))
    elif path.endswith(".txt"):
        texts = [(line,) for line in tables.read_lines(path)]
        blank = [i for i, (text,) in enumerate(texts, 1) if not text.strip()]
        if blank:
            raise ValueError(
                f"{path}, line {blank[0]} is empty ({len(blank)} such lines); "
                "wanted a text on each line."
            )
    else:
        names = filesystem.split_list(args.text_columns)
        table = tables.Table(
            path,
            tuple(names),
            format=tables.format_of(path),
            delimiter=args.delimiter,
        )
        texts = [
            (row.text_a,) if len(names) == 1 else (row.text_a, row.text_b or "")
            for row in tables.read_table(path, table)
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


def format_file(classifier, pairs, path):
    """Returns the content of a file of pairs of a text and its answer."""
    if path.endswith(".jsonl"):
        lines = [
            json.dumps({"text": list(text), **answer}, ensure_ascii=False)
            for text, answer in pairs
        ]
        return "".join(f"{line}\n" for line in lines)
    file = io.StringIO()
    writer = csv.writer(file, "excel" if path.endswith(".csv") else "excel-tab")
    names = ("text",) if len(pairs[0][0]) == 1 else ("text_a", "text_b")
    writer.writerow([*names, "prediction", *classifier.labels])
    # Of several labels.
    joined = "".join(classifier.labels or ())
    separator = next((x for x in ",;|" if x not in joined), ",")
    for text, answer in pairs:
        prediction = answer["prediction"]
        if isinstance(prediction, list):
            prediction = separator.join(prediction)
        probabilities = answer.get("probabilities", {}).values()
        writer.writerow([*text, prediction, *probabilities])
    return file.getvalue()
