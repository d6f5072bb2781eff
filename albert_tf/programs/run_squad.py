"""Fine-tunes and scores ALBERT on SQuAD 1.1, 2.0 and what is written like it.

python run_squad.py --flagfile=configs/squad/v2.flags \
    --train_file=train-v2.0.json --predict_file=dev-v2.0.json \
    --init_checkpoint=albert_base.tar.gz --output_dir=out \
    --do_train --do_predict
"""

import dataclasses
import os
from typing import Literal

from albert_tf import filesystem, flags
from albert_tf.data import examples, squad, windows
from albert_tf.flags import flag
from albert_tf.programs import finetuning, shared_flags
from albert_tf.tasks.squad import (
    NBEST_FILE,
    NULL_ODDS_FILE,
    PREDICTIONS_FILE,
    Answering,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadFlags(shared_flags.FineTuningFlags):
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


def check_flags(args):
    """Refuses what cannot work before anything is loaded."""
    does_export = args.export_dir or args.export_text_dir
    if not (args.do_train or args.do_predict or does_export):
        raise ValueError(
            "Give --do_train, --do_predict or --export_dir: nothing to do."
        )
    for flag_name, is_wanted in (
        ("train_file", args.do_train),
        ("predict_file", args.do_predict),
    ):
        if is_wanted and not getattr(args, flag_name):
            raise ValueError(f"Please give --{flag_name}.")
    windows.check_settings(window_settings(args))


def window_settings(args):
    """Returns the `windows.WindowSettings` of flags."""
    return windows.WindowSettings(
        args.max_seq_length, args.doc_stride, args.max_query_length
    )


def encode(args, path, questions, tokenizer, *, is_training):
    """Returns the Examples of a Squad, from the cache if there is one."""
    return examples.cached_examples(
        args.cached_dir,
        os.path.basename(path),
        examples.cache_key(
            questions.contexts,
            questions.questions,
            tokenizer.settings,
            window_settings(args),
            is_training,
        ),
        lambda: windows.encode_squad(
            questions,
            tokenizer,
            window_settings(args),
            is_training=is_training,
            num_workers=args.num_workers,
        ),
    )


def read_task(args, tokenizer):
    """Returns the `Answering` with the data that flags ask for."""
    trained_on = asked = train = encoded = None
    if args.do_train:
        trained_on = squad.read_squad(args.train_file)
        squad.check_version(trained_on, args.squad_version, args.train_file)
    if args.do_predict:
        asked = squad.read_squad(args.predict_file)
    if trained_on:
        train = encode(
            args, args.train_file, trained_on, tokenizer, is_training=True
        )
    if asked:
        encoded = encode(
            args, args.predict_file, asked, tokenizer, is_training=False
        )
        num_unknown = sum(q.answers is None for q in asked.questions)
        if 0 < num_unknown < len(asked.questions):
            print(
                f"{args.predict_file} does not say the answers of "
                f"{num_unknown} of {len(asked.questions)} questions: it is "
                "answered, not scored."
            )
    return Answering(
        args.squad_version,
        window_settings(args),
        train=train,
        num_train=len(trained_on.questions) if trained_on else 0,
        asked=asked,
        encoded=encoded,
        n_best_size=args.n_best_size,
        max_answer_length=args.max_answer_length,
        start_n_top=args.start_n_top,
        end_n_top=args.end_n_top,
        dropout=finetuning.classifier_dropout(args),
        threshold=args.null_score_diff_threshold,
    )


def run(args):
    """Trains, evaluates, answers and exports as the flags say."""
    check_flags(args)
    inputs = {
        "--train_file": [args.train_file],
        "--predict_file": [args.predict_file],
    }
    names = (PREDICTIONS_FILE, NBEST_FILE, NULL_ODDS_FILE)
    outputs = [os.path.join(args.output_dir, name) for name in names]
    filesystem.check_outputs({"--output_dir": outputs}, inputs)
    if args.train_step is not None:
        args = dataclasses.replace(
            args, num_train_epochs=None, warmup_proportion=None
        )
    finetuning.run(args, read_task)


def main():
    """The command."""
    flags.launch(run, SquadFlags)
