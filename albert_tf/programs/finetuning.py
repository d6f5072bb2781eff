"""The part of the fine-tuning programs that is the same for all tasks.

`args` is a `groups.FineTuningFlags`.
"""

import contextlib
import dataclasses
import os
import time
from typing import NamedTuple

from albert_tf import filesystem, ownership, settings
from albert_tf.export import saved_models
from albert_tf.model.config import AlbertConfig
from albert_tf.programs import models, shared
from albert_tf.reports import card
from albert_tf.tasks import summary
from albert_tf.tasks.ensembles import Ensemble
from albert_tf.tasks.finetuning import FineTuning
from albert_tf.tasks.recipes import Recipe
from albert_tf.weights import pretrained, task_heads, vocabulary_files

# Flags that override dropout rates of the config.
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")


class Start(NamedTuple):
    """Where a run begins: a model, and the config to fine-tune with.

    The model has no values if training starts from random weights or resumes.
    Its head is that of the first run, if that was trained; `head` is its own.
    `others` are the further models of an ensemble.
    """

    model: pretrained.Complete
    config: AlbertConfig
    head: task_heads.TaskHead | None = None
    others: tuple[pretrained.Complete, ...] = ()


def run_folders(args):
    """Returns the output folders of all runs: of a single one, output_dir."""
    if args.num_runs == 1:
        return [args.output_dir]
    numbers = range(1, args.num_runs + 1)
    return [os.path.join(args.output_dir, f"run_{n}") for n in numbers]


def read_start(args):
    """Returns the Start, with matching config and vocabulary."""
    files = vocabulary_files.choose_file(args.spm_model_file, args.vocab_file)
    args = dataclasses.replace(args, vocab_file=files.get("vocab_file"))
    folder, *_ = folders = run_folders(args)
    if args.ensemble:
        return read_ensemble(args)
    are_trained = all(map(task_heads.find_trained, folders))
    model = args.source and pretrained.read_start(args.source, are_trained)
    if not model:
        model = pretrained.read_description(folder)
    model = pretrained.complete(models.replace_files(model, args))
    head = model.head
    if task_heads.find_trained(folder):
        # The run has its own weights: `model` is only where it began.
        model = dataclasses.replace(model, head=task_heads.read_head(folder))
    rates = {name: getattr(args, name) for name in DROPOUTS}
    rates = {name: rate for name, rate in rates.items() if rate is not None}
    return Start(model, dataclasses.replace(model.config, **rates), head)


def read_ensemble(args):
    """Returns the Start of an ensemble, whose models have the same lengths."""
    paths = filesystem.expand_models(args.ensemble)
    if len(paths) < 2:
        raise ValueError(
            f"--ensemble={args.ensemble} names {paths}; wanted two models or "
            "more."
        )
    first, *others = (
        pretrained.complete(models.read_pretrained(path, args))
        for path in paths
    )
    for other in others if args.max_seq_length is None else ():
        theirs, ours = (
            m.head.lengths if m.head else {} for m in (other, first)
        )
        for name in theirs | ours:
            is_chosen = getattr(args, name, name) is not None
            if not is_chosen and theirs.get(name) != ours.get(name):
                raise ValueError(
                    f"{other.source} was fine-tuned with {name}="
                    f"{theirs.get(name)}, {first.source} with "
                    f"{ours.get(name)}. Give --{name}."
                )
    configs = [model.config for model in (first, *others)]
    shortest = min(configs, key=lambda x: x.max_position_embeddings)
    return Start(first, shortest, first.head, tuple(others))


def build_recipe(args, number):
    """Returns the Recipe of run `number`, which has its own seed."""
    changes = {
        "random_seed": args.random_seed + number,
        "warmup_step": args.warmup_step or 0,
    }
    # The release's name, in run_race and run_squad.
    if getattr(args, "dropout_prob", None) is not None:
        changes["classifier_dropout"] = args.dropout_prob
    return settings.take(Recipe, args, **changes)


def recall_lengths(args, head):
    """Returns the flags with lengths of the training for those not given.

    `head` is the `task_heads.TaskHead` of the model, or None. If it is to be
    trained, its lengths are new. If max_seq_length is given, all others are
    chosen to fit it.
    """
    known = head.lengths if head and not args.do_train else {}
    if args.max_seq_length is not None:
        known = {}
    lacking = {
        name: length
        for name, length in known.items()
        if getattr(args, name, length) is None
    }
    return dataclasses.replace(args, **lacking)


def check_start_and_outputs(args):
    """Raises an error if there is no model, or an output cannot be written."""
    shared.check_devices(args)
    has_model = args.source or args.from_scratch
    first = os.path.join(args.output_dir, "run_1")
    has_first = task_heads.find_trained(first)
    is_trained = task_heads.find_trained(args.output_dir)
    if args.ensemble and (has_first or is_trained):
        together = os.path.join(args.output_dir, "ensemble")
        raise ValueError(
            f"{args.output_dir} has a training. For the results of the "
            f"ensemble, give another --output_dir, such as {together}."
        )
    if args.num_runs > 1 and is_trained and not has_first:
        raise ValueError(
            f"{args.output_dir} has a single run. For --num_runs="
            f"{args.num_runs}, give another --output_dir."
        )
    is_new = args.num_runs == 1 and not is_trained
    if has_first and is_new and (args.do_train or not has_model):
        raise ValueError(
            f"{args.output_dir} has several runs. Give --num_runs as in "
            f"training, or one of them, such as --output_dir={first}."
        )
    if not has_model and not task_heads.find_trained(run_folders(args)[0]):
        raise ValueError(
            "No checkpoint to start from: give --init_checkpoint. (To start "
            "from random weights, give --from_scratch.)"
        )
    for folder in (args.cached_dir, *args.exports.values()):
        if folder:
            filesystem.check_can_be_written(os.path.join(folder, "file"))


def check_outputs(args, names, inputs=None):
    """Raises ValueError if an output would overwrite an input.

    Args:
      args: the flags.
      names: names of files that each run writes.
      inputs: as for `filesystem.check_outputs`; by default the flags' files.
    """
    outputs = [os.path.join(f, n) for f in run_folders(args) for n in names]
    files = {f"--{name}": [getattr(args, name)] for name in args.FILES}
    filesystem.check_outputs({"--output_dir": outputs}, inputs or files)


def run(args, read_task):
    """Trains, evaluates, predicts and exports, once per seed.

    `read_task` returns a `tasks.finetuning.Task` with its data, given the args
    and the `pretrained.Complete`.
    """
    check_start_and_outputs(args)
    folders = run_folders(args)
    with contextlib.ExitStack() as owned:
        for folder in dict.fromkeys([args.output_dir, *folders]):
            owned.enter_context(ownership.owning_folder(folder))
        is_text = "text" in args.exports
        if is_text:
            text_serving = shared.import_text_serving("--export_text_dir")
        start = read_start(args)
        args = recall_lengths(args, start.model.head).fit(start.config)
        if is_text:
            text_serving.operations.check_tokenizer(start.model.tokenizer)
        task = read_task(args, start.model)
        began = time.monotonic()
        strategy = shared.build_strategy(args)
        best, outcomes = None, []
        for number in range(args.num_runs):
            tuning, outcome = run_once(args, number, task, start, strategy)
            if best is None or outcome.score > max(o.score for o in outcomes):
                best = tuning
            outcomes.append(outcome)
            # It is as large as the model and its optimizer together.
            del tuning
        if task.is_scored or task.is_predicted:
            seconds = time.monotonic() - began
            text = summary.write(args.output_dir, task, outcomes, seconds)
            if text:
                print(text)
        export(args, task, best)
        for folder in folders:
            card.write_run_card(folder)


def run_once(args, number, task, start, strategy):
    """Performs the run of one seed; returns it and its `summary.Outcome`."""
    folder, model = run_folders(args)[number], start.model
    if model.head is not start.head and not task_heads.find_trained(folder):
        model = dataclasses.replace(model, head=start.head)
    common = {"strategy": strategy, "flags": dataclasses.asdict(args)}
    recipe = build_recipe(args, number)
    if start.others:
        members = [model, *start.others]
        tuning: FineTuning = Ensemble(folder, task, members, recipe, **common)
    else:
        tuning = FineTuning(
            folder, task, model, recipe, config=start.config, **common
        )
    if args.do_train:
        if args.exports and args.export_compact:
            saved_models.check_compact(tuning.model)
        tuning.train()
    else:
        if task.is_scored:
            tuning.evaluate()
        run = tuning.session.manifest
        if task_heads.find_trained(folder) and "task" in run.stored["made_of"]:
            run.write_scored()  # The settings of the training stay.
        else:
            run.write()
    scores = {}
    if task.is_predicted:
        tuning.reporter.say(f"Predicting with {tuning.restore_best()}.")
        scores = task.write_predictions(tuning)
    return tuning, summary.describe_outcome(tuning, scores)


def export(args, task, tuning):
    """Exports a run's best checkpoint as the flags ask."""
    if args.exports:
        tuning.reporter.say(f"Exporting {tuning.restore_best()}.")
    for kind, folder in args.exports.items():
        write = {"ids": task.export, "text": task.export_text}[kind]
        path = write(tuning, folder, is_compact=args.export_compact)
        tuning.reporter.say(f"Exported SavedModel: {path}")
