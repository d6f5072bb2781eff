"""Presets and vocabularies beside KerasHub itself."""

import pathlib
import tarfile
import tempfile

import numpy as np
import pytest
import sentencepiece

from albert_tf.text import standalone, tokenization
from albert_tf.weights import pretrained
from tests.weights.test_presets import compare, every_position, inputs
from tests.weights.test_pretrained import CONFIGS, convert, random_model

keras_hub = pytest.importorskip(
    "keras_hub",
    reason="needs keras-hub (pip install 'albert_tf[peers]'): that both "
    "compute the same; what it gave stands in tests/golden/keras_hub",
)

SIZES = {
    "vocabulary_size": 61,
    "num_layers": 4,
    "num_heads": 3,
    "embedding_dim": 5,
    "hidden_dim": 12,
    "intermediate_dim": 17,
    "max_sequence_length": 16,
    "num_segments": 2,
    "dropout": 0.1,
}
GROUPS = {
    "base": {},
    "groups": {"num_groups": 2},
    "inner": {"num_inner_repetitions": 2},
    "both": {"num_groups": 2, "num_inner_repetitions": 2},
}
TEXT = (
    "The bush fighting of that autumn is told of in another place.",
    "During all the months that had passed, she wondered about it often.",
    "It seemed so strange, that a man should come here and not be known!",
    "Quite a few jovial dwarves mixed the zinc, he said: 19, 20, 21.",
)


def vocabulary():
    """A SentencePiece model of 61 pieces, of lower-cased text of our own."""
    with tempfile.TemporaryDirectory() as folder:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([line.lower() for line in TEXT * 9]),
            model_prefix=f"{folder}/m",
            vocab_size=SIZES["vocabulary_size"],
            normalization_rule_name="identity",
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            control_symbols="[CLS],[SEP],[MASK]",
            minloglevel=2,
        )
        return pathlib.Path(f"{folder}/m.model").read_bytes()


def their_model(proto=None, dtype="float32", **changes):
    """An AlbertMaskedLM with random weights, no zeros."""
    models = keras_hub.models
    backbone = models.AlbertBackbone(**{**SIZES, **changes}, dtype=dtype)
    preprocessor = proto and models.AlbertMaskedLMPreprocessor(
        models.AlbertTokenizer(proto), sequence_length=16
    )
    model = models.AlbertMaskedLM(backbone, preprocessor)
    rng = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(rng.normal(0.1, 0.3, weight.shape))
    return model


def their_outputs(model):
    ids, mask, segments = inputs()
    given = {"token_ids": ids, "padding_mask": mask, "segment_ids": segments}
    outputs = model.backbone(given)
    logits = model({**given, "mask_positions": every_position()})
    return {
        "sequence_output": np.asarray(outputs["sequence_output"]),
        "pooled_output": np.asarray(outputs["pooled_output"]),
        "masked_lm_logits": np.asarray(logits),
    }


def record(folder):
    """Writes tests/golden/keras_hub."""
    model = their_model(vocabulary(), **GROUPS["both"])
    folder = pathlib.Path(folder)
    with tempfile.TemporaryDirectory() as temporary:
        model.save_to_preset(temporary)
        with tarfile.open(folder / "masked_lm.tar.gz", "w:gz") as archive:
            archive.add(temporary, "masked_lm")
    np.savez_compressed(folder / "outputs.npz", **their_outputs(model))


@pytest.mark.parametrize("changes", GROUPS.values(), ids=GROUPS)
def test_a_model_of_keras_hub_computes_the_same_here(tmp_path, changes):
    model = their_model(**changes)
    model.save_to_preset(str(tmp_path))
    found = pretrained.read_pretrained(tmp_path)
    assert found.remarks == []
    compare(found, their_outputs(model))


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_our_model_computes_the_same_in_keras_hub(tmp_path, name):
    changes = {**CONFIGS[name], "hidden_act": "gelu", "vocab_size": 61}
    random_model(tmp_path / "a", **changes)
    convert(tmp_path / "a", tmp_path / "b", format="keras_hub")
    folder = str(tmp_path / "b")
    model = keras_hub.models.AlbertMaskedLM.from_preset(folder)
    theirs = their_outputs(model)
    compare(pretrained.read_pretrained(tmp_path / "a"), theirs)
    backbone = keras_hub.models.Backbone.from_preset(folder)
    for one, other in zip(
        backbone.weights, model.backbone.weights, strict=True
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_becomes_float32_with_a_remark(tmp_path, dtype):
    model = their_model(dtype=dtype)
    model.save_to_preset(str(tmp_path))
    found = pretrained.read_pretrained(tmp_path)
    assert found.remarks == [f"{dtype} was converted to float32"]
    wanted = np.asarray(model.backbone.token_embedding.embeddings, np.float32)
    value = found.values["bert/embeddings/word_embeddings"]
    np.testing.assert_array_equal(value, wanted)
    assert value.dtype == np.float32


def test_a_classifier_gives_its_encoder(tmp_path):
    backbone = their_model().backbone
    keras_hub.models.AlbertTextClassifier(backbone, 3).save_to_preset(
        str(tmp_path)
    )
    found = pretrained.read_pretrained(tmp_path)
    assert found.remarks == ["omitted the head of AlbertTextClassifier"]
    assert all(name.startswith("bert/") for name in found.values)


def test_a_written_vocabulary_gives_keras_hub_our_ids(tmp_path):
    random_model(tmp_path / "a", vocab_size=61)
    (tmp_path / "a/spiece.model").write_bytes(vocabulary())
    convert(tmp_path / "a", tmp_path / "b", format="keras_hub")
    folder = str(tmp_path / "b")
    ours = pretrained.read_pretrained(tmp_path / "a").tokenizer
    theirs = keras_hub.models.AlbertTokenizer.from_preset(folder)
    texts = [*TEXT, "Élan  \u2028 ÉTUDE", "ﬁve ½", ""]
    for text, ids in zip(texts, ours.encode_batch(texts), strict=True):
        assert list(np.asarray(theirs(text))) == ids
    model = keras_hub.models.AlbertMaskedLM.from_preset(folder)
    assert model.preprocessor.sequence_length == 11
    assert model.predict(list(TEXT)).shape[-1] == 61


def test_text_of_novels_has_the_same_ids_in_keras_hub(shared):
    """Compares every tenth line; with the unchanged vocabulary, all differ."""
    path = shared / "data/albert_en/30k-clean.model"
    ours = tokenization.build_tokenizer(spm_model_file=str(path))
    text = (shared / "data/text/novels_valid.txt").read_text(encoding="utf-8")
    lines = [line for line in text.split("\n")[::10] if line]
    plain, changed = (
        keras_hub.models.AlbertTokenizer(content)(lines)
        for content in (path.read_bytes(), standalone.serialize(ours))
    )
    wanted = ours.encode_batch(lines)
    assert [list(map(int, ids)) for ids in changed] == wanted
    is_equal = [
        list(map(int, a)) == b for a, b in zip(plain, wanted, strict=True)
    ]
    assert not any(is_equal)
