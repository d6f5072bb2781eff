"""Fine-tuning with weights of classes."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import Classification, FineTuning, Recipe, read_pretrained
from albert_tf.weights import checkpoints
from tests import tiny

TEXTS = [f"w{i % 5} w{i % 7} w{i % 3}" for i in range(12)]
LABELS = ["rare" if i in (2, 7) else "common" for i in range(12)]
RECIPE = Recipe(
    train_step=4,
    train_batch_size=8,
    learning_rate=0.01,
    classifier_dropout=0.0,
    compute_dtype="float32",
)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    config = dataclasses.replace(tiny.ONE_LAYER, hidden_dropout_prob=0.0)
    folder = tmp_path_factory.mktemp("start")
    return read_pretrained(tiny.write_model(folder, config))


def build(folder, start, class_weight, recipe=RECIPE, **kwargs):
    task = Classification.from_texts(
        start.tokenizer,
        TEXTS,
        LABELS,
        dev=(TEXTS, LABELS),
        max_seq_length=8,
        class_weight=class_weight,
    )
    return FineTuning(folder, task, start, recipe, **kwargs)


def train(*args, **kwargs):
    """Returns the weights after training."""
    tuning = build(*args, **kwargs)
    tuning.train()
    return checkpoints.read_checkpoint(tuning.session.manager.prefix(4))


@pytest.fixture(scope="module")
def weighted(start, tmp_path_factory):
    folder = tmp_path_factory.mktemp("balanced")
    return folder, train(folder, start, "balanced")


def check_close(ours, theirs):
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, atol=2e-5, err_msg=name)


@pytest.mark.traced
@pytest.mark.parametrize(
    "kind", ["two replicas", "two parts of a batch", "numbers"]
)
def test_weights_do_not_depend_on_how_the_batch_is_computed(
    weighted, start, tmp_path, kind
):
    class_weight, recipe, strategy = "balanced", RECIPE, None
    if kind == "two replicas":
        # Not a collective, whose number in this process another test may have.
        strategy = tf.distribute.MirroredStrategy(
            ["CPU:0", "CPU:1"],
            cross_device_ops=tf.distribute.ReductionToOneDevice(),
        )
    elif kind == "two parts of a batch":
        recipe = dataclasses.replace(RECIPE, gradient_accumulation_steps=2)
    else:
        class_weight = {"common": 12 / (2 * 10), "rare": 12 / (2 * 2)}
    check_close(
        train(tmp_path, start, class_weight, recipe, strategy=strategy),
        weighted[1],
    )


def test_weights_change_the_model_and_no_score(weighted, start, tmp_path):
    plain = train(tmp_path, start, None)
    name = "output_bias"
    assert np.abs(plain[name] - weighted[1][name]).max() > 1e-3
    tuning = build(weighted[0], start, "balanced")
    assert "Their weights: 0.6, 3." in " ".join(tuning.task.describe_data())
    tuning.restore_best()
    scores = tuning.task.score(tuning)
    unweighted = build(tmp_path / "other", start, None)
    unweighted.source = tuning.source
    for theirs, ours in zip(
        unweighted.model.weights, tuning.model.weights, strict=True
    ):
        theirs.assign(ours)
    assert unweighted.task.score(unweighted) == scores


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_a_loss_above_the_priors_is_no_fault_of_weighted_classes(
    start, tmp_path, capfd, class_weight
):
    tuning = build(tmp_path, start, class_weight)
    label_ids = tuning.task.train.arrays["label_ids"]
    logits = np.eye(2)[1 - label_ids]
    args = tuning, logits, label_ids, "classes", {"eval_loss": 1.3}
    tuning.task.warn_of_collapse(*args)
    warns = "that of a constant guess" in capfd.readouterr().err
    assert warns == (class_weight is None)
    tuning.reporter.step = 1  # Of several: it may still learn.
    tuning.task.warn_of_collapse(*args)
    assert "constant guess" not in capfd.readouterr().err


@pytest.mark.parametrize("other", [None, {"rare": 2, "common": 1}])
def test_a_run_goes_on_with_its_weights(weighted, start, other):
    with pytest.raises(ValueError, match="loss.class_weights: was "):
        build(weighted[0], start, other)


def test_a_run_without_weights_goes_on_without(start, tmp_path):
    build(tmp_path, start, None).train()
    with pytest.raises(ValueError, match=r"was null, is \[0.6, 3.0\]: needs"):
        build(tmp_path, start, "balanced")
