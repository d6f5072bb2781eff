r"""Fine-tunes and evaluates ALBERT on RACE, DREAM or C3.

python run_race.py --flagfile=configs/race.flags --data_dir=RACE \
    --init_checkpoint=albert_base_v2 --output_dir=out --do_predict
"""

import dataclasses

from albert_tf.commands import groups
from albert_tf.flags import flag
from albert_tf.tasks import recipes


@dataclasses.dataclass(frozen=True, kw_only=True)
class RaceFlags(groups.FineTuningFlags):
    """Questions of RACE; the release's flags first."""

    data_dir: str = flag(
        required=True,
        help="The RACE folder or its parent; its files are "
        "{train,dev,test}/{middle,high}/*.txt. Or a folder of DREAM or C3 with "
        "files such as train.json or c3-d-train.json.",
    )
    task_name: str = flag("race", "Ignored: there is only one task.")
    train_file: str | None = flag(help="Ignored: use --cached_dir.")
    eval_file: str | None = flag(help="Ignored: use --cached_dir.")
    predict_file: str | None = flag(help="Ignored: use --cached_dir.")
    max_qa_length: int | None = flag(
        help="Maximum length of question and option together, in tokens; "
        "longer ones lose their first tokens. Default: 128, or half of a "
        "sequence too short for it.",
        at_least=1,
    )
    num_keep_checkpoint: int = flag(
        5, "Ignored, as in the release: use --keep_checkpoint_max.", at_least=0
    )
    high_only: bool = flag(False, "Use only the high school questions.")
    middle_only: bool = flag(False, "Use only the middle school questions.")
    do_train: bool = flag(True)
    do_eval: bool = flag(
        True,
        "Whether to evaluate on the dev data: at each checkpoint while "
        "training, or all existing checkpoints without --do_train.",
    )
    learning_rate: float = flag(1e-5)
    train_step: int = flag(12000)
    warmup_step: int = flag(1000)
    save_checkpoints_steps: int = flag(
        100, "Number of steps between checkpoints."
    )
    dropout_prob: float | None = flag(
        help="The release's name for --classifier_dropout.", at_least=0, below=1
    )

    def check(self):
        if self.high_only and self.middle_only:
            raise ValueError(
                "--high_only and --middle_only leave no questions. Give one, "
                "or neither for both levels."
            )
        if self.max_seq_length and self.max_qa_length:
            _check_part(self.max_qa_length, self.max_seq_length)
        super().check()

    def fit(self, config):
        """As `WindowFlags.fit`."""
        args = super().fit(config)
        part = recipes.choose_part(
            args.max_qa_length, 128, args.max_seq_length - 3
        )
        _check_part(part, args.max_seq_length)
        return dataclasses.replace(args, max_qa_length=part)


def _check_part(part, length):
    if part > length - 3:
        raise ValueError(
            f"--max_qa_length={part} does not fit into "
            f"--max_seq_length={length} with [CLS] and 2 [SEP]."
        )


COMMAND = "albert_tf.programs.run_race", RaceFlags
