"""Dropout whose masks are determined by a seed."""

import tensorflow as tf


class Dropout:
    """Dropout with different masks at every call, step and replica.

    Keras's Dropout draws the same masks on every replica and cannot be
    resumed; here `seed` determines all masks.

    Args:
      seed: [2] int32, different for each step and replica; None turns dropout
        off.
      num_calls: number of calls before the first, an integer or int32 scalar.
    """

    def __init__(self, seed, num_calls=0):
        self.seed, self.num_calls = seed, num_calls

    @property
    def is_training(self):
        """Whether dropout is in training mode, even at a rate of 0."""
        return self.seed is not None

    def __call__(self, x, rate):
        """Returns x with a share `rate` of its values set to 0."""
        if not self.is_training or not rate:
            return x
        self.num_calls += 1
        seed = tf.random.experimental.stateless_fold_in(
            self.seed, self.num_calls
        )
        # In bfloat16 a uniform number has 7 bits: too few for a small rate.
        y = tf.nn.experimental.stateless_dropout(
            tf.cast(x, tf.float32), rate, seed
        )
        return tf.cast(y, x.dtype)

    def after(self, num_calls):
        """Returns a Dropout that continues after `num_calls` more calls."""
        return Dropout(self.seed, self.num_calls + num_calls)


def build_dropout(training, seed):
    """Returns the Dropout for one call of a model.

    Args:
      training: whether to drop values.
      seed: [2] int32, or None to draw a random seed, which differs between
        replicas and is not reproducible.
    """
    if not training:
        return Dropout(None)
    if seed is None:
        seed = tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)
    return Dropout(seed)
