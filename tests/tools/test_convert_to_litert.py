"""Models for devices: small, and near what they were made from."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import export, heads
from albert_tf.tools import convert_to_litert
from tests import tiny


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("litert")
    config = dataclasses.replace(
        tiny.CONFIG, vocab_size=3000, num_hidden_layers=6
    )
    model = heads.AlbertClassifier(config, num_labels=3)
    export.export_classifier(folder / "serving", model, max_seq_length=32)
    return folder, model


def flags(folder, weights, **kwargs):
    return convert_to_litert.ConvertFlags(
        saved_model=str(folder / "serving"),
        output=str(folder / f"{weights}.tflite"),
        weights=weights,
        **{"seq_length": 12, **kwargs},
    )


def test_weights_are_stored_once_and_small(exported, capsys):
    folder, model = exported
    sizes = {}
    for weights in ("float32", "float16", "int8"):
        convert_to_litert.run(flags(folder, weights))
        sizes[weights] = (folder / f"{weights}.tflite").stat().st_size
    num_weights = sum(np.prod(w.shape) for w in model.weights)
    # Six layers share a group; the graph itself takes its share.
    assert sizes["float32"] < 4 * num_weights + 80_000
    assert sizes["float16"] < sizes["float32"] - 1.8 * 3000 * 5
    assert sizes["int8"] < sizes["float32"] - 2.5 * 3000 * 5
    assert "differs by at most" in capsys.readouterr().out


def test_a_file_answers_as_the_model_does(exported):
    folder, model = exported
    convert_to_litert.run(flags(folder, "float32", batch_size=2))
    rng = np.random.default_rng(2)
    mask = np.ones([2, 12], np.int32)
    mask[1, 5:] = 0
    features = {
        "input_ids": rng.integers(5, 3000, (2, 12)).astype(np.int32),
        "input_mask": mask,
        "segment_ids": rng.integers(0, 2, (2, 12)).astype(np.int32),
    }
    found = convert_to_litert.run_interpreter(
        (folder / "float32.tflite").read_bytes(), features
    )
    wanted = model(features)["logits"]
    np.testing.assert_allclose(found["logits"], wanted, atol=1e-5)
    np.testing.assert_array_equal(
        found["predictions"], wanted.numpy().argmax(axis=1)
    )


def test_what_takes_no_ids_is_refused(tmp_path):
    module = tf.Module()
    call = tf.function(
        lambda text_a: {"lengths": tf.strings.length(text_a)},
        input_signature=[tf.TensorSpec([None], tf.string, name="text_a")],
    )
    tf.saved_model.save(module, str(tmp_path / "serving"), call)
    with pytest.raises(ValueError, match=r"takes ids alone; .*serving_def"):
        convert_to_litert.run(flags(tmp_path, "float32"))
    assert not (tmp_path / "float32.tflite").exists()
    with pytest.raises(FileNotFoundError, match="no SavedModel"):
        convert_to_litert.run(flags(tmp_path / "nowhere", "float32"))


def test_what_differs_is_not_written(exported, monkeypatch):
    folder, _ = exported
    monkeypatch.setattr(
        convert_to_litert, "compare", lambda *_: {"logits": float("nan")}
    )
    wrong = dataclasses.replace(
        flags(folder, "int8"), output=str(folder / "wrong.tflite")
    )
    with pytest.raises(ValueError, match="Nothing was written"):
        convert_to_litert.run(wrong)
    assert not (folder / "wrong.tflite").exists()
