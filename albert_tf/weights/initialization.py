"""Gives a run its first weights: of its own checkpoint or of another model."""

from albert_tf.model.config import AlbertConfig
from albert_tf.weights import checkpoints, regrouping
from albert_tf.weights.pretrained import (
    BODY,
    POOLER,
    Pretrained,
    adapt,
    check_all_layers,
    check_same_vocabulary,
)


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
      config: the model's AlbertConfig, to which `pretrained` is adapted, see
        `pretrained.adapt`.
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
    own = pretrained.config
    has_one_group = own is not None and len(own.count_uses()) == 1
    pretrained = adapt(
        pretrained, config, regroups=has_one_group or not from_group0
    )
    values = pretrained.values
    new_prefixes = ["cls/"]
    if body_only:
        values = {n: v for n, v in values.items() if n.startswith(BODY)}
        new_prefixes = [n for n in weights if not n.startswith(BODY)]
    if not pretrained.has_pooler:
        values = {n: v for n, v in values.items() if not n.startswith(POOLER)}
        new_prefixes.append(POOLER)
    if from_group0:
        values = regrouping.spread_group0(values, weights)
    else:
        check_all_layers(values, weights, pretrained.source)
    new = checkpoints.restore(weights, values, pretrained.source, new_prefixes)
    manager.source = None if new else pretrained.source
    parts = [f"new: {', '.join(new) or 'none'}", *pretrained.remarks]
    return (
        f"Restored {len(weights) - len(new)} of {len(weights)} variables from "
        f"{pretrained.source}; {'; '.join(parts)}."
    )
