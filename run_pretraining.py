"""Pretrains ALBERT: masked LM and sentence order, from TFRecords.

python run_pretraining.py --input_file='data/train*.tfrecord' \
    --eval_input_file=data/valid.tfrecord --do_eval \
    --albert_config_file=configs/model/v2/base.json --output_dir=out
"""

import dataclasses
import functools
import os
from typing import Literal

import keras

from albert_tf import (
    checkpoints,
    distribution,
    evaluation,
    filesystem,
    flags,
    heads,
    layers,
    modeling,
    optimization,
    pretrained,
    records,
    reporting,
    tokenization,
    training,
)
from albert_tf.checkpoints import STEP
from albert_tf.config import CONFIG_FILE, AlbertConfig
from albert_tf.data import inputs
from albert_tf.flags import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingFlags(flags.TrainFlags):
    """The release's flags; what is ours stands last."""

    albert_config_file: str = flag(
        required=True, help="JSON file with the architecture."
    )
    input_file: str | None = flag(
        help="Training records: comma-separated files or globs."
    )
    max_seq_length: int | None = flag(
        help="Tokens in a record. Default: what the records say."
    )
    max_predictions_per_seq: int | None = flag(
        help="Masked tokens in a record. Default: what the records say."
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
    poly_power: float = flag(1.0, "Exponent of the decay.")
    num_train_steps: int = flag(125000, "Training steps.")
    num_warmup_steps: int = flag(3125, "Steps of linear warmup.")
    start_warmup_step: int = flag(
        0, "Step at which the warmup begins; the rate is 0 before."
    )
    save_checkpoints_steps: int = flag(5000)
    max_eval_steps: int = flag(
        0, "Batches evaluated; 0 evaluates every row (the release: 100)."
    )
    init_from_group0: bool = flag(
        False, "Begin every group with group 0's weights of init_checkpoint."
    )
    masked_lm_budget: float = flag(
        0, "Must be 0: the release never implemented masking while training."
    )
    eval_input_file: str | None = flag(
        help="Held-out records: comma-separated files or globs."
    )
    sentence_weight: float | None = flag(
        help="Factor of the sentence loss; 0 trains on masked LM alone. "
        "Default: 1, or 0 for records made without a sentence objective."
    )
    shuffle_buffer: int = flag(
        100_000, "Records held in memory to shuffle training data."
    )


def check_flags(args):
    """Refuses what cannot work before anything is loaded."""
    if not args.do_train and not args.do_eval:
        raise ValueError("Give --do_train or --do_eval: nothing to do.")
    if args.do_train and not args.input_file:
        raise ValueError("--do_train needs --input_file.")
    if args.do_eval and not args.eval_input_file:
        raise ValueError(
            "--do_eval needs --eval_input_file, held-out records. (The "
            "release evaluated on the training file.)"
        )
    if args.masked_lm_budget:
        raise ValueError(
            "--masked_lm_budget is not implemented, as in the release; mask "
            "with create_pretraining_data.py."
        )


def open_records(patterns, args, config):
    """Returns `inputs.PretrainingRecords` that fit flags and config."""
    return inputs.open_records(
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
        records.build_dataset(
            held_out.files,
            held_out.features,
            args.eval_batch_size,
            is_training=False,
        ),
        args.max_eval_steps,
    )


def write_settings(args, config, sidecar):
    """Writes beside the checkpoints what their readers need to know."""
    values = {
        CONFIG_FILE: config.to_dict(),
        "flags.json": dataclasses.asdict(args),
    }
    if sidecar:
        values[tokenization.SETTINGS_FILE] = sidecar["tokenizer"]
    for name, value in values.items():
        filesystem.write_json(os.path.join(args.output_dir, name), value)


def train(args, strategy, model, optimizer, train_records, **kwargs):
    """Trains on from the optimizer's step."""
    dataset = records.build_dataset(
        train_records.files,
        train_records.features,
        args.train_batch_size,
        is_training=True,
        seed=args.random_seed,
        start=int(optimizer.step.numpy()) * args.train_batch_size,
        num_records=train_records.num_records,
        shuffle_buffer=args.shuffle_buffer,
    )
    training.train(
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


def run(args):
    """Trains and evaluates as the flags say."""
    check_flags(args)
    config = AlbertConfig.from_json_file(args.albert_config_file)
    opened = [
        open_records(patterns, args, config) if is_wanted else None
        for is_wanted, patterns in (
            (args.do_train, args.input_file),
            (args.do_eval, args.eval_input_file),
        )
    ]
    train_records, held_out = opened
    if train_records and held_out:
        inputs.check_held_out(train_records, held_out)
    any_records = train_records or held_out
    strategy = distribution.build_strategy_of(args)
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
    evaluator = held_out and evaluation.Evaluator(
        build_score(args, strategy, model, held_out),
        manager=manager,
        reporter=reporter,
        best_metric="masked_lm_accuracy",
    )
    if not train_records:
        evaluator.evaluate_folder()
        return
    sidecar = any_records.sidecar
    found = None
    if args.init_checkpoint and not checkpoints.list_checkpoints(
        manager.folder
    ):
        found = pretrained.read_pretrained(args.init_checkpoint)
    reporter.say(
        pretrained.initialize(
            manager,
            optimizer.weights,
            config,
            found,
            from_group0=args.init_from_group0,
            tokenizer_settings=sidecar and sidecar["tokenizer"],
        )
    )
    # Not before: a config that does not fit must not replace the one that does.
    write_settings(args, config, sidecar)
    step = int(optimizer.step.numpy())
    if evaluator and step not in evaluator.known(STEP):
        masked_lm, sentence_order = inputs.score_best_guess(held_out)
        reporter.say(
            f"Held out: {held_out.num_records} sequences. The best guess "
            f"without looking scores masked LM {masked_lm:.1%}, sentence "
            f"order {sentence_order:.1%}."
        )
        evaluator.evaluate(step, manager.prefix(step) if step else None)
    train(
        args,
        strategy,
        model,
        optimizer,
        train_records,
        manager=manager,
        reporter=reporter,
        on_checkpoint=evaluator and evaluator.evaluate,
    )
    reporter.say(f"Checkpoints and results are in {args.output_dir}.")


if __name__ == "__main__":
    flags.launch(run, PretrainingFlags)
