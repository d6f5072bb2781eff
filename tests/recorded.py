"""Models that the release recorded, for the tests of heads."""

import numpy as np
import tensorflow as tf

from albert_tf.model import modeling
from albert_tf.model.config import AlbertConfig
from albert_tf.weights import checkpoints

TOLERANCE = 3e-5


def load(folder, model_class, **kwargs):
    """Returns a recorded model, its inputs and a reader of its outputs."""
    config = AlbertConfig.from_json_file(folder / "albert_config.json")
    model = model_class(config, **kwargs)
    values = checkpoints.read_checkpoint(folder / "model.ckpt-best")
    names = {n for n in values if not checkpoints.is_slot(n)}
    weights = modeling.named_weights(model)
    assert set(weights) == names
    checkpoints.restore(weights, values, str(folder))
    inputs = dict(np.load(folder / "inputs.npz"))
    features = {name: tf.constant(value) for name, value in inputs.items()}
    return model, features, lambda name: np.load(folder / name)


def loss_and_gradients(model, features):
    """Returns the loss without dropout, and gradients by canonical name."""
    weights = modeling.named_weights(model)
    with tf.GradientTape() as tape:
        ratios = model.ratios(features)
        loss = sum(
            scale * ratios[name].total / ratios[name].weight
            for name, scale in model.loss_scales.items()
        )
    gradients = tape.gradient(loss, [w.value for w in weights.values()])
    return loss, {
        name: tf.convert_to_tensor(gradient).numpy()
        for name, gradient in zip(weights, gradients, strict=True)
        if gradient is not None
    }


def check_gradients(found, recorded):
    """Compares gradients, all of them, with recorded ones."""
    wanted = {n[5:]: recorded[n] for n in recorded if n.startswith("grad/")}
    assert set(found) == set(wanted)
    for name, gradient in wanted.items():
        np.testing.assert_allclose(
            found[name], gradient, atol=TOLERANCE, err_msg=name
        )
