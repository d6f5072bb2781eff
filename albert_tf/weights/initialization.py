"""Gives a run its first weights: of its own checkpoint or of another model."""

from albert_tf.model.config import AlbertConfig
from albert_tf.weights import checkpoints, positions, regrouping
from albert_tf.weights.pretrained import (
    BODY,
    POOLER,
    Pretrained,
    check_all_layers,
    check_same_vocabulary,
)

# Settings of a config that change the outputs, but no weight's shape.
FUNCTION = ("num_attention_heads", "hidden_act", "inner_group_num")


def initialize(
    manager: checkpoints.CheckpointManager,
    weights: dict,
    config: AlbertConfig,
    pretrained: Pretrained | None = None,
    *,
    from_group0: bool = False,
    tokenizer_settings: dict | None = None,
    body_only: bool = False,
    untrained: str = "random weights",
) -> str:
    """Restores the newest checkpoint, or starts from another model.

    Args:
      manager: the run's CheckpointManager.
      weights: dict from name to variable, without the optimizer.
      config: the model's AlbertConfig. If it shares fewer weights than
        `pretrained`, shared weights are copied; if it has more positions,
        `positions` continues those that there are.
      pretrained: a `Pretrained` to start from if the manager's folder has no
        checkpoint; None for random weights. Its optimizer slots are not used.
      from_group0: see `regrouping.spread_group0`.
      tokenizer_settings: settings of the tokenizer that made the training
        data, to compare with the model's vocabulary; None if unknown.
      body_only: whether heads start from random weights, even if the
        pretrained model has heads of the same name.
      untrained: what the weights are without a checkpoint, in words.

    Returns:
      A sentence that describes the source of the weights.

    Raises:
      ValueError: if the weights do not fit the model, or the vocabularies
        differ.
    """
    if prefix := manager.restore_latest():
        return f"Resuming from {prefix}."
    if not pretrained:
        return f"Starting from {untrained}."
    check_same_vocabulary(pretrained, tokenizer_settings)
    check_same_function(pretrained, config)
    values, remarks = positions.continue_positions(
        pretrained.values, config.max_position_embeddings
    )
    new_prefixes = ["cls/"]
    if body_only:
        values = {n: v for n, v in values.items() if n.startswith(BODY)}
        new_prefixes = [n for n in weights if not n.startswith(BODY)]
    if not pretrained.has_pooler:
        values = {n: v for n, v in values.items() if not n.startswith(POOLER)}
        new_prefixes.append(POOLER)
    if from_group0:
        values = regrouping.spread_group0(values, weights)
    elif pretrained.config and pretrained.config != config:
        groups = regrouping.names_of_groups(values)
        values = regrouping.regroup(values, pretrained.config, config)
        num_layers = pretrained.config.num_hidden_layers
        if num_layers != config.num_hidden_layers:
            is_deeper = num_layers < config.num_hidden_layers
            remarks.append(
                f"the weights of its {num_layers} layers are used in "
                f"{config.num_hidden_layers}" + ", in smaller steps" * is_deeper
            )
        elif regrouping.names_of_groups(values) != groups:
            remarks.append("shared weights were copied to each layer")
    if not from_group0:
        check_all_layers(values, weights, pretrained.source)
    new = checkpoints.restore(weights, values, pretrained.source, new_prefixes)
    manager.source = pretrained.source
    parts = [f"new: {', '.join(new) or 'none'}", *pretrained.remarks, *remarks]
    return (
        f"Restored {len(weights) - len(new)} of {len(weights)} variables from "
        f"{pretrained.source}; {'; '.join(parts)}."
    )


def check_same_function(pretrained: Pretrained, config: AlbertConfig) -> None:
    """Raises ValueError if the same weights would compute something else."""
    if pretrained.config is None:
        return
    for name in FUNCTION:
        theirs, ours = (getattr(c, name) for c in (pretrained.config, config))
        if theirs != ours:
            raise ValueError(
                f"{pretrained.source} was trained with {name} {theirs!r}, the "
                f"config has {ours!r}: with it, the weights compute "
                "something else. Use the model's own config."
            )
