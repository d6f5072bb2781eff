"""Converts weights between configs that share parameters differently.

Values are dicts from canonical name to array; nothing is read or written.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable

import numpy as np

from albert_tf.model.config import AlbertConfig

# From embeddings to layers; the release has it only where E is not H.
PROJECTION = "bert/encoder/embedding_hidden_mapping_in"
_GROUP = re.compile(r"/group_[1-9]\d*/")
_BLOCK = re.compile(r"bert/encoder/transformer/group_(\d+)/(.*)")
_FFN = re.compile(r"inner_group_\d+/(ffn_1|LayerNorm_1)/")
# What a layer adds to its input: the last dense layer of each sub-layer, and
# the beta of its norm.
_ADDED = re.compile(
    r"/(attention_1|ffn_1/intermediate)/output/dense/|/LayerNorm(_1)?/beta$"
)


def spread_group0(values: dict, variables: dict) -> dict:
    """Returns the values, with those of group 0 copied to all other groups.

    The keys of `variables` are the names of the model's variables.

    Source: run_pretraining.py, `--init_from_group0`.
    """
    origins = {name: _GROUP.sub("/group_0/", name) for name in variables}
    return values | {
        name: values[origin]
        for name, origin in origins.items()
        if origin != name and origin in values
    }


def regroup(values: dict, source: AlbertConfig, target: AlbertConfig) -> dict:
    """Expands shared weights for a config that shares fewer, or is deeper.

    For each layer, the group in `target` gets the values of the layer's group
    in `source`; shared weights are copied. Values outside the groups are
    unchanged.

    Weights that all layers share fit any number of layers, as where the paper
    starts a deeper model from another. n times as many layers take steps of
    1 / n of the size: what they add is divided by n, so that together they
    compute nearly the same (docs/results/initial_values.md).

    Raises:
      ValueError: if layers with different weights would have to share them,
        or if their numbers differ.
    """
    is_same = source.num_hidden_layers == target.num_hidden_layers
    if not is_same and len(source.count_uses()) > 1:
        raise ValueError(
            f"The checkpoint has {source.num_hidden_layers} layers, the model "
            f"{target.num_hidden_layers}; wanted the same number, as not all "
            "layers of the checkpoint have the same weights."
        )
    blocks: dict[int, list] = {}
    for name in values:
        if match := _BLOCK.match(name):
            blocks.setdefault(int(match[1]), []).append((match[2], name))
    result = {n: v for n, v in values.items() if not _BLOCK.match(n)}
    step = min(1, source.num_hidden_layers / target.num_hidden_layers)
    origins: dict = {}
    for layer in range(target.num_hidden_layers):
        for is_ffn, group in enumerate(("attention_group", "ffn_group")):
            old = getattr(source, group)(layer if is_same else 0)
            new = getattr(target, group)(layer)
            if origins.setdefault((is_ffn, new), old) != old:
                raise ValueError(
                    f"Layer {layer} would share the weights of an earlier "
                    "layer, but its weights differ. Separate weights cannot "
                    "be merged."
                )
            for rest, name in blocks.get(old, []):
                if bool(_FFN.search(rest)) == bool(is_ffn):
                    new_name = f"bert/encoder/transformer/group_{new}/{rest}"
                    value = values[name]
                    if step < 1 and _ADDED.search(name):
                        value = value * np.float32(step)
                    result[new_name] = value
    return result


def regroup_for(
    values: dict,
    config: AlbertConfig,
    group_of: Callable,
    always_projects: bool = False,
) -> tuple[dict, AlbertConfig]:
    """Converts weights for other code, which supports only groups.

    If groups cannot express the parameter sharing, or if the code rounds group
    indices differently, each layer gets a group of its own, with copies of
    shared weights. `group_of` returns the index of the code's group of a
    (config, layer). If the code `always_projects` embeddings, even if E is H,
    it then gets a projection that changes nothing.

    Returns:
      A new dict, and its AlbertConfig, whose `parameter_sharing` is "all".

    Raises:
      ValueError: if the code's rounding is wrong even with one group per layer.
    """
    target = _grouped_config(config, group_of)
    values = regroup(values, config, target)
    if always_projects and config.embedding_size == config.hidden_size:
        size = config.hidden_size
        values[f"{PROJECTION}/kernel"] = np.eye(size, dtype=np.float32)
        values[f"{PROJECTION}/bias"] = np.zeros(size, np.float32)
    return values, target


def _grouped_config(config, group_of):
    spread = dataclasses.replace(
        config,
        parameter_sharing="all",
        num_hidden_groups=config.num_hidden_layers,
    )
    indices = range(config.num_hidden_layers)
    for candidate in (config, spread):
        if candidate.parameter_sharing == "all" and all(
            group_of(candidate, i) == candidate.ffn_group(i) for i in indices
        ):
            return candidate
    raise ValueError(
        f"The program that reads this format rounds the group indices of "
        f"{config.num_hidden_layers} layers wrongly, even with one group per "
        "layer, so its results would differ. Choose another format."
    )


def release_group(config: AlbertConfig, layer: int) -> int:
    """Returns the release's group index of a layer, computed in floats."""
    return int(layer / config.num_hidden_layers * config.num_hidden_groups)


def names_of_groups(names: Iterable[str]) -> set[str]:
    """Returns the names that belong to a group of layers."""
    return {name for name in names if "/group_" in name}


def drop_identity(values: dict, config: AlbertConfig, path) -> None:
    """Removes the projection of other code from a model whose E is H.

    Raises:
      ValueError: if it changes something; `path` is named.
    """
    if config.embedding_size != config.hidden_size:
        return
    kernel = values.pop(f"{PROJECTION}/kernel")
    bias = values.pop(f"{PROJECTION}/bias")
    if bias.any() or not np.array_equal(kernel, np.eye(len(kernel))):
        raise ValueError(
            f"{path} has embedding_size equal to hidden_size and still "
            "projects one to the other, as transformers and KerasHub always "
            "do. The release has no such projection; only an identity can be "
            "read."
        )
