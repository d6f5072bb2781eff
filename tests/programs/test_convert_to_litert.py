"""Models for devices: small, and near what they were made from."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.commands.convert_to_litert import ConvertFlags
from albert_tf.export import saved_models, serving
from albert_tf.model import heads, span_heads
from albert_tf.programs import convert_to_litert
from tests import tiny


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("litert")
    config = dataclasses.replace(
        tiny.CONFIG, vocab_size=3000, num_hidden_layers=6
    )
    model = heads.AlbertClassifier(config, num_labels=3)
    serving.export_classifier(folder / "serving", model, max_seq_length=32)
    return folder, model


def flags(folder, weights, **kwargs):
    return ConvertFlags(
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


def test_a_compact_model_of_few_pieces_is_converted(tmp_path, capsys):
    """Its embeddings are constants; assets say how many there are."""
    model = heads.AlbertClassifier(tiny.CONFIG, num_labels=3)
    config = tmp_path / "albert_config.json"
    config.write_text(tiny.CONFIG.to_json_string())
    serving.export_classifier(
        tmp_path / "serving",
        model,
        max_seq_length=12,
        contents=saved_models.Contents(assets=[str(config)], is_compact=True),
    )
    # Without a length, that of the export.
    convert_to_litert.run(flags(tmp_path, "float32", seq_length=None))
    assert "sequences of 12 tokens" in capsys.readouterr().out
    assert (tmp_path / "float32.tflite").exists()


def test_a_model_that_answers_early_is_refused(tmp_path):
    model = heads.AlbertClassifier(tiny.CONFIG, num_labels=3)
    serving.export_classifier(
        tmp_path / "serving", model, max_seq_length=12, exit_threshold=0.2
    )
    with pytest.raises(ValueError, match="with --exit_threshold=0"):
        convert_to_litert.run(flags(tmp_path, "float32"))


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


@pytest.mark.parametrize("weights", ["float32", "float16"])
def test_answers_of_squad_are_compared(tmp_path, capsys, weights):
    # A vocabulary that is smaller than usual, and a beam with masked scores.
    model = span_heads.AlbertConditionalSpans(tiny.CONFIG, start_n_top=12)
    serving.export_spans(tmp_path / "serving", model, max_seq_length=32)
    convert_to_litert.run(flags(tmp_path, weights))
    assert "start_top_log_probs" in capsys.readouterr().out


def test_a_comparison_sees_all_but_masked_scores():
    difference = convert_to_litert._difference
    wanted = np.array([1.0, -1e30], np.float32)
    assert difference(np.array([1.5, -65504.0], np.float32), wanted) == 0.5
    assert difference(np.array([-65504.0, 1.0], np.float32), wanted) > 60_000


def test_another_signature_is_converted_if_asked_for(exported, capsys):
    folder, _ = exported
    # Without a length, all positions of the model.
    changes = {"signature": "ids", "seq_length": None}
    convert_to_litert.run(flags(folder, "float32", **changes))
    said = capsys.readouterr().out
    assert "logits" in said and "sequences of 32 tokens" in said
    with pytest.raises(ValueError, match="no signature examples that"):
        convert_to_litert.run(flags(folder, "float32", signature="examples"))
    assert convert_to_litert.TOLERANCES["float32"] <= 1e-4


def test_what_takes_no_ids_is_refused(tmp_path):
    module = tf.Module()
    nothing = tf.function(lambda: {"x": tf.constant(1)}, input_signature=[])
    tf.saved_model.save(module, str(tmp_path / "none/serving"), nothing)
    with pytest.raises(ValueError, match="takes only ids"):
        convert_to_litert.run(flags(tmp_path / "none", "float32"))
    call = tf.function(
        lambda text_a: {"lengths": tf.strings.length(text_a)},
        input_signature=[tf.TensorSpec([None], tf.string, name="text_a")],
    )
    tf.saved_model.save(module, str(tmp_path / "serving"), call)
    with pytest.raises(ValueError, match=r"takes only ids; .*serving_def"):
        convert_to_litert.run(flags(tmp_path, "float32"))
    assert not (tmp_path / "float32.tflite").exists()
    with pytest.raises(FileNotFoundError, match="no SavedModel"):
        convert_to_litert.run(flags(tmp_path / "nowhere", "float32"))


def test_what_differs_is_not_written(exported, monkeypatch):
    folder, _ = exported
    monkeypatch.setattr(
        convert_to_litert,
        "compare",
        lambda *_: {"probabilities": 0.0, "logits": float("nan")},
    )
    wrong = dataclasses.replace(
        flags(folder, "int8"), output=str(folder / "wrong.tflite")
    )
    with pytest.raises(ValueError, match="Nothing was written"):
        convert_to_litert.run(wrong)
    assert not (folder / "wrong.tflite").exists()
