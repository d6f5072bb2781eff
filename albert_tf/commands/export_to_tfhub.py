"""Writes an encoder, and what turns text into its inputs, as for TF Hub.

python export_to_tfhub.py --albert_directory=albert_base \
    --export_path=hub/albert_en_base
"""

import dataclasses

from albert_tf import flags
from albert_tf.flags import flag

PROGRAM = "albert_tf.programs.export_to_tfhub"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportFlags(flags.Flags):
    """The release's flags; what is ours stands last."""

    albert_directory: str = flag(
        required=True,
        help="Model: a folder, or anything that --init_checkpoint takes.",
    )
    checkpoint_name: str = flag(
        "model.ckpt-best",
        "Checkpoint in --albert_directory; where it is not there, the newest.",
    )
    do_lower_case: bool | None = flag(
        help="Whether text is lower-cased. Default: as is stored beside the "
        "vocabulary, else true."
    )
    use_einsum: bool = flag(True, "Ignored: it changed no result.")
    export_path: str = flag(
        required=True,
        help="Folder of the encoder, which must not exist; the preprocessor's "
        "is called the same with _preprocess behind.",
    )
    albert_config_file: str | None = flag(
        help="JSON file with the architecture. Default: the one beside the "
        "checkpoint."
    )
    spm_model_file: str | None = flag(
        help="SentencePiece model. Default: the vocabulary beside the "
        "checkpoint."
    )
    vocab_file: str | None = flag(help="WordPiece vocabulary, likewise.")
    with_preprocessor: bool = flag(
        True, "Whether to write the preprocessor; it needs tensorflow-text."
    )
    seq_length: int = flag(
        128,
        "Tokens of the preprocessor's sequences, unless a caller says.",
        at_least=3,
    )


def main():
    """The command."""
    flags.launch(PROGRAM, ExportFlags)
