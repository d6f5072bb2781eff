r"""Compiles the training step of run_pretraining for a TPU, without a TPU.

    albert tpu_check --albert_config_file=configs/model/v2/base.json \
        --topology=v3:2x2 --train_batch_size=256

    albert tpu_check --albert_config_file=configs/model/v2/base.json \
        --topology=v3:2x2 --find_batch

Reports memory, operations and all-reduces, or why the step does not compile.
The first use installs the TPU compiler (jax and libtpu, 1.2 GB) into an
environment of its own. Nothing runs on a TPU.
"""

import dataclasses
from typing import Literal

from albert_tf import flags, settings
from albert_tf.data.pretraining import rules
from albert_tf.flags import flag
from albert_tf.tasks.recipes import PretrainingRecipe


@dataclasses.dataclass(frozen=True, kw_only=True)
class TpuCheckFlags(flags.Flags):
    """The TPU, and the flags of run_pretraining that shape its step."""

    albert_config_file: str = flag(
        required=True, help="JSON file with the architecture."
    )
    topology: str = flag(
        "v3:2x2",
        "TPU generation and number of chips in each direction: v2:2x2 and "
        "v3:2x2 (8 cores), v3:16x16 (512), v4:2x2x1 (8), v5e:2x4 (8), "
        "v5p:2x2x1 (4), v6e:2x4 (8).",
    )
    num_replicas: int | None = flag(
        help="Number of replicas. Default: the cores of the topology.",
        at_least=1,
        at_most=1 << 16,
    )
    train_batch_size: int | None = flag(
        help="Global training batch size, in examples.",
        at_least=1,
        at_most=settings.MAX_BATCH_SIZE,
    )
    find_batch: bool = flag(
        False,
        "Find the largest batch that fits, by compiling several, instead of "
        "checking --train_batch_size.",
    )
    batch_multiple: int = flag(
        8,
        "With --find_batch: the batch of a core is a multiple of this.",
        at_least=1,
        at_most=1 << 12,
    )
    max_seq_length: int | None = flag(
        help="Length of a sequence, in tokens. Default: 512, or the model's "
        "number of positions if that is less.",
        at_least=1,
        at_most=1 << 16,
    )
    max_predictions_per_seq: int = flag(
        rules.MaskingRule.max_predictions,
        "Maximum number of masked tokens per sequence.",
        at_least=1,
        at_most=1 << 16,
    )
    optimizer: settings.OptimizerName = flag(
        PretrainingRecipe.optimizer, "Optimizer."
    )
    compute_dtype: Literal["float32", "bfloat16"] = flag(
        "bfloat16", "Data type of matrix multiplications."
    )
    gradient_accumulation_steps: int = flag(
        PretrainingRecipe.gradient_accumulation_steps,
        "Number of parts of each training batch, computed one after another.",
        at_least=1,
        at_most=settings.MAX_BATCH_SIZE,
    )
    remat: bool = flag(
        PretrainingRecipe.remat,
        "Compute each layer again in the backward pass.",
    )
    min_num_layers: int | None = flag(
        help="Least number of layers that a step draws. Default: all layers.",
        at_least=1,
    )
    num_sampled_pieces: int | None = flag(
        help="Number of pieces among which a step predicts the masked ones, or "
        "as many as a core masks at a time if that is more. Default: all.",
        at_least=1,
    )
    environment: str | None = flag(
        help="Folder for the environment of the TPU compiler. Default: "
        "albert_tf in $XDG_CACHE_HOME, or in ~/.cache."
    )

    def check(self):
        """Checks that there is exactly one kind of work."""
        if self.find_batch == (self.train_batch_size is not None):
            raise ValueError("Give either --train_batch_size or --find_batch.")


COMMAND = "albert_tf.lab.tpu_check", TpuCheckFlags
