"""Counts the weights of a model from its config, without building it."""

import dataclasses
from typing import get_args

from albert_tf.model.config import AlbertConfig, Sharing

# Parts of `count_parameters`, by where they are in the model.
EMBEDDINGS = (
    "word embeddings",
    "position embeddings",
    "segment embeddings",
    "embedding norm",
)
LAYERS = "attention", "feed-forward", "layer norms"
ENCODER = (*EMBEDDINGS, "projection", *LAYERS, "pooler")
HEADS = "masked LM", "sentence order"
SHARING: tuple[Sharing, ...] = get_args(Sharing)


def count_parameters(config: AlbertConfig) -> dict[str, int]:
    """Counts the weights of the encoder and its pretraining heads by part.

    Returns:
      Dict from each of ENCODER and HEADS to a number of weights. The kernel
      of the masked LM's output is the word embeddings, counted there.
    """
    # Letters are those of `modeling`.
    v, e = config.vocab_size, config.embedding_size
    h, f = config.hidden_size, config.intermediate_size
    num_attention, num_ffn = count_blocks(config)
    return {
        "word embeddings": v * e,
        "position embeddings": config.max_position_embeddings * e,
        "segment embeddings": config.type_vocab_size * e,
        "embedding norm": 2 * e,
        "projection": (e * h + h) * (e != h),
        "attention": num_attention * 4 * (h * h + h),
        "feed-forward": num_ffn * (h * f + f + f * h + h),
        "layer norms": (num_attention + num_ffn) * 2 * h,
        "pooler": h * h + h,
        "masked LM": h * e + e + 2 * e + v,
        "sentence order": 2 * h + 2,
    }


def count_blocks(config: AlbertConfig) -> tuple[int, int]:
    """Returns how many attention and feed-forward blocks have own weights."""
    last = config.num_hidden_layers - 1
    num_attention = (config.attention_group(last) + 1) * config.inner_group_num
    num_ffn = (config.ffn_group(last) + 1) * config.inner_group_num
    return num_attention, num_ffn


def count_encoder(config: AlbertConfig) -> int:
    """Returns the number of weights without the pretraining heads."""
    counts = count_parameters(config)
    return sum(counts[part] for part in ENCODER)


def share(config: AlbertConfig, sharing: str) -> AlbertConfig:
    """Returns the config with another of SHARING, and without groups."""
    return dataclasses.replace(
        config,
        parameter_sharing=sharing,  # type: ignore[arg-type]
        num_hidden_groups=1,
    )
