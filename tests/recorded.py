"""Models that the release recorded, and what it computed with them.

The repository carries most of them as a sample: the seed of their weights, and
of each output and gradient only some places.
"""

import json
import shutil

import numpy as np
import tensorflow as tf

from albert_tf.model import modeling
from albert_tf.model.config import AlbertConfig
from albert_tf.weights import checkpoints

TOLERANCE = 3e-5
NUM_SAMPLES = 48


def places(size):
    """Returns the places that a sample has of an array of some size."""
    if size <= NUM_SAMPLES:
        return np.arange(size)
    chosen = np.random.RandomState(size).choice(size, NUM_SAMPLES, False)
    return np.sort(chosen)


def write_sample(path, values):
    """Writes some places of each of a dict of arrays of float32."""
    samples = [np.ravel(v)[places(v.size)] for v in values.values()]
    np.savez_compressed(
        path,
        shapes=json.dumps({n: v.shape for n, v in values.items()}),
        samples=np.concatenate(samples).astype(np.float32),
    )


def read(path):
    """Returns recorded arrays by name; of a sample, the other places are NaN.

    Args:
      path: as np.savez or `write_sample` wrote it.
    """
    with np.load(path) as file:
        values = dict(file)
    if set(values) != {"shapes", "samples"}:
        return values
    found, first = {}, 0
    for name, shape in json.loads(str(values["shapes"])).items():
        array = np.full(shape, np.nan, np.float32)
        chosen = places(array.size)
        last = first + len(chosen)
        array.reshape(-1)[chosen] = values["samples"][first:last]
        found[name] = array
        first = last
    assert first == len(values["samples"])
    return found


def check(found, wanted, atol=TOLERANCE, rtol=0, name=""):
    """Compares an array with a recorded one where that is not NaN."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape, name
    is_there = ~np.isnan(wanted)
    assert is_there.any() or not wanted.size, name
    np.testing.assert_allclose(
        found[is_there], wanted[is_there], rtol=rtol, atol=atol, err_msg=name
    )


def random_weights(described):
    """Returns the weights that the release computed with: they were drawn.

    Args:
      described: a dict with the shapes of the `variables`, the `seed` and the
        standard deviation `std`. NumPy promises to keep RandomState's numbers.
    """
    rng, std = np.random.RandomState(described["seed"]), described["std"]
    values = {}
    for name, shape in sorted(described["variables"].items()):
        is_norm = name.endswith(("/gamma", "/beta"))
        value = rng.normal(0, 2 * std if is_norm else std, shape)
        value += name.endswith("/gamma")
        values[name] = value.astype(np.float32)
    return values


def rebuild(source, target):
    """Copies a recorded model's folder and writes the checkpoint it lacks."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    described = json.loads((target / "README.json").read_text())
    step = np.int64(described["global_step"])
    checkpoints.write_checkpoint(
        str(target / "model.ckpt-best"),
        {**random_weights(described), "global_step": step},
    )


def load(folder, model_class, **kwargs):
    """Returns a recorded model, its inputs and a reader of its outputs."""
    config = AlbertConfig.from_json_file(folder / "albert_config.json")
    model = model_class(config, **kwargs)
    values = checkpoints.read_checkpoint(folder / "model.ckpt-best")
    names = values.keys() - checkpoints.find_slots(values)
    weights = modeling.named_weights(model)
    assert set(weights) == names
    checkpoints.restore(weights, values, str(folder))
    inputs = dict(np.load(folder / "inputs.npz"))
    features = {name: tf.constant(value) for name, value in inputs.items()}
    return model, features, lambda name: read(folder / name)


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
        check(found[name], gradient, name=name)
