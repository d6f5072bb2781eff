"""Command-line flags made from frozen dataclasses.

A flag is one field: name, type, default, help. A subclass changes a default in
one line and inherits the help:

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class RaceFlags(TrainFlags):
        learning_rate: float = flags.flag(1e-5)

    if __name__ == "__main__":
        flags.launch(run, RaceFlags)

Nothing is defined at import, so scripts can be imported side by side, and a
test calls `run(RaceFlags(...))`. Groups of flags that scripts share stand at
the end.
"""

import dataclasses
import signal
import sys
import traceback
import types
import typing
from typing import Literal

from absl import app, logging
from absl import flags as absl_flags

# Lets --help list the flags under the script that launched us.
absl_flags.disclaim_key_flags()

_DEFINE = {
    str: absl_flags.DEFINE_string,
    int: absl_flags.DEFINE_integer,
    float: absl_flags.DEFINE_float,
    bool: absl_flags.DEFINE_bool,
}


def flag(default=None, help=None, *, required=False):
    """A dataclass field that `launch` turns into a flag.

    Args:
      default: value where the command line says nothing.
      help: meaning and unit, a sentence. Inherited if None.
      required: whether the command line must give it; it has no default then.
    """
    metadata = {"help": help}
    if required:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def launch(run, flags_class):
    """Parses the command line into `flags_class` and calls `run` with it.

    What `run` returns is dropped: absl would exit with it. An error that is
    meant for the user ends the program with its message alone; --verbosity=1
    shows where it came from.

    Args:
      run: called with one instance of `flags_class`.
      flags_class: frozen dataclass whose fields were made by `flag`.
    """
    _define(flags_class)

    def main(argv):
        try:
            run(_parsed(flags_class, argv[1:]))
        except KeyboardInterrupt:
            sys.exit(128 + signal.SIGINT)
        except (ValueError, OSError, ImportError, ArithmeticError) as error:
            if logging.get_verbosity() >= 1 or not _is_for_the_user(error):
                raise
            sys.exit(f"{sys.argv[0]}: {error}\n(Details: --verbosity=1)")

    app.run(main)


def _define(flags_class):
    hints = typing.get_type_hints(flags_class)
    for field in dataclasses.fields(flags_class):
        name = _flag_name(field)
        kind = _without_none(hints[field.name])
        default = None if _is_required(field) else field.default
        text = _inherited_help(flags_class, field.name)
        if typing.get_origin(kind) is typing.Literal:
            choices = typing.get_args(kind)
            absl_flags.DEFINE_enum(name, default, choices, text)
        else:
            _DEFINE[kind](name, default, text)


def _flag_name(field):
    """A word that Python keeps for itself has an underscore as a field."""
    return field.name.rstrip("_")


def _without_none(hint):
    """The type T of the annotation `T | None`, or the annotation itself."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = set(typing.get_args(hint)) - {types.NoneType}
    return hint


def _is_required(field):
    return field.default is dataclasses.MISSING


def _inherited_help(flags_class, name):
    """The help of the nearest class in the hierarchy that states one."""
    for base in flags_class.__mro__:
        field = getattr(base, "__dataclass_fields__", {}).get(name)
        if field is not None and field.metadata["help"]:
            return field.metadata["help"]
    raise ValueError(f"{flags_class.__name__}.{name} has no help.")


def _parsed(flags_class, stray_words):
    if stray_words:
        # absl reads "--do_train False" as --do_train and a stray word.
        raise ValueError(f"Write --flag=value; got {stray_words}.")
    fields = dataclasses.fields(flags_class)
    values = {f.name: absl_flags.FLAGS[_flag_name(f)].value for f in fields}
    missing = [
        f"--{_flag_name(f)} ({_inherited_help(flags_class, f.name)})"
        for f in fields
        if _is_required(f) and values[f.name] is None
    ]
    if missing:
        raise ValueError(f"Please give {', '.join(missing)}; see --help.")
    return flags_class(**values)


def _is_for_the_user(error):
    """Whether its message alone helps: a missing file, or raised by us."""
    if isinstance(error, OSError):
        return True
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    module = frame.f_globals["__name__"]
    return module == "__main__" or module.split(".")[0] == "albert_tf"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceFlags:
    """Where a training runs."""

    use_tpu: bool = flag(False, "Same as --distribution=tpu.")
    tpu_name: str | None = flag(
        help='Name or address of the TPU; "local" on a TPU VM.'
    )
    tpu_zone: str | None = flag(help="Zone of the TPU.")
    gcp_project: str | None = flag(help="Project of the TPU.")
    master: str | None = flag(help="Ignored: address of a TF1 session.")
    num_tpu_cores: int = flag(8, "Ignored: the TPU says how many it has.")
    distribution: Literal["auto", "one_device", "mirrored", "tpu"] = flag(
        "auto", "Devices to train on; auto takes all GPUs, or the CPU."
    )
    compute_dtype: Literal["float32", "bfloat16"] = flag(
        "float32",
        "What matrices are multiplied in; weights, norms, softmax and losses "
        "stay float32.",
    )
    xla: bool = flag(False, "Compile the step with XLA: one GPU.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainFlags(DeviceFlags):
    """How long and how fast to train, and what is kept of it."""

    output_dir: str = flag(
        required=True,
        help="Where checkpoints and results go; a run that was stopped goes "
        "on from what is there.",
    )
    init_checkpoint: str | None = flag(
        help="Model to begin from: TF1 prefix, .index file, folder or tar, or "
        "Hugging Face folder. Its weights are read only where output_dir has "
        "none."
    )
    do_train: bool = flag(False, "Whether to train.")
    train_batch_size: int = flag(
        32, "Examples in a training step, in all replicas together."
    )
    eval_batch_size: int = flag(
        32, "Examples in an evaluation step, in all replicas together."
    )
    optimizer: Literal["adamw", "lamb"] = flag("adamw", "Optimizer.")
    learning_rate: float = flag(5e-5, "Peak learning rate.")
    save_checkpoints_steps: int = flag(1000, "Steps between checkpoints.")
    keep_checkpoint_max: int = flag(
        5, "Newest checkpoints kept, beside the best one; 0 keeps all."
    )
    iterations_per_loop: int = flag(
        1000, "Most training steps in one compiled call."
    )
    log_every_steps: int = flag(100, "Steps between lines in the log.")
    random_seed: int = flag(12345, "Seed of weights, order and dropout.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningFlags(TrainFlags):
    """What every task's script takes."""

    albert_config_file: str | None = flag(
        help="JSON file with the architecture. Default: the one beside the "
        "checkpoint."
    )
    albert_hub_module_handle: str | None = flag(
        help="TF Hub module to begin from, a local folder or tar: the same as "
        "--init_checkpoint."
    )
    spm_model_file: str | None = flag(
        help="SentencePiece model. Default: the vocabulary beside the "
        "checkpoint."
    )
    vocab_file: str | None = flag(help="WordPiece vocabulary, likewise.")
    do_lower_case: bool = flag(
        True, "Whether to lower-case the text, with a vocabulary given here."
    )
    from_scratch: bool = flag(
        False, "Begin with random weights; nothing else allows that."
    )
    max_seq_length: int = flag(
        512, "Tokens of the longest sequence; longer ones are cut."
    )
    bucket_lengths: str = flag(
        "32,64,128,256",
        "Shorter lengths that sequences are padded to where all of a batch "
        "fit; empty pads everything to --max_seq_length.",
    )
    do_predict: bool = flag(
        False, "Whether to write predictions, of the best checkpoint."
    )
    predict_batch_size: int = flag(
        32, "Examples in a prediction step, in all replicas together."
    )
    train_step: int = flag(1000, "Training steps.")
    warmup_step: int = flag(0, "Steps of linear warmup.")
    num_train_epochs: float | None = flag(
        help="Passes over the training data, instead of --train_step."
    )
    warmup_proportion: float | None = flag(
        help="Share of all steps that is warmup, instead of --warmup_step."
    )
    hidden_dropout_prob: float | None = flag(
        help="Dropout of the body's layers. Default: the config's."
    )
    attention_probs_dropout_prob: float | None = flag(
        help="Dropout of attention. Default: the config's."
    )
    classifier_dropout: float = flag(
        0.1, "Dropout between the body and the task's output."
    )
    cached_dir: str | None = flag(
        help="Where encoded data is kept, by content. Default: nowhere."
    )
    num_runs: int = flag(
        1,
        "Trainings with other seeds, each in a folder of its own; the report "
        "has their median.",
    )
