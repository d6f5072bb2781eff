"""Counts the floating-point operations of a pretraining step by hand."""


def count_flops(
    config,
    batch_size,
    max_seq_length,
    max_predictions_per_seq,
    *,
    num_layers=None,
    remat=False,
):
    """Returns the operations of a step's matrix products, both passes.

    An [M, K] by [K, N] product has 2 M K N operations. In the forward pass,
    with the letters of `albert_tf.model.modeling`:

    - a layer: 2 (4 H H + 2 H F + 2 T H) for each token: four projections, two
      dense layers, scores and context;
    - embeddings: 2 E H for each token, for the projection if E is not H;
    - masked LM: 2 (H E + E V) for each prediction;
    - pooler and sentence order: 2 (H H + 2 H) for each sequence.

    The backward pass has two products for each of the forward pass, so the
    sum is taken three times. A layer that is computed again in the backward
    pass counts four times.

    Args:
      config: an AlbertConfig.
      batch_size: sequences, B.
      max_seq_length: tokens per sequence, T.
      max_predictions_per_seq: masked tokens per sequence.
      num_layers: number of layers to count; default: all.
      remat: whether layers are computed again in the backward pass.
    """
    h, f = config.hidden_size, config.intermediate_size
    e, v = config.embedding_size, config.vocab_size
    if num_layers is None:
        num_layers = config.num_hidden_layers
    num_blocks = num_layers * config.inner_group_num
    per_layer = 2 * (4 * h * h + 2 * h * f + 2 * max_seq_length * h)
    layers = max_seq_length * num_blocks * per_layer
    projection = max_seq_length * 2 * e * h * (e != h)
    masked_lm = max_predictions_per_seq * 2 * (h * e + e * v)
    sentence = 2 * (h * h + 2 * h)
    others = projection + masked_lm + sentence
    return batch_size * ((4 if remat else 3) * layers + 3 * others)
