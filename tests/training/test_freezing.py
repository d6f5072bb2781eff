"""Weights with `trainable=False` are kept in checkpoints and not trained."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import Classification, FineTuning, Recipe, named_weights
from albert_tf.training import loop, replicas, reporting
from albert_tf.weights import checkpoints, pretrained

pytestmark = pytest.mark.eager
TEXTS, LABELS = ["w1 w2", "w3", "w4 w5", "w6"] * 2, ["a", "b"] * 4
PARTS = {
    "encoder": lambda model: model.encoder,
    "embeddings": lambda model: model.encoder.embeddings,
    "ffn": lambda model: model.encoder.transformer.ffn[0][0],
    "head": lambda model: model.output_layer,
}


def build(model, folder, *frozen, start=None, dev=None, **kwargs):
    start = start or pretrained.read_pretrained(model)
    task = Classification.from_texts(
        start.tokenizer, TEXTS, LABELS, dev=dev, max_seq_length=16
    )
    settings = {"train_step": 4, "train_batch_size": 2, "learning_rate": 0.01}
    settings |= {"save_checkpoints_steps": 2, "log_every_steps": 1}
    recipe = Recipe(**settings | kwargs)
    tuning = FineTuning(folder, task, start, recipe)
    for part in frozen:
        PARTS[part](tuning.model).trainable = False
    return tuning


def stop_at(step, tuning, monkeypatch):
    """Trains until a step, whose checkpoint is the newest one, and dies."""
    progress = reporting.Reporter.progress

    def die(reporter, now, *rest):
        progress(reporter, now, *rest)
        if now > step:
            raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(reporting.Reporter, "progress", die)
        with pytest.raises(MemoryError):
            tuning.train()


def read(folder, step):
    return checkpoints.read_checkpoint(f"{folder}/model.ckpt-{step}")


@pytest.mark.parametrize(
    "num_parts, frozen",
    [
        *((1, [name]) for name in ("freeze_encoder", *PARTS)),
        # A part of a layer, and so all that a step does in parts.
        pytest.param(2, ["ffn"], marks=pytest.mark.traced),
    ],
    ids=str,
)
def test_frozen_weights_are_kept_without_slots(
    model, tmp_path, num_parts, frozen
):
    kwargs = {"gradient_accumulation_steps": num_parts, "optimizer": "lamb"}
    if frozen == ["freeze_encoder"]:
        frozen, kwargs = ["encoder"], kwargs | {"freeze_encoder": True}
        tuning = build(model, tmp_path, **kwargs)
    else:
        tuning = build(model, tmp_path, *frozen, **kwargs)
    before = {n: w.numpy() for n, w in named_weights(tuning.model).items()}
    names = {w.canonical_name for w in PARTS[frozen[0]](tuning.model).weights}
    before |= tuning.start.values
    tuning.train()
    after = read(tmp_path, 4)
    assert names and names < named_weights(tuning.model).keys() <= after.keys()
    for name in named_weights(tuning.model):
        is_kept = (after[name] == before[name]).all()
        assert is_kept == (name in names), name
        for slot in ("adam_m", "adam_v"):
            assert (f"{name}/{slot}" in after) == (name not in names)


def test_the_norm_is_that_of_the_trained_weights(model, tmp_path):
    tuning = build(model, tmp_path, "encoder")
    tuning.train()
    optimizer = tuning.session.optimizer
    batch = {
        "input_ids": tf.constant([[2, 7, 3], [2, 8, 3]]),
        "input_mask": tf.ones([2, 3], tf.int32),
        "segment_ids": tf.zeros([2, 3], tf.int32),
        "label_ids": tf.constant([0, 1]),
    }
    with tf.GradientTape() as tape:
        ratio = tuning.model.ratios(batch, True, tf.constant([12345, 4]))
        loss = ratio["loss"].total / ratio["loss"].weight
    variables = [w.value for w in tuning.model.output_layer.weights]
    wanted = tf.linalg.global_norm(tape.gradient(loss, variables))
    optimizer.step.assign(4)
    seed = replicas.replica_seed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            replicas, "replica_seed", lambda *_: tf.constant([12345, 4])
        )
        step = replicas.build_replica_step(tuning.model, optimizer)
        _, norm, _ = tf.distribute.get_strategy().run(step, args=(batch,))
    assert seed and float(wanted) > 0
    np.testing.assert_allclose(norm, wanted, rtol=1e-5)


def test_a_frozen_run_resumes_as_if_never_stopped(
    model, tmp_path, monkeypatch, capfd
):
    kwargs = {"freeze_encoder": True, "dev": (TEXTS, LABELS)}
    build(model, tmp_path / "whole", **kwargs).train()
    stop_at(2, build(model, tmp_path / "cut", **kwargs), monkeypatch)
    build(model, tmp_path / "cut", **kwargs).train()
    found, wanted = read(tmp_path / "cut", 4), read(tmp_path / "whole", 4)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    assert "Frozen: 25 of 27 weights" in capfd.readouterr().err


@pytest.mark.parametrize("before, after", [(1, 0), (0, 1)])
def test_accept_changes_permits_other_frozen_weights(
    model, tmp_path, monkeypatch, before, after, capfd
):
    """A kill before the next checkpoint does not bring the momentum back."""
    first = ["encoder"] * before
    then = ["encoder"] * after
    stop_at(2, build(model, tmp_path, *first), monkeypatch)
    with pytest.raises(ValueError, match=r"frozen: was .*accept_changes"):
        build(model, tmp_path, *then).train()
    changed = build(model, tmp_path, *then, accept_changes=True)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "train", lambda *_, **__: None)
        changed.train()  # Killed.
    assert "Resuming with a change: frozen: was" in capfd.readouterr().err
    # The same command again.
    build(model, tmp_path, *then, accept_changes=True).train()
    values = [read(tmp_path, step) for step in (2, 4)]
    name = "bert/pooler/dense/kernel"
    assert (values[0][name] == values[1][name]).all() == bool(after)
    assert (f"{name}/adam_m" in values[1]) == (not after)


def test_unfrozen_weights_begin_without_momentum(model, tmp_path, monkeypatch):
    """In one process, other checkpoints were restored before."""
    name = "bert/pooler/dense/kernel/adam_m"
    tuning = build(model, tmp_path, dev=(TEXTS, LABELS), train_step=6)
    stop_at(2, tuning, monkeypatch)
    tuning = build(model, tmp_path, "encoder", accept_changes=True)
    tuning.train()
    tuning = build(model, tmp_path, train_step=6, accept_changes=True)
    assert read(tmp_path, 2)[name].any() and name not in read(tmp_path, 4)
    tuning.session.manager.restore(f"{tmp_path}/model.ckpt-2")
    tuning.session.begin(tuning.config, list_files=dict, body_only=True)
    assert tuning.session.step == 4
    assert not tuning.session.optimizer.slots[name].numpy().any()


def test_a_frozen_run_is_scored_without_its_flag(model, tmp_path):
    build(model, tmp_path, freeze_encoder=True).train()
    tuning = build(model, tmp_path, dev=(TEXTS, LABELS))
    assert [row["global_step"] for row in tuning.evaluate()] == [2, 4]


def test_random_weights_are_not_frozen(model, tmp_path):
    start = pretrained.read_pretrained(model)
    empty = dataclasses.replace(start, values={})
    headless = {n: v for n, v in start.values.items() if "pooler" not in n}
    headless = dataclasses.replace(start, values=headless)
    for part, kwargs, message in (
        ((), {"freeze_encoder": True}, "random weights of the encoder "),
        (("encoder",), {}, "random weights of the encoder "),
        (("ffn",), {}, "random weights of the encoder "),
        (("encoder",), {"start": headless}, "random weights of the pooler "),
    ):
        kwargs = {"start": empty, **kwargs}
        kwargs["from_scratch"] = kwargs["start"] is empty
        tuning = build(model, tmp_path / "out", *part, **kwargs)
        with pytest.raises(ValueError, match=message):
            tuning.train()
    assert not checkpoints.list_checkpoints(tmp_path / "out")
    tuning = build(model, tmp_path / "out", "ffn", start=headless)
    tuning.train()


def test_freezing_all_or_after_begin_is_refused(model, tmp_path):
    tuning = build(model, tmp_path)
    tuning.model.trainable = False
    with pytest.raises(ValueError, match="All weights of the model are frozen"):
        tuning.train()
    tuning = build(model, tmp_path)
    tuning.session.begin(
        tuning.config, tuning.start, list_files=dict, body_only=True
    )
    tuning.model.encoder.trainable = False
    with pytest.raises(ValueError, match="call `begin` again"):
        loop.train(tuning.session, {})


def test_an_export_can_be_trained_as_a_whole(model, tmp_path):
    tuning = build(model, tmp_path / "out", "encoder", compute_dtype="float32")
    tuning.train()
    path = tuning.task.export(tuning, tmp_path / "served")
    loaded = tf.saved_model.load(path)
    assert len(loaded.trainable_variables) == len(loaded.variables) == 27
