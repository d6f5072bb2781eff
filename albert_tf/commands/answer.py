"""Answers a question about a paragraph by an exported SavedModel.

    albert answer --saved_model=out/serving \
        --question="Who wrote Dracula?" --paragraph="Dracula is a novel by ..."

An example of a client: the SavedModel takes ids, and its assets have the
vocabulary; what lies between text and ids is all here.
"""

import dataclasses

from albert_tf import flags

PROGRAM = "albert_tf.tools.answer"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerFlags(flags.Flags):
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
    n_best_size: int = flags.flag(3, "Answers that are shown.", at_least=1)
    max_answer_length: int = flags.flag(
        30, "Tokens of the longest answer.", at_least=1
    )
    max_seq_length: int = flags.flag(
        384,
        "Tokens of question and window; no more than was exported.",
        at_least=5,
    )
    doc_stride: int = flags.flag(
        128, "Tokens between beginnings of windows.", at_least=1
    )
    max_query_length: int = flags.flag(64, "Tokens of a question.", at_least=1)


def main():
    """The command."""
    flags.launch(PROGRAM, AnswerFlags)
