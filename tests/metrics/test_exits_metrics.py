"""Leaving early, counted by hand."""

import numpy as np

from albert_tf.metrics import exits
from albert_tf.metrics.exits import Exit


def make(num_rows=40, num_layers=5, num_classes=3):
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, [num_rows, num_layers, num_classes])
    return logits, rng.integers(0, num_classes, num_rows)


def test_uncertainty_is_0_for_one_class_and_1_for_all_alike():
    got = exits.uncertainty(np.array([[50.0, 0, 0, 0], [2, 2, 2, 2]]))
    np.testing.assert_allclose(got, [0, 1], atol=1e-12)
    # Two of four classes alike are half as uncertain.
    half = exits.uncertainty(np.array([9.0, 9.0, -90, -90]))
    np.testing.assert_allclose(half, 0.5)


def test_a_row_leaves_after_its_first_sure_layer():
    layer_logits, _ = make()
    for threshold in (0, 0.2, 0.6, 1.1):
        logits, num_layers = exits.leave(layer_logits, threshold)
        for row, got, count in zip(
            layer_logits, logits, num_layers, strict=True
        ):
            layer = 0
            while layer < len(row) - 1:
                p = np.exp(row[layer]) / np.exp(row[layer]).sum()
                if -(p * np.log(p)).sum() / np.log(3) < threshold:
                    break
                layer += 1
            assert count == layer + 1
            np.testing.assert_array_equal(got, row[layer])
    assert set(exits.leave(layer_logits, 0)[1]) == {5}


def test_the_first_exit_takes_all_layers():
    layer_logits, labels = make()
    rows = exits.list_exits(layer_logits, labels, "eval_accuracy", [0.123])
    hits = layer_logits[:, -1].argmax(axis=-1) == labels
    assert rows[0] == Exit(0.0, hits.mean(), 5.0, 0.0)
    assert len(rows) == len(exits.THRESHOLDS) + 1
    assert 0.123 in [row.threshold for row in rows]
    costs = [row.num_layers for row in rows]
    assert costs == sorted(costs, reverse=True)


def test_the_fastest_before_one_that_loses_more_is_chosen():
    rows = [
        Exit(0.0, 0.90, 12.0),
        Exit(0.1, 0.895, 6.0),
        Exit(0.2, 0.88, 4.0),
        Exit(0.3, 0.92, 5.0),
        Exit(0.4, 0.90, 5.0),
    ]
    chosen = [
        exits.choose_exit(rows, x).threshold for x in (0, 0.001, 0.006, 0.1)
    ]
    # 0.3 is better by chance, as 0.2 shows; of two as fast, the lower one.
    assert chosen == [0.0, 0.0, 0.1, 0.2]
    assert exits.choose_exit(rows[3:], 0.1).threshold == 0.3
    # The loss of 0.1 is 0.005, with its error 0.015.
    rows[1] = rows[1]._replace(error=0.01)
    chosen = [exits.choose_exit(rows, x).threshold for x in (0.01, 0.016)]
    assert chosen == [0.0, 0.1]


def test_the_error_of_a_loss_is_that_of_paired_answers():
    layer_logits, labels = make(3000, 4)
    layer_logits[..., 0] += 4 * (labels == 0)[:, None]  # Better than chance.
    for row in exits.list_exits(layer_logits, labels, "eval_accuracy")[10::9]:
        logits, _ = exits.leave(layer_logits, row.threshold)
        hits = logits.argmax(axis=1) == labels
        lost = (layer_logits[:, -1].argmax(axis=1) == labels) * 1.0 - hits
        wanted = lost.std() / np.sqrt(len(lost))
        # 20 parts tell it within a sixth (one standard deviation).
        assert abs(row.error - wanted) < 0.5 * wanted
        assert row.score == hits.mean()


def test_few_examples_without_a_difference_prove_nothing():
    layer_logits = np.zeros([50, 4, 2])
    layer_logits[..., 1] = np.arange(1, 5)  # Surer after each layer.
    labels = np.ones(50, int)
    rows = exits.list_exits(layer_logits, labels, "eval_accuracy")
    assert {row.error for row in rows} == {0, 1 / 50}
    assert exits.choose_exit(rows, 0.019).threshold == 0
    assert exits.choose_exit(rows, 0.021).num_layers == 1


def test_a_right_answer_of_a_rare_label_counts_more():
    labels = np.repeat([0, 1], [95, 5])
    # All are right after both layers, but for one of the rare label.
    layer_logits = np.stack([20.0 * np.eye(2)[labels]] * 2, axis=1)
    layer_logits[-1] = layer_logits[-1, :, ::-1]
    (*_, row) = exits.list_exits(layer_logits, labels, "f1")
    # Of 5, 4 and then 3 are found: 2 * 4 / (4 + 5) and 2 * 3 / (3 + 5).
    assert row.num_layers == 1
    np.testing.assert_allclose(row.error, 8 / 9 - 6 / 8)
    (*_, row) = exits.list_exits(layer_logits, labels, "eval_accuracy")
    np.testing.assert_allclose(row.error, 1 / 100)


def test_one_example_tells_no_error():
    assert exits.jackknife([len(part) for part in exits.leave_out(1)]) == np.inf
    logits = np.array([[[0, 1.0], [2, 0]]])  # [1, 2, 2]
    rows = exits.list_exits(logits, np.array([1]), "eval_accuracy")
    assert (rows[0].score, rows[0].error) == (0, 0)
    assert (rows[-1].score, rows[-1].error) == (1, np.inf)
    values = np.array([3.0, 5.0, 10.0])
    error = exits.jackknife([values[x].mean() for x in exits.leave_out(3)])
    np.testing.assert_allclose(error, values.std(ddof=1) / np.sqrt(3))
