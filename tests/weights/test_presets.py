"""Presets of KerasHub are read and written, and what is wrong is said."""

import dataclasses
import json
import shutil
import tarfile

import h5py
import numpy as np
import pytest

from albert_tf.model import heads, modeling, operations
from albert_tf.model.config import AlbertConfig
from albert_tf.weights import (
    checkpoints,
    keras_hub,
    pretrained,
    regrouping,
    vocabulary_files,
)
from tests import tiny
from tests.weights.test_pretrained import CONFIGS, convert, random_model


def inputs():
    ids = np.random.default_rng(0).integers(5, 61, (2, 9)).astype(np.int32)
    mask = np.ones_like(ids)
    mask[1, 6:] = 0
    segments = np.zeros_like(ids)
    segments[:, 4:] = 1
    return ids, mask, segments


def every_position():
    return np.tile(np.arange(9, dtype=np.int32), (2, 1))


def compare(found, theirs):
    """Compares what a `Pretrained` computes with KerasHub's outputs."""
    encoder = pretrained.build_model(modeling.AlbertEncoder, found)
    outputs = encoder(*inputs())
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_allclose(outputs[name], theirs[name], atol=2e-6)
    head = heads.MaskedLM(found.config)
    weights = {weight.canonical_name: weight for weight in head.weights}
    checkpoints.restore(weights, found.values, found.source)
    given = (
        outputs["sequence_output"],
        found.values["bert/embeddings/word_embeddings"],
    )
    logits = theirs["masked_lm_logits"]
    # KerasHub leaves the head's epsilon at its layer's default.
    np.testing.assert_allclose(head(*given), logits, atol=2e-3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operations, "LAYER_NORM_EPSILON", keras_hub.HEAD_EPSILON)
        np.testing.assert_allclose(head(*given), logits, atol=1e-5)


@pytest.fixture
def archive(golden):
    """A preset of AlbertMaskedLM that KerasHub wrote, packed."""
    return golden("keras_hub") / "masked_lm.tar.gz"


@pytest.fixture
def folder(tmp_path, archive):
    """The same, unpacked."""
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path)
    return tmp_path / "masked_lm"


def rewrite(path, **changes):
    """Changes a JSON file, or the config in it."""
    described = json.loads(path.read_text())
    inner = described["config"]
    inner.update({k: v for k, v in changes.items() if k in inner})
    described.update({k: v for k, v in changes.items() if k not in inner})
    path.write_text(json.dumps(described))


def test_a_recorded_preset_computes_the_same_here(archive, golden):
    found = pretrained.read_pretrained(archive)
    assert found.remarks == []
    assert found.config == AlbertConfig(
        vocab_size=61,
        embedding_size=5,
        hidden_size=12,
        num_hidden_layers=4,
        num_hidden_groups=2,
        num_attention_heads=3,
        intermediate_size=17,
        inner_group_num=2,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        max_position_embeddings=16,
    )
    compare(found, np.load(golden("keras_hub") / "outputs.npz"))


def test_all_parts_of_a_preset_are_found(folder):
    tokenizer = pretrained.read_pretrained(folder).tokenizer
    name = vocabulary_files.choose_name(tokenizer.settings)
    assert name == "spiece.model"
    vocabulary = folder / "assets/tokenizer/vocabulary.spm"
    assert tokenizer.content == vocabulary.read_bytes()
    by_file = pretrained.read_pretrained(folder / "model.weights.h5")
    assert by_file.config.inner_group_num == 2
    assert by_file.tokenizer.encode("The BUSH") == (
        by_file.tokenizer.encode("the bush")
    )
    assert "cls/predictions/output_bias" in by_file.values


def test_a_backbone_alone_has_no_head_and_no_vocabulary(folder):
    for name in ("task.json", "task.weights.h5", "tokenizer.json"):
        (folder / name).unlink()
    found = pretrained.read_pretrained(folder)
    assert found.tokenizer is None and found.remarks == []
    assert all(name.startswith("bert/") for name in found.values)


def test_a_task_without_its_weights_is_named(folder):
    (folder / "task.weights.h5").unlink()
    found = pretrained.read_pretrained(folder)
    assert found.remarks == ["omitted the head of AlbertMaskedLM"]


def test_a_config_json_is_recognized_by_its_content(folder, tmp_path):
    """Both formats call it config.json: its contents decide."""
    random_model(tmp_path / "a")
    convert(tmp_path / "a", tmp_path / "hf", format="hf")
    assert keras_hub.is_preset(folder)
    assert not keras_hub.is_preset(tmp_path / "hf")
    shutil.copy(tmp_path / "hf/model.safetensors", folder)
    shutil.copy(folder / "model.weights.h5", tmp_path / "hf")
    assert pretrained.read_pretrained(folder).config.vocab_size == 61
    assert pretrained.read_pretrained(tmp_path / "hf").config.vocab_size == 31


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_a_written_preset_is_the_model_that_was_read(tmp_path, name):
    changes = {**CONFIGS[name], "hidden_act": "gelu"}
    values = random_model(tmp_path / "a", **changes)
    convert(tmp_path / "a", tmp_path / "b", format="keras_hub")
    source = pretrained.read_pretrained(tmp_path / "a")
    copy = pretrained.read_pretrained(tmp_path / "b")
    wanted = regrouping.regroup(values, source.config, copy.config)
    lost = {n for n in values if n.startswith("cls/seq_relationship")}
    assert wanted.keys() - lost == copy.values.keys()
    for key, value in copy.values.items():
        np.testing.assert_array_equal(value, wanted[key])
    is_uneven = name in ("attention", "ffn", "none", "uneven")
    num_layers = source.config.num_hidden_layers
    groups = num_layers if is_uneven else source.config.num_hidden_groups
    assert copy.config.num_hidden_groups == groups


def test_what_is_written_is_laid_out_as_keras_hub_does(folder, tmp_path):
    convert(folder, tmp_path / "b", format="keras_hub")
    for path in folder.glob("*.json"):
        theirs = json.loads(path.read_text())
        ours = json.loads((tmp_path / "b" / path.name).read_text())
        for name in ("date_saved", "keras_version"):
            theirs.pop(name, None), ours.pop(name, None)
        assert ours == theirs
    for path in folder.glob("*.h5"):
        with (
            h5py.File(path) as theirs,
            h5py.File(tmp_path / "b" / path.name) as f,
        ):
            wanted, found = {}, {}
            theirs.visititems(lambda name, x, to=wanted: to.update({name: x}))
            f.visititems(lambda name, x, to=found: to.update({name: x}))
            wanted = {
                name: item[()]
                for name, item in wanted.items()
                if isinstance(item, h5py.Dataset)
            }
            found = {n: x[()] for n, x in found.items() if n in wanted}
        assert wanted.keys() == found.keys()
        for name, value in wanted.items():
            assert found[name].dtype == value.dtype
            np.testing.assert_array_equal(found[name], value)


def test_what_keras_hub_cannot_store_is_reported(tmp_path, capsys):
    rates = {"hidden_dropout_prob": 0.1, "initializer_range": 0.3}
    random_model(tmp_path / "a", **rates)
    convert(tmp_path / "a", tmp_path / "b", format="keras_hub")
    said = capsys.readouterr().out
    for note in (
        "omitted, because KerasHub lacks them: cls/seq_relationship/",
        "the masked-LM head's LayerNorm has epsilon 1e-05 in KerasHub",
        "attention_probs_dropout_prob was changed from 0.0 to 0.1",
        "initializer_range was changed from 0.3 to 0.02",
    ):
        assert f"Note: {note}" in said


def test_a_converted_vocabulary_is_recognized(folder, tmp_path):
    own = tmp_path / "own"
    convert(folder, own, format="own")
    (own / "spiece.model").rename(own / "of_any_name.model")
    source = pretrained.read_pretrained(own)
    convert(own, tmp_path / "b", format="keras_hub")
    copy = pretrained.read_pretrained(tmp_path / "b")
    # As the file it was, so data that was made with it still fits.
    pretrained.check_same_vocabulary(copy, source.tokenizer.settings)
    # KerasHub does not lower-case, so its copy of the vocabulary does.
    for name in ("spiece.model", "tokenizer_settings.json"):
        (tmp_path / "b" / name).unlink()
    alone = pretrained.read_pretrained(tmp_path / "b").tokenizer
    assert alone.settings["sha256"] != source.tokenizer.settings["sha256"]
    text = "The BUSH, 1999, Élan"
    assert alone._model.EncodeAsIds(text) == source.tokenizer.encode(text)


@pytest.mark.parametrize("act", ["relu", "tanh", "linear", None])
def test_another_activation_is_not_written(tmp_path, act):
    random_model(tmp_path / "a", hidden_act=act)
    with pytest.raises(ValueError, match=f"hidden_act is {act!r}.*only gelu"):
        convert(tmp_path / "a", tmp_path / "b", format="keras_hub")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_wordpiece_vocabulary_is_not_written(tmp_path):
    (tmp_path / "a").mkdir()
    tiny.write_model(tmp_path / "a")
    with pytest.raises(ValueError, match=r"vocab\.txt is WordPiece; KerasHub"):
        convert(tmp_path / "a", tmp_path / "b", format="keras_hub")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_slots_are_not_written(tmp_path):
    random_model(tmp_path / "a")
    with pytest.raises(ValueError, match="--keep_slots: .*keras_hub cannot"):
        convert(
            tmp_path / "a",
            tmp_path / "b",
            format="keras_hub",
            keep_slots=True,
        )


ENCODER = "layers/transformer_encoder"


def edit(name, change):
    """Returns a function that changes an HDF5 file of a preset."""

    def apply(folder):
        with h5py.File(folder / name, "r+") as file:
            change(file)

    return apply


def remove(name):
    return lambda folder: (folder / name).unlink()


def config(**changes):
    return lambda folder: rewrite(folder / "config.json", **changes)


def replace(file, name, value):
    del file[name]
    file[name] = value


def cut(folder):
    path = folder / "model.weights.h5"
    path.write_bytes(path.read_bytes()[:-3000])


def pointer(folder):
    (folder / "model.weights.h5").write_text("version https://git-lfs")


def shard(folder):
    (folder / "model.weights.h5").rename(folder / "model_00000.weights.h5")
    (folder / "model.weights.json").write_text("{}")


def link(file):
    """An array of the model is one of another file."""
    name = "layers/dense/vars/1"
    del file[name]
    file.create_dataset(
        name, (12,), "f4", external=[("/etc/hostname", 0, h5py.h5f.UNLIMITED)]
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove("config.json"), r"has no model\.ckpt-\*\.index; it has"),
        (
            remove("model.weights.h5"),
            r"model\.weights\.h5 does not exist; .*Was the preset copied",
        ),
        (shard, "The weights are sharded.*max_shard_size=None"),
        (
            remove("assets/tokenizer/vocabulary.spm"),
            r"vocabulary\.spm does not exist, but tokenizer\.json does",
        ),
        (
            config(class_name="BertBackbone"),
            r"config\.json has class_name 'BertBackbone'; .*AlbertBackbone",
        ),
        (config(class_name=["a"]), r"config\.json has class_name \['a'\]"),
        (
            lambda folder: (folder / "config.json").write_text(
                '{"class_name": "AlbertBackbone"}'
            ),
            "lacks the object 'config'",
        ),
        (
            lambda folder: rewrite(
                folder / "tokenizer.json", class_name="BertTokenizer"
            ),
            r"tokenizer\.json has class_name 'BertTokenizer'; wanted",
        ),
        (
            config(config={"vocabulary_size": 61, "rotary": 1}),
            r"lacks \['dropout', .* and has the unknown keys \['rotary'\]",
        ),
        (config(hidden_dim="12"), r"config\.json is not .*hidden_size.='12'"),
        (config(num_groups=3), "has 3 groups for 4 layers"),
        (
            config(vocabulary_size=62),
            r"reversible_embedding/vars/0 is \(61, 5\); config\.json "
            r"specifies \(62, 5\)",
        ),
        (
            config(num_heads=4),
            r"(key|query)_dense/vars/0 is \(12, 3, 4\); .* \(12, 4, 3\)",
        ),
        (
            config(num_groups=4),
            r"lacks 64 of the 137 weights .*transformer_encoder_4",
        ),
        (
            config(num_inner_repetitions=1),
            r"has 32 weights more than .*transformer_encoder_2",
        ),
        (
            edit("model.weights.h5", lambda f: f.__delitem__(f"{ENCODER}_3")),
            r"lacks 16 of the 73 weights .*transformer_encoder_3",
        ),
        (
            edit(
                "model.weights.h5",
                lambda f: replace(
                    f, "layers/dense/vars/0", np.zeros((5, 12), "i1")
                ),
            ),
            "layers/dense/vars/0 is int8; .*quantized",
        ),
        (
            edit("model.weights.h5", link),
            "layers/dense/vars/1 is in another file",
        ),
        (
            edit(
                "task.weights.h5",
                lambda f: f.__delitem__("layers/masked_lm_head/vars"),
            ),
            r"task\.weights\.h5 lacks 1 of the 5 .*masked_lm_head",
        ),
        (
            edit(
                "model.weights.h5",
                lambda f: f.__setitem__("layers/loop", f["layers"]),
            ),
            r"model\.weights\.h5 cannot be read: maximum recursion",
        ),
        (cut, r"model\.weights\.h5 cannot be read: .*cut off"),
        (pointer, "cannot be read: .*Git LFS pointer"),
        (
            edit(
                "model.weights.h5",
                lambda f: f["layers/dense_1/vars/1"].write_direct(
                    np.full(12, np.nan, "f4")
                ),
            ),
            "pooler/dense/bias.*(NaN|finite)",
        ),
    ],
)
def test_the_error_on_a_preset_says_what_is_wrong(
    folder, tmp_path, change, message
):
    change(folder)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        convert(folder, tmp_path / "out", format="own")
    assert [p.name for p in tmp_path.iterdir()] == ["masked_lm"]


def test_weights_without_a_config_are_named(folder):
    (folder / "config.json").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"no config\.json next to model"
    ):
        pretrained.read_pretrained(folder / "model.weights.h5")


def test_a_projection_other_than_the_identity_is_refused(tmp_path):
    random_model(tmp_path / "a", embedding_size=12)
    convert(tmp_path / "a", tmp_path / "b", format="keras_hub")
    with h5py.File(tmp_path / "b/model.weights.h5", "r+") as file:
        file["layers/dense/vars/1"][0] = 1
    with pytest.raises(ValueError, match="only an identity can be read"):
        pretrained.read_pretrained(tmp_path / "b")


def test_a_huge_array_in_a_small_file_is_refused(folder):
    """A file of a few kB can describe an array that fits into no memory."""
    with h5py.File(folder / "model.weights.h5", "r+") as file:
        del file["layers/dense/vars/0"]
        file.create_dataset(
            "layers/dense/vars/0", (1 << 40, 12), "f4", chunks=(1024, 12)
        )
    with pytest.raises(ValueError, match=r"is \(1099511627776, 12\); config"):
        pretrained.read_pretrained(folder)


def test_a_damaged_file_is_read_the_same_or_refused(folder):
    """HDF5 has no checksum of its parts; no damage may crash."""
    path = folder / "model.weights.h5"
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(len(whole), size=60):
        content = bytearray(whole)
        content[place] ^= 0xFF
        path.write_bytes(content)
        try:
            found = pretrained.read_pretrained(folder)
        except ValueError:
            continue
        assert len(found.values) == 73 + 5


@pytest.mark.parametrize("is_cased", [True, False])
def test_a_vocabulary_is_used_as_keras_hub_does(folder, tmp_path, is_cased):
    import sentencepiece

    text = "Anna went to Berlin, and Élise to Rome with Otto and Paul."
    text = text if is_cased else text.lower()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text] * 9),
        model_prefix=str(tmp_path / "m"),
        vocab_size=28,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols="[CLS],[SEP],[MASK]",
        minloglevel=2,
    )
    vocabulary = folder / "assets/tokenizer/vocabulary.spm"
    shutil.copy(tmp_path / "m.model", vocabulary)
    tokenizer = pretrained.read_pretrained(folder).tokenizer
    alone = sentencepiece.SentencePieceProcessor(model_file=str(vocabulary))
    assert tokenizer.encode(text) == alone.EncodeAsIds(text)
    # Also if it is named, then with a name by which it is found again.
    bare = dataclasses.replace(pretrained.read_pretrained(folder), config=None)
    found = pretrained.replace_files(bare, spm_model_file=str(vocabulary))
    assert found.tokenizer.encode(text) == alone.EncodeAsIds(text)
    name = vocabulary_files.choose_name(found.tokenizer.settings)
    assert name == "spiece.model"
