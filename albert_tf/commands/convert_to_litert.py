"""Converts an exported SavedModel to LiteRT (TensorFlow Lite), for devices.

    albert convert_to_litert \
        --saved_model=hub/albert_en_base --output=albert.tflite --weights=int8

It takes what export_to_tfhub.py writes, and what run_classifier.py and
run_squad.py write to --export_dir. The file is compared with the SavedModel
before it appears.
"""

import dataclasses
from typing import Literal

from albert_tf import flags

PROGRAM = "albert_tf.tools.convert_to_litert"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertFlags(flags.Flags):
    """What is converted, and how its weights are stored."""

    saved_model: str = flags.flag(
        required=True, help="SavedModel, or the folder with its versions."
    )
    output: str = flags.flag(required=True, help="The .tflite file.")
    weights: Literal["float32", "float16", "int8"] = flags.flag(
        "float32",
        "How weights are stored; int8 quantizes matrices, and activations as "
        "they come (dynamic range).",
    )
    signature: str | None = flags.flag(
        help="Signature of ids. Default: ids, else serving_default."
    )
    seq_length: int = flags.flag(
        128,
        "Tokens of each sequence; shorter ones are padded, with mask 0.",
        at_least=1,
        at_most=1 << 16,
    )
    batch_size: int = flags.flag(
        1, "Sequences in a call.", at_least=1, at_most=1 << 16
    )


def main():
    """The command."""
    flags.launch(PROGRAM, ConvertFlags)
