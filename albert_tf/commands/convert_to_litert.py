r"""Converts an exported SavedModel to LiteRT (TensorFlow Lite).

    albert convert_to_litert \
        --saved_model=hub/albert_en_base --output=albert.tflite --weights=int8

The input is a SavedModel from export_to_tfhub.py, or from the --export_dir of
run_classifier.py or run_squad.py. The output file appears only after its
results have been compared with the SavedModel's.
"""

import dataclasses
from typing import Literal

from albert_tf import flags
from albert_tf.flags import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertFlags(flags.Flags):
    """SavedModel, output file and conversion options."""

    saved_model: str = flag(
        required=True,
        help="SavedModel, or the folder that contains its versions.",
    )
    output: str = flag(required=True, help="Output .tflite file.")
    weights: Literal["float32", "float16", "int8"] = flag(
        "float32",
        "Storage type of the weights; int8 is dynamic-range quantization of "
        "matrices and activations.",
    )
    signature: str | None = flag(
        help="Signature that takes ids. Default: ids if it exists, otherwise "
        "serving_default."
    )
    seq_length: int | None = flag(
        help="Length of each sequence, in tokens; pad shorter ones with mask "
        "0. Default: 128, or the length of the export if that is less.",
        at_least=1,
        at_most=1 << 16,
    )
    batch_size: int = flag(
        1, "Number of sequences per call.", at_least=1, at_most=1 << 16
    )


COMMAND = "albert_tf.programs.convert_to_litert", ConvertFlags
