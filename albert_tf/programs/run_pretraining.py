"""Pretrains ALBERT with masked LM and sentence order, on TFRecords."""

import dataclasses
import logging

from albert_tf import settings
from albert_tf.data.pretraining import agreement, opening, rules
from albert_tf.model.config import AlbertConfig
from albert_tf.programs import shared
from albert_tf.reports import card
from albert_tf.tasks.pretraining import Pretraining
from albert_tf.tasks.recipes import PretrainingRecipe
from albert_tf.training import workers
from albert_tf.weights import checkpoints, pretrained


def open_train_records(args, config):
    """Returns `opening.PretrainingRecords` that match flags and config."""
    # Flags that replace the recorded settings of dynamic masking.
    names = [field.name for field in dataclasses.fields(rules.Masks)]
    changes = {name: getattr(args, name) for name in names}
    return opening.open_records(
        args.input_file,
        config,
        max_seq_length=args.max_seq_length,
        max_predictions_per_seq=args.max_predictions_per_seq,
        masking_changes={
            name: value for name, value in changes.items() if value is not None
        },
        skip_damaged=args.damaged_records == "skip",
    )


def open_held_out(args, config, train_records):
    """Returns the held-out `opening.PretrainingRecords`.

    Dynamic ones are masked as recorded, whatever the masks of training.
    """
    opened = opening.open_records(
        args.eval_input_file,
        config,
        max_seq_length=args.max_seq_length,
        skip_damaged=args.damaged_records == "skip",
    )
    if not (train_records and train_records.masker):
        agreement.check_predictions(opened, args.max_predictions_per_seq)
    return opened


def read_start(args, together):
    """Returns the `pretrained.Pretrained` to start from, or None.

    A resumed run has its own weights, so there it may be missing. Other
    workers than the chief receive its weights.
    """
    has_checkpoints = checkpoints.list_checkpoints(args.output_dir)
    is_read = args.do_train or not has_checkpoints
    if not (args.init_checkpoint and is_read and together.is_chief):
        return None
    return pretrained.read_start(args.init_checkpoint, has_checkpoints)


def run(args):
    """Trains and evaluates as requested by the flags."""
    if args.do_eval and not args.eval_input_file:
        logging.warning(
            "--do_eval without --eval_input_file: nothing will be evaluated, "
            "as there are no held-out records. (The release evaluated on the "
            "training file.)"
        )
    # Several workers must connect before TensorFlow's first operation.
    strategy = shared.build_strategy(args)
    together = workers.find_workers(strategy)
    config = AlbertConfig.from_json_file(args.albert_config_file)
    records = held_out = None
    if args.do_train:
        records = open_train_records(args, config)
    if args.do_eval and args.eval_input_file:
        held_out = open_held_out(args, config, records)
    check_remote_hosts(args, records, held_out)
    with together.own_folder(args.output_dir) as folder:
        args = dataclasses.replace(args, output_dir=folder)
        recipe = settings.take(PretrainingRecipe, args)
        pretraining = Pretraining(
            folder,
            config,
            records,
            held_out,
            recipe,
            start=read_start(args, together),
            strategy=strategy,
            flags=describe_flags(args, recipe.schedule()),
        )
        if args.do_train:
            pretraining.train()
        else:
            pretraining.evaluate()
        if together.is_chief:
            card.write_run_card(folder)


def describe_flags(args, schedule):
    """Returns the flags to record, with the rate and warmup of "auto"."""
    names = "learning_rate", "num_warmup_steps"
    chosen = {name: getattr(schedule, name) for name in names}
    return dataclasses.asdict(args) | chosen


def check_remote_hosts(args, *opened):
    """Raises ValueError if a TPU elsewhere cannot use the opened records."""
    if args.has_remote_tpu and any(r.masker for r in opened if r):
        raise ValueError(
            f"The hosts of the TPU {args.tpu_name!r} cannot mask dynamic "
            "records, which is done in Python. Create static records, or use "
            "a TPU VM with one host and --tpu_name=local."
        )
