"""Heads on the encoder: from its outputs to logits, losses and metrics.

A loss or a metric is a `Ratio`, a sum and what to divide it by, because both
are sums over the whole batch: the training loop adds them up over replicas
and steps before it divides.

Shapes: B batch, T tokens, P predictions, E embedding_size, H hidden_size,
V vocab_size.
"""

from typing import NamedTuple

import keras
import tensorflow as tf

from albert_tf import layers, modeling


class Ratio(NamedTuple):
    """A loss or a metric: total / (weight + epsilon), float32 scalars."""

    total: tf.Tensor
    weight: tf.Tensor
    epsilon: float = 0.0


# The release adds this to the masked-LM weight, so that a batch without a
# prediction has loss 0.
MASKED_LM_EPSILON = 1e-5


def gather_positions(sequence, positions):
    """Picks the vectors at some positions of each sequence.

    Padding in `positions` is 0 and so picks [CLS]; the caller weights it away.

    Args:
      sequence: [B, T, H].
      positions: [B, P], in tokens from the start, each below T.

    Returns:
      [B, P, H].

    Source: run_pretraining.py, `gather_indexes`, which returns [B * P, H].
    """
    return tf.gather(sequence, positions, batch_dims=1)


class MaskedLM(layers.WeightOwner):
    """Logits of the vocabulary, [B, P, V] float32, for some positions."""

    def __init__(self, config, **kwargs):
        super().__init__("cls/predictions", config.initializer_range, **kwargs)
        self.config = config
        size = config.embedding_size
        self.dense = self.add_dense("transform/dense", config.hidden_size, size)
        self.norm = self.add_norm("transform/LayerNorm", size)
        self.bias = self.add("output_bias", (config.vocab_size,), "zeros")

    def call(self, sequence_output, positions, word_embeddings):
        num_positions = positions.shape[1] or tf.shape(positions)[1]
        x = gather_positions(sequence_output, positions)  # [B, P, H]
        x = tf.reshape(x, [-1, self.config.hidden_size])  # [B * P, H]
        x = layers.dense(x, *self.cast(self.dense))  # [B * P, E]
        x = layers.ACTIVATIONS[self.config.hidden_act](x)
        x = layers.layer_norm(x, *(w.value for w in self.norm))
        table = tf.cast(word_embeddings, x.dtype)
        logits = tf.matmul(x, table, transpose_b=True)  # [B * P, V]
        logits = tf.cast(logits, tf.float32) + self.bias.value
        return tf.reshape(logits, [-1, num_positions, self.config.vocab_size])


class SentenceOrder(layers.WeightOwner):
    """Logits [B, 2] float32: the segments are in order (0), swapped (1)."""

    def __init__(self, config, **kwargs):
        super().__init__(
            "cls/seq_relationship", config.initializer_range, **kwargs
        )
        self.output_weights = self.add(
            "output_weights", (2, config.hidden_size)
        )
        self.output_bias = self.add("output_bias", (2,), "zeros")

    def call(self, pooled_output):
        logits = tf.matmul(
            tf.cast(pooled_output, tf.float32),
            self.output_weights.value,
            transpose_b=True,
        )
        return logits + self.output_bias.value


def classification_ratios(logits, labels, weights):
    """Returns cross entropy and accuracy, as two Ratios.

    Args:
      logits: [..., C] float32.
      labels: [...] integers below C.
      weights: [...] float32; 0 takes a label out of both.
    """
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    hits = tf.argmax(logits, axis=-1, output_type=labels.dtype) == labels
    weight = tf.reduce_sum(weights)
    return (
        Ratio(tf.reduce_sum(losses * weights), weight),
        Ratio(tf.reduce_sum(tf.cast(hits, tf.float32) * weights), weight),
    )


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertForPreTraining(keras.layers.Layer):
    """The encoder with the masked-LM and the sentence-order head.

    Called with a dict of features (`input_ids`, `input_mask`, `segment_ids`,
    `masked_lm_positions`), it returns `masked_lm_logits` [B, P, V] and
    `sentence_order_logits` [B, 2], both float32.

    Args:
      config: an AlbertConfig.
      sentence_weight: what the sentence-order (or next-sentence) loss is
        multiplied with; 0 trains on the masked LM alone.
      dtype: as for `modeling.AlbertEncoder`.

    Source: run_pretraining.py, `model_fn`; the weight is ours.
    """

    def __init__(self, config, *, sentence_weight=1.0, dtype=None, **kwargs):
        super().__init__(dtype=dtype, **kwargs)
        self.config = config
        self.sentence_weight = sentence_weight
        self.encoder = modeling.AlbertEncoder(config, dtype=self.dtype_policy)
        self.masked_lm = MaskedLM(config, dtype=self.dtype_policy)
        self.sentence_order = SentenceOrder(config, dtype=self.dtype_policy)
        self.loss_scales = {"masked_lm_loss": 1.0}
        self.metric_names = ["masked_lm_accuracy"]
        if sentence_weight:
            self.loss_scales["sentence_order_loss"] = sentence_weight
            self.metric_names.append("sentence_order_accuracy")
        self.built = True

    def call(self, features, training=False, seed=None):
        outputs = self.encoder(
            features["input_ids"],
            features["input_mask"],
            features["segment_ids"],
            training=training,
            seed=seed,
        )
        return {
            "masked_lm_logits": self.masked_lm(
                outputs["sequence_output"],
                features["masked_lm_positions"],
                tf.convert_to_tensor(self.encoder.embeddings.word.value),
            ),
            "sentence_order_logits": self.sentence_order(
                outputs["pooled_output"]
            ),
        }

    @staticmethod
    def is_complete_in(names):
        """Whether names of weights include both heads'."""
        ends = ("predictions/output_bias", "seq_relationship/output_bias")
        return all(f"cls/{end}" in names for end in ends)

    def ratios(self, features, training=False, seed=None):
        """Computes the losses and metrics of a batch.

        Args:
          features: a dict as `records.build_dataset` makes it.
          training: whether dropout is on.
          seed: [2] int32, decides the dropout.

        Returns:
          A Ratio for each of `loss_scales` and `metric_names`.
        """
        outputs = self(features, training=training, seed=seed)
        labels = features["sentence_order_labels"]  # [B]
        rows = features.get("example_weight")  # [B]
        if rows is None:
            rows = tf.ones_like(labels, tf.float32)
        loss, accuracy = classification_ratios(
            outputs["masked_lm_logits"],
            features["masked_lm_ids"],
            features["masked_lm_weights"] * rows[:, tf.newaxis],
        )
        ratios = {
            "masked_lm_loss": loss._replace(epsilon=MASKED_LM_EPSILON),
            "masked_lm_accuracy": accuracy,
        }
        if self.sentence_weight:
            loss, accuracy = classification_ratios(
                outputs["sentence_order_logits"], labels, rows
            )
            ratios["sentence_order_loss"] = loss
            ratios["sentence_order_accuracy"] = accuracy
        return ratios

    def get_config(self):
        return {
            **super().get_config(),
            "config": self.config.to_dict(),
            "sentence_weight": self.sentence_weight,
        }

    from_config = classmethod(modeling.AlbertEncoder.from_config.__func__)
