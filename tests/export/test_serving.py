"""SavedModels, in a process that knows TensorFlow and nothing of ours.

The models are exported once, moved, and loaded in one other process, where
TensorFlow 2 and the loader of TensorFlow 1 answer the same requests.
"""

import inspect
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import ownership
from albert_tf.export import requests, saved_models, serving
from albert_tf.model import execution, heads, modeling
from albert_tf.model.config import AlbertConfig
from albert_tf.training import distribution
from albert_tf.weights import pretrained
from tests import tiny

MAX_SEQ_LENGTH = 6
POSITIONS = 9
LABELS = ("bad", "süß", "not so good")
# All batch sizes at all lengths.
SHAPES = [(b, t) for b in (1, 3) for t in range(1, MAX_SEQ_LENGTH + 1)]
MODELS = {
    "classes": {"num_labels": 3, "num_hidden_layers": 2},
    "regression": {"num_labels": 1, "objective": "regression"},
    "multi_label": {"num_labels": 4, "objective": "multi_label"},
    "bfloat16": {"num_labels": 3, "dtype": "mixed_bfloat16"},
    "mirrored": {"num_labels": 3},
    "compact": {"num_labels": 3},
    "compact bfloat16": {"num_labels": 3, "dtype": "mixed_bfloat16"},
}
EXPORTS = {
    "classes": {"labels": LABELS},
    "compact": {"is_compact": True},
    "compact bfloat16": {"is_compact": True},
}
THRESHOLDS = {"classes": 0.25, "bfloat16": 0.0}

CPU_INFO = pathlib.Path("/proc/cpuinfo")
CPU_FLAGS = CPU_INFO.read_text("utf-8").split() if CPU_INFO.exists() else ()


# The other process. It has the source of these functions, no more.


def answer_with_v2(path, requests):
    """Returns the signatures' inputs and outputs, and all answers."""
    import tensorflow as tf

    signatures = tf.saved_model.load(path).signatures
    described, answers = {}, {}
    for name, signature in signatures.items():
        given = signature.structured_input_signature[1]
        described[name] = [
            {n: (s.shape.as_list(), s.dtype.name) for n, s in specs.items()}
            for specs in (given, signature.structured_outputs)
        ]
    for key, (name, inputs) in requests.items():
        try:
            inputs = {n: tf.constant(x) for n, x in inputs.items()}
            outputs = signatures[name](**inputs)
            answers[key] = {n: x.numpy() for n, x in outputs.items()}
        except (TypeError, tf.errors.OpError) as error:
            answers[key] = str(error)
    return described, answers


def answer_with_v1(path, requests):
    """Returns all answers but those to wrong names."""
    import tensorflow.compat.v1 as tf

    answers = {}
    with tf.Session(graph=tf.Graph()) as session:
        meta = tf.saved_model.load(session, ["serve"], path)
        for key, (name, inputs) in requests.items():
            signature = meta.signature_def[name]
            if inputs.keys() != set(signature.inputs):
                continue
            try:
                answers[key] = session.run(
                    {n: x.name for n, x in signature.outputs.items()},
                    {signature.inputs[n].name: x for n, x in inputs.items()},
                )
            except tf.errors.OpError as error:
                answers[key] = str(error)
    return answers


def main(folder):
    """Answers the requests in a folder."""
    import pickle
    import sys

    # TensorFlow imports Keras where it is there; this is as if it were not.
    sys.modules["keras"] = None
    with open(f"{folder}/requests.pickle", "rb") as file:
        requests = pickle.load(file)
    answers = {}
    for name, calls in requests.items():
        path = f"{folder}/moved/{name}"
        described, by_v2 = answer_with_v2(path, calls)
        answers[name] = described, {2: by_v2, 1: answer_with_v1(path, calls)}
    modules = {name for name, module in sys.modules.items() if module}
    answers["modules"] = {name.split(".")[0] for name in modules}
    with open(f"{folder}/answers.pickle", "wb") as file:
        pickle.dump(answers, file)


OTHER_PROCESS = (answer_with_v2, answer_with_v1, main)


# This process.


def build_model(
    *, vocab_size=31, positions=POSITIONS, num_hidden_layers=1, **kwargs
):
    config = AlbertConfig(
        **{
            **tiny.SIZES,
            "num_hidden_layers": num_hidden_layers,
            "vocab_size": vocab_size,
            "max_position_embeddings": positions,
        }
    )
    model = heads.AlbertClassifier(config, **kwargs)
    rng = np.random.default_rng(7)
    for weight in modeling.named_weights(model).values():
        weight.assign(rng.normal(size=weight.shape, scale=0.3))
    return model


def make_features(num_rows, num_tokens):
    """Random features, of which the first row has no padding."""
    rng = np.random.default_rng([num_rows, num_tokens])
    shape = num_rows, num_tokens
    lengths = rng.integers(min(1, num_tokens), num_tokens + 1, (num_rows, 1))
    lengths[0] = num_tokens
    mask = (np.arange(num_tokens) < lengths).astype(np.int32)
    return {
        "input_ids": rng.integers(5, 31, shape, np.int32) * mask,
        "input_mask": mask,
        "segment_ids": rng.integers(0, 2, shape, np.int32) * mask,
    }


def serialize(features, length=None):
    """Serializes rows: without their padding, or padded to a length."""
    examples = []
    for row, mask in enumerate(features["input_mask"]):
        example = tf.train.Example()
        for name, values in features.items():
            values = values[row, : mask.sum()]
            if length:
                values = np.pad(values, (0, length - len(values)))
            example.features.feature[name].int64_list.value.extend(values)
        examples.append(example.SerializeToString())
    return examples


def make_requests():
    """Requests by name: a signature and its inputs."""
    requests = {}
    for shape in SHAPES:
        features = make_features(*shape)
        requests[("ids", *shape)] = "ids", features
        for name, length in (("short", None), ("full", MAX_SEQ_LENGTH)):
            examples = {"examples": serialize(features, length)}
            requests[(name, *shape)] = "serving_default", examples
    long = make_features(3, MAX_SEQ_LENGTH + 1)
    examples = serialize(make_features(2, 4))
    wrong = {
        "too long ids": ("ids", long),
        "no ids": ("ids", make_features(3, 0)),
        "wrong ids": ("ids", {**long, "labels": [1, 0, 1]}),
        "too long example": ("serving_default", {"examples": serialize(long)}),
        "no tokens": ("serving_default", {"examples": [*examples, b""]}),
        "wrong name": ("serving_default", {"records": examples}),
    }
    for kind, name in (("mask", "input_mask"), ("segments", "segment_ids")):
        example = tf.train.Example.FromString(examples[0])
        del example.features.feature[name]
        mixed = [examples[1], example.SerializeToString()]
        wrong[f"no {kind}"] = "serving_default", {"examples": mixed}
    return requests | wrong


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Exports MODELS; returns them, the moved folders and all answers."""
    folder = tmp_path_factory.mktemp("export")
    note = folder / "albert_config.json"
    note.write_text("{}")
    models = {}
    for name, settings in MODELS.items():
        strategy = tf.distribute.get_strategy()
        if name == "mirrored":
            strategy = distribution.build_strategy("mirrored")
        with strategy.scope():
            models[name] = build_model(**settings)
        written = serving.export_classifier(
            folder / "written" / name,
            models[name],
            max_seq_length=MAX_SEQ_LENGTH,
            threshold=THRESHOLDS.get(name),
            contents=saved_models.Contents(
                assets=[note], **EXPORTS.get(name, {})
            ),
        )
        shutil.move(written, folder / "moved" / name)
    note.unlink()
    requests = dict.fromkeys(MODELS, make_requests())
    (folder / "requests.pickle").write_bytes(pickle.dumps(requests))
    source = "\n".join(map(inspect.getsource, OTHER_PROCESS))
    # -I: neither this folder nor PYTHONPATH is searched for modules.
    subprocess.run(
        [sys.executable, "-I", "-c", f"{source}\nmain({str(folder)!r})"],
        check=True,
    )
    answers = pickle.loads((folder / "answers.pickle").read_bytes())
    return models, folder / "moved", answers


def compare(exported, name, check):
    """Calls check with the model's logits and each answer it must give."""
    models, _, answers = exported
    num_checks = 0
    for shape in SHAPES:
        features = make_features(*shape)
        logits = models[name](features)["logits"].numpy()
        for version in (1, 2):
            for kind in ("ids", "short", "full"):
                check(logits, answers[name][1][version][(kind, *shape)])
                num_checks += 1
    assert num_checks == 6 * len(SHAPES)


@pytest.mark.parametrize("name", MODELS)
def test_both_loaders_give_the_models_logits(exported, name):
    # Rounding differs where operations are fused.
    tolerance = 0.05 if name.endswith("bfloat16") else 1e-5

    def check(logits, answer):
        assert answer["logits"].dtype == np.float32
        np.testing.assert_allclose(answer["logits"], logits, atol=tolerance)

    compare(exported, name, check)


def test_classes_have_probabilities_and_an_index(exported):
    def check(logits, answer):
        odds = np.exp(logits)
        wanted = odds / odds.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(answer["probabilities"], wanted, atol=1e-5)
        np.testing.assert_array_equal(answer["predictions"], logits.argmax(1))

    compare(exported, "classes", check)


def test_multi_label_outputs_have_one_probability_each(exported):
    def check(logits, answer):
        wanted = 1 / (1 + np.exp(-logits))
        np.testing.assert_allclose(answer["probabilities"], wanted, atol=1e-5)
        np.testing.assert_array_equal(answer["predictions"], wanted > 0.5)

    compare(exported, "multi_label", check)


def test_a_regression_predicts_its_logit(exported):
    def check(logits, answer):
        np.testing.assert_allclose(
            answer["predictions"], logits[:, 0], atol=1e-5
        )

    compare(exported, "regression", check)


def test_signatures_have_these_inputs_and_outputs(exported):
    described = {name: exported[2][name][0] for name in MODELS}
    examples = {"examples": ([None], "string")}
    ids = dict.fromkeys(requests.FEATURES, ([None, None], "int32"))
    for name, signatures in described.items():
        assert signatures.keys() == {"serving_default", "ids"}, name
        assert signatures["serving_default"][0] == examples
        assert signatures["ids"][0] == ids
        assert signatures["serving_default"][1] == signatures["ids"][1]
    outputs = {name: described[name]["ids"][1] for name in MODELS}
    assert (
        outputs["classes"]
        == outputs["bfloat16"]
        == {
            "logits": ([None, 3], "float32"),
            "probabilities": ([None, 3], "float32"),
            "predictions": ([None], "int32"),
            "threshold": ([None], "float32"),
        }
    )
    assert outputs["multi_label"] == {
        "logits": ([None, 4], "float32"),
        "probabilities": ([None, 4], "float32"),
        "predictions": ([None, 4], "int32"),
    }
    assert outputs["regression"] == {
        "logits": ([None, 1], "float32"),
        "predictions": ([None], "float32"),
    }


@pytest.mark.parametrize(
    ("name", "value"), [("classes", 0.25), ("bfloat16", 0)]
)
def test_every_row_gets_the_threshold(exported, name, value):
    def check(logits, answer):
        wanted = np.full(len(logits), value, np.float32)
        np.testing.assert_array_equal(answer["threshold"], wanted)

    compare(exported, name, check)


@pytest.mark.parametrize(
    ("request_name", "message"),
    [
        ("too long ids", "max_seq_length"),
        ("too long example", "max_seq_length"),
        ("no mask", "needs a list input_mask"),
        ("no segments", "needs a list segment_ids"),
        ("no tokens", "has no token"),
        ("no ids", "has no token"),
    ],
)
def test_what_cannot_be_served_is_explained(exported, request_name, message):
    for version, answers in exported[2]["classes"][1].items():
        assert message in answers[request_name], version


def test_wrong_names_are_answered_with_the_expected_ones(exported):
    answers = exported[2]["classes"][1][2]
    assert "examples" in answers["wrong name"]
    for name in requests.FEATURES:
        assert name in answers["wrong ids"]


def test_serving_needs_tensorflow_alone(exported):
    others = {"albert_tf", "keras", "tf_keras", "tensorflow_text"}
    assert not exported[2]["modules"] & others


def test_assets_are_copied_with_the_model(exported):
    _, folder, _ = exported
    found = {
        name: {path.name for path in (folder / name / "assets").iterdir()}
        for name in MODELS
    }
    assert found["classes"] == {"albert_config.json", "labels.txt"}
    assert found["regression"] == {"albert_config.json"}
    labels = folder / "classes" / "assets" / "labels.txt"
    assert labels.read_text(encoding="utf-8") == "bad\nsüß\nnot so good\n"


def test_each_weight_is_stored_once_and_can_be_trained(exported):
    models, folder, _ = exported
    for name, model in models.items():
        named = modeling.named_weights(model)
        if name.startswith("compact"):
            large = ("kernel", "word_embeddings")
            named = {n: w for n, w in named.items() if not n.endswith(large)}
        weights = named.values()
        stored = tf.train.list_variables(
            str(folder / name / "variables/variables")
        )
        shapes = [s for n, s in stored if n.endswith("VARIABLE_VALUE")]
        assert sorted(shapes) == sorted(list(w.shape) for w in weights)
        loaded = tf.saved_model.load(str(folder / name))
        assert len(loaded.variables) == len(loaded.trainable_variables)
        assert len(loaded.variables) == len(weights)
        assert list(loaded.regularization_losses) == []


@pytest.mark.parametrize("is_large", [False, True])
def test_kernels_are_constants_unless_they_are_large(
    tmp_path, monkeypatch, is_large
):
    model = build_model(num_labels=2)
    if is_large:
        monkeypatch.setattr(execution, "MAX_CONSTANT_BYTES", 1000)
    path = serving.export_classifier(tmp_path, model, max_seq_length=8)
    loaded = tf.saved_model.load(path)
    signature = loaded.signatures["ids"]
    ids = tf.constant([[2, 7, 3]])
    inputs = {"input_ids": ids, "input_mask": ids * 0 + 1}
    inputs["segment_ids"] = ids * 0
    found = signature(**inputs)["logits"]
    np.testing.assert_allclose(found, model(inputs)["logits"], atol=1e-5)
    for name, variable in loaded.weights.items():
        if name.endswith("kernel"):
            variable.assign(tf.zeros_like(variable))
    after = signature(**inputs)["logits"]
    assert bool(np.abs(found - after).max() > 1e-3) == is_large


@pytest.fixture(scope="module")
def exported_longer(tmp_path_factory):
    """A model with positions for 96 tokens, and the folder of its export."""
    config = AlbertConfig(
        vocab_size=31,
        embedding_size=16,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=256,
        max_position_embeddings=96,
    )
    model = heads.AlbertClassifier(config, num_labels=2)
    folder = tmp_path_factory.mktemp("longer")
    path = serving.export_classifier(folder, model, max_seq_length=96)
    return model, path


ROUNDS = ((96, 8), (8, 96), (81, 80))


@pytest.fixture(scope="module")
def reorders(exported_longer):
    """The kernels that oneDNN reorders for requests, once warm: dict of lists.

    Each round loads the model anew and requests two numbers of tokens, twice;
    only what is reordered the second time counts.
    """
    program = f"""
import tensorflow as tf
for lengths in {ROUNDS}:
    loaded = tf.saved_model.load({str(exported_longer[1])!r})
    for time in (1, 2):
        print("round", flush=True)
        for length in lengths:
            ids = tf.ones([1, length], tf.int32)
            features = dict(input_ids=ids, input_mask=ids, segment_ids=ids * 0)
            loaded.signatures["ids"](**features)
"""
    output = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"ONEDNN_VERBOSE": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    if "inner_product" not in output:
        pytest.skip("This TensorFlow multiplies without oneDNN.")
    # The layouts of kernels have capitals, such as AB16b64a.
    return {
        lengths: [
            line
            for line in said.splitlines()
            if re.search(r",reorder,.* dst:\S*:blocked:[A-Z]", line)
        ]
        for lengths, said in zip(
            ROUNDS, output.split("round\n")[2::2], strict=True
        )
    }


@pytest.mark.skipif(
    "avx512f" not in CPU_FLAGS, reason="the order differs on other CPUs"
)
@pytest.mark.parametrize("lengths", ROUNDS, ids=str)
def test_no_kernel_is_reordered_again(reorders, lengths):
    assert not reorders[lengths]


def test_few_and_many_rows_give_the_models_logits(exported_longer):
    model, path = exported_longer
    signature = tf.saved_model.load(path).signatures["ids"]
    for shape in ((1, 80), (1, 81), (4, 20), (3, 40)):
        features = make_features(*shape)
        np.testing.assert_allclose(
            signature(**{n: tf.constant(x) for n, x in features.items()})[
                "logits"
            ],
            model(features)["logits"],
            atol=1e-5,
        )


def test_a_compact_model_stores_large_weights_once(tmp_path):
    sizes = {}
    for dtype in ("float32", "mixed_bfloat16"):
        model = build_model(
            vocab_size=9000, num_hidden_layers=2, num_labels=2, dtype=dtype
        )
        for is_compact in (False, True):
            path = serving.export_classifier(
                tmp_path / f"{dtype}{is_compact}",
                model,
                max_seq_length=8,
                contents=saved_models.Contents(is_compact=is_compact),
            )
            sizes[dtype, is_compact] = sum(
                os.path.getsize(os.path.join(folder, file))
                for folder, _, files in os.walk(path)
                for file in files
            )
    table = 9000 * model.config.embedding_size
    whole, compact = (sizes["float32", c] for c in (False, True))
    assert whole > 4 * table
    assert compact < whole
    saved = sizes["mixed_bfloat16", False] - sizes["mixed_bfloat16", True]
    assert saved > 0.9 * 2 * table


def test_large_kernels_cannot_be_compact(tmp_path, monkeypatch):
    monkeypatch.setattr(execution, "MAX_CONSTANT_BYTES", 1000)
    with pytest.raises(ValueError, match="a compact SavedModel stores them as"):
        serving.export_classifier(
            tmp_path,
            build_model(num_labels=2),
            max_seq_length=8,
            contents=saved_models.Contents(is_compact=True),
        )
    assert not list(tmp_path.iterdir())


def test_a_compact_model_has_no_weights_to_start_from(tmp_path):
    path = serving.export_classifier(
        tmp_path,
        build_model(num_labels=2),
        max_seq_length=8,
        contents=saved_models.Contents(is_compact=True),
    )
    with pytest.raises(ValueError, match="export_compact=True"):
        pretrained.read_pretrained(path)


def test_the_releases_records_are_served(tmp_path, golden):
    path = str(golden("classify/mrpc_dev.tf_record"))
    records = [r.numpy() for r in tf.data.TFRecordDataset(path)]
    model = build_model(vocab_size=30000, positions=64, num_labels=2)
    written = serving.export_classifier(tmp_path, model, max_seq_length=64)
    serve = tf.saved_model.load(written).signatures["serving_default"]
    features = {name: [] for name in requests.FEATURES}
    for record in map(tf.train.Example.FromString, records):
        for name, rows in features.items():
            rows.append(record.features.feature[name].int64_list.value)
    features = {name: np.array(rows) for name, rows in features.items()}
    assert features["input_ids"].shape == (11, 64)
    np.testing.assert_allclose(
        serve(examples=tf.constant(records))["logits"],
        model(features)["logits"],
        atol=1e-5,
    )


def export_quickly(folder):
    """Writes a version without signatures, which take longest."""
    model = build_model(num_labels=2)
    return saved_models.write_version(folder, model, {})


def test_a_newer_export_has_a_higher_number(tmp_path, monkeypatch):
    monkeypatch.setattr(saved_models.time, "time", lambda: 1234.5)
    folder = tmp_path / "new" / "folder"
    for number in (1234, 1235):
        assert saved_models.next_version(folder) == str(folder / str(number))
        assert export_quickly(folder) == str(folder / str(number))
    (folder / "99999999999").mkdir()
    (folder / "notes").mkdir()
    assert saved_models.next_version(folder) == str(folder / "100000000000")


def test_the_newest_export_has_the_highest_number(tmp_path):
    for name in ("9", "10", "notes"):
        (tmp_path / name).mkdir()
    assert saved_models.newest_version(tmp_path) == str(tmp_path / "10")
    (tmp_path / "9" / "saved_model.pb").touch()
    assert saved_models.newest_version(tmp_path / "9") == str(tmp_path / "9")
    for folder in (tmp_path / "notes", tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match="There is no SavedModel"):
            saved_models.newest_version(folder)


def test_an_export_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def save(root, folder, **kwargs):
        tf.io.gfile.makedirs(f"{folder}/variables")
        raise OSError("disk full")

    monkeypatch.setattr(tf.saved_model, "save", save)
    with pytest.raises(OSError, match="disk full"):
        serving.export_classifier(
            tmp_path, build_model(num_labels=2), max_seq_length=2
        )
    assert list(tmp_path.iterdir()) == []


def contents(**kwargs):
    return {"contents": saved_models.Contents(**kwargs)}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"max_seq_length": POSITIONS + 1}, ValueError, "has 9 positions"),
        ({"max_seq_length": 0}, ValueError, "max_seq_length=0"),
        (contents(labels=["a"]), ValueError, "1 labels, .* 2 outputs"),
        (contents(labels=["a", "b\n"]), ValueError, "not a single line"),
        (contents(assets=["a/none.txt"]), FileNotFoundError, "a/none.txt"),
        (
            contents(assets=["a/labels.txt"], labels=["a", "b"]),
            ValueError,
            "Two assets are named labels.txt",
        ),
    ],
)
def test_contradictions_are_refused(tmp_path, arguments, error, message):
    arguments = {"max_seq_length": 2, **arguments}
    with pytest.raises(error, match=message):
        serving.export_classifier(
            tmp_path, build_model(num_labels=2), **arguments
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_weights_that_are_not_finite_are_not_exported(tmp_path, value):
    model = build_model(num_labels=2)
    name = "bert/pooler/dense/bias"
    modeling.named_weights(model)[name].assign(np.full(12, value))
    with pytest.raises(ValueError, match=f"{name} has NaN or infinite"):
        serving.export_classifier(tmp_path, model, max_seq_length=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("threshold", [float("nan"), 1e39])
def test_thresholds_that_are_not_finite_are_not_exported(tmp_path, threshold):
    with pytest.raises(ValueError, match="wanted a finite float32"):
        serving.export_classifier(
            tmp_path,
            build_model(num_labels=2),
            max_seq_length=2,
            threshold=threshold,
        )


def test_an_export_removes_the_remains_of_killed_ones(tmp_path):
    for name in ("temp-1", "temp-2/variables", "temp-3/notes", "temp-a"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "temp-2/saved_model.pb").touch()
    path = export_quickly(tmp_path)
    # Neither is the work of an export.
    names = {"temp-3", "temp-a", os.path.basename(path)}
    assert {x.name for x in tmp_path.iterdir()} == names


def test_a_concurrent_export_is_refused(own_elsewhere, tmp_path):
    other = own_elsewhere(tmp_path / "next.version")
    with pytest.raises(BlockingIOError, match=f"process {other.pid} on"):
        export_quickly(tmp_path)
    other.kill()
    other.wait()
    path = export_quickly(tmp_path)
    # Nothing hidden is left for TensorFlow Serving to see.
    assert [str(x) for x in tmp_path.iterdir()] == [path]


def test_a_run_may_export_to_the_folder_that_it_owns(tmp_path):
    with ownership.owning(str(tmp_path)):
        export_quickly(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
