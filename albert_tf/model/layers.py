"""Building blocks of models: named weights, dense layers, norms, dropout.

Every weight has a `canonical_name`, its name in the release's checkpoints,
which checkpoints and optimizers use.

Shapes: B batch, T tokens, H hidden_size, R rows, usually B * T.
"""

import contextlib
import contextvars

import keras
import tensorflow as tf

from albert_tf.model import compiled, custom_gradients, onednn
from albert_tf.model.config import AlbertConfig

# The epsilon of tf.contrib.layers.layer_norm; Keras defaults to 1e-3.
LAYER_NORM_EPSILON = 1e-12
# Data types of matrix products -> Keras's dtype policies.
POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
ACTIVATIONS = {
    # The release's gelu is the tanh form.
    "gelu": lambda x: tf.nn.gelu(x, approximate=True),
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
    "linear": tf.identity,
    None: tf.identity,
}


# oneDNN orders a float32 kernel in one way for 2 to this many rows and in
# another for more, on CPUs with AVX-512.
FEW_ROWS = 80
# What `constant_kernels` turned on: of "kernels", "twice", "embeddings",
# "softmax" and "onednn".
_constants: contextvars.ContextVar[frozenset[str]] = contextvars.ContextVar(
    "constants", default=frozenset()
)


@contextlib.contextmanager
def constant_kernels(
    *,
    twice=False,
    with_embeddings=False,
    with_bfloat16_softmax=False,
    with_onednn=False,
):
    """Context manager: functions traced inside contain kernels as constants.

    oneDNN then reorders each kernel once instead of at every call, which is a
    third of the time of a short sentence (docs/results.md). For inference
    only: such a function keeps the values of the weights at tracing time and
    has no gradient for them. The encoder's `all_encoder_layers` contain only
    the last layer.

    Args:
      twice: whether small and large inputs get separate constants, see
        `are_kernels_held_twice`.
      with_embeddings: whether the word embeddings are a constant, too, in the
        compute dtype. That is no faster, but the function then reads none of
        the large weights.
      with_bfloat16_softmax: whether a model in bfloat16 gives its scores to
        softmax as they are. oneDNN computes in float32 all the same, on a CPU
        with bfloat16 instructions; elsewhere this is less exact.
      with_onednn: whether to use operations of oneDNN, see `onednn`, where
        TensorFlow has them. Norms take a sixth of the time, but longer if
        there are fewer than about a hundred rows. The function then works in
        this process only, on a CPU.
    """
    kinds = {"kernels"}
    kinds |= {"twice"} if twice else set()
    kinds |= {"embeddings"} if with_embeddings else set()
    kinds |= {"softmax"} if with_bfloat16_softmax else set()
    kinds |= {"onednn"} if with_onednn else set()
    token = _constants.set(frozenset(kinds))
    try:
        yield
    finally:
        _constants.reset(token)


def are_kernels_constant():
    """Returns whether the caller is inside `constant_kernels`."""
    return "kernels" in _constants.get()


def are_kernels_held_twice():
    """Returns whether inputs of up to FEW_ROWS need a function of their own.

    oneDNN keeps a reordered constant in one order only, that of its first
    input; inputs that want the other order reorder it at every call. After a
    long request, a short one would take up to four times its time.
    """
    return "twice" in _constants.get()


def are_embeddings_constant():
    """Returns whether word embeddings are to be a constant, too."""
    return "embeddings" in _constants.get()


def uses_onednn(dtype):
    """Returns whether to use operations of oneDNN for tensors of a dtype."""
    return "onednn" in _constants.get() and onednn.is_available(dtype)


def hold_kernel(compute):
    """Returns the kernel compute(); inside `constant_kernels`, as an array."""
    return hold(compute) if are_kernels_constant() else compute()


def hold(compute):
    """Returns compute() as an array.

    An array becomes a constant of the graph that uses it; a tensor created
    outside a loop would be an argument of the loop's body.
    """
    with tf.init_scope():
        return compute().numpy()


class WeightOwner(keras.layers.Layer):
    """A layer whose weights have canonical names.

    Args:
      prefix: prefix of the canonical names, such as "bert/pooler"; may be "".
      initializer_range: standard deviation of the truncated normal that
        initializes kernels and embeddings.
    """

    def __init__(self, prefix, initializer_range, **kwargs):
        # Keras would round float32 inputs, such as logits, to bfloat16.
        super().__init__(autocast=False, **kwargs)
        self.prefix = prefix
        self.initializer_range = initializer_range
        self.built = True

    def add(self, name, shape, initializer=None):
        """Adds and returns a float32 weight, with the name `prefix/name`."""
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
        """Adds a kernel [num_inputs, num_outputs] and a bias of zeros."""
        kernel = self.add(f"{name}/kernel", (num_inputs, num_outputs))
        return kernel, self.add(f"{name}/bias", (num_outputs,), "zeros")

    def add_norm(self, name, size):
        """Adds gamma and beta, [size] each."""
        gamma = self.add(f"{name}/gamma", (size,), "ones")
        return gamma, self.add(f"{name}/beta", (size,), "zeros")

    def cast(self, weights, dtype=None):
        """Returns the weights in a dtype; kernels by `hold_kernel`.

        The default is the compute dtype; products that give logits are in
        float32. A bias is never a constant: Grappler would replace its
        BiasAdd by an AddV2, which cannot be fused.
        """
        dtype = dtype or self.compute_dtype
        return [
            tf.cast(weight.value, dtype)
            if len(weight.shape) == 1
            else hold_kernel(lambda weight=weight: tf.cast(weight.value, dtype))
            for weight in weights
        ]


class ConfiguredLayer(keras.layers.Layer):
    """A layer with an AlbertConfig, which Keras can save and load.

    Args:
      config: an AlbertConfig.
    """

    # Names of further constructor arguments, stored as attributes.
    saved_arguments: tuple[str, ...] = ()

    def __init__(self, config, **kwargs):
        super().__init__(autocast=False, **kwargs)
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


def size_of(x, axis):
    """Returns the size of an axis of x, static if known."""
    return x.shape[axis] or tf.shape(x)[axis]


def dense(x, kernel, bias):
    """Returns x @ kernel + bias; x is [R, inputs], the result [R, outputs]."""
    # MatMul followed by BiasAdd, which oneDNN and XLA fuse.
    return tf.nn.bias_add(tf.matmul(x, kernel), bias)


def dense_activation(x, kernel, bias, name, *, training=False):
    """Returns one of ACTIVATIONS of `dense`, [R, outputs].

    Args:
      x: [R, inputs].
      kernel: [inputs, outputs].
      bias: [outputs].
      name: key of ACTIVATIONS.
      training: whether to compile what follows the product. oneDNN is then
        given no bias: with one, its product takes twice as long on a CPU with
        AMX unless the kernel is a constant.
    """
    if training and name == "gelu":
        return _bias_gelu(tf.matmul(x, kernel), bias)
    return ACTIVATIONS[name](dense(x, kernel, bias))


@compiled.compiled
def _bias_gelu(x, bias):
    """Computes gelu in float32 for every dtype of x, which is twice as fast."""
    y = tf.cast(x, tf.float32) + tf.cast(bias, tf.float32)
    return tf.cast(ACTIVATIONS["gelu"](y), x.dtype)


def dense_sum_norm(x, kernel, bias, residual, gamma, beta):
    """Returns layer_norm(residual + x @ kernel + bias), for training.

    Sum and norm are compiled, see `dense_activation`.

    Args:
      x: [R, inputs].
      kernel: [inputs, H].
      bias: [H].
      residual: [R, H], like the result.
      gamma: [H] float32.
      beta: [H] float32.
    """
    product = tf.matmul(x, kernel)
    norm = map(tf.convert_to_tensor, (gamma, beta))
    return _sum_norm(product, bias, residual, *norm)


@custom_gradients.custom_gradient
def _sum_norm(x, bias, residual, gamma, beta):
    # Of all tensors, only the sum is kept for the gradient.
    total, y = _sum_and_norm(x, bias, residual, gamma, beta)

    def gradient(d_y):
        d_total, d_bias, d_gamma, d_beta = _sum_norm_gradients(
            total, gamma, beta, d_y
        )
        return d_total, d_bias, d_total, d_gamma, d_beta

    return y, gradient


@compiled.trace_once
def _sum_and_norm(x, bias, residual, gamma, beta):
    y, b, r = (tf.cast(t, tf.float32) for t in (x, bias, residual))
    total = tf.cast(r + (y + b), x.dtype)
    return total, layer_norm(total, gamma, beta)


@compiled.trace_once
def _sum_norm_gradients(total, gamma, beta, d_y):
    arguments = total, gamma, beta
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        y = layer_norm(*arguments)
    d_total, d_gamma, d_beta = tape.gradient(y, arguments, d_y)
    d_bias = tf.reduce_sum(tf.cast(d_total, tf.float32), axis=0)
    return d_total, tf.cast(d_bias, total.dtype), d_gamma, d_beta


def layer_norm(x, gamma, beta, *, training=False):
    """Normalizes over the last axis, in float32 for every dtype of x.

    Args:
      x: [..., H]; the result has the same shape and dtype.
      gamma: [H] float32.
      beta: [H] float32.
      training: whether to compile value and gradient.

    Source: tf.contrib.layers.layer_norm, epsilon 1e-12.
    """
    if training:
        return _compiled_layer_norm(x, gamma, beta)
    if uses_onednn(x.dtype):
        return onednn.layer_norm(x, gamma, beta, LAYER_NORM_EPSILON)
    y = tf.cast(x, tf.float32)
    mean = tf.reduce_mean(y, axis=-1, keepdims=True)
    squares = tf.math.squared_difference(y, tf.stop_gradient(mean))
    variance = tf.reduce_mean(squares, axis=-1, keepdims=True)
    scale = tf.math.rsqrt(variance + LAYER_NORM_EPSILON) * gamma
    return tf.cast((y - mean) * scale + beta, x.dtype)


_compiled_layer_norm = compiled.compiled(layer_norm)


def attention_probs(q, k, mask_scores, *, training=False):
    """Returns `masked_softmax` of q @ k^T, [B, N, T, T].

    Args:
      q: [B, N, T, D].
      k: [B, N, T, D].
      mask_scores: [B, 1, 1, T] float32.
      training: as for `masked_softmax`.
    """
    if uses_onednn(q.dtype):
        mask_scores = tf.cast(mask_scores, q.dtype)
        return masked_softmax(onednn.masked_scores(q, k, mask_scores))
    scores = tf.matmul(q, k, transpose_b=True)  # [B, N, T, T]
    return masked_softmax(scores, mask_scores, training=training)


def masked_softmax(scores, mask_scores=None, *, training=False):
    """Returns softmax of scores + mask_scores, computed in float32.

    Args:
      scores: [B, N, T, T]; the result has the same shape and dtype.
      mask_scores: [B, 1, 1, T] float32; None if the scores have it in them.
      training: whether to compile the gradient, for which no float32 tensor
        is then kept. There is none for mask_scores.
    """
    if training:
        return _trained_softmax(scores, mask_scores)
    dtype = scores.dtype if "softmax" in _constants.get() else tf.float32
    x = tf.cast(scores, dtype)
    if mask_scores is not None:
        x += tf.cast(mask_scores, dtype)
    return tf.cast(tf.nn.softmax(x), scores.dtype)


@custom_gradients.custom_gradient
def _trained_softmax(scores, mask_scores):
    probs = masked_softmax(scores, mask_scores)
    return probs, lambda d_probs: (_softmax_gradient(probs, d_probs), None)


@compiled.trace_once
def _softmax_gradient(probs, d_probs):
    p, d_p = tf.cast(probs, tf.float32), tf.cast(d_probs, tf.float32)
    mean = tf.reduce_sum(p * d_p, axis=-1, keepdims=True)
    return tf.cast(p * (d_p - mean), probs.dtype)


def copies(tensors, count):
    """Returns a list of copies, for uses whose gradients are to be summed.

    Their gradients are summed in float32 and in one pass. TensorFlow would add
    those of a single tensor in its dtype, slowly if that is bfloat16.

    Args:
      tensors: nested tuples and lists of tensors.
      count: number of copies, each of which must be used.
    """

    @custom_gradients.custom_gradient
    def copy(tensor):
        return [tf.identity(tensor) for _ in range(count)], _sum_gradients

    columns = [copy(tensor) for tensor in tf.nest.flatten(tensors)]
    return [
        tf.nest.pack_sequence_as(tensors, row)
        for row in zip(*columns, strict=True)
    ]


@compiled.trace_once
def _sum_gradients(*gradients):
    total = tf.add_n([tf.cast(g, tf.float32) for g in gradients])
    return tf.cast(total, gradients[0].dtype)


class Dropout:
    """Dropout with different masks at every call, step and replica.

    Keras's Dropout draws the same masks on every replica and cannot be
    resumed; here `seed` determines all masks.

    Args:
      seed: [2] int32, different for each step and replica; None turns dropout
        off.
    """

    def __init__(self, seed):
        self.seed = seed
        self.num_calls = 0

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
        """Returns a Dropout that continues after `num_calls` more calls.

        Args:
          num_calls: an integer, or an int32 scalar.
        """
        later = Dropout(self.seed)
        later.num_calls = self.num_calls + num_calls
        return later


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
