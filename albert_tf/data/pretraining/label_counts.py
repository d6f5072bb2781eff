"""Counts the labels of pretraining records.

Shapes: V pieces.
"""

import collections

import numpy as np

from albert_tf.data.pretraining import opening

_READ_AT_ONCE = 1024


def score_best_guess(opened: opening.PretrainingRecords) -> tuple[float, ...]:
    """Returns the accuracies of the best constant guess (majority class).

    The guess is chosen on the held-out labels, so it scores slightly better
    than any model that knows only the piece frequencies.

    Returns:
      Masked-LM accuracy and sentence accuracy of the guess.
    """
    pieces: collections.Counter = collections.Counter()
    labels: collections.Counter = collections.Counter()
    for batch in opened.read_pass(_READ_AT_ONCE).as_numpy_iterator():
        is_real = batch["example_weight"] > 0
        labels.update(batch["sentence_order_labels"][is_real].tolist())
        is_masked = batch["masked_lm_weights"] > 0
        pieces.update(batch["masked_lm_ids"][is_masked].tolist())
    return tuple(
        max(counts.values(), default=0) / max(counts.total(), 1)
        for counts in (pieces, labels)
    )


def count_masked_pieces(
    opened: opening.PretrainingRecords, max_records: int
) -> np.ndarray:
    """Returns how often each piece is a masked-LM label, [V].

    About `max_records` records are read, from the start.
    """
    counts = np.zeros(opened.limits["masked_lm_ids"][1] + 1, np.int64)
    dataset = opened.read_pass(_READ_AT_ONCE)
    dataset = dataset.take(-(-max_records // _READ_AT_ONCE))
    for batch in dataset.as_numpy_iterator():
        is_masked = batch["masked_lm_weights"] > 0
        np.add.at(counts, batch["masked_lm_ids"][is_masked], 1)
    return counts
