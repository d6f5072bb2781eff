"""Prints a checkpoint's weight names, shapes, parameter counts and heads."""

import collections
import json

from albert_tf.programs import models
from albert_tf.weights import checkpoints, pretrained, task_heads

# Prefix of a variable's name -> part of the model.
PARTS = {
    "bert/embeddings/": "embeddings",
    "bert/encoder/": "encoder",
    "bert/pooler/": "pooler",
    "cls/predictions/": "masked-LM head",
    "cls/seq_relationship/": "sentence-order head",
    **{name: "task's head" for name in task_heads.KINDS.values()},
    # Of SQuAD 2.0.
    "start_logits/": "task's head",
    "end_logits/": "task's head",
}

# Kinds of heads whose outputs have names.
LABELED = ("classes", "multi_label", "tags")


def run(args):
    """Prints every variable, then totals, config and vocabulary."""
    model = pretrained.read_pretrained(args.init_checkpoint, keep_slots=True)
    slots = checkpoints.find_slots(model.values)
    names = sorted(model.values.keys() - slots)
    weights = {name: model.values[name] for name in names}
    num_slots = len(slots) - (checkpoints.STEP in slots)
    width = max(map(len, weights), default=0)
    for name, value in weights.items():
        print(f"{name:{width}} {list(value.shape)} {value.dtype}")
    print(f"\n{model.source}")
    for part, count in count_parts(weights).items():
        print(f"{part:20} {count:>13,} parameters")
    total = sum(value.size for value in weights.values())
    print(f"{'total':20} {total:>13,} in {len(weights)} variables")
    step = model.values.get(checkpoints.STEP)
    print(f"{'optimizer':20} {num_slots} slots, step {step}")
    config, tokenizer = model.config, model.tokenizer
    print("config", json.dumps(config.to_dict()) if config else "not found")
    print("vocabulary", tokenizer.settings if tokenizer else "not found")
    if head := model.head:
        print("head", head.kind)
        if head.labels or head.kind in LABELED:
            print("labels", head.labels or "not named")
        known = head.threshold is not None
        if known or head.kind == "conditional_spans":
            print("threshold", head.threshold if known else "unknown")
    models.print_remarks(model)


def count_parts(weights):
    """Returns the number of parameters of each part of the model."""
    counts: collections.Counter = collections.Counter()
    for name, value in weights.items():
        parts = (p for b, p in PARTS.items() if name.startswith(b))
        counts[next(parts, "other")] += value.size
    return counts
