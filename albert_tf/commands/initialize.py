r"""Writes an untrained model that begins on neighbors, for any library.

    albert initialize --albert_config_file=configs/model/small.json \
        --spm_model_file=30k-clean.model --input_file=text.txt \
        --format=hf --to=start

Attention begins on neighboring tokens, as with --initialization=neighbors of
run_pretraining; transformers, KerasHub and the release's scripts can read it.
"""

import dataclasses

from albert_tf import settings
from albert_tf.commands import groups
from albert_tf.flags import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class InitializeFlags(groups.FormatFlags, groups.CasingFlags, groups.TextFlags):
    """Config, vocabulary, and the text whose frequencies the model has."""

    albert_config_file: str = flag(
        required=True, help="JSON file with the architecture."
    )
    spm_model_file: str | None = flag(
        help="SentencePiece model, or a tokenizer.json of one."
    )
    vocab_file: str | None = flag(help="WordPiece vocabulary.")
    input_file: str | None = flag(
        help="UTF-8 text files: comma-separated paths or globs. The model "
        "begins with the frequencies of their pieces, without which models of "
        "many layers may learn nothing. (Without the spaces that "
        "--words_from_spaces of create_pretraining_data removes.)"
    )
    random_seed: int = settings.seed_setting("Seed of the random values.")


COMMAND = "albert_tf.programs.initialize", InitializeFlags
