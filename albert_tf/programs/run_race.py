"""Fine-tunes and scores ALBERT on RACE.

python run_race.py --flagfile=configs/race.flags --data_dir=RACE \
    --init_checkpoint=albert_base.tar.gz --output_dir=out --do_predict
"""

import dataclasses
import os

from albert_tf import filesystem, flags
from albert_tf.data import examples, race
from albert_tf.flags import flag
from albert_tf.programs import finetuning, shared_flags
from albert_tf.tasks.race import MultipleChoice, Part

FEW_QUESTIONS = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class RaceFlags(shared_flags.FineTuningFlags):
    """The release's flags; what is ours stands last."""

    data_dir: str = flag(
        required=True,
        help="Folder RACE, or the one it is in: {train,dev,test}/{middle,high}"
        "/*.txt.",
    )
    task_name: str = flag("race", "Ignored: there is one task.")
    train_file: str | None = flag(
        help="Ignored: encoded data is kept under --cached_dir, by content."
    )
    eval_file: str | None = flag(help="Ignored, likewise.")
    predict_file: str | None = flag(help="Ignored, likewise.")
    max_qa_length: int = flag(
        128,
        "Tokens of question and option; of more the last are kept.",
        at_least=1,
    )
    num_keep_checkpoint: int = flag(
        5,
        "Ignored, as by the release: see --keep_checkpoint_max.",
        at_least=0,
    )
    high_only: bool = flag(False, "Only questions for high schools.")
    middle_only: bool = flag(False, "Only questions for middle schools.")
    do_train: bool = flag(True)
    do_eval: bool = flag(
        True,
        "Whether to evaluate on the dev data: at every checkpoint; without "
        "--do_train every checkpoint that is there.",
    )
    learning_rate: float = flag(1e-5)
    train_step: int = flag(12000)
    warmup_step: int = flag(1000)
    save_checkpoints_steps: int = flag(100)
    dropout_prob: float | None = flag(
        help="The release's name of --classifier_dropout.",
        at_least=0,
        below=1,
    )


def check_flags(args):
    """Refuses what cannot work before anything is loaded."""
    if not (args.do_train or args.do_eval or args.do_predict):
        raise ValueError(
            "Give --do_train, --do_eval or --do_predict: nothing to do."
        )
    if args.high_only and args.middle_only:
        raise ValueError("--high_only and --middle_only leave no questions.")
    if not 1 <= args.max_qa_length <= args.max_seq_length - 3:
        raise ValueError(
            f"--max_qa_length={args.max_qa_length} does not fit into "
            f"--max_seq_length={args.max_seq_length} with [CLS] and 2 [SEP]."
        )


def choose_levels(args):
    """Returns those of `race.LEVELS` that flags want."""
    if args.high_only:
        return ("high",)
    return ("middle",) if args.middle_only else race.LEVELS


def read_part(args, part, tokenizer):
    """Returns the `Part` of train, dev or test."""
    folder = os.path.join(args.data_dir, "RACE")
    if not filesystem.list_folder(folder):
        folder = args.data_dir
    questions = race.read_race(os.path.join(folder, part), choose_levels(args))
    unknown = [q.id for q in questions if q.label is None]
    if unknown and part != "test":
        raise ValueError(
            f"{part} has no answers for {len(unknown)} questions, such as "
            f"{unknown[0]}."
        )
    lengths = args.max_seq_length, args.max_qa_length
    encoded = examples.cached_examples(
        args.cached_dir,
        f"race-{part}",
        examples.cache_key(questions, tokenizer.settings, lengths),
        lambda: race.encode_race(questions, tokenizer, *lengths),
    )
    return Part(questions, encoded)


def read_task(args, tokenizer):
    """Returns the `MultipleChoice` with the data that flags ask for."""
    parts = {
        part: read_part(args, part, tokenizer)
        for part, is_wanted in (
            ("train", args.do_train),
            ("dev", args.do_eval),
            ("test", args.do_predict),
        )
        if is_wanted
    }
    if args.do_eval and len(parts["dev"].questions) < FEW_QUESTIONS:
        print(
            f"Only {len(parts['dev'].questions)} questions: accuracy will be "
            "rough."
        )
    return MultipleChoice(
        parts,
        max_seq_length=args.max_seq_length,
        max_qa_length=args.max_qa_length,
        dropout=finetuning.classifier_dropout(args),
    )


def run(args):
    """Trains, evaluates and predicts as the flags say."""
    check_flags(args)
    finetuning.run(args, read_task)


def main():
    """The command."""
    flags.launch(run, RaceFlags)
