"""Heads on the encoder: from its outputs to logits, losses and metrics.

A loss or a metric is a `Ratio`, a sum and what to divide it by, because both
are sums over the whole batch: the training loop adds them up over replicas
and steps before it divides.

Shapes: B batch, T tokens, P predictions, E embedding_size, H hidden_size,
V vocab_size.
"""

import functools
import math
from typing import NamedTuple

import keras
import tensorflow as tf

from albert_tf.model import compiled, layers, modeling


class Ratio(NamedTuple):
    """A loss or a metric: total / (weight + epsilon), float32 scalars."""

    total: tf.Tensor
    weight: tf.Tensor
    epsilon: float = 0.0


# The release adds this to the masked-LM weight, so that a batch without a
# prediction has loss 0.
MASKED_LM_EPSILON = 1e-5
# Folded into the seed for the heads' dropout; more than the encoder's calls.
HEAD_SEED = 1_000_000
OBJECTIVES = ("classes", "regression", "multi_label")


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
        x = self.transform(sequence_output, positions)  # [B * P, E]
        table = tf.cast(word_embeddings, x.dtype)  # [V, E]
        logits = vocabulary_logits(x, table, self.bias.value)  # [B * P, V]
        rows = modeling.split_rows(positions)
        return tf.reshape(logits, [*rows, self.config.vocab_size])

    def transform(self, sequence_output, positions):
        """Returns [B * P, E]: what is multiplied with the embeddings."""
        x = gather_positions(sequence_output, positions)  # [B, P, H]
        x = tf.reshape(x, [-1, self.config.hidden_size])  # [B * P, H]
        x = layers.dense(x, *self.cast(self.dense))  # [B * P, E]
        x = layers.ACTIVATIONS[self.config.hidden_act](x)
        return layers.layer_norm(x, *(w.value for w in self.norm))

    def losses(self, sequence_output, features, word_embeddings):
        """Returns cross entropy and hits of `call`'s logits, [B * P] each.

        `features` has `masked_lm_positions` and `masked_lm_ids`, [B, P].
        """
        x = self.transform(sequence_output, features["masked_lm_positions"])
        return vocabulary_losses(
            x,
            tf.cast(word_embeddings, x.dtype),
            tf.convert_to_tensor(self.bias.value),
            tf.reshape(features["masked_lm_ids"], [-1]),
        )

    def ratios(self, sequence_output, features, weights, word_embeddings):
        """Returns the means of `losses`, two Ratios; weights are [B, P]."""
        losses, hits = self.losses(sequence_output, features, word_embeddings)
        weights = tf.reshape(weights, [-1])
        loss = weighted_mean(losses, weights)._replace(
            epsilon=MASKED_LM_EPSILON
        )
        return loss, weighted_mean(hits, weights)


def vocabulary_logits(x, table, bias):
    """Returns logits [R, V] float32 for x [R, E], table [V, E], bias [V]."""
    logits = tf.matmul(x, table, transpose_b=True)
    return tf.cast(logits, tf.float32) + bias


# AutoGraph would convert what tf.custom_gradient decorates, without it.
@tf.autograph.experimental.do_not_convert
@tf.custom_gradient
def vocabulary_losses(x, table, bias, labels):
    """Cross entropy of `vocabulary_logits`, with few passes over [R, V].

    TensorFlow's own operation takes most of a small model's time behind the
    encoder: five times that of oneDNN's softmax, of which loss and gradient
    follow here.

    Args:
      x: [R, E], in the type that is computed in.
      table: [V, E], likewise.
      bias: [V] float32.
      labels: [R] integers below V.

    Returns:
      losses: [R] float32.
      hits: [R] float32, 1 where the label has the highest logit, and no other
        before it as high a one. It has no gradient.
    """
    logits = vocabulary_logits(x, table, bias)  # [R, V]
    probs = tf.nn.softmax(logits)  # [R, V]
    best = first_argmax(logits)  # [R]
    at_best = tf.gather(logits, best, batch_dims=1)  # [R]
    # The highest probability is 1 / V or more, so its logarithm is exact.
    normalizer = at_best - tf.math.log(tf.gather(probs, best, batch_dims=1))
    losses = normalizer - tf.gather(logits, labels, batch_dims=1)
    hits = tf.cast(best == tf.cast(labels, best.dtype), tf.float32)

    def gradient(d_losses, _):
        d_bias = tf.linalg.matvec(probs, d_losses, transpose_a=True)
        d_bias -= tf.math.unsorted_segment_sum(
            d_losses, labels, tf.size(bias)
        )  # [V]
        d_logits = _logit_gradient(x.dtype)(probs, labels, d_losses)  # [R, V]
        d_x = tf.matmul(d_logits, table)
        d_table = tf.matmul(d_logits, x, transpose_a=True)
        return d_x, d_table, d_bias, None

    return (losses, hits), gradient


@functools.cache
def _logit_gradient(dtype):
    """Cross entropy's gradient [R, V] of the logits, in one pass."""

    @compiled.trace_once
    def differentiate(probs, labels, d_losses):
        d_logits = probs - tf.one_hot(labels, probs.shape[1])
        return tf.cast(d_logits * d_losses[:, tf.newaxis], dtype)

    return differentiate


def first_argmax(x):
    """Returns [R] int32: where rows of x [R, V] are highest, the first place.

    The maxima of blocks are found several times as fast as places.
    """
    size = x.shape[1]
    # The divisor that is nearest to the root.
    block = max(d for d in range(1, math.isqrt(size) + 1) if size % d == 0)
    blocks = tf.reshape(x, [-1, block, size // block])  # [R, N, V / N]
    first = tf.argmax(
        tf.reduce_max(blocks, axis=2), axis=1, output_type=tf.int32
    )  # [R]
    within = tf.argmax(
        tf.gather(blocks, first, batch_dims=1), axis=1, output_type=tf.int32
    )
    return first * (size // block) + within


class Logits(layers.WeightOwner):
    """Logits [..., C] float32 from vectors [..., H].

    Args:
      prefix: of the canonical names `output_weights` [C, H] and `output_bias`.
      num_outputs: classes, C.
      config: an AlbertConfig.
    """

    def __init__(self, prefix, num_outputs, config, **kwargs):
        super().__init__(prefix, config.initializer_range, **kwargs)
        self.output_weights = self.add(
            "output_weights", (num_outputs, config.hidden_size)
        )
        self.output_bias = self.add("output_bias", (num_outputs,), "zeros")

    def call(self, x):
        logits = tf.matmul(
            tf.cast(x, tf.float32),
            self.output_weights.value,
            transpose_b=True,
        )
        return logits + self.output_bias.value


def weighted_mean(values, weights):
    """Returns the Ratio of numbers or booleans and weights of equal shape."""
    total = tf.reduce_sum(tf.cast(values, tf.float32) * weights)
    return Ratio(total, tf.reduce_sum(weights))


def classification_ratios(logits, labels, weights):
    """Returns cross entropy and accuracy, as two Ratios.

    Args:
      logits: [..., C] float32.
      labels: [...] integers below C.
      weights: [...] float32; 0 takes a label out of both.
    """
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    hits = tf.argmax(logits, axis=-1, output_type=labels.dtype) == labels
    return weighted_mean(losses, weights), weighted_mean(hits, weights)


class AlbertModel(layers.ConfiguredLayer):
    """The encoder, for the heads of a task to stand on.

    With a head, a model has `ratios(features, training=False, seed=None)`: a
    Ratio for each of `loss_scales` and `metric_names`, of a dict of features,
    labels and maybe `example_weight` [B]. `training` turns dropout on, and
    `seed` ([2] int32) decides it.

    Args:
      config: an AlbertConfig.
      dtype: as for `modeling.AlbertEncoder`.
    """

    # What the losses are multiplied with, before they are added up.
    loss_scales = {"loss": 1.0}
    metric_names: list[str] = []

    def __init__(self, config, *, dtype=None, **kwargs):
        super().__init__(config, dtype=dtype, **kwargs)
        self.encoder = modeling.AlbertEncoder(config, dtype=self.dtype_policy)

    def encode(self, features, training, seed):
        """Returns the encoder's outputs for a dict of features."""
        return self.encoder(
            features["input_ids"],
            features["input_mask"],
            features["segment_ids"],
            training=training,
            seed=seed,
        )

    def build_head_dropout(self, training, seed):
        """Returns dropout whose masks are not the encoder's."""
        if training and seed is not None:
            seed = tf.random.experimental.stateless_fold_in(seed, HEAD_SEED)
        return layers.build_dropout(training, seed)


def row_weights(features):
    """Returns [B] float32: 1 for an example, 0 for a row of padding."""
    if "example_weight" in features:
        return features["example_weight"]
    return tf.ones(tf.shape(features["input_ids"])[:1])


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertForPreTraining(AlbertModel):
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

    saved_arguments = ("sentence_weight",)

    def __init__(self, config, *, sentence_weight=1.0, dtype=None, **kwargs):
        super().__init__(config, dtype=dtype, **kwargs)
        self.sentence_weight = sentence_weight
        self.masked_lm = MaskedLM(config, dtype=self.dtype_policy)
        self.sentence_order = Logits(
            "cls/seq_relationship", 2, config, dtype=self.dtype_policy
        )
        self.loss_scales = {"masked_lm_loss": 1.0}
        self.metric_names = ["masked_lm_accuracy"]
        if sentence_weight:
            self.loss_scales["sentence_order_loss"] = sentence_weight
            self.metric_names.append("sentence_order_accuracy")

    def call(self, features, training=False, seed=None):
        outputs = self.encode(features, training, seed)
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
        """As `AlbertModel`, of features from `reading.build_dataset`."""
        outputs = self.encode(features, training, seed)
        rows = row_weights(features)  # [B]
        loss, accuracy = self.masked_lm.ratios(
            outputs["sequence_output"],
            features,
            features["masked_lm_weights"] * rows[:, tf.newaxis],
            tf.convert_to_tensor(self.encoder.embeddings.word.value),
        )
        ratios = {"masked_lm_loss": loss, "masked_lm_accuracy": accuracy}
        if self.sentence_weight:
            loss, accuracy = classification_ratios(
                self.sentence_order(outputs["pooled_output"]),
                features["sentence_order_labels"],
                rows,
            )
            ratios["sentence_order_loss"] = loss
            ratios["sentence_order_accuracy"] = accuracy
        return ratios


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertClassifier(AlbertModel):
    """The encoder with logits on its pooled output.

    Called with a dict of features (`input_ids`, `input_mask`, `segment_ids`),
    it returns `logits` [B, C] float32.

    Args:
      config: an AlbertConfig.
      num_labels: classes, C; 1 for a regression.
      objective: one of OBJECTIVES: which loss the logits get, and what
        `label_ids` are. "classes": [B] integers, softmax. "regression": [B]
        floats, squared error. "multi_label": [B, C] floats, sigmoid.
      dropout_prob: rate of the dropout before the logits, whatever the
        config's rates are.
      dtype: as for `modeling.AlbertEncoder`.

    Source: classifier_utils.py, `create_model`; "multi_label" is ours.
    """

    saved_arguments = ("num_labels", "objective", "dropout_prob")

    def __init__(
        self,
        config,
        *,
        num_labels,
        objective="classes",
        dropout_prob=0.1,
        dtype=None,
        **kwargs,
    ):
        super().__init__(config, dtype=dtype, **kwargs)
        if objective not in OBJECTIVES:
            raise ValueError(f"objective={objective!r}; known: {OBJECTIVES}")
        self.num_labels = num_labels
        self.objective = objective
        self.dropout_prob = dropout_prob
        self.output_layer = Logits(
            "", num_labels, config, dtype=self.dtype_policy
        )
        if objective != "regression":
            self.metric_names = ["accuracy"]

    def call(self, features, training=False, seed=None):
        pooled = self.encode(features, training, seed)["pooled_output"]
        dropout = self.build_head_dropout(training, seed)
        pooled = dropout(pooled, self.dropout_prob)
        return {"logits": self.output_layer(pooled)}

    def ratios(self, features, training=False, seed=None):
        """As `AlbertModel`, of features with `label_ids`."""
        logits = self(features, training=training, seed=seed)["logits"]
        labels = features["label_ids"]
        weights = row_weights(features)  # [B]
        if self.objective == "classes":
            loss, accuracy = classification_ratios(logits, labels, weights)
            return {"loss": loss, "accuracy": accuracy}
        if self.objective == "regression":
            losses = tf.square(logits[:, 0] - labels)  # [B]
            return {"loss": weighted_mean(losses, weights)}
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
        hits = tf.cast((logits > 0) == (labels > 0.5), tf.float32)  # [B, C]
        return {
            "loss": weighted_mean(tf.reduce_mean(losses, axis=-1), weights),
            "accuracy": weighted_mean(tf.reduce_mean(hits, axis=-1), weights),
        }


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertMultipleChoice(AlbertModel):
    """The encoder with one logit for each choice.

    Called with a dict of features (`input_ids`, `input_mask`, `segment_ids`,
    [B, C, T] for C choices), it returns `logits` [B, C] float32.

    Args:
      config: an AlbertConfig.
      dropout_prob: rate of the dropout before the logits.
      dtype: as for `modeling.AlbertEncoder`.

    Source: race_utils.py, `create_model`.
    """

    saved_arguments = ("dropout_prob",)
    metric_names = ["accuracy"]

    def __init__(self, config, *, dropout_prob=0.1, dtype=None, **kwargs):
        super().__init__(config, dtype=dtype, **kwargs)
        self.dropout_prob = dropout_prob
        self.output_layer = Logits("", 1, config, dtype=self.dtype_policy)

    def call(self, features, training=False, seed=None):
        names = ("input_ids", "input_mask", "segment_ids")
        ids = features["input_ids"]
        num_choices = ids.shape[1]
        num_tokens = ids.shape[2] or tf.shape(ids)[2]
        flat = {n: tf.reshape(features[n], [-1, num_tokens]) for n in names}
        pooled = self.encode(flat, training, seed)["pooled_output"]  # [B*C, H]
        dropout = self.build_head_dropout(training, seed)
        logits = self.output_layer(dropout(pooled, self.dropout_prob))
        return {"logits": tf.reshape(logits, [-1, num_choices])}

    def ratios(self, features, training=False, seed=None):
        """As `AlbertModel`; `label_ids` are [B] integers below C."""
        logits = self(features, training=training, seed=seed)["logits"]
        loss, accuracy = classification_ratios(
            logits, features["label_ids"], row_weights(features)
        )
        return {"loss": loss, "accuracy": accuracy}
