r"""Classifies texts with a fine-tuned model.

    albert classify --init_checkpoint=out --text="A wonderful film."

prints each text and the probabilities of its labels. With --input_file, texts
are the lines of a .txt file, or columns of a .csv, .tsv or .jsonl file. With
--output_file, they are written as JSON lines, or as a table (.csv, .tsv).
"""

import dataclasses
import functools
from typing import Literal

from albert_tf import flags
from albert_tf.commands import groups
from albert_tf.flags import flag
from albert_tf.tasks.recipes import ExitSettings, Recipe

PROGRAM = "albert_tf.programs.classify"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifyFlags(groups.ModelFlags):
    """Model and texts."""

    text: str | None = flag(
        help="Texts to classify, one per line, or in several flags.",
        has_lines=True,
    )
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
        help="Output file: .jsonl, .csv or .tsv. Default: print them."
    )
    max_seq_length: int | None = flag(
        help="Maximum length of a text or pair, in tokens with [CLS] and "
        "[SEP]; longer ones are truncated. Default: that of the fine-tuning; "
        "if it is unknown 512, or the model's number of positions.",
        at_least=3,
    )
    exit_threshold: float | None = flag(
        ExitSettings.exit_threshold,
        "Answer after the first layer whose uncertainty is below this; 0 takes "
        "all layers. Default: the one stored with the model.",
        at_least=0,
        at_most=1,
    )
    compute_dtype: Literal["auto", "float32", "bfloat16"] = flag(
        Recipe.compute_dtype,
        "Data type of matrix products, as in training.",
    )

    def check(self):
        """Raises ValueError if flags contradict each other."""
        if bool(self.text) == bool(self.input_file):
            raise ValueError("Give either --text or --input_file.")
        if self.next_text and not self.text:
            raise ValueError(
                "--next_text continues --text; of a file, give two "
                "--text_columns."
            )
        if self.delimiter and not self.input_file:
            raise ValueError("--delimiter is for --input_file.")
        endings = (".jsonl", ".csv", ".tsv")
        if self.output_file and not self.output_file.endswith(endings):
            raise ValueError(
                f"--output_file={self.output_file} must end in "
                f"{', '.join(endings)}."
            )
        super().check()


main = functools.partial(flags.launch, PROGRAM, ClassifyFlags)
