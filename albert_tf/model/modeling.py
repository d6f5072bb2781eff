"""The ALBERT encoder: embeddings, sub-layers shared by group index, pooler.

Small layers own the weights, one for each kind of sub-layer. The encoder casts
and packs the weights once per call, outside the loop over layers, because a
shared weight is used up to L times (docs/results.md has the measured gain).

Shapes: B batch, T tokens, E embedding_size, H hidden_size, N heads,
D = H / N, F intermediate_size, L layers, V vocab_size, R = B * T rows.
"""

from typing import NamedTuple

import keras
import tensorflow as tf

from albert_tf.model import layers, recomputing

# Added to the score of a masked key; the release's value. Finite, so that a
# row with an all-zero mask attends uniformly instead of returning NaN.
MASKED_SCORE = -10000.0


# Larger kernels, in the release only xxlarge's, are not to be constants:
# TensorFlow, which copies graphs often, needs several times their size.
MAX_CONSTANT_BYTES = 256 << 20


def list_kernels(model):
    """Returns the variables of all kernels of a model."""
    return [
        weight.value
        for weight in model.weights
        if weight.canonical_name.endswith("kernel")
    ]


def count_kernel_bytes(model):
    """Returns the size of all kernels of a model, in bytes."""
    return sum(
        kernel.dtype.size * kernel.shape.num_elements()
        for kernel in list_kernels(model)
    )


def named_weights(layer):
    """Returns every weight of a model by its canonical name.

    Args:
      layer: a layer or model composed of layers of this module and heads.py.

    Returns:
      A dict from canonical name to `keras.Variable`, sorted by name.

    Raises:
      ValueError: if two weights have the same name, for example because a
        model contains two encoders.
    """
    named: dict = {}
    for weight in layer.weights:
        name = weight.canonical_name
        if name in named and named[name] is not weight:
            raise ValueError(
                f"Two weights are named {name}; wanted unique names, as in a "
                "checkpoint. Does the model contain two encoders?"
            )
        named[name] = weight
    return dict(sorted(named.items()))


class Embeddings(layers.WeightOwner):
    """Word, segment and position vectors, summed and normalized: [B, T, E]."""

    def __init__(self, config, **kwargs):
        super().__init__("bert/embeddings", config.initializer_range, **kwargs)
        size = config.embedding_size
        self.config = config
        self.word = self.add("word_embeddings", (config.vocab_size, size))
        self.token_type = self.add(
            "token_type_embeddings", (config.type_vocab_size, size)
        )
        self.position = self.add(
            "position_embeddings", (config.max_position_embeddings, size)
        )
        self.norm = self.add_norm("LayerNorm", size)

    def call(self, input_ids, segment_ids, *, dropout):
        num_tokens = layers.size_of(input_ids, 1)
        # A product instead of a gather, as in the release: with two segments,
        # the gradient of a gather would add B * T rows into two.
        segments = tf.matmul(
            tf.one_hot(segment_ids, self.config.type_vocab_size),
            self.token_type.value,
        )  # [B, T, E]
        words = tf.gather(self.word_table(), input_ids)  # [B, T, E]
        x = tf.cast(words, tf.float32) + segments
        x += self.position.value[:num_tokens]
        gamma, beta = (w.value for w in self.norm)
        x = layers.layer_norm(x, gamma, beta, training=dropout.is_training)
        x = tf.cast(x, self.compute_dtype)
        return dropout(x, self.config.hidden_dropout_prob)

    def word_table(self):
        """Returns the word embeddings [V, E], maybe as a constant."""
        if not layers.are_embeddings_constant():
            return self.word.value
        return layers.hold(lambda: tf.cast(self.word.value, self.compute_dtype))


class AttentionWeights(NamedTuple):
    """The weights of one attention sub-layer, cast and packed."""

    qkv_kernel: tf.Tensor  # [H, 3H]
    qkv_bias: tf.Tensor  # [3H]
    kernel: tf.Tensor  # [H, H]
    bias: tf.Tensor  # [H]
    gamma: tf.Tensor  # [H], float32
    beta: tf.Tensor  # [H], float32


class Attention(layers.WeightOwner):
    """The variables of a self-attention sub-layer and its norm."""

    def __init__(self, config, prefix, **kwargs):
        super().__init__(prefix, config.initializer_range, **kwargs)
        size = config.hidden_size
        self.head_size = size // config.num_attention_heads
        self.query, self.key, self.value = (
            self.add_dense(f"attention_1/self/{name}", size, size)
            for name in ("query", "key", "value")
        )
        self.dense = self.add_dense("attention_1/output/dense", size, size)
        self.norm = self.add_norm("LayerNorm", size)

    def pack(self):
        """Returns AttentionWeights."""
        return AttentionWeights(
            layers.hold_kernel(lambda: self.pack_qkv(0)),
            self.pack_qkv(1),
            *self.cast(self.dense),
            *(w.value for w in self.norm),
        )

    def pack_qkv(self, index):
        """Returns the three kernels (index 0) or biases (1), concatenated."""
        query, key, value = (
            dense[index].value for dense in (self.query, self.key, self.value)
        )
        # The scale of the scores is folded into the query weights: H * H
        # products once instead of B * N * T * T in every layer.
        parts = [query * self.head_size**-0.5, key, value]
        return tf.cast(tf.concat(parts, axis=-1), self.compute_dtype)


class FeedForwardWeights(NamedTuple):
    """The weights of one feed-forward sub-layer, cast."""

    inner_kernel: tf.Tensor  # [H, F]
    inner_bias: tf.Tensor  # [F]
    kernel: tf.Tensor  # [F, H]
    bias: tf.Tensor  # [H]
    gamma: tf.Tensor  # [H], float32
    beta: tf.Tensor  # [H], float32


class FeedForward(layers.WeightOwner):
    """The variables of a feed-forward sub-layer and its norm."""

    def __init__(self, config, prefix, **kwargs):
        super().__init__(prefix, config.initializer_range, **kwargs)
        size, inner_size = config.hidden_size, config.intermediate_size
        self.inner = self.add_dense(
            "ffn_1/intermediate/dense", size, inner_size
        )
        self.dense = self.add_dense(
            "ffn_1/intermediate/output/dense", inner_size, size
        )
        self.norm = self.add_norm("LayerNorm_1", size)

    def pack(self):
        """Returns FeedForwardWeights."""
        return FeedForwardWeights(
            *self.cast(self.inner + self.dense),
            *(w.value for w in self.norm),
        )


def attend(x, weights, mask_scores, dropout, config):
    """Applies one attention sub-layer.

    Args:
      x: [R, H].
      weights: AttentionWeights.
      mask_scores: [B, 1, 1, T], 0 or MASKED_SCORE.
      dropout: a `Dropout`.
      config: an AlbertConfig, for the number of heads and the dropout rates.

    Returns:
      The output [R, H], and the attention probabilities [B, N, T, T].
    """
    batch_size, num_tokens = (layers.size_of(mask_scores, i) for i in (0, -1))
    num_heads = config.num_attention_heads
    head_size = config.hidden_size // num_heads
    qkv = layers.dense(x, weights.qkv_kernel, weights.qkv_bias)  # [R, 3H]
    qkv = tf.reshape(qkv, [batch_size, num_tokens, 3, num_heads, head_size])
    q, k, v = tf.unstack(tf.transpose(qkv, [2, 0, 3, 1, 4]))  # [B, N, T, D]
    probs = layers.attention_probs(
        q, k, mask_scores, training=dropout.is_training
    )  # [B, N, T, T]
    kept = dropout(probs, config.attention_probs_dropout_prob)
    context = tf.transpose(tf.matmul(kept, v), [0, 2, 1, 3])  # [B, T, N, D]
    context = tf.reshape(context, [-1, config.hidden_size])  # [R, H]
    y = add_and_norm(x, context, weights, dropout, config.hidden_dropout_prob)
    return y, probs


def feed_forward(x, weights, dropout, config):
    """Applies one feed-forward sub-layer to x [R, H]; returns [R, H]."""
    y = layers.dense_activation(
        x,
        weights.inner_kernel,
        weights.inner_bias,
        config.hidden_act,
        training=dropout.is_training,
    )  # [R, F]
    return add_and_norm(x, y, weights, dropout, config.hidden_dropout_prob)


def add_and_norm(x, y, weights, dropout, rate):
    """Returns layer_norm(x + dropout(y @ kernel + bias)), [R, H].

    Args:
      x: input of the sub-layer, [R, H].
      y: [R, inputs of the kernel].
      weights: AttentionWeights or FeedForwardWeights.
      dropout: a `Dropout`.
      rate: its rate.
    """
    dense = weights.kernel, weights.bias
    norm = weights.gamma, weights.beta
    if dropout.is_training and not rate:
        return layers.dense_sum_norm(y, *dense, x, *norm)
    y = dropout(layers.dense(y, *dense), rate)  # [R, H]
    return layers.layer_norm(x + y, *norm, training=dropout.is_training)


class Transformer(layers.WeightOwner):
    """L layers that share the weights of sub-layers by group index.

    Layer l uses the attention weights of group `config.attention_group(l)`
    and the feed-forward weights of group `config.ffn_group(l)`; if all weights
    are shared, both are `l * num_hidden_groups // L`. A group has
    `inner_group_num` blocks, applied in sequence, so there are
    L * inner_group_num outputs.
    """

    def __init__(self, config, **kwargs):
        super().__init__(
            "bert/encoder", config.initializer_range, name="encoder", **kwargs
        )
        self.config = config
        self.projection = None
        if config.embedding_size != config.hidden_size:
            self.projection = self.add_dense(
                "embedding_hidden_mapping_in",
                config.embedding_size,
                config.hidden_size,
            )
        self.attention = self.add_blocks(Attention, config.attention_group)
        self.ffn = self.add_blocks(FeedForward, config.ffn_group)

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

    def call(self, x, input_mask, *, dropout, with_attention=False):
        config = self.config
        stacks = self.pack()
        mask_scores = (1.0 - tf.cast(input_mask, tf.float32)) * MASKED_SCORE
        mask_scores = mask_scores[:, tf.newaxis, tf.newaxis, :]
        num_tokens = layers.size_of(input_mask, 1)
        # Flattened, as MatMul is faster on [R, H] than on [B, T, H].
        x = self.project(tf.reshape(x, [-1, config.embedding_size]))  # [R, H]

        def run_layer(x, blocks, dropout):
            """Returns outputs [R, H] and attention [B, N, T, T] per block."""
            outputs, probs = [], []
            for attention, ffn in blocks:
                x, p = attend(x, attention, mask_scores, dropout, config)
                x = feed_forward(x, ffn, dropout, config)
                outputs.append(x)
                probs += [tf.cast(p, tf.float32)] * with_attention
            return outputs, probs

        probs: list = []
        if layers.are_kernels_constant():
            outputs = run_in_loops(run_layer, x, stacks, dropout)
        elif recomputing.is_recomputing() and dropout.is_training:
            outputs = run_recomputed(run_layer, x, stacks, dropout, config)
        else:
            outputs, probs = run_unrolled(run_layer, x, stacks, dropout)
        shape = [-1, num_tokens, config.hidden_size]
        # [B, T, H] each
        return [tf.reshape(x, shape) for x in outputs], probs

    def project(self, x):
        """Returns the first layer's input [R, H] for embeddings x [R, E]."""
        if not self.projection:
            return x
        return layers.dense(x, *self.cast(self.projection))

    def pack(self):
        """Returns the packed weights of each stack of equal layers.

        Returns:
          A list of (blocks, number of layers that use them one after another),
          where `blocks` is a list of (AttentionWeights, FeedForwardWeights).
        """
        attention = [[a.pack() for a in group] for group in self.attention]
        ffn = [[f.pack() for f in group] for group in self.ffn]
        return [
            (list(zip(attention[a], ffn[f], strict=True)), count)
            for (a, f), count in self.config.count_uses().items()
        ]


# Ways to run stacks of layers. `run_layer` is a function of x, blocks and
# dropout; the result is a list of [R, H].


def run_unrolled(run_layer, x, stacks, dropout):
    """Returns the outputs and the attention of all blocks."""
    outputs, probs = [], []
    for blocks, count in stacks:
        uses = [blocks] * count
        if dropout.is_training and count > 1:
            uses = layers.copies(blocks, count)
        for own_blocks in uses:
            layer_outputs, layer_probs = run_layer(x, own_blocks, dropout)
            x = layer_outputs[-1]
            outputs += layer_outputs
            probs += layer_probs
    return outputs, probs


def run_in_loops(run_layer, x, stacks, dropout):
    """Returns the last output; a kernel is one constant for all its uses."""
    for blocks, count in stacks:
        x = repeat(
            lambda x, blocks=blocks: run_layer(x, blocks, dropout)[0][-1],
            x,
            count,
        )
    return [x]


def run_recomputed(run_layer, x, stacks, dropout, config):
    """Returns the last output; each layer is computed again for its gradient.

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
    for blocks, count in stacks:

        def step(i, x, blocks, dropout=dropout):
            return run_layer(x, blocks, dropout.after(i * num_calls))[0][-1]

        x = recomputing.repeat(step, x, blocks, count)
        dropout = dropout.after(count * num_calls)
    return [x]


def repeat(step, x, count):
    """Applies step to x `count` times, as a loop in the graph."""
    if count == 1:
        return step(x)

    def body(i, x):
        y = step(x)
        y.set_shape(x.shape)
        return i + 1, y

    return tf.while_loop(
        lambda i, _: i < count, body, (0, x), maximum_iterations=count
    )[1]


class Pooler(layers.WeightOwner):
    """tanh(first token @ kernel + bias): [B, H]."""

    def __init__(self, config, **kwargs):
        super().__init__("bert/pooler", config.initializer_range, **kwargs)
        size = config.hidden_size
        self.dense = self.add_dense("dense", size, size)

    def call(self, sequence_output):
        first = sequence_output[:, 0]  # [B, H]
        return tf.tanh(layers.dense(first, *self.cast(self.dense)))


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertEncoder(layers.ConfiguredLayer):
    """ALBERT without a head.

    Call it with `input_ids`, `input_mask` and `segment_ids`, [B, T] integers
    each; the default mask is all ones, the default segments are all zeros.
    `training=True` turns the config's dropout on; `seed` ([2] int32) then
    determines its masks. `with_attention=True` adds the attention
    probabilities, which take much memory outside a tf.function. The result is
    a dict:

      sequence_output: [B, T, H], the last layer.
      pooled_output: [B, H].
      embedding_output: [B, T, E], after norm and dropout.
      all_encoder_layers: list of L * inner_group_num tensors [B, T, H].
      all_attention_probs: with_attention only; list of as many tensors
        [B, N, T, T] float32.

    Args:
      config: an AlbertConfig.
      dtype: "float32", or "mixed_bfloat16" to compute in bfloat16 with
        float32 weights, norms and softmax.

    Raises:
      ValueError: when called, if T exceeds max_position_embeddings.

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
    ):
        self.check_length(input_ids.shape[1])
        if input_mask is None:
            input_mask = tf.ones_like(input_ids)
        if segment_ids is None:
            segment_ids = tf.zeros_like(input_ids)
        dropout = layers.build_dropout(training, seed)
        embedded = self.embeddings(input_ids, segment_ids, dropout=dropout)
        outputs, probs = self.transformer(
            embedded,
            input_mask,
            dropout=dropout,
            with_attention=with_attention,
        )
        attention = {"all_attention_probs": probs} if with_attention else {}
        return {
            "sequence_output": outputs[-1],
            "pooled_output": self.pooler(outputs[-1]),
            "embedding_output": embedded,
            "all_encoder_layers": outputs,
            **attention,
        }

    def check_length(self, num_tokens):
        longest = self.config.max_position_embeddings
        if num_tokens is not None and num_tokens > longest:
            raise ValueError(
                f"The input has {num_tokens} tokens, the model has "
                f"{longest} positions (max_position_embeddings). Truncate the "
                "input, or use a config with more positions."
            )
