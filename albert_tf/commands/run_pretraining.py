r"""Pretrains ALBERT on TFRecords with masked LM and sentence order prediction.

python run_pretraining.py --input_file='data/train*.tfrecord' \
    --eval_input_file=data/valid.tfrecord --do_eval \
    --albert_config_file=configs/model/v2/base.json --output_dir=out
"""

import dataclasses
from typing import Literal

from albert_tf import filesystem
from albert_tf.commands import groups
from albert_tf.data.pretraining import rules
from albert_tf.flags import flag
from albert_tf.tasks.recipes import PretrainingRecipe


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingFlags(groups.TrainFlags, PretrainingRecipe):
    """Records, masks, and a PretrainingRecipe."""

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
        at_most=rules.MAX_NGRAM,
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

    def check(self):
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
        self.check_schedule()
        if self.init_checkpoint == "":
            raise ValueError(
                "--init_checkpoint is empty: give a model, or omit the flag to "
                "start from new weights."
            )
        if self.do_train:
            self.check_start(self.init_checkpoint)
        if self.init_from_group0 and not self.init_checkpoint:
            raise ValueError(
                "--init_from_group0 needs --init_checkpoint, the model with "
                "the group. Give both or neither."
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


COMMAND = "albert_tf.programs.run_pretraining", PretrainingFlags
