"""The release's learning rate schedule; AdamW, LAMB and Muon on variables.

AdamW and LAMB are Adam without bias correction; LAMB scales each variable's
update to the variable's norm. `keras.optimizers.AdamW` and `Lamb` correct the
bias, match names differently and, for LAMB, apply weight decay elsewhere: see
docs/porting.md. Muon, which the release lacks, is AdamW but for the kernels of
dense layers: the singular values of their updates are all near 1. Its updates
of them are those of `keras.optimizers.Muon`, but for their scale.
"""

import re
import typing

import tensorflow as tf

from albert_tf.settings import OptimizerName
from albert_tf.training.settings import (
    BETA_2,
    POLY_POWER,
    START_WARMUP_STEP,
    Schedule,
)
from albert_tf.weights import checkpoints

# The release searches canonical names for these patterns. Matching variables
# are excluded from weight decay and, in LAMB, from scaling.
EXCLUDED = re.compile("LayerNorm|layer_norm|bias")

# Coefficient of the weights that is added to their update.
WEIGHT_DECAY: dict[OptimizerName, float] = {
    "adamw": 0.01,
    "lamb": 0.01,
    "muon": 0.1,
}
# Of Muon. With this share of sqrt(n), n the larger dimension of a kernel, its
# values change half as much as by AdamW: with one rate for all weights,
# embeddings learn best at twice that of kernels (docs/results/optimizers.md).
MUON_MOMENTUM = 0.95
MUON_SCALE = 0.1
# a x + b x^3 + c x^5, applied this often, brings singular values of 0.003 to 1
# to 0.68 to 1.21 (Jordan et al., Muon, 2024).
MUON_POLYNOMIAL = (3.4445, -4.7750, 2.0315)
MUON_ITERATIONS = 5


def build_schedule(
    learning_rate,
    num_train_steps,
    num_warmup_steps=0,
    start_warmup_step=START_WARMUP_STEP,
    poly_power=POLY_POWER,
):
    """Returns the release's learning rate as a function of the step.

    Warmup is linear from 0. Decay is measured from step 0, not from the end of
    warmup, so the rate drops slightly there. Step t uses the rate of t.

    The arguments are the attributes of `settings.Schedule`.

    Returns:
      A function from an integer scalar to a float32 scalar.

    Raises:
      ValueError: as for `settings.Schedule.check`.

    Source: optimization.py, `create_optimizer`.
    """
    Schedule(
        learning_rate,
        num_train_steps,
        num_warmup_steps,
        start_warmup_step,
        poly_power,
    ).check()

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


class Optimizer:
    """AdamW, LAMB or Muon.

    Create it in the scope of the distribution strategy. `slots` maps the names
    `<weight>/adam_m` and `<weight>/adam_v` to variables, for the weights in
    `trained`; the kernels that Muon trains have only the first. `step` counts
    the updates.

    Args:
      weights: dict from canonical name to tf.Variable.
      schedule: function from step to learning rate.
      name: "adamw", "lamb" or "muon".
      weight_decay: coefficient of the weights added to the update; None: the
        optimizer's in WEIGHT_DECAY.
      beta_1: decay rate of the first moment.
      beta_2: decay rate of the second moment.
      epsilon: constant added to the square root of the second moment.

    Source: optimization.py, `AdamWeightDecayOptimizer`; lamb_optimizer.py,
    `LAMBOptimizer`.

    Example:
      >>> weight = tf.Variable([1.0, 2.0])
      >>> schedule = build_schedule(learning_rate=0.1, num_train_steps=10)
      >>> optimizer = build_optimizer("lamb", {"kernel": weight}, schedule)
      >>> gradients = {"kernel": tf.constant([1.0, 1.0])}
      >>> run = tf.distribute.get_strategy().run
      >>> round(float(run(optimizer.apply, [gradients])), 3)
      0.1
      >>> int(optimizer.step)
      1
    """

    def __init__(
        self,
        weights,
        schedule,
        *,
        name: OptimizerName,
        weight_decay=None,
        beta_1=0.9,
        beta_2=BETA_2,
        epsilon=1e-6,
    ):
        self.weights = dict(weights)
        self.schedule = schedule
        self.name = name
        if weight_decay is None:
            weight_decay = WEIGHT_DECAY[name]
        self.weight_decay = weight_decay
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self.trained: dict = {}
        self.slots: dict = {}
        self.freeze(())
        self.step = tf.Variable(
            0,
            trainable=False,
            dtype=tf.int64,
            name="global_step",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def freeze(self, names):
        """Leaves the named weights out of the updates; all others have slots.

        The slots become 0 if other weights were left out before.
        """
        trained = {n: w for n, w in self.weights.items() if n not in names}
        if trained.keys() == self.trained.keys():
            return
        self.trained = trained
        self.slots = {
            slot: self.add_slot(weight)
            for name, weight in self.trained.items()
            for slot in self.name_slots(name)
        }

    def name_slots(self, name):
        """Returns the names of the slots of a weight."""
        is_matrix = self.weights[name].shape.rank == 2
        is_muons = self.name == "muon" and is_matrix and name.endswith("kernel")
        num_slots = 1 if is_muons else 2
        return [f"{name}/{slot}" for slot in checkpoints.SLOTS[:num_slots]]

    def add_slot(self, weight):
        strategy = tf.distribute.get_strategy()
        with strategy.extended.colocate_vars_with(weight):
            return tf.Variable(tf.zeros(weight.shape), trainable=False)

    def apply(self, gradients):
        """Updates the weights at the step's learning rate; increments the step.

        Call it in a replica context, with equal gradients in all replicas.

        Args:
          gradients: dict from canonical name to a float32 tensor, already
            summed over replicas and clipped. Weights without a gradient, or
            with None, are not changed.

        Returns:
          The learning rate, a float32 scalar.
        """
        learning_rate = tf.convert_to_tensor(
            self.schedule(self.step.value()), tf.float32
        )
        tf.distribute.get_replica_context().merge_call(
            self.update_all, args=(make_dense(gradients), learning_rate)
        )
        return learning_rate

    def update_all(self, strategy, gradients, learning_rate):
        for name, gradient in gradients.items():
            strategy.extended.update(
                self.weights[name],
                self.update_one,
                args=(
                    gradient,
                    learning_rate,
                    *(self.slots[slot] for slot in self.name_slots(name)),
                ),
                kwargs={"is_decayed": not EXCLUDED.search(name)},
                group=False,
            )
        self.step.assign_add(1)

    def update_one(self, weight, gradient, learning_rate, *slots, is_decayed):
        # Otherwise TensorFlow multiplies all weights and slots at the
        # start of the step, and three times the weights' size is kept.
        with tf.control_dependencies([gradient]):
            direction = self.adam if len(slots) == 2 else self.muon
            update = direction(gradient, *slots)
            if is_decayed:
                update += self.weight_decay * weight
                if self.name == "lamb":
                    update *= trust_ratio(tf.norm(weight), tf.norm(update))
            weight.assign_sub(learning_rate * update)

    def adam(self, gradient, m, v):
        """Updates both moments; returns m / (sqrt(v) + epsilon)."""
        m_next = m.assign(self.beta_1 * m + (1 - self.beta_1) * gradient)
        v_next = v.assign(
            self.beta_2 * v + (1 - self.beta_2) * tf.square(gradient)
        )
        return m_next / (tf.sqrt(v_next) + self.epsilon)

    def muon(self, gradient, m):
        """Updates the momentum; returns an orthogonal matrix near it, scaled.

        Nesterov's momentum: the gradient counts once more.
        """
        m_next = m.assign(MUON_MOMENTUM * m + (1 - MUON_MOMENTUM) * gradient)
        ahead = MUON_MOMENTUM * m_next + (1 - MUON_MOMENTUM) * gradient
        scale = MUON_SCALE * max(gradient.shape) ** 0.5
        return scale * orthogonalize(ahead)


def make_dense(gradients):
    """Returns gradients by name, without those that are None.

    A tape gives that of the word embeddings as IndexedSlices, in whose norm a
    repeated row would count twice.
    """
    return {
        name: tf.convert_to_tensor(gradient)
        for name, gradient in gradients.items()
        if gradient is not None
    }


def orthogonalize(x):
    """Returns U V' of a matrix x = U S V', nearly: with S from 0.68 to 1.21.

    Singular values below 0.003 of the norm of x become smaller ones.
    """
    is_tall = x.shape[0] > x.shape[1]
    if is_tall:
        x = tf.transpose(x)  # [n, m], n <= m
    x = tf.math.divide_no_nan(x, tf.norm(x))
    a, b, c = MUON_POLYNOMIAL
    for _ in range(MUON_ITERATIONS):
        square = tf.matmul(x, x, transpose_b=True)  # [n, n]
        factor = b * square + c * tf.matmul(square, square)
        x = a * x + tf.matmul(factor, x)
    return tf.transpose(x) if is_tall else x


def trust_ratio(weight_norm, update_norm):
    """Returns weight_norm / update_norm, or 1 where either is 0."""
    is_defined = (weight_norm > 0) & (update_norm > 0)
    ratio = tf.math.divide_no_nan(weight_norm, update_norm)
    return tf.where(is_defined, ratio, 1.0)


def describe(name: OptimizerName) -> dict:
    """Returns what a run records of an optimizer, besides its settings."""
    if name != "muon":
        return {"name": name}
    return {
        "name": name,
        "weight_decay": WEIGHT_DECAY[name],
        "scale": MUON_SCALE,
    }


def build_optimizer(name: OptimizerName, weights, schedule, **kwargs):
    """Returns the optimizer "adamw", "lamb" or "muon".

    The other arguments are those of `Optimizer`.

    Raises:
      ValueError: if the name is unknown.
    """
    known = typing.get_args(OptimizerName)
    if name not in known:
        raise ValueError(
            f"Unknown optimizer {name!r}; wanted one of {', '.join(known)}."
        )
    return Optimizer(weights, schedule, name=name, **kwargs)
