"""300 steps of the release's own pretraining, followed by the loop."""

import io
import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import heads, modeling
from albert_tf.model.config import AlbertConfig
from albert_tf.reports import plot_metrics
from albert_tf.training import loop, manifest, optimization, reporting
from albert_tf.training.settings import Settings
from albert_tf.weights import checkpoints
from tests import sessions

BATCH_SIZE = 16
# Three steps of float32 at a loss of 11; a nudge of 1e-7 in one weight moves
# the recorded loss by 1.2e-6.
TOLERANCE = 3e-6


@pytest.mark.parametrize(
    "num_steps", [20, pytest.param(300, marks=pytest.mark.nightly)]
)
def test_steps_of_the_release_are_followed(shared, tmp_path, num_steps):
    folder = shared / "golden/dev/curve"
    described = json.loads((folder / "README.json").read_text())
    model = heads.AlbertForPreTraining(
        AlbertConfig.from_dict(described["config"])
    )
    named = modeling.named_weights(model)
    with np.load(folder / "initial_weights.npz") as file:
        checkpoints.restore(named, dict(file), str(folder))
    weights = {name: weight.value for name, weight in named.items()}
    optimizer = optimization.build_optimizer(
        "lamb", weights, optimization.build_schedule(5e-3, 1000, 100)
    )
    variables = {
        **weights,
        **optimizer.slots,
        checkpoints.STEP: optimizer.step,
    }
    session = sessions.ModelSession(
        tf.distribute.get_strategy(),
        model,
        optimizer,
        checkpoints.CheckpointManager(str(tmp_path), variables),
        reporting.Reporter(str(tmp_path), io.StringIO()),
        Settings(train_batch_size=BATCH_SIZE, log_every_steps=1),
        num_train_steps=num_steps,
    )
    loop.train(session, {"rows": read_batches(folder / "batches.npz")})
    path = str(tmp_path / manifest.METRICS_FILE)
    found = list(plot_metrics.read_records(path))
    with np.load(folder / "lamb_curve.npz") as file:
        wanted = dict(file)
    # The release divides by the number of masked pieces plus 1e-5.
    with np.load(folder / "batches.npz") as file:
        counts = file["masked_lm_weights"].reshape(300, -1).sum(-1)
    excess = wanted["masked_lm_loss"] * 1e-5 / counts
    wanted["masked_lm_loss"] += excess
    wanted["loss"] += excess
    assert len(found) == num_steps
    for name, curve in wanted.items():
        values = [record[name] for record in found]
        np.testing.assert_allclose(
            values, curve[:num_steps], rtol=0, atol=TOLERANCE, err_msg=name
        )


def read_batches(path):
    """Returns a dataset of the recorded batches, in their order."""
    with np.load(path) as file:
        features = {
            name: values
            if values.dtype == np.float32
            else values.astype(np.int32)
            for name, values in file.items()
        }
    labels = features.pop("next_sentence_labels")
    features["sentence_order_labels"] = labels[:, 0]
    return tf.data.Dataset.from_tensor_slices(features).batch(
        BATCH_SIZE, drop_remainder=True
    )
