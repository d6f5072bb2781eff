"""TF Hub's forms: written, moved, loaded elsewhere, read again, trained."""

import dataclasses
import inspect
import itertools
import json
import pathlib
import pickle
import shutil
import subprocess
import sys
import tarfile
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf import filesystem
from albert_tf.commands.export_to_tfhub import ExportFlags
from albert_tf.export import hub, saved_models, text_serving
from albert_tf.model import heads, modeling
from albert_tf.programs import export_to_tfhub, shared
from albert_tf.text import tokenization
from albert_tf.training import results_file
from albert_tf.weights import checkpoints, pretrained
from tests import tiny
from tests.text.test_tokenization import train_model

INPUTS = ("input_word_ids", "input_mask", "input_type_ids")
SHAPES = [(1, 1), (3, 7), (2, 32)]


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    """The moved folder of an encoder."""
    folder = tmp_path_factory.mktemp("hub")
    export_to_tfhub.run(
        ExportFlags(
            albert_directory=str(model),
            export_path=f"{folder}/a/tiny/",
            with_preprocessor=False,
        )
    )
    shutil.move(folder / "a", folder / "b")
    return folder / "b/tiny"


@pytest.fixture(scope="module")
def loaded(exported):
    """The encoder's SavedModel; no test changes it."""
    return tf.saved_model.load(str(exported))


@pytest.fixture(scope="module")
def frozen(exported):
    """It as a layer, which no test changes for good."""
    return hub.HubEncoder(exported, trainable=False)


def make_inputs(num_rows, num_tokens, names=INPUTS):
    rng = np.random.default_rng([num_rows, num_tokens])
    shape = num_rows, num_tokens
    mask = np.ones(shape, np.int32)
    mask[-1, (num_tokens + 1) // 2 :] = 0
    values = rng.integers(5, 25, shape), mask, rng.integers(0, 2, shape)
    return {n: v.astype(np.int32) for n, v in zip(names, values, strict=True)}


def build(model):
    return pretrained.build_model(
        heads.AlbertForPreTraining, pretrained.read_pretrained(model)
    )


# Another process; it has the source of this function and nothing of ours.


def answer(folder):
    """Answers the requests in a folder by what lies in it."""
    import pickle
    import sys

    import tensorflow as tf
    import tensorflow_hub

    with open(f"{folder}/requests.pickle", "rb") as file:
        path, requests = pickle.load(file)
    loaded = tensorflow_hub.load(path)
    answers = {}
    for key, inputs in requests.items():
        outputs = loaded({n: tf.constant(x) for n, x in inputs.items()})
        answers[key] = {
            n: [y.numpy() for y in x] if isinstance(x, list) else x.numpy()
            for n, x in outputs.items()
        }
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], path)
        signature = meta.signature_def["serving_default"]
        for key, inputs in requests.items():
            answers["v1", key] = session.run(
                {n: x.name for n, x in signature.outputs.items()},
                {signature.inputs[n].name: x for n, x in inputs.items()},
            )
    key, inputs = next(iter(requests.items()))
    layer = tensorflow_hub.KerasLayer(path, trainable=True)
    model = train_by_keras_2(layer, inputs)
    answers["moved"] = model
    answers["ours"] = [m for m in sys.modules if m.startswith("albert_tf")]
    with open(f"{folder}/answers.pickle", "wb") as file:
        pickle.dump(answers, file)


def train_by_keras_2(layer, inputs):
    """Trains a layer for ten steps; returns how far each weight moved."""
    import tensorflow as tf
    import tf_keras

    given = {n: tf_keras.Input((None,), dtype=tf.int32, name=n) for n in inputs}
    outputs = layer(given)
    total = tf_keras.layers.Concatenate()(
        [
            outputs["pooled_output"],
            tf.reduce_mean(outputs["sequence_output"], axis=1),
        ]
    )
    model = tf_keras.Model(given, tf_keras.layers.Dense(1)(total))
    model.compile(tf_keras.optimizers.legacy.Adam(1e-2), "mse")
    before = [v.numpy() for v in layer.resolved_object.trainable_variables]
    labels = tf.random.normal([len(next(iter(inputs.values()))), 1])
    model.fit(inputs, labels, epochs=10, verbose=0, batch_size=64)
    after = [v.numpy() for v in layer.resolved_object.trainable_variables]
    return [abs(a - b).max() for a, b in zip(before, after, strict=True)]


@pytest.fixture(scope="module")
def elsewhere(exported, tmp_path_factory):
    folder = tmp_path_factory.mktemp("elsewhere")
    requests = {
        shape: make_inputs(*shape) for shape in [(3, 7), (1, 1), (2, 32)]
    }
    (folder / "requests.pickle").write_bytes(
        pickle.dumps((str(exported), requests))
    )
    source = "\n".join(map(inspect.getsource, (train_by_keras_2, answer)))
    subprocess.run(
        [sys.executable, "-I", "-c", f"{source}\nanswer({str(folder)!r})"],
        check=True,
        env={"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    return pickle.loads((folder / "answers.pickle").read_bytes())


def test_other_loaders_give_the_checkpoints_outputs(model, elsewhere):
    encoder = build(model).encoder
    assert not elsewhere["ours"]
    for shape in SHAPES:
        wanted = encoder(*map(tf.constant, make_inputs(*shape).values()))
        for key in (shape, ("v1", shape)):
            found = elsewhere[key]
            for name in ("pooled_output", "sequence_output"):
                np.testing.assert_allclose(
                    found[name], wanted[name], atol=1e-5, err_msg=str(key)
                )
            np.testing.assert_array_equal(
                found["default"], found["pooled_output"]
            )
        layers = elsewhere[shape]["encoder_outputs"]
        assert len(layers) == tiny.ONE_LAYER.num_hidden_layers
        for ours, theirs in zip(
            wanted["all_encoder_layers"], layers, strict=True
        ):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_every_weight_is_trained_by_tf_hubs_layer(elsewhere):
    names = [
        n
        for n in modeling.named_weights(
            heads.AlbertForPreTraining(tiny.ONE_LAYER)
        )
        if n.startswith("bert/")
    ]
    assert len(elsewhere["moved"]) == len(names)
    # Keys' biases add the same to all of a softmax: they stay.
    assert sum(moved < 1e-4 for moved in elsewhere["moved"]) <= 1


def test_the_releases_signatures_are_there(model, loaded):
    ours = build(model)
    signatures = loaded.signatures
    names = ("input_ids", "input_mask", "segment_ids")
    inputs = make_inputs(3, 7, names)
    positions = np.array([[0, 1], [2, 3], [6, 6]], np.int32)
    wanted = ours({**inputs, "masked_lm_positions": positions})
    inputs = {name: tf.constant(value) for name, value in inputs.items()}
    tokens = signatures["tokens"](**inputs)
    assert set(tokens) == {"sequence_output", "pooled_output"}
    order = signatures["sop"](**inputs)
    np.testing.assert_allclose(
        order["sop_log_probs"],
        tf.nn.log_softmax(wanted["sentence_order_logits"]),
        atol=1e-5,
    )
    filled = signatures["mlm"](**inputs, mlm_positions=tf.constant(positions))
    np.testing.assert_allclose(
        filled["mlm_logits"], wanted["masked_lm_logits"], atol=1e-5
    )
    info = signatures["tokenization_info"]()
    assert bool(info["do_lower_case"])
    path = info["vocab_file"].numpy().decode()
    assert tokenization.build_tokenizer(vocab_file=path).vocab_size == 25
    by_part = loaded.mlm(
        {**make_inputs(3, 7), "masked_lm_positions": positions}
    )
    np.testing.assert_allclose(
        by_part["mlm_logits"], filled["mlm_logits"], atol=1e-6
    )
    assert len(loaded.mlm.trainable_variables) > len(loaded.trainable_variables)


@pytest.mark.parametrize("has_heads", [True, False])
def test_dropout_is_active_only_in_training(loaded, has_heads):
    call, inputs = loaded, make_inputs(3, 7)
    if has_heads:
        call = loaded.mlm
        inputs["masked_lm_positions"] = np.ones([3, 2], np.int32)
    quiet, again = (call(inputs)["pooled_output"] for _ in range(2))
    np.testing.assert_array_equal(quiet, again)
    loud, other = (
        call(inputs, training=True)["pooled_output"] for _ in range(2)
    )
    assert not np.allclose(loud, other)
    assert not np.allclose(loud, quiet)


@pytest.mark.parametrize("wrong", ["too long", "empty", "a name", "a type"])
def test_wrong_inputs_are_refused(loaded, wrong):
    signature = loaded.signatures["serving_default"]
    size = {"too long": 33, "empty": 0}.get(wrong, 4)
    inputs = {n: tf.constant(x) for n, x in make_inputs(2, size).items()}
    message = {
        "too long": "A sequence is longer",
        "empty": "no token",
        "a type": "expected to be a int32 tensor",
    }.get(wrong, "input_word_ids")
    if wrong == "a name":
        inputs["ids"] = inputs.pop("input_word_ids")
    if wrong == "a type":
        inputs["input_word_ids"] = tf.cast(inputs["input_word_ids"], tf.float32)
    with pytest.raises((TypeError, tf.errors.OpError), match=message):
        signature(**inputs)


def test_the_layer_trains_every_weight(model, exported):
    layer = hub.HubEncoder(exported)
    inputs = make_inputs(8, 7)
    np.testing.assert_allclose(
        layer(inputs),
        build(model).encoder(*inputs.values())["pooled_output"],
        atol=1e-5,
    )
    given = {n: keras.Input((None,), dtype="int32", name=n) for n in INPUTS}
    outputs = keras.layers.Dense(2)(layer(given))
    classifier = keras.Model(given, outputs)
    classifier.compile(
        keras.optimizers.Adam(1e-2),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        run_eagerly=True,  # Below, replicas train a traced step.
    )
    before = [v.numpy() for v in layer.loaded.trainable_variables]
    labels = np.arange(8) % 2
    # Without dropout, whose draws outweigh ten steps once in fifty times.
    losses = [classifier.evaluate(inputs, labels, verbose=0)]
    classifier.fit(inputs, labels, epochs=10, verbose=0)
    losses.append(classifier.evaluate(inputs, labels, verbose=0))
    assert losses[1] < losses[0]
    moved = [
        abs(old - v.numpy()).max()
        for old, v in zip(before, layer.loaded.trainable_variables, strict=True)
    ]
    # Keys' biases add the same to all of a softmax: they stay.
    assert sum(distance < 1e-4 for distance in moved) <= 1
    assert len(classifier.trainable_weights) == len(before) + 2


def test_a_frozen_layer_is_not_trained(exported):
    layer = hub.HubEncoder(
        exported, trainable=False, output_key="sequence_output"
    )
    assert layer(make_inputs(2, 5)).shape == (2, 5, 12)
    assert not layer.trainable_weights
    assert len(layer.non_trainable_weights) == 25
    twin = hub.HubEncoder.from_config(layer.get_config())
    assert twin.output_key == "sequence_output"
    assert not twin.trainable


def test_a_frozen_layer_can_be_unfrozen(exported):
    layer = hub.HubEncoder(exported, trainable=False)
    quiet = layer(make_inputs(3, 7), training=True)
    np.testing.assert_array_equal(quiet, layer(make_inputs(3, 7)))
    layer.trainable = True
    assert len(layer.trainable_weights) == 25
    assert not np.allclose(quiet, layer(make_inputs(3, 7), training=True))


def test_each_output_has_the_shape_that_keras_infers(frozen, monkeypatch):
    given = {
        n: keras.Input((None,), batch_size=2, dtype="int32") for n in INPUTS
    }
    for key, shape in (
        ("pooled_output", [(2, 12)]),
        ("sequence_output", [(2, None, 12)]),
        ("encoder_outputs", [(2, None, 12)]),
    ):
        monkeypatch.setattr(frozen, "output_key", key)
        foreseen = keras.tree.flatten(frozen(given))
        assert [x.shape for x in foreseen] == shape
        assert {x.dtype for x in foreseen} == {"float32"}
        assert len(keras.tree.flatten(frozen(make_inputs(2, 7)))) == len(shape)
    wide = {n: x.astype(np.int64) for n, x in make_inputs(2, 7).items()}
    for ours, theirs in zip(
        frozen(wide), frozen(make_inputs(2, 7)), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    monkeypatch.setattr(frozen, "output_key", "pooled")
    with pytest.raises(ValueError, match="no output 'pooled'; .*'default'"):
        frozen(make_inputs(2, 7))


def test_a_single_text_may_be_the_input(tmp_path):
    """Of a SavedModel of another kind, in a functional model."""
    factor = tf.Variable(2.0)
    root = saved_models.Root()
    root.variables = root.trainable_variables = [factor]

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string),
            tf.TensorSpec([], tf.bool),
        ]
    )
    def measure(texts, training):
        lengths = tf.cast(tf.strings.length(texts), tf.float32)
        return {"default": factor * lengths[:, tf.newaxis]}

    root.__call__ = measure
    tf.saved_model.save(root, tmp_path / "lengths")
    layer = hub.HubEncoder(str(tmp_path / "lengths"), output_key="default")
    given = keras.Input(shape=(), dtype="string")
    found = layer(given)
    assert found.shape == (None, 1)
    outputs = keras.Model(given, found)(tf.constant(["abc", ""]))
    np.testing.assert_array_equal(outputs, [[6], [0]])


def test_a_keras_model_is_saved_with_the_layer(exported, tmp_path):
    given = {n: keras.Input((None,), dtype="int32", name=n) for n in INPUTS}
    model = keras.Model(given, hub.HubEncoder(exported)(given))
    for weight in model.trainable_weights:
        weight.assign_add(0.1 * np.ones(weight.shape))
    model.save(tmp_path / "model.keras")
    twin = keras.models.load_model(tmp_path / "model.keras")
    inputs = make_inputs(3, 7)
    np.testing.assert_allclose(twin(inputs), model(inputs), atol=1e-6)


def test_a_layer_is_trained_on_every_replica(exported):
    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"],
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )
    with strategy.scope():
        layer = hub.HubEncoder(exported)
        model = keras.Sequential([layer, keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    before = [v.numpy() for v in layer.loaded.trainable_variables]
    labels = np.linspace(-9, 9, 8)[:, None]
    model.fit(make_inputs(8, 7), labels, batch_size=8, verbose=0)
    moved = [
        [abs(old - copy.numpy()).max() for copy in v.values]
        for old, v in zip(before, layer.loaded.trainable_variables, strict=True)
    ]
    assert all(first == second for first, second in moved)
    assert sum(first > 0 for first, _ in moved) >= 23


@pytest.mark.parametrize(
    "kind",
    [
        {"num_hidden_groups": 2},
        {"parameter_sharing": "attention", "inner_group_num": 2},
    ],
    ids=str,
)
def test_every_kind_of_sharing_survives(model, tmp_path, kind):
    ours = modeling.AlbertEncoder(dataclasses.replace(tiny.CONFIG, **kind))
    assets = [
        str(model / name)
        for name in ("albert_config.json", "tokenizer_settings.json")
    ]
    vocabulary = str(model / "vocab.txt")
    hub.export_encoder(
        str(tmp_path / "hub"),
        ours,
        tokenizer=tokenization.build_tokenizer(vocab_file=vocabulary),
        assets=[*assets, vocabulary],
    )
    loaded = tf.saved_model.load(str(tmp_path / "hub"))
    inputs = make_inputs(3, 7)
    wanted = ours(*inputs.values())
    found = loaded(inputs)
    for layer, other in zip(
        found["encoder_outputs"], wanted["all_encoder_layers"], strict=True
    ):
        np.testing.assert_allclose(layer, other, atol=1e-5)
    np.testing.assert_allclose(
        found["sequence_output"], wanted["sequence_output"], atol=1e-5
    )
    values = pretrained.read_pretrained(str(tmp_path / "hub")).values
    assert set(values) == set(modeling.named_weights(ours))
    empty = loaded({n: x[:0] for n, x in inputs.items()})
    assert empty["pooled_output"].shape == (0, 12)


def test_flags_choose_checkpoint_vocabulary_and_length(
    model, tmp_path, monkeypatch
):
    shutil.copytree(model, tmp_path / "model")
    found = pretrained.read_pretrained(model)
    name = "bert/pooler/dense/bias"
    values = found.values | {name: found.values[name] + 1}
    checkpoints.write_checkpoint(str(tmp_path / "model/model.ckpt-7"), values)
    pieces = [f"v{i}" for i in range(20)]
    vocabulary = tmp_path / "vocab_other.txt"
    # It would be an error if the model's own were recorded.
    (tmp_path / "model" / tokenization.SETTINGS_FILE).unlink()
    vocabulary.write_text("\n".join([*tiny.SPECIAL, *pieces]))
    # What makes `exported` need not be repeated.
    exports, preprocessors = [], []
    parameters = inspect.signature(text_serving.export_preprocessor)

    def keep_preprocessor(*args, **kwargs):
        preprocessors.append(parameters.bind(*args, **kwargs).arguments)
        write_quickly(*args, **kwargs)

    def keep(path, model, *, tokenizer, assets):
        value = modeling.named_weights(model)[name].numpy()
        names = {pathlib.Path(asset).name for asset in assets}
        exports.append((value, tokenizer.encode("v0 v19 w1"), names))
        write_quickly(path, assets=assets)

    monkeypatch.setattr(hub, "export_encoder", keep)
    monkeypatch.setattr(text_serving, "export_preprocessor", keep_preprocessor)
    args = ExportFlags(
        albert_directory=str(tmp_path / "model"),
        export_path=str(tmp_path / "best"),
        vocab_file=str(vocabulary),
        seq_length=9,
    )
    export_to_tfhub.run(args)
    newest = dataclasses.replace(
        args, export_path=str(tmp_path / "newest"), with_preprocessor=False
    )
    with pytest.raises(FileNotFoundError, match="absent"):
        export_to_tfhub.run(
            dataclasses.replace(newest, checkpoint_name="absent")
        )
    for path in (tmp_path / "model").glob("model.ckpt-best*"):
        path.unlink()
    export_to_tfhub.run(newest)
    for export, wanted in zip(exports, (found.values, values), strict=True):
        np.testing.assert_array_equal(export[0], wanted[name])
        assert export[1] == [5, 24, 1]
        assert "vocab_other.txt" in export[2]
    (preprocessor,) = preprocessors
    assert preprocessor["tokenizer"].encode("v0 v19 w1") == [5, 24, 1]
    assert preprocessor["seq_length"] == 9
    assets = {x.name for x in (tmp_path / "best_preprocess/assets").iterdir()}
    assert assets == {"vocab_other.txt", "tokenizer_settings.json"}


def test_a_newer_checkpoint_than_the_best_is_said(model, tmp_path, caplog):
    """Training went on without evaluations."""
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    values = pretrained.read_pretrained(model).values
    checkpoints.write_checkpoint(str(folder / "model.ckpt-7"), values)
    block = "masked_lm_accuracy = 0.5\nglobal_step = {}.0\n"
    args = ExportFlags(albert_directory=str(folder), export_path="x")
    for step in (7, 3):
        results_file.write_blocks(folder, [block.format(step)])
        assert not caplog.records
        assert export_to_tfhub.read_model(args).source.endswith("-best")
    assert "older than" in caplog.text and "model.ckpt-7" in caplog.text


def test_a_refused_vocabulary_leaves_no_files(model, tmp_path, monkeypatch):
    unrecorded = shutil.ignore_patterns("tokenizer_settings.json", "vocab.txt")
    shutil.copytree(model, tmp_path / "model", ignore=unrecorded)
    vocabulary = tmp_path / "bpe.model"
    lines = [" ".join(tiny.WORDS)] * 9
    vocabulary.write_bytes(train_model(lines, model_type="bpe", vocab_size=25))
    args = ExportFlags(
        albert_directory=str(tmp_path / "model"),
        export_path=str(tmp_path / "hub"),
        spm_model_file=str(vocabulary),
        seq_length=16,
    )
    with pytest.raises(ValueError, match="bpe; only plain unigram"):
        export_to_tfhub.run(args)
    assert {x.name for x in tmp_path.iterdir()} == {"bpe.model", "model"}
    monkeypatch.setattr(hub, "export_encoder", write_quickly)
    export_to_tfhub.run(dataclasses.replace(args, with_preprocessor=False))
    assert (tmp_path / "hub/assets/bpe.model").exists()


def test_accents_are_kept_as_recorded(model, tmp_path, monkeypatch):
    shutil.copytree(model, tmp_path / "model")
    path = tmp_path / "model/tokenizer_settings.json"
    settings = json.loads(path.read_text()) | {"keep_accents": True}
    path.write_text(json.dumps(settings))
    monkeypatch.setattr(hub, "export_encoder", write_quickly)
    args = ExportFlags(
        albert_directory=str(tmp_path / "model"),
        export_path=str(tmp_path / "hub"),
        do_lower_case=False,
        seq_length=16,
    )
    export_to_tfhub.run(args)
    for folder in ("hub", "hub_preprocess"):
        path = tmp_path / folder / "assets/tokenizer_settings.json"
        settings = json.loads(path.read_text())
        assert settings["keep_accents"] and not settings["do_lower_case"]


def test_kerass_own_layer_accepts_it(exported, loaded):
    layer = keras.layers.TFSMLayer(
        str(exported), call_endpoint="__call__", trainable=True
    )
    inputs = make_inputs(3, 7)
    found = layer({n: tf.constant(x) for n, x in inputs.items()})
    wanted = loaded(inputs)
    np.testing.assert_allclose(
        found["pooled_output"], wanted["pooled_output"], atol=1e-6
    )
    assert len(layer.trainable_weights) == 25


def test_a_saved_model_that_cannot_be_called_is_refused(tmp_path):
    module = tf.Module()
    module.variable = tf.Variable(1.0)
    tf.saved_model.save(module, str(tmp_path / "module"))
    with pytest.raises(ValueError, match="not a reusable SavedModel"):
        hub.HubEncoder(tmp_path / "module")


@pytest.mark.parametrize("form", ["folder", "tar"])
def test_our_module_can_initialize_a_run(model, exported, tmp_path, form):
    path = exported
    if form == "tar":
        path = tmp_path / "tiny.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            tar.add(exported, ".")
    found = pretrained.read_pretrained(str(path))
    wanted = pretrained.read_pretrained(str(model))
    body = {n: v for n, v in wanted.values.items() if n.startswith("bert/")}
    # The heads of pretraining are there, too.
    assert set(found.values) == set(wanted.values) > set(body)
    for name, value in wanted.values.items():
        np.testing.assert_array_equal(found.values[name], value)
    assert found.config == wanted.config
    assert found.tokenizer.settings == wanted.tokenizer.settings


def write_hub_3(folder, model):
    """Writes weights as TF Hub's ALBERT modules have them."""
    found = pretrained.read_pretrained(model)
    heads_of = {"query", "key", "value"}
    root = tf.Module()
    root.variables_ = []
    names = {
        "embeddings/word_embeddings": "word_embeddings/embeddings",
        "embeddings/position_embeddings": "position_embedding/embeddings",
        "embeddings/token_type_embeddings": "type_embeddings/embeddings",
    }
    replaced = (
        ("embeddings/LayerNorm", "embeddings/layer_norm"),
        ("encoder/embedding_hidden_mapping_in", "embedding_projection"),
        ("encoder/transformer/group_0/inner_group_0/", "transformer/"),
        ("attention_1/self", "self_attention"),
        ("attention_1/output/dense", "self_attention/attention_output"),
        ("transformer/LayerNorm/", "transformer/self_attention_layer_norm/"),
        ("transformer/LayerNorm_1/", "transformer/output_layer_norm/"),
        ("ffn_1/intermediate/output/dense", "output"),
        ("ffn_1/intermediate/dense", "intermediate"),
        ("pooler/dense", "pooler_transform"),
    )
    for name, value in found.values.items():
        if not name.startswith("bert/"):
            continue
        name = name.removeprefix("bert/")
        name = names.get(name, name)
        for old, new in replaced:
            name = name.replace(old, new)
        if name.split("/")[-2] in heads_of:
            value = value.reshape(*value.shape[:-1], 3, 4)
        if name.endswith("attention_output/kernel"):
            value = value.reshape(3, 4, 12)
        root.variables_.append(tf.Variable(value, name=name))
    root.sp_model_file = tf.saved_model.Asset(str(model / "vocab.txt"))
    tf.saved_model.save(root, str(folder))
    return found


def test_a_module_of_tf_hub_can_initialize_a_run(model, tmp_path):
    wanted = write_hub_3(tmp_path / "3", model)
    found = pretrained.read_pretrained(str(tmp_path / "3"))
    body = {n: v for n, v in wanted.values.items() if n.startswith("bert/")}
    assert set(found.values) == set(body)
    for name, value in body.items():
        np.testing.assert_array_equal(found.values[name], value, err_msg=name)
    assert found.config is None
    assert found.tokenizer.vocab_size == 25


def test_another_saved_model_is_refused(tmp_path):
    module = tf.Module()
    module.variable = tf.Variable(1.0, name="dense/kernel")
    tf.saved_model.save(module, str(tmp_path / "module"))
    with pytest.raises(ValueError, match=r"neither ours .*dense/kernel"):
        pretrained.read_pretrained(str(tmp_path / "module"))


def test_a_model_without_heads_is_exported_without(model, tmp_path, capsys):
    found = pretrained.read_pretrained(model)
    body = {n: v for n, v in found.values.items() if n.startswith("bert/")}
    (tmp_path / "body").mkdir()
    pretrained.write_pretrained(
        str(tmp_path / "body"), dataclasses.replace(found, values=body), "own"
    )
    export_to_tfhub.run(
        ExportFlags(
            albert_directory=str(tmp_path / "body"),
            export_path=str(tmp_path / "hub"),
            do_lower_case=False,
            with_preprocessor=False,
        )
    )
    assert "without pretraining heads" in capsys.readouterr().out
    loaded = tf.saved_model.load(str(tmp_path / "hub"))
    assert not hasattr(loaded, "mlm")
    assert set(loaded.signatures) == {
        "serving_default",
        "tokens",
        "tokenization_info",
    }
    assert not loaded.signatures["tokenization_info"]()["do_lower_case"]
    settings = json.loads(
        (tmp_path / "hub/assets/tokenizer_settings.json").read_text()
    )
    assert settings["do_lower_case"] is False
    assert not (tmp_path / "hub_preprocess").exists()


WRONG = {
    "no model": ({"albert_directory": "/nowhere"}, "nowhere"),
    "too short": ({"seq_length": 2}, "--seq_length=2"),
    "too long": ({"seq_length": 33}, "the model has 32 positions"),
    "no such config": ({"albert_config_file": "/no.json"}, r"no\.json"),
}


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_work_is_refused(model, tmp_path, changes, message):
    args = ExportFlags(
        albert_directory=str(model),
        export_path=str(tmp_path / "hub"),
        seq_length=16,
    )
    with pytest.raises((ValueError, OSError), match=message):
        export_to_tfhub.run(dataclasses.replace(args, **changes))
    assert not (tmp_path / "hub").exists()


def test_nothing_is_overwritten(model, exported):
    args = ExportFlags(albert_directory=str(model), export_path=str(exported))
    with pytest.raises(ValueError, match="already exists"):
        export_to_tfhub.run(args)


def write_quickly(path, *_, assets, seq_length=0, **__):
    """Writes a SavedModel of nothing but assets and the length."""
    root = saved_models.Root()
    root.seq_length = seq_length
    saved_models.write_saved_model(path, root, {}, assets)


def save_quickly(root, folder, **_):
    """Writes files of the same names as `tf.saved_model.save`."""
    for name in ("assets", "variables"):
        (pathlib.Path(folder) / name).mkdir(parents=True)
    for asset in root.assets:
        shutil.copy(asset.asset_path.numpy().decode(), f"{folder}/assets")
    pathlib.Path(folder, "saved_model.pb").touch()
    pathlib.Path(folder, "variables/length").write_text(str(root.seq_length))


def read_length(folder):
    return int(pathlib.Path(folder, "variables/length").read_text())


class Killed(BaseException):
    """Ends a program as SIGKILL does: nothing is tidied up behind it."""


@pytest.fixture
def quick_args(model, tmp_path, monkeypatch):
    """Flags of an export of nothing but assets and the length."""

    # Dozens of these need no weights.
    monkeypatch.setattr(pretrained, "build_model", lambda kind, start: None)
    monkeypatch.setattr(hub, "export_encoder", write_quickly)
    monkeypatch.setattr(tf.saved_model, "save", save_quickly)
    monkeypatch.setattr(
        shared,
        "import_text_serving",
        lambda _: types.SimpleNamespace(export_preprocessor=write_quickly),
    )
    return ExportFlags(
        albert_directory=str(model),
        export_path=str(tmp_path / "made/hub"),
        seq_length=16,
    )


def run_until(monkeypatch, args, moment):
    """Exports, killed before or behind a change of files; returns if it was."""
    now = 0

    def tick(folder=None):
        nonlocal now
        now += 1
        if now >= moment:
            if folder:  # Half removed.
                shutil.rmtree(pathlib.Path(folder) / "assets")
            raise Killed

    def counted(change, is_removal=False):
        def counting(*values, **kwargs):
            tick(values[0] if is_removal and now + 1 == moment else None)
            change(*values, **kwargs)
            tick()

        return counting

    with monkeypatch.context() as patch:
        patch.setattr(filesystem, "rename", counted(filesystem.rename))
        removal = counted(filesystem.remove_folder, is_removal=True)
        patch.setattr(filesystem, "remove_folder", removal)
        patch.setattr(tf.saved_model, "save", counted(tf.saved_model.save))
        try:
            export_to_tfhub.run(args)
        except Killed:
            return True
    return False


@pytest.mark.parametrize("is_second", [False, True])
def test_rerunning_a_killed_export_completes_it(
    quick_args, monkeypatch, is_second
):
    folder = pathlib.Path(quick_args.export_path).parent
    states = set()
    for moment in itertools.count(1):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if is_second:  # It finds what a killed one has left.
            export_to_tfhub.run(dataclasses.replace(quick_args, seq_length=9))
            shutil.rmtree(folder / "hub")
        if not run_until(monkeypatch, quick_args, moment):
            break
        names = sorted(x.name for x in folder.iterdir())
        states.add(" ".join(x for x in names if not x.startswith(".")))
        if (folder / "hub").exists():
            continue
        export_to_tfhub.run(quick_args)
        names = {x.name for x in folder.iterdir()}
        assert names == {"hub", "hub_preprocess"}, moment
        assert read_length(folder / "hub_preprocess") == 16
    assert {"hub_preprocess temp-hub", "hub hub_preprocess"} <= states
    assert moment > 12


def test_the_models_positions_are_the_length_that_is_not_given(
    quick_args, capsys
):
    """If they are fewer than the usual length."""
    export_to_tfhub.run(dataclasses.replace(quick_args, seq_length=None))
    assert read_length(f"{quick_args.export_path}_preprocess") == 32
    assert "preprocessor (32 tokens)" in capsys.readouterr().out


def test_another_preprocessor_is_not_replaced(quick_args):
    path = pathlib.Path(quick_args.export_path + "_preprocess")
    export_to_tfhub.run(quick_args)
    shutil.rmtree(quick_args.export_path)
    settings = path / "assets/tokenizer_settings.json"
    settings.write_text(settings.read_text() + "\n")
    with pytest.raises(ValueError, match="hub_preprocess already exists"):
        export_to_tfhub.run(quick_args)
    assert [x.name for x in path.parent.iterdir()] == ["hub_preprocess"]


def test_a_folder_that_is_no_export_is_not_replaced(quick_args, tmp_path):
    (tmp_path / "made/temp-hub/notes").mkdir(parents=True)
    with pytest.raises(ValueError, match="temp-hub exists and was not written"):
        export_to_tfhub.run(quick_args)
    assert (tmp_path / "made/temp-hub/notes").exists()


def test_a_model_is_not_exported_into_itself(quick_args, model):
    for path in (model, model / "hub", model.parent):
        wrong = dataclasses.replace(quick_args, export_path=str(path))
        with pytest.raises(ValueError, match="one contains the other"):
            export_to_tfhub.run(wrong)


def test_one_export_at_a_time(own_elsewhere, quick_args, tmp_path):
    other = own_elsewhere(tmp_path / "made/hub.export")
    with pytest.raises(BlockingIOError, match=f"process {other.pid} on"):
        export_to_tfhub.run(quick_args)
    other.kill()
    other.wait()
    export_to_tfhub.run(quick_args)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (np.int64, 2**32 + 5),
        (np.float32, 5.5),
        (np.float32, np.nan),
        (np.float64, 2.0**32),
    ],
)
def test_the_layer_refuses_ids_that_would_change(frozen, dtype, value):
    inputs = {n: x.astype(dtype) for n, x in make_inputs(2, 7).items()}
    inputs["input_word_ids"][0, 0] = value
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="input_word_ids contains numbers"
    ):
        frozen(inputs)


def test_the_layer_keeps_large_ids_in_half_precision(exported):
    inputs = {n: x.astype(np.float32) for n, x in make_inputs(2, 7).items()}
    inputs["input_word_ids"][0, 0] = 2049  # float16 has no such number.
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[2049\]"):
        hub.HubEncoder(exported, dtype="mixed_float16")(inputs)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("input_word_ids", 25, "input_word_ids has values"),
        ("input_mask", 2, "input_mask has values"),
        ("input_type_ids", 2, "input_type_ids has values"),
        ("masked_lm_positions", 7, "masked_lm_positions has values"),
        ("masked_lm_positions", -1, "masked_lm_positions has values"),
    ],
)
def test_a_loaded_encoder_refuses_values_out_of_range(
    loaded, name, value, message
):
    inputs = make_inputs(2, 7)
    inputs["masked_lm_positions"] = np.zeros([2, 3], np.int32)
    inputs[name][1, 1] = value
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        loaded.mlm(inputs)
    shorter = make_inputs(2, 7) | {
        "masked_lm_positions": np.zeros([2, 3], np.int32)
    }
    shorter[name] = shorter[name][:1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="has the shape"):
        loaded.mlm(shorter)


def test_no_rows_and_no_positions_are_answered(loaded):
    for name, signature in loaded.signatures.items():
        if name == "tokenization_info":
            continue
        inputs = signature.structured_input_signature[1]
        for shape in ((0, 0), (0, 7)):
            found = signature(**{n: tf.zeros(shape, tf.int32) for n in inputs})
            assert {len(x) for x in found.values()} == {0}, name
    inputs = make_inputs(2, 7)
    found = loaded.mlm(
        {**inputs, "masked_lm_positions": np.zeros([2, 0], np.int32)}
    )
    assert found["mlm_logits"].shape == (2, 0, 25)
