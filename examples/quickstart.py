"""Pretrains a tiny ALBERT on English prose, in about 10 minutes.

    make quickstart                                   # in the repository
    python REPOSITORY/examples/quickstart.py          # if it is installed
    python examples/quickstart.py --recipe=hour --text=FILES --output_dir=own

runs the pretraining programs one after another and prints the command line of
each, which you can rerun with other text and sizes. Rerun it to resume: steps
that are complete are skipped.
"""

import dataclasses
import os
import pathlib
import re
import shlex
import sys
from typing import Literal, NamedTuple

from albert_tf import filesystem, flags, settings
from albert_tf.data.pretraining import unfinished
from albert_tf.model.config import AlbertConfig
from albert_tf.programs import subprograms
from albert_tf.reports import plot_metrics
from albert_tf.text.words import find_words

EXAMPLES = pathlib.Path(__file__).parent
ALBERT = ("-m", "albert_tf")
NUM_MASKED_TEXTS = 6
# Chosen before the first training run.
MASKED_TEXTS = """\
It is one of the largest [MASK] in the world.
He was born in the city of New [MASK].
The president of the United [MASK] spoke to the people.
The war between the two [MASK] came to an end.
It is made of water and [MASK].
They lived there for many [MASK]."""
NEXT_STEPS = """
Output in {folder}:
  text/       training and held-out text
  vocab.model vocabulary (vocab.vocab: list of its pieces)
  records/    training examples
  model/      checkpoints, metrics.jsonl, TensorBoard summaries

Next steps:
  try it in a browser   {albert} demo --init_checkpoint={model}
  see how it learned    {albert} report --output_dir={model}
  fine-tune it          {fine_tune}
  train longer          {longer}
{larger}  on your own text      {own}
"""
LARGER = "  or a larger model     {}\n"
# As in README.md, so that its commands continue this run.
FINE_TUNE = (
    "--do_train",
    "--do_eval",
    "--num_train_epochs=3",
    "--learning_rate=3e-4",
    "--warmup_proportion=0.1",
    "--max_seq_length=64",
)


class Recipe(NamedTuple):
    """A model and its records; what is trained how, configs/pretrain says.

    Args:
      config: name of a file in configs/model.
      max_seq_length: tokens in a sequence.
      ngram: most words that are masked together.
      num_predictions: most masked tokens of a sequence, in training and in
        evaluation.
      dupe_factor: how many times the training text is masked.
    """

    config: str
    max_seq_length: int
    ngram: int
    num_predictions: tuple[int, int]
    dupe_factor: int


# By name of a file in configs/pretrain.
RECIPES = {
    "ten_minutes": Recipe("tiny", 64, 1, (26, 10), 4),
    "hour": Recipe("small", 128, 3, (52, 20), 6),
    "night": Recipe("small", 128, 3, (52, 20), 6),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuickstartFlags(flags.Flags):
    """Output folder, text, its vocabulary, and length of training."""

    output_dir: str = flags.flag("quickstart_output", "Output folder.")
    text: str | None = flags.flag(
        help="Your own text instead of English prose: comma-separated paths or "
        "globs of files with one sentence per line and a blank line between "
        "documents, or in another form that create_pretraining_data reads "
        "without flags, such as JSON lines with the key text."
    )
    recipe: Literal["ten_minutes", "hour", "night"] = flags.flag(
        "ten_minutes",
        "How long to train, on two CPU cores: a tiny model, or a small one for "
        "an hour or a night.",
    )
    do_lower_case: bool = flags.flag(True, "Whether to lowercase the text.")
    keep_accents: bool = flags.flag(
        False, "Whether to keep accents and other combining characters."
    )
    vocab_size: int | None = flags.flag(
        help="Number of pieces of the vocabulary. Default: 8,000 for ten "
        "minutes, or else 30,000, for which English needs 15 MB of text.",
        at_least=1,
        at_most=1_000_000,
    )
    num_train_steps: int | None = flags.flag(
        help="Number of training steps. Default: the recipe's.",
        at_least=12,
        at_most=1_000_000_000,
    )
    train_batch_size: int | None = flags.flag(
        help="Number of sequences per training step. Default: the recipe's.",
        at_least=1,
        at_most=settings.MAX_BATCH_SIZE,
    )


CASING = "do_lower_case", "keep_accents"
# Settings of a folder whose note lacks them or has null.
UNNOTED = {"recipe": "ten_minutes"} | {
    name: getattr(QuickstartFlags, name) for name in CASING
}


class Step(NamedTuple):
    """One program of the chain.

    Args:
      title: short description.
      arguments: command line after `python`.
      result: the last file it writes; if it exists, the step is skipped. None
        for a program that itself detects whether it is done.
    """

    title: str
    arguments: list[str]
    result: str | None = None


def run(args):
    """Runs all steps, then prints scores and next steps."""
    folder = as_typed(args.output_dir)
    check_source(folder, args)
    # The name of a folder that exists may have a comma.
    filesystem.make_folder(f"{folder}/records")
    try:
        for step in build_steps(folder, args):
            run_step(step)
    except KeyboardInterrupt:
        print("\nStopped. Rerun the same command to resume.", file=sys.stderr)
        raise
    print(describe_progress(pathlib.Path(folder, "model/metrics.jsonl")))
    print(describe_next_steps(folder, args))


def describe_next_steps(folder, args):
    """Returns `NEXT_STEPS` of what was run."""

    def repeat(**changes):
        values = dataclasses.asdict(dataclasses.replace(args, **changes))
        return shlex.join(
            [
                as_typed(sys.executable),
                as_typed(__file__),
                *(
                    f"--{field.name}={values[field.name]}"
                    for field in dataclasses.fields(args)
                    if values[field.name] != field.default
                ),
            ]
        )

    steps = args.num_train_steps or read_num_steps(args.recipe)
    larger = ""
    if args.recipe == "ten_minutes":
        changes = {"recipe": "hour", "num_train_steps": None}
        larger = LARGER.format(repeat(output_dir="larger", **changes))
    python = as_typed(sys.executable)
    albert = shlex.join([python, *ALBERT])
    return NEXT_STEPS.format(
        folder=folder,
        albert=albert,
        model=shlex.quote(f"{folder}/model"),
        fine_tune=describe_fine_tuning(folder, args, python),
        longer=repeat(output_dir="longer", num_train_steps=3 * steps),
        larger=larger,
        own=repeat(output_dir="own", text="FILES"),
    )


def describe_fine_tuning(folder, args, python):
    """Returns the commands that make a table and fine-tune on it."""
    task, data, name = "TASK.json", "DATA", "task"  # See docs/tasks.md.
    commands = []
    if not args.text:
        configs = as_typed(filesystem.shipped_configs())
        task, name = f"{configs}/tasks/speech_eras.json", "eras"
        data = f"{folder}/speeches"
        script = as_typed(EXAMPLES / "speech_eras.py")
        commands.append([python, script, f"--output_dir={data}"])
    commands.append(
        [
            *(python, *ALBERT, "run_classifier"),
            f"--task_config={task}",
            f"--data_dir={data}",
            f"--init_checkpoint={folder}/model",
            f"--output_dir={folder}/{name}",
            *FINE_TUNE,
        ]
    )
    return f"\n{'':24}".join(map(shlex.join, commands))


def check_source(folder, args):
    """Notes which text is used; other text than before is divided again.

    Args:
      folder: output folder.
      args: `QuickstartFlags`.

    Raises:
      ValueError: if the folder has a vocabulary of other text or settings, or
        another recipe, or if the divided text would replace other files.
    """
    note = f"{folder}/text/source.json"
    divided = [f"{folder}/text/{name}.txt" for name in ("train", "heldout")]
    files = filesystem.expand_files(args.text) if args.text else []
    filesystem.check_outputs({"--output_dir": divided}, {"--text": files})
    source = {
        "text": args.text or "English",
        "fingerprint": unfinished.fingerprint(files),
        "recipe": args.recipe,
        "vocab_size": args.vocab_size or read_config(args.recipe).vocab_size,
        "do_lower_case": args.do_lower_case,
        "keep_accents": args.keep_accents,
    }
    if os.path.exists(note):
        noted = filesystem.read_json(note).items()
        before = UNNOTED | {name: x for name, x in noted if x is not None}
        changes = [
            f"--{name} was {before.get(name)}, is {value}"
            for name, value in source.items()
            if name != "fingerprint" and before.get(name) != value
        ]
        if before["fingerprint"] != source["fingerprint"] and not changes:
            changes = ["the files of --text have changed"]
        if not changes:
            return
        if os.path.exists(f"{folder}/vocab.model"):
            raise ValueError(
                f"{folder} was made with other settings or text: "
                f"{', '.join(changes)}. Give another --output_dir, or remove "
                f"{folder} first."
            )
        for path in divided:
            pathlib.Path(path).unlink(missing_ok=True)
    elif found := next(filter(os.path.exists, divided), None):
        raise ValueError(
            f"{found} already exists, and the quickstart did not write it. "
            "Give another --output_dir."
        )
    filesystem.write_json(note, source)


def build_steps(folder, args):
    """Yields the Steps in order, each when those before it are done.

    Args:
      folder: output folder.
      args: `QuickstartFlags`.
    """
    recipe = RECIPES[args.recipe]
    vocabulary = f"--spm_model_file={folder}/vocab.model"
    config, vocab_size = find_config(folder, args.recipe, args.vocab_size)
    casing = [
        f"--{name}={str(value).lower()}"
        for name in CASING
        if (value := getattr(args, name)) != getattr(QuickstartFlags, name)
    ]
    yield Step(
        "Divide your text" if args.text else "Collect English",
        [
            as_typed(EXAMPLES / "collect_english.py"),
            f"--output_dir={folder}/text",
            *([f"--text={args.text}"] if args.text else []),
        ],
        f"{folder}/text/heldout.txt",
    )
    yield Step(
        "Train a vocabulary",
        [
            *ALBERT,
            "train_vocab",
            f"--input_file={folder}/text/train.txt",
            f"--model_prefix={folder}/vocab",
            f"--vocab_size={vocab_size}",
            *casing,
        ],
        f"{folder}/vocab.model",
    )
    # More masks teach more per step; evaluation uses the usual 15%.
    for name, share, most, dupe_factor in (
        ("train", 0.4, recipe.num_predictions[0], recipe.dupe_factor),
        ("heldout", 0.15, recipe.num_predictions[1], 1),
    ):
        yield build_records_step(
            folder,
            vocabulary,
            name,
            f"--max_seq_length={recipe.max_seq_length}",
            f"--ngram={recipe.ngram}",
            f"--masked_lm_prob={share}",
            f"--max_predictions_per_seq={most}",
            f"--dupe_factor={dupe_factor}",
            *casing,
        )
    configs = filesystem.shipped_configs() / "pretrain"
    yield Step(
        "Pretrain, and evaluate on the held-out text before and after",
        [
            *ALBERT,
            "run_pretraining",
            f"--albert_config_file={config}",
            f"--input_file={folder}/records/train.tfrecord",
            f"--eval_input_file={folder}/records/heldout.tfrecord",
            f"--output_dir={folder}/model",
            "--do_eval",
            f"--flagfile={as_typed(configs / args.recipe)}.flags",
            *list_changes(args),
        ],
    )
    title, texts = "Predict masked words", MASKED_TEXTS
    if args.text:
        held_out = pathlib.Path(folder, "text", "heldout.txt")
        words, texts = mask_words(held_out.read_text("utf-8"))
        title += f" of the held-out text: {', '.join(words)}"
    yield Step(
        title,
        [
            *ALBERT,
            "fill_mask",
            f"--init_checkpoint={folder}/model",
            f"--text={texts}",
        ],
    )


def config_path(recipe):
    """Returns the path of a recipe's shipped model."""
    name = RECIPES[recipe].config
    return filesystem.shipped_configs() / "model" / f"{name}.json"


def read_num_steps(recipe):
    """Returns the number of training steps of a recipe."""
    path = filesystem.shipped_configs() / "pretrain" / f"{recipe}.flags"
    return int(re.findall(r"--num_train_steps=(\d+)", path.read_text())[0])


def read_config(recipe):
    """Returns the AlbertConfig of a recipe's shipped model."""
    return AlbertConfig.from_json_file(config_path(recipe))


def find_config(folder, recipe, vocab_size):
    """Returns the file and vocabulary size of a shipped model, or of a copy.

    A copy has another `vocab_size`; None is the model's own.
    """
    config = read_config(recipe)
    if vocab_size in (None, config.vocab_size):
        return as_typed(config_path(recipe)), config.vocab_size
    copy = f"{folder}/albert_config.json"
    config = dataclasses.replace(config, vocab_size=vocab_size)
    filesystem.write_file(copy, config.to_json_string())
    return copy, vocab_size


def list_changes(args):
    """Returns the flags that replace those of the recipe."""
    changes = []
    if args.train_batch_size:
        changes.append(f"--train_batch_size={args.train_batch_size}")
    if steps := args.num_train_steps:
        changes += [
            f"--num_train_steps={steps}",
            f"--num_warmup_steps={steps // 12}",
            f"--save_checkpoints_steps={-(-steps // 3)}",
        ]
    return changes


def mask_words(text):
    """Returns the longest words of some lines, and the lines with [MASK].

    In scripts without spaces between words, it is a character.
    """
    lines = [line for line in text.splitlines() if len(line) >= 20]
    # Without many spaces, a character may be a token, of at most 128.
    lines = [
        line[: 200 if line.count(" ") > len(line) / 15 else 100]
        for line in lines
    ]
    lines = [line for line in lines if any(map(str.isalpha, line))]
    lines = lines[:: max(1, len(lines) // NUM_MASKED_TEXTS)]
    words, texts = [], []
    for line in lines[:NUM_MASKED_TEXTS]:
        spans = [(a, b) for a, b in find_words(line) if line[a].isalpha()][1:]
        length = max((end - start for start, end in spans), default=len(line))
        spans = [(a, b) for a, b in spans if b - a == length]
        spans = spans or [(0, len(line))]
        start, end = spans[len(spans) // 2 if length == 1 else 0]
        words.append(line[start:end])
        texts.append(f"{line[:start]}[MASK]{line[end:]}")
    return words, "\n".join(texts) or "[MASK]"


def build_records_step(folder, vocabulary, name, *arguments):
    """Returns the Step that writes the records of one of the two texts."""
    return Step(
        f"Create masked sequences from text/{name}.txt",
        [
            *ALBERT,
            "create_pretraining_data",
            f"--input_file={folder}/text/{name}.txt",
            f"--output_file={folder}/records/{name}.tfrecord",
            vocabulary,
            *arguments,
            f"--num_workers={min(os.cpu_count() or 1, 16)}",
        ],
        f"{folder}/records/{name}.dataset.json",
    )


def run_step(step):
    """Prints and runs a program, unless its result exists."""
    print(f"\n=== {step.title}", flush=True)
    if step.result and os.path.exists(step.result):
        print(f"Skipped: {step.result} exists.")
        return
    print(
        shlex.join([as_typed(sys.executable), *step.arguments]) + "\n",
        flush=True,
    )
    # TensorFlow reports an error if it finds no GPU.
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    if subprograms.run_program(
        [sys.executable, *step.arguments], env=environment
    ):
        sys.exit(
            "\nThis step failed, see above. Fix the cause, then rerun the same "
            "command to resume."
        )


def as_typed(path):
    """Returns a path relative to the current folder, if it is below it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def describe_progress(metrics_file):
    """Returns a table of the held-out metrics before and after training.

    Args:
      metrics_file: the metrics.jsonl of `run_pretraining.py`.
    """
    records = plot_metrics.read_records(metrics_file)
    values = [record for record in records if record["split"] == "eval"]
    if not values:
        raise ValueError(f"{metrics_file} contains no evaluation.")
    first, last = values[0], values[-1]
    table = [f"\n{'Held-out text':24}{'before':>9}{'after':>9}"]
    for title, name in (
        ("masked word accuracy", "masked_lm_accuracy"),
        ("sentence order accuracy", "sentence_order_accuracy"),
    ):
        if name in last:
            table.append(f"{title:24}{first[name]:9.1%}{last[name]:9.1%}")
    return "\n".join(table)


def main():
    """Runs the command."""
    flags.launch(run, QuickstartFlags)


if __name__ == "__main__":
    main()
