"""How a model is computed: choices that change speed and memory, not results.

They are one value, the `Execution` of the innermost `using`. It is no argument
of the models: Keras passes only `training` and inputs through the layers that a
user may put around them.
"""

import contextlib
import contextvars
import dataclasses

import tensorflow as tf

from albert_tf.model import onednn

# oneDNN orders a float32 kernel in one way for 2 to this many rows and in
# another for more, on CPUs with AVX-512.
FEW_ROWS = 80
# Larger kernels, in the release only xxlarge's, are not to be constants:
# TensorFlow, which copies graphs often, needs several times their size.
MAX_CONSTANT_BYTES = 256 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Execution:
    """Choices for the functions that are called or traced inside `using`.

    `recompute_layers` is for training, the others are for inference. With one
    of the first two, all of `all_encoder_layers` but the last one are None.

    Args:
      recompute_layers: whether training computes each layer again for its
        gradient, but for a last one that computes few tokens. That saves
        memory. Values and gradients are the same, up to the order of additions.
      constant_kernels: whether traced functions contain kernels as constants.
        oneDNN then reorders each kernel once instead of at every call, which
        is a third of the time of a short sentence (docs/results.md). Such a
        function keeps the values of the weights at tracing time, and has no
        gradient for them.
      separate_few_rows: whether inputs of up to FEW_ROWS get constants of
        their own. oneDNN keeps a reordered constant in one order only, that of
        its first input; after a long request, a short one would take up to
        four times its time.
      separate_last_layer: whether constants of a last layer that computes few
        tokens are apart from those of the loop over equal layers. Otherwise it
        computes all tokens.
      constant_embeddings: whether the word embeddings are a constant, too, in
        the compute dtype. That is no faster, but the function then reads none
        of the large weights.
      bfloat16_softmax: whether a model in bfloat16 gives its scores to softmax
        as they are. oneDNN computes in float32 all the same, on a CPU with
        bfloat16 instructions; elsewhere this is less exact.
      onednn: whether to use operations of oneDNN, see `onednn`, where
        TensorFlow has them. Norms take a sixth of the time, but longer if
        there are fewer than about a hundred rows. The function then works in
        this process only, on a CPU.

    Example:
      >>> from albert_tf import AlbertConfig, AlbertEncoder
      >>> encoder = AlbertEncoder(AlbertConfig(vocab_size=9, hidden_size=64))
      >>> call = tf.function(encoder)
      >>> with using(Execution(constant_kernels=True)):
      ...     call(tf.ones([1, 5], tf.int32))["pooled_output"].shape
      TensorShape([1, 64])
    """

    recompute_layers: bool = False
    constant_kernels: bool = False
    separate_few_rows: bool = False
    separate_last_layer: bool = False
    constant_embeddings: bool = False
    bfloat16_softmax: bool = False
    onednn: bool = False

    def uses_onednn(self, dtype):
        """Returns whether to use oneDNN's operations for tensors of a dtype."""
        return self.onednn and onednn.is_available(dtype)


_USUAL = Execution()
_current = contextvars.ContextVar("execution", default=_USUAL)
current = _current.get


@contextlib.contextmanager
def using(execution):
    """Context manager: models inside are computed as an `Execution` says.

    It holds for its own thread. A MirroredStrategy computes each replica in
    another one: there, use it in the function given to `strategy.run`.
    """
    token = _current.set(execution)
    try:
        yield
    finally:
        _current.reset(token)


def hold(compute, is_constant=True):
    """Returns compute(), as an array if it is to be a constant.

    An array becomes a constant of the graph that uses it. A tensor that is
    computed outside a loop would be an argument of the loop's body, where
    oneDNN reorders it in each iteration.
    """
    if not is_constant:
        return compute()
    with tf.init_scope():
        return compute().numpy()


def list_kernels(model):
    """Returns the variables of all kernels of a model."""
    return [
        weight.value
        for weight in model.weights
        if weight.canonical_name.endswith("kernel")
    ]


def may_hold(model):
    """Returns whether functions may have a model's kernels as constants."""
    reads_layers = getattr(model, "reads_layers", False)
    return not reads_layers and count_kernel_bytes(model) <= MAX_CONSTANT_BYTES


def may_hold_twice(model):
    """Returns whether functions may have two constants of each kernel."""
    return 2 * count_kernel_bytes(model) <= MAX_CONSTANT_BYTES


def count_kernel_bytes(model):
    """Returns the size of all kernels of a model, in bytes."""
    return sum(
        kernel.dtype.size * kernel.shape.num_elements()
        for kernel in list_kernels(model)
    )
