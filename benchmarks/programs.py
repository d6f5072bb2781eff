"""Runs the programs of this checkout for the pretraining benchmarks."""

import dataclasses
import os
import pathlib
import shlex
import sys

from albert_tf.flags import flag
from albert_tf.lab import digests
from albert_tf.programs import subprograms

ROOT = pathlib.Path(__file__).parent.parent


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFlags:
    """Data and output folder."""

    train_text: str = flag(
        required=True, help="Training text, one sentence per line."
    )
    heldout_text: str = flag(
        required=True, help="Held-out text, one sentence per line."
    )
    spm_model_file: str = flag(required=True, help="SentencePiece model.")
    output_dir: str = flag(required=True, help="Output folder.")


def run(*arguments):
    """Prints and runs a command; exits with its status if it fails."""
    print(shlex.join(["python", *arguments]), flush=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    status = subprograms.run_program(
        [sys.executable, *arguments], env=environment
    )
    if status:
        sys.exit(status)


def make_records(args, text, settings):
    """Creates the records of a text unless they exist; returns their file.

    Their name says what they depend on: the contents of text and vocabulary,
    and the settings.

    Args:
      args: `TextFlags`.
      text: path of the training or held-out text.
      settings: dict from flag of create_pretraining_data.py to value.
    """
    words = [f"{name}{value}" for name, value in settings.items()]
    stem = pathlib.Path(text).stem
    contents = map(digests.digest_file, (text, args.spm_model_file))
    words += [content[:8] for content in contents]
    name = f"{args.output_dir}/records/{stem}-{'-'.join(words)}"
    if not pathlib.Path(f"{name}.dataset.json").exists():
        run(
            str(ROOT / "create_pretraining_data.py"),
            f"--input_file={text}",
            f"--output_file={name}.tfrecord",
            f"--spm_model_file={args.spm_model_file}",
            f"--num_workers={min(os.cpu_count() or 1, 16)}",
            *(f"--{flag}={value}" for flag, value in settings.items()),
        )
    return f"{name}.tfrecord"


def pretrain(args, name, recipe, train, held_out, settings):
    """Pretrains or resumes a model; returns its folder.

    Args:
      args: `TextFlags`.
      name: name of the model's folder in --output_dir.
      recipe: name of a file in configs/pretrain.
      train: settings of the training records, as for `make_records`.
      held_out: settings of the held-out records.
      settings: dict from flag of run_pretraining.py to value; they override
        the recipe.
    """
    records = make_records(args, args.train_text, train)
    scored = make_records(args, args.heldout_text, held_out)
    folder = f"{args.output_dir}/{name}"
    run(
        str(ROOT / "run_pretraining.py"),
        f"--flagfile={ROOT}/configs/pretrain/{recipe}.flags",
        f"--albert_config_file={ROOT}/configs/model/small.json",
        f"--input_file={records}",
        "--do_eval",
        f"--eval_input_file={scored}",
        f"--output_dir={folder}",
        *(f"--{flag}={value}" for flag, value in settings.items()),
    )
    return folder
