"""Command-line flags made from frozen dataclasses.

A flag is one field: name, type, default, help, and for a number its range. A
subclass changes a default in one line and inherits the rest:

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
import math
import signal
import sys
import threading
import types
import typing
from typing import Literal, NamedTuple

from absl import app, logging
from absl import flags as absl_flags

from albert_tf import errors

# Lets --help list the flags under the script that launched us.
absl_flags.disclaim_key_flags()

MAX_BATCH_SIZE = 1 << 20
# With one more for each of several runs it still has 32 bits.
MAX_SEED = 2_000_000_000

_DEFINE = {
    str: absl_flags.DEFINE_string,
    int: absl_flags.DEFINE_integer,
    float: absl_flags.DEFINE_float,
    bool: absl_flags.DEFINE_bool,
}


class Range(NamedTuple):
    """The numbers that a flag may have; None for no limit on that side."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    def __contains__(self, value):
        return (
            math.isfinite(value)
            and (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )

    def __str__(self):
        return " and ".join(
            f"{name.replace('_', ' ')} {limit}"
            for name, limit in self._asdict().items()
            if limit is not None
        )


def flag(default=None, help=None, *, required=False, **limits):
    """A dataclass field that `launch` turns into a flag.

    Args:
      default: value where the command line says nothing.
      help: meaning and unit, a sentence. Inherited if None.
      required: whether the command line must give it; it has no default then.
      **limits: of a number, as `Range` names them. Inherited if none is given.
    """
    metadata = {"help": help, "range": Range(**limits) if limits else None}
    if required:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """What all classes of flags are: checked when made.

    Raises:
      ValueError: if a number is out of its range, NaN or infinite, a required
        text empty, or a text no UTF-8.
    """

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            name = f"--{_flag_name(field)}"
            if isinstance(value, str):
                _check_text(name, value, _is_required(field))
            elif isinstance(value, int | float) and not isinstance(value, bool):
                limits = _inherited(type(self), field.name, "range")
                if limits is not None and value not in limits:
                    raise ValueError(f"{name}={value}; wanted {limits}.")


def _check_text(name, value, is_required):
    if is_required and not value.strip():
        raise ValueError(f"{name} is empty; wanted a value.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name}={value!r:.80} is not UTF-8.") from None
    if "\0" in value:
        raise ValueError(f"{name}={value!r:.80} holds a character 0.")


class Terminated(KeyboardInterrupt):
    """SIGTERM: whoever keeps work on ctrl-C keeps it then, too."""


def launch(run, flags_class):
    """Parses the command line into `flags_class` and calls `run` with it.

    What `run` returns is dropped: absl would exit with it. An error ends the
    program with what `errors.explain` says of it and exit status 1;
    --verbosity=1 shows where it came from. Ctrl-C ends it with 130, SIGTERM
    with 143, after `run` kept what it could.

    Args:
      run: called with one instance of `flags_class`.
      flags_class: frozen dataclass whose fields were made by `flag`.
    """
    values = absl_flags.FLAGS
    _define(flags_class, values)

    def main(argv):
        _raise_on_sigterm()
        sys.exit(
            _status_of(lambda: run(_parsed(flags_class, values, argv[1:])))
        )

    app.run(main)


def run_command(run, flags_class, words):
    """Does in this process what a command line would; returns exit status.

    Args:
      run: as for `launch`.
      flags_class: likewise.
      words: of the command line, without the program's name.
    """

    def parse_and_run():
        values = absl_flags.FlagValues()
        _define(flags_class, values)
        try:
            _, *stray_words = values(["program", *words])
        except absl_flags.Error as error:
            raise ValueError(str(error)) from error
        run(_parsed(flags_class, values, stray_words))

    return _status_of(parse_and_run)


def _status_of(call):
    """Calls a function; returns exit status, and tells stderr of an error."""
    try:
        call()
    except Terminated:
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:
        if logging.get_verbosity() >= 1:
            raise
        print(
            f"{sys.argv[0]}: {errors.explain(error)}\n(Details: --verbosity=1)",
            file=sys.stderr,
        )
        return 1
    return 0


def _raise_on_sigterm():
    def terminate(signum, frame):
        del frame
        # Once: what is being kept is not broken off by a second one.
        signal.signal(signum, signal.SIG_IGN)
        raise Terminated

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, terminate)


def _define(flags_class, values):
    hints = typing.get_type_hints(flags_class)
    for field in dataclasses.fields(flags_class):
        name = _flag_name(field)
        kind = _without_none(hints[field.name])
        default = None if _is_required(field) else field.default
        text = _inherited_help(flags_class, field.name)
        if limits := _inherited(flags_class, field.name, "range"):
            text += f" Range: {limits}."
        if typing.get_origin(kind) is typing.Literal:
            choices = typing.get_args(kind)
            absl_flags.DEFINE_enum(
                name, default, choices, text, flag_values=values
            )
        else:
            _DEFINE[kind](name, default, text, flag_values=values)


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


def _inherited(flags_class, name, key):
    """What the nearest class in the hierarchy says of a flag, or None."""
    for base in flags_class.__mro__:
        field = getattr(base, "__dataclass_fields__", {}).get(name)
        if field is not None and field.metadata.get(key) is not None:
            return field.metadata[key]
    return None


def _inherited_help(flags_class, name):
    text = _inherited(flags_class, name, "help")
    if not text:
        raise ValueError(f"{flags_class.__name__}.{name} has no help.")
    return text


def _parsed(flags_class, flag_values, stray_words):
    if stray_words:
        # absl reads "--do_train False" as --do_train and a stray word.
        raise ValueError(f"Write --flag=value; got {stray_words}.")
    fields = dataclasses.fields(flags_class)
    values = {f.name: flag_values[_flag_name(f)].value for f in fields}
    missing = [
        f"--{_flag_name(f)} ({_inherited_help(flags_class, f.name)})"
        for f in fields
        if _is_required(f) and values[f.name] is None
    ]
    if missing:
        raise ValueError(f"Please give {', '.join(missing)}; see --help.")
    return flags_class(**values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceFlags(Flags):
    """Where a training runs."""

    use_tpu: bool = flag(False, "Same as --distribution=tpu.")
    tpu_name: str | None = flag(
        help='Name or address of the TPU; "local" on a TPU VM.'
    )
    tpu_zone: str | None = flag(help="Zone of the TPU.")
    gcp_project: str | None = flag(help="Project of the TPU.")
    master: str | None = flag(help="Ignored: address of a TF1 session.")
    num_tpu_cores: int = flag(
        8, "Ignored: the TPU says how many it has.", at_least=0
    )
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
        32,
        "Examples in a training step, in all replicas together.",
        at_least=1,
        at_most=MAX_BATCH_SIZE,
    )
    eval_batch_size: int = flag(
        32,
        "Examples in an evaluation step, in all replicas together.",
        at_least=1,
        at_most=MAX_BATCH_SIZE,
    )
    optimizer: Literal["adamw", "lamb"] = flag("adamw", "Optimizer.")
    learning_rate: float = flag(5e-5, "Peak learning rate.", at_least=0)
    save_checkpoints_steps: int = flag(
        1000, "Steps between checkpoints.", at_least=1
    )
    keep_checkpoint_max: int = flag(
        5,
        "Newest checkpoints kept, beside the best one; 0 keeps all.",
        at_least=0,
    )
    iterations_per_loop: int = flag(
        1000, "Most training steps in one compiled call.", at_least=1
    )
    log_every_steps: int = flag(
        100, "Steps between lines in the log.", at_least=1
    )
    accept_changes: bool = flag(
        False,
        "Go on with the run in output_dir although its data, dropout, "
        "optimizer, batch size or seed were others; see docs/resuming.md.",
    )
    random_seed: int = flag(
        12345,
        "Seed of weights, order and dropout.",
        at_least=0,
        at_most=MAX_SEED,
    )


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
        512,
        "Tokens of the longest sequence; longer ones are cut.",
        at_least=3,
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
        32,
        "Examples in a prediction step, in all replicas together.",
        at_least=1,
        at_most=MAX_BATCH_SIZE,
    )
    train_step: int = flag(1000, "Training steps.", at_least=1)
    warmup_step: int = flag(0, "Steps of linear warmup.", at_least=0)
    num_train_epochs: float | None = flag(
        help="Passes over the training data, instead of --train_step.",
        above=0,
        at_most=100_000,
    )
    warmup_proportion: float | None = flag(
        help="Share of all steps that is warmup, instead of --warmup_step.",
        at_least=0,
        below=1,
    )
    hidden_dropout_prob: float | None = flag(
        help="Dropout of the body's layers. Default: the config's.",
        at_least=0,
        below=1,
    )
    attention_probs_dropout_prob: float | None = flag(
        help="Dropout of attention. Default: the config's.",
        at_least=0,
        below=1,
    )
    classifier_dropout: float = flag(
        0.1,
        "Dropout between the body and the task's output.",
        at_least=0,
        below=1,
    )
    cached_dir: str | None = flag(
        help="Where encoded data is kept, by content. Default: nowhere."
    )
    num_runs: int = flag(
        1,
        "Trainings with other seeds, each in a folder of its own; the report "
        "has their median.",
        at_least=1,
        at_most=1000,
    )
