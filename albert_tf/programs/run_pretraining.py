"""Pretrains ALBERT: masked LM and sentence order, from TFRecords.

python run_pretraining.py --input_file='data/train*.tfrecord' \
    --eval_input_file=data/valid.tfrecord --do_eval \
    --albert_config_file=configs/model/v2/base.json --output_dir=out
"""

import dataclasses
import functools
import logging
import os
from typing import Literal

import keras

from albert_tf import filesystem, flags, ownership
from albert_tf.data.pretraining import opening, reading
from albert_tf.flags import flag
from albert_tf.model import heads, layers, modeling
from albert_tf.model.config import CONFIG_FILE, AlbertConfig
from albert_tf.programs import shared_flags
from albert_tf.text import tokenization
from albert_tf.training import (
    distribution,
    evaluation,
    loop,
    manifest,
    optimization,
    reporting,
)
from albert_tf.weights import checkpoints, pretrained
from albert_tf.weights.checkpoints import STEP

FLAGS_FILE = "flags.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingFlags(shared_flags.TrainFlags):
    """The release's flags; what is ours stands last."""

    albert_config_file: str = flag(
        required=True, help="JSON file with the architecture."
    )
    input_file: str | None = flag(
        help="Training records: comma-separated files or globs."
    )
    max_seq_length: int | None = flag(
        help="Tokens in a record. Default: what the records say.", at_least=1
    )
    max_predictions_per_seq: int | None = flag(
        help="Masked tokens in a record. Default: what the records say.",
        at_least=1,
    )
    do_train: bool = flag(True)
    do_eval: bool = flag(
        False,
        "Whether to evaluate on --eval_input_file: before training, and at "
        "every checkpoint; without --do_train every checkpoint that is there.",
    )
    train_batch_size: int = flag(4096)
    eval_batch_size: int = flag(64)
    optimizer: Literal["adamw", "lamb"] = flag("lamb")
    learning_rate: float = flag(0.00176)
    poly_power: float = flag(1.0, "Exponent of the decay.", at_least=0)
    num_train_steps: int = flag(125000, "Training steps.", at_least=1)
    num_warmup_steps: int = flag(3125, "Steps of linear warmup.", at_least=0)
    start_warmup_step: int = flag(
        0, "Step at which the warmup begins; the rate is 0 before.", at_least=0
    )
    save_checkpoints_steps: int = flag(5000)
    max_eval_steps: int = flag(
        0,
        "Batches evaluated; 0 evaluates every row (the release: 100).",
        at_least=0,
    )
    init_from_group0: bool = flag(
        False, "Begin every group with group 0's weights of init_checkpoint."
    )
    masked_lm_budget: float = flag(
        0,
        "Must be 0: the release never implemented masking while training.",
        at_least=0,
    )
    eval_input_file: str | None = flag(
        help="Held-out records: comma-separated files or globs."
    )
    sentence_weight: float | None = flag(
        help="Factor of the sentence loss; 0 trains on masked LM alone. "
        "Default: 1, or 0 for records made without a sentence objective.",
        at_least=0,
    )
    shuffle_buffer: int = flag(
        100_000,
        "Records held in memory to shuffle training data.",
        at_least=1,
        at_most=1 << 30,
    )


def check_flags(args):
    """Refuses what cannot work before anything is loaded."""
    if not args.do_train and not args.do_eval:
        raise ValueError("Give --do_train or --do_eval: nothing to do.")
    if args.do_train and not args.input_file:
        raise ValueError("--do_train needs --input_file.")
    if args.do_eval and not args.eval_input_file:
        if not args.do_train:
            raise ValueError(
                "--do_eval needs --eval_input_file, held-out records. (The "
                "release evaluated on the training file.)"
            )
        logging.warning(
            "--do_eval without --eval_input_file: no held-out records are "
            "given, so nothing will be evaluated. (The release evaluated on "
            "the training file.)"
        )
    if args.masked_lm_budget:
        raise ValueError(
            "--masked_lm_budget is not implemented, as in the release; mask "
            "with create_pretraining_data.py."
        )


def output_files(args):
    """Returns the paths of settings that training writes."""
    names = CONFIG_FILE, FLAGS_FILE, tokenization.SETTINGS_FILE
    return [os.path.join(args.output_dir, name) for name in names]


def open_records(patterns, args, config):
    """Returns `inputs.PretrainingRecords` that fit flags and config."""
    return opening.open_records(
        patterns,
        config,
        max_seq_length=args.max_seq_length,
        max_predictions_per_seq=args.max_predictions_per_seq,
    )


def build_training(args, config, sentence_objective):
    """Returns model and optimizer; call it in the strategy's scope."""
    sentence_weight = args.sentence_weight
    if sentence_weight is None:
        sentence_weight = 0.0 if sentence_objective == "none" else 1.0
    keras.utils.set_random_seed(args.random_seed)
    model = heads.AlbertForPreTraining(
        config,
        sentence_weight=sentence_weight,
        dtype=layers.POLICIES[args.compute_dtype],
    )
    schedule = optimization.build_schedule(
        args.learning_rate,
        args.num_train_steps,
        args.num_warmup_steps,
        start_warmup_step=args.start_warmup_step,
        poly_power=args.poly_power,
    )
    weights = modeling.named_weights(model)
    weights = {name: weight.value for name, weight in weights.items()}
    optimizer = optimization.build_optimizer(args.optimizer, weights, schedule)
    return model, optimizer


def build_score(args, strategy, model, held_out):
    """Returns a function that evaluates the model as it stands."""
    return functools.partial(
        evaluation.evaluate,
        strategy,
        model,
        evaluation.build_eval_function(strategy, model),
        reading.build_dataset(
            held_out.files,
            held_out.features,
            args.eval_batch_size,
            is_training=False,
            limits=held_out.limits,
        ),
        args.max_eval_steps,
    )


def describe(args, config, train_records, held_out, weights):
    """Returns what a manifest says of the run.

    Args:
      args: PretrainingFlags.
      config: the AlbertConfig.
      train_records: `inputs.PretrainingRecords`, or None.
      held_out: likewise.
      weights: the `pretrained.Pretrained` it begins from, or None.
    """
    any_records = train_records or held_out
    made_of = {
        "config": config.to_dict(),
        "task": {"sentence_objective": any_records.sentence_objective},
        "data": {
            part: manifest.describe_files(opened.files, opened.num_records)
            for part, opened in (("train", train_records), ("dev", held_out))
            if opened
        },
    }
    if any_records.sidecar:
        made_of["vocabulary"] = manifest.describe_tokenizer(
            any_records.sidecar["tokenizer"]
        )
    if held_out:
        made_of["data"]["dev"]["max_eval_steps"] = args.max_eval_steps
    if not train_records:
        return made_of
    if weights:
        made_of["begins_from"] = manifest.describe_weights(
            weights.source, weights.values
        )
    names = (
        "learning_rate",
        "num_train_steps",
        "num_warmup_steps",
        "start_warmup_step",
        "poly_power",
    )
    return {
        **made_of,
        "optimizer": {
            "name": args.optimizer,
            **{name: getattr(args, name) for name in names},
        },
        "sentence_weight": args.sentence_weight,
        "train_batch_size": args.train_batch_size,
        "shuffle_buffer": args.shuffle_buffer,
        "random_seed": args.random_seed,
        "compute_dtype": args.compute_dtype,
    }


def write_settings(args, config, sidecar):
    """Writes beside the checkpoints what their readers need to know."""
    values = [config.to_dict(), dataclasses.asdict(args)]
    if sidecar:
        values.append(sidecar["tokenizer"])
    read = filesystem.identity(args.albert_config_file)
    for path, value in zip(output_files(args), values, strict=False):
        # A resume may name the config that is there: it stays as it is.
        if filesystem.identity(path) != read:
            filesystem.write_json(path, value)


def train(args, strategy, model, optimizer, train_records, start, **kwargs):
    """Trains on from the optimizer's step, and from an example of the data."""
    dataset = reading.build_dataset(
        train_records.files,
        train_records.features,
        args.train_batch_size,
        is_training=True,
        seed=args.random_seed,
        start=start,
        num_records=train_records.num_records,
        shuffle_buffer=args.shuffle_buffer,
        limits=train_records.limits,
    )
    loop.train(
        strategy,
        model,
        optimizer,
        {"records": dataset},
        num_train_steps=args.num_train_steps,
        batch_size=args.train_batch_size,
        save_checkpoints_steps=args.save_checkpoints_steps,
        iterations_per_loop=args.iterations_per_loop,
        log_every_steps=args.log_every_steps,
        seed=args.random_seed,
        xla=args.xla,
        **kwargs,
    )


def read_weights(args):
    """Returns the model that flags say to begin from, or None.

    A resume has weights of its own, and may do without.
    """
    if not args.init_checkpoint:
        return None
    try:
        return pretrained.read_pretrained(args.init_checkpoint)
    except FileNotFoundError:
        if not checkpoints.list_checkpoints(args.output_dir):
            raise
        return None


def run(args):
    """Trains and evaluates as the flags say."""
    check_flags(args)
    config = AlbertConfig.from_json_file(args.albert_config_file)
    train_records = held_out = None
    if args.do_train:
        train_records = open_records(args.input_file, args, config)
        opening.check_batch_size(train_records, args.train_batch_size)
    if args.do_eval and args.eval_input_file:
        held_out = open_records(args.eval_input_file, args, config)
    if train_records and held_out:
        opening.check_held_out(train_records, held_out)
    strategy = distribution.build_strategy_of(args)
    with (
        ownership.owning_folder(args.output_dir),
        opening.naming_damage(train_records, held_out),
    ):
        pretrain(args, config, strategy, train_records, held_out)


def pretrain(args, config, strategy, train_records, held_out):
    """Does what `run` does, in a folder that nobody else writes to."""
    weights = read_weights(args) if train_records else None
    run_manifest = manifest.Manifest(
        args.output_dir,
        describe(args, config, train_records, held_out, weights),
    )
    remarks = run_manifest.check(
        checkpoints.list_checkpoints(args.output_dir)
        or evaluation.read_results(args.output_dir),
        args.accept_changes,
    )
    any_records = train_records or held_out
    with strategy.scope():
        model, optimizer = build_training(
            args, config, any_records.sentence_objective
        )
    manager = checkpoints.CheckpointManager(
        args.output_dir,
        {**optimizer.weights, **optimizer.slots, STEP: optimizer.step},
        args.keep_checkpoint_max,
    )
    reporter = reporting.Reporter(args.output_dir)
    for remark in remarks:
        reporter.say(remark)
    evaluator = held_out and evaluation.Evaluator(
        build_score(args, strategy, model, held_out),
        manager=manager,
        reporter=reporter,
        best_metric="masked_lm_accuracy",
    )
    if not train_records:
        evaluator.evaluate_folder()
        run_manifest.write()
        return
    checkpoints.check_free(args.output_dir)
    sidecar = train_records.sidecar
    reporter.say(
        pretrained.initialize(
            manager,
            optimizer.weights,
            config,
            weights,
            from_group0=args.init_from_group0,
            tokenizer_settings=sidecar and sidecar["tokenizer"],
        )
    )
    step = int(optimizer.step.numpy())
    checkpoints.check_end(args.output_dir, step, args.num_train_steps)
    # Not before: what does not fit must not replace what does.
    run_manifest.write(step, args.train_batch_size)
    write_settings(args, config, sidecar)
    if evaluator:
        evaluator.catch_up(step)
        if not step and not evaluator.known(STEP):
            report_best_guess(reporter, held_out)
            evaluator.evaluate(0)
    train(
        args,
        strategy,
        model,
        optimizer,
        train_records,
        run_manifest.count_examples(step),
        manager=manager,
        reporter=reporter,
        on_checkpoint=evaluator and evaluator.evaluate,
    )
    reporter.say(f"Checkpoints and results are in {args.output_dir}.")


def report_best_guess(reporter, held_out):
    """Says what can be scored on held-out records without looking."""
    masked_lm, sentence_order = opening.score_best_guess(held_out)
    reporter.say(
        f"Held out: {held_out.num_records} sequences. The best guess without "
        f"looking scores masked LM {masked_lm:.1%}, sentence order "
        f"{sentence_order:.1%}."
    )


def main():
    """The command."""
    flags.launch(run, PretrainingFlags)
