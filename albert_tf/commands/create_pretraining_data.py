r"""Converts text to pretraining records with masked n-grams and segment pairs.

The text is UTF-8, one sentence per line, with a blank line between documents.

    python create_pretraining_data.py --input_file='text/*.txt' \
        --output_file=records/train.tfrecord --num_shards=16 --num_workers=8 \
        --spm_model_file=30k-clean.model --max_seq_length=512

With --runner, an Apache Beam pipeline does the work, on one or many machines.
"""

import dataclasses
from typing import Literal

from albert_tf import settings
from albert_tf.commands import groups
from albert_tf.data.pretraining import rules
from albert_tf.flags import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataFlags(
    groups.TextFlags, groups.CasingFlags, rules.SequenceRule, rules.Masks
):
    """Input, output, and number of passes."""

    input_file: str = flag(
        required=True, help="Text files: comma-separated paths or globs."
    )
    output_file: str = flag(
        required=True,
        help="Record files to write, comma-separated; or one name, which "
        "--num_shards expands.",
    )
    num_shards: int = flag(
        1,
        "Number of files to write; if above 1, they are named "
        "NAME-00000-of-NNNNN.tfrecord.",
        at_least=1,
        at_most=rules.MAX_NUM_SHARDS,
    )
    num_workers: int = flag(
        1,
        "Number of processes; it does not change the records. With --runner, "
        "only for the DirectRunner.",
        at_least=1,
        at_most=256,
    )
    runner: str | None = flag(
        help="Runner of Apache Beam (package apache-beam), such as "
        "DirectRunner, DataflowRunner, FlinkRunner or SparkRunner; absent, "
        "this machine does the work without Beam."
    )
    beam_options: str = flag(
        "", "Options of Beam and its runner, such as '--project=x --region=y'."
    )
    spm_model_file: str | None = flag(
        help="SentencePiece model, or a tokenizer.json of one, as for the "
        "English models."
    )
    vocab_file: str | None = flag(
        help="WordPiece vocabulary, as for the Chinese models; ignored if "
        "--spm_model_file is given."
    )
    max_seq_length: int | None = flag(  # type: ignore[assignment]
        help="Maximum length of a sequence, in tokens. Default: 512, or the "
        "number of positions in the albert_config.json next to the vocabulary "
        "if that is less.",
    )
    random_next_sentence: bool = flag(
        False, "The release's name for --sentence_objective=nsp."
    )
    masking: Literal["static", "dynamic"] = flag(
        "static",
        "Whether to mask the records now (static) or in training, anew in "
        "each epoch (dynamic). For dynamic records, --dupe_factor=1 suffices, "
        "and run_pretraining can replace what the flags of masking say.",
    )
    max_predictions_per_seq: int | None = flag(
        help="Maximum number of masked tokens per sequence. Default: "
        f"{rules.MaskingRule.max_predictions}, or --max_seq_length if that is "
        "less.",
        at_least=1,
    )
    words_from_spaces: bool = flag(
        False,
        "Whether spaces divide the words of scripts without spaces between "
        "words, such as Chinese: they are removed, and words between them are "
        "masked as a whole.",
    )
    dupe_factor: int = flag(
        rules.DUPE_FACTOR,
        "Number of passes over each document, each with different masks and "
        "splits.",
        at_least=1,
        at_most=rules.MAX_DUPE_FACTOR,
    )
    random_seed: int = settings.seed_setting("Random seed.")
    progress: bool = flag(True, "Whether to show progress on stderr.")
    input_file_mode: str = flag("r", "Ignored: text is always read as UTF-8.")

    def check(self):
        if self.beam_options and not self.runner:
            raise ValueError(
                "--beam_options are for a pipeline; set --runner, too, such as "
                "--runner=DirectRunner."
            )


COMMAND = "albert_tf.programs.create_pretraining_data", DataFlags
