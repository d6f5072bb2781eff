r"""Tags the words of texts with a fine-tuned model.

    albert tag --init_checkpoint=out --text="Ann Lee lives in Rome."

prints each text and the spans found in it, such as names; or, for a model of
plain tags, each word with its tag. With --output_file, they are written as JSON
lines, with the places of words in characters. Words with tags in a file of
CoNLL's form: run_tagger --predict_file.
"""

import dataclasses

from albert_tf.commands import groups
from albert_tf.flags import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class TagFlags(groups.AnswersFlags):
    """Model and texts."""

    max_seq_length: int | None = flag(
        help="Maximum length of a sequence, in tokens; longer texts are "
        "divided into windows. Default: that of the fine-tuning; if it is "
        "unknown 512, or the model's number of positions."
    )


COMMAND = "albert_tf.programs.tag", TagFlags
