"""Pretrains ALBERT: masked LM and sentence order, from TFRecords.

python run_pretraining.py --input_file='data/train*.tfrecord' \
    --eval_input_file=data/valid.tfrecord --do_eval \
    --albert_config_file=configs/model/v2/base.json --output_dir=out
"""

import dataclasses
import logging
from typing import Literal

from albert_tf import flags
from albert_tf.commands import groups
from albert_tf.flags import flag

PROGRAM = "albert_tf.programs.run_pretraining"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingFlags(groups.TrainFlags):
    """The release's flags; what is ours stands last."""

    albert_config_file: str = flag(
        required=True, help="JSON file with the architecture."
    )
    input_file: str | None = flag(
        help="Training records: comma-separated files or globs."
    )
    max_seq_length: int | None = flag(
        help="Tokens in a record. Default: what the records say.", at_least=1
    )
    max_predictions_per_seq: int | None = flag(
        help="Masked tokens in a record. Default: what the records say.",
        at_least=1,
    )
    do_train: bool = flag(True)
    do_eval: bool = flag(
        False,
        "Whether to evaluate on --eval_input_file: before training, and at "
        "every checkpoint; without --do_train every checkpoint that is there.",
    )
    train_batch_size: int = flag(4096)
    eval_batch_size: int = flag(64)
    optimizer: Literal["adamw", "lamb"] = flag("lamb")
    learning_rate: float = flag(0.00176)
    poly_power: float = flag(1.0, "Exponent of the decay.", at_least=0)
    num_train_steps: int = flag(125000, "Training steps.", at_least=1)
    num_warmup_steps: int = flag(3125, "Steps of linear warmup.", at_least=0)
    start_warmup_step: int = flag(
        0, "Step at which the warmup begins; the rate is 0 before.", at_least=0
    )
    save_checkpoints_steps: int = flag(5000)
    max_eval_steps: int = flag(
        0,
        "Batches evaluated; 0 evaluates every row (the release: 100).",
        at_least=0,
    )
    init_from_group0: bool = flag(
        False, "Begin every group with group 0's weights of init_checkpoint."
    )
    masked_lm_budget: float = flag(
        0,
        "Must be 0: the release never implemented masking while training.",
        at_least=0,
    )
    eval_input_file: str | None = flag(
        help="Held-out records: comma-separated files or globs."
    )
    sentence_weight: float | None = flag(
        help="Factor of the sentence loss; 0 trains on masked LM alone. "
        "Default: 1, or 0 for records made without a sentence objective.",
        at_least=0,
    )
    beta_2: float = flag(
        0.999,
        "Decay of the optimizer's mean of squared gradients.",
        at_least=0,
        below=1,
    )
    shuffle_buffer: int = flag(
        100_000,
        "Records held in memory to shuffle training data.",
        at_least=1,
        at_most=1 << 30,
    )

    def check(self):
        """Refuses what cannot work; warns of what does nothing."""
        groups.check_has_work(self, "do_train", "do_eval")
        if self.do_train and not self.input_file:
            raise ValueError("--do_train needs --input_file.")
        if self.do_eval and not self.eval_input_file:
            if not self.do_train:
                raise ValueError(
                    "--do_eval needs --eval_input_file, held-out records. (The "
                    "release evaluated on the training file.)"
                )
            logging.warning(
                "--do_eval without --eval_input_file: no held-out records are "
                "given, so nothing will be evaluated. (The release evaluated "
                "on the training file.)"
            )
        if self.masked_lm_budget:
            raise ValueError(
                "--masked_lm_budget is not implemented, as in the release; "
                "mask with create_pretraining_data.py."
            )


def main():
    """The command."""
    flags.launch(PROGRAM, PretrainingFlags)
