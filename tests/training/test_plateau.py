"""The gauge's values are correct for any number of replicas."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import heads
from albert_tf.model.config import AlbertConfig
from albert_tf.training import distribution, plateau
from tests import tiny

CONFIG = AlbertConfig(
    **{**tiny.SIZES, "vocab_size": 150, "max_position_embeddings": 9},
    initializer_range=0.5,
)
LENGTHS = [9, 4, 6, 1]


def make_batch():
    rng = np.random.default_rng(3)
    mask = (np.arange(9) < np.array(LENGTHS)[:, None]).astype(np.int32)
    return {
        "input_ids": rng.integers(5, 12, (4, 9), np.int32) * mask,
        "input_mask": mask,
        "segment_ids": np.zeros((4, 9), np.int32),
        "masked_lm_positions": np.tile(np.array([1, 2, 3], np.int32), (4, 1)),
        "masked_lm_ids": rng.integers(5, 150, (4, 3), np.int32),
        "masked_lm_weights": np.array(
            [[1, 1, 1], [1, 1, 0], [1, 1, 1], [0, 0, 0]], np.float32
        ),
        "example_weight": np.array([1, 1, 0, 1], np.float32),
    }


# Strategies, and sequences per batch: all batches count.
SPLITS = [("one_device", 4), ("one_device", 1), ("mirrored", 4)]


def build(strategy, counts, batch_size=4):
    with strategy.scope():
        keras.utils.set_random_seed(5)
        model = heads.AlbertForPreTraining(CONFIG)
    dataset = tf.data.Dataset.from_tensors(make_batch()).unbatch()
    return model, plateau.Gauge(
        strategy, model, dataset.batch(batch_size), counts, ["one", "two"]
    )


def test_a_small_text_leaves_little_to_a_large_vocabulary():
    counts = np.array([10] * 10 + [0] * 20_000)
    probs = plateau.estimate_frequencies(counts)
    assert probs.sum() == pytest.approx(1)
    assert probs[:10].sum() == pytest.approx(100 / 110, abs=1e-3)
    without = plateau.estimate_frequencies(0 * counts)
    np.testing.assert_allclose(without, 1 / 20_010)


@pytest.mark.parametrize(("kind", "batch_size"), SPLITS)
def test_the_gauge_has_the_losses_of_its_sequences(kind, batch_size):
    counts = np.random.default_rng(2).permutation(150)
    strategy = distribution.build_strategy(kind)
    model, measured = build(strategy, counts, batch_size)
    values = measured.measure()
    batch = make_batch()
    weights = batch["masked_lm_weights"] * batch["example_weight"][:, None]
    labels = batch["masked_lm_ids"]
    smoothed = counts + (149 / 150)  # One of the 150 pieces has no count.
    probs = smoothed / smoothed.sum()
    wanted = -np.log(probs[labels])[weights > 0].mean()
    np.testing.assert_allclose(values["frequency_loss"], wanted, rtol=1e-5)
    logits = model(batch)["masked_lm_logits"]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    loss = losses.numpy()[weights > 0].mean()
    np.testing.assert_allclose(
        values["frequency_gain"], wanted - loss, rtol=1e-4
    )
    # The hundred most frequent have counts from 50 on.
    is_rare = (counts[labels] < 50) & (weights > 0)
    assert 0 < is_rare.sum() < weights.sum()
    rare = losses.numpy()[is_rare].mean()
    np.testing.assert_allclose(values["rare_masked_lm_loss"], rare, rtol=1e-5)


@pytest.mark.parametrize(("kind", "batch_size"), SPLITS)
def test_cosine_and_entropy_equal_those_in_numpy(kind, batch_size):
    strategy = distribution.build_strategy(kind)
    model, measured = build(strategy, np.ones(150), batch_size)
    values = measured.measure()
    batch = make_batch()
    outputs = model.encoder(
        batch["input_ids"], batch["input_mask"], with_attention=True
    )
    cosines, entropies = [], []
    for row, length in enumerate(LENGTHS):
        x = outputs["sequence_output"][row, :length].numpy()
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        ids = batch["input_ids"][row, :length]
        cosines += (x @ x.T)[ids[:, None] != ids[None, :]].tolist()
        for probs in outputs["all_attention_probs"]:
            p = probs[row, :, :length, :length].numpy()  # [N, t, t]
            entropy = -(p * np.log(np.maximum(p, 1e-30))).sum(axis=-1)
            entropies += (entropy / np.log(max(length, 2))).ravel().tolist()
    np.testing.assert_allclose(
        values["token_cosine"], np.mean(cosines), rtol=1e-4
    )
    np.testing.assert_allclose(
        values["attention_entropy"], np.mean(entropies), rtol=1e-4
    )


def test_uniform_attention_has_the_maximum_entropy():
    batch = make_batch()
    mask = batch["input_mask"][:, None, None, :]  # [B, 1, 1, T]
    uniform = mask / mask.sum(axis=-1, keepdims=True)
    uniform = tf.constant(np.broadcast_to(uniform, (4, 3, 9, 9)), tf.float32)
    features = {"input_mask": tf.constant(batch["input_mask"][:3])}
    ratio = plateau.entropy_ratio([uniform[:3]], features)
    np.testing.assert_allclose(ratio.total / ratio.weight, 1, rtol=1e-5)
    ratio = plateau.entropy_ratio([tf.eye(9, batch_shape=[3, 3])], features)
    assert ratio.total == 0


def test_the_gauge_is_due_once_per_interval():
    _, measured = build(tf.distribute.get_strategy(), np.ones(150))
    steps = [1, 50, 99, 100, 150, 199, 250, 260, 1000]
    due = [step for step in steps if measured.is_due(step)]
    assert due == [1, 100, 250, 1000]


@pytest.mark.parametrize(
    ("gain", "entropy", "word"),
    [
        (-1, 0.9, "frequencies"),
        (0.5, 0.7, "frequencies"),
        (1.0, 0.9, "frequencies"),
        (0.83, 0.8, "frequencies"),
        (1.0, 0.8, "leaving"),
        (1.3, 0.8, "learning"),
        (9, 0.1, "learning"),
        (1.3, 0.87, "learning"),  # A deep model.
    ],
)
def test_the_gauge_has_a_word_for_each_state(gain, entropy, word):
    values = {"frequency_gain": gain, "attention_entropy": entropy}
    assert plateau.Gauge.describe(values) == word


@pytest.mark.parametrize(
    ("num_train_steps", "due"),
    [(8_000, 4_000), (2_000, 1_500), (125_000, 10_000)],
)
def test_the_gauge_advises_once_if_nothing_was_learned(num_train_steps, due):
    stuck = {
        "frequency_loss": 6.6,
        "frequency_gain": 0.4,
        "attention_entropy": 0.6,
        "token_cosine": 0.9,
    }
    _, measured = build(tf.distribute.get_strategy(), np.ones(150))
    assert measured.advise(due - 1, num_train_steps, stuck) is None
    advice = measured.advise(due, num_train_steps, stuck)
    assert f"After {due:,} steps" in advice
    assert "loss is 6.20, that of frequencies alone 6.60" in advice
    assert "0.60 of uniform" in advice
    assert "most first: one, two. See" in advice
    assert measured.advise(due + 1, num_train_steps, stuck) is None
    _, measured = build(tf.distribute.get_strategy(), np.ones(150))
    learned = stuck | {"frequency_gain": 2.0}
    assert measured.advise(due, num_train_steps, learned) is None


def test_the_gauge_says_if_all_vectors_are_equal():
    collapsed = {
        "frequency_loss": 6.53,
        "frequency_gain": -0.01,
        "attention_entropy": 0.99,
        "token_cosine": 0.9996,
    }
    _, measured = build(tf.distribute.get_strategy(), np.ones(150))
    advice = measured.advise(1_500, 2_500, collapsed)
    assert "After 1,500 steps" in advice and "cosine 1.000" in advice
    assert "loss is 6.54, that of frequencies alone 6.53" in advice
    assert "initialization=neighbors" in advice and "one, two" not in advice
