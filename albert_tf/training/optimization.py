"""The release's learning-rate schedule, AdamW and LAMB on plain variables.

Both optimizers are Adam without bias correction; LAMB scales each variable's
update to the variable's norm. `keras.optimizers.AdamW` and `Lamb` correct the
bias, match names differently and, for LAMB, decay elsewhere: see
docs/porting.md.
"""

import math
import re

import tensorflow as tf

# The release searches these patterns in a variable's canonical name. The
# variables found are neither decayed nor, in LAMB, scaled.
EXCLUDED = re.compile("LayerNorm|layer_norm|bias")


def build_schedule(
    learning_rate,
    num_train_steps,
    num_warmup_steps=0,
    *,
    start_warmup_step=0,
    poly_power=1.0,
):
    """Returns the release's learning rate as a function of the step.

    The warmup is linear from 0; the decay runs from step 0, not from the end
    of the warmup, so the rate drops a little there. Step t uses the rate of t.

    Args:
      learning_rate: peak of the warmup.
      num_train_steps: steps after which the rate is 0.
      num_warmup_steps: steps of warmup, counted from start_warmup_step.
      start_warmup_step: the rate is 0 before it (the release: negative).
      poly_power: exponent of the decay.

    Returns:
      A function from an integer scalar to a float32 scalar.

    Raises:
      ValueError: if a number of steps is negative, none is left behind the
        warmup, or a rate or exponent is negative or not finite.

    Source: optimization.py, `create_optimizer`.
    """
    num_before = start_warmup_step + num_warmup_steps
    if (
        min(num_warmup_steps, start_warmup_step) < 0
        or num_before >= num_train_steps
    ):
        raise ValueError(
            f"num_train_steps {num_train_steps} must be more than "
            f"start_warmup_step {start_warmup_step} and num_warmup_steps "
            f"{num_warmup_steps} together, and neither may be negative."
        )
    for name, value in (
        ("learning_rate", learning_rate),
        ("poly_power", poly_power),
    ):
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} is {value}; wanted 0 or more.")

    def schedule(step):
        step = tf.cast(step, tf.float32)
        done = tf.minimum(step, num_train_steps) / num_train_steps
        decayed = learning_rate * (1.0 - done) ** poly_power
        if not num_warmup_steps:
            return decayed
        warmed = step - start_warmup_step
        rate = learning_rate * tf.maximum(warmed, 0.0) / num_warmup_steps
        return tf.where(warmed < num_warmup_steps, rate, decayed)

    return schedule


def clip_by_global_norm(gradients, clip_norm=1.0):
    """Scales gradients down to a joint norm.

    Args:
      gradients: dense tensors. tf.IndexedSlices would count a repeated row as
        several, as the release's fine-tuning does.
      clip_norm: largest norm allowed.

    Returns:
      The scaled gradients and the norm before, a float32 scalar.
    """
    norm = tf.linalg.global_norm(gradients)
    scale = clip_norm / tf.maximum(norm, clip_norm)
    return [g * scale for g in gradients], norm


class Optimizer:
    """AdamW or, with `scale_to_weights`, LAMB.

    Create it in the scope of the distribution strategy. `slots` are its
    variables by name, `<weight>/adam_m` and `<weight>/adam_v`; `step` counts
    the updates.

    Args:
      weights: dict from canonical name to tf.Variable.
      schedule: function from step to learning rate.
      scale_to_weights: whether each update is scaled by |weight| / |update|.
      weight_decay: added to the update as weight_decay * weight.
      beta_1: decay of the mean of gradients.
      beta_2: decay of the mean of squared gradients.
      epsilon: added to the root of the second.

    Source: optimization.py, `AdamWeightDecayOptimizer`; lamb_optimizer.py,
    `LAMBOptimizer`.
    """

    def __init__(
        self,
        weights,
        schedule,
        *,
        scale_to_weights,
        weight_decay=0.01,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-6,
    ):
        self.weights = dict(weights)
        self.schedule = schedule
        self.scale_to_weights = scale_to_weights
        self.weight_decay = weight_decay
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self.slots = {
            f"{name}/{slot}": self.add_slot(weight)
            for name, weight in self.weights.items()
            for slot in ("adam_m", "adam_v")
        }
        self.step = tf.Variable(
            0,
            trainable=False,
            dtype=tf.int64,
            name="global_step",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def add_slot(self, weight):
        strategy = tf.distribute.get_strategy()
        with strategy.extended.colocate_vars_with(weight):
            return tf.Variable(tf.zeros(weight.shape), trainable=False)

    def apply(self, gradients):
        """Does one step: updates weights, at the step's rate, and counts it.

        Call it in a replica, with equal gradients in all of them.

        Args:
          gradients: dict from canonical name to a dense float32 tensor,
            already summed over replicas and clipped. A weight without one
            stays as it is.

        Returns:
          The learning rate, a float32 scalar.
        """
        learning_rate = tf.convert_to_tensor(
            self.schedule(self.step.value()), tf.float32
        )
        tf.distribute.get_replica_context().merge_call(
            self.update_all, args=(gradients, learning_rate)
        )
        return learning_rate

    def update_all(self, strategy, gradients, learning_rate):
        for name, gradient in gradients.items():
            update = self.update_decayed
            if EXCLUDED.search(name):
                update = self.update_excluded
            strategy.extended.update(
                self.weights[name],
                update,
                args=(
                    gradient,
                    self.slots[f"{name}/adam_m"],
                    self.slots[f"{name}/adam_v"],
                    learning_rate,
                ),
                group=False,
            )
        self.step.assign_add(1)

    def direction(self, gradient, m, v):
        """Advances both moments; returns m / (sqrt(v) + epsilon)."""
        m_next = m.assign(self.beta_1 * m + (1 - self.beta_1) * gradient)
        v_next = v.assign(
            self.beta_2 * v + (1 - self.beta_2) * tf.square(gradient)
        )
        return m_next / (tf.sqrt(v_next) + self.epsilon)

    def update_excluded(self, weight, gradient, m, v, learning_rate):
        weight.assign_sub(learning_rate * self.direction(gradient, m, v))

    def update_decayed(self, weight, gradient, m, v, learning_rate):
        update = self.direction(gradient, m, v) + self.weight_decay * weight
        if self.scale_to_weights:
            update *= trust_ratio(tf.norm(weight), tf.norm(update))
        weight.assign_sub(learning_rate * update)


def trust_ratio(weight_norm, update_norm):
    """Returns weight_norm / update_norm, or 1 where either is 0."""
    is_defined = (weight_norm > 0) & (update_norm > 0)
    return tf.where(
        is_defined,
        weight_norm / tf.where(is_defined, update_norm, 1.0),
        1.0,
    )


def build_optimizer(name, weights, schedule, **kwargs):
    """Returns the optimizer "adamw" or "lamb"; the rest as for `Optimizer`.

    Raises:
      ValueError: if the name is another.
    """
    if name not in ("adamw", "lamb"):
        raise ValueError(f'The optimizer is "adamw" or "lamb"; got {name!r}.')
    return Optimizer(
        weights, schedule, scale_to_weights=name == "lamb", **kwargs
    )
