r"""Pretrains ALBERT on TFRecords with masked LM and sentence order prediction.

python run_pretraining.py --input_file='data/train*.tfrecord' \
    --eval_input_file=data/valid.tfrecord --do_eval \
    --albert_config_file=configs/model/v2/base.json --output_dir=out
"""

import dataclasses
from typing import Literal

from albert_tf import filesystem, flags
from albert_tf.commands import groups
from albert_tf.data.pretraining import limits
from albert_tf.flags import flag

PROGRAM = "albert_tf.programs.run_pretraining"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingFlags(groups.TrainFlags):
    """The release's flags, followed by those added here."""

    distribution: Literal[
        "auto", "one_device", "mirrored", "multi_worker", "tpu"
    ] = flag(
        "auto",
        "Devices to train on; auto uses all GPUs, or the CPU if there are "
        "none; multi_worker uses several hosts, listed in TF_CONFIG.",
    )
    albert_config_file: str = flag(
        required=True, help="JSON file with the architecture."
    )
    input_file: str | None = flag(
        help="Training records: comma-separated paths or globs."
    )
    max_seq_length: int | None = flag(
        help="Length of a sequence, in tokens. Default: read from the records.",
        at_least=1,
    )
    max_predictions_per_seq: int | None = flag(
        help="Maximum number of masked tokens per sequence. Default: read "
        "from the records. Only dynamic records can have another number.",
        at_least=1,
    )
    do_train: bool = flag(True)
    do_eval: bool = flag(
        False,
        "Whether to evaluate on --eval_input_file: before training and at "
        "each checkpoint. Without --do_train: all existing checkpoints, or "
        "--init_checkpoint if there are none.",
    )
    train_batch_size: int = flag(4096)
    eval_batch_size: int = flag(
        64,
        "Global evaluation batch size, in examples.",
        at_least=1,
        at_most=flags.MAX_BATCH_SIZE,
    )
    optimizer: Literal["adamw", "lamb"] = flag("lamb")
    learning_rate: float | Literal["auto"] = flag(
        0.00176,
        "Peak learning rate. auto: LAMB's rate and warmup for "
        "--train_batch_size, scaled from the paper's 0.00176 at 4096.",
        at_least=0,
    )
    poly_power: float = flag(
        1.0, "Exponent of the polynomial learning rate decay.", at_least=0
    )
    num_train_steps: int = flag(125000, "Number of training steps.", at_least=1)
    num_warmup_steps: int = flag(
        3125, "Number of linear warmup steps.", at_least=0
    )
    start_warmup_step: int = flag(
        0,
        "Step at which warmup starts; the learning rate is 0 before it. "
        "Without --num_warmup_steps it has no effect.",
        at_least=0,
    )
    save_checkpoints_steps: int = flag(5000)
    max_eval_steps: int = flag(
        0,
        "Maximum number of batches to evaluate; 0 evaluates all examples (the "
        "release: 100).",
        at_least=0,
    )
    init_from_group0: bool = flag(
        False,
        "Initialize every group with the weights of group 0 in "
        "--init_checkpoint.",
    )
    masked_lm_budget: float = flag(
        0,
        "Must be 0: the release never implemented it. See --masked_lm_prob.",
        at_least=0,
    )
    eval_input_file: str | None = flag(
        help="Held-out records: comma-separated paths or globs."
    )
    masked_lm_prob: float | None = flag(
        help="Fraction of a sequence's tokens to mask in dynamic training "
        "records. Default: read from the records. Held-out records are always "
        "masked by their own settings, so that results compare.",
        above=0,
        at_most=1,
    )
    ngram: int | None = flag(
        help="Maximum length of a masked n-gram, in words; as "
        "--masked_lm_prob.",
        at_least=1,
        at_most=limits.MAX_NGRAM,
    )
    favor_shorter_ngram: bool | None = flag(
        help="Whether shorter n-grams are more probable; as --masked_lm_prob."
    )
    do_whole_word_mask: bool | None = flag(
        help="Whether to mask whole words; as --masked_lm_prob."
    )
    do_permutation: bool | None = flag(
        help="Whether to also shuffle and predict other n-grams; as "
        "--masked_lm_prob."
    )
    damaged_records: Literal["stop", "skip"] = flag(
        "stop",
        "stop: a damaged record is an error. skip: all records are read "
        "first; the first damaged one of a file and all after it are left "
        "out, which is listed in the log and in run.json.",
    )
    sentence_weight: float | None = flag(
        help="Weight of the sentence loss; 0 trains on masked LM alone. "
        "Default: 1, or 0 for records without a sentence objective.",
        at_least=0,
    )
    beta_2: float = flag(
        0.999,
        "Decay rate of the optimizer's second moment.",
        at_least=0,
        below=1,
    )
    stop_on_divergence: bool = flag(
        True,
        "Whether to stop when much of what was learned is lost or gradients "
        "explode.",
    )
    shuffle_buffer: int = flag(
        100_000,
        "Size of the shuffle buffer, in records.",
        at_least=1,
        at_most=1 << 30,
    )

    def check(self):
        """Raises ValueError if the flags cannot work."""
        groups.check_has_work(self, "do_train", "do_eval")
        if self.do_train and not self.input_file:
            raise ValueError("--do_train needs --input_file.")
        if self.do_eval and not self.eval_input_file:
            # With --do_train, the program warns.
            if not self.do_train:
                raise ValueError(
                    "--do_eval needs --eval_input_file, held-out records. (The "
                    "release evaluated on the training file.)"
                )
        if self.learning_rate == "auto" and self.optimizer != "lamb":
            raise ValueError(
                "--learning_rate=auto is a rule for --optimizer=lamb; give "
                "a number."
            )
        if self.distribution == "multi_worker" and not self.do_train:
            raise ValueError(
                "--distribution=multi_worker needs --do_train; evaluate on "
                "one host."
            )
        for name in ("input_file", "eval_input_file"):
            self.check_reach(name)
        if self.masked_lm_budget:
            raise ValueError(
                "--masked_lm_budget is not implemented, as in the release. To "
                "mask in training, create records with "
                "create_pretraining_data.py --masking=dynamic, and give "
                "--masked_lm_prob."
            )

    def check_reach(self, name):
        """Raises ValueError if a TPU elsewhere cannot read the records."""
        if not self.has_remote_tpu:
            return
        for pattern in filesystem.split_list(getattr(self, name)):
            if not filesystem.is_remote(pattern):
                raise ValueError(
                    f"--{name}={pattern} is a local path; wanted gs://..., as "
                    f"the hosts of the TPU {self.tpu_name!r} read the records. "
                    "(On a TPU VM with one host, give --tpu_name=local.)"
                )


def main():
    """Runs the command."""
    flags.launch(PROGRAM, PretrainingFlags)
