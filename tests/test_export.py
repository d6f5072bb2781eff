"""SavedModels, loaded by processes that know nothing of this project."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import export, heads
from albert_tf.config import AlbertConfig

MAX_SEQ_LENGTH = 11
LABELS = ["bad", "fair", "good"]

# Prints what both of TensorFlow's loaders give for the SavedModels of some
# folders and the inputs.npz beside them: one JSON object a line.
LOADER = """
import json, sys
import numpy as np
import tensorflow as tf

for folder in sys.argv[1:]:
    inputs = dict(np.load(folder + "/../inputs.npz", allow_pickle=True))
    examples = {"examples": inputs.pop("examples")}
    results = {}
    loaded = tf.saved_model.load(folder)
    given = {"ids": inputs, "serving_default": examples}
    for name, values in given.items():
        values = {k: tf.constant(v) for k, v in values.items()}
        outputs = loaded.signatures[name](**values)
        results[name] = {k: v.numpy() for k, v in outputs.items()}
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], folder)
        for name, values in given.items():
            signature = meta.signature_def[name]
            fetches = {k: v.name for k, v in signature.outputs.items()}
            feed = {signature.inputs[k].name: v for k, v in values.items()}
            results["v1/" + name] = session.run(fetches, feed)
    print(json.dumps({
        k: {n: np.asarray(x).tolist() for n, x in v.items()}
        for k, v in results.items()
    }))
assert not {"albert_tf", "tensorflow_text"} & set(sys.modules)
"""


def build(**kwargs):
    config = AlbertConfig(
        vocab_size=31,
        embedding_size=5,
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=17,
        max_position_embeddings=MAX_SEQ_LENGTH,
    )
    return heads.AlbertClassifier(config, **kwargs)


def make_features(num_rows=4, num_tokens=7):
    rng = np.random.default_rng(5)
    ids = rng.integers(5, 31, (num_rows, num_tokens), np.int32)
    lengths = rng.integers(1, num_tokens + 1, num_rows)
    lengths[0] = num_tokens
    mask = (np.arange(num_tokens) < lengths[:, None]).astype(np.int32)
    return {
        "input_ids": ids * mask,
        "input_mask": mask,
        "segment_ids": mask * (np.arange(num_tokens) > 2).astype(np.int32),
    }


def serialize(features, pad_to=None):
    """Serializes rows without their padding, or padded to a length."""
    rows = []
    for row in range(len(features["input_ids"])):
        length = features["input_mask"][row].sum()
        example = tf.train.Example()
        for name, values in features.items():
            numbers = values[row, :length].tolist()
            numbers += [0] * ((pad_to or length) - length)
            example.features.feature[name].int64_list.value.extend(numbers)
        rows.append(example.SerializeToString())
    return rows


def export_and_move(tmp_path, objective):
    """Returns a model, its inputs and where its SavedModel was moved."""
    is_regression = objective == "regression"
    model = build(
        num_labels=1 if is_regression else 3,
        objective=objective,
        dtype="mixed_bfloat16" if objective == "multi_label" else None,
    )
    (tmp_path / "albert_config.json").write_text(model.config.to_json_string())
    folder = export.export_classifier(
        tmp_path / "export",
        model,
        max_seq_length=MAX_SEQ_LENGTH,
        labels=None if is_regression else LABELS,
        threshold=0.25 if objective == "classes" else None,
        assets=[tmp_path / "albert_config.json"],
    )
    moved = tmp_path / objective / "1"
    moved.parent.mkdir()
    shutil.move(folder, moved)
    features = make_features()
    examples = np.array(serialize(features), object)
    np.savez(moved.parent / "inputs.npz", examples=examples, **features)
    return model, features, moved


@pytest.fixture(scope="module")
def loaded_elsewhere(tmp_path_factory):
    """Dict of objective -> model, inputs, folder and what others load."""
    tmp_path = tmp_path_factory.mktemp("exports")
    exports = [export_and_move(tmp_path, name) for name in heads.OBJECTIVES]
    done = subprocess.run(
        [sys.executable, "-c", LOADER, *(folder for *_, folder in exports)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert not done.returncode, done.stderr
    results = map(json.loads, done.stdout.splitlines())
    return {
        name: (*export, result)
        for name, export, result in zip(
            heads.OBJECTIVES, exports, results, strict=True
        )
    }


@pytest.mark.parametrize("objective", heads.OBJECTIVES)
def test_both_loaders_give_the_models_outputs(loaded_elsewhere, objective):
    model, features, folder, results = loaded_elsewhere[objective]
    is_regression = objective == "regression"
    logits = model(features)["logits"].numpy()
    assert len(results) == 4
    predictions = {
        "classes": logits.argmax(axis=1),
        "regression": logits[:, 0],
        "multi_label": (logits > 0).astype(int),
    }[objective]
    # multi_label is computed in bfloat16 here.
    tolerance = 1e-5 if objective != "multi_label" else 2e-2
    for name, outputs in results.items():
        np.testing.assert_allclose(
            outputs["logits"], logits, atol=tolerance, err_msg=name
        )
        np.testing.assert_allclose(
            outputs["predictions"], predictions, atol=tolerance
        )
        assert ("probabilities" in outputs) == (not is_regression)
        assert outputs.get("threshold", 0.25) == 0.25
        assert ("threshold" in outputs) == (objective == "classes")
    if objective == "classes":
        chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(
            results["ids"]["probabilities"], chances, atol=1e-5
        )
    names = {path.name for path in (folder / "assets").iterdir()}
    assert "albert_config.json" in names
    assert ("labels.txt" in names) == (not is_regression)
    if not is_regression:
        text = (folder / "assets" / "labels.txt").read_text()
        assert text.splitlines() == LABELS


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    model = build(num_labels=3)
    folder = export.export_classifier(
        tmp_path_factory.mktemp("export"), model, max_seq_length=MAX_SEQ_LENGTH
    )
    return model, folder, tf.saved_model.load(folder)


def test_any_batch_and_length_is_served(exported):
    model, _, loaded = exported
    for num_rows, num_tokens in ((1, 1), (3, MAX_SEQ_LENGTH), (9, 4)):
        features = make_features(num_rows, num_tokens)
        wanted = model(features)["logits"]
        given = {name: tf.constant(value) for name, value in features.items()}
        found = loaded.signatures["ids"](**given)["logits"]
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_padded_records_give_what_short_ones_give(exported):
    _, _, loaded = exported
    serve = loaded.signatures["serving_default"]
    features = make_features()
    short = serve(examples=tf.constant(serialize(features)))
    padded = serve(examples=tf.constant(serialize(features, MAX_SEQ_LENGTH)))
    np.testing.assert_allclose(short["logits"], padded["logits"], atol=1e-6)


def test_the_releases_records_are_served(exported, golden):
    """They have labels beside, and 64 tokens of another vocabulary."""
    model = build(num_labels=2)
    path = str(golden("classify/mrpc_dev.tf_record"))
    records = [x.numpy() for x in tf.data.TFRecordDataset(path)]
    parsed = export.parse_examples(tf.constant(records), 64)
    assert parsed["input_ids"].shape == (len(records), 64)
    small = {
        "input_ids": parsed["input_ids"] % model.config.vocab_size,
        "input_mask": parsed["input_mask"],
        "segment_ids": parsed["segment_ids"],
    }
    small = {name: values[:, :MAX_SEQ_LENGTH] for name, values in small.items()}
    assert model(small)["logits"].shape == (len(records), 2)


def test_too_long_records_are_refused(exported):
    _, _, loaded = exported
    features = make_features()
    long = tf.constant(serialize(features, MAX_SEQ_LENGTH + 1))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="(?s)Wanted input_ids of 1 to"
    ):
        loaded.signatures["serving_default"](examples=long)


def test_a_wrong_name_is_answered_with_the_right_ones(exported):
    _, _, loaded = exported
    with pytest.raises(TypeError, match="examples"):
        loaded.signatures["serving_default"](words=tf.constant(["a"]))


def test_each_variable_is_stored_once(exported):
    model, folder, _ = exported
    shapes = tf.train.list_variables(f"{folder}/variables/variables")
    size = sum(np.prod(s) for n, s in shapes if "VARIABLE_VALUE" in n)
    assert size == sum(np.prod(v.shape) for v in model.variables)


def test_another_export_gets_a_folder_of_its_own(exported):
    model, folder, _ = exported
    parent = os.path.dirname(folder)
    again = [
        export.export_classifier(parent, model, max_seq_length=MAX_SEQ_LENGTH)
        for _ in range(2)
    ]
    assert len({folder, *again}) == 3
    assert not [n for n in os.listdir(parent) if not n.isdecimal()]
