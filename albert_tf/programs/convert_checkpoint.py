"""Converts a pretrained model to another format and verifies the result."""

import dataclasses

import numpy as np
import tensorflow as tf

from albert_tf.model import heads, modeling
from albert_tf.programs import models
from albert_tf.reports import card
from albert_tf.weights import checkpoints, pretrained, regrouping, task_heads

# Converted weights are equal; outputs may differ by rounding.
TOLERANCE = 1e-5


def run(args):
    """Converts a checkpoint and prints a summary."""
    if args.keep_slots and args.format in ("hf", "keras_hub"):
        raise ValueError(
            f"--keep_slots: --format={args.format} cannot store optimizer "
            "slots."
        )
    with models.creating_folder(args.to, args.from_) as folder:
        model, copy, difference = convert(folder, args)
    models.print_remarks(model, copy)
    print(
        f"Wrote {len(copy.values)} variables of {model.source}, "
        f"{count_parameters(copy.values):,} parameters, to "
        f"{args.to.rstrip('/')}. Read back, the weights are equal and outputs "
        f"differ by at most {difference:.1g}."
        + ("" if model.tokenizer else " The source has no vocabulary.")
    )


def convert(folder, args):
    """Writes the converted model to a folder.

    Returns it, its copy read back from the folder, and the largest difference
    between their outputs.
    """
    model = models.read_pretrained(args.from_, args, keep_slots=args.keep_slots)
    if model.config is None:
        raise ValueError(
            f"There is no config next to {model.source}. Give "
            "--albert_config_file."
        )
    if args.head != "auto":
        model = set_head(model, args.head)
    model = pretrained.select(model, args.format)
    # First, because it fails if weights are missing.
    outputs = compute_outputs(model)
    pretrained.write_pretrained(folder, model, args.format)
    copy = pretrained.read_pretrained(folder, keep_slots=args.keep_slots)
    check_values(model, copy)
    card.write_card(
        folder, copy.config, find_kind(copy), model.source, args.format
    )
    return model, copy, largest_difference(outputs, compute_outputs(copy))


def set_head(model, kind):
    """Returns the model with a head of the given kind."""
    given = task_heads.TaskHead(kind)
    if model.head and model.head.kind == kind:
        given = model.head
    elif model.head:
        given = dataclasses.replace(
            model.head, kind=kind, threshold=None, pooling=None
        )
    head = task_heads.find_head(model.values, given, model.source)
    if head is None:
        raise ValueError(f"--head={kind}, but {model.source} has no task head.")
    return dataclasses.replace(model, head=head)


def count_parameters(values):
    """Returns the number of parameters of the model, without slots."""
    slots = checkpoints.find_slots(values)
    return sum(v.size for name, v in values.items() if name not in slots)


def check_values(model, copy):
    """Raises ValueError unless heads and all variables are exactly equal."""
    wanted = regrouping.regroup(model.values, model.config, copy.config)
    if copy.head != model.head:
        raise ValueError(
            f"The head was read back as {copy.head}; wanted {model.head}."
        )
    different = wanted.keys() ^ copy.values.keys() | {
        name
        for name in wanted.keys() & copy.values.keys()
        if not np.array_equal(wanted[name], copy.values[name])
    }
    if different:
        raise ValueError(
            f"{len(different)} variables differ when read back, such as "
            f"{min(different)}. Does the checkpoint have weights that this "
            "format cannot represent?"
        )


def largest_difference(outputs, others):
    """Returns the largest absolute difference between two lists of arrays."""
    difference = max(
        float(np.abs(ours - theirs).max())
        for ours, theirs in zip(outputs, others, strict=True)
    )
    if not difference <= TOLERANCE:  # Also if it is NaN.
        raise ValueError(
            f"The outputs of the converted model differ by {difference:.3g}; "
            f"wanted at most {TOLERANCE}."
        )
    return difference


def find_kind(model):
    """Returns what a `Pretrained` is, as for `card.USES`."""
    if model.head:
        return model.head.kind
    has_heads = heads.AlbertForPreTraining.is_complete_in(model.values)
    return "pretraining" if has_heads else "encoder"


def compute_outputs(model):
    """Returns the outputs of a `Pretrained` for two random sequences."""
    config = model.config
    num_tokens = min(16, config.max_position_embeddings)
    rng = np.random.default_rng(0)
    ids = tf.constant(
        rng.integers(config.vocab_size, size=(2, num_tokens)), tf.int32
    )
    if model.head and model.head.kind != "conditional_spans":
        return compute_logits(model, ids)
    if not heads.AlbertForPreTraining.is_complete_in(model.values):
        built = pretrained.build_model(
            modeling.AlbertEncoder, model, [pretrained.POOLER]
        )
        return [built(ids)["sequence_output"].numpy()]
    built = pretrained.build_model(heads.AlbertForPreTraining, model)
    positions = tf.constant([[1, 2]] * 2)
    return call(built, ids, masked_lm_positions=positions)


def compute_logits(model, ids):
    """Returns the outputs of a fine-tuned `Pretrained` for ids [B, T]."""
    built = pretrained.build_model(
        lambda config: task_heads.build_model(model, config), model
    )
    if model.head.kind == "choices":
        ids = ids[:, tf.newaxis]  # [B, 1, T]
    return call(built, ids)


def call(model, ids, **more):
    """Returns the outputs of a model for ids without padding, as arrays."""
    mask, segments = tf.ones_like(ids), tf.zeros_like(ids)
    features = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
    return [value.numpy() for value in model(features | more).values()]
