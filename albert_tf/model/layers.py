"""Base classes of the model's layers.

Every weight has a `canonical_name`, its name in the release's checkpoints,
which checkpoints and optimizers use.
"""

import keras
import tensorflow as tf

from albert_tf.model import execution
from albert_tf.model.config import AlbertConfig

# Data types of matrix multiplications -> Keras's dtype policies.
POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


class WeightOwner(keras.layers.Layer):
    """A layer whose weights have canonical names.

    Args:
      config: an AlbertConfig. Its `initializer_range` is the standard deviation
        of the truncated normal that initializes kernels and embeddings.
      prefix: prefix of the canonical names, such as "bert/pooler"; may be "".
    """

    def __init__(self, config, prefix, **kwargs):
        # Keras would round float32 inputs, such as logits, to bfloat16.
        super().__init__(autocast=False, **kwargs)
        self.config, self.prefix = config, prefix
        self.built = True

    def add(self, name, shape, initializer=None):
        """Adds and returns a float32 weight, with the name `prefix/name`."""
        weight = self.add_weight(
            name=name.replace("/", "_"),
            shape=shape,
            initializer=initializer
            or keras.initializers.TruncatedNormal(
                stddev=self.config.initializer_range
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
        """Returns the weights in a dtype; kernels maybe as constants.

        The default is the compute dtype; matrix multiplications that give
        logits are in float32. A bias is never a constant: Grappler would
        replace its BiasAdd by an AddV2, which cannot be fused.
        """
        dtype = dtype or self.compute_dtype
        are_constant = execution.current().constant_kernels
        return [
            execution.hold(
                lambda weight=weight: tf.cast(weight.value, dtype),
                are_constant and weight.canonical_name.endswith("kernel"),
            )
            for weight in weights
        ]


class ConfiguredLayer(keras.layers.Layer):
    """A layer with an AlbertConfig, which Keras can save and load."""

    # Names of further constructor arguments, stored as attributes.
    saved_arguments: tuple[str, ...] = ()

    def __init__(self, config, *, trainable=True, **kwargs):
        if not trainable:
            raise ValueError(
                "Freeze the layer when it has its weights: layer.trainable = "
                "False, instead of the argument trainable=False."
            )
        super().__init__(autocast=False, **kwargs)
        self.config = config
        self.built = True

    def get_config(self):
        return {
            **super().get_config(),
            "config": self.config.to_dict(),
            **{name: getattr(self, name) for name in self.saved_arguments},
            "frozen": [
                name
                for name, weight in self._named_weights()
                if not weight.trainable
            ],
        }

    def _named_weights(self):
        """Yields the names and weights of this package's layers."""
        for weight in self.weights:
            if name := getattr(weight, "canonical_name", None):
                yield name, weight

    @classmethod
    def from_config(cls, values):
        values = dict(values)
        trainable = values.pop("trainable", True)
        frozen = values.pop("frozen", None)
        layer = cls(AlbertConfig.from_dict(values.pop("config")), **values)
        layer.trainable = trainable
        if frozen is not None:
            for name, weight in layer._named_weights():
                weight.trainable = name not in frozen
        return layer
