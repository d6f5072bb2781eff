"""Pretrains ALBERT with masked LM and sentence order, on TFRecords."""

import dataclasses
import functools
import logging
import math
import os

from albert_tf import filesystem
from albert_tf.data.pretraining import agreement, label_counts, opening
from albert_tf.model import heads
from albert_tf.model.config import CONFIG_FILE, AlbertConfig
from albert_tf.programs import shared
from albert_tf.text import tokenization
from albert_tf.training import (
    distribution,
    evaluation,
    gauge,
    guard,
    manifest,
    memory,
    optimization,
    session,
    workers,
)
from albert_tf.weights import checkpoints, pretrained

# Flags recorded in the manifest: those of the optimizer, and others.
SCHEDULE = (
    "learning_rate num_train_steps num_warmup_steps start_warmup_step "
    "poly_power beta_2"
)
SETTINGS = "train_batch_size shuffle_buffer random_seed compute_dtype"
# Flags that replace the recorded settings of dynamic masking.
MASKING = (
    "masked_lm_prob ngram favor_shorter_ngram do_whole_word_mask do_permutation"
)
# Maximum number of records read to estimate piece frequencies.
MAX_COUNTED = 20_000


def open_train_records(args, config):
    """Returns `opening.PretrainingRecords` that match flags and config."""
    changes = _values(args, MASKING)
    opened = opening.open_records(
        args.input_file,
        config,
        max_seq_length=args.max_seq_length,
        max_predictions_per_seq=args.max_predictions_per_seq,
        masking_changes={
            name: value for name, value in changes.items() if value is not None
        },
        sentence_weight=args.sentence_weight,
        skip_damaged=args.damaged_records == "skip",
    )
    agreement.check_batch_size(opened, args.train_batch_size)
    return opened


def open_held_out(args, config, train_records):
    """Returns the held-out `opening.PretrainingRecords`.

    Dynamic ones are masked as recorded, whatever the masks of training.
    """
    opened = opening.open_records(
        args.eval_input_file,
        config,
        max_seq_length=args.max_seq_length,
        sentence_weight=args.sentence_weight,
        skip_damaged=args.damaged_records == "skip",
    )
    if not (train_records and train_records.masker):
        agreement.check_predictions(opened, args.max_predictions_per_seq)
    if train_records:
        agreement.check_held_out(train_records, opened)
    return opened


def keep_sentence_weight(args):
    """Returns the flags with the sentence weight of the model to be scored."""
    if args.do_train or args.sentence_weight is not None:
        return args
    folders = [args.output_dir]
    if args.init_checkpoint:
        folders.append(filesystem.folder_of(args.init_checkpoint))
    for folder in folders:
        known = manifest.read_setting(folder, "sentence_weight")
        if known is not None:
            # Records without a sentence objective need the default, 0.
            kept = None if known == 1 else known
            return dataclasses.replace(args, sentence_weight=kept)
    return args


def build_model(config, records, num_pieces, dtype):
    """Returns the model with its pretraining heads."""
    return heads.AlbertForPreTraining(
        config,
        sentence_weight=records.sentence_weight,
        num_pieces=num_pieces,
        dtype=dtype,
    )


def build_evaluator(args, training, held_out):
    """Returns an `evaluation.Evaluator` on held-out records."""
    strategy, model = training.strategy, training.model
    score = functools.partial(
        evaluation.evaluate,
        strategy,
        model,
        evaluation.build_eval_function(strategy, model),
        held_out.read_pass(args.eval_batch_size),
        args.max_eval_steps,
        math.ceil(held_out.num_records / args.eval_batch_size),
    )
    return training.build_evaluator(score, "masked_lm_accuracy")


def list_remedies(args, config, records):
    """Returns what left the plateau earlier and this training does not do.

    In the order of "What helps" in docs/plateau.md.
    """
    masks = records.mask_settings
    # 0.05 for H = 256, and what gives the same variances for other widths.
    initializer_range = 0.8 / math.sqrt(config.hidden_size)
    remedies = {
        "records of short sequences (--max_seq_length=64)": (
            records.num_tokens > 64
        ),
        "records with 40% of the pieces masked (--masked_lm_prob=0.4)": (
            masks.get("masked_lm_prob", 0) < 0.4
        ),
        "--sentence_weight=0": records.sentence_weight > 0,
        "records without n-grams (--ngram=1)": masks.get("ngram", 3) > 1,
        "--beta_2=0.98": args.beta_2 > 0.98,
        f'"initializer_range": {initializer_range:.2g} in the config': (
            not args.init_checkpoint
            and config.initializer_range < 0.6 * initializer_range
        ),
        "larger batches at a larger rate (--train_batch_size=64)": (
            args.train_batch_size < 64
        ),
        "more steps": True,
    }
    return [remedy for remedy, is_left in remedies.items() if is_left]


def build_gauge(args, training, train_records, held_out):
    """Returns a `gauge.Gauge`, on held-out records if there are any."""
    measured = held_out or train_records
    # Of a replica.
    num_sequences = max(1, gauge.TOKENS_AT_A_TIME // measured.num_tokens)
    num_tokens = num_sequences * measured.num_tokens
    num_replicas = training.strategy.num_replicas_in_sync
    batches = measured.read_pass(num_sequences * num_replicas)
    return gauge.Gauge(
        training.strategy,
        training.model,
        batches.take(max(1, gauge.TOKENS // num_tokens)),
        label_counts.count_pieces(train_records, MAX_COUNTED),
        list_remedies(args, training.model.config, train_records),
    )


def describe(args, config, train_records, held_out, weights):
    """Returns the manifest's description of the run.

    Args:
      args: PretrainingFlags.
      config: the AlbertConfig.
      train_records: `opening.PretrainingRecords`, or None.
      held_out: `opening.PretrainingRecords`, or None.
      weights: the `pretrained.Pretrained` it starts from, or None.
    """
    any_records = train_records or held_out
    made_of = {
        "config": config.to_dict(),
        "task": {"sentence_objective": any_records.sentence_objective},
        "data": {
            part: manifest.describe_files(opened.files, opened.num_records)
            | opened.describe()
            for part, opened in (("train", train_records), ("dev", held_out))
            if opened
        },
    }
    if any_records.sidecar:
        made_of["vocabulary"] = manifest.describe_tokenizer(
            any_records.sidecar["tokenizer"]
        )
    if held_out:
        made_of["evaluation"] = {"records": count_scored(args, held_out)}
    if weights:
        section = "begins_from" if train_records else "scored"
        made_of[section] = manifest.describe_weights(weights.values)
    elif train_records and not checkpoints.list_checkpoints(args.output_dir):
        made_of["begins_from"] = manifest.describe_weights({})
    if not train_records:
        return made_of
    made_of["optimizer"] = {"name": args.optimizer, **_values(args, SCHEDULE)}
    made_of["sentence_weight"] = any_records.sentence_weight
    return {**made_of, **_values(args, SETTINGS)}


def count_scored(args, held_out):
    """Returns the number of held-out records that an evaluation reads."""
    wanted = args.max_eval_steps * args.eval_batch_size
    return min(wanted or held_out.num_records, held_out.num_records)


def _values(args, names):
    return {name: getattr(args, name) for name in names.split()}


def describe_files(args, config, sidecar):
    """Returns the files that a reader of the checkpoints needs, by name."""
    files = {manifest.FLAGS_FILE: dataclasses.asdict(args)}
    # A resumed run may be given the config in the output folder: keep it.
    path = os.path.join(args.output_dir, CONFIG_FILE)
    read = filesystem.identity(args.albert_config_file)
    if filesystem.identity(path) != read:
        files[CONFIG_FILE] = config.to_dict()
    if sidecar:
        files[tokenization.SETTINGS_FILE] = sidecar["tokenizer"]
    return files


def read_weights(args):
    """Returns the `pretrained.Pretrained` to start from, or None.

    A resumed run has its own weights, so there it may be missing.
    """
    if not args.init_checkpoint:
        return None
    try:
        return pretrained.read_pretrained(args.init_checkpoint)
    except FileNotFoundError:
        if not checkpoints.list_checkpoints(args.output_dir):
            raise
        return None


def choose_rate(args):
    """Returns the flags with the rate and warmup for --learning_rate=auto."""
    if args.learning_rate != "auto":
        return args
    rate, num_warmup_steps = optimization.scale_to_batch(
        args.train_batch_size, args.num_train_steps
    )
    # A given number is kept; the class has the default.
    if args.num_warmup_steps != type(args).num_warmup_steps:
        num_warmup_steps = args.num_warmup_steps
    return dataclasses.replace(
        args, learning_rate=rate, num_warmup_steps=num_warmup_steps
    )


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
    args = keep_sentence_weight(args)
    config = AlbertConfig.from_json_file(args.albert_config_file)
    train_records = held_out = None
    if args.do_train:
        train_records = open_train_records(args, config)
    if args.do_eval and args.eval_input_file:
        held_out = open_held_out(args, config, train_records)
    check_remote_hosts(args, train_records, held_out)
    with (
        workers.find_workers(strategy).own_folder(args.output_dir) as folder,
        opening.naming_damage(train_records, held_out),
    ):
        args = dataclasses.replace(args, output_dir=folder)
        pretrain(args, config, strategy, train_records, held_out)


def check_remote_hosts(args, *opened):
    """Raises ValueError if a TPU elsewhere cannot use the opened records."""
    if args.has_remote_tpu and any(r.masker for r in opened if r):
        raise ValueError(
            f"The hosts of the TPU {args.tpu_name!r} cannot mask dynamic "
            "records, which is done in Python. Create static records, or use "
            "a TPU VM with one host and --tpu_name=local."
        )


def pretrain(args, config, strategy, train_records, held_out):
    """Implements `run`; the caller owns the output folder."""
    is_auto = args.learning_rate == "auto"
    args = choose_rate(args)
    weights = None
    begins = train_records or not checkpoints.list_checkpoints(args.output_dir)
    if begins and workers.find_workers(strategy).is_chief:
        weights = read_weights(args)
    any_records = train_records or held_out
    num_pieces = count_pieces(any_records, weights, strategy)
    training = session.Session(
        args.output_dir,
        functools.partial(build_model, config, any_records, num_pieces),
        describe(args, config, train_records, held_out, weights),
        strategy=strategy,
        optimizer=args.optimizer,
        schedule=optimization.build_schedule(
            args.learning_rate,
            args.num_train_steps,
            args.num_warmup_steps,
            start_warmup_step=args.start_warmup_step,
            poly_power=args.poly_power,
        ),
        num_train_steps=args.num_train_steps,
        seed=args.random_seed,
        compute_dtype=args.compute_dtype,
        keep_checkpoint_max=args.keep_checkpoint_max,
        accept_changes=args.accept_changes,
        beta_2=args.beta_2,
    )
    if is_auto:
        training.reporter.say(
            f"Learning rate {args.learning_rate:.3g} after "
            f"{args.num_warmup_steps} warmup steps, scaled to batches of "
            f"{args.train_batch_size} (--learning_rate=auto)."
        )
    evaluator = held_out and build_evaluator(args, training, held_out)
    if train_records:
        train(
            args, config, training, train_records, held_out, weights, evaluator
        )
    else:
        if training.workers.share(bool(weights)):
            score(args, config, training, held_out, weights, evaluator)
        else:
            evaluator.evaluate_folder()
        training.manifest.write()


def count_pieces(records, weights, strategy):
    """Returns the size of the vocabulary, or None if nothing describes it."""
    if records.sidecar:
        return records.sidecar["tokenizer"].get("vocab_size")
    known = (weights and weights.num_pieces) or 0
    return workers.find_workers(strategy).share(known) or None


def score(args, config, training, held_out, weights, evaluator):
    """Scores `weights`, of another folder, as step 0; see `train`."""
    sidecar = held_out.sidecar
    training.initialize(
        config,
        weights,
        from_group0=args.init_from_group0,
        tokenizer_settings=sidecar and sidecar["tokenizer"],
    )
    if training.workers.share(bool(evaluator.known(checkpoints.STEP))):
        training.reporter.say(f"Skipped: the result is in {evaluator.path}.")
    else:
        report_majority_baseline(training, held_out)
        evaluator.evaluate(0)


def train(args, config, training, train_records, held_out, weights, evaluator):
    """Trains, resuming from the newest checkpoint if there is one.

    Args:
      args: PretrainingFlags.
      config: the AlbertConfig.
      training: the `session.Session`.
      train_records: `opening.PretrainingRecords`.
      held_out: `opening.PretrainingRecords`, or None.
      weights: as for `describe`.
      evaluator: an `evaluation.Evaluator` of the session, or None.
    """
    sidecar = train_records.sidecar
    for name in ("config", "data"):
        training.workers.check_equal(
            f"{name} files", training.manifest.made_of[name]
        )
    warn_of_memory(args, config, training, train_records)
    step = training.begin(
        config,
        weights,
        batch_size=args.train_batch_size,
        files=describe_files(args, config, sidecar),
        evaluator=evaluator,
        from_group0=args.init_from_group0,
        tokenizer_settings=sidecar and sidecar["tokenizer"],
    )
    if evaluator and not step:
        report_majority_baseline(training, held_out)
        evaluator.evaluate(0)
    read_part = functools.partial(
        train_records.read_part,
        batch_size=args.train_batch_size,
        seed=args.random_seed,
        start=training.workers.share(training.manifest.count_examples(step)),
        shuffle_buffer=args.shuffle_buffer,
    )
    training.train(
        {"records": read_part},
        batch_size=args.train_batch_size,
        save_checkpoints_steps=args.save_checkpoints_steps,
        iterations_per_loop=args.iterations_per_loop,
        log_every_steps=args.log_every_steps,
        xla=args.xla,
        remat=args.remat,
        num_parts=args.gradient_accumulation_steps,
        evaluator=evaluator,
        gauge=build_gauge(args, training, train_records, held_out),
        guard=guard.Guard(args.stop_on_divergence, loss="masked_lm_loss"),
    )
    training.reporter.say(f"Checkpoints and results are in {args.output_dir}.")


def warn_of_memory(args, config, training, records):
    """Says so if the machine's memory seems too small for a step on its CPU."""
    warning = memory.warn_of_training(
        config,
        args.train_batch_size,
        records.num_tokens,
        records.num_predictions,
        available=distribution.find_cpu_memory(training.strategy),
        num_parts=args.gradient_accumulation_steps,
        compute_dtype=training.compute_dtype,
        remat=args.remat,
    )
    if warning:
        training.reporter.say(f"WARNING: {warning}")


def report_majority_baseline(training, held_out):
    """Reports the scores of always predicting the most frequent label."""
    masked_lm, sentence_order = label_counts.score_best_guess(held_out)
    said = f"masked LM accuracy {masked_lm:.1%}"
    if "sentence_order_accuracy" in training.model.metric_names:
        said += f", sentence order accuracy {sentence_order:.1%}"
    training.reporter.say(
        f"{held_out.num_records} held-out sequences. Majority-class baseline: "
        f"{said}."
    )
