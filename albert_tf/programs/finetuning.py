"""A fine-tuning: begin from a model, train, evaluate, keep the best, predict.

`programs` runs it for the scripts of all tasks, which bring a model class,
examples, and a function that scores predictions.
"""

import dataclasses
import os

import keras

from albert_tf import filesystem
from albert_tf.data import batches
from albert_tf.model import layers, modeling
from albert_tf.model.config import CONFIG_FILE
from albert_tf.text import tokenization
from albert_tf.training import (
    evaluation,
    loop,
    manifest,
    optimization,
    reporting,
)
from albert_tf.weights import checkpoints, pretrained
from albert_tf.weights.checkpoints import STEP

FLAGS_FILE = "flags.json"
# Flags of what is written beside --output_dir, where a program has them.
FOLDERS = ("cached_dir", "export_dir", "export_text_dir")
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")


def check_flags(args):
    """Refuses what cannot work before anything is loaded.

    Args:
      args: with the fields of `shared_flags.FineTuningFlags`.

    Raises:
      ValueError: if flags contradict each other or one is missing.
    """
    if args.init_checkpoint and args.albert_hub_module_handle:
        raise ValueError(
            "Give --init_checkpoint or --albert_hub_module_handle, not both."
        )
    if args.from_scratch and find_source(args):
        raise ValueError(
            f"--from_scratch contradicts the model {find_source(args)}."
        )
    for name in FOLDERS:
        path = getattr(args, name, None)
        if path and os.path.isfile(path):
            raise ValueError(f"--{name}={path} is a file; wanted a folder.")
    has_model = find_source(args) or args.from_scratch
    if not has_model and not checkpoints.find_trained(run_folder(args, 0)):
        raise ValueError(
            "There is no model to begin with: give --init_checkpoint. (To "
            "begin with random weights, say --from_scratch.)"
        )
    if not args.do_train and args.from_scratch:
        raise ValueError("--from_scratch without --do_train: nothing to do.")


def find_source(args):
    """Returns the model that flags name, or None."""
    return args.init_checkpoint or args.albert_hub_module_handle


def run_folder(args, number):
    """Returns the folder of one of several runs: output_dir for a single."""
    if args.num_runs == 1:
        return args.output_dir
    return os.path.join(args.output_dir, f"run_{number + 1}")


def read_start(args):
    """Reads what a task begins from.

    Args:
      args: with the fields of `shared_flags.FineTuningFlags`.

    Returns:
      A `pretrained.Pretrained` with config and tokenizer. Its values are empty
      where a training begins with random weights or goes on.

    Raises:
      ValueError: if config or vocabulary are missing or do not fit.
      FileNotFoundError: if there is no model.
    """
    source = find_source(args)
    if source:
        found = pretrained.read_pretrained(source)
    else:
        found = pretrained.read_description(run_folder(args, 0))
    original = found.config
    found = pretrained.replace_files(
        found,
        albert_config_file=args.albert_config_file,
        spm_model_file=args.spm_model_file,
        vocab_file=args.vocab_file,
        do_lower_case=args.do_lower_case,
    )
    missing = [
        flag
        for flag, value in (
            ("--albert_config_file", found.config),
            ("--spm_model_file or --vocab_file", found.tokenizer),
        )
        if value is None
    ]
    if missing:
        raise ValueError(
            f"{found.source} has no config or vocabulary of its own; give "
            f"{' and '.join(missing)}."
        )
    if args.max_seq_length > found.config.max_position_embeddings:
        raise ValueError(
            f"--max_seq_length={args.max_seq_length}, but the model has "
            f"{found.config.max_position_embeddings} positions."
        )
    # The values are of the config that lies beside them.
    return dataclasses.replace(found, config=original or found.config), (
        _with_dropout(found.config, args)
    )


def _with_dropout(config, args):
    """The config with the rates that flags give."""
    rates = {name: getattr(args, name) for name in DROPOUTS}
    rates = {name: r for name, r in rates.items() if r is not None}
    return dataclasses.replace(config, **rates)


def classifier_dropout(args):
    """Returns the dropout before the task's output, by either of its names.

    Args:
      args: with the fields of `shared_flags.FineTuningFlags`; some
        programs have the release's `dropout_prob`, too.
    """
    rate = getattr(args, "dropout_prob", None)
    return args.classifier_dropout if rate is None else rate


def count_steps(args, num_examples):
    """Returns training steps and those of them that are warmup.

    Args:
      args: with the fields of `shared_flags.FineTuningFlags`.
      num_examples: in the training data.

    Source: run_squad_v1.py for epochs and proportion.
    """
    num_steps, num_warmup_steps = args.train_step, args.warmup_step
    if args.num_train_epochs is not None:
        num_steps = int(
            num_examples / args.train_batch_size * args.num_train_epochs
        )
    if args.warmup_proportion is not None:
        num_warmup_steps = int(num_steps * args.warmup_proportion)
    if num_steps < 1 or num_warmup_steps >= num_steps:
        raise ValueError(
            f"{num_steps} training steps with {num_warmup_steps} of warmup, "
            f"from {num_examples} examples in batches of "
            f"{args.train_batch_size}: too few."
        )
    return num_steps, num_warmup_steps


class Run:
    """One fine-tuning in a folder of its own.

    Args:
      args: with the fields of `shared_flags.FineTuningFlags`.
      number: which of `num_runs` it is, from 0; decides folder and seed.
      build_model: function from config and dtype to the task's model.
      start: a `pretrained.Pretrained`, from `read_start`.
      config: the model's AlbertConfig.
      strategy: a tf.distribute.Strategy.
      num_examples: in the training data; 0 where nothing is trained.
      made_of: dict of `task` and `data`, as `manifest.Manifest` wants them.

    Attributes:
      source: where `restore_best` found the weights.
    """

    def __init__(
        self,
        args,
        number,
        build_model,
        start,
        config,
        strategy,
        num_examples,
        made_of=(),
    ):
        self.args = args
        self.start, self.config = start, config
        self.folder, self.source = run_folder(args, number), None
        self.seed = args.random_seed + number
        self.strategy = strategy
        # Without training, too, the optimizer wants a schedule.
        self.num_steps, num_warmup_steps = 1, 0
        if num_examples:
            self.num_steps, num_warmup_steps = count_steps(args, num_examples)
        self.manifest = manifest.Manifest(
            self.folder,
            {
                **dict(made_of),
                **self._describe_run(num_examples, num_warmup_steps),
            },
        )
        remarks = self.manifest.check(
            checkpoints.find_trained(self.folder)
            or evaluation.read_results(self.folder),
            args.accept_changes,
        )
        with strategy.scope():
            keras.utils.set_random_seed(self.seed)
            self.model = build_model(
                config, dtype=layers.POLICIES[args.compute_dtype]
            )
            weights = modeling.named_weights(self.model)
            self.optimizer = optimization.build_optimizer(
                args.optimizer,
                {name: weight.value for name, weight in weights.items()},
                optimization.build_schedule(
                    args.learning_rate, self.num_steps, num_warmup_steps
                ),
            )
        self.manager = checkpoints.CheckpointManager(
            self.folder,
            {
                **self.optimizer.weights,
                **self.optimizer.slots,
                STEP: self.optimizer.step,
            },
            args.keep_checkpoint_max,
        )
        self.reporter = reporting.Reporter(self.folder)
        for remark in remarks:
            self.reporter.say(remark)
        self.bucket_lengths = batches.parse_bucket_lengths(
            args.bucket_lengths, args.max_seq_length
        )
        self.predict_function = evaluation.build_predict_function(
            strategy, self.model
        )

    def _describe_run(self, num_examples, num_warmup_steps):
        """What a manifest says of the run beside its task and data."""
        args, start = self.args, self.start
        parts = {
            "config": self.config.to_dict(),
            "vocabulary": manifest.describe_tokenizer(start.tokenizer.settings),
            "max_seq_length": args.max_seq_length,
        }
        if not num_examples:
            return parts
        # A resume may leave out what the run began from.
        if start.values or args.from_scratch:
            parts["begins_from"] = manifest.describe_weights(
                start.source if start.values else None, start.values
            )
        return {
            **parts,
            "optimizer": {
                "name": args.optimizer,
                "learning_rate": args.learning_rate,
                "num_train_steps": self.num_steps,
                "num_warmup_steps": num_warmup_steps,
                "classifier_dropout": classifier_dropout(args),
            },
            "bucket_lengths": args.bucket_lengths,
            "train_batch_size": args.train_batch_size,
            "random_seed": self.seed,
            "compute_dtype": args.compute_dtype,
        }

    def train(self, examples, evaluator=None):
        """Trains, from the newest checkpoint if there is one.

        Args:
          examples: an `examples.Examples`.
          evaluator: an `evaluation.Evaluator` of this run, or None.
        """
        say = self.reporter.say
        manager, batch_size = self.manager, self.args.train_batch_size
        batches.check_plan(len(examples), batch_size, self.num_steps)
        checkpoints.check_free(self.folder)
        say(
            pretrained.initialize(
                manager,
                self.optimizer.weights,
                self.config,
                self.start if self.start.values else None,
                body_only=True,
            )
        )
        step = int(self.optimizer.step.numpy())
        checkpoints.check_end(self.folder, step, self.num_steps)
        # Not before: what does not fit must not replace what does.
        self.write_settings(step)
        if evaluator:
            evaluator.catch_up(step)
        if step == self.num_steps:
            say(f"{self.folder} was trained for {step} steps: nothing to do.")
            return
        say(self._describe(examples))
        # Steps of this batch size that would have taken as many examples.
        num_done = self.manifest.count_examples(step) // batch_size
        plan = batches.plan_training(
            examples,
            self.bucket_lengths,
            batch_size,
            num_done + self.num_steps - step,
            self.seed,
        )
        plan = batches.Plan(*(part[num_done:] for part in plan))
        loop.train(
            self.strategy,
            self.model,
            self.optimizer,
            batches.build_datasets(examples, plan),
            plan.lengths,
            num_train_steps=self.num_steps,
            batch_size=batch_size,
            manager=manager,
            reporter=self.reporter,
            save_checkpoints_steps=self.args.save_checkpoints_steps,
            iterations_per_loop=self.args.iterations_per_loop,
            log_every_steps=self.args.log_every_steps,
            seed=self.seed,
            xla=self.args.xla,
            on_checkpoint=evaluator and evaluator.evaluate,
        )

    def _describe(self, examples):
        config, args = self.config, self.args
        lengths = batches.longest_sequences(examples)
        epochs = self.num_steps * args.train_batch_size / len(examples)
        return (
            f"{len(examples)} examples of {lengths.min()} to {lengths.max()} "
            f"tokens (mean {lengths.mean():.0f}), {epochs:.1f} epochs. "
            f"Dropout: hidden {config.hidden_dropout_prob}, attention "
            f"{config.attention_probs_dropout_prob}, classifier "
            f"{classifier_dropout(args)}. Seed {self.seed}."
        )

    def write_settings(self, step):
        """Writes what the run is made of, and what readers need to know.

        Args:
          step: where its training begins or goes on.
        """
        self.manifest.write(step, self.args.train_batch_size)
        path = os.path.join(self.folder, FLAGS_FILE)
        filesystem.write_json(path, dataclasses.asdict(self.args))
        self.write_assets()

    def write_assets(self):
        """Writes config and vocabulary beside the checkpoints."""
        for name, values in (
            (CONFIG_FILE, self.config.to_dict()),
            (tokenization.SETTINGS_FILE, self.start.tokenizer.settings),
        ):
            filesystem.write_json(os.path.join(self.folder, name), values)
        name, content = self.start.vocabulary_file
        filesystem.write_file(os.path.join(self.folder, name), content)

    def predict(self, examples):
        """Returns the model's outputs for examples, in order: [N, ...]."""
        plan = batches.plan_pass(
            examples, self.bucket_lengths, self.args.predict_batch_size
        )
        return evaluation.predict(
            self.strategy,
            self.predict_function,
            batches.build_datasets(examples, plan).values(),
            len(examples),
        )

    def restore_best(self):
        """Restores the best checkpoint, or the newest where none is best.

        Where the folder has none, all weights of the model that flags name
        are taken, the head's too.

        Returns:
          Where the weights are from.
        """
        values, source = self.start.values, self.start.source
        if found := checkpoints.find_trained(self.folder):
            source = found[-1]
            values = checkpoints.read_checkpoint(source)
        checkpoints.restore(self.optimizer.weights, values, source)
        self.source = source
        return source

    def evaluate(self, evaluator):
        """Evaluates every checkpoint of the folder, or the model of the flags.

        Args:
          evaluator: an `evaluation.Evaluator` of this run.
        """
        if checkpoints.list_checkpoints(self.folder):
            evaluator.evaluate_folder()
        else:
            self.reporter.say(f"Evaluates {self.restore_best()}.")
            evaluator.evaluate(0)
