"""Groups of flags that several commands take."""

import dataclasses
import os
from typing import Literal

from albert_tf import flags
from albert_tf.flags import flag

# Flags of fine-tuning that name folders to be written.
FOLDERS = ("cached_dir", "export_dir", "export_text_dir")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceFlags(flags.Flags):
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
    compute_dtype: Literal["auto", "float32", "bfloat16"] = flag(
        "auto",
        "What matrices are multiplied in; weights, norms, softmax and losses "
        "stay float32. auto: bfloat16 where the device has instructions for "
        "it, float32 elsewhere.",
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
        help="Model to begin from: TF1 prefix, .index file, folder or tar, "
        "Hugging Face folder, or preset of KerasHub. Its weights are read only "
        "where output_dir has none."
    )
    do_train: bool = flag(False, "Whether to train.")
    train_batch_size: int = flag(
        32,
        "Examples in a training step, in all replicas together.",
        at_least=1,
        at_most=flags.MAX_BATCH_SIZE,
    )
    eval_batch_size: int = flag(
        32,
        "Examples in an evaluation step, in all replicas together.",
        at_least=1,
        at_most=flags.MAX_BATCH_SIZE,
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
        at_most=flags.MAX_SEED,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilesFlags(flags.Flags):
    """What is not beside a model, or to be replaced."""

    albert_config_file: str | None = flag(
        help="JSON file with the architecture. Default: the one beside the "
        "checkpoint."
    )
    spm_model_file: str | None = flag(
        help="SentencePiece model. Default: the vocabulary beside the "
        "checkpoint."
    )
    vocab_file: str | None = flag(help="WordPiece vocabulary, likewise.")
    do_lower_case: bool = flag(
        True, "Whether to lower-case the text, with a vocabulary given here."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningFlags(FilesFlags, TrainFlags):
    """What every task's script takes."""

    albert_hub_module_handle: str | None = flag(
        help="TF Hub module to begin from, a local folder or tar: the same as "
        "--init_checkpoint."
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
        "Shorter lengths that sequences are padded to in training where all "
        "of a batch fit; empty pads everything to --max_seq_length.",
    )
    do_predict: bool = flag(
        False, "Whether to write predictions, of the best checkpoint."
    )
    predict_batch_size: int | None = flag(
        help="Examples in a prediction step, in all replicas together. "
        "Default: as many as --tokens_per_batch allow.",
        at_least=1,
        at_most=flags.MAX_BATCH_SIZE,
    )
    tokens_per_batch: int = flag(
        4096,
        "Tokens in a prediction step of one replica, with padding.",
        at_least=1,
        at_most=flags.MAX_TOKENS,
    )
    train_step: int | None = flag(1000, "Training steps.", at_least=1)
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

    @property
    def source(self):
        """The model to begin from, by either of its names, or None."""
        return self.init_checkpoint or self.albert_hub_module_handle

    def check(self):
        """Refuses what no task's program can do."""
        if self.init_checkpoint and self.albert_hub_module_handle:
            raise ValueError(
                "Give --init_checkpoint or --albert_hub_module_handle, not "
                "both."
            )
        if self.from_scratch and self.source:
            raise ValueError(
                f"--from_scratch contradicts the model {self.source}."
            )
        if self.from_scratch and not self.do_train:
            raise ValueError(
                "--from_scratch without --do_train: nothing to do."
            )
        for name in FOLDERS:
            path = getattr(self, name, None)
            if path and os.path.isfile(path):
                raise ValueError(f"--{name}={path} is a file; wanted a folder.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointFlags(flags.Flags):
    """A model."""

    init_checkpoint: str = flag(
        required=True,
        help="Model: TF1 prefix, .index file, folder or tar, Hugging Face "
        "folder, or preset of KerasHub.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelFlags(FilesFlags, CheckpointFlags):
    """A model and what is not beside it."""


def check_has_work(args, *names):
    """Refuses flags none of which asks for anything.

    Raises:
      ValueError: if all of the flags so named are off.
    """
    if not any(getattr(args, name) for name in names):
        *first, last = (f"--{name}" for name in names)
        raise ValueError(f"Give {', '.join(first)} or {last}: nothing to do.")
