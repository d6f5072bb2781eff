"""Stops a pretraining run that diverges, before it replaces good checkpoints.

The loss of a run whose learning rate is too high can return to its first
values and stay there, without becoming NaN. Its later checkpoints would
replace the good ones.
"""

import collections
import math
import statistics

import numpy as np

# A run has diverged if its loss is so far above its best: this share of what
# was learned, and at least so many nats.
RELAPSE = 0.5
LEAST_RELAPSE = 2.0
# A gradient norm explodes if it is so many times the median of recent ones,
# several calls in a row: single steps are clipped and do no harm.
EXPLOSION = 100.0
EXPLOSIONS_IN_A_ROW = 3
NUM_RECENT = 50
ADVICE = (
    "Lower learning_rate, for example to half, or lengthen the warmup, and "
    "rerun with accept_changes=True. The loss was lowest at step {step}: a "
    "checkpoint that is much newer may be damaged, remove it. "
    "(stop_on_divergence=False continues regardless.)"
)


def check_finite(values, step):
    """Raises FloatingPointError if the loss or gradient is NaN or infinite."""
    if not np.isfinite([values["loss"], values["gradient_norm"]]).all():
        raise FloatingPointError(
            f"At step {step} the loss is {values['loss']} and the gradient "
            f"norm {values['gradient_norm']}, at learning rate "
            f"{values['learning_rate']:.3g}. Lower the learning rate or "
            "lengthen the warmup; the newest checkpoint predates the "
            "divergence."
        )


class Guard:
    """Detects a loss that relapses, and a gradient norm that explodes.

    Args:
      is_active: whether to stop such a run; otherwise, only one whose loss is
        not finite.
      loss: name of the loss to judge; "masked_lm_loss" does not depend on
        the weight of the sentence loss.
    """

    def __init__(self, is_active=True, *, loss="loss"):
        self.is_active, self.loss = is_active, loss
        self.first = self.best = math.nan
        self.best_step = 0
        self.norms: collections.deque = collections.deque(maxlen=NUM_RECENT)
        self.num_explosions = 0

    def note_loss(self, step, loss):
        """Adds the mean loss of a window of steps that ends at `step`."""
        if math.isnan(self.first):
            self.first = loss
        if not loss >= self.best:
            self.best, self.best_step = loss, step

    def resume(self, records):
        """Adds the losses of earlier training, dicts with "step" and losses."""
        for record in records:
            self.note_loss(record["step"], record[self.loss])

    def check(self, step, values, is_window):
        """Checks the values of a call of several steps.

        Args:
          step: number of completed steps.
          values: dict from name to float.
          is_window: whether `loss` is to be checked: the mean over a window
            of steps, not the beginning of one.

        Raises:
          FloatingPointError: if the run diverges.
        """
        check_finite(values, step)
        if not self.is_active:
            return
        self._check_norm(step, values["gradient_norm"])
        if is_window:
            self._check_loss(step, values[self.loss])
            self.note_loss(step, values[self.loss])

    def _check_norm(self, step, norm):
        is_explosion = False
        if len(self.norms) == NUM_RECENT:
            median = statistics.median(self.norms)
            is_explosion = norm > EXPLOSION * median
        if not is_explosion:
            self.norms.append(norm)
            self.num_explosions = 0
            return
        self.num_explosions += 1
        if self.num_explosions == EXPLOSIONS_IN_A_ROW:
            raise FloatingPointError(
                f"At step {step} the gradient norm is {norm:.3g}; it was "
                f"{median:.3g} before. The run diverges. "
                + ADVICE.format(step=self.best_step)
            )

    def _check_loss(self, step, loss):
        limit = self.best + max(
            LEAST_RELAPSE, RELAPSE * (self.first - self.best)
        )
        if loss > limit:
            raise FloatingPointError(
                f"At step {step} the {self.loss} is {loss:.3f}; it had fallen "
                f"from {self.first:.3f} to {self.best:.3f} at step "
                f"{self.best_step}. The run diverges. "
                + ADVICE.format(step=self.best_step)
            )
