"""Folders of sentence-transformers: written, read, refused."""

import dataclasses
import json

import numpy as np
import pytest

from albert_tf import Embedder, read_pretrained, write_pretrained
from albert_tf.weights.task_heads import TaskHead
from tests import tiny


def write(tmp_path, pooling="mean_all", is_normalized=True):
    head = TaskHead(
        "vectors",
        lengths={"max_seq_length": 9},
        pooling=pooling,
        is_normalized=is_normalized,
    )
    model = read_pretrained(tiny.write_model(tmp_path))
    values = {n: v for n, v in model.values.items() if n.startswith("bert/")}
    model = dataclasses.replace(model, values=values, head=head)
    write_pretrained(tmp_path / "st", model, "hf")
    return model, tmp_path / "st"


def read(path):
    return json.loads(path.read_text())


@pytest.mark.parametrize("is_normalized", [True, False])
@pytest.mark.parametrize("pooling", ["mean_all", "cls"])
def test_a_folder_is_read_as_it_was_written(tmp_path, pooling, is_normalized):
    model, folder = write(tmp_path, pooling, is_normalized)
    found = read_pretrained(folder)
    assert found.head == model.head
    assert found.head.lengths == {"max_seq_length": 9}
    texts = ["w1 w2 w3", "w4", "w5 " * 20]
    vectors = Embedder(found)(texts)
    np.testing.assert_allclose(vectors, Embedder(model)(texts), atol=1e-6)
    lengths = np.linalg.norm(vectors, axis=1)
    assert np.allclose(lengths, 1, atol=1e-5) == is_normalized
    again = Embedder(found, pooling=pooling)(texts)
    np.testing.assert_allclose(again, vectors, atol=1e-6)
    # The package's own format has the same vectors.
    write_pretrained(tmp_path / "own", found, "own")
    again = Embedder(tmp_path / "own")(texts)
    np.testing.assert_allclose(again, vectors, atol=1e-6)


def test_its_files_are_those_of_the_package(tmp_path):
    """As sentence-transformers 6.2 reads them."""
    model, folder = write(tmp_path)
    modules = read(folder / "modules.json")
    assert [module["path"] for module in modules] == [
        "",
        "1_Pooling",
        "2_Normalize",
    ]
    described = read(folder / "1_Pooling/config.json")
    assert described["word_embedding_dimension"] == model.config.hidden_size
    assert described["pooling_mode_mean_tokens"] is True
    assert described["pooling_mode_cls_token"] is False
    length = read(folder / "sentence_bert_config.json")["max_seq_length"]
    assert length == read(folder / "tokenizer_config.json")["model_max_length"]
    assert length == 9


@pytest.mark.parametrize(("length", "wanted"), [(7, 7), (900, 32)])
def test_texts_are_no_longer_than_the_model(tmp_path, length, wanted):
    _, folder = write(tmp_path)
    (folder / "sentence_bert_config.json").write_text("{}")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(read(path) | {"model_max_length": length}))
    found = read_pretrained(folder)
    assert found.head.lengths == {"max_seq_length": wanted}
    assert Embedder(found).max_seq_length == wanted


def test_other_poolings_and_modules_are_refused(tmp_path):
    with pytest.raises(ValueError, match="'mean', which sentence-transformers"):
        write(tmp_path, "mean")
    _, folder = write(tmp_path)
    path = folder / "1_Pooling/config.json"
    described = read(path)
    path.write_text(json.dumps(described | {"pooling_mode_max_tokens": True}))
    with pytest.raises(ValueError, match="pooling_mode_max_tokens"):
        read_pretrained(folder)
    # Version 6 writes this instead.
    path.write_text('{"embedding_dimension": 8, "pooling_mode": "cls"}')
    (folder / "sentence_bert_config.json").write_text("{}")
    head = read_pretrained(folder).head
    assert (head.pooling, head.lengths) == ("cls", {"max_seq_length": 9})
    path.write_text('{"pooling_mode": ["mean", "max"]}')
    with pytest.raises(ValueError, match="'max'"):
        read_pretrained(folder)
    path.write_text(json.dumps(described))
    path = folder / "modules.json"
    modules = read(path)
    modules[2]["type"] = "sentence_transformers.models.Dense"
    path.write_text(json.dumps(modules))
    with pytest.raises(ValueError, match="has the modules .*'Dense'"):
        read_pretrained(folder)
    # A CrossEncoder's, whose head config.json describes.
    path.write_text(json.dumps(modules[:1]))
    assert read_pretrained(folder).head is None
