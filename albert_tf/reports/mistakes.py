"""Tables of a model's wrong predictions, for the report.

Rows are the objects of dev_predictions.jsonl, see
`submissions.write_dev_predictions`.
"""

import collections

from albert_tf import filesystem
from albert_tf.data import race
from albert_tf.reports import page, plots

# Maximum numbers of examples per table and of characters per text.
NUM_SHOWN = 12
MAX_CHARACTERS = 400
# Confusion matrices with more labels are unreadable.
MAX_LABELS = 20
_KEYS = {"id", "text", "label", "prediction"}


def read_rows(path):
    """Returns the objects of a dev_predictions.jsonl.

    Raises:
      ValueError: if a line is not such an object.
    """
    content = filesystem.read_file(path)
    rows = []
    for number, line in enumerate(content.split(b"\n")[:-1], 1):
        where = f"{path}, line {number}"
        row = filesystem.parse_json(line, where)
        if missing := _KEYS - row.keys():
            raise ValueError(
                f"{where} lacks {', '.join(sorted(missing))}. Was it written "
                "by another program?"
            )
        rows.append(row)
    return rows


def describe(rows, task):
    """Yields the tables and plots for the kind of task, as Markup.

    Args:
      rows: one or more rows.
      task: the entry `task` of run.json, or an empty dict.
    """
    if "f1" in rows[0]:
        yield tabulate_answers(rows)
    elif "probabilities" not in rows[0]:
        yield from describe_regression(rows)
    elif isinstance(rows[0]["label"], list):
        labels = task.get("labels")
        if labels:
            yield tabulate_labels(rows, labels)
        yield tabulate_wrong(rows, lambda row: _misjudged(row, labels))
    elif "max_qa_length" in task:
        yield tabulate_choices(rows)
    else:
        found = {row[key] for row in rows for key in ("label", "prediction")}
        labels = task.get("labels") or sorted(found)
        for part in dict.fromkeys(row.get("part", "") for row in rows):
            members = [row for row in rows if row.get("part", "") == part]
            yield tabulate_confusion(members, labels, part)
        yield tabulate_wrong(rows, lambda row: max(row["probabilities"]))


def clip(text):
    """Returns a text, truncated to MAX_CHARACTERS."""
    if len(text) <= MAX_CHARACTERS:
        return text
    return text[:MAX_CHARACTERS].rstrip() + " …"


def write_texts(row):
    """Returns the text or pair of texts of a row as a cell."""
    text = "\n".join(clip(text) for text in row["text"])
    return page.element("td", text, class_="text", dir="auto")


def tabulate_confusion(rows, labels, part=""):
    """Returns a confusion matrix, or the most frequent confusions."""
    counts = collections.Counter((r["label"], r["prediction"]) for r in rows)
    caption = f"{part} dev examples" if part else "Dev examples"
    caption += " by label (row) and prediction (column)."
    if len(labels) > MAX_LABELS:
        wrong = [pair for pair in counts.most_common() if len({*pair[0]}) > 1]
        return page.table(
            [[*pair, count] for pair, count in wrong[:NUM_SHOWN]],
            head=["Label", "Prediction", "Examples"],
            caption="Most frequent confusions.",
        )
    table = []
    for label in labels:
        total = sum(counts[label, other] for other in labels)
        cells = [
            page.element(
                "td",
                f"{counts[label, other]:,}",
                class_="number shaded",
                style=f"--share: {counts[label, other] / max(total, 1):.3f}",
            )
            for other in labels
        ]
        table.append([label, *cells])
    return page.table(table, head=["", *labels], caption=caption)


def tabulate_labels(rows, labels):
    """Returns a table of correct, missing and wrong predictions by label."""
    table = []
    for label in labels:
        counts = collections.Counter(
            (label in row["label"], label in row["prediction"]) for row in rows
        )
        table.append(
            [
                label,
                counts[True, True],
                counts[True, False],
                counts[False, True],
            ]
        )
    return page.table(
        table,
        head=["Label", "True positives", "False negatives", "False positives"],
        caption="Dev examples by label.",
    )


def _misjudged(row, labels):
    """Returns the largest error of the labels' probabilities.

    Without names of the labels, it is the largest probability.
    """
    if not labels:
        return max(row["probabilities"])
    return max(
        abs(p - (label in row["label"]))
        for p, label in zip(row["probabilities"], labels, strict=True)
    )


def tabulate_wrong(rows, confidence):
    """Returns a table of the most confident wrong predictions.

    Args:
      rows: rows of a classification with one or several labels.
      confidence: function from a row to the confidence of its prediction.
    """
    wrong = [row for row in rows if row["label"] != row["prediction"]]
    shown = sorted(wrong, key=confidence, reverse=True)[:NUM_SHOWN]
    return page.table(
        [
            [
                row["id"],
                _format_labels(row["label"]),
                _format_labels(row["prediction"]),
                confidence(row),
                write_texts(row),
            ]
            for row in shown
        ],
        head=["Example", "Label", "Prediction", "Probability", "Text"],
        caption=_caption(len(shown), len(wrong), len(rows), "most confident"),
    )


def _format_labels(label):
    """Returns a label, or several separated by commas."""
    return label if isinstance(label, str) else ", ".join(label) or "(none)"


def _caption(num_shown, num_wrong, num_rows, kind):
    if not num_wrong:
        return f"All {num_rows:,} predictions are correct."
    shown = f"; the table shows the {num_shown} {kind}."
    shown = shown if num_shown < num_wrong else "."
    return f"{num_wrong:,} of {num_rows:,} predictions are wrong{shown}"


def tabulate_choices(rows):
    """Returns a table of RACE's wrong answers, the most confident first."""
    wrong = [row for row in rows if row["label"] != row["prediction"]]
    wrong.sort(key=lambda row: max(row["probabilities"]), reverse=True)
    table = []
    for row in wrong[:NUM_SHOWN]:
        texts = dict(zip(race.LETTERS, row["text"], strict=True))
        table.append(
            [
                row["id"],
                f"{row['label']}: {clip(texts[row['label']])}",
                f"{row['prediction']}: {clip(texts[row['prediction']])}",
                max(row["probabilities"]),
            ]
        )
    return page.table(
        table,
        head=["Question", "Answer", "Prediction", "Probability"],
        caption=_caption(len(table), len(wrong), len(rows), "most confident"),
    )


def tabulate_answers(rows):
    """Returns a table of SQuAD's worst answers, the most confident first."""
    wrong = [row for row in rows if row["f1"] < 1]
    wrong.sort(key=lambda row: (row["f1"], -row["probability"]))
    shown = wrong[:NUM_SHOWN]
    return page.table(
        [
            [
                row["id"],
                write_texts(row),
                " / ".join(dict.fromkeys(row["label"])) or "(none)",
                row["prediction"] or "(none)",
                float(row["f1"]),
                row["probability"],
            ]
            for row in shown
        ],
        head=["Id", "Question", "Gold", "Prediction", "F1", "Probability"],
        caption=_caption(len(shown), len(wrong), len(rows), "worst"),
    )


def describe_regression(rows):
    """Yields a scatter plot and a table of the largest errors."""
    columns = ([row[k] for row in rows] for k in ("label", "prediction"))
    yield plots.arrange(plots.draw_scatter(*columns))
    worst = sorted(rows, key=_error, reverse=True)[:NUM_SHOWN]
    yield page.table(
        [
            [
                row["id"],
                float(row["label"]),
                float(row["prediction"]),
                write_texts(row),
            ]
            for row in worst
        ],
        head=["Example", "Label", "Prediction", "Text"],
        caption=f"The {len(worst)} predictions with the largest errors.",
    )


def _error(row):
    return abs(row["label"] - row["prediction"])
