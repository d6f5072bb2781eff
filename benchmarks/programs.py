"""Runs the programs of this checkout, as the benchmarks of pretraining do."""

import dataclasses
import os
import pathlib
import shlex
import sys

from albert_tf.flags import flag
from albert_tf.tools import subprograms

ROOT = pathlib.Path(__file__).parent.parent


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFlags:
    """What is trained on, and where everything goes."""

    train_text: str = flag(required=True, help="Text, one sentence a line.")
    heldout_text: str = flag(required=True, help="Other documents, likewise.")
    spm_model_file: str = flag(required=True, help="SentencePiece model.")
    output_dir: str = flag(required=True, help="Where all of it goes.")


def run(*arguments):
    """Shows and runs one of the programs; ends with it if it fails."""
    print(shlex.join(["python", *arguments]), flush=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    status = subprograms.run_program(
        [sys.executable, *arguments], env=environment
    )
    if status:
        sys.exit(status)


def make_records(args, text, settings):
    """Makes records of a text unless they are there; returns their file.

    Args:
      args: `TextFlags`.
      text: one of their two.
      settings: dict from flag of create_pretraining_data.py to value.
    """
    words = [f"{name}{value}" for name, value in settings.items()]
    stem = pathlib.Path(text).stem
    name = f"{args.output_dir}/records/{stem}-{'-'.join(words)}"
    if not pathlib.Path(f"{name}.dataset.json").exists():
        run(
            str(ROOT / "create_pretraining_data.py"),
            f"--input_file={text}",
            f"--output_file={name}.tfrecord",
            f"--spm_model_file={args.spm_model_file}",
            f"--num_workers={os.cpu_count()}",
            *(f"--{flag}={value}" for flag, value in settings.items()),
        )
    return f"{name}.tfrecord"
