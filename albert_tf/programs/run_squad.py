"""Fine-tunes and evaluates ALBERT on SQuAD 1.1, 2.0 or similar data."""

import os

from albert_tf import settings
from albert_tf.data import examples, squad, windows
from albert_tf.programs import finetuning
from albert_tf.tasks.recipes import AnswerSettings, recall_answers
from albert_tf.tasks.squad import (
    NBEST_FILE,
    NULL_ODDS_FILE,
    PREDICTIONS_FILE,
    Answering,
)


def window_settings(args):
    """Returns the `windows.WindowSettings` given by the flags."""
    return windows.WindowSettings(
        args.max_seq_length, args.doc_stride, args.max_query_length
    )


def encode(args, path, questions, tokenizer, *, is_training):
    """Returns the encoded Examples of a Squad, from the cache if possible."""
    return examples.cached_examples(
        args.cached_dir,
        os.path.basename(path),
        [
            questions.contexts,
            questions.questions,
            tokenizer.settings,
            window_settings(args),
            is_training,
        ],
        lambda: windows.encode_squad(
            questions,
            tokenizer,
            window_settings(args),
            is_training=is_training,
            num_workers=args.num_workers,
        ),
    )


def describe_asked(args, questions):
    """Prints how many questions to predict have no known or no answer."""
    num_unknown = sum(q.answers is None for q in questions)
    num_without = sum(q.answers == () for q in questions)
    if num_unknown:
        print(
            f"{args.predict_file} has no answers for {num_unknown} of "
            f"{len(questions)} questions: it will be answered but not scored."
        )
    elif num_without and args.squad_version == "v1":
        print(
            f"{args.predict_file}: {num_without} of {len(questions)} questions "
            "have no answer. A model of --squad_version=v1 answers all."
        )
    elif num_without == len(questions):
        print(
            f"{args.predict_file}: no question has an answer. A threshold that "
            "is chosen on them lets no question be answered."
        )


def read_task(args, model):
    """Returns the `Answering` with the data that the flags require."""
    windows.check_settings(window_settings(args))
    tokenizer = model.tokenizer
    trained_on = asked = train = encoded = None
    known = recall_answers(model.head)
    usual = AnswerSettings.max_answer_length
    longest = args.max_answer_length or known.get("max_answer_length", usual)
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
        describe_asked(args, asked.questions)
    return Answering(
        args.squad_version,
        window_settings(args),
        train=train,
        num_train=len(trained_on.questions) if trained_on else 0,
        asked=asked,
        encoded=encoded,
        settings=settings.take(AnswerSettings, args, max_answer_length=longest),
    )


def run(args):
    """Trains, evaluates, answers and exports as requested by the flags."""
    names = (PREDICTIONS_FILE, NBEST_FILE, NULL_ODDS_FILE)
    finetuning.check_outputs(args, names)
    finetuning.run(args.choose_steps(), read_task)
