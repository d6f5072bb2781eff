"""Counts the floating-point operations of a model, from its config.

Only matrix multiplications count: [M, K] by [K, N] has 2 M K N operations. The
letters are those of `albert_tf.model.modeling`.
"""

from albert_tf.model.config import AlbertConfig

LAYERS = "attention projections", "attention scores", "feed-forward"


def count_forward(
    config: AlbertConfig,
    max_seq_length: int,
    max_predictions_per_seq: int | None = None,
    *,
    num_layers: int | None = None,
) -> dict[str, int]:
    """Counts the operations of one sequence's forward pass by part.

    - attention projections: 2 * 4 H H for each token and layer;
    - attention scores: 2 * 2 T H, for scores and context;
    - feed-forward: 2 * 2 H F; in the last layer, these are for the predictions
      and [CLS], of the others only keys and values, 2 * 2 H H;
    - projection: 2 E H for each token, if E is not H;
    - pooler: 2 H H; sentence order: 2 * 2 H;
    - masked LM: 2 (H E + E V) for each prediction.

    Args:
      config: an AlbertConfig.
      max_seq_length: tokens per sequence, T.
      max_predictions_per_seq: masked tokens per sequence; with None, the last
        layer computes all tokens, and there is no masked LM.
      num_layers: number of layers to count; default: all.
    """
    h, f = config.hidden_size, config.intermediate_size
    e, v = config.embedding_size, config.vocab_size
    if num_layers is None:
        num_layers = config.num_hidden_layers
    num_keys = max_seq_length * num_layers * config.inner_group_num
    num_queries = num_keys
    num_predictions = max_predictions_per_seq or 0
    if max_predictions_per_seq is not None and num_layers:
        num_queries += num_predictions + 1 - max_seq_length
    return {
        "projection": max_seq_length * 2 * e * h * (e != h),
        "attention projections": (num_keys + num_queries) * 2 * 2 * h * h,
        "attention scores": num_queries * 2 * 2 * max_seq_length * h,
        "feed-forward": num_queries * 2 * 2 * h * f,
        "pooler": 2 * h * h,
        "masked LM": num_predictions * 2 * (h * e + e * v),
        "sentence order": 2 * 2 * h,
    }


def count_flops(
    config: AlbertConfig,
    batch_size: int,
    max_seq_length: int,
    max_predictions_per_seq: int | None,
    *,
    num_layers: int | None = None,
    remat: bool = False,
) -> int:
    """Counts the operations of a training step, both passes.

    The backward pass has two matrix multiplications for each of the forward
    pass. With `remat`, it computes layers again, which count once more, but for
    a last one of predictions. The other arguments are those of `count_forward`.
    """
    shape = max_seq_length, max_predictions_per_seq
    counts = count_forward(config, *shape, num_layers=num_layers)
    total = 3 * sum(counts.values())
    if remat:
        num_kept = int(max_predictions_per_seq is not None and num_layers != 0)
        last = count_forward(config, *shape, num_layers=num_kept)
        total += sum(counts[part] - last[part] for part in LAYERS)
    return batch_size * total
