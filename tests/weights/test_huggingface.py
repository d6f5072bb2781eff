"""Models go to transformers and come from there, and compute the same."""

import json

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from albert_tf.model import heads
from albert_tf.weights import huggingface, pretrained
from albert_tf.weights.safetensor_files import WEIGHTS_FILE
from tests.weights.test_pretrained import convert, random_model

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
def test_half_precision_becomes_float32_and_says_so(folder, dtype):
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
        ({"hidden_size": "12"}, r"config\.json is not .*hidden_size is '12'"),
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
        # So little that outputs agree.
        write(folder, {**values, bias: values[bias] + 1e-7}, *rest)

    monkeypatch.setattr(huggingface, "write_folder", write_other)
    with pytest.raises(ValueError, match="1 variables differ when read back"):
        convert(tmp_path / "a", tmp_path / "b", format="hf")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_the_activation_has_the_name_that_transformers_gives_it(folder):
    described = json.loads((folder / "config.json").read_text())
    assert described["hidden_act"] == "gelu_new"
    assert "parameter_sharing" not in described
