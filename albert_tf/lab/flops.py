"""Counts the floating-point operations of a model, from its config.

Only matrix multiplications count: [M, K] by [K, N] has 2 M K N operations. The
letters are those of `albert_tf.model.modeling`.
"""

from albert_tf.model.config import AlbertConfig

LAYERS = "attention projections", "attention scores", "feed-forward"


def count_forward(
    config: AlbertConfig,
    max_seq_length: int,
    max_predictions_per_seq: int = 0,
    *,
    num_layers: int | None = None,
) -> dict[str, int]:
    """Counts the operations of one sequence's forward pass by part.

    - attention projections: 2 * 4 H H for each token and layer;
    - attention scores: 2 * 2 T H, for scores and context;
    - feed-forward: 2 * 2 H F;
    - projection: 2 E H for each token, if E is not H;
    - pooler: 2 H H; sentence order: 2 * 2 H;
    - masked LM: 2 (H E + E V) for each prediction.

    Args:
      config: an AlbertConfig.
      max_seq_length: tokens per sequence, T.
      max_predictions_per_seq: masked tokens per sequence.
      num_layers: number of layers to count; default: all.
    """
    h, f = config.hidden_size, config.intermediate_size
    e, v = config.embedding_size, config.vocab_size
    if num_layers is None:
        num_layers = config.num_hidden_layers
    num_uses = max_seq_length * num_layers * config.inner_group_num
    return {
        "projection": max_seq_length * 2 * e * h * (e != h),
        "attention projections": num_uses * 2 * 4 * h * h,
        "attention scores": num_uses * 2 * 2 * max_seq_length * h,
        "feed-forward": num_uses * 2 * 2 * h * f,
        "pooler": 2 * h * h,
        "masked LM": max_predictions_per_seq * 2 * (h * e + e * v),
        "sentence order": 2 * 2 * h,
    }


def count_flops(
    config: AlbertConfig,
    batch_size: int,
    max_seq_length: int,
    max_predictions_per_seq: int,
    *,
    num_layers: int | None = None,
    remat: bool = False,
) -> int:
    """Counts the operations of a pretraining step, both passes.

    The backward pass has two matrix multiplications for each of the forward
    pass. With `remat`, it computes the layers again, which count once more. The
    other arguments are those of `count_forward`.
    """
    counts = count_forward(
        config, max_seq_length, max_predictions_per_seq, num_layers=num_layers
    )
    layers = sum(counts[part] for part in LAYERS)
    total = sum(counts.values())
    return batch_size * (3 * total + remat * layers)
