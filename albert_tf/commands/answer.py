r"""Answers questions about a paragraph with an exported SavedModel.

    albert answer --saved_model=out/serving \
        --question="Who wrote Dracula?" --paragraph="Dracula is a novel by ..."

This is an example client: the SavedModel takes ids, its assets contain the
vocabulary, and the client converts between text and ids.
"""

import dataclasses
import functools

from albert_tf import flags
from albert_tf.commands import groups
from albert_tf.flags import flag
from albert_tf.tasks.recipes import AnswerSettings

PROGRAM = "albert_tf.programs.answer"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerFlags(groups.WindowFlags):
    """A SavedModel, a question and a paragraph."""

    saved_model: str = flag(
        required=True,
        help="SavedModel that run_squad.py wrote to its --export_dir.",
    )
    question: str = flag(
        required=True,
        help="Questions about the paragraph, one per line, or in several "
        "flags.",
        has_lines=True,
    )
    paragraph: str | None = flag(help="Paragraph with the answers.")
    paragraph_file: str | None = flag(
        help="Text file with the paragraph, instead of --paragraph."
    )
    max_answer_length: int = flag(
        AnswerSettings.max_answer_length,
        "Maximum length of an answer, in tokens.",
        at_least=1,
    )
    n_best_size: int = flag(
        3, "Number of answers to print per question.", at_least=1
    )


main = functools.partial(flags.launch, PROGRAM, AnswerFlags)
