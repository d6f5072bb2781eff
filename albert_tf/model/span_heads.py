"""Heads that predict a span of the text: SQuAD 1.1 and 2.0.

Shapes: B batch, T tokens, H hidden_size, K start_n_top, J end_n_top.
"""

import keras
import tensorflow as tf

from albert_tf.model import heads, layers, operations

# Added to the logits of positions that cannot be in an answer; the release's.
MASKED_LOGIT = -1e30


def score_spans(logits, positions):
    """Compares predicted starts and ends with the labels.

    Args:
      logits: pair of start and end logits, [B, T] each.
      positions: pair of start and end labels, [B] integers each.

    Returns:
      The sum of both cross entropies, and whether both predictions are
      correct, [B] each.
    """
    losses, hits = 0.0, True
    for scores, wanted in zip(logits, positions, strict=True):
        losses += tf.nn.sparse_softmax_cross_entropy_with_logits(wanted, scores)
        best = tf.argmax(scores, axis=-1, output_type=wanted.dtype)
        hits = tf.logical_and(hits, best == wanted)
    return losses, hits


def mask_logits(logits, p_mask):
    """Returns logits [B, T] float32, with -1e30 where p_mask is 1.

    Source: squad_utils.py, `create_v2_model`.
    """
    p_mask = tf.cast(p_mask, tf.float32)
    return logits * (1 - p_mask) + MASKED_LOGIT * p_mask


def build_p_mask(features):
    """Returns a mask [B, T] int32: 1 where an answer is impossible.

    Answers are in segment 1 before its [SEP]; [CLS] represents "no answer".

    Args:
      features: a dict of `input_mask` and `segment_ids`, [B, T] integers each.

    Source: squad_utils.py, `convert_examples_to_features`.
    """
    mask, segments = features["input_mask"], features["segment_ids"]
    positions = tf.range(tf.shape(mask)[1])
    last = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1, keepdims=True) - 1
    is_text = (segments == 1) & (positions < last)
    return tf.cast(~(is_text | (positions == 0)), tf.int32)


def apply_dense(x, weights):
    """Returns x @ kernel + bias for x [..., inputs], in the weights' dtype."""
    # Flattened to a matrix, because oneDNN's multiplication of [B, 1, T, H] by
    # [H, 1] writes out of bounds (TensorFlow 2.21 on CPUs).
    kernel, bias = weights
    rows = tf.cast(tf.reshape(x, [-1, kernel.shape[0]]), kernel.dtype)
    shape = tf.concat([tf.shape(x)[:-1], kernel.shape[1:]], axis=0)
    return tf.reshape(operations.dense(rows, kernel, bias), shape)


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertSpans(heads.AlbertModel):
    """The encoder with a start and an end logit for each token: SQuAD 1.1.

    Called with a dict of features (`input_ids`, `input_mask`, `segment_ids`),
    it returns `start_logits` and `end_logits` [B, T] float32.

    Args:
      config: an AlbertConfig.
      dtype: as for `modeling.AlbertEncoder`.

    Example:
      >>> from albert_tf import AlbertConfig
      >>> config = AlbertConfig(vocab_size=9, hidden_size=64)
      >>> model = AlbertSpans(config)
      >>> names = "input_ids", "input_mask", "segment_ids"
      >>> features = dict.fromkeys(names, tf.ones([2, 7], tf.int32))
      >>> model(features)["start_logits"].shape
      TensorShape([2, 7])

    Source: squad_utils.py, `create_v1_model`.
    """

    metric_names = ["exact_span"]
    uses_pooler = False

    def __init__(self, config, *, dtype=None, **kwargs):
        super().__init__(config, dtype=dtype, **kwargs)
        self.output_layer = heads.Logits(
            "cls/squad", 2, config, dtype=self.dtype_policy
        )

    def call(self, features, training=False, seed=None):
        x = self.encode(features, training, seed)["sequence_output"]
        logits = self.output_layer(x)  # [B, T, 2]
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}

    def ratios(self, features, training=False, seed=None):
        """See the base class; labels: `start_positions`, `end_positions`."""
        outputs = self(features, training=training, seed=seed)
        weights = heads.row_weights(features)  # [B]
        losses, hits = score_spans(
            [outputs["start_logits"], outputs["end_logits"]],
            [features["start_positions"], features["end_positions"]],
        )
        return {
            "loss": heads.weighted_mean(losses / 2, weights),
            "exact_span": heads.weighted_mean(hits, weights),
        }


class StartLogits(layers.WeightOwner):
    """Logits [B, T] float32 of answers starting at each token."""

    def __init__(self, config, **kwargs):
        super().__init__(config, "start_logits", **kwargs)
        self.dense = self.add_dense("dense", config.hidden_size, 1)

    def call(self, x, p_mask):
        weights = self.cast(self.dense, tf.float32)
        logits = apply_dense(x, weights)  # [B, T, 1]
        return mask_logits(logits[..., 0], p_mask)


class EndLogits(layers.WeightOwner):
    """Logits of answers ending at each token, given their starts.

    Called with x [B, T, H], its vectors at the starts [B, K, H] and p_mask
    [B, T], it returns [B, K, T] float32.
    """

    def __init__(self, config, **kwargs):
        super().__init__(config, "end_logits", **kwargs)
        size = config.hidden_size
        self.dense_0 = self.add_dense("dense_0", 2 * size, size)
        self.norm = self.add_norm("LayerNorm", size)
        self.dense_1 = self.add_dense("dense_1", size, 1)

    def call(self, x, starts, p_mask):
        kernel, bias = self.cast(self.dense_0)
        # concat(x, start) @ kernel is the sum of two multiplications, so each
        # token is multiplied once instead of once per start.
        size = self.config.hidden_size
        x = apply_dense(x, (kernel[:size], bias))  # [B, T, H]
        starts = tf.matmul(starts, kernel[size:])  # [B, K, H]
        x = tf.tanh(x[:, tf.newaxis] + starts[:, :, tf.newaxis])
        x = operations.layer_norm(x, *(w.value for w in self.norm))
        weights = self.cast(self.dense_1, tf.float32)
        logits = apply_dense(x, weights)  # [B, K, T, 1]
        return mask_logits(logits[..., 0], p_mask[:, tf.newaxis])


class Answerability(layers.WeightOwner):
    """Logit [B] float32 of questions without an answer in the text."""

    def __init__(self, config, **kwargs):
        super().__init__(config, "answer_class", **kwargs)
        size = config.hidden_size
        self.dense_0 = self.add_dense("dense_0", 2 * size, size)
        # Without a bias, as in the release.
        self.kernel = self.add("dense_1/kernel", (size, 1))

    def call(self, x, start_logits, *, dropout, rate):
        probs = tf.nn.softmax(start_logits)  # [B, T]
        expected = tf.linalg.matvec(
            tf.cast(x, tf.float32), probs, transpose_a=True
        )  # [B, H]
        expected = tf.cast(expected, x.dtype)
        x = tf.concat([expected, x[:, 0]], axis=-1)  # [B, 2 * H]
        x = tf.tanh(operations.dense(x, *self.cast(self.dense_0)))
        x = tf.cast(dropout(x, rate), tf.float32)
        return tf.matmul(x, *self.cast([self.kernel], tf.float32))[:, 0]


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertConditionalSpans(heads.AlbertModel):
    """The encoder with ends conditioned on starts: SQuAD 2.0.

    Called with a dict of features (`input_ids`, `input_mask`, `segment_ids`
    and optionally `p_mask`, 1 where an answer is impossible, by default from
    `build_p_mask`; [B, T] each), it returns the best starts and, for each
    start, the best ends:

      start_top_log_probs, start_top_index: [B, K].
      end_top_log_probs, end_top_index: [B, K * J], grouped by start.
      cls_logits: [B]; a large value means that there is no answer.

    Args:
      config: an AlbertConfig.
      start_n_top: number of starts in the beam, K; at most T are used.
      end_n_top: number of ends per start, J; at most T are used.
      dropout_prob: rate of the dropout before the answerability logit.
      dtype: as for `modeling.AlbertEncoder`.

    Example:
      >>> from albert_tf import AlbertConfig
      >>> config = AlbertConfig(vocab_size=9, hidden_size=64)
      >>> model = AlbertConditionalSpans(config, start_n_top=2, end_n_top=3)
      >>> names = "input_ids", "input_mask", "segment_ids"
      >>> features = dict.fromkeys(names, tf.ones([2, 7], tf.int32))
      >>> model(features)["end_top_index"].shape
      TensorShape([2, 6])

    Source: squad_utils.py, `create_v2_model`, after XLNet. Its end indices
    have the same order, start * J + end.
    """

    saved_arguments = ("start_n_top", "end_n_top", "dropout_prob")
    loss_scales = {"span_loss": 0.5, "answerability_loss": 0.5}
    metric_names = ["exact_span", "answerability_accuracy"]
    uses_pooler = False

    def __init__(
        self,
        config,
        *,
        start_n_top=5,
        end_n_top=5,
        dropout_prob=0.1,
        dtype=None,
        **kwargs,
    ):
        super().__init__(config, dtype=dtype, **kwargs)
        self.start_n_top, self.end_n_top = start_n_top, end_n_top
        self.dropout_prob = dropout_prob
        self.start = StartLogits(config, dtype=self.dtype_policy)
        self.end = EndLogits(config, dtype=self.dtype_policy)
        self.answerability = Answerability(config, dtype=self.dtype_policy)

    def call(self, features, training=False, seed=None):
        p_mask, x, start_logits, cls_logits = self._encode_starts(
            features, training, seed
        )
        num_tokens = operations.size_of(start_logits, 1)
        smaller = min if isinstance(num_tokens, int) else tf.minimum
        num_starts = smaller(self.start_n_top, num_tokens)
        num_ends = smaller(self.end_n_top, num_tokens)
        starts = tf.math.top_k(tf.nn.log_softmax(start_logits), num_starts)
        at_starts = heads.gather_positions(x, starts.indices)  # [B, K, H]
        end_logits = self.end(x, at_starts, p_mask)  # [B, K, T]
        ends = tf.math.top_k(tf.nn.log_softmax(end_logits), num_ends)
        beam = [tf.shape(x)[0], -1]
        return {
            "start_top_log_probs": starts.values,
            "start_top_index": starts.indices,
            "end_top_log_probs": tf.reshape(ends.values, beam),
            "end_top_index": tf.reshape(ends.indices, beam),
            "cls_logits": cls_logits,
        }

    def _encode_starts(self, features, training, seed):
        """Returns p_mask, encoder output, start logits and class logits."""
        p_mask = features.get("p_mask")
        if p_mask is None:
            p_mask = build_p_mask(features)
        x = self.encode(features, training, seed)["sequence_output"]
        start_logits = self.start(x, p_mask)  # [B, T]
        dropout = self.build_head_dropout(training, seed)
        cls_logits = self.answerability(
            x, start_logits, dropout=dropout, rate=self.dropout_prob
        )
        return p_mask, x, start_logits, cls_logits

    def ratios(self, features, training=False, seed=None):
        """See the base class; ends are conditioned on the true starts.

        Labels: `start_positions`, `end_positions` and `is_impossible`, [B].
        """
        p_mask, x, start_logits, cls_logits = self._encode_starts(
            features, training, seed
        )
        weights = heads.row_weights(features)  # [B]
        starts = features["start_positions"]
        at_start = heads.gather_positions(x, starts[:, tf.newaxis])
        end_logits = self.end(x, at_start, p_mask)[:, 0]  # [B, T]
        losses, hits = score_spans(
            [start_logits, end_logits], [starts, features["end_positions"]]
        )
        is_impossible = tf.cast(features["is_impossible"], tf.float32)
        cls_losses = tf.nn.sigmoid_cross_entropy_with_logits(
            is_impossible, cls_logits
        )
        cls_hits = (cls_logits > 0) == (is_impossible > 0.5)
        return {
            "span_loss": heads.weighted_mean(losses, weights),
            "answerability_loss": heads.weighted_mean(cls_losses, weights),
            "exact_span": heads.weighted_mean(hits, weights),
            "answerability_accuracy": heads.weighted_mean(cls_hits, weights),
        }
