"""Positions beyond those that a model was trained with."""

import contextlib
import dataclasses
import json

import numpy as np
import pytest

from albert_tf import AlbertConfig, Pretraining, PretrainingRecipe
from albert_tf.model import initial_values, modeling
from albert_tf.weights import positions, pretrained
from tests import tiny, tiny_records

CONFIG = AlbertConfig.from_dict(tiny.SIZES)
LENGTH = tiny_records.NUM_TOKENS


def make_rows(num_rows, size=32, seed=0):
    """Returns mixtures of the waves that a model with neighbors begins with."""
    config = AlbertConfig(
        vocab_size=30,
        embedding_size=size,
        hidden_size=size,
        num_attention_heads=2,
        max_position_embeddings=num_rows,
    )
    model = modeling.AlbertEncoder(config)
    initial_values.begin_on_neighbors(model, config)
    rows = modeling.named_weights(model)[positions.NAME].numpy()
    mixing = np.random.default_rng(seed).normal(size=[size, size])
    return rows @ mixing + 1


def similarities(rows, distances):
    """Returns the mean product of rows at each distance, over that at 0."""
    rows = rows - rows.mean(axis=0)
    means = [
        (rows[: len(rows) - d] * rows[d:]).sum(axis=1).mean()
        for d in (0, *distances)
    ]
    return np.array(means[1:]) / means[0]


@pytest.mark.parametrize("num_trained", [64, 128])
def test_new_rows_relate_to_each_other_as_the_trained_ones(num_trained):
    rows = make_rows(num_trained)
    got = positions.continue_rows(rows, 4 * num_trained)
    np.testing.assert_allclose(got[:num_trained], rows, 1e-6)
    new = got[num_trained:]
    near, far = np.arange(1, 16), np.arange(32, 3 * num_trained - 32)
    profiles = similarities(new, near), similarities(rows, near)
    assert np.corrcoef(*profiles)[0, 1] > 0.75
    np.testing.assert_allclose(np.std(new), np.std(rows), rtol=0.05)
    # Repeated rows would have 1 at some distance.
    assert np.abs(similarities(new, far)).max() < 0.7


@pytest.mark.parametrize("num_trained", [1, 3, 4, 16])
def test_few_rows(num_trained):
    rows = np.random.default_rng(0).normal(size=[num_trained, 8])
    got = positions.continue_rows(rows, 40)
    assert got.shape == (40, 8) and np.isfinite(got).all()
    np.testing.assert_array_equal(got[:num_trained], rows.astype(np.float32))


def run(folder, records, config=CONFIG, start=None, steps=1):
    recipe = PretrainingRecipe(
        train_batch_size=2, num_train_steps=steps, num_warmup_steps=0
    )
    return Pretraining(folder, config, records, recipe=recipe, start=start)


def read_rows(model):
    return modeling.named_weights(model)[positions.NAME].numpy()


def test_untrained_and_missing_positions_are_continued(tmp_path, capsys):
    records = tiny_records.write(tmp_path / "train.tfrecord", 4)
    first = run(tmp_path / "first", records)
    first.train()
    start = pretrained.read_pretrained(tmp_path / "first")
    rows = start.values[positions.NAME]
    trained = read_rows(first.model)[:LENGTH]
    np.testing.assert_array_equal(
        rows, positions.continue_rows(trained, CONFIG.max_position_embeddings)
    )
    longer = dataclasses.replace(CONFIG, max_position_embeddings=len(rows) + 9)
    for config, said in ((CONFIG, LENGTH), (longer, len(rows))):
        size = config.max_position_embeddings
        second = run(tmp_path / f"second{size}", records, config, start)
        second.train()
        # One step at a low rate hardly moves them.
        wanted = positions.continue_rows(rows, size)
        np.testing.assert_allclose(read_rows(second.model), wanted, atol=1e-3)
        assert f"positions from {said} on" in capsys.readouterr().err
        made_of = second.session.manifest.stored["made_of"]
        assert made_of["trained_positions"] == LENGTH


def test_a_converted_model_has_continued_positions(tmp_path):
    records = tiny_records.write(tmp_path / "train.tfrecord", 4)
    run(tmp_path / "first", records).train()
    start = pretrained.read_pretrained(tmp_path / "first")
    (tmp_path / "hf").mkdir()
    pretrained.write_pretrained(tmp_path / "hf", start, "hf")
    converted = pretrained.read_pretrained(tmp_path / "hf")
    np.testing.assert_array_equal(
        converted.values[positions.NAME], start.values[positions.NAME]
    )
    assert start.remarks and not converted.remarks


@pytest.mark.parametrize("content", ["", "{}", '{"made_of": []}', "[]"])
def test_a_damaged_record_of_the_run_changes_nothing(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    assert positions.read_trained(tmp_path) is None


def test_what_others_trained_stays(tmp_path, capsys):
    records = tiny_records.write(tmp_path / "train.tfrecord", 4)
    run(tmp_path / "first", records).train()
    (tmp_path / "first/run.json").unlink()
    start = pretrained.read_pretrained(tmp_path / "first")
    second = run(tmp_path / "second", records, start=start)
    second.train()
    np.testing.assert_allclose(
        read_rows(second.model), start.values[positions.NAME], atol=1e-3
    )
    assert "positions from" not in capsys.readouterr().err
    assert "trained_positions" not in second.session.manifest.stored["made_of"]


def test_positions_that_are_known_to_be_new_are_recorded(tmp_path):
    records = tiny_records.write(tmp_path / "train.tfrecord", 4)
    run(tmp_path / "first", records).train()
    (tmp_path / "first/run.json").unlink()
    start = pretrained.read_pretrained(tmp_path / "first")
    # As `albert initialize` writes them.
    initial = initial_values.neighbors(CONFIG, start.values)
    table = initial[positions.NAME].astype(np.float32)
    untrained = start.values | {positions.NAME: table}
    size = CONFIG.max_position_embeddings
    for values, num_rows, wanted in (
        (start.values, size + 9, size),
        (untrained, size, LENGTH),
        (untrained, size + 9, LENGTH),
    ):
        config = dataclasses.replace(CONFIG, max_position_embeddings=num_rows)
        begun = dataclasses.replace(start, values=values)
        second = run(tmp_path / "second", records, config, begun)
        assert second.session.manifest.made_of["trained_positions"] == wanted


def test_longer_held_out_sequences_are_warned_of(tmp_path, caplog):
    records = tiny_records.write(tmp_path / "train.tfrecord", 4)
    run(tmp_path / "first", records).train()
    recipe = PretrainingRecipe(eval_batch_size=2)
    for length in (LENGTH, LENGTH - 3):
        with positions_known(tmp_path / "first", length):
            Pretraining(
                tmp_path / "first", CONFIG, held_out=records, recipe=recipe
            )
        said = f"was trained with {length} positions, the held-out sequences"
        assert (said in caplog.text) == (length < LENGTH)


@contextlib.contextmanager
def positions_known(folder, num_positions):
    """Context manager: the run in a folder has trained so many positions."""
    path = folder / "run.json"
    before = path.read_text()
    values = json.loads(before)
    values["made_of"]["trained_positions"] = num_positions
    path.write_text(json.dumps(values))
    yield
    path.write_text(before)
