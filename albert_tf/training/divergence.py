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
# The losses compared are means over so many predictions. That of one small
# batch is too noisy: with 80 predictions, its deviation is about 1 nat.
NUM_PREDICTIONS = 5000
# What was learned is measured from the mean loss of the first steps.
NUM_FIRST_STEPS = 100
# A gradient norm explodes if it is so many times the median of recent ones,
# several steps in a row: single steps are clipped and do no harm.
EXPLOSION = 100.0
EXPLOSIONS_IN_A_ROW = 10
NUM_RECENT = 50
# In the records of a run: the number of predictions in a mean loss.
PREDICTIONS = "predictions"
ADVICE = (
    "Lower learning_rate, for example to half, or lengthen the warmup, and "
    "rerun with accept_changes=True. The loss was lowest at step {step}: a "
    "checkpoint that is much newer may be damaged, remove it. "
    "(stop_on_divergence=False continues regardless.)"
)


def check_finite(step, values, norms):
    """Raises FloatingPointError if a loss or gradient is NaN or infinite."""
    if not (np.isfinite(values["loss"]) and np.isfinite(norms).all()):
        raise FloatingPointError(
            f"At step {step} the loss is {values['loss']} and the gradient "
            f"norm {values['gradient_norm']}, at learning rate "
            f"{values['learning_rate']:.3g}. Lower the learning rate or "
            "lengthen the warmup; the newest checkpoint predates the "
            "divergence."
        )


class Guard:
    """Detects a loss that relapses, and a gradient norm that explodes.

    It judges single steps, or the mean of enough of them, so that it does not
    matter how many steps a call or a log line has.

    Args:
      is_active: whether to stop such a run; otherwise, only one whose loss is
        not finite.
      loss: name of the loss to judge; "masked_lm_loss" does not depend on
        the weight of the sentence loss.
    """

    def __init__(self, is_active=True, *, loss="loss"):
        self.is_active, self.loss = is_active, loss
        # Sums of the losses of all predictions, and numbers of these.
        self.first, self.window = np.zeros(2), np.zeros(2)
        self.best, self.best_step = math.nan, 0
        self.norms: collections.deque = collections.deque(maxlen=NUM_RECENT)
        self.num_explosions = 0
        self.earlier: list[dict] = []
        self.count = 0.0

    def resume(self, records):
        """Adds the losses of earlier training, dicts with "step" and losses.

        Those without a number of predictions count as many a step as the first
        step that is checked.
        """
        self.earlier = list(records)

    def check(self, step, values, losses, counts, norms):
        """Checks a call of several steps.

        Args:
          step: number of completed steps.
          values: dict of "loss", "gradient_norm" and "learning_rate".
          losses: [steps] the loss to judge, the mean of each step of the call.
          counts: [steps] number of predictions in that mean.
          norms: [steps] gradient norm of each step.

        Raises:
          FloatingPointError: if the run diverges.
        """
        check_finite(step, values, norms)
        self.count += sum(counts)
        if not self.is_active:
            return
        rows = zip(losses, counts, norms, strict=True)
        for at, (loss, count, norm) in enumerate(rows, step - len(losses) + 1):
            self._check_norm(at, norm)
            self._add_earlier(count)
            self._check_loss(at, self._add(at, loss, count))

    def take_count(self):
        """Returns the number of predictions since the last call, to record."""
        count, self.count = self.count, 0.0
        return {PREDICTIONS: float(count)}

    def _add_earlier(self, count):
        """Adds the earlier records, at `count` predictions a step."""
        before = 0
        for record in self.earlier:
            step, loss = record["step"], record[self.loss]
            known = record.get(PREDICTIONS, (step - before) * count)
            self._add(step, loss, known)
            before = step
        self.earlier = []

    def _add(self, step, loss, count):
        """Adds a mean loss; returns that of a window if it completes one."""
        added = np.array([loss * count, count])
        if step <= NUM_FIRST_STEPS or not self.first[1]:
            self.first += added
        self.window += added
        if self.window[1] < NUM_PREDICTIONS:
            return None
        mean = self.window[0] / self.window[1]
        self.window[:] = 0
        if not mean >= self.best:
            self.best, self.best_step = mean, step
        return mean

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

    def _check_loss(self, step, mean):
        if mean is None:
            return
        first = self.first[0] / self.first[1]
        limit = self.best + max(LEAST_RELAPSE, RELAPSE * (first - self.best))
        if mean > limit:
            raise FloatingPointError(
                f"At step {step} the {self.loss} is {mean:.3f}; it had fallen "
                f"from {first:.3f} to {self.best:.3f} at step "
                f"{self.best_step}. The run diverges. "
                + ADVICE.format(step=self.best_step)
            )
