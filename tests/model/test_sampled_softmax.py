"""The masked LM's softmax over a sample of the pieces, in training."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from albert_tf import AlbertConfig
from albert_tf.model import heads, modeling
from tests import tiny

V, K = 60, 20
CONFIG = AlbertConfig(**{**tiny.SIZES, "vocab_size": V}, initializer_range=0.3)
LABELS = np.array([7, 7, 0, 31, 59])


def draw(number, num_sampled=K, labels=LABELS):
    seed = tf.constant([3, number])
    sample = heads.sample_pieces(tf.constant(labels), V, num_sampled, seed)
    return [np.array(part) for part in sample]


@pytest.mark.parametrize("jit_compile", [False, True])
def test_labels_are_always_among_the_pieces(jit_compile):
    sample = tf.function(heads.sample_pieces, jit_compile=jit_compile)
    for number in range(20):
        seed = tf.constant([3, number])
        pieces, corrections, places = sample(tf.constant(LABELS), V, K, seed)
        assert len(set(pieces.numpy())) == K == len(pieces)
        np.testing.assert_array_equal(tf.gather(pieces, places), LABELS)
        # 16 of the 56 others are drawn.
        wanted = np.where(np.isin(pieces, LABELS), 0, np.log(56 / 16))
        np.testing.assert_allclose(corrections, wanted, rtol=1e-6)


def test_others_are_drawn_equally_often_and_anew_in_each_step():
    counts = np.zeros(V)
    for number in range(350):
        counts[draw(number)[0]] += 1
    others = np.delete(counts, LABELS)
    # Binomial, 350 draws of 2 in 7: 100, a standard deviation of 8.
    assert others.sum() == 350 * 16
    assert 66 < others.min() and others.max() < 134
    np.testing.assert_array_equal(draw(4)[0], draw(4)[0])
    assert set(draw(4)[0]) != set(draw(5)[0])


def test_the_expected_sum_is_that_over_all_pieces():
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 1, [len(LABELS), V])
    sums = []
    for number in range(350):
        pieces, corrections, _ = draw(number)
        sums.append(np.exp(logits[:, pieces] + corrections).sum(axis=1))
    error = np.std(sums, axis=0) / np.sqrt(len(sums))
    wanted = np.exp(special.logsumexp(logits, axis=1))
    assert np.all(np.abs(np.mean(sums, axis=0) - wanted) < 4 * error)
    assert np.all(error < 0.03 * wanted)


def test_as_many_labels_as_pieces_leave_nothing_to_draw():
    labels = np.arange(30, 50)
    pieces, corrections, places = draw(0, labels=labels)
    assert set(pieces) == set(labels)
    np.testing.assert_array_equal(pieces[places], labels)
    np.testing.assert_array_equal(corrections, np.zeros(K))


def make_features():
    rng = np.random.default_rng(0)
    return {
        "input_ids": tf.constant(rng.integers(5, V, [4, 9])),
        "input_mask": tf.ones([4, 9], tf.int32),
        "segment_ids": tf.zeros([4, 9], tf.int32),
        "masked_lm_positions": tf.constant(rng.integers(1, 9, [4, 3])),
        "masked_lm_ids": tf.constant(rng.integers(5, V, [4, 3])),
        "masked_lm_weights": tf.constant(rng.random([4, 3]), tf.float32),
        "sentence_order_labels": tf.constant([0, 1, 1, 0]),
    }


def build(**kwargs):
    model = heads.AlbertForPreTraining(CONFIG, **kwargs)
    model.masked_lm.bias.assign(np.random.default_rng(1).normal(size=V))
    return model


@tf.function
def differentiate(model, compute_loss):
    """Returns a loss and its gradients, by name."""
    weights = modeling.named_weights(model)
    with tf.GradientTape() as tape:
        loss = compute_loss(model)
    found = tape.gradient(
        loss, {name: weight.value for name, weight in weights.items()}
    )
    return loss, {
        name: tf.convert_to_tensor(gradient)
        for name, gradient in found.items()
        if gradient is not None
    }


def test_loss_and_gradients_are_those_of_the_corrected_logits():
    model, features = build(num_sampled_pieces=K), make_features()
    seed = tf.constant([7, 1])
    labels = tf.reshape(features["masked_lm_ids"], [-1])
    pieces, corrections, places = model.build_sample(seed)(labels)

    def compute(model):
        ratios = model.ratios(features, training=True, seed=seed)
        return ratios["masked_lm_loss"].total

    def compute_plainly(model):
        logits = model(features)["masked_lm_logits"]  # [4, 3, V]
        logits = tf.gather(logits, pieces, axis=2) + corrections  # [4, 3, K]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            tf.reshape(places, [4, 3]), logits
        )
        return tf.reduce_sum(losses * features["masked_lm_weights"])

    loss, found = differentiate(model, compute)
    wanted_loss, wanted = differentiate(model, compute_plainly)
    np.testing.assert_allclose(loss, wanted_loss, rtol=1e-5)
    assert set(found) == set(wanted)
    for name, gradient in wanted.items():
        np.testing.assert_allclose(found[name], gradient, atol=1e-5)


def test_only_training_draws():
    sampled, plain = build(num_sampled_pieces=K), build()
    weights = modeling.named_weights(plain)
    for name, weight in modeling.named_weights(sampled).items():
        weight.assign(weights[name])
    features, seed = make_features(), tf.constant([7, 1])
    wanted = plain.ratios(features)["masked_lm_loss"].total
    found = sampled.ratios(features, seed=seed)["masked_lm_loss"].total
    np.testing.assert_array_equal(found, wanted)
    found = sampled.ratios(features, training=True, seed=seed)
    assert abs(found["masked_lm_loss"].total - wanted) > 1e-4


def test_a_sample_has_room_for_all_labels_or_there_is_none():
    labels = np.arange(10, 50)
    pieces, _, places = draw(0, K, labels)
    assert set(pieces) == set(labels)
    np.testing.assert_array_equal(pieces[places], labels)
    for num_sampled, num_labels in ((V, 3), (K, V)):
        labels = tf.zeros([num_labels], tf.int32)
        seed = tf.constant([3, 0])
        assert heads.sample_pieces(labels, V, num_sampled, seed) is None
    # The loss is then that over all pieces.
    features, seed = make_features(), tf.constant([7, 1])
    model = build()
    losses = []
    for model.num_sampled_pieces in (None, V, K):
        ratios = model.ratios(features, training=True, seed=seed)
        losses.append(float(ratios["masked_lm_loss"].total))
    assert losses[0] == losses[1] != losses[2]
