"""Tells, while it pretrains, whether a model learns more than frequencies.

A masked LM first learns how frequent pieces are, and may stay there for
thousands of steps: attention is nearly uniform, and only common pieces are
guessed. When it leaves, both change together.

Shapes: B batch, T tokens, P predictions, V vocab_size, N heads.
"""

import numpy as np
import tensorflow as tf

from albert_tf.model import heads
from albert_tf.training import evaluation, loop

# Pieces that frequencies alone often get right.
NUM_COMMON = 100
# Steps between two measurements, and tokens that one looks at: together under
# a hundredth of the time.
INTERVAL = 100
TOKENS = 4096
# What the masked-LM loss is below that of frequencies, in nats, from where on
# a model is leaving them, and is learning; but not before the entropy of its
# attention is below UNIFORM. (Neighbours alone are worth 0.8 in some texts.)
LEAVING, LEARNING = 0.6, 1.2
UNIFORM = 0.85
ADVICE = (
    "WARNING: Half of the steps are done, and the model knows little more than "
    "how frequent pieces are: masked-LM loss {loss:.2f}, by frequencies alone "
    "{frequency_loss:.2f}. What helps: docs/pretraining.md."
)


class Gauge:
    """Measures a model on one batch that stays the same.

    Args:
      strategy: the tf.distribute.Strategy of the model.
      model: a `heads.AlbertForPreTraining`.
      dataset: of global batches as from `reading.build_dataset`; the first is
        measured on.
      piece_counts: [V], how often each piece is predicted in training.
    """

    def __init__(self, strategy, model, dataset, piece_counts):
        counts = np.asarray(piece_counts, np.float64)
        self.features = next(iter(loop.distribute(strategy, dataset)))
        # A piece that was not seen has the weight of one that was seen once.
        log_probs = np.log((counts + 1) / (counts + 1).sum())
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
        """Whether to measure at this step, of those that are asked for."""
        last, self.last_step = self.last_step, step
        return last is None or step // INTERVAL > last // INTERVAL

    def measure(self):
        """Returns a dict from name to float.

        frequency_loss: of guessing by frequencies alone, in nats.
        frequency_gain: what the masked-LM loss is below that.
        rare_masked_lm_loss: masked-LM loss on pieces that are not among the
          NUM_COMMON most frequent.
        token_cosine: mean cosine between the vectors of different pieces in
          one sequence.
        attention_entropy: of attention, as a share of what uniform has.
        """
        values = loop.results(self.measured, self._sums(self.features))
        del values["loss"]  # Nothing is trained here.
        loss = values.pop("masked_lm_loss")
        gain = values["frequency_loss"] - loss
        return {**values, "frequency_gain": gain}

    @staticmethod
    def describe(values):
        """Returns one word for what `measure` gave."""
        gain = values["frequency_gain"]
        if gain < LEAVING or values["attention_entropy"] > UNIFORM:
            return "frequencies"
        return "leaving" if gain < LEARNING else "learning"

    def advise(self, step, num_train_steps, values):
        """Returns a warning, once, where half of a training was in vain."""
        is_late = 2 * step >= num_train_steps
        if self.is_advised or not is_late:
            return None
        self.is_advised = True
        if self.describe(values) != "frequencies":
            return None
        frequency_loss = values["frequency_loss"]
        loss = frequency_loss - values["frequency_gain"]
        return ADVICE.format(loss=loss, frequency_loss=frequency_loss)


class Measured:
    """A model as the loop wants one, with the gauge's figures as metrics.

    Args:
      model: a `heads.AlbertForPreTraining`.
      log_probs: [V], logarithms of the pieces' frequencies.
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
        """A Ratio for each of `metric_names`."""
        model, labels = self.model, features["masked_lm_ids"]
        weights = features["masked_lm_weights"]  # [B, P]
        weights *= heads.row_weights(features)[:, tf.newaxis]
        outputs = model.encoder(
            features["input_ids"],
            features["input_mask"],
            features["segment_ids"],
            training=training,
            with_attention=True,
        )
        losses, _ = model.masked_lm.losses(
            outputs["sequence_output"],
            features,
            tf.convert_to_tensor(model.encoder.embeddings.word.value),
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
    """Mean cosine of the vectors [B, T, H] of different pieces, a Ratio."""
    x = tf.cast(sequence_output, tf.float32)
    x = tf.math.l2_normalize(x, axis=-1)
    cosines = tf.matmul(x, x, transpose_b=True)  # [B, T, T]
    ids, mask = features["input_ids"], features["input_mask"] > 0
    is_pair = ids[:, :, tf.newaxis] != ids[:, tf.newaxis, :]
    is_pair &= mask[:, :, tf.newaxis] & mask[:, tf.newaxis, :]
    return heads.weighted_mean(cosines, tf.cast(is_pair, tf.float32))


def entropy_ratio(all_attention_probs, features):
    """Mean entropy of probabilities [B, N, T, T], as a share, a Ratio."""
    mask = tf.cast(features["input_mask"], tf.float32)  # [B, T]
    num_tokens = tf.reduce_sum(mask, axis=1)  # [B]
    uniform = tf.math.log(tf.maximum(num_tokens, 2.0))
    weights = mask[:, tf.newaxis, :]  # [B, 1, T]
    total = weight = 0.0
    for probs in all_attention_probs:
        terms = tf.math.multiply_no_nan(
            tf.math.log(tf.maximum(probs, 1e-30)), probs
        )
        shares = -tf.reduce_sum(terms, axis=-1) / uniform[:, None, None]
        total += tf.reduce_sum(shares * weights)  # of [B, N, T]
        weight += tf.reduce_sum(tf.ones_like(shares) * weights)
    return heads.Ratio(total, weight)
