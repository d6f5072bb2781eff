"""Scores of vectors, by naive code."""

import numpy as np
from scipy import stats

from albert_tf.metrics import vectors


def random_vectors(num_texts, size, seed=0):
    found = np.random.default_rng(seed).normal(size=(num_texts, size))
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def test_cosines_correlate_with_scores():
    found, rng = random_vectors(30, 5), np.random.default_rng(1)
    index = rng.integers(0, 30, (40, 2))
    cosines = vectors.cosines(found, index)
    for value, (a, b) in zip(cosines, index, strict=True):
        np.testing.assert_allclose(value, found[a] @ found[b])
    scores = rng.integers(0, 6, 40)
    values = vectors.score_similarity(cosines, scores)
    assert np.isclose(values["spearman"], stats.spearmanr(cosines, scores)[0])
    assert np.isclose(values["pearson"], stats.pearsonr(cosines, scores)[0])


def test_second_texts_are_ranked(monkeypatch):
    monkeypatch.setattr(vectors, "ROWS", 7)
    found, rng = random_vectors(25, 3), np.random.default_rng(2)
    index = rng.integers(0, 25, (40, 2))
    ranks = []
    for first, second in index:
        own = found[first] @ found[second]
        right = {b for a, b in index if a == first}
        rivals = {b for _, b in index} - right - {first}
        nearer = sum(found[first] @ found[rival] > own for rival in rivals)
        ranks.append(1 + nearer)
    values = vectors.score_ranking(found, index)
    ranks = np.array(ranks)
    assert np.isclose(values["mrr"], (1 / ranks).mean())
    assert np.isclose(values["recall_at_1"], (ranks == 1).mean())
    assert np.isclose(values["recall_at_10"], (ranks <= 10).mean())


def test_random_ranks_have_the_expected_scores():
    expected = vectors.expect_ranking(20)
    found = [
        vectors.score_ranking(
            random_vectors(40, 6, seed), np.arange(40).reshape(20, 2)
        )
        for seed in range(200)
    ]
    for name, value in expected.items():
        mean = np.mean([row[name] for row in found])
        assert abs(mean - value) < 0.03, name


def test_vectors_that_are_nan_are_last():
    values = vectors.score_ranking(
        np.full([4, 1], np.nan), np.arange(4).reshape(2, 2)
    )
    assert values["recall_at_1"] == 0
    # One of three pairs, whose second text is no rival of others.
    found = np.repeat(np.eye(3), 2, axis=0)
    found[5] = np.nan
    values = vectors.score_ranking(found, np.arange(6).reshape(3, 2))
    assert np.isclose(values["recall_at_1"], 2 / 3)


def test_equal_vectors_are_in_the_middle():
    values = vectors.score_ranking(
        np.ones([40, 1]), np.arange(40).reshape(20, 2)
    )
    assert values["recall_at_1"] == 0 and np.isclose(values["mrr"], 1 / 10.5)
