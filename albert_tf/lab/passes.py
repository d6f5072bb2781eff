"""Measures how each pass through the layers changes real text.

A pass is one use of a layer's weights; ALBERT's layers share them. "State 0"
is the input of the first layer, state l the output of pass l.

Shapes: B batch, T tokens, H hidden_size, N heads, L passes, S = L + 1 states.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from albert_tf.model import heads, operations
from albert_tf.training import plateau


@dataclasses.dataclass(frozen=True)
class Measurements:
    """Means over tokens, predictions or sequences.

    Example:
      >>> from albert_tf.lab import speed
      >>> from albert_tf.model.config import AlbertConfig
      >>> config = AlbertConfig(
      ...     vocab_size=31, embedding_size=4, hidden_size=12,
      ...     num_hidden_layers=2, num_attention_heads=3, intermediate_size=17)
      >>> model = heads.AlbertForPreTraining(config)
      >>> batch = tf.data.Dataset.from_tensors(
      ...     speed.random_batch(config, 2, 8, 1))
      >>> measure(model, batch).norm.shape  # The input and two passes.
      (3,)

    Attributes:
      norm: [S], length of the vectors of each state.
      change: [L], distance between the input and output of each pass.
      cosines: [S, S], cosine similarity of a token's vectors in two states.
      token_cosine: [S], cosine similarity of different tokens' vectors.
      attention_entropy: [L, N], as a share of that of uniform attention.
      attention_distance: [L, N], from a token to what it attends to, in
        tokens.
      masked_lm_loss: [S], of the masked-LM head after each state, in nats.
      masked_lm_accuracy: [S].
      sentence_order_accuracy: [S].
      num_tokens: number of tokens.
      num_predictions: number of masked tokens.
      num_sequences: number of sequences.
    """

    norm: np.ndarray
    change: np.ndarray
    cosines: np.ndarray
    token_cosine: np.ndarray
    attention_entropy: np.ndarray
    attention_distance: np.ndarray
    masked_lm_loss: np.ndarray
    masked_lm_accuracy: np.ndarray
    sentence_order_accuracy: np.ndarray
    num_tokens: int
    num_predictions: int
    num_sequences: int

    def to_dict(self):
        """Returns a dict of numbers and lists, to write as JSON."""
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
        }


def measure(model, dataset) -> Measurements:
    """Runs a model on batches of pretraining records, and measures all passes.

    The pretraining heads are applied to each state, as if the model ended
    there. If all layers share their weights, it is the same model with fewer
    layers.

    Args:
      model: a `heads.AlbertForPreTraining`; all its layers are run.
      dataset: batches from `reading.build_dataset`, of one shape.
    """
    sum_batch = tf.function(lambda features: sum_measures(model, features))
    sums: dict = {}
    for features in dataset:
        for name, ratio in sum_batch(features).items():
            known = sums.get(name, [0.0, 0.0])
            parts = [np.asarray(part, np.float64) for part in ratio]
            sums[name] = [a + b for a, b in zip(known, parts, strict=True)]
    if not sums:
        raise ValueError("There is no text to measure passes with.")
    means = {name: a / np.maximum(b, 1e-12) for name, (a, b) in sums.items()}
    return Measurements(
        **means,
        num_tokens=round(float(sums["norm"][1])),
        num_predictions=round(float(sums["masked_lm_loss"][1])),
        num_sequences=round(float(sums["sentence_order_accuracy"][1])),
    )


def sum_measures(model, features):
    """Returns a dict from name to a total and its weight, for one batch."""
    outputs = model.encode(features, with_attention=True)
    first, _ = model.encoder.transformer.begin(
        outputs["embedding_output"], features["input_mask"]
    )  # [B * T, H]
    states = outputs["all_encoder_layers"]  # L of [B, T, H]
    states = [tf.reshape(first, tf.shape(states[0])), *states]
    mask = tf.cast(features["input_mask"], tf.float32)  # [B, T]
    return {
        **sum_states([tf.cast(x, tf.float32) for x in states], mask, features),
        **sum_attention(outputs["all_attention_probs"], mask),
        **sum_heads(model, states, features),
    }


def project(transformer, x):
    """Returns the input [R, H] of the first layer, from embeddings [R, E]."""
    if transformer.projection is None:
        return x
    return operations.dense(x, *transformer.cast(transformer.projection))


def sum_states(states, mask, features):
    """Sums lengths, distances and cosines of S states [B, T, H]."""
    num_tokens = tf.reduce_sum(mask)

    def total(values):  # [B, T]
        return tf.reduce_sum(values * mask)

    unit = tf.math.l2_normalize(tf.stack(states), axis=-1)  # [S, B, T, H]
    unit *= mask[:, :, tf.newaxis]
    unit = tf.reshape(unit, [len(states), -1])  # [S, B * T * H]
    norms = [total(tf.norm(x, axis=-1)) for x in states]
    pairs = zip(states[:-1], states[1:], strict=True)
    changes = [total(tf.norm(y - x, axis=-1)) for x, y in pairs]
    alike = [plateau.cosine_ratio(x, features) for x in states]
    return {
        "norm": (tf.stack(norms), num_tokens),  # [S]
        "change": (tf.stack(changes), num_tokens),  # [L]
        "cosines": (tf.matmul(unit, unit, transpose_b=True), num_tokens),
        "token_cosine": (tf.stack([r.total for r in alike]), alike[0].weight),
    }


def sum_attention(all_attention_probs, mask):
    """Sums entropy and distance of L attentions [B, N, T, T], by head."""
    num_tokens = mask.shape[1]
    position = tf.range(num_tokens, dtype=tf.float32)
    distance = tf.abs(position[:, tf.newaxis] - position)  # [T, T]
    weights = mask[:, tf.newaxis]  # [B, 1, T]
    entropies, distances = [], []
    for probs in all_attention_probs:
        shares = plateau.relative_entropy(probs, mask)  # [B, N, T]
        entropies.append(tf.reduce_sum(shares * weights, axis=[0, 2]))
        far = tf.reduce_sum(probs * distance, axis=-1)  # [B, N, T]
        distances.append(tf.reduce_sum(far * weights, axis=[0, 2]))
    total = tf.reduce_sum(mask)
    return {
        "attention_entropy": (tf.stack(entropies), total),  # [L, N]
        "attention_distance": (tf.stack(distances), total),
    }


def sum_heads(model, states, features):
    """Sums losses and hits of both heads, applied after each state."""
    table = model.word_embeddings
    rows = heads.row_weights(features)  # [B]
    weights = features["masked_lm_weights"] * rows[:, tf.newaxis]
    losses, hits, orders = [], [], []
    for state in states:
        loss, accuracy = model.masked_lm.ratios(
            heads.gather_positions(state, features["masked_lm_positions"]),
            features["masked_lm_ids"],
            weights,
            table,
        )
        pooled = model.encoder.pooler(state)
        _, order = heads.classification_ratios(
            model.sentence_order(pooled),
            features["sentence_order_labels"],
            rows,
        )
        losses.append(loss)
        hits.append(accuracy)
        orders.append(order)
    return {
        name: (tf.stack([r.total for r in ratios]), ratios[0].weight)
        for name, ratios in (
            ("masked_lm_loss", losses),
            ("masked_lm_accuracy", hits),
            ("sentence_order_accuracy", orders),
        )
    }


def project_words(model, ids):
    """Projects the word embeddings of K ids on two principal components.

    Returns:
      Dict with "embeddings", of E dimensions, and, if the model has a
      projection, "projected", of H. Unlike the first layer's input, they do not
      include positions, segments and the norm. Each is a dict of "coordinates"
      [K, 2] and "explained", the share of the variance of every component, to
      write as JSON.
    """
    transformer = model.encoder.transformer
    words = tf.gather(model.word_embeddings, ids)  # [K, E]
    words = tf.cast(words, model.compute_dtype)
    spaces = {"embeddings": words}
    if transformer.projection:
        spaces["projected"] = project(transformer, words)  # [K, H]
    return {
        name: principal_components(tf.cast(x, tf.float32))
        for name, x in spaces.items()
    }


def principal_components(x):
    """Returns coordinates and explained variance of x [K, D], in lists."""
    centered = np.asarray(x, np.float64) - np.mean(x, axis=0)
    left, scales, _ = np.linalg.svd(centered, full_matrices=False)
    variances = scales**2
    return {
        "coordinates": (left[:, :2] * scales[:2]).tolist(),
        "explained": (variances / max(variances.sum(), 1e-30)).tolist(),
    }
