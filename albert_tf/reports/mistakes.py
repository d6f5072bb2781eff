"""Tables of a model's wrong predictions, for the report.

Rows are the objects of dev_predictions.jsonl, see
`submissions.write_dev_predictions`. Columns are a dict from a heading to a
function from a row to its cell.
"""

import collections
import statistics
from operator import itemgetter

from sklearn import metrics, preprocessing

from albert_tf import filesystem
from albert_tf.data import race
from albert_tf.metrics import tagging
from albert_tf.reports import page, plots

# Maximum numbers of examples per table and of characters per text.
NUM_SHOWN = 12
MAX_CHARACTERS = 400
# Confusion matrices with more labels are unreadable.
MAX_LABELS = 20
_KEYS = {"id", "text", "label", "prediction"}


def read_rows(path):
    """Returns the objects of a dev_predictions.jsonl."""
    rows = []
    lines = filesystem.read_file(path).split(b"\n")[:-1]
    for number, line in enumerate(lines, 1):
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
    labels, first = task.get("labels"), rows[0]
    is_list = isinstance(first["label"], list)
    if is_list and not all(isinstance(x, str) for x in first["label"]):
        return  # Of a task of one's own, with several numbers.
    # Without run.json, the task is unknown.
    if "tags" in task or (is_list and not {"f1", "probabilities"} & {*first}):
        yield from describe_tags(rows)
    elif first["label"] is None:
        return  # Of a ranking, there are only ranks.
    elif "f1" in first:
        yield tabulate_wrong(
            rows, ANSWERS, lambda row: (row["f1"], -row["probability"]), "worst"
        )
    elif "probabilities" not in first:
        yield from describe_regression(rows)
    elif is_list:
        if labels:
            yield tabulate_labels(rows, labels)
            yield tabulate_scores(rows, labels)
        yield tabulate_classes(rows, lambda row: _largest_error(row, labels))
    elif "max_qa_length" in task:
        yield tabulate_wrong(rows, CHOICES, lambda row: -_confidence(row))
    else:
        seen = {row[key] for row in rows for key in ("label", "prediction")}
        labels = labels or sorted(seen)
        for part in dict.fromkeys(row.get("part", "") for row in rows):
            members = [row for row in rows if row.get("part", "") == part]
            yield tabulate_confusion(members, labels, part)
            yield tabulate_scores(members, labels, part)
        yield tabulate_classes(rows, _confidence)


def clip(text):
    """Returns a text, truncated to MAX_CHARACTERS."""
    if len(text) <= MAX_CHARACTERS:
        return text
    return text[:MAX_CHARACTERS].rstrip() + " …"


def tabulate_confusion(rows, labels, part="", what="examples"):
    """Returns a confusion matrix, or the most frequent confusions."""
    counts = collections.Counter((r["label"], r["prediction"]) for r in rows)
    caption = f"{part} dev {what}" if part else f"Dev {what}"
    caption += " by label (row) and prediction (column)."
    if len(labels) > MAX_LABELS:
        wrong = [pair for pair in counts.most_common() if len({*pair[0]}) > 1]
        return page.table(
            [[*pair, count] for pair, count in wrong[:NUM_SHOWN]],
            head=["Label", "Prediction", what.capitalize()],
            caption="Most frequent confusions.",
        )
    table = []
    for label in labels:
        total = max(sum(counts[label, other] for other in labels), 1)
        cells = [
            page.element(
                "td",
                f"{counts[label, other]:,}",
                class_="number shaded",
                style=f"--share: {counts[label, other] / total:.3f}",
            )
            for other in labels
        ]
        table.append([label, *cells])
    return page.table(table, head=["", *labels], caption=caption)


def tabulate_scores(rows, labels, part=""):
    """Returns precision, recall, F1 and support of the labels that occur.

    The average is over the same labels as that of the metric `f1`.
    """
    gold, predicted = (
        [row[key] if isinstance(row[key], list) else [row[key]] for row in rows]
        for key in ("label", "prediction")
    )
    seen = {label for some in gold + predicted for label in some}
    names = [label for label in labels if label in seen] or labels
    # With None, which no row has: a single column would be taken for two.
    binarizer = preprocessing.MultiLabelBinarizer(classes=[*names, None])
    scores = metrics.precision_recall_fscore_support(
        *map(binarizer.fit_transform, (gold, predicted)), zero_division=0
    )
    columns = [values[:-1].tolist() for values in scores]
    table = [list(row) for row in zip(names, *columns, strict=True)]
    caption = f"Scores of each label on {part} dev examples.".replace("  ", " ")
    if len(names) > MAX_LABELS:
        table = sorted(table, key=itemgetter(3))[:NUM_SHOWN]
        caption += f" Of {len(names)} labels, those with the lowest F1."
    return page.table(
        table,
        head=["Label", "Precision", "Recall", "F1", "Support"],
        foot=[
            "Macro average",
            *map(statistics.fmean, columns[:3]),
            sum(columns[3]),
        ],
        caption=caption,
    )


def tabulate_labels(rows, labels):
    """Returns a table of correct, missing and wrong predictions by label."""
    table = []
    for label in labels:
        counts = collections.Counter(
            (label in row["label"], label in row["prediction"]) for row in rows
        )
        cases = (True, True), (True, False), (False, True)
        table.append([label, *(counts[case] for case in cases)])
    return page.table(
        table,
        head=["Label", "True positives", "False negatives", "False positives"],
        caption="Dev examples by label.",
    )


def tabulate_classes(rows, confidence):
    """Returns the wrong predictions of a classification, as a table."""
    columns = {
        "Example": lambda row: f"{row.get('part', '')} {row['id']}".strip(),
        "Label": lambda row: _format_labels(row["label"]),
        "Prediction": lambda row: _format_labels(row["prediction"]),
        "Probability": confidence,
        "Text": _format_text,
    }
    return tabulate_wrong(rows, columns, lambda row: -confidence(row))


def tabulate_wrong(rows, columns, order, adjective="most confident"):
    """Returns a table of the first wrong predictions in an order.

    Args:
      rows: all rows.
      columns: see the module.
      order: function from a row to the key to sort by.
      adjective: what the caption calls the first ones.
    """
    wrong = [row for row in rows if not _is_right(row)]
    shown = sorted(wrong, key=order)[:NUM_SHOWN]
    caption = f"All {len(rows):,} predictions are correct."
    if wrong:
        caption = f"{len(wrong):,} of {len(rows):,} predictions are wrong"
        if len(shown) < len(wrong):
            caption += f"; the table shows the {len(shown)} {adjective}"
        caption += "."
    return _tabulate(shown, columns, caption)


def describe_tags(rows):
    """Yields tables of tags or types of spans, and of the worst sentences."""
    words = [
        dict(zip(("label", "prediction"), map(_type_of, pair), strict=True))
        for row in rows
        for pair in zip(row["label"], row["prediction"], strict=True)
    ]
    types = dict.fromkeys(word["label"] for word in words)
    types |= dict.fromkeys(word["prediction"] for word in words)
    yield tabulate_confusion(words, sorted(types), what="words")
    scores = tagging.score_types(
        *([row[key] for row in rows] for key in ("label", "prediction"))
    )
    ranked = sorted(scores.items(), key=lambda item: item[1]["f1"])
    caption = "Scores of each type, the lowest F1 first."
    if len(ranked) > MAX_LABELS:
        caption = f"Of {len(ranked)} types, those with the lowest F1."
    yield page.table(
        [
            [name, *map(some.get, ("precision", "recall", "f1", "support"))]
            for name, some in ranked[:MAX_LABELS]
        ],
        head=["Type", "Precision", "Recall", "F1", "Support"],
        caption=caption,
    )
    yield tabulate_wrong(rows, TAGGED, lambda row: -_count_wrong(row), "worst")


def describe_regression(rows):
    """Yields a scatter plot and a table of the largest errors."""
    values = ([row[k] for row in rows] for k in ("label", "prediction"))
    yield plots.arrange(plots.draw_scatter(*values))
    worst = sorted(rows, key=lambda r: -abs(r["label"] - r["prediction"]))
    worst = worst[:NUM_SHOWN]
    caption = f"The {len(worst)} predictions with the largest errors."
    yield _tabulate(worst, SCORES, caption)


def _tabulate(rows, columns, caption):
    table = [[cell(row) for cell in columns.values()] for row in rows]
    return page.table(table, head=list(columns), caption=caption)


def _is_right(row):
    if "f1" in row:
        return row["f1"] >= 1
    return row["label"] == row["prediction"]


def _type_of(tag):
    """Returns the type of a span's tag; another tag is its own."""
    return tag[2:] if tagging.is_span_tag(tag) and tag != "O" else tag


def _count_wrong(row):
    """Returns how many words of a sentence have the wrong tag."""
    pairs = zip(row["label"], row["prediction"], strict=True)
    return sum(label != prediction for label, prediction in pairs)


def _format_tags(row):
    """Returns the words of a sentence; wrong ones with both tags."""
    columns = row["text"], row["label"], row["prediction"]
    words = (
        word if label == tag else f"{word} [{label} → {tag}]"
        for word, label, tag in zip(*columns, strict=True)
    )
    return page.element("td", " ".join(words), class_="text", dir="auto")


def _confidence(row):
    return max(row["probabilities"])


def _largest_error(row, labels):
    """Returns the largest error of the labels' probabilities."""
    if not labels:  # Which probability is whose is unknown.
        return _confidence(row)
    return max(
        abs(p - (label in row["label"]))
        for p, label in zip(row["probabilities"], labels, strict=True)
    )


def _format_text(row):
    """Returns the text or pair of texts of a row as a cell."""
    text = "\n".join(map(clip, row["text"]))
    return page.element("td", text, class_="text", dir="auto")


def _format_labels(label):
    """Returns a label, or several separated by commas."""
    return label if isinstance(label, str) else ", ".join(label) or "(none)"


def _format_choice(row, key):
    """Returns the letter and text of a choice of RACE."""
    texts = dict(zip(race.LETTERS, row["text"], strict=False))
    return f"{row[key]}: {clip(texts[row[key]])}"


CHOICES = {
    "Question": itemgetter("id"),
    "Answer": lambda row: _format_choice(row, "label"),
    "Prediction": lambda row: _format_choice(row, "prediction"),
    "Probability": _confidence,
}
ANSWERS = {
    "Id": itemgetter("id"),
    "Question": _format_text,
    "Gold": lambda row: " / ".join(dict.fromkeys(row["label"])) or "(none)",
    "Prediction": lambda row: row["prediction"] or "(none)",
    "F1": lambda row: float(row["f1"]),
    "Probability": itemgetter("probability"),
}
TAGGED = {
    "Sentence": itemgetter("id"),
    "Wrong": _count_wrong,
    "Words, and their tags (right → predicted) where wrong": _format_tags,
}
SCORES = {
    "Example": itemgetter("id"),
    "Label": lambda row: float(row["label"]),
    "Prediction": lambda row: float(row["prediction"]),
    "Text": _format_text,
}
