r"""Tags the words of texts with a fine-tuned model.

    albert tag --init_checkpoint=out --text="Ann Lee lives in Rome."

prints each text and the spans found in it, such as names; or, for a model of
plain tags, each word with its tag. With --output_file, they are written as JSON
lines, with the places of words in characters. Words with tags in a file of
CoNLL's form: run_tagger --predict_file.
"""

import dataclasses
import functools
from typing import Literal

from albert_tf import flags
from albert_tf.commands import groups
from albert_tf.flags import flag
from albert_tf.tasks.recipes import Recipe

PROGRAM = "albert_tf.programs.tag"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TagFlags(groups.ModelFlags):
    """Model and texts."""

    text: str | None = flag(
        help="Texts to tag, one per line, or in several flags.",
        has_lines=True,
    )
    input_file: str | None = flag(
        help="Text file with a text on each line, instead of --text."
    )
    output_file: str | None = flag(
        help="Output file, .jsonl. Default: print the tags."
    )
    max_seq_length: int | None = flag(
        help="Maximum length of a sequence, in tokens; longer texts are "
        "divided into windows. Default: that of the fine-tuning; if it is "
        "unknown 512, or the model's number of positions.",
        at_least=3,
    )
    compute_dtype: Literal["auto", "float32", "bfloat16"] = flag(
        Recipe.compute_dtype,
        "Data type of matrix products, as in training.",
    )

    def check(self):
        """Raises ValueError if flags contradict each other."""
        if bool(self.text) == bool(self.input_file):
            raise ValueError("Give either --text or --input_file.")
        if self.output_file and not self.output_file.endswith(".jsonl"):
            raise ValueError(
                f"--output_file={self.output_file} must end in .jsonl."
            )
        super().check()


main = functools.partial(flags.launch, PROGRAM, TagFlags)
