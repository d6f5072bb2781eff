"""Initial values with which a masked LM learns from its first steps.

With random values, attention is nearly uniform at first: what surrounds a
masked piece tells it nothing but frequencies, and training stays on a plateau
until positions, query and key kernels have found each other. Deep models of
shared weights do worse: each layer adds the same, and all tokens become one
vector. `neighbors` starts beyond both; docs/plateau.md says what each part of
it is worth. Only values change: any model trains, saves and loads as before.

Shapes: V vocab_size, T positions, E embedding_size, H hidden_size, N heads,
D = H / N head size, F frequencies.
"""

import math

import numpy as np

from albert_tf.model import modeling
from albert_tf.model.config import AlbertConfig

# Amplitude of the positions, in standard deviations of the word embeddings.
# With half as much, words drown out the positions, and nothing is gained.
AMPLITUDE = 3.0
# Radians per token of the slowest frequency; the fastest has 1.
SLOWEST = 1 / 8
# Distances in tokens to the neighbor on which each head begins. Fractions, as
# the token itself attracts, too.
OFFSETS = (-1.3, 1.3, -2.3, 2.3, -3.3, 3.3)
# The largest score of two tokens, a logit of attention. In 512 tokens, half as
# much is lost among the others.
PEAK = 12.0
# Share of the random query and key kernels that is kept.
NOISE = 0.3

_BLOCK = "bert/encoder/transformer/group_{}/inner_group_{}"
_POSITIONS = "bert/embeddings/position_embeddings"
_PROJECTION = "bert/encoder/embedding_hidden_mapping_in/kernel"
_OUTPUT_BIAS = "cls/predictions/output_bias"


def neighbors(
    config: AlbertConfig, values: dict, piece_counts=None
) -> dict[str, np.ndarray]:
    """Returns new values for some of a model's random ones.

    Each of the five functions below has the formula of one part, and returns
    its values by name.

    Args:
      config: the AlbertConfig.
      values: the random values: dict from canonical name to array.
      piece_counts: [V], how often each piece is to be predicted; None leaves
        the bias as it is.

    Returns:
      A dict from canonical name to float32 array of the shape in `values`.
    """
    projection = _projection(config, values)
    changed = {
        **_positions(config),
        **projection,
        **_heads(config, values, projection.get(_PROJECTION)),
        **_outputs(config, values),
        **_bias(config, values, piece_counts),
    }
    return {n: np.asarray(v, np.float32) for n, v in changed.items()}


def begin_on_neighbors(model, config: AlbertConfig, piece_counts=None):
    """Replaces some of a model's random values by those of `neighbors`."""
    weights = modeling.named_weights(model)
    values = {name: weight.numpy() for name, weight in weights.items()}
    for name, value in neighbors(config, values, piece_counts).items():
        weights[name].assign(value)


def frequencies(config: AlbertConfig) -> np.ndarray:
    """Returns the frequencies w of the positions, [E/2], from 1 to SLOWEST."""
    return SLOWEST ** np.linspace(0, 1, config.embedding_size // 2)


def _positions(config):
    """Returns sines and cosines as position embeddings, [T, E].

    Position i has AMPLITUDE * initializer_range * (sin(w i), cos(w i)) for
    each frequency w. An odd E ends with 0.
    """
    angles = np.outer(
        np.arange(config.max_position_embeddings), frequencies(config)
    )  # [T, E/2]
    pairs = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    table = np.zeros([len(angles), config.embedding_size])
    table[:, : 2 * angles.shape[1]] = pairs.reshape(len(angles), -1)
    return {_POSITIONS: AMPLITUDE * config.initializer_range * table}


def are_initial(rows: np.ndarray, config: AlbertConfig) -> bool:
    """Returns whether position embeddings, [T, E], are those of `neighbors`."""
    known = _positions(config)[_POSITIONS]
    return np.shape(rows) == known.shape and np.allclose(
        rows, known, rtol=1e-4, atol=1e-7
    )


def _projection(config, values):
    """Returns the projection, [E, H], with the standard deviation E**-0.5.

    Its outputs have the variance 1 then, as those of all layers. A model with
    E = H has none.
    """
    if _PROJECTION not in values:
        return {}
    projection = values[_PROJECTION]
    deviation = max(np.std(projection), 1e-30)
    size = math.sqrt(config.embedding_size)
    return {_PROJECTION: projection / (deviation * size)}


def _heads(config, values, projection):
    """Returns query and key kernels whose heads begin on neighbors, [H, N * D].

    With pinv(projection), a query takes D/2 frequencies out of the vector of
    its token, rotated by the head's offset d; a key the same, rotated by 0.
    Then q_i k_j = sum of cos(w (i + d - j)), which is largest at j = i + d.
    NOISE times the random kernel is added. Heads without an offset stay random.
    """
    num_heads = config.num_attention_heads
    head_size = config.hidden_size // num_heads
    rates = frequencies(config)
    num_pairs = min(head_size // 2, len(rates))
    if not num_pairs:
        return {}
    # Largest score if nothing is scaled: the variance of an embedding is 1, and
    # words and segments, truncated normals, have two parts of 0.77 in it.
    squared = AMPLITUDE**2 / (AMPLITUDE**2 / 2 + 2 * 0.77)
    scale = math.sqrt(PEAK / (squared * num_pairs / math.sqrt(head_size)))
    inverse = np.eye(config.embedding_size)
    if projection is not None:
        inverse = np.linalg.pinv(projection.astype(np.float64))  # [H, E]
    chosen = np.linspace(0, len(rates) - 1, num_pairs).round().astype(int)
    # [H, D/2] each
    sine, cosine = (scale * inverse[:, 2 * chosen + i] for i in (0, 1))
    even, odd = slice(0, 2 * num_pairs, 2), slice(1, 2 * num_pairs, 2)
    changed = {}
    for kind, offsets in (("query", OFFSETS), ("key", [0] * len(OFFSETS))):
        name = f"{_BLOCK.format(0, 0)}/attention_1/self/{kind}/kernel"
        kernel = values[name].astype(np.float64)
        heads = kernel.reshape(-1, num_heads, head_size)  # A view, [H, N, D].
        for head, offset in enumerate(offsets[:num_heads]):
            angles = rates[chosen] * offset  # [D/2]
            cos, sin = np.cos(angles), np.sin(angles)
            heads[:, head] *= NOISE
            heads[:, head, even] += sine * cos + cosine * sin
            heads[:, head, odd] += cosine * cos - sine * sin
        changed[name] = kernel
    return changed


def _outputs(config, values):
    """Returns the last kernels of both sub-layers, divided by what adds up.

    The outputs of the layers that use a kernel add up: it is divided by their
    number. Those of different kernels are independent: it is also divided by
    the square root of their number.
    """
    changed = {}
    for group_of, kernel in (
        (config.attention_group, "attention_1/output/dense"),
        (config.ffn_group, "ffn_1/intermediate/output/dense"),
    ):
        groups = [group_of(layer) for layer in range(config.num_hidden_layers)]
        num_different = len(set(groups)) * config.inner_group_num
        for group in set(groups):
            factor = 1 / (groups.count(group) * math.sqrt(num_different))
            for inner in range(config.inner_group_num):
                name = f"{_BLOCK.format(group, inner)}/{kernel}/kernel"
                changed[name] = values[name] * factor
    return changed


def _bias(config, values, piece_counts):
    """Returns the logarithm of frequencies as the bias of the logits, [V].

    Then they need not be learned by making all vectors alike.
    """
    if piece_counts is None or _OUTPUT_BIAS not in values:
        return {}
    counts = np.zeros(config.vocab_size)
    counts[: len(piece_counts)] = piece_counts
    # Add-one smoothing.
    return {_OUTPUT_BIAS: np.log((counts + 1) / (counts + 1).sum())}
