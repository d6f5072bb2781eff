"""Answers of a classifier after fewer layers than it has.

Pooler and head of a classifier can be applied after any layer. A row whose
answer is sure enough needs no further layers; those that are left go on as a
smaller batch.

Shapes: B batch, A rows that are left, T tokens, H hidden_size, C classes,
L layers.

Source: "BERT Loses Patience" (arXiv 2006.04152) for the loss, ELBERT (arXiv
2107.00175) for shared layers and their uncertainty.
"""

import math
from typing import NamedTuple

import tensorflow as tf

from albert_tf.model import modeling, operations
from albert_tf.model.dropout import build_dropout


def check_threshold(threshold: float, objective: str) -> None:
    """Raises ValueError if a classifier cannot leave early by a threshold."""
    if not 0 <= threshold <= 1:
        raise ValueError(
            f"exit_threshold={threshold}; wanted a number from 0 to 1."
        )
    if threshold and objective != "classes":
        raise ValueError(
            f"exit_threshold={threshold:g}, but the model has the objective "
            f"{objective!r}: only answers of one class are given after fewer "
            "layers."
        )


def uncertainty(logits):
    """Returns the entropy of softmax, as a share of the largest: [...].

    `logits` are [..., C] float32.
    """
    log_probs = tf.nn.log_softmax(logits)
    entropy = -tf.reduce_sum(tf.exp(log_probs) * log_probs, axis=-1)
    return entropy / math.log(logits.shape[-1])


def layer_logits(model, features, training=False, seed=None, layer_heads=None):
    """Returns the logits after each layer, [B, L, C] float32.

    Args:
      model: a `heads.AlbertClassifier`.
      features: dict of the model's inputs.
      training: whether to drop out.
      seed: of dropout, [2] int32.
      layer_heads: the heads of the L layers; default: the model's, for all.

    Raises:
      ValueError: if layers are recomputed, so that only the last is kept.
    """
    config = model.config
    outputs = model.encode(features, training, seed)["all_encoder_layers"]
    # The last block of each layer.
    outputs = outputs[config.inner_group_num - 1 :: config.inner_group_num]
    if any(x is None for x in outputs):
        raise ValueError(
            "A loss after every layer needs the outputs of all layers, but "
            "recomputed layers keep the last one only: omit exit_loss=True "
            "or remat=True."
        )
    dropout = model.build_head_dropout(training, seed)
    pooler = model.encoder.pooler
    layer_heads = layer_heads or [model.output_layer] * len(outputs)
    logits = [
        head(dropout(pooler(x), model.dropout_prob))
        for head, x in zip(layer_heads, outputs, strict=True)
    ]
    return tf.stack(logits, axis=1)


class Left(NamedTuple):
    """The rows that take another layer; with static shapes, all rows."""

    rows: tf.Tensor  # [A] int32, their indices in the batch.
    is_left: tf.Tensor  # [A] bool, whether they are not yet sure.
    x: tf.Tensor  # [A * T, H], the layer's input.
    mask_scores: tf.Tensor  # [A, 1, 1, T]

    def keep(self):
        """Returns those that are left, as a smaller batch."""
        some = tf.where(self.is_left)[:, 0]
        size = self.x.shape[-1]
        num_tokens = operations.size_of(self.mask_scores, -1)
        by_row = self._replace(x=tf.reshape(self.x, [-1, num_tokens, size]))
        kept = Left(*(tf.gather(value, some) for value in by_row))
        return kept._replace(x=tf.reshape(kept.x, [-1, size]))


def predict(model, features, threshold=0.0, compacts=True):
    """Computes only as many layers as rows need.

    A row leaves after the first layer whose `uncertainty` is below the
    threshold, or after the last.

    Args:
      model: a `heads.AlbertClassifier` of several classes.
      features: dict of the model's inputs.
      threshold: a number; with 0, all rows take all layers.
      compacts: whether the batch shrinks as rows leave it. Otherwise shapes are
        static, and layers are saved only after the last row has left.

    Returns:
      A dict:

      logits: [B, C] float32, of the layer with which a row left.
      num_layers: [B] int32, how many layers a row took.
      layer_logits: [B, L, C] float32, of each layer; with `compacts`, 0 after
        that with which a row left.
    """
    left = begin(model, features)
    num_rows = operations.size_of(features["input_ids"], 0)
    state = (
        tf.constant(0),  # layers so far
        left,
        tf.zeros([num_rows, model.config.num_hidden_layers, model.num_labels]),
        tf.zeros([num_rows], tf.int32),
    )
    shapes = tf.nest.map_structure(lambda value: value.shape, state)
    if compacts:
        smaller = (tf.TensorShape([None, *value.shape[1:]]) for value in left)
        shapes = (shapes[0], Left(*smaller), *shapes[2:])
    end = 0
    for blocks, count in model.encoder.transformer.pack():
        end += count

        def step(layer, left, logits, used, blocks=blocks):
            rest, new = apply(model, blocks, left, threshold)
            at = tf.stack([left.rows, tf.fill(tf.shape(left.rows), layer)], 1)
            logits = tf.tensor_scatter_nd_update(logits, at, new)
            used = tf.tensor_scatter_nd_add(
                used, at[:, :1], tf.cast(left.is_left, tf.int32)
            )
            if compacts:
                rest = rest.keep()
            return layer + 1, rest, logits, used

        state = tf.while_loop(
            lambda layer, left, *_, end=end: (
                (layer < end) & tf.reduce_any(left.is_left)
            ),
            step,
            state,
            shape_invariants=shapes,
            maximum_iterations=count,
        )
    _, _, logits, used = state
    return {
        "logits": tf.gather(logits, used - 1, batch_dims=1),
        "num_layers": used,
        "layer_logits": logits,
    }


def begin(model, features):
    """Returns all rows before the first layer, as `Left`."""
    encoder = model.encoder
    embedded = encoder.embeddings(
        features["input_ids"],
        features["segment_ids"],
        dropout=build_dropout(False, None),
    )
    x, mask_scores = encoder.transformer.begin(embedded, features["input_mask"])
    num_rows = operations.size_of(features["input_ids"], 0)
    return Left(tf.range(num_rows), tf.fill([num_rows], True), x, mask_scores)


def apply(model, blocks, left, threshold):
    """Applies a layer; returns what is left, and its logits [A, C]."""
    config, encoder = model.config, model.encoder
    outputs, _ = modeling.apply_layer(
        left.x,
        blocks,
        build_dropout(False, None),
        mask_scores=left.mask_scores,
        config=config,
    )
    num_tokens = operations.size_of(left.mask_scores, -1)
    shape = [-1, num_tokens, config.hidden_size]
    logits = model.output_layer(encoder.pooler(tf.reshape(outputs[-1], shape)))
    # The form of the comparison keeps NaN.
    is_left = left.is_left & ~(uncertainty(logits) < threshold)
    return left._replace(is_left=is_left, x=outputs[-1]), logits
