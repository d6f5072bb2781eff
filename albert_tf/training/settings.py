"""The settings of a training run, whatever it learns.

The classes of flags inherit them, so this module imports no TensorFlow.
"""

import dataclasses
import math
from typing import NamedTuple

from albert_tf import settings
from albert_tf.settings import setting

# Decay rate of the second moment in the release's optimizers.
BETA_2 = 0.999
# The learning rate of the release: it warms up from step 0 and decays linearly.
START_WARMUP_STEP = 0
POLY_POWER = 1.0
# The release's steps between checkpoints in fine-tuning; and how many
# evaluations show the course of a training that is shorter than ten times that.
CHECKPOINT_STEPS = 1000
NUM_EVALUATIONS = 10


class Schedule(NamedTuple):
    """When training ends, and its learning rate until then.

    Attributes:
      learning_rate: peak learning rate, at the end of warmup.
      num_train_steps: step at which training ends and the rate reaches 0.
      num_warmup_steps: number of warmup steps, from `start_warmup_step` on.
      start_warmup_step: step before which the rate is 0 (the release:
        negative). As in the release, without effect if there is no warmup.
      poly_power: exponent of the polynomial decay.

    Example:
      >>> from albert_tf import build_schedule
      >>> rate = build_schedule(*Schedule(1e-3, 100, num_warmup_steps=10))
      >>> round(float(rate(5)), 6)
      0.0005
    """

    learning_rate: float
    num_train_steps: int
    num_warmup_steps: int = 0
    start_warmup_step: int = START_WARMUP_STEP
    poly_power: float = POLY_POWER

    def check(self):
        """Checks the numbers.

        Raises:
          ValueError: if a number of steps is negative, no step remains after
            warmup, or a rate or exponent is negative or not finite.
        """
        warmup = self.start_warmup_step, self.num_warmup_steps
        if min(warmup) < 0 or sum(warmup) >= self.num_train_steps:
            raise ValueError(
                f"num_train_steps={self.num_train_steps} leaves no step after "
                f"warmup: num_warmup_steps={self.num_warmup_steps}, "
                f"start_warmup_step={self.start_warmup_step}. Set fewer (0 or "
                "more) warmup steps, or train for more steps."
            )
        for name in ("learning_rate", "poly_power"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} is {value}; wanted 0 or more.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(settings.Checked):
    """How to train; `tasks.recipes` has those of each kind of training.

    The docstring of a field is its help.

    Raises:
      ValueError: if a value is out of its range or unknown.

    Example:
      >>> from albert_tf.training.settings import Settings
      >>> Settings(train_batch_size=8, remat=True).optimizer
      'adamw'
    """

    train_batch_size: int = setting(
        32,
        "Global training batch size, in examples.",
        at_least=1,
        at_most=settings.MAX_BATCH_SIZE,
    )
    gradient_accumulation_steps: int = setting(
        1,
        "Number of parts of each training batch, computed one after another "
        "to save memory; without dropout, the update is the same.",
        at_least=1,
        at_most=settings.MAX_BATCH_SIZE,
    )
    remat: bool = setting(
        False,
        "Compute each layer again in the backward pass instead of keeping its "
        "intermediate values, to save memory.",
    )
    xla: bool = setting(
        False, "Compile the training step with XLA; for a single GPU."
    )
    compute_dtype: settings.ComputeDtype = setting(
        "auto",
        "Data type of matrix products; weights, norms, softmax and losses "
        "stay float32. auto: bfloat16 if the device has instructions for it, "
        "otherwise float32.",
    )
    optimizer: settings.OptimizerName = setting(
        "adamw",
        "Optimizer. muon is for pretraining: it learns more from each step, at "
        "twice the rate of adamw.",
    )
    save_checkpoints_steps: int | None = setting(
        help="Number of steps between checkpoints. Default: 1000; a tenth of "
        "the training if that is less and checkpoints are scored.",
        at_least=1,
    )
    keep_checkpoint_max: int = setting(
        5,
        "Number of recent checkpoints to keep, in addition to the best one; 0 "
        "keeps all.",
        at_least=0,
    )
    iterations_per_loop: int = setting(
        1000, "Maximum number of training steps per compiled call.", at_least=1
    )
    log_every_steps: int = setting(
        100, "Number of steps between log lines.", at_least=1
    )
    accept_changes: bool = setting(
        False,
        "Resume the run in output_dir even if its data, dropout, optimizer, "
        "batch size or seed have changed; see docs/resuming.md.",
    )
    random_seed: int = settings.seed_setting(
        "Seed of weight initialization, data order and dropout."
    )

    @property
    def beta_2(self) -> float:
        """Decay rate of the second moment; a field in pretraining."""
        return BETA_2

    def find_interval(self, num_train_steps: int, is_scored: bool) -> int:
        """Returns the number of steps between checkpoints."""
        if self.save_checkpoints_steps is not None:
            return self.save_checkpoints_steps
        if not is_scored:
            return CHECKPOINT_STEPS
        tenth = math.ceil(num_train_steps / NUM_EVALUATIONS)
        return min(CHECKPOINT_STEPS, tenth)


def scale_to_batch(batch_size: int, num_train_steps: int) -> tuple[float, int]:
    """Returns LAMB's learning rate and number of warmup steps for a batch size.

    The rate is proportional to the square root of the batch size: 0.00176 at
    4096, as in the ALBERT paper. The share of warmup steps is proportional to
    the batch size: 1/40 at 4096, as in the ALBERT paper, with 3125 of 125,000.

    Source: You et al., "Large Batch Optimization for Deep Learning" (ICLR
    2020), Table 4: 5 / (2^1.5 * 10^3) and 1/40 at 4096. Its shares range from
    1/320 at 512 to 1/5 at 32k; beyond, these are used.
    """
    ratio = batch_size / 4096
    share = min(max(ratio / 40, 1 / 320), 1 / 5)
    return 0.00176 * math.sqrt(ratio), round(share * num_train_steps)
