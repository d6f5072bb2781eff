"""The ALBERT encoder: embeddings, sub-layers shared by group index, pooler.

Small layers own the weights, one for each kind of sub-layer. The encoder casts
and packs the weights once per call, outside the loop over layers, because a
shared weight is used up to L times (docs/results.md has the measured gain).

Shapes: B batch, T tokens, E embedding_size, H hidden_size, N heads,
D = H / N, F intermediate_size, L layers, V vocab_size, R = B * T rows.
"""

import functools
from typing import NamedTuple

import keras
import tensorflow as tf

from albert_tf.model import execution, layers, operations, recomputing
from albert_tf.model.dropout import build_dropout

# Added to the score of a masked key; the release's value. Finite, so that a
# row with an all-zero mask attends uniformly instead of returning NaN.
MASKED_SCORE = -10000.0
# Layers such as Add and Concatenate, which build nothing.
_WITHOUT_WEIGHTS = keras.layers.Add.__base__
_ADVICE = (
    "Use heads.Logits, or another layers.WeightOwner, instead of layers of "
    "Keras."
)


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertEncoder(layers.ConfiguredLayer):
    """ALBERT without a head.

    Call it with `input_ids`, `input_mask` and `segment_ids`, [B, T] integers
    each; the default mask is all ones, the default segments are all zeros.
    `training=True` turns the config's dropout on; `seed` ([2] int32) then
    determines its masks, and `depth`, an int32 scalar, how many of the layers
    are computed. `with_attention=True` adds the attention
    probabilities, which take much memory outside a tf.function. With
    `positions`, [B, P] integers below T, the last layer computes these tokens
    alone, and the first one for the pooler; the others only as keys and values.
    The result is a dict:

      sequence_output: [B, T, H], the last layer; [B, P, H] with `positions`.
      pooled_output: [B, H].
      embedding_output: [B, T, E], after norm and dropout.
      all_encoder_layers: list of L * inner_group_num tensors [B, T, H], the
        last of which is sequence_output; where `execution.Execution` says so,
        None for the others.
      all_attention_probs: with_attention only; list of as many tensors
        [B, N, T, T] float32; the last [B, N, 1 + P, T] with `positions`.

    Args:
      config: an AlbertConfig.
      dtype: "float32", or "mixed_bfloat16" to compute in bfloat16 with
        float32 weights, norms and softmax.

    Raises:
      ValueError: when called, if T exceeds max_position_embeddings, or if
        positions is known to have another number of rows than input_ids.

    Example:
      >>> from albert_tf import AlbertConfig
      >>> encoder = AlbertEncoder(AlbertConfig(vocab_size=9, hidden_size=64))
      >>> outputs = encoder(tf.constant([[2, 7, 8, 3, 0]]))
      >>> outputs["sequence_output"].shape
      TensorShape([1, 5, 64])

    Source: modeling.py, `AlbertModel`. Group indices are computed in integers
    here; the release's floats skip a group at some depths.
    """

    def __init__(self, config, *, dtype=None, **kwargs):
        super().__init__(config, dtype=dtype, **kwargs)
        self.embeddings = Embeddings(config, dtype=self.dtype_policy)
        self.transformer = Transformer(config, dtype=self.dtype_policy)
        self.pooler = Pooler(config, dtype=self.dtype_policy)

    def call(
        self,
        input_ids,
        input_mask=None,
        segment_ids=None,
        training=False,
        seed=None,
        with_attention=False,
        depth=None,
        positions=None,
    ):
        if isinstance(input_ids, dict):
            raise TypeError(
                "Found a dict; wanted ids. Call encoder(**features)."
            )
        # keras.Input without a dtype, and Sequential, give floats.
        input_ids = tf.cast(input_ids, tf.int32)
        num_tokens = input_ids.shape[1]
        longest = self.config.max_position_embeddings
        if num_tokens is not None and num_tokens > longest:
            raise ValueError(
                f"The input has {num_tokens} tokens, the model has "
                f"{longest} positions (max_position_embeddings). Truncate the "
                "input, or use a config with more positions."
            )
        if input_mask is None:
            input_mask = tf.ones_like(input_ids)
        if segment_ids is None:
            segment_ids = tf.zeros_like(input_ids)
        segment_ids = tf.cast(segment_ids, tf.int32)
        dropout = build_dropout(training, seed)
        embedded = self.embeddings(input_ids, segment_ids, dropout=dropout)
        outputs, probs = self.transformer(
            embedded,
            input_mask,
            dropout=dropout,
            with_attention=with_attention,
            depth=depth,
            positions=prepend_first(positions, input_ids),
        )
        pooled = self.pooler(outputs[-1])
        if positions is not None:
            outputs[-1] = outputs[-1][:, 1:]
        return {
            "sequence_output": outputs[-1],
            "pooled_output": pooled,
            "embedding_output": embedded,
            "all_encoder_layers": outputs,
            **({"all_attention_probs": probs} if with_attention else {}),
        }


def prepend_first(positions, input_ids):
    """Returns [B, 1 + P] int32, 0 and positions [B, P]; None for None."""
    if positions is None:
        return None
    positions = tf.cast(positions, tf.int32)
    if not positions.shape[:1].is_compatible_with(input_ids.shape[:1]):
        raise ValueError(
            f"positions has {positions.shape[0]} rows, input_ids "
            f"{input_ids.shape[0]}; wanted as many."
        )
    return tf.pad(positions, [[0, 0], [1, 0]])


class Embeddings(layers.WeightOwner):
    """Word, segment and position vectors, summed and normalized: [B, T, E]."""

    def __init__(self, config, **kwargs):
        super().__init__(config, "bert/embeddings", **kwargs)
        size = config.embedding_size
        self.word = self.add("word_embeddings", (config.vocab_size, size))
        self.token_type = self.add(
            "token_type_embeddings", (config.type_vocab_size, size)
        )
        self.position = self.add(
            "position_embeddings", (config.max_position_embeddings, size)
        )
        self.norm = self.add_norm("LayerNorm", size)

    def call(self, input_ids, segment_ids, *, dropout):
        num_tokens = operations.size_of(input_ids, 1)
        # Multiplied instead of gathered, as in the release: with two segments,
        # the gradient of a gather would add B * T rows into two.
        segments = tf.matmul(
            tf.one_hot(segment_ids, self.config.type_vocab_size),
            self.token_type.value,
        )  # [B, T, E]
        table = self.word.value  # [V, E]
        if execution.current().constant_embeddings:
            table = execution.hold(lambda: tf.cast(table, self.compute_dtype))
        words = tf.gather(table, input_ids)  # [B, T, E]
        x = tf.cast(words, tf.float32) + segments
        x += self.position.value[:num_tokens]
        gamma, beta = (w.value for w in self.norm)
        x = operations.layer_norm(x, gamma, beta, training=dropout.is_training)
        x = tf.cast(x, self.compute_dtype)
        return dropout(x, self.config.hidden_dropout_prob)


class SubLayerWeights(NamedTuple):
    """The weights of one sub-layer, cast and packed."""

    # Kernel and bias of the first dense layer. Attention: of query, key and
    # value, [H, 3H] and [3H]; feed-forward: [H, F] and [F].
    first: tuple[tf.Tensor, tf.Tensor]
    # Kernel and bias of the last: [H, H] or [F, H], and [H].
    last: tuple[tf.Tensor, tf.Tensor]
    norm: tuple[tf.Tensor, tf.Tensor]  # Gamma and beta, [H] float32.


class Attention(layers.WeightOwner):
    """The variables of a self-attention sub-layer and its norm."""

    def __init__(self, config, prefix, **kwargs):
        super().__init__(config, prefix, **kwargs)
        size = config.hidden_size
        self.head_size = size // config.num_attention_heads
        self.query, self.key, self.value = (
            self.add_dense(f"attention_1/self/{name}", size, size)
            for name in ("query", "key", "value")
        )
        self.dense = self.add_dense("attention_1/output/dense", size, size)
        self.norm = self.add_norm("LayerNorm", size)

    def pack(self):
        """Returns SubLayerWeights."""
        is_constant = execution.current().constant_kernels
        kernel = execution.hold(lambda: self.pack_qkv(0), is_constant)
        return SubLayerWeights(
            (kernel, self.pack_qkv(1)),
            self.cast(self.dense),
            tuple(w.value for w in self.norm),
        )

    def pack_qkv(self, index):
        """Returns the three kernels (index 0) or biases (1), concatenated."""
        query, key, value = (
            dense[index].value for dense in (self.query, self.key, self.value)
        )
        # The scale of the scores is folded into the query weights: H * H
        # multiplications once instead of B * N * T * T in every layer.
        parts = [query * self.head_size**-0.5, key, value]
        return tf.cast(tf.concat(parts, axis=-1), self.compute_dtype)


class FeedForward(layers.WeightOwner):
    """The variables of a feed-forward sub-layer and its norm."""

    def __init__(self, config, prefix, **kwargs):
        super().__init__(config, prefix, **kwargs)
        size, inner_size = config.hidden_size, config.intermediate_size
        self.inner = self.add_dense(
            "ffn_1/intermediate/dense", size, inner_size
        )
        self.dense = self.add_dense(
            "ffn_1/intermediate/output/dense", inner_size, size
        )
        self.norm = self.add_norm("LayerNorm_1", size)

    def pack(self):
        """Returns SubLayerWeights."""
        return SubLayerWeights(
            self.cast(self.inner),
            self.cast(self.dense),
            tuple(w.value for w in self.norm),
        )


def attend(x, weights, mask_scores, dropout, config, positions=None):
    """Applies one attention sub-layer.

    Args:
      x: [R, H].
      weights: SubLayerWeights.
      mask_scores: [B, 1, 1, T], 0 or MASKED_SCORE.
      dropout: a `Dropout`.
      config: an AlbertConfig, for the number of heads and the dropout rates.
      positions: [B, Q] int32, the tokens to compute; None for all T.

    Returns:
      The output [B * Q, H], and the attention probabilities [B, N, Q, T].
    """
    batch_size, num_tokens = (
        operations.size_of(mask_scores, axis) for axis in (0, -1)
    )
    num_heads, size = config.num_attention_heads, config.hidden_size

    def project(x, kernel, bias, num_tokens):
        """Returns a list of parts of x @ kernel + bias, [B, N, T, D] each."""
        y = operations.dense(x, kernel, bias, training=dropout.is_training)
        num_parts = kernel.shape[1] // size
        parts = [num_parts, num_heads, size // num_heads]
        y = tf.reshape(y, [batch_size, num_tokens, *parts])
        return tf.unstack(tf.transpose(y, [2, 0, 3, 1, 4]))

    kernel, bias = weights.first
    if positions is None:
        q, k, v = project(x, kernel, bias, num_tokens)
    else:
        k, v = project(x, kernel[:, size:], bias[size:], num_tokens)
        x = take_tokens(x, positions)  # [B * Q, H]
        num_queries = operations.size_of(positions, 1)
        (q,) = project(x, kernel[:, :size], bias[:size], num_queries)
    probs = operations.attention_probs(
        q, k, mask_scores, training=dropout.is_training
    )  # [B, N, Q, T]
    kept = dropout(probs, config.attention_probs_dropout_prob)
    context = tf.transpose(tf.matmul(kept, v), [0, 2, 1, 3])  # [B, Q, N, D]
    context = tf.reshape(context, [-1, size])  # [B * Q, H]
    y = add_and_norm(x, context, weights, dropout, config.hidden_dropout_prob)
    return y, probs


def feed_forward(x, weights, dropout, config):
    """Applies one feed-forward sub-layer to x [R, H]; returns [R, H]."""
    kernel, bias = weights.first
    y = operations.dense_activation(
        x, kernel, bias, config.hidden_act, training=dropout.is_training
    )  # [R, F]
    return add_and_norm(x, y, weights, dropout, config.hidden_dropout_prob)


def add_and_norm(x, y, weights, dropout, rate):
    """Returns layer_norm(x + dropout(y @ kernel + bias)), [R, H].

    x is the input of the sub-layer, y that of its last dense layer.
    """
    kernel, bias = weights.last
    gamma, beta = weights.norm
    if dropout.is_training and not rate:
        return operations.dense_sum_norm(y, kernel, bias, x, gamma, beta)
    y = operations.dense(
        y, kernel, bias, training=dropout.is_training
    )  # [R, H]
    y = dropout(y, rate)
    return operations.layer_norm(
        x + y, gamma, beta, training=dropout.is_training
    )


class Transformer(layers.WeightOwner):
    """L layers that share the weights of sub-layers by group index.

    Layer l uses the attention weights of group `config.attention_group(l)`
    and the feed-forward weights of group `config.ffn_group(l)`; if all weights
    are shared, both are `l * num_hidden_groups // L`. A group has
    `inner_group_num` blocks, applied in sequence, so there are
    L * inner_group_num outputs.
    """

    def __init__(self, config, **kwargs):
        super().__init__(config, "bert/encoder", **kwargs)
        self.projection = None
        if config.embedding_size != config.hidden_size:
            self.projection = self.add_dense(
                "embedding_hidden_mapping_in",
                config.embedding_size,
                config.hidden_size,
            )
        self.attention = self.add_blocks(Attention, config.attention_group)
        self.ffn = self.add_blocks(FeedForward, config.ffn_group)
        # Before version 3.15, Keras saves no layers in lists of lists. It saves
        # a layer under the first attribute by name: that of this list.
        self.all_blocks = [
            block for blocks in (*self.attention, *self.ffn) for block in blocks
        ]

    def add_blocks(self, kind, group_of):
        """Builds a list of inner_group_num sub-layers for each group."""
        last_group = group_of(self.config.num_hidden_layers - 1)
        prefix = f"{self.prefix}/transformer"
        return [
            [
                kind(
                    self.config,
                    f"{prefix}/group_{group}/inner_group_{inner}",
                    dtype=self.dtype_policy,
                )
                for inner in range(self.config.inner_group_num)
            ]
            for group in range(last_group + 1)
        ]

    def call(self, x, input_mask, *, dropout, with_attention, depth, positions):
        config = self.config
        x, mask_scores = self.begin(x, input_mask)
        run_layer = functools.partial(
            apply_layer,
            mask_scores=mask_scores,
            config=config,
            with_attention=with_attention,
        )
        arguments = run_layer, x, self.pack(), dropout, positions
        probs: list = []
        how = execution.current()
        if how.constant_kernels:
            outputs = run_in_loops(*arguments)
        elif how.recompute_layers and dropout.is_training:
            outputs = run_recomputed(*arguments, config)
        else:
            outputs, probs = run_unrolled(*arguments, depth)
        num_blocks = config.num_hidden_layers * config.inner_group_num
        outputs = [None] * (num_blocks - len(outputs)) + outputs
        sizes = [operations.size_of(input_mask, 1)] * num_blocks
        if positions is not None:
            sizes[-1] = operations.size_of(positions, 1)
        # [B, T, H] each, the last [B, Q, H]
        return [
            x if x is None else tf.reshape(x, [-1, size, config.hidden_size])
            for x, size in zip(outputs, sizes, strict=True)
        ], probs

    def begin(self, x, input_mask):
        """Returns the first layer's input [R, H] and scores [B, 1, 1, T].

        x are the embeddings [B, T, E]; a masked key has MASKED_SCORE.
        """
        mask_scores = (1.0 - tf.cast(input_mask, tf.float32)) * MASKED_SCORE
        mask_scores = mask_scores[:, tf.newaxis, tf.newaxis, :]
        # Flattened, as MatMul is faster on [R, H] than on [B, T, H].
        x = tf.reshape(x, [-1, self.config.embedding_size])  # [R, E]
        if self.projection:
            x = operations.dense(x, *self.cast(self.projection))  # [R, H]
        return x, mask_scores

    def pack(self):
        """Returns the packed weights of each stack of equal layers.

        Returns:
          A list of (blocks, number of layers that use them one after another),
          where `blocks` is a list of pairs of SubLayerWeights.
        """
        attention = [[a.pack() for a in group] for group in self.attention]
        ffn = [[f.pack() for f in group] for group in self.ffn]
        return [
            (list(zip(attention[a], ffn[f], strict=True)), count)
            for (a, f), count in self.config.count_uses().items()
        ]


def apply_layer(
    x,
    blocks,
    dropout,
    positions=None,
    *,
    mask_scores,
    config,
    with_attention=False,
):
    """Applies the blocks of a layer to x [R, H].

    With `positions`, [B, Q] int32, the last block computes these tokens alone.

    Returns:
      Lists of a block's output [R, H] and, `with_attention`, probabilities
      [B, N, T, T] float32; of the last block [B * Q, H] and [B, N, Q, T].
    """
    outputs, probs = [], []
    for number, (attention, ffn) in enumerate(blocks, 1):
        wanted = positions if number == len(blocks) else None
        x, p = attend(x, attention, mask_scores, dropout, config, wanted)
        x = feed_forward(x, ffn, dropout, config)
        outputs.append(x)
        probs += [tf.cast(p, tf.float32)] * with_attention
    return outputs, probs


def take_tokens(x, positions):
    """Returns the rows of x [B * T, H] at positions [B, Q], [B * Q, H]."""
    size = x.shape[1]
    x = tf.reshape(x, [operations.size_of(positions, 0), -1, size])
    return tf.reshape(tf.gather(x, positions, batch_dims=1), [-1, size])


def skip_layer(x, blocks, dropout, positions=None):
    """Returns x as the outputs of a layer, in their shapes."""
    del dropout
    last = x if positions is None else take_tokens(x, positions)
    return [x] * (len(blocks) - 1) + [last]


# Three ways to run stacks of layers: `run_unrolled` has every output and builds
# the fastest graph to train, the others keep it or the memory small.
# `run_layer` maps x, blocks, dropout and positions to lists of outputs and
# attention; the last layer is given `positions`, [B, Q] int32 or None.


def run_unrolled(run_layer, x, stacks, dropout, positions=None, depth=None):
    """Returns the outputs and the attention of all blocks.

    Layers from `depth` on, an int32 scalar or None, return their input, and
    without attention.
    """
    outputs, probs = [], []
    uses = []
    for blocks, count in stacks:
        # Also in front of a branch, which then reads no variable.
        if dropout.is_training and (count > 1 or depth is not None):
            uses += operations.copies(blocks, count)
        else:
            uses += [blocks] * count
    for number, blocks in enumerate(uses, 1):
        wanted = positions if number == len(uses) else None
        arguments = x, blocks, dropout, wanted
        if depth is None:
            layer_outputs, layer_probs = run_layer(*arguments)
        else:
            layer_probs = []
            layer_outputs = tf.cond(
                number <= depth,
                lambda a=arguments: run_layer(*a)[0],
                lambda a=arguments: skip_layer(*a),
            )
        x = layer_outputs[-1]
        outputs += layer_outputs
        probs += layer_probs
    return outputs, probs


def run_in_loops(run_layer, x, stacks, dropout, positions=None):
    """Returns [last output]; all uses of a kernel share one constant.

    The last use has its own with `positions`, if `Execution` says so.
    """
    is_apart = execution.current().separate_last_layer
    for blocks, count, wanted in divide(stacks, positions, is_apart):
        if count == 1:
            x = run_layer(x, blocks, dropout, wanted)[0][-1]
            continue

        def body(i, x, blocks=blocks):
            y = run_layer(x, blocks, dropout)[0][-1]
            y.set_shape(x.shape)
            return i + 1, y

        _, x = tf.while_loop(
            lambda i, _, count=count: i < count,
            body,
            (0, x),
            maximum_iterations=count,
        )
        if wanted is not None:  # The last layer is in the loop.
            x = take_tokens(x, wanted)
    return [x]


def run_recomputed(run_layer, x, stacks, dropout, positions, config):
    """Returns [last output]; a layer is computed again for its gradient.

    With `positions`, the last one is not: its values are few, or soon freed.
    Dropout draws the same masks as in `run_unrolled`.
    """
    num_calls = config.inner_group_num * sum(
        rate > 0
        for rate in (
            config.attention_probs_dropout_prob,
            config.hidden_dropout_prob,  # after attention
            config.hidden_dropout_prob,  # after the feed-forward layers
        )
    )
    for blocks, count, wanted in divide(stacks, positions):
        if wanted is not None:
            return [run_layer(x, blocks, dropout, wanted)[0][-1]]

        def step(i, x, blocks, dropout=dropout):
            return run_layer(x, blocks, dropout.after(i * num_calls))[0][-1]

        x = recomputing.repeat(step, x, blocks, count)
        dropout = dropout.after(count * num_calls)
    return [x]


def divide(stacks, positions, is_apart=True):
    """Yields blocks, how many layers use them, and the last one's positions.

    With `positions` and `is_apart`, the last layer is a stack of its own.
    """
    *others, (blocks, count) = stacks
    for stack in others:
        yield *stack, None
    if is_apart and positions is not None and count > 1:
        yield blocks, count - 1, None
        count = 1
    yield blocks, count, positions


class Pooler(layers.WeightOwner):
    """tanh(first token @ kernel + bias): [B, H]."""

    def __init__(self, config, **kwargs):
        super().__init__(config, "bert/pooler", **kwargs)
        size = config.hidden_size
        self.dense = self.add_dense("dense", size, size)

    def call(self, sequence_output):
        first = sequence_output[:, 0]  # [B, H]
        return tf.tanh(operations.dense(first, *self.cast(self.dense)))


def named_weights(layer):
    """Returns every weight of a model by its canonical name.

    Args:
      layer: a layer or model composed of layers of this module and heads.py.

    Returns:
      A dict from canonical name to `keras.Variable`, sorted by name.

    Raises:
      ValueError: if two weights have the same name, for example because a
        model contains two encoders; or if a weight has none, or does not
        exist yet.
    """
    for part in layer._flatten_layers():
        makes_none = isinstance(part, _WITHOUT_WEIGHTS) or (
            type(part).build is keras.layers.Layer.build
        )
        if not (part.built or makes_none):
            raise ValueError(
                f"The layer {part.path or part.name} is not built: weights "
                "that it makes later would be neither trained nor saved. "
                f"{_ADVICE}"
            )
    named: dict = {}
    for weight in layer.weights:
        name = getattr(weight, "canonical_name", None)
        if name is None:
            raise ValueError(
                f"The weight {weight.path} has no name for checkpoints. "
                f"{_ADVICE}"
            )
        if name in named and named[name] is not weight:
            raise ValueError(
                f"Two weights are named {name}; wanted unique names, as in a "
                "checkpoint. Does the model contain two encoders?"
            )
        named[name] = weight
    return dict(sorted(named.items()))
