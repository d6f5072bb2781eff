"""Scores of vectors of texts.

Shapes: N pairs, U texts, H elements of a vector.
"""

import numpy as np

from albert_tf.metrics import classification

# Pairs that are ranked at once.
ROWS = 1024


def cosines(vectors: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Returns the cosine of each pair, [N].

    `vectors` [U, H] have the length 1; `index` [N, 2] names those of a pair.
    """
    first, second = vectors[index[:, 0]], vectors[index[:, 1]]
    return np.einsum("nh,nh->n", first, second)


def score_similarity(found: np.ndarray, scores) -> dict[str, float]:
    """Returns the correlations of cosines with scores, [N] each."""
    values = classification.score(
        found[:, np.newaxis],
        np.array(scores),
        "regression",
        ["spearman", "pearson"],
    )
    return {name: values[name] for name in ("spearman", "pearson")}


def expect_ranking(count: int) -> dict[str, float]:
    """Returns the scores of `score_ranking` to expect of random ranks.

    `count` is the number of texts that are ranked.
    """
    return {
        "mrr": float((1 / np.arange(1, count + 1)).mean()),
        "recall_at_1": 1 / count,
        "recall_at_10": min(10, count) / count,
    }


def score_ranking(vectors: np.ndarray, index: np.ndarray) -> dict[str, float]:
    """Ranks the second text of each pair among those of all pairs.

    Other second texts of the same first text are no rivals; a rival as near as
    the right text counts half.

    Args:
      vectors: [U, H], of length 1.
      index: [N, 2], as for `cosines`.

    Returns:
      `mrr`, the mean of 1 / rank; and `recall_at_1` and `recall_at_10`, the
      fraction of pairs of at most this rank.
    """
    candidates = np.unique(index[:, 1])  # [K]
    right: dict[int, list] = {}
    for first, second in index:
        right.setdefault(int(first), []).append(second)
    ranks = []
    for start in range(0, len(index), ROWS):
        rows = index[start : start + ROWS]
        scores = vectors[rows[:, 0]] @ vectors[candidates].T  # [rows, K]
        places = np.searchsorted(candidates, rows[:, 1])
        own = scores[np.arange(len(rows)), places][:, np.newaxis]
        is_rival = np.ones(scores.shape, bool)
        for row, first in enumerate(rows[:, 0]):
            others = np.searchsorted(candidates, right[int(first)])
            is_rival[row, others] = False
            # A text is no rival of itself.
            is_rival[row, candidates == first] = False
        # A row whose own cosine is NaN is last.
        nearer = (((scores > own) | np.isnan(own)) & is_rival).sum(axis=1)
        as_near = ((scores == own) & is_rival).sum(axis=1)
        ranks.append(1 + nearer + as_near / 2)
    rank = np.concatenate(ranks)
    return {
        "mrr": float((1 / rank).mean()),
        "recall_at_1": float((rank <= 1).mean()),
        "recall_at_10": float((rank <= 10).mean()),
    }
