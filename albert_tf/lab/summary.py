"""Describes a model by its config: size, operations, and memory."""

import dataclasses

from albert_tf.lab import flops, paper
from albert_tf.model import parameters
from albert_tf.model.config import AlbertConfig
from albert_tf.training import memory

WIDTHS = 16, 32, 64, 128, 256, 512, 1024


def summarize(
    config: AlbertConfig,
    batch_sizes: list[int],
    seq_lengths: list[int],
    max_predictions_per_seq: int,
) -> dict:
    """Returns a model's figures, a dict that can be written as JSON.

    Args:
      config: an AlbertConfig.
      batch_sizes: batch sizes for which to estimate memory.
      seq_lengths: numbers of tokens for which to count operations and
        estimate memory.
      max_predictions_per_seq: masked tokens per sequence.

    Returns:
      A dict of:

        config: fields of the config.
        parameters: number of weights by part, from `count_parameters`.
        encoder: number of weights without the pretraining heads.
        layer: number of weights of one layer.
        sharing: number of weights of the encoder for each way of sharing.
        embeddings: weights of V * H, of V * E + E * H, and by E.
        flops: for each length, operations per token.
        training, inference: estimates of memory, in bytes.
        paper: parameters in millions and speedup of this shape, or None.
    """
    return {
        "config": config.to_dict(),
        "parameters": parameters.count_parameters(config),
        "encoder": parameters.count_encoder(config),
        "layer": count_layer(config),
        "sharing": {
            sharing: parameters.count_encoder(parameters.share(config, sharing))
            for sharing in parameters.SHARING
        },
        "embeddings": summarize_embeddings(config),
        "flops": [
            summarize_flops(config, length, max_predictions_per_seq)
            for length in seq_lengths
        ],
        "training": [
            estimate_training(
                config, size, length, max_predictions_per_seq, dtype, remat
            )
            for size in batch_sizes
            for length in seq_lengths
            for dtype in memory.SIZES
            for remat in (False, True)
        ],
        "inference": [
            {
                "batch_size": size,
                "max_seq_length": length,
                "compute_dtype": dtype,
                "peak": memory.estimate_inference(
                    config, size, length, compute_dtype=dtype
                ),
            }
            for size in batch_sizes
            for length in seq_lengths
            for dtype in memory.SIZES
        ],
        "paper": summarize_paper(config),
    }


def count_layer(config):
    """Returns the number of weights of one layer."""
    one = dataclasses.replace(
        parameters.share(config, "all"), num_hidden_layers=1
    )
    counts = parameters.count_parameters(one)
    return sum(counts[part] for part in parameters.LAYERS)


def factorize(vocab_size, hidden_size, embedding_size):
    """Returns V * H, and V * E + E * H: the weights of word embeddings.

    The projection's bias is left out, as in the paper's Section 3.1.
    """
    direct = vocab_size * hidden_size
    return direct, embedding_size * (vocab_size + hidden_size)


def summarize_embeddings(config):
    """Returns the weights of word embeddings, direct and factorized."""
    v, h = config.vocab_size, config.hidden_size
    direct, factorized = factorize(v, h, config.embedding_size)
    return {
        "direct": direct,
        "factorized": factorized,
        "by_embedding_size": {
            width: factorize(v, h, width)[1]
            for width in sorted({*WIDTHS, config.embedding_size})
            if width <= h
        },
    }


def summarize_flops(config, max_seq_length, max_predictions_per_seq):
    """Returns operations per token, forward by part and of a training step."""
    shape = max_seq_length, max_predictions_per_seq
    counts = flops.count_forward(config, *shape)
    reference = paper.build_config(paper.REFERENCE)
    step = flops.count_flops(config, 1, *shape)
    return {
        "max_seq_length": max_seq_length,
        "forward": {part: n / max_seq_length for part, n in counts.items()},
        "training": step / max_seq_length,
        "speedup": flops.count_flops(reference, 1, *shape) / step,
    }


def estimate_training(config, batch_size, length, predictions, dtype, remat):
    """Returns a `memory.Training` and its settings as a dict."""
    settings = {"compute_dtype": dtype, "remat": remat}
    estimate = memory.estimate_training(
        config, batch_size, length, predictions, **settings
    )
    return {
        "batch_size": batch_size,
        "max_seq_length": length,
        **settings,
        **dataclasses.asdict(estimate),
        "peak": estimate.peak,
    }


def summarize_paper(config):
    """Returns the paper's figures of a config's shape, or None."""
    model = paper.find_model(config)
    if not model:
        return None
    return {"millions": model.millions, "speedup": model.speedup}
