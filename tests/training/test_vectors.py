"""Comparing rows: losses by NumPy, and one update however a batch is split."""

import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import modeling, vector_heads
from albert_tf.model.config import AlbertConfig
from albert_tf.training import replicas
from tests import cluster, tiny

CONFIG = AlbertConfig(**tiny.SIZES)
ROOT = pathlib.Path(__file__).parents[2]
B, C, T = 8, 3, 7


def make_features(seed=3):
    """Rows of three texts, with equal and absent ones, and one of padding."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, T + 1, (B, C))
    mask = np.arange(T) < lengths[..., None]
    text_ids = np.arange(B * C, dtype=np.int32).reshape(B, C)
    text_ids[1, 1] = text_ids[0, 1]  # Two rows with the same second text.
    text_ids[2, 2] = text_ids[3, 0]
    text_ids[4, 2] = -1
    text_ids[5, 0] = text_ids[6, 0]  # Each has a right answer of the other.
    text_ids[3, 2] = text_ids[5, 1]
    weight = np.ones(B, np.float32)
    weight[-1] = 0
    return {
        "input_ids": (rng.integers(5, 31, (B, C, T)) * mask).astype(np.int32),
        "input_mask": mask.astype(np.int32),
        "segment_ids": np.zeros((B, C, T), np.int32),
        "text_ids": text_ids,
        "label_ids": rng.random(B).astype(np.float32),
        "example_weight": weight,
    }


def build(objective="ranking", config=CONFIG, **kwargs):
    keras.utils.set_random_seed(7)
    return vector_heads.AlbertVectors(config, objective=objective, **kwargs)


def weights_of(model):
    return {n: w.value for n, w in modeling.named_weights(model).items()}


def compute(model, features, num_parts, strategy=None):
    """Returns sums and gradients, summed over the replicas."""
    weights = weights_of(model)
    if strategy is None:
        strategy = tf.distribute.get_strategy()

    @tf.function
    def run():
        def replica(own):
            sums, gradients = replicas.differentiate_vectors(
                model, weights, own, tf.constant([1, 2]), num_parts
            )
            summed = replicas.sum_replicas([sums, *gradients.values()])
            return summed[0], dict(zip(gradients, summed[1:], strict=True))

        count = strategy.num_replicas_in_sync
        own = strategy.experimental_distribute_values_from_function(
            lambda context: {
                name: tf.constant(
                    np.split(x, count)[context.replica_id_in_sync_group]
                )
                for name, x in features.items()
            }
        )
        outputs = strategy.run(replica, args=(own,))
        return tf.nest.map_structure(
            lambda x: strategy.experimental_local_results(x)[0], outputs
        )

    return tf.nest.map_structure(lambda x: x.numpy(), run())


@pytest.mark.parametrize("pooling", vector_heads.POOLINGS)
def test_a_text_has_the_mean_of_its_tokens(pooling):
    rng = np.random.default_rng(0)
    tokens = rng.normal(size=(4, 6, 5)).astype(np.float32)
    lengths = [6, 3, 2, 1]
    mask = (np.arange(6) < np.array(lengths)[:, None]).astype(np.int32)
    found = vector_heads.pool(tf.constant(tokens), tf.constant(mask), pooling)
    for row, length in enumerate(lengths):
        chosen = {
            "mean": tokens[row, 1 : length - 1],
            "mean_all": tokens[row, :length],
            "cls": tokens[row, :1],
        }[pooling]
        wanted = chosen.mean(axis=0) if len(chosen) else np.zeros(5)
        np.testing.assert_allclose(found[row], wanted, atol=1e-6)


def test_the_second_text_is_ranked_among_all_others():
    features, rng = make_features(), np.random.default_rng(1)
    vectors = rng.normal(size=(B, C, 4))
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    model = build(temperature=0.1)
    found = model.compare(tf.constant(vectors, tf.float32), features)
    ids = features["text_ids"]
    for row in range(B):
        right = ids[ids[:, 0] == ids[row, 0], 1]
        scores = [vectors[row, 0] @ vectors[row, 1] / 0.1]
        for other in range(B):
            for text in range(1, C):
                if (
                    (other, text) != (row, 1)
                    and features["example_weight"][other]
                    and ids[other, text] >= 0
                    and ids[other, text] not in (ids[row, 0], *right)
                ):
                    score = vectors[row, 0] @ vectors[other, text] / 0.1
                    scores.append(score)
        loss = np.log(np.exp(scores).sum()) - scores[0]
        np.testing.assert_allclose(found["loss"][row], loss, rtol=1e-4)
        assert found["accuracy"][row] == (np.argmax(scores) == 0)


def test_a_cosine_has_a_squared_error():
    model, features = build("similarity"), make_features()
    vectors = model(features)["vectors"].numpy()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1, rtol=1e-5)
    cosines = (vectors[:, 0] * vectors[:, 1]).sum(-1)
    wanted = np.square(cosines - features["label_ids"])
    found = model.ratios(features)["loss"]
    np.testing.assert_allclose(found.total, wanted[:-1].sum(), rtol=1e-5)
    assert found.weight == B - 1


# In a process of its own: the collectives of two strategies in one process, as
# other tests have them, would be mixed up.
PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from tests import conftest
import numpy as np
import tensorflow as tf
from tests.training import test_vectors as tests
strategy = {strategy}
for objective in tests.vector_heads.OBJECTIVES:
    for num_parts in (1, 2):
        with strategy.scope():
            model = tests.build(objective)
        sums, gradients = tests.compute(
            model, tests.make_features(), num_parts, strategy
        )
        path = "{folder}/{{}}{{}}.npz".format(objective, num_parts)
        if sys.argv[1] == "0":
            np.savez(path, sums=sums, **gradients)
"""
STRATEGIES = {
    "replicas": 'tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])',
    "processes": "tf.distribute.MultiWorkerMirroredStrategy()",
}


@pytest.fixture(scope="module", params=STRATEGIES)
def divided(request, tmp_path_factory):
    """Folder with the sums and gradients of two replicas, or processes."""
    folder = tmp_path_factory.mktemp(request.param)
    program = PROGRAM.format(
        root=str(ROOT), folder=folder, strategy=STRATEGIES[request.param]
    )
    addresses = cluster.free_addresses(2)
    configs = [
        {"TF_CONFIG": cluster.describe(index=index, worker=addresses)}
        for index in range(2)
    ]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(index)],
            env={**os.environ, **config},
        )
        for index, config in enumerate(
            configs if request.param == "processes" else [{}]
        )
    ]
    for process in processes:
        assert process.wait(timeout=300) == 0
    return folder


@pytest.mark.parametrize("objective", vector_heads.OBJECTIVES)
def test_parts_and_replicas_have_the_gradient_of_the_whole(objective, divided):
    features = make_features()
    sums, wanted = compute(build(objective), features, 1)
    assert np.abs(wanted["bert/embeddings/word_embeddings"]).max() > 1e-3
    found = [compute(build(objective), features, parts) for parts in (4, 8)]
    for num_parts in (1, 2):
        gradients = dict(np.load(divided / f"{objective}{num_parts}.npz"))
        found.append((gradients.pop("sums"), gradients))
    for other_sums, gradients in found:
        np.testing.assert_allclose(other_sums, sums, rtol=1e-5)
        assert gradients.keys() == wanted.keys()
        for name, values in wanted.items():
            np.testing.assert_allclose(
                gradients[name], values, rtol=1e-4, atol=1e-6, err_msg=name
            )


def test_parts_have_the_same_dropout_in_both_passes():
    """The gradient of the loss that the sums report, by differences."""
    config = AlbertConfig(**{**tiny.SIZES, "hidden_dropout_prob": 0.3})
    model, features = build(config=config), make_features()
    weights = weights_of(model)
    name = "bert/embeddings/LayerNorm/gamma"
    _, gradients = compute(model, features, 4)
    start, direction = weights[name].numpy(), np.sign(gradients[name])
    losses = []
    for step in (1e-2, -1e-2):
        weights[name].assign(start + step * direction)
        sums, _ = compute(model, features, 4)
        losses.append(sums[0, 0] / sums[0, 1])
    slope = (losses[0] - losses[1]) / 2e-2
    np.testing.assert_allclose(np.abs(gradients[name]).sum(), slope, rtol=0.02)


def test_equal_texts_differ_by_their_dropout_alone():
    config = AlbertConfig(**{**tiny.SIZES, "hidden_dropout_prob": 0.3})
    features = make_features()
    for name in ("input_ids", "input_mask"):
        features[name][:, 1] = features[name][:, 0]
    model = build(config=config)
    seed = tf.constant([3, 4])
    vectors = model(features, training=True, seed=seed)["vectors"].numpy()
    assert np.abs(vectors[:, 0] - vectors[:, 1]).max() > 1e-2
    plain = model(features)["vectors"].numpy()
    np.testing.assert_allclose(plain[:, 0], plain[:, 1], atol=1e-5)
