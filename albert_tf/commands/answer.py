r"""Answers questions about a paragraph with a model of run_squad.

    albert answer --init_checkpoint=out/squad \
        --question="Who wrote Dracula?" --paragraph="Dracula is a novel by ..."

The model is a folder of run_squad.py, or a SavedModel from its --export_dir.
Windows of the paragraph are cut as in the fine-tuning, unless a flag says
otherwise.
"""

import dataclasses

from albert_tf.commands import groups
from albert_tf.flags import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerFlags(groups.ModelFlags, groups.WindowFlags):
    """A model, a question and a paragraph."""

    question: str = flag(
        required=True,
        help="Questions about the paragraph, one per line, or in several "
        "flags.",
        has_lines=True,
    )
    max_seq_length: int | None = flag(
        help="Maximum length of question and window together, in tokens. "
        "Default: that of the fine-tuning."
    )
    doc_stride: int | None = flag(
        help="Distance between the starts of consecutive windows, in tokens. "
        "Default: that of the fine-tuning, unless --max_seq_length is given."
    )
    max_query_length: int | None = flag(
        help="Maximum length of a question, in tokens; longer ones are "
        "truncated. Default: as for --doc_stride."
    )
    paragraph: str | None = flag(help="Paragraph with the answers.")
    paragraph_file: str | None = flag(
        help="Text file with the paragraph, instead of --paragraph."
    )
    max_answer_length: int | None = flag(
        help="Maximum length of an answer, in tokens. Default: that of the "
        "fine-tuning.",
        at_least=1,
    )
    n_best_size: int = flag(
        3, "Number of answers to print per question.", at_least=1
    )


COMMAND = "albert_tf.programs.answer", AnswerFlags
