"""Metrics of tagged words: of spans, such as names, or of plain tags.

The tag of a word is "O" outside of spans, or a prefix and a label, such as
"B-PER"; the prefix says where in its span the word is. Tags of another form,
such as "NOUN", are plain.
"""

import collections
import functools

# Prefixes of the first word of a span, and of its only word; of the last word.
_BEGINS, _ENDS = "BSU", "ELSU"
PREFIXES = "BIMESLU"

Tags = list[list[str]]
Span = tuple[str, int, int]


@functools.lru_cache(maxsize=10_000)
def is_span_tag(tag: str) -> bool:
    """Returns whether a tag is "O", or has a prefix and a label."""
    return tag == "O" or (len(tag) > 2 and tag[0] in PREFIXES and tag[1] == "-")


def find_spans(tags: list[str]) -> list[Span]:
    """Finds the spans of a sentence.

    Tags of IOB1, IOB2, BIOES, BMES and BILOU are read alike, also inconsistent
    ones: whatever the prefix, a span begins at the start, after "O", after the
    last word of another, and where the label changes. Plain tags are in no
    span.

    Returns:
      List of (label, first word, end), in order; the end is exclusive.

    Source: conlleval, and the default mode of seqeval.
    """
    spans = []
    start, label, is_complete = 0, "", True
    for i, tag in enumerate([*tags, "O"]):
        is_outside = tag == "O" or not is_span_tag(tag)
        prefix, following = ("", "") if is_outside else (tag[0], tag[2:])
        continues = following == label and prefix and prefix not in _BEGINS
        if continues and not is_complete:
            is_complete = prefix in _ENDS
            continue
        if label:
            spans.append((label, start, i))
        start, label = i, following
        is_complete = bool(prefix) and prefix in _ENDS
    return spans


def score(gold: Tags, predicted: Tags) -> dict[str, float]:
    """Scores the tags of sentences.

    Args:
      gold: the right tags of each sentence.
      predicted: as many.

    Returns:
      For spans: `f1`, `precision` and `recall` of all spans, `macro_f1`, the
      mean F1 of the labels in `gold` or `predicted`, and `eval_accuracy`, the
      share of words with the right tag. For plain tags: `eval_accuracy`, and
      `macro_f1`, that of tags. All are from 0 to 1; a ratio to 0 is 0.

    Raises:
      ValueError: if the numbers of sentences or of their words differ.

    Example:
      >>> from albert_tf.metrics import tagging
      >>> gold = [["B-PER", "I-PER", "O", "B-LOC"]]
      >>> tagging.score(gold, [["B-PER", "I-PER", "O", "O"]])["recall"]
      0.5
    """
    counts = _count(gold, predicted)
    types = [_compare(*count)["f1"] for count in counts.values()]
    macro_f1 = _ratio(sum(types), len(types))
    num_words = sum(map(len, gold))
    num_right = sum(
        wanted == found
        for rows in zip(gold, predicted, strict=True)
        for wanted, found in zip(*rows, strict=True)
    )
    accuracy = _ratio(num_right, num_words)
    if not _are_spans(gold, predicted):
        return {"eval_accuracy": accuracy, "macro_f1": macro_f1}
    totals = [sum(column) for column in zip(*counts.values(), strict=True)]
    values = _compare(*(totals or [0, 0, 0]))
    del values["support"]
    return {**values, "macro_f1": macro_f1, "eval_accuracy": accuracy}


def score_types(gold: Tags, predicted: Tags) -> dict[str, dict[str, float]]:
    """Scores each label of spans, or each plain tag.

    Arguments and errors are those of `score`.

    Returns:
      Dict from each label in `gold` or `predicted`, sorted, to its `f1`,
      `precision`, `recall` and `support`, how many `gold` has.
    """
    counts = _count(gold, predicted)
    return {label: _compare(*counts[label]) for label in counts}


def _count(gold, predicted):
    """Counts the spans of each label: right, in gold, and predicted ones.

    A plain tag counts as a span of one word. The labels are sorted.
    """
    _check_sizes(gold, predicted)
    find = find_spans if _are_spans(gold, predicted) else _find_words
    counts: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0, 0])
    for rows in zip(gold, predicted, strict=True):
        wanted, found = (set(find(tags)) for tags in rows)
        for i, spans in enumerate((wanted & found, wanted, found)):
            for label, *_ in spans:
                counts[label][i] += 1
    return dict(sorted(counts.items()))


def _check_sizes(gold, predicted):
    if len(gold) != len(predicted):
        raise ValueError(
            f"{len(predicted)} sentences are predicted; wanted {len(gold)}, as "
            "in the data. Is a batch missing?"
        )
    for i, (wanted, found) in enumerate(zip(gold, predicted, strict=True)):
        if len(wanted) != len(found):
            raise ValueError(
                f"Sentence {i} has {len(found)} predicted tags for "
                f"{len(wanted)} words; wanted one for each. Are they of its "
                "pieces?"
            )


def _are_spans(gold, predicted):
    """Returns whether all tags are of spans."""
    return all(
        map(is_span_tag, {tag for row in (*gold, *predicted) for tag in row})
    )


def _find_words(tags):
    """Returns each word as a span that is labelled by its tag."""
    return [(tag, i, i + 1) for i, tag in enumerate(tags)]


def _compare(num_right, num_gold, num_predicted):
    """Returns the scores of spans of one or all labels."""
    return {
        "f1": _ratio(2 * num_right, num_gold + num_predicted),
        "precision": _ratio(num_right, num_predicted),
        "recall": _ratio(num_right, num_gold),
        "support": num_gold,
    }


def _ratio(numerator, denominator):
    return numerator / denominator if denominator else 0.0
