r"""Adds whole words to a model's vocabulary, such as the terms of a domain.

    albert extend_vocab --from=albert_base_v2.tar.gz \
        --input_file=domain.txt --to=domain_start

adds the words of the text that the vocabulary splits into most pieces. Each
begins with the mean of the weights of these pieces. The output folder has the
model, the vocabulary and the config, to be pretrained further.
"""

import dataclasses

from albert_tf.commands import groups
from albert_tf.flags import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtendVocabFlags(groups.CopyFlags, groups.TextFlags):
    """Model, and the words to add."""

    input_file: str | None = flag(
        help="UTF-8 text files of the domain: comma-separated paths or globs."
    )
    words_file: str | None = flag(
        help="UTF-8 text file with the words to add, one per line, instead of "
        "--input_file."
    )
    num_words: int = flag(
        1000,
        "Maximum number of words of --input_file to add.",
        at_least=1,
        at_most=1_000_000,
    )
    min_count: int = flag(
        10,
        "How often --input_file must have a word for it to be added.",
        at_least=1,
    )


COMMAND = "albert_tf.programs.extend_vocab", ExtendVocabFlags
