"""Answers a question about a paragraph by an exported SavedModel.

    python -m albert_tf.tools.answer --saved_model=out/serving \
        --question="Who wrote Dracula?" --paragraph="Dracula is a novel by ..."

An example of a client: the SavedModel takes ids, and its assets have the
vocabulary; what lies between text and ids is all here.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from albert_tf import export, filesystem, flags, pretrained
from albert_tf.data import answers, examples, squad, windows


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerFlags:
    """A SavedModel, a question and a paragraph."""

    saved_model: str = flags.flag(
        required=True, help="What run_squad.py wrote to its --export_dir."
    )
    question: str = flags.flag(
        required=True, help="Questions about the paragraph, one a line."
    )
    paragraph: str | None = flags.flag(help="The paragraph.")
    paragraph_file: str | None = flags.flag(
        help="Text file with the paragraph, instead."
    )
    n_best_size: int = flags.flag(3, "Answers that are shown.")
    max_answer_length: int = flags.flag(30, "Tokens of the longest answer.")
    max_seq_length: int = flags.flag(
        384, "Tokens of question and window; no more than was exported."
    )
    doc_stride: int = flags.flag(128, "Tokens between beginnings of windows.")
    max_query_length: int = flags.flag(64, "Tokens of a question.")


def run(args):
    """Prints each question and its answers, the best first."""
    if bool(args.paragraph) == bool(args.paragraph_file):
        raise ValueError("Give either --paragraph or --paragraph_file.")
    paragraph = args.paragraph
    if args.paragraph_file:
        content = filesystem.read_file(args.paragraph_file)
        paragraph = content.decode("utf-8")
    settings = windows.WindowSettings(
        args.max_seq_length, args.doc_stride, args.max_query_length
    )
    windows.check_settings(settings)
    for flag_name in ("n_best_size", "max_answer_length"):
        if getattr(args, flag_name) < 1:
            raise ValueError(f"--{flag_name} has to be 1 or more.")
    texts = [line for line in args.question.splitlines() if line.strip()]
    if not texts:
        raise ValueError("There is no question in --question.")
    found, thresholds = ask(
        args.saved_model,
        texts,
        paragraph,
        settings,
        n_best_size=args.n_best_size,
        max_answer_length=args.max_answer_length,
    )
    for number, text in enumerate(texts):
        print(text)
        odds = found.null_odds.get(str(number))
        if odds is not None:
            is_answered = odds < thresholds[0]
            print(
                f"    {'' if is_answered else 'no answer: '}odds of none "
                f"{odds:.2f}, threshold {thresholds[0]:.2f}"
            )
        for entry in found.nbest[str(number)]:
            print(f"    {entry['probability']:4.0%} {entry['text']}")


def ask(
    saved_model, texts, paragraph, settings, *, n_best_size, max_answer_length
):
    """Asks a SavedModel some questions about a paragraph.

    Args:
      saved_model: its folder, or the one with its versions.
      texts: questions.
      paragraph: a string.
      settings: `windows.WindowSettings`.
      n_best_size: answers a question.
      max_answer_length: in tokens.

    Returns:
      `answers.Answers` whose ids are the numbers of the questions from 0, as
      strings; and the SavedModel's thresholds, one a window, or None.

    Raises:
      ValueError: if a paragraph needs longer sequences than were exported, or
        the SavedModel has no vocabulary.
    """
    path = export.newest_version(saved_model)
    tokenizer = pretrained.read_description(f"{path}/assets").tokenizer
    if tokenizer is None:
        raise ValueError(
            f"{path}/assets has no vocabulary. Was it written by run_squad.py?"
        )
    questions = squad.Squad(
        [paragraph],
        [squad.Question(str(i), t, 0, None) for i, t in enumerate(texts)],
    )
    encoded = windows.encode_squad(
        questions, tokenizer, settings, is_training=False
    )
    features = examples.pad_examples(
        encoded, range(len(encoded)), encoded.lengths.max()
    )
    serve = tf.saved_model.load(path).signatures["serving_default"]
    try:
        outputs = serve(
            **{name: tf.constant(features[name]) for name in export.FEATURES}
        )
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(
            f"{path} does not take these sequences of "
            f"{encoded.lengths.max()} tokens: {error.message.splitlines()[0]} "
            "Lower --max_seq_length."
        ) from error
    outputs = {name: np.asarray(value) for name, value in outputs.items()}
    found = answers.find_answers(
        questions,
        encoded,
        outputs,
        n_best_size=n_best_size,
        max_answer_length=max_answer_length,
    )
    return found, outputs.get("threshold")


if __name__ == "__main__":
    flags.launch(run, AnswerFlags)
