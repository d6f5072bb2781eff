"""Models go to transformers and come from there, and compute the same."""

import dataclasses
import json

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from albert_tf.model import heads, modeling, span_heads
from albert_tf.model.config import AlbertConfig
from albert_tf.text import tokenization
from albert_tf.weights import huggingface, pretrained
from albert_tf.weights.safetensor_files import WEIGHTS_FILE
from tests.weights.test_pretrained import convert, random_model, start_from

SIZES = {
    "vocab_size": 31,
    "embedding_size": 5,
    "hidden_size": 12,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "intermediate_size": 17,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
}


def inputs():
    ids = np.random.default_rng(0).integers(5, 31, (2, 9))
    mask = np.ones_like(ids)
    mask[1, 6:] = 0
    segments = np.zeros_like(ids)
    segments[:, 4:] = 1
    return ids, mask, segments


def our_outputs(folder):
    ids, mask, segments = (x.astype(np.int32) for x in inputs())
    model = pretrained.build_model(
        heads.AlbertForPreTraining, pretrained.read_pretrained(folder)
    )
    every = np.tile(np.arange(9, dtype=np.int32), (2, 1))
    outputs = model(
        {
            "input_ids": ids,
            "input_mask": mask,
            "segment_ids": segments,
            "masked_lm_positions": every,
        }
    )
    return outputs["masked_lm_logits"], outputs["sentence_order_logits"]


def compare(ours, theirs):
    # Masked tokens attend to masked ones differently in the two.
    is_real = inputs()[1] == 1
    np.testing.assert_allclose(
        np.asarray(ours[0])[is_real], theirs[0][is_real], atol=1e-5
    )
    np.testing.assert_allclose(ours[1], theirs[1], atol=1e-5)


@pytest.mark.parametrize("name", ["base", "groups", "inner", "relu"])
def test_a_recorded_model_of_transformers_computes_the_same_here(golden, name):
    # Written by the models of test_transformers.py, with transformers 5.23.
    folder = golden(f"huggingface/{name}")
    theirs = np.load(folder / "outputs.npz")
    compare(
        our_outputs(folder),
        (theirs["prediction_logits"], theirs["sop_logits"]),
    )


@pytest.fixture
def folder(tmp_path):
    random_model(tmp_path / "a")
    convert(tmp_path / "a", tmp_path / "b", format="hf")
    return tmp_path / "b"


def rewrite(folder, change):
    """Puts `change` of the weights in the place of the weights."""
    path = folder / WEIGHTS_FILE
    weights = safetensors.numpy.load_file(path)
    safetensors.numpy.save_file(change(weights), path)
    return weights


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_becomes_float32_with_a_remark(folder, dtype):
    before = rewrite(
        folder, lambda w: {n: v.astype(dtype) for n, v in w.items()}
    )
    found = pretrained.read_pretrained(folder)
    assert found.remarks == [f"{np.dtype(dtype)} was converted to float32"]
    name = "bert/embeddings/word_embeddings"
    rounded = before[huggingface.weight_names(found.config)[name]].astype(dtype)
    np.testing.assert_array_equal(
        found.values[name], rounded.astype(np.float32)
    )
    assert found.values[name].dtype == np.float32


def test_a_model_without_heads_is_read_and_written(folder, tmp_path):
    rewrite(
        folder,
        lambda weights: {
            name.removeprefix("albert."): value
            for name, value in weights.items()
            if name.startswith("albert.")
        },
    )
    convert(folder, tmp_path / "c", format="tf1")
    names = pretrained.read_pretrained(tmp_path / "c").values
    assert all(name.startswith("bert/") for name in names)


def test_another_heads_weights_are_named_as_left_out(folder):
    rewrite(folder, lambda w: {**w, "classifier.bias": np.zeros(2, "f4")})
    found = pretrained.read_pretrained(folder)
    assert found.remarks == ["omitted classifier.bias"]


@pytest.mark.parametrize("zeros", ["predictions.bias", "decoder", None])
def test_an_untrained_copy_of_the_bias_is_none(folder, zeros):
    """As in the released models, which transformers 2 converted."""
    names = "predictions.bias", "predictions.decoder.bias"
    bias = np.arange(31, dtype="f4")
    values = {n: 0 * bias if zeros and zeros in n else bias for n in names}
    rewrite(folder, lambda w: {**w, **values})
    found = pretrained.read_pretrained(folder).values
    np.testing.assert_array_equal(found["cls/predictions/output_bias"], bias)
    values = dict(zip(names, (bias, bias + 1), strict=True))
    rewrite(folder, lambda w: {**w, **values})
    with pytest.raises(ValueError, match="decoder.bias differs"):
        pretrained.read_pretrained(folder)


def test_an_untied_decoder_is_refused(folder):
    decoder = {"predictions.decoder.weight": np.ones((31, 5), "f4")}
    rewrite(folder, lambda w: {**w, **decoder})
    with pytest.raises(ValueError, match="ALBERT ties the two"):
        pretrained.read_pretrained(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "silu"}, "hidden_act 'silu'"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps 1e-05"),
        ({"layer_norm_eps": "1e-12"}, "layer_norm_eps '1e-12'"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps nan"),
        ({"hidden_act": ["gelu"]}, "hidden_act .'gelu'"),
        ({"model_type": ["albert"]}, "model_type .'albert'"),
        ({"position_embedding_type": "relative_key"}, "type 'relative_key'"),
        ({"position_embedding_type": None}, "position_embedding_type None"),
        ({"hidden_size": "12"}, r"config\.json is not .*hidden_size.='12'"),
        ({"num_hidden_layers": 10**5}, r"config\.json is not .* at most 1000"),
    ],
)
def test_what_the_release_does_not_have_is_refused(folder, change, message):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=message):
        pretrained.read_pretrained(folder)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "[" * 100_000])
def test_a_config_that_is_no_object_is_refused(folder, content):
    (folder / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"config\.json(: found| is not)"):
        pretrained.read_pretrained(folder)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "bool"])
def test_weights_that_are_no_floats_are_refused(folder, dtype):
    name = "albert.pooler.bias"
    rewrite(folder, lambda w: {**w, name: w[name].astype(dtype)})
    with pytest.raises(ValueError, match=f"such as {name} of {dtype}; .*quant"):
        pretrained.read_pretrained(folder)


def test_positions_of_older_transformers_are_no_weights(folder):
    ids = {"albert.embeddings.position_ids": np.arange(16)[np.newaxis]}
    rewrite(folder, lambda w: {**w, **ids})
    assert pretrained.read_pretrained(folder).remarks == []


def test_a_wrong_copy_is_noticed_and_removed(tmp_path, monkeypatch):
    random_model(tmp_path / "a")
    write = huggingface.write_folder

    def write_other(folder, values, *rest):
        bias = "cls/predictions/output_bias"
        # Small enough that outputs agree.
        write(folder, {**values, bias: values[bias] + 1e-7}, *rest)

    monkeypatch.setattr(huggingface, "write_folder", write_other)
    with pytest.raises(ValueError, match="1 variables differ when read back"):
        convert(tmp_path / "a", tmp_path / "b", format="hf")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_the_activation_has_the_name_that_transformers_gives_it(folder):
    described = json.loads((folder / "config.json").read_text())
    assert described["hidden_act"] == "gelu_new"
    assert "parameter_sharing" not in described


def without(weights, *prefixes):
    return {n: v for n, v in weights.items() if not n.startswith(prefixes)}


@pytest.mark.parametrize(
    ("lost", "architecture"),
    [
        ((), "AlbertForPreTraining"),
        (("sop_classifier",), "AlbertForMaskedLM"),
        (("sop_classifier", "albert.pooler"), "AlbertForMaskedLM"),
        (("sop_classifier", "predictions"), "AlbertModel"),
        (("sop_classifier", "predictions", "albert.pooler"), "AlbertModel"),
    ],
)
def test_the_architecture_names_what_is_there(
    folder, tmp_path, lost, architecture
):
    rewrite(folder, lambda weights: without(weights, *lost))
    for source, target, form in (("b", "c", "own"), ("c", "d", "hf")):
        convert(tmp_path / source, tmp_path / target, format=form)
    described = json.loads((tmp_path / "d" / "config.json").read_text())
    assert described["architectures"] == [architecture]
    before, after = (
        safetensors.numpy.load_file(tmp_path / name / WEIGHTS_FILE)
        for name in "bd"
    )
    assert before.keys() == after.keys()


@pytest.fixture
def poolerless(folder):
    """AlbertForTokenClassification, whose encoder has no pooler."""
    head = {"classifier.bias": np.zeros(3, "f4")}
    rewrite(
        folder,
        lambda w: head | without(w, "albert.pooler", "predictions", "sop"),
    )
    return folder


def test_a_missing_pooler_is_named_and_not_replaced(poolerless):
    found = pretrained.read_pretrained(poolerless)
    assert not found.has_pooler
    assert found.remarks == [
        "omitted classifier.bias",
        "the model has no pooler",
    ]
    with pytest.raises(ValueError, match="no pooler.*would be noise"):
        pretrained.build_model(modeling.AlbertEncoder, found)
    model = pretrained.build_model(
        modeling.AlbertEncoder, found, unused=["bert/pooler"]
    )
    ids = inputs()[0].astype(np.int32)
    assert np.isfinite(model(ids)["sequence_output"]).all()
    pretrained.build_model(span_heads.AlbertSpans, with_spans(found))


def with_spans(found):
    shapes = {"output_weights": (2, 12), "output_bias": (2,)}
    more = {f"cls/squad/{n}": np.ones(s, "f4") for n, s in shapes.items()}
    return dataclasses.replace(found, values=found.values | more)


def test_a_keras_hub_preset_needs_a_pooler(poolerless, tmp_path):
    with pytest.raises(ValueError, match="KerasHub.*requires one"):
        convert(poolerless, tmp_path / "c", format="keras_hub")


def test_a_missing_head_is_not_called_another_architecture(poolerless):
    found = pretrained.read_pretrained(poolerless)
    with pytest.raises(ValueError, match="without this head") as error:
        pretrained.build_model(heads.AlbertForPreTraining, found)
    assert "groups" not in str(error.value)


def test_a_pooler_of_zeros_counts_as_missing(golden):
    found = pretrained.read_pretrained(golden("huggingface/spans"))
    with pytest.raises(ValueError, match="no pooler.*would be noise"):
        pretrained.build_model(modeling.AlbertEncoder, found)
    pretrained.build_model(span_heads.AlbertSpans, found)


def test_training_names_a_new_pooler(poolerless):
    said = start_from(poolerless, pretrained.read_pretrained(poolerless).config)
    assert "bert/pooler/dense/kernel" in said
    assert "the model has no pooler" in said


def test_layers_that_the_config_lacks_are_not_dropped(tmp_path):
    random_model(tmp_path / "a", num_hidden_groups=2)
    convert(tmp_path / "a", tmp_path / "b", format="hf")
    for name in ("a/albert_config.json", "b/config.json"):
        path = tmp_path / name
        config = json.loads(path.read_text()) | {"num_hidden_groups": 1}
        path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"16 weights .*groups\.1"):
        pretrained.read_pretrained(tmp_path / "b")
    found = pretrained.read_pretrained(tmp_path / "a")
    with pytest.raises(ValueError, match="layers that the config has not"):
        pretrained.build_model(heads.AlbertForPreTraining, found)
    with pytest.raises(ValueError, match="layers that the config has not"):
        convert(tmp_path / "a", tmp_path / "c")


@pytest.mark.parametrize("form", ["tf1", "own"])
@pytest.mark.parametrize(
    "changes",
    [
        {"classifier_dropout_prob": 0.25},
        {"classifier_dropout_prob": 0},
        {"num_attention_heads": 1, "type_vocab_size": 2},
        {"initializer_range": 0.5, "hidden_dropout_prob": 0.3},
        {"hidden_act": "gelu_new", "attention_probs_dropout_prob": 0.2},
    ],
)
def test_a_config_survives_a_conversion_and_back(
    folder, tmp_path, changes, form
):
    path = folder / "config.json"
    before = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(before))
    convert(folder, tmp_path / "c", format=form)
    convert(tmp_path / "c", tmp_path / "d", format="hf")
    assert json.loads((tmp_path / "d" / "config.json").read_text()) == before


@pytest.mark.parametrize("kind", ["sentencepiece", "wordpiece"])
def test_a_written_config_names_segments_and_special_pieces(
    tmp_path, shared, kind
):
    data = shared / "data"
    arguments = {"vocab_file": data / "zh/vocab.txt"}
    if kind == "sentencepiece":
        arguments = {"spm_model_file": data / "albert_en/30k-clean.model"}
    tokenizer = tokenization.build_tokenizer(keep_accents=True, **arguments)
    huggingface.write_tokenizer(tmp_path, tokenizer, 77)
    written = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert "token_type_ids" in written["model_input_names"]
    assert written["model_max_length"] == 77
    assert written.get("strip_accents") is (
        False if kind == "wordpiece" else None
    )
    described = huggingface.describe_config(
        AlbertConfig(vocab_size=30000), tokenizer
    )
    assert described["pad_token_id"] == tokenizer.pad_id
    assert described["bos_token_id"] == tokenizer.cls_id
    assert described["eos_token_id"] == tokenizer.sep_id
