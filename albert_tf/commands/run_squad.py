"""Fine-tunes and scores ALBERT on SQuAD 1.1, 2.0 and what is written like it.

python run_squad.py --flagfile=configs/squad/v2.flags \
    --train_file=train-v2.0.json --predict_file=dev-v2.0.json \
    --init_checkpoint=albert_base.tar.gz --output_dir=out \
    --do_train --do_predict
"""

import dataclasses
from typing import Literal

from albert_tf import flags
from albert_tf.commands import groups
from albert_tf.flags import flag

PROGRAM = "albert_tf.programs.run_squad"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadFlags(groups.FineTuningFlags):
    """The release's flags of both versions; what is ours stands last."""

    train_file: str | None = flag(help="JSON file to train on.")
    predict_file: str | None = flag(
        help="JSON file with questions to answer; scored if it has answers."
    )
    train_feature_file: str | None = flag(
        help="Ignored: encoded data is kept under --cached_dir, by content."
    )
    predict_feature_file: str | None = flag(help="Ignored, likewise.")
    predict_feature_left_file: str | None = flag(help="Ignored, likewise.")
    max_seq_length: int = flag(
        384,
        "Tokens of the longest sequence: question and window.",
    )
    doc_stride: int = flag(
        128,
        "Tokens between the beginnings of a paragraph's windows.",
        at_least=1,
    )
    max_query_length: int = flag(
        64, "Tokens of a question; the rest of it is cut.", at_least=1
    )
    do_predict: bool = flag(
        False,
        "Whether to answer --predict_file: by the best checkpoint, and where "
        "it has answers, to score every checkpoint.",
    )
    num_train_epochs: float | None = flag(
        3.0, "Passes over the questions, unless --train_step is given."
    )
    warmup_proportion: float | None = flag(
        0.1, "Share of all steps that is warmup, unless --train_step is given."
    )
    train_step: int | None = flag(
        help="Training steps, with --warmup_step, instead of epochs."
    )
    n_best_size: int = flag(
        20, "Answers in nbest_predictions.json.", at_least=1, at_most=10_000
    )
    max_answer_length: int = flag(
        30, "Tokens of the longest answer.", at_least=1
    )
    use_einsum: bool = flag(True, "Ignored: it changed no result.")
    start_n_top: int = flag(
        5, "v2: starts of the beam.", at_least=1, at_most=512
    )
    end_n_top: int = flag(
        5, "v2: ends of the beam for each start.", at_least=1, at_most=512
    )
    dropout_prob: float | None = flag(
        help="The release's name of --classifier_dropout: v2, before the "
        "logit that there is no answer.",
        at_least=0,
        below=1,
    )
    export_dir: str | None = flag(
        help="Where a SavedModel of the best checkpoint goes."
    )
    export_text_dir: str | None = flag(
        help="Where a SavedModel that takes questions and paragraphs goes; it "
        "needs tensorflow-text here and where it is loaded."
    )
    squad_version: Literal["v1", "v2"] = flag(
        "v1", "v1: always an answer; v2: maybe none, another head."
    )
    null_score_diff_threshold: float | None = flag(
        help="v2: answers where the odds of none are below it. Default: the "
        "best on --predict_file; without answers there, the one that the "
        "model's folder has.",
        at_least=-1e9,
        at_most=1e9,
    )
    num_workers: int = flag(
        1, "Processes that encode the data.", at_least=1, at_most=256
    )

    def check(self):
        """Refuses what cannot work."""
        if not (self.export_dir or self.export_text_dir):
            groups.check_has_work(self, "do_train", "do_predict", "export_dir")
        for name, is_wanted in (
            ("train_file", self.do_train),
            ("predict_file", self.do_predict),
        ):
            if is_wanted and not getattr(self, name):
                raise ValueError(f"Please give --{name}.")
        super().check()


def main():
    """The command."""
    flags.launch(PROGRAM, SquadFlags)
