"""Fine-tunes and scores ALBERT on RACE.

python run_race.py --flagfile=configs/race.flags --data_dir=RACE \
    --init_checkpoint=albert_base.tar.gz --output_dir=out --do_predict
"""

import dataclasses
import functools
import os

import numpy as np

from albert_tf import filesystem, flags, ownership
from albert_tf.data import examples, race, submissions
from albert_tf.flags import flag
from albert_tf.metrics import classification
from albert_tf.model import heads
from albert_tf.programs import finetuning, shared_flags, tasks
from albert_tf.training import manifest

METRICS = ("eval_accuracy",)
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
    output_dir: str = flag(required=True)
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
    finetuning.check_flags(args)


def choose_levels(args):
    """Returns those of `race.LEVELS` that flags want."""
    if args.high_only:
        return ("high",)
    return ("middle",) if args.middle_only else race.LEVELS


def read_part(args, part, tokenizer):
    """Returns the questions of train, dev or test, and their Examples."""
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
    return questions, encoded


def score_levels(score, questions, *arrays):
    """Scores all questions, and where there are two levels, each of them.

    Args:
      score: function from arrays of some questions to a dict of scores.
      questions: list of N `race.Question`.
      *arrays: [N, ...] each.

    Returns:
      Dict of scores; those of a level have its name in front.
    """
    values = score(*arrays)
    levels = np.array([question.id.split("/")[0] for question in questions])
    for level in race.LEVELS:
        is_in = levels == level
        if is_in.any() and not is_in.all():
            found = score(*(array[is_in] for array in arrays))
            values |= {f"{level}_{name}": v for name, v in found.items()}
    return values


def score_logits(logits, label_ids):
    """Returns loss and accuracy of logits [N, C]."""
    return classification.score(logits, label_ids, "classes", METRICS)


def score(questions, encoded, baseline, run):
    """Returns what a run's model, as it stands, gets on the dev data."""
    logits = run.predict(encoded)["logits"]
    label_ids = encoded.arrays["label_ids"]
    found = score_levels(score_logits, questions, logits, label_ids)
    tasks.warn_of_collapse(run, logits, label_ids, "classes", found, baseline)
    return found


def write_predictions(questions, encoded, run):
    """Writes an answer for each question; returns scores where they are known.

    `predictions.tsv` has the questions' ids, `test_results.tsv` probabilities.
    """
    logits = run.predict(encoded)["logits"]
    letters = [race.LETTERS[i] for i in logits.argmax(axis=1)]
    path = os.path.join(run.folder, "predictions.tsv")
    submissions.write_submission(path, [q.id for q in questions], letters)
    submissions.write_test_results(
        os.path.join(run.folder, "test_results.tsv"),
        classification.probabilities(logits, "classes"),
    )
    run.reporter.say(f"{len(letters)} answers: {path}")
    label_ids = encoded.arrays["label_ids"]
    if (label_ids < 0).any():
        return {}
    scores = score_levels(score_logits, questions, logits, label_ids)
    run.reporter.say(f"test: {scores}")
    return scores


def run(args):
    """Trains, evaluates and predicts as the flags say."""
    check_flags(args)
    with ownership.owning_folder(args.output_dir):
        run_task(args)


def run_task(args):
    """Does what `run` does, in a folder that nobody else writes to."""
    start = finetuning.read_start(args)
    parts = {
        part: read_part(args, part, start[0].tokenizer)
        for part, is_wanted in (
            ("train", args.do_train),
            ("dev", args.do_eval),
            ("test", args.do_predict),
        )
        if is_wanted
    }
    baseline, train = {}, parts["train"][1] if args.do_train else None
    if args.do_eval:
        questions, encoded = parts["dev"]
        if len(questions) < FEW_QUESTIONS:
            print(f"Only {len(questions)} questions: accuracy will be rough.")
        label_ids = encoded.arrays["label_ids"]
        known = label_ids if train is None else train.arrays["label_ids"]
        baseline = score_levels(
            lambda labels: classification.baseline(
                known, labels, "classes", METRICS
            ),
            questions,
            label_ids,
        )
    task = tasks.Task(
        name="race",
        build_model=functools.partial(
            heads.AlbertMultipleChoice,
            dropout_prob=finetuning.classifier_dropout(args),
        ),
        train=train,
        num_train=len(train or ()),
        score=functools.partial(score, *parts["dev"], baseline)
        if args.do_eval
        else None,
        best_metric="eval_accuracy",
        baseline=baseline,
        predict=functools.partial(write_predictions, *parts["test"])
        if args.do_predict
        else None,
        made_of={
            "task": {"name": "race", "max_qa_length": args.max_qa_length},
            "data": {
                part: manifest.describe_examples(encoded)
                for part, (_, encoded) in parts.items()
            },
        },
    )
    tasks.run_task(args, task, start)


def main():
    """The command."""
    flags.launch(run, RaceFlags)
