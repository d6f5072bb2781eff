r"""Classifies texts with a fine-tuned model.

    albert classify --init_checkpoint=out --text="A wonderful film."

prints each text and the probabilities of its labels. With --input_file, texts
are the lines of a .txt file, or columns of a .csv, .tsv or .jsonl file. With
--output_file, they are written as JSON lines, or as a table (.csv, .tsv).
"""

import dataclasses

from albert_tf.commands import groups
from albert_tf.flags import flag
from albert_tf.tasks.recipes import ExitSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifyFlags(groups.AnswersFlags):
    """Model and texts, or pairs of texts."""

    ENDINGS = (".jsonl", ".csv", ".tsv")

    next_text: str | None = flag(
        help="Second texts, for a model of pairs, one for each text.",
        has_lines=True,
    )
    input_file: str | None = flag(
        help="File of texts, instead of --text: .txt with one on each line, or "
        ".csv, .tsv or .jsonl with --text_columns."
    )
    text_columns: str = flag(
        "text",
        "Name of the column with the texts, or of two columns with pairs, "
        "separated by a comma.",
    )
    delimiter: str | None = flag(
        help="Character between the fields of a .csv or .tsv --input_file, "
        "such as ';'. Default: a comma or a tab."
    )
    output_file: str | None = flag(
        help="Output file: .jsonl, .csv or .tsv. Default: print the answers."
    )
    exit_threshold: float | None = flag(
        ExitSettings.exit_threshold,
        "Answer after the first layer whose uncertainty is below this; 0 takes "
        "all layers. Default: the one stored with the model.",
        at_least=0,
        at_most=1,
    )

    def check(self):
        if self.next_text and not self.text:
            raise ValueError(
                "--next_text continues --text; of a file, give two "
                "--text_columns."
            )
        if self.delimiter and not self.input_file:
            raise ValueError("--delimiter is for --input_file.")
        names = "delimiter", "text_columns"
        given = [n for n in names if getattr(self, n) != getattr(type(self), n)]
        if given and (self.input_file or "").lower().endswith(".txt"):
            raise ValueError(
                f"--{given[0]} is for tables; a .txt --input_file has one text "
                "on each line. Name a table .csv or .tsv."
            )
        super().check()


COMMAND = "albert_tf.programs.classify", ClassifyFlags
