"""What models are made of: named weights, products, norms, dropout.

Every weight knows the name it has in the release's checkpoints, its
`canonical_name`; checkpoints and optimizers go by that name.

Shapes: B batch, T tokens, H hidden_size, R rows, usually B * T.
"""

import contextlib
import contextvars

import keras
import tensorflow as tf

from albert_tf.model import compiled
from albert_tf.model.config import AlbertConfig

# The epsilon of tf.contrib.layers.layer_norm; Keras defaults to 1e-3.
LAYER_NORM_EPSILON = 1e-12
# Keras's names of what matrices are multiplied in.
POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
ACTIVATIONS = {
    # The release's gelu is the tanh form.
    "gelu": lambda x: tf.nn.gelu(x, approximate=True),
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
    "linear": tf.identity,
    None: tf.identity,
}


_are_kernels_constant = contextvars.ContextVar(
    "constant_kernels", default=False
)


@contextlib.contextmanager
def constant_kernels():
    """Makes kernels constants of the functions that are traced meanwhile.

    oneDNN then arranges each once, not at every call: a third of the time of a
    short sentence (docs/results.md). Only for inference: such a function keeps
    the values that the weights had, and has no gradient for them. Of the
    encoder's `all_encoder_layers` it has the last alone.
    """
    token = _are_kernels_constant.set(True)
    try:
        yield
    finally:
        _are_kernels_constant.reset(token)


def are_kernels_constant():
    """Whether this is inside of `constant_kernels`."""
    return _are_kernels_constant.get()


def hold_kernel(compute):
    """Returns compute(), a kernel; inside of `constant_kernels`, as an array.

    An array becomes a constant of whichever graph it is used in; a tensor from
    outside of a loop would be an argument of the loop's body.
    """
    if not are_kernels_constant():
        return compute()
    with tf.init_scope():
        return compute().numpy()


class WeightOwner(keras.layers.Layer):
    """A layer whose weights have names of their own in a checkpoint.

    Args:
      prefix: what the canonical names begin with, such as "bert/pooler"; ""
        for names at the top.
      initializer_range: standard deviation of the truncated normal from which
        kernels and embeddings are drawn.
    """

    def __init__(self, prefix, initializer_range, **kwargs):
        super().__init__(**kwargs)
        self.prefix = prefix
        self.initializer_range = initializer_range
        self.built = True

    def add(self, name, shape, initializer=None):
        """Returns a new float32 weight, known as `prefix/name`."""
        weight = self.add_weight(
            name=name.replace("/", "_"),
            shape=shape,
            initializer=initializer
            or keras.initializers.TruncatedNormal(
                stddev=self.initializer_range
            ),
            dtype="float32",
            autocast=False,
        )
        weight.canonical_name = f"{self.prefix}/{name}".lstrip("/")
        return weight

    def add_dense(self, name, num_inputs, num_outputs):
        """Returns a kernel [num_inputs, num_outputs] and a bias of zeros."""
        kernel = self.add(f"{name}/kernel", (num_inputs, num_outputs))
        return kernel, self.add(f"{name}/bias", (num_outputs,), "zeros")

    def add_norm(self, name, size):
        """Returns gamma and beta, [size] each."""
        gamma = self.add(f"{name}/gamma", (size,), "ones")
        return gamma, self.add(f"{name}/beta", (size,), "zeros")

    def cast(self, weights):
        """Returns the weights in the type that is computed in: `hold_kernel`.

        A bias never is a constant: Grappler would make an AddV2 of its
        BiasAdd, which is then fused with nothing.
        """
        dtype = self.compute_dtype
        return [
            tf.cast(weight.value, dtype)
            if len(weight.shape) == 1
            else hold_kernel(lambda weight=weight: tf.cast(weight.value, dtype))
            for weight in weights
        ]


class ConfiguredLayer(keras.layers.Layer):
    """A layer made of an AlbertConfig, which Keras can save and load.

    Args:
      config: an AlbertConfig.
    """

    # Further arguments, which are attributes of the same names.
    saved_arguments: tuple[str, ...] = ()

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.built = True

    def get_config(self):
        return {
            **super().get_config(),
            "config": self.config.to_dict(),
            **{name: getattr(self, name) for name in self.saved_arguments},
        }

    @classmethod
    def from_config(cls, values):
        values = dict(values)
        return cls(AlbertConfig.from_dict(values.pop("config")), **values)


def activate(x, name, *, training=False):
    """Returns x after one of ACTIVATIONS."""
    if training and name == "gelu":
        return _compiled_gelu(x)
    return ACTIVATIONS[name](x)


@compiled.compiled
def _compiled_gelu(x):
    """Gelu in float32 whatever the type of x, which is twice as fast."""
    y = tf.cast(x, tf.float32)
    return tf.cast(ACTIVATIONS["gelu"](y), x.dtype)


def dense(x, kernel, bias):
    """Returns x @ kernel + bias; x is [R, inputs], the result [R, outputs]."""
    # MatMul and BiasAdd side by side, which oneDNN and XLA fuse.
    return tf.nn.bias_add(tf.matmul(x, kernel), bias)


def layer_norm(x, gamma, beta, *, training=False):
    """Normalizes over the last axis, in float32 whatever the type of x.

    Args:
      x: [..., H], as the result, and of its type.
      gamma: [H] float32.
      beta: [H] float32.
      training: whether to compile value and gradient.

    Source: tf.contrib.layers.layer_norm, epsilon 1e-12.
    """
    if training:
        return _compiled_layer_norm(x, gamma, beta)
    y = tf.cast(x, tf.float32)
    mean = tf.reduce_mean(y, axis=-1, keepdims=True)
    squares = tf.math.squared_difference(y, tf.stop_gradient(mean))
    variance = tf.reduce_mean(squares, axis=-1, keepdims=True)
    scale = tf.math.rsqrt(variance + LAYER_NORM_EPSILON) * gamma
    return tf.cast((y - mean) * scale + beta, x.dtype)


_compiled_layer_norm = compiled.compiled(layer_norm)


class Dropout:
    """Drops values, with other masks at every call, step and replica.

    Keras's Dropout draws the same masks on every replica and cannot be
    resumed; here all masks follow from `seed`.

    Args:
      seed: [2] int32, another one for each step and replica; None turns
        dropout off.
    """

    def __init__(self, seed):
        self.seed = seed
        self.num_calls = 0

    @property
    def is_training(self):
        """Whether this is dropout for training, even at a rate of 0."""
        return self.seed is not None

    def __call__(self, x, rate):
        """Returns x with a share `rate` of its values set to 0."""
        if not self.is_training or not rate:
            return x
        self.num_calls += 1
        seed = tf.random.experimental.stateless_fold_in(
            self.seed, self.num_calls
        )
        return tf.nn.experimental.stateless_dropout(x, rate, seed)


def build_dropout(training, seed):
    """Returns the dropout of one call of a model.

    Args:
      training: whether to drop at all.
      seed: [2] int32, or None to draw one, which then differs between
        replicas and cannot be repeated.
    """
    if not training:
        return Dropout(None)
    if seed is None:
        seed = tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)
    return Dropout(seed)
