r"""Exports an encoder and its text preprocessor as TF Hub SavedModels.

python export_to_tfhub.py --albert_directory=albert_base \
    --export_path=hub/albert_en_base
"""

import dataclasses

from albert_tf.commands import groups
from albert_tf.flags import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportFlags(groups.FilesFlags):
    """Model and folder; the release's flags first."""

    albert_directory: str = flag(
        required=True,
        help="Model folder, or anything that --init_checkpoint accepts.",
    )
    checkpoint_name: str = flag(
        "model.ckpt-best",
        "Checkpoint in --albert_directory. If the default does not exist, the "
        "newest one is exported.",
    )
    use_einsum: bool = flag(True, "Ignored: it does not affect results.")
    export_path: str = flag(
        required=True,
        help="Output folder of the encoder, which must not exist; the "
        "preprocessor's folder has the suffix _preprocess.",
    )
    with_preprocessor: bool = flag(
        True, "Whether to export the preprocessor; requires tensorflow-text."
    )
    seq_length: int | None = flag(
        help="Default length of the preprocessor's sequences, in tokens. "
        "Default: 128, or the model's number of positions if that is less.",
        at_least=3,
    )


COMMAND = "albert_tf.programs.export_to_tfhub", ExportFlags
