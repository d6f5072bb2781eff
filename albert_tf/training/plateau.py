"""Measures whether a model in pretraining learns more than piece frequencies.

A masked LM first learns the unigram frequencies of pieces, and may stay on
this plateau for thousands of steps: attention is nearly uniform, and only
common pieces are predicted. When it leaves the plateau, both change together.

Shapes: B batch, T tokens, P predictions, V vocab_size, N heads.
"""

import numpy as np
import tensorflow as tf

from albert_tf.model import heads
from albert_tf.training import evaluation, replicas

# Number of pieces that count as common: frequencies alone often predict them.
NUM_COMMON = 100
# Steps between two measurements, and tokens per measurement: together they
# cost less than 1% of the training time. A replica computes fewer tokens at a
# time, so that this needs little memory.
INTERVAL = 100
TOKENS, TOKENS_AT_A_TIME = 2048, 512
# Gain of the masked-LM loss over the unigram loss, in nats, from which on a
# model counts as leaving the plateau, provided that the relative entropy of its
# attention is at most UNIFORM, and as learning. (Neighboring pieces alone give
# a gain of up to 0.83, in 7,500 steps that never left the plateau.)
LEAVING, LEARNING = 0.9, 1.2
UNIFORM = 0.85
# Steps after which a model is judged: half of all, but within these limits.
FIRST_ADVICE, LAST_ADVICE = 1_500, 10_000
# Mean cosine of different pieces' vectors from which on they say nothing of the
# text. (Models that learn are below 0.75 from step 300 on.)
COLLAPSED = 0.95
ADVICE = (
    "WARNING: After {step:,} steps the model has learned little more than "
    "piece frequencies: its masked-LM loss is {loss:.2f}, that of frequencies "
    "alone {frequency_loss:.2f}, the entropy of its attention "
    "{attention_entropy:.2f} of uniform. What helped small models, most "
    "first: {remedies}. See docs/plateau.md."
)
COLLAPSE = (
    "WARNING: After {step:,} steps the model gives all tokens nearly the same "
    "vector, whatever the text (mean cosine {token_cosine:.3f}): its masked-LM "
    "loss is {loss:.2f}, that of frequencies alone {frequency_loss:.2f}, and "
    "more steps will hardly lower it. Start again with "
    "initialization=neighbors or, if it began so, at half the learning rate. "
    "See docs/plateau.md."
)


def estimate_frequencies(counts: np.ndarray) -> np.ndarray:
    """Returns the probabilities of pieces, [V], of which some counts are 0.

    Each count is increased by the share of pieces that occur (Witten and Bell,
    1991): by 1 in large texts, and by little where a large vocabulary meets a
    small text, of which most of the probability would go to other pieces.
    """
    share = np.count_nonzero(counts) / len(counts)
    smoothed = counts + (share or 1.0)  # 1.0: no piece occurs.
    return smoothed / smoothed.sum()


class Gauge:
    """Measures a model on a few fixed batches.

    Args:
      strategy: the tf.distribute.Strategy of the model.
      model: a `heads.AlbertForPreTraining`.
      dataset: global batches as from `reading.build_dataset`.
      piece_counts: [V], counts of the pieces to predict in training.
      remedies: what the training could do to leave the plateau earlier, for
        the warning.
    """

    def __init__(
        self, strategy, model, dataset, piece_counts, remedies=("more steps",)
    ):
        self.remedies = remedies
        counts = np.asarray(piece_counts[: model.num_pieces], np.float64)
        self.batches = list(replicas.distribute(strategy, dataset))
        log_probs = np.log(estimate_frequencies(counts))
        rank = np.argsort(np.argsort(-counts, kind="stable"))
        self.measured = Measured(
            model,
            tf.constant(log_probs, tf.float32),
            tf.constant(rank >= NUM_COMMON),
        )
        self._sums = evaluation.build_eval_function(strategy, self.measured)
        self.last_step = None
        self.is_advised = False

    def is_due(self, step):
        """Whether to measure at this step, one of those that are logged."""
        last, self.last_step = self.last_step, step
        return last is None or step // INTERVAL > last // INTERVAL

    def measure(self):
        """Returns a dict from name to float.

        frequency_loss: loss of predicting the unigram frequencies, in nats.
        frequency_gain: frequency_loss minus the masked-LM loss, in nats.
        rare_masked_lm_loss: masked-LM loss on pieces that are not among the
          NUM_COMMON most frequent.
        token_cosine: mean cosine similarity of the output vectors of different
          pieces in one sequence.
        attention_entropy: mean entropy of attention, as a fraction of that of
          uniform attention.
        """
        sums = sum(self._sums(features).numpy() for features in self.batches)
        values = replicas.results(self.measured, sums)
        del values["loss"]  # Always 0: `loss_scales` is empty.
        loss = values.pop("masked_lm_loss")
        gain = values["frequency_loss"] - loss
        return {**values, "frequency_gain": gain}

    @staticmethod
    def describe(values):
        """Returns the state of training as one word."""
        gain = values["frequency_gain"]
        if gain >= LEARNING:
            return "learning"
        is_uniform = values["attention_entropy"] > UNIFORM
        return "frequencies" if gain < LEAVING or is_uniform else "leaving"

    def advise(self, step, num_train_steps, values):
        """Returns a warning, once, if the model is still on the plateau."""
        due = min(max(num_train_steps // 2, FIRST_ADVICE), LAST_ADVICE)
        if self.is_advised or step < due:
            return None
        self.is_advised = True
        if self.describe(values) != "frequencies":
            return None
        is_collapsed = values["token_cosine"] > COLLAPSED
        return (COLLAPSE if is_collapsed else ADVICE).format(
            step=step,
            loss=values["frequency_loss"] - values["frequency_gain"],
            remedies=", ".join(self.remedies),
            **values,
        )


class Measured:
    """A model as defined in `replicas`, whose metrics are the gauge's values.

    Args:
      model: a `heads.AlbertForPreTraining`.
      log_probs: [V], logarithms of the pieces' relative frequencies.
      is_rare: [V], whether a piece is not among the common ones.
    """

    loss_scales: dict = {}
    metric_names = [
        "frequency_loss",
        "masked_lm_loss",
        "rare_masked_lm_loss",
        "token_cosine",
        "attention_entropy",
    ]

    def __init__(self, model, log_probs, is_rare):
        self.model, self.log_probs, self.is_rare = model, log_probs, is_rare

    def ratios(self, features, training=False):
        """Returns a dict of a Ratio for each of `metric_names`."""
        model, labels = self.model, features["masked_lm_ids"]
        weights = features["masked_lm_weights"]  # [B, P]
        weights *= heads.row_weights(features)[:, tf.newaxis]
        outputs = model.encode(features, training, with_attention=True)
        vectors = heads.gather_positions(
            outputs["sequence_output"], features["masked_lm_positions"]
        )  # [B, P, H]
        losses, _ = model.masked_lm.losses(
            vectors, labels, model.word_embeddings
        )  # [B * P]
        losses = tf.reshape(losses, tf.shape(labels))
        rare = tf.cast(tf.gather(self.is_rare, labels), tf.float32)
        frequency_losses = -tf.gather(self.log_probs, labels)
        return {
            "frequency_loss": heads.weighted_mean(frequency_losses, weights),
            "masked_lm_loss": heads.weighted_mean(losses, weights),
            "rare_masked_lm_loss": heads.weighted_mean(losses, weights * rare),
            "token_cosine": cosine_ratio(outputs["sequence_output"], features),
            "attention_entropy": entropy_ratio(
                outputs["all_attention_probs"], features
            ),
        }


def cosine_ratio(sequence_output, features):
    """Returns the mean cosine between vectors of different pieces, a Ratio.

    `sequence_output` is [B, T, H].
    """
    x = tf.cast(sequence_output, tf.float32)
    x = tf.math.l2_normalize(x, axis=-1)
    cosines = tf.matmul(x, x, transpose_b=True)  # [B, T, T]
    ids, mask = features["input_ids"], features["input_mask"] > 0
    is_pair = ids[:, :, tf.newaxis] != ids[:, tf.newaxis, :]
    is_pair &= mask[:, :, tf.newaxis] & mask[:, tf.newaxis, :]
    return heads.weighted_mean(cosines, tf.cast(is_pair, tf.float32))


def entropy_ratio(all_attention_probs, features):
    """Returns the mean relative entropy of attention [B, N, T, T], a Ratio."""
    mask = tf.cast(features["input_mask"], tf.float32)  # [B, T]
    weights = mask[:, tf.newaxis, :]  # [B, 1, T]
    total = weight = 0.0
    for probs in all_attention_probs:
        shares = relative_entropy(probs, mask)  # [B, N, T]
        total += tf.reduce_sum(shares * weights)
        weight += tf.reduce_sum(tf.ones_like(shares) * weights)
    return heads.Ratio(total, weight)


def relative_entropy(probs, mask):
    """Returns entropy as a share of that of uniform attention, [B, N, T].

    Args:
      probs: attention probabilities, [B, N, T, T].
      mask: [B, T] float32, 1 for tokens and 0 for padding.
    """
    num_tokens = tf.reduce_sum(mask, axis=1)  # [B]
    uniform = tf.math.log(tf.maximum(num_tokens, 2.0))
    entropy = -tf.reduce_sum(tf.math.xlogy(probs, probs), axis=-1)
    return entropy / uniform[:, None, None]
