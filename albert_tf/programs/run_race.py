"""Fine-tunes and evaluates ALBERT on RACE, DREAM or C3."""

import os

from albert_tf import filesystem
from albert_tf.data import dream, examples, race
from albert_tf.programs import finetuning
from albert_tf.tasks.race import MultipleChoice, Part, check_answers

FEW_QUESTIONS = 100


def choose_levels(args):
    """Returns the `race.LEVELS` selected by the flags."""
    if args.high_only:
        return ("high",)
    return ("middle",) if args.middle_only else race.LEVELS


def find_sources(data_dir, part):
    """Returns what there is of a part, the first of which is read.

    Each is a folder in RACE's format or a list of files in DREAM's.
    """
    sources: list = []
    for folder in (os.path.join(data_dir, "RACE"), data_dir):
        path = os.path.join(folder, part)
        if filesystem.list_folder(path):
            sources.append(path)
        if files := dream.find_files(folder, part):
            sources.append(files)
    return sources or [os.path.join(data_dir, part)]


def read_questions(args, part):
    """Returns the questions of a part, in RACE's or DREAM's format."""
    source, *others = find_sources(args.data_dir, part)
    if isinstance(source, str):
        questions = race.read_race(source, choose_levels(args))
    elif args.high_only or args.middle_only:
        raise ValueError(
            f"{source[0]} has no levels as RACE has: omit --high_only and "
            "--middle_only."
        )
    else:
        questions = dream.read_dream(source)
    print(f"{part}: {len(questions):,} questions of {describe(source)}.")
    if others:
        print(f"Not read: {', '.join(map(describe, others))}.")
    return questions


def describe(source):
    """Returns the folder or the files of a source in words."""
    return source if isinstance(source, str) else ", ".join(source)


def read_part(args, part, tokenizer):
    """Returns the `Part` of train, dev or test."""
    questions = read_questions(args, part)
    if part != "test":
        check_answers(part, questions)
    lengths = args.max_seq_length, args.max_qa_length
    encoded = examples.cached_examples(
        args.cached_dir,
        f"race-{part}",
        [questions, tokenizer.settings, lengths],
        lambda: race.encode_race(questions, tokenizer, *lengths),
    )
    return Part(questions, encoded)


def read_task(args, model):
    """Returns the `MultipleChoice` with the data that the flags require."""
    parts = {
        part: read_part(args, part, model.tokenizer)
        for part, is_wanted in (
            ("train", args.do_train),
            ("dev", args.do_eval),
            ("test", args.do_predict),
        )
        if is_wanted
    }
    if args.do_eval and len(parts["dev"].questions) < FEW_QUESTIONS:
        print(
            f"dev has only {len(parts['dev'].questions)} questions: its "
            "accuracy will be imprecise."
        )
    return MultipleChoice(
        parts,
        max_seq_length=args.max_seq_length,
        max_qa_length=args.max_qa_length,
    )


def run(args):
    """Trains, evaluates and predicts as requested by the flags."""
    finetuning.run(args, read_task)
