r"""Measures what each pass through the layers does to real text.

    albert layers --init_checkpoint=out --input_file=text.txt \
        --output_file=layers.html

The text is UTF-8, one sentence per line, with a blank line between documents,
as for create_pretraining_data; its sequences are masked in the same way.
Prints for each pass how far it moves the vectors, where its attention goes,
and how well both pretraining heads work after it. Layers that share all
weights are also run more often than in training. Plots require matplotlib:
pip install matplotlib.
"""

import dataclasses

from albert_tf import settings
from albert_tf.commands import groups
from albert_tf.data.pretraining import rules
from albert_tf.flags import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayersFlags(groups.PageFlags, groups.ModelFlags):
    """Models, text, and how to mask it."""

    input_file: str = flag(
        required=True, help="Text files: comma-separated paths or globs."
    )
    compare: str | None = flag(
        help="Other checkpoints to measure on the same text, comma-separated: "
        "of the same vocabulary. --albert_config_file is only for "
        "--init_checkpoint."
    )
    num_sequences: int = flag(
        256, "Number of sequences to measure with.", at_least=1, at_most=1 << 20
    )
    num_passes: int | None = flag(
        help="Number of passes to run. Default: twice those of training if all "
        "layers share their weights, otherwise those of training.",
        at_least=1,
        at_most=1000,
    )
    max_seq_length: int | None = flag(
        help="Length of a sequence, in tokens. Default: 128, or the least "
        "number of positions of a model if that is less.",
        at_least=5,
        at_most=rules.MAX_SEQ_LENGTH,
    )
    ngram: int = flag(
        rules.MaskingRule.ngram,
        "Maximum length of a masked n-gram, in words.",
        at_least=1,
        at_most=rules.MAX_NGRAM,
    )
    predict_batch_size: int = flag(
        8, "Sequences per batch.", at_least=1, at_most=1024
    )
    random_seed: int = settings.seed_setting("Random seed of masks.")


COMMAND = "albert_tf.lab.layers", LayersFlags
