"""Vectors of texts, and the losses that compare them.

Shapes: B batch, C texts of an example, T tokens, H hidden_size.
"""

import keras
import tensorflow as tf

from albert_tf.model import heads, operations

# "mean" of all tokens but [CLS] and [SEP], "mean_all" with them, as in
# sentence-transformers; "cls" is the vector of [CLS].
POOLINGS = ("mean", "mean_all", "cls")
OBJECTIVES = ("ranking", "similarity")


def pool(tokens, mask, pooling):
    """Returns the vector of each text, [B, H] float32.

    Args:
      tokens: [B, T, H].
      mask: [B, T] integers, 1 for a token, 0 for padding.
      pooling: one of POOLINGS. A text without tokens has the mean 0.
    """
    if pooling == "cls":
        return tf.cast(tokens[:, 0], tf.float32)
    mask = tf.cast(mask, tf.int32)
    is_counted = mask > 0
    if pooling == "mean":
        is_last = tf.cumsum(mask, axis=1, reverse=True) == 1
        is_first = tf.range(tf.shape(mask)[1]) == 0
        is_counted &= ~is_last & ~is_first
    weights = tf.cast(is_counted, tf.float32)  # [B, T]
    sums = tf.einsum("bth,bt->bh", tf.cast(tokens, tf.float32), weights)
    counts = tf.reduce_sum(weights, axis=1, keepdims=True)  # [B, 1]
    return sums / tf.maximum(counts, 1)


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertVectors(heads.AlbertModel):
    """The encoder with one vector of each text.

    Called with a dict of features (`input_ids`, `input_mask`, `segment_ids`,
    [B, T], or [B, C, T] for C texts), it returns `vectors`, [B, H] or [B, C, H]
    float32, of length 1.

    Its loss compares the texts of all rows, so a row's loss depends on the
    batch: `replicas.differentiate_vectors` is for all replicas and parts.

    Args:
      config: an AlbertConfig.
      pooling: one of POOLINGS.
      objective: "ranking": the second text of a row is to be nearer to the
        first than the second texts of other rows, and any third ones.
        "similarity": the cosine of two texts is to be their `label_ids`.
      temperature: of the softmax over cosines, for "ranking".
      dtype: as for `modeling.AlbertEncoder`.

    Raises:
      ValueError: if an argument is none of these.

    Example:
      >>> from albert_tf import AlbertConfig
      >>> config = AlbertConfig(vocab_size=9, hidden_size=64)
      >>> model = AlbertVectors(config)
      >>> names = "input_ids", "input_mask", "segment_ids"
      >>> features = dict.fromkeys(names, tf.ones([2, 7], tf.int32))
      >>> model(features)["vectors"].shape
      TensorShape([2, 64])

    Source: sentence-transformers' MultipleNegativesRankingLoss and
    CosineSimilarityLoss.
    """

    saved_arguments = ("pooling", "objective", "temperature")
    uses_pooler = False
    compares_rows = True

    def __init__(
        self,
        config,
        *,
        pooling="mean",
        objective="ranking",
        temperature=0.05,
        dtype=None,
        **kwargs,
    ):
        super().__init__(config, dtype=dtype, **kwargs)
        for name, value, known in (
            ("pooling", pooling, POOLINGS),
            ("objective", objective, OBJECTIVES),
        ):
            if value not in known:
                raise ValueError(f"{name}={value!r}; wanted one of {known}.")
        self.pooling, self.objective = pooling, objective
        self.temperature = temperature
        if objective == "ranking":
            self.metric_names = ["accuracy"]

    def call(self, features, training=False, seed=None):
        shape = features["input_ids"].shape
        num_tokens = operations.size_of(features["input_ids"], -1)
        flat = {
            name: tf.reshape(features[name], [-1, num_tokens])
            for name in ("input_ids", "input_mask", "segment_ids")
        }  # [B * C, T]
        first = tf.zeros_like(flat["input_ids"][:, :1])
        positions = first if self.pooling == "cls" else None
        outputs = self.encode(flat, training, seed, positions=positions)
        tokens = outputs["sequence_output"]
        vectors = pool(tokens, flat["input_mask"], self.pooling)
        vectors = tf.math.l2_normalize(vectors, axis=-1)
        if len(shape) == 3:
            num_texts = operations.size_of(features["input_ids"], 1)
            vectors = tf.reshape(vectors, [-1, num_texts, vectors.shape[-1]])
        return {"vectors": vectors}

    def ratios(self, features, training=False, seed=None):
        """See `AlbertModel`; features as for `compare`."""
        vectors = self(features, training=training, seed=seed)["vectors"]
        rows = heads.row_weights(features)
        return {
            name: heads.weighted_mean(values, rows)
            for name, values in self.compare(vectors, features).items()
        }

    def compare(self, vectors, features):
        """Returns the loss and the metrics of each row, [B] float32 each.

        Args:
          vectors: [B, C, H], of length 1.
          features: for "ranking": `text_ids` [B, C] integers, equal for equal
            texts, negative for a text that is absent; and `example_weight` [B],
            0 for padding. For "similarity": `label_ids` [B] float32.
        """
        if self.objective == "similarity":
            cosines = tf.reduce_sum(vectors[:, 0] * vectors[:, 1], axis=-1)
            return {"loss": tf.square(cosines - features["label_ids"])}
        ids = features["text_ids"]  # [B, C]
        others = tf.reshape(tf.transpose(ids[:, 1:]), [-1])  # [(C - 1) * B]
        candidates = tf.reshape(
            tf.transpose(vectors[:, 1:], [1, 0, 2]), [-1, vectors.shape[-1]]
        )
        scores = tf.matmul(vectors[:, 0], candidates, transpose_b=True)
        num_rows = tf.shape(ids)[0]
        own = tf.range(num_rows)  # The place of each row's second text.
        is_own = own[:, tf.newaxis] == tf.range(tf.size(others))
        # A text that is one of the row's own is no wrong answer.
        is_same = tf.reduce_any(
            others[tf.newaxis, :, tf.newaxis] == ids[:, tf.newaxis, :2], axis=-1
        )
        # Nor is a right answer of another row with the same first text.
        is_first = tf.cast(ids[:, :1] == ids[:, 0], tf.float32)  # [B, B]
        is_right = tf.cast(ids[:, 1:2] == others, tf.float32)
        is_same |= tf.matmul(is_first, is_right) > 0  # [B, (C - 1) * B]
        is_text = tf.tile(heads.row_weights(features) > 0, [ids.shape[1] - 1])
        is_wrong = is_text & (others >= 0) & ~is_same
        logits = tf.where(
            is_own | is_wrong, scores / self.temperature, heads.NEVER
        )  # [B, (C - 1) * B]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(own, logits)
        hits = tf.argmax(logits, axis=1, output_type=tf.int32) == own
        return {"loss": losses, "accuracy": tf.cast(hits, tf.float32)}
