r"""Fine-tunes and evaluates ALBERT on SQuAD 1.1, 2.0 or data in their format.

python run_squad.py --flagfile=configs/squad/v2.flags \
    --train_file=train-v2.0.json --predict_file=dev-v2.0.json \
    --init_checkpoint=albert_base_v2 --output_dir=out \
    --do_train --do_predict
"""

import dataclasses
from typing import ClassVar, Literal

from albert_tf.commands import groups
from albert_tf.flags import flag
from albert_tf.tasks.recipes import AnswerSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadFlags(
    groups.WindowFlags, groups.ServingFlags, groups.EpochFlags, AnswerSettings
):
    """Questions of SQuAD; the release's flags first."""

    FILES: ClassVar[dict[str, str]] = {
        "train_file": "do_train",
        "predict_file": "do_predict",
    }

    train_file: str | None = flag(help="JSON file with training data.")
    predict_file: str | None = flag(
        help="JSON file with questions to answer; the predictions are scored "
        "if it contains the answers."
    )
    train_feature_file: str | None = flag(help="Ignored: use --cached_dir.")
    predict_feature_file: str | None = flag(help="Ignored: use --cached_dir.")
    predict_feature_left_file: str | None = flag(
        help="Ignored: use --cached_dir."
    )
    max_answer_length: int | None = flag(  # type: ignore[assignment]
        help="Maximum length of an answer, in tokens. Default: that of the "
        "model, if it was fine-tuned on questions, or else 30."
    )
    do_predict: bool = flag(
        False,
        "Whether to answer --predict_file with the best checkpoint and, if it "
        "contains the answers, to score every checkpoint.",
    )
    use_einsum: bool = flag(True, "Ignored: it does not affect results.")
    dropout_prob: float | None = flag(
        help="The release's name for --classifier_dropout; v2 only, before "
        "the no-answer logit.",
        at_least=0,
        below=1,
    )
    squad_version: Literal["v1", "v2"] = flag(
        "v1",
        "v1: every question has an answer; v2: some have none, which needs a "
        "different head.",
    )
    num_workers: int = flag(
        1, "Number of processes that encode the data.", at_least=1, at_most=256
    )


COMMAND = "albert_tf.programs.run_squad", SquadFlags
