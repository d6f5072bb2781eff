"""Initial values of a stacked model: random ones, and parts of ours.

The production code is albert_tf/model/initial_values.py. Here each part can be
left out or changed, and nothing but NumPy is needed.

Shapes: V vocab_size, E embedding_size, H hidden_size, N heads, D = H / N,
T tokens.
"""

import math

import numpy as np

DENSE = "kernel", "bias"
NORM = "gamma", "beta"


def random_values(config, seed):
    """Returns the release's initial values by name, of `stacked`'s weights."""
    rng = np.random.default_rng(seed)
    embedding, hidden = config.embedding_size, config.hidden_size
    inner = config.intermediate_size
    values = {}

    def draw(name, *shape):
        values[name] = truncated_normal(rng, shape) * np.float32(
            config.initializer_range
        )

    def add_dense(name, *shape):
        draw(f"{name}/kernel", *shape)
        values[f"{name}/bias"] = np.zeros(shape[1], np.float32)

    def add_norm(name, width):
        values[f"{name}/gamma"] = np.ones(width, np.float32)
        values[f"{name}/beta"] = np.zeros(width, np.float32)

    draw("word_embeddings", config.vocab_size, embedding)
    draw("position_embeddings", config.max_position_embeddings, embedding)
    draw("segment_embeddings", 2, embedding)
    add_norm("norm", embedding)
    add_dense("projection", embedding, hidden)
    add_dense("pooler", hidden, hidden)
    draw("sentence_order/kernel", 2, hidden)  # As the release's.
    values["sentence_order/kernel"] = values["sentence_order/kernel"].T.copy()
    values["sentence_order/bias"] = np.zeros(2, np.float32)
    add_dense("masked_lm", hidden, embedding)
    add_norm("masked_norm", embedding)
    values["output_bias"] = np.zeros(config.vocab_size, np.float32)
    for group in range(config.num_hidden_groups):
        for kind in ("query", "key", "value", "attention_output"):
            add_dense(f"{group}/{kind}", hidden, hidden)
        add_dense(f"{group}/intermediate", hidden, inner)
        add_dense(f"{group}/output", inner, hidden)
        add_norm(f"{group}/norm_1", hidden)
        add_norm(f"{group}/norm_2", hidden)
    return values


def canonical_names(config):
    """Returns a dict from our names here to the release's.

    The release's output weights of the sentence order are transposed.
    """
    names = {
        "word_embeddings": "bert/embeddings/word_embeddings",
        "position_embeddings": "bert/embeddings/position_embeddings",
        "segment_embeddings": "bert/embeddings/token_type_embeddings",
        "sentence_order/kernel": "cls/seq_relationship/output_weights",
        "sentence_order/bias": "cls/seq_relationship/output_bias",
        "output_bias": "cls/predictions/output_bias",
    }
    norms = {
        "norm": "bert/embeddings/LayerNorm",
        "masked_norm": "cls/predictions/transform/LayerNorm",
    }
    layers = {
        "projection": "bert/encoder/embedding_hidden_mapping_in",
        "pooler": "bert/pooler/dense",
        "masked_lm": "cls/predictions/transform/dense",
    }
    for group in range(config.num_hidden_groups):
        prefix = f"bert/encoder/transformer/group_{group}/inner_group_0"
        attention = f"{prefix}/attention_1"
        inner = f"{prefix}/ffn_1/intermediate"
        layers |= {
            f"{group}/{kind}": f"{attention}/self/{kind}"
            for kind in ("query", "key", "value")
        } | {
            f"{group}/attention_output": f"{attention}/output/dense",
            f"{group}/intermediate": f"{inner}/dense",
            f"{group}/output": f"{inner}/output/dense",
        }
        norms |= {
            f"{group}/norm_1": f"{prefix}/LayerNorm",
            f"{group}/norm_2": f"{prefix}/LayerNorm_1",
        }
    for table, kinds in (layers, DENSE), (norms, NORM):
        names |= {
            f"{short}/{kind}": f"{name}/{kind}"
            for short, name in table.items()
            for kind in kinds
        }
    return names


def truncated_normal(rng, shape):
    """Returns a normal sample without values beyond 2."""
    sample = rng.standard_normal(shape, dtype=np.float32)
    while (is_beyond := np.abs(sample) > 2).any():
        count = int(is_beyond.sum())
        sample[is_beyond] = rng.standard_normal(count, dtype=np.float32)
    return sample


def neighbors(
    config,
    values,
    *,
    piece_counts=None,
    amplitude=0,
    slowest=1 / 200,
    unit_projection=False,
    offsets=(),
    noise=0.3,
    score=1.0,
    score_after_norm=False,
    is_first_alone=False,
    output_power=0,
):
    """Returns values that differ from random ones as albert_tf's do, or less.

    `albert_tf.model.initial_values.neighbors` says what the parts are.

    Args:
      config: an AlbertConfig.
      values: what `random_values` returns.
      piece_counts: [V], for the bias; None leaves it.
      amplitude: of the positions; 0 leaves them random.
      slowest: radians per token of the slowest frequency.
      unit_projection: whether the projection keeps the variance 1.
      offsets: distances on which heads begin; the others stay random.
      noise: share of these heads' random kernels that is kept.
      score: factor of scores. At 1, queries and keys are the positions that
        their token has in the embeddings after the norm.
      score_after_norm: whether the scores are so large in later passes,
        where the norm has made up for the projection.
      is_first_alone: whether only the first group's heads begin so.
      output_power: the last kernels are divided by layers ** output_power.
    """
    values = dict(values)
    width = config.embedding_size
    rates = slowest ** np.linspace(0, 1, width // 2)  # [E/2]
    random_std = values["projection/kernel"].std()
    if unit_projection:
        kernel = values["projection/kernel"] / (random_std * math.sqrt(width))
        values["projection/kernel"] = kernel.astype(np.float32)
    if amplitude:
        angles = np.arange(config.max_position_embeddings)[:, None] * rates
        table = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
        table = table.reshape(len(angles), -1)  # [T, E]
        table *= amplitude * config.initializer_range
        values["position_embeddings"] = table.astype(np.float32)
    scale = math.sqrt(score)
    if score_after_norm:
        scale *= values["projection/kernel"].std() * math.sqrt(width)
    for group in range(1 if is_first_alone else config.num_hidden_groups):
        begin_heads(config, values, group, rates, offsets, noise, scale)
    for group in range(config.num_hidden_groups):
        for kind in ("attention_output", "output"):
            values[f"{group}/{kind}/kernel"] = values[
                f"{group}/{kind}/kernel"
            ] * np.float32(config.num_hidden_layers**-output_power)
    if piece_counts is not None:
        frequencies = np.log((piece_counts + 1) / (piece_counts + 1).sum())
        bias = frequencies.astype(np.float32)
        values["output_bias"] = bias - bias.mean()
    return values


def begin_heads(config, values, group, rates, offsets, noise, scale):
    """Replaces kernels of one head for each offset; see `neighbors`."""
    num_heads = config.num_attention_heads
    size = config.hidden_size // num_heads
    inverse = np.linalg.pinv(values["projection/kernel"].astype(np.float64))
    num_pairs = min(size // 2, len(rates))
    chosen = np.linspace(0, len(rates) - 1, num_pairs).round().astype(int)
    query, key = f"{group}/query/kernel", f"{group}/key/kernel"
    for name in (query, key):
        values[name] = values[name].astype(np.float64)
    for head, offset in enumerate(offsets[:num_heads]):
        for name, distance in ((query, offset), (key, 0)):
            head_kernel = values[name][:, head * size : (head + 1) * size]
            head_kernel *= noise  # [H, D], in place.
            for pair, frequency in enumerate(chosen):
                angle = rates[frequency] * distance
                sine, cosine = math.sin(angle), math.cos(angle)
                rotation = np.array([[cosine, -sine], [sine, cosine]])
                plane = inverse[:, 2 * frequency : 2 * frequency + 2]  # [H, 2]
                columns = slice(2 * pair, 2 * pair + 2)
                head_kernel[:, columns] += scale * plane @ rotation
    for name in (query, key):
        values[name] = values[name].astype(np.float32)
