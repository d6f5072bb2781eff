"""Heads of the encoder: logits, losses and metrics.

A loss or a metric is a `Ratio`, a sum and its divisor. Both are sums over the
batch, so that the training loop can add them over replicas and steps before
it divides: replicas may have different numbers of rows and predictions.

Shapes: B batch, T tokens, P predictions, E embedding_size, H hidden_size,
V vocab_size.
"""

import functools
import math
from typing import NamedTuple

import keras
import tensorflow as tf

from albert_tf.model import (
    compiled,
    custom_gradients,
    exits,
    layers,
    modeling,
    operations,
)
from albert_tf.model.dropout import build_dropout


class Ratio(NamedTuple):
    """A loss or a metric, total / weight, float32 scalars.

    The loss that is differentiated is total / (weight + epsilon).

    Example:
      >>> ratio = weighted_mean(tf.constant([1, 4]), tf.constant([1.0, 0.5]))
      >>> float(ratio.total / ratio.weight)
      2.0
    """

    total: tf.Tensor
    weight: tf.Tensor
    epsilon: float = 0.0


# The release adds this to the masked-LM weight, so that a batch without a
# prediction has loss 0.
MASKED_LM_EPSILON = 1e-5
NEVER = -1e9  # A logit with which a piece or choice has the probability 0.
# Folded into the seed of the heads' dropout; larger than any number of dropout
# calls in the encoder.
HEAD_SEED = 1_000_000
DEPTH_SEED = 2_000_000  # Of the number of layers.
SAMPLE_SEED = 3_000_000  # Of the pieces to compare with.
OBJECTIVES = ("classes", "regression", "multi_label")


def gather_positions(sequence, positions):
    """Gathers the vectors at the given positions of each sequence.

    Padding in `positions` is 0 and selects [CLS]; the caller must give it the
    weight 0.

    Args:
      sequence: [B, T, H].
      positions: [B, P], token positions from 0, each below T.

    Returns:
      [B, P, H].

    Source: run_pretraining.py, `gather_indexes`, which returns [B * P, H].
    """
    return tf.gather(sequence, positions, batch_dims=1)


class MaskedLM(layers.WeightOwner):
    """Masked-LM head: logits [B, P, V] float32 for vectors [B, P, H].

    Args:
      config: an AlbertConfig.
      num_pieces: number of pieces in the vocabulary if V is larger, for
        example padded to a multiple of 128: the rest has the probability 0.
    """

    def __init__(self, config, num_pieces=None, **kwargs):
        super().__init__(config, "cls/predictions", **kwargs)
        self.num_pieces = num_pieces
        size = config.embedding_size
        self.dense = self.add_dense("transform/dense", config.hidden_size, size)
        self.norm = self.add_norm("transform/LayerNorm", size)
        self.bias = self.add("output_bias", (config.vocab_size,), "zeros")

    @property
    def logit_bias(self):
        """The bias [V], as a tensor; very low for rows beyond the pieces."""
        bias, size = tf.convert_to_tensor(self.bias.value), self.num_pieces
        if size in (None, self.config.vocab_size):
            return bias
        return tf.where(tf.range(self.config.vocab_size) < size, bias, NEVER)

    def call(self, vectors, word_embeddings):
        x = self.transform(vectors)  # [B * P, E]
        logits = vocabulary_logits(
            tf.cast(x, tf.float32),
            tf.cast(word_embeddings, tf.float32),
            self.logit_bias,
        )  # [B * P, V]
        rows = [operations.size_of(vectors, axis) for axis in (0, 1)]
        return tf.reshape(logits, [*rows, self.config.vocab_size])

    def transform(self, vectors):
        """Returns the vectors to multiply by the embeddings, [B * P, E]."""
        x = tf.reshape(vectors, [-1, self.config.hidden_size])  # [B * P, H]
        x = operations.dense(x, *self.cast(self.dense))  # [B * P, E]
        x = operations.ACTIVATIONS[self.config.hidden_act](x)
        return operations.layer_norm(x, *(w.value for w in self.norm))

    def losses(self, vectors, labels, word_embeddings, sample=None):
        """Returns cross entropy and hits of the logits, [B * P] each.

        `vectors` are [B, P, H], `labels` [B, P] integers. `sample` maps labels
        [B * P] to a PieceSample; if it is None, or returns None, all pieces are
        compared.
        """
        x = self.transform(vectors)
        labels = tf.reshape(labels, [-1])  # [B * P]
        table, bias = word_embeddings, self.logit_bias
        drawn = sample(labels) if sample else None
        if drawn:
            pieces, corrections, labels = drawn
            table = tf.gather(table, pieces)  # [K, E]
            bias = tf.gather(bias, pieces) + corrections  # [K]
        return vocabulary_losses(x, tf.cast(table, x.dtype), bias, labels)

    def ratios(self, vectors, labels, weights, word_embeddings, sample=None):
        """Returns the means of `losses`, two Ratios; weights are [B, P]."""
        losses, hits = self.losses(vectors, labels, word_embeddings, sample)
        weights = tf.reshape(weights, [-1])
        loss = weighted_mean(losses, weights)._replace(
            epsilon=MASKED_LM_EPSILON
        )
        return loss, weighted_mean(hits, weights)


class PieceSample(NamedTuple):
    """Pieces to which the labels of a batch are compared, of V in all.

    `pieces` [K] int32 are the labels, then others, drawn at random;
    `corrections` [K] float32 are added to their logits; `labels` [R] int32
    are the places of the labels in `pieces`.
    """

    pieces: tf.Tensor
    corrections: tf.Tensor
    labels: tf.Tensor


def sample_pieces(labels, vocab_size, num_sampled, seed):
    """Draws pieces for a softmax over fewer than all.

    A piece that is no label of the batch is drawn with the probability p, and
    its exp(logit) counts 1 / p times, so that the expected sum over pieces is
    that over all.

    Args:
      labels: [R] integers below V.
      vocab_size: number of pieces, V.
      num_sampled: number of pieces to compare, K; R if that is more.
      seed: [2] int32.

    Returns:
      A PieceSample, or None to compare all: if K is not less than V, or R is
      unknown.

    Source: Horvitz and Thompson (1952), for the softmax.
    """
    num_sampled = max(num_sampled, labels.shape[0] or vocab_size)
    if num_sampled >= vocab_size:
        return None
    labels = tf.cast(labels, tf.int32)[:, tf.newaxis]  # [R, 1]
    counts = tf.scatter_nd(labels, tf.ones_like(labels[:, 0]), [vocab_size])
    is_label = tf.cast(counts > 0, tf.float32)  # [V]
    order = tf.random.stateless_uniform([vocab_size], seed) + is_label
    _, pieces = tf.math.top_k(order, num_sampled)  # [K], labels first
    num_labels = tf.reduce_sum(is_label)
    probability = (num_sampled - num_labels) / (vocab_size - num_labels)
    corrections = tf.where(
        tf.gather(is_label, pieces) > 0, 0.0, -tf.math.log(probability)
    )  # [K]
    places = tf.scatter_nd(
        pieces[:, tf.newaxis], tf.range(num_sampled), [vocab_size]
    )  # [V]
    return PieceSample(pieces, corrections, tf.gather(places, labels[:, 0]))


def vocabulary_logits(x, table, bias):
    """Returns logits [R, V] float32 for x [R, E], table [V, E], bias [V]."""
    logits = tf.matmul(x, table, transpose_b=True)
    return tf.cast(logits, tf.float32) + bias


@custom_gradients.custom_gradient
def vocabulary_losses(x, table, bias, labels):
    """Computes cross entropy of `vocabulary_logits` in few passes over [R, V].

    TensorFlow's own operation takes five times as long as oneDNN's softmax,
    from which loss and gradient are derived here.

    Args:
      x: [R, E], in the compute dtype.
      table: [V, E], in the compute dtype.
      bias: [V] float32.
      labels: [R] integers below V.

    Returns:
      losses: [R] float32.
      hits: [R] float32, 1 if the label is the first with the highest logit.
        It has no gradient.
    """
    logits = vocabulary_logits(x, table, bias)  # [R, V]
    probs = tf.nn.softmax(logits)  # [R, V]
    best = first_argmax(logits)  # [R]
    at_best = tf.gather(logits, best, batch_dims=1)  # [R]
    # The highest probability is at least 1 / V, so its logarithm is accurate.
    normalizer = at_best - tf.math.log(tf.gather(probs, best, batch_dims=1))
    losses = normalizer - tf.gather(logits, labels, batch_dims=1)
    hits = tf.cast(best == tf.cast(labels, best.dtype), tf.float32)

    def gradient(d_losses, _):
        d_bias = tf.linalg.matvec(probs, d_losses, transpose_a=True)  # [V]
        d_bias -= tf.math.unsorted_segment_sum(
            d_losses, labels, tf.size(bias)
        )  # [V]
        d_logits = _logit_gradient(x.dtype)(probs, labels, d_losses)  # [R, V]
        d_x = tf.matmul(d_logits, table)  # [R, E]
        d_table = operations.product_over_rows(d_logits, x)  # [V, E]
        return d_x, d_table, d_bias, None

    return (losses, hits), gradient


@functools.cache
def _logit_gradient(dtype):
    """Returns a function for the gradient of the logits [R, V], in one pass.

    It is compiled for each dtype of its result.
    """

    @compiled.trace_once
    def differentiate(probs, labels, d_losses):
        d_logits = probs - tf.one_hot(labels, probs.shape[1])
        return tf.cast(d_logits * d_losses[:, tf.newaxis], dtype)

    return differentiate


def first_argmax(x):
    """Returns the index of the first maximum in each row of x [R, V], [R].

    Comparing the maxima of blocks first takes half the time of tf.argmax.
    """
    size = x.shape[1]
    # The largest divisor up to the square root.
    block = max(d for d in range(1, math.isqrt(size) + 1) if size % d == 0)
    blocks = tf.reshape(x, [-1, block, size // block])  # [R, N, V / N]
    first = tf.argmax(
        tf.reduce_max(blocks, axis=2), axis=1, output_type=tf.int32
    )  # [R]
    within = tf.argmax(
        tf.gather(blocks, first, batch_dims=1), axis=1, output_type=tf.int32
    )  # [R]
    return first * (size // block) + within


class Logits(layers.WeightOwner):
    """Dense layer from vectors [..., H] to logits [..., C] float32.

    Args:
      prefix: prefix of the canonical names `output_weights` [C, H] and
        `output_bias` [C].
      num_outputs: number of classes, C.
      config: an AlbertConfig.
    """

    def __init__(self, prefix, num_outputs, config, **kwargs):
        super().__init__(config, prefix, **kwargs)
        # Transposed, as in the release's checkpoints.
        self.output_weights = self.add(
            "output_weights", (num_outputs, config.hidden_size)
        )
        self.output_bias = self.add("output_bias", (num_outputs,), "zeros")

    def call(self, x):
        # In float32: bfloat16 would round close logits to the same value.
        logits = tf.matmul(
            tf.cast(x, tf.float32), self.output_weights.value, transpose_b=True
        )
        return logits + self.output_bias.value


def weighted_mean(values, weights):
    """Returns a Ratio of values (numbers or booleans) and their weights."""
    total = tf.reduce_sum(tf.cast(values, tf.float32) * weights)
    return Ratio(total, tf.reduce_sum(weights))


def classification_ratios(logits, labels, weights):
    """Returns cross entropy and accuracy, as two Ratios.

    Args:
      logits: [..., C] float32.
      labels: [...] integers below C.
      weights: [...] float32; 0 excludes a label from both.
    """
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    hits = tf.argmax(logits, axis=-1, output_type=labels.dtype) == labels
    return weighted_mean(losses, weights), weighted_mean(hits, weights)


class AlbertModel(layers.ConfiguredLayer):
    """Base class of the encoder with a task's heads.

    A subclass has `ratios(features, training=False, seed=None)`, which maps a
    dict of features, labels and an optional `example_weight` [B] to a Ratio
    for each of `loss_scales` and `metric_names`. `training` turns dropout on;
    `seed` ([2] int32) determines its masks.

    Args:
      config: an AlbertConfig.
      dtype: as for `modeling.AlbertEncoder`.
    """

    # Factors of the losses in the total loss.
    loss_scales = {"loss": 1.0}
    metric_names: list[str] = []
    uses_pooler = True
    # Whether a row's loss depends on other rows, as of `AlbertVectors`.
    compares_rows = False
    # Whether it reads `all_encoder_layers`, so that all layers are kept.
    reads_layers = False

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.encoder = modeling.AlbertEncoder(
            config, dtype=self.dtype_policy, name="bert"
        )

    @property
    def word_embeddings(self):
        """The word embeddings as a tensor, [V, E] float32."""
        return tf.convert_to_tensor(self.encoder.embeddings.word.value)

    def encode(self, features, training=False, seed=None, **kwargs):
        """Returns the encoder's outputs for a dict of features.

        Other arguments are those of `AlbertEncoder`.
        """
        return self.encoder(
            features["input_ids"],
            features["input_mask"],
            features["segment_ids"],
            training=training,
            seed=seed,
            **kwargs,
        )

    def build_head_dropout(self, training, seed):
        """Returns a Dropout with other masks than the encoder's."""
        if training and seed is not None:
            seed = tf.random.experimental.stateless_fold_in(seed, HEAD_SEED)
        return build_dropout(training, seed)

    def pooled_logits(self, features, training, seed):
        """Returns `output_layer` of the pooled output after dropout."""
        none = features["input_ids"][:, :0]  # [B, 0]
        outputs = self.encode(features, training, seed, positions=none)
        pooled = outputs["pooled_output"]
        dropout = self.build_head_dropout(training, seed)
        return self.output_layer(dropout(pooled, self.dropout_prob))


def row_weights(features):
    """Returns the weights of rows, [B] float32: 0 for a row of padding."""
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
      sentence_weight: factor of the sentence-order (or next-sentence) loss; 0
        trains only the masked LM.
      num_pieces: as for `MaskedLM`.
      min_num_layers: each step of training draws how many layers it computes,
        from this to all, and each replica its own; None computes all.
      num_sampled_pieces: over how many pieces the masked LM's softmax is in
        training, see `sample_pieces`; None for all.
      dtype: as for `modeling.AlbertEncoder`.

    Example:
      >>> from albert_tf import AlbertConfig
      >>> config = AlbertConfig(vocab_size=9, hidden_size=64)
      >>> model = AlbertForPreTraining(config)
      >>> names = "input_ids", "input_mask", "segment_ids"
      >>> features = dict.fromkeys(names, tf.ones([2, 7], tf.int32))
      >>> features["masked_lm_positions"] = tf.constant([[3, 4], [1, 6]])
      >>> model(features)["masked_lm_logits"].shape
      TensorShape([2, 2, 9])

    Source: run_pretraining.py, `model_fn`; the weight is ours.
    """

    saved_arguments = (
        "sentence_weight",
        "num_pieces",
        "min_num_layers",
        "num_sampled_pieces",
    )

    def __init__(
        self,
        config,
        *,
        sentence_weight=1.0,
        num_pieces=None,
        min_num_layers=None,
        num_sampled_pieces=None,
        dtype=None,
        **kwargs,
    ):
        super().__init__(config, dtype=dtype, **kwargs)
        num_layers = config.num_hidden_layers
        is_given = min_num_layers is not None
        if is_given and not 1 <= min_num_layers <= num_layers:
            raise ValueError(
                f"min_num_layers={min_num_layers}; the model has {num_layers} "
                "layers. Give a number from 1 to that."
            )
        self.min_num_layers = min_num_layers
        self.num_sampled_pieces = num_sampled_pieces
        self.sentence_weight = sentence_weight
        self.masked_lm = MaskedLM(config, num_pieces, dtype=self.dtype_policy)
        self.sentence_order = Logits(
            "cls/seq_relationship", 2, config, dtype=self.dtype_policy
        )
        self.loss_scales = {"masked_lm_loss": 1.0}
        self.metric_names = ["masked_lm_accuracy"]
        if sentence_weight:
            self.loss_scales["sentence_order_loss"] = sentence_weight
            self.metric_names.append("sentence_order_accuracy")

    @property
    def num_pieces(self):
        """The size of the vocabulary, which `build_model` may set later."""
        return self.masked_lm.num_pieces

    def call(self, features, training=False, seed=None):
        positions = features["masked_lm_positions"]
        outputs = self.encode(features, training, seed, positions=positions)
        return {
            "masked_lm_logits": self.masked_lm(
                outputs["sequence_output"], self.word_embeddings
            ),
            "sentence_order_logits": self.sentence_order(
                outputs["pooled_output"]
            ),
        }

    def draw_depth(self, seed):
        """Returns how many layers a step computes, int32; None for all.

        `seed` is [2] int32, or None, with which all are computed.
        """
        if self.min_num_layers is None or seed is None:
            return None
        return tf.random.stateless_uniform(
            [],
            tf.random.experimental.stateless_fold_in(seed, DEPTH_SEED),
            self.min_num_layers,
            self.config.num_hidden_layers + 1,
            tf.int32,
        )

    def build_sample(self, seed):
        """Returns the `sample` of `MaskedLM.losses`.

        `seed` is [2] int32, or None, with which all pieces are compared.
        """
        if seed is None or self.num_sampled_pieces is None:
            return None
        return functools.partial(
            sample_pieces,
            vocab_size=self.config.vocab_size,
            num_sampled=self.num_sampled_pieces,
            seed=tf.random.experimental.stateless_fold_in(seed, SAMPLE_SEED),
        )

    @staticmethod
    def is_complete_in(names):
        """Returns whether the names of weights include those of both heads."""
        ends = ("predictions/output_bias", "seq_relationship/output_bias")
        return all(f"cls/{end}" in names for end in ends)

    def ratios(self, features, training=False, seed=None):
        """See `AlbertModel`; features are from `reading.build_dataset`."""
        outputs = self.encode(
            features,
            training,
            seed,
            depth=self.draw_depth(seed) if training else None,
            positions=features["masked_lm_positions"],
        )
        rows = row_weights(features)  # [B]
        loss, accuracy = self.masked_lm.ratios(
            outputs["sequence_output"],
            features["masked_lm_ids"],
            features["masked_lm_weights"] * rows[:, tf.newaxis],
            self.word_embeddings,
            self.build_sample(seed) if training else None,
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
      num_labels: number of classes, C; 1 for regression.
      objective: one of OBJECTIVES; determines the loss and the form of
        `label_ids`. "classes": [B] integers, softmax. "regression": [B]
        floats, squared error. "multi_label": [B, C] floats, sigmoid.
      dropout_prob: rate of the dropout before the logits, independent of the
        config's rates.
      exit_loss: whether the loss in training is that of the logits after every
        layer, in proportion to the number of layers before them, so that few
        layers give an answer, too; see `exits`.
      class_weights: factor of the loss in training of each class, C numbers;
        None for 1. As in Keras, the sum is divided by the number of rows, not
        by the sum of their factors.
      dtype: as for `modeling.AlbertEncoder`.

    Example:
      >>> from albert_tf import AlbertConfig
      >>> config = AlbertConfig(vocab_size=9, hidden_size=64)
      >>> model = AlbertClassifier(config, num_labels=3)
      >>> names = "input_ids", "input_mask", "segment_ids"
      >>> features = dict.fromkeys(names, tf.ones([2, 7], tf.int32))
      >>> model(features)["logits"].shape
      TensorShape([2, 3])

    Source: classifier_utils.py, `create_model`; "multi_label" is ours.
    """

    saved_arguments = (
        "num_labels",
        "objective",
        "dropout_prob",
        "exit_loss",
        "class_weights",
    )

    def __init__(
        self,
        config,
        *,
        num_labels,
        objective="classes",
        dropout_prob=0.1,
        exit_loss=False,
        class_weights=None,
        dtype=None,
        **kwargs,
    ):
        super().__init__(config, dtype=dtype, **kwargs)
        if objective not in OBJECTIVES:
            raise ValueError(
                f"objective={objective!r}; wanted one of {OBJECTIVES}."
            )
        self.num_labels = num_labels
        self.objective = objective
        self.dropout_prob = dropout_prob
        self.exit_loss = exit_loss
        self.class_weights = None
        if class_weights is not None:
            if objective != "classes" or len(class_weights) != num_labels:
                raise ValueError(
                    f"class_weights has {len(class_weights)} weights for "
                    f"objective={objective!r} with {num_labels} labels; wanted "
                    "one for each label of objective='classes'."
                )
            self.class_weights = [float(weight) for weight in class_weights]
        self.output_layer = Logits(
            "", num_labels, config, dtype=self.dtype_policy
        )
        if objective != "regression":
            self.metric_names = ["accuracy"]

    def call(self, features, training=False, seed=None):
        return {"logits": self.pooled_logits(features, training, seed)}

    def ratios(self, features, training=False, seed=None):
        """See `AlbertModel`; features include `label_ids`."""
        if not (training and self.exit_loss):
            logits = self(features, training=training, seed=seed)["logits"]
            return self.ratios_of(logits, features, training)
        logits = exits.layer_logits(self, features, training, seed)
        by_layer = [
            self.ratios_of(x, features, training)
            for x in tf.unstack(logits, axis=1)
        ]
        num_layers = len(by_layer)
        totals = [
            ratios["loss"].total * layer
            for layer, ratios in enumerate(by_layer, 1)
        ]
        total = tf.add_n(totals) / (num_layers * (num_layers + 1) / 2)
        last = by_layer[-1]
        return last | {"loss": last["loss"]._replace(total=total)}

    def ratios_of(self, logits, features, training=False):
        """Returns the Ratios of logits [B, C]."""
        labels = features["label_ids"]
        weights = row_weights(features)  # [B]
        if self.objective == "classes":
            loss, accuracy = classification_ratios(logits, labels, weights)
            if training and self.class_weights:
                factors = tf.constant(self.class_weights, tf.float32)
                weights *= tf.gather(factors, labels)
                weighted, _ = classification_ratios(logits, labels, weights)
                loss = loss._replace(total=weighted.total)
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
    """The encoder with one logit per choice.

    Called with a dict of features (`input_ids`, `input_mask`, `segment_ids`,
    [B, C, T] for C choices), it returns `logits` [B, C] float32. Choices
    without tokens are padding: their logit is NEVER.

    Args:
      config: an AlbertConfig.
      dropout_prob: rate of the dropout before the logits.
      dtype: as for `modeling.AlbertEncoder`.

    Example:
      >>> from albert_tf import AlbertConfig
      >>> config = AlbertConfig(vocab_size=9, hidden_size=64)
      >>> model = AlbertMultipleChoice(config)
      >>> names = "input_ids", "input_mask", "segment_ids"
      >>> features = dict.fromkeys(names, tf.ones([2, 4, 7], tf.int32))
      >>> model(features)["logits"].shape
      TensorShape([2, 4])

    Source: race_utils.py, `create_model`.
    """

    saved_arguments = ("dropout_prob",)
    metric_names = ["accuracy"]

    def __init__(self, config, *, dropout_prob=0.1, dtype=None, **kwargs):
        super().__init__(config, dtype=dtype, **kwargs)
        self.dropout_prob = dropout_prob
        self.output_layer = Logits("", 1, config, dtype=self.dtype_policy)

    def call(self, features, training=False, seed=None):
        num_choices, num_tokens = (
            operations.size_of(features["input_ids"], axis) for axis in (1, 2)
        )
        flat = {
            name: tf.reshape(features[name], [-1, num_tokens])
            for name in ("input_ids", "input_mask", "segment_ids")
        }
        logits = self.pooled_logits(flat, training, seed)  # [B * C, 1]
        logits = tf.reshape(logits, [-1, num_choices])  # [B, C]
        has_tokens = features["input_mask"][:, :, 0] > 0  # [B, C]
        return {"logits": tf.where(has_tokens, logits, NEVER)}

    def ratios(self, features, training=False, seed=None):
        """See `AlbertModel`; `label_ids` are [B] integers below C."""
        logits = self(features, training=training, seed=seed)["logits"]
        loss, accuracy = classification_ratios(
            logits, features["label_ids"], row_weights(features)
        )
        return {"loss": loss, "accuracy": accuracy}
