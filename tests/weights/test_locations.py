"""A path names one model: that one is read, or none."""

import shutil

import numpy as np
import pytest

from albert_tf.weights import checkpoints, pretrained
from tests.weights.test_huggingface import rewrite
from tests.weights.test_pretrained import (
    convert,
    random_model,
    write_hub_module,
)

WORDS = "bert/embeddings/word_embeddings"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder of models in all formats, with the weights of `own` doubled
    in what is not the usual file.
    """
    folder = tmp_path_factory.mktemp("models")
    values = random_model(folder / "own")
    doubled = {name: 2 * value for name, value in values.items()}
    checkpoints.write_checkpoint(folder / "own" / "model.ckpt-4", doubled)
    for form in ("hf", "keras_hub"):
        convert(folder / "own/model.ckpt-best", folder / form, format=form)
    shutil.copytree(folder / "hf", folder / "two")
    rewrite(folder / "two", lambda w: {n: 2 * v for n, v in w.items()})
    usual = folder / "two" / "model.safetensors"
    usual.rename(folder / "hf" / "other.safetensors")
    shutil.copy(
        folder / "hf" / "model.safetensors",
        folder / "hf" / "model-00001-of-00002.safetensors",
    )
    shutil.copy(
        folder / "keras_hub" / "model.weights.h5",
        folder / "keras_hub" / "other.weights.h5",
    )
    for step in (9, 10):
        target = folder / "trainer" / f"checkpoint-{step}"
        shutil.copytree(folder / "hf", target)
    (folder / "trainer" / "checkpoint-11").mkdir()
    for version in (999, 1700000000):
        (folder / "export").mkdir(exist_ok=True)
        write_hub_module(folder / "export" / str(version), values)
    (folder / "hf" / "pytorch_model.bin").write_bytes(b"x")
    np.savez(folder / "own" / "vectors.npz", values[WORDS])
    return folder, values


@pytest.mark.parametrize(
    ("path", "factor", "source"),
    [
        ("own/model.ckpt-best", 1, "own/model.ckpt-best"),
        ("own/model.ckpt-4.index", 2, "own/model.ckpt-4"),
        ("own/model.ckpt-4.data-00000-of-00001", 2, "own/model.ckpt-4"),
        ("own/model.ckpt-4.meta", 2, "own/model.ckpt-4"),
        ("hf/", 1, "hf"),
        ("hf/model.safetensors", 1, "hf/model.safetensors"),
        ("hf/other.safetensors", 2, "hf/other.safetensors"),
        ("keras_hub/other.weights.h5", 1, "keras_hub/other.weights.h5"),
        ("export/999/saved_model.pb", 1, "export/999/variables/variables"),
        ("export/999/variables/variables", 1, "variables/variables"),
        ("trainer", 1, "trainer/checkpoint-10"),
        ("trainer/checkpoint-9", 1, "trainer/checkpoint-9"),
        ("export", 1, "export/1700000000/variables/variables"),
    ],
)
def test_the_model_that_is_named_is_read(models, path, factor, source):
    folder, values = models
    found = pretrained.read_pretrained(f"{folder}/{path}")
    assert found.source.endswith(source)
    np.testing.assert_array_equal(found.values[WORDS], factor * values[WORDS])


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("hf/typo.safetensors", "does not exist; .*'other.safetensors'"),
        ("hf/tf_model.h5", "tf_model.h5 does not exist"),
        ("hf/model", "model.index does not exist; .*'model.safetensors'"),
        ("hf/model.safetensors.index.json", "does not exist"),
        ("hf/model-00001-of-00002.safetensors", "index of the shards, does"),
        ("hf/pytorch_model.bin", "is not a model; .*save_pretrained"),
        ("hf/config.json", "is not a model"),
        ("keras_hub/typo.weights.h5", "does not exist; .*'model.weights.h5'"),
        ("own/typo.weights.h5", "does not exist; .*'model.ckpt-4.index'"),
        ("own/model.ckpt-999", "ckpt-999.index does not exist; .*ckpt-4"),
        ("own.index", "own.index does not exist"),
        ("own.data-00000-of-00001", "own.index does not exist"),
        ("own.tar.gz", "own.tar.gz does not exist"),
        ("own/vectors.npz", "is not a model"),
        ("own/albert_config.json", "is not a model"),
    ],
)
def test_a_missing_model_is_not_replaced_by_another(models, path, says):
    with pytest.raises((FileNotFoundError, ValueError), match=says):
        pretrained.read_pretrained(models[0] / path)


@pytest.mark.parametrize("name", ["trainer", "export"])
def test_the_choice_of_the_newest_is_announced(models, name, caplog):
    pretrained.read_pretrained(models[0] / name)
    assert "has numbered models. The newest is used" in caplog.text
    caplog.clear()
    newest = {"trainer": "checkpoint-10", "export": "1700000000"}[name]
    pretrained.read_pretrained(models[0] / name / newest)
    assert "newest" not in caplog.text
