"""Answers questions about a paragraph."""

from albert_tf import filesystem
from albert_tf.inference.answerer import Answerer
from albert_tf.programs import models
from albert_tf.tasks.recipes import AnswerSettings, recall_answers


def run(args):
    """Prints each question and its answers, the best first."""
    if bool(args.paragraph) == bool(args.paragraph_file):
        raise ValueError("Give either --paragraph or --paragraph_file.")
    paragraph = args.paragraph
    if args.paragraph_file:
        paragraph = filesystem.decode(
            filesystem.read_file(args.paragraph_file),
            args.paragraph_file,
            "{path} is not UTF-8: {error.reason} at byte {error.start}. Save "
            "it as UTF-8.",
        )
    if not paragraph.strip():
        raise ValueError("The paragraph is empty.")
    texts = models.split_lines(args.question)
    model = models.read_checkpoint(args)
    longest = args.max_answer_length
    given = {"max_answer_length": longest} if longest else {}
    answerer = Answerer(
        model,
        max_seq_length=args.max_seq_length,
        doc_stride=args.doc_stride,
        max_query_length=args.max_query_length,
        settings=AnswerSettings(
            **recall_answers(model.head) | given,
            # In v1, fewer than usual would change the answers.
            n_best_size=max(args.n_best_size, AnswerSettings.n_best_size),
        ),
    )
    answers = answerer([(text, paragraph) for text in texts])
    for text, answer in zip(texts, answers, strict=True):
        print(text)
        if "null_odds" in answer:
            prefix = "" if answer["prediction"] else "no answer: "
            print(
                f"    {prefix}no-answer score {answer['null_odds']:.2f}, "
                f"threshold {answerer.threshold:.2f}"
            )
        for entry in answer["answers"][: args.n_best_size]:
            print(f"    {entry['probability']:4.0%} {entry['text']}")
