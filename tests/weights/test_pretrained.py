"""Models are read in every form, written in every form, and stay the same."""

import dataclasses
import io
import json
import pathlib
import shutil
import tarfile
import typing

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import filesystem, ownership
from albert_tf.commands.convert_checkpoint import ConvertFlags
from albert_tf.commands.inspect_checkpoint import InspectFlags
from albert_tf.model import heads, modeling
from albert_tf.model.config import AlbertConfig
from albert_tf.programs import convert_checkpoint, inspect_checkpoint
from albert_tf.text import tokenization
from albert_tf.weights import (
    archives,
    checkpoints,
    initialization,
    pretrained,
    regrouping,
    task_heads,
    vocabulary_files,
)
from tests import tiny

TINY = AlbertConfig(**{**tiny.SIZES, "num_hidden_layers": 4})
CONFIGS = {
    "base": {},
    "groups": {"num_hidden_groups": 2},
    "inner": {"inner_group_num": 2, "hidden_act": "relu"},
    "attention": {"parameter_sharing": "attention"},
    "ffn": {"parameter_sharing": "ffn"},
    "none": {"parameter_sharing": "none"},
    "square": {"embedding_size": 12},
    # transformers and the release round 3 groups of 7 layers as we do, and
    # 22 of 22 only the former.
    "uneven": {"num_hidden_layers": 7, "num_hidden_groups": 3},
}


def random_model(folder, **changes):
    """Writes a model with random weights, no zeros; returns its values."""
    config = dataclasses.replace(TINY, **changes)
    rng = np.random.default_rng(1)
    weights = modeling.named_weights(heads.AlbertForPreTraining(config))
    values = {
        name: rng.normal(0.1, 0.2, w.shape).astype(np.float32)
        for name, w in weights.items()
    }
    folder.mkdir()
    checkpoints.write_checkpoint(str(folder / "model.ckpt-best"), values)
    (folder / "albert_config.json").write_text(config.to_json_string())
    return values


def convert(source, target, **kwargs):
    convert_checkpoint.run(
        ConvertFlags(from_=str(source), to=str(target), **kwargs)
    )


@pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("form", ["tf1", "own", "hf"])
def test_a_written_model_is_the_one_that_was_read(tmp_path, changes, form):
    values = random_model(tmp_path / "a", **changes)
    convert(tmp_path / "a", tmp_path / "b", format=form)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
    copy = pretrained.read_pretrained(tmp_path / "b")
    config = AlbertConfig.from_json_file(tmp_path / "a/albert_config.json")
    wanted = regrouping.regroup(values, config, copy.config)
    assert wanted.keys() == copy.values.keys()
    for name, value in wanted.items():
        np.testing.assert_array_equal(copy.values[name], value)
    if form == "own":
        assert copy.config == config
    ours, theirs = (
        convert_checkpoint.compute_outputs(pretrained.read_pretrained(p))
        for p in (tmp_path / "a", tmp_path / "b")
    )
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_weights_go_to_layers_that_share_less_and_not_back():
    none = dataclasses.replace(TINY, parameter_sharing="none")
    ffn = dataclasses.replace(TINY, parameter_sharing="ffn")
    block = "bert/encoder/transformer/group_%d/inner_group_0/%s"
    kinds = ["LayerNorm/beta", "LayerNorm_1/beta", "ffn_1/x", "attention_1/x"]
    values = {block % (0, kind): np.array(i) for i, kind in enumerate(kinds)}
    spread = regrouping.regroup({**values, "bert/x": 1}, TINY, ffn)
    # 4 attentions with their norms, one feed-forward with its norm.
    assert len(spread) == 1 + 4 * 2 + 2
    assert spread[block % (3, "LayerNorm/beta")] == 0
    assert block % (3, "LayerNorm_1/beta") not in spread
    with pytest.raises(ValueError, match="Layer 1 would share"):
        regrouping.regroup(values, none, TINY)


def test_weights_that_all_layers_share_fit_any_number_of_layers():
    block = "bert/encoder/transformer/group_%d/inner_group_0/x"
    values = {block % 0: np.array(3)}
    deeper = dataclasses.replace(TINY, num_hidden_layers=5)
    assert regrouping.regroup(values, TINY, deeper) == values
    assert regrouping.regroup(values, deeper, TINY) == values
    separate = dataclasses.replace(deeper, parameter_sharing="none")
    spread = regrouping.regroup(values, TINY, separate)
    assert spread == {block % layer: 3 for layer in range(5)}
    with pytest.raises(ValueError, match="has 5 layers, the model 4"):
        regrouping.regroup(spread, separate, TINY)
    half = dataclasses.replace(TINY, parameter_sharing="ffn")
    with pytest.raises(ValueError, match="has 4 layers, the model 5"):
        regrouping.regroup(values, half, deeper)


@pytest.mark.parametrize(
    "changes",
    [{}, {"inner_group_num": 2}, {"num_hidden_groups": 2}],
    ids=["shared", "inner", "copied to two groups"],
)
def test_more_layers_in_smaller_steps_compute_nearly_the_same(changes):
    inner = {"inner_group_num": changes.get("inner_group_num", 1)}
    few = dataclasses.replace(TINY, initializer_range=0.15, **inner)
    many = dataclasses.replace(few, num_hidden_layers=12, **changes)
    tf.keras.utils.set_random_seed(1)
    encoders = modeling.AlbertEncoder(few), modeling.AlbertEncoder(many)
    first, deep = (modeling.named_weights(encoder) for encoder in encoders)
    rng = np.random.default_rng(1)
    for name, weight in first.items():
        if name.endswith(("bias", "beta")):
            weight.assign(rng.normal(0, 0.1, weight.shape))
    ids = tf.constant(rng.integers(5, 31, [4, 11]))
    wanted = encoders[0](ids)["sequence_output"]

    def error(values):
        for name, weight in deep.items():
            weight.assign(values[name])
        outputs = encoders[1](ids)["sequence_output"]
        return tf.reduce_mean(tf.square(outputs - wanted)).numpy()

    values = {name: weight.numpy() for name, weight in first.items()}
    grown = regrouping.regroup(values, few, many)
    copied = {
        name: values[regrouping._GROUP.sub("/group_0/", name)] for name in deep
    }
    assert error(grown) < 0.1 * error(copied)
    # What a layer computes from its input stays.
    for name in ("query", "key", "value", "intermediate"):
        for old, value in values.items():
            if f"/{name}/" in old and "output" not in old:
                np.testing.assert_array_equal(grown[old], value)
    assert regrouping.regroup(values, few, few) == values


def test_the_releases_rounding_is_not_written(tmp_path):
    random_model(tmp_path / "a", num_hidden_layers=22, num_hidden_groups=22)
    with pytest.raises(
        ValueError, match="rounds the group indices of 22 layers"
    ):
        convert(tmp_path / "a", tmp_path / "b", format="tf1")
    assert not (tmp_path / "b").exists()


RELEASED = [f"model/{name}" for name in "ABCDEFGH"] + [
    f"heads/{task}_{name}"
    for task in (
        "classifier_cola",
        "classifier_sts-b",
        "race",
        "squad1",
        "squad2",
    )
    for name in "AC"
]


@pytest.mark.parametrize("name", RELEASED)
def test_a_checkpoint_of_the_release_is_copied_bit_for_bit(
    tmp_path, golden, name
):
    source = golden(name)
    convert(source, tmp_path / "b", format="tf1")
    ours, theirs = (
        tf.train.load_checkpoint(checkpoints.find_checkpoints(folder)[-1])
        for folder in (tmp_path / "b", source)
    )
    names = pretrained.read_pretrained(source).values.keys()
    assert ours.get_variable_to_shape_map().keys() == names
    for name in names:
        copied, value = ours.get_tensor(name), theirs.get_tensor(name)
        assert copied.dtype == value.dtype
        np.testing.assert_array_equal(copied, value)
    released = json.loads((source / "albert_config.json").read_text())
    written = json.loads((tmp_path / "b/albert_config.json").read_text())
    both = released.keys() & written.keys()
    assert {k: written[k] for k in both} == {k: released[k] for k in both}
    assert released.keys() - both <= set(AlbertConfig.IGNORED_KEYS)
    assert "parameter_sharing" not in written


def test_real_names_are_all_known(shared, tmp_path):
    lines = (shared / "data/albert_en/variables.txt").read_text().splitlines()
    names = {line.split()[0] for line in lines if " [" in line}
    config = AlbertConfig(
        vocab_size=30000,
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
    )
    weights = modeling.named_weights(heads.AlbertForPreTraining(config))
    assert weights.keys() == names - {"global_step"}


def test_slots_are_kept_on_request(tmp_path):
    values = random_model(tmp_path / "a")
    slots = {f"{n}/adam_m": v + 1 for n, v in values.items()}
    held = {**values, **slots, "global_step": np.int64(7)}
    checkpoints.write_checkpoint(str(tmp_path / "a/model.ckpt-best"), held)
    convert(tmp_path / "a", tmp_path / "b", format="own")
    assert len(pretrained.read_pretrained(tmp_path / "b").values) == len(values)
    convert(tmp_path / "a", tmp_path / "c", format="own", keep_slots=True)
    kept = pretrained.read_pretrained(tmp_path / "c", keep_slots=True).values
    assert kept.keys() == held.keys()
    with pytest.raises(ValueError, match="cannot store optimizer slots"):
        convert(tmp_path / "a", tmp_path / "d", format="hf", keep_slots=True)


def test_a_tar_is_read_and_one_that_leads_outside_is_not(tmp_path):
    random_model(tmp_path / "a")
    good = tmp_path / "good.tar.gz"
    with tarfile.open(good, "w:gz") as archive:
        archive.add(tmp_path / "a", "albert_base")
    assert pretrained.read_pretrained(good).config == TINY
    bad = tmp_path / "bad.tar"
    with tarfile.open(bad, "w") as archive:
        member = tarfile.TarInfo("../evil.index")
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(ValueError, match=r"'\.\./evil.index'.*Nothing was"):
        pretrained.read_pretrained(bad)
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(good.read_bytes()[:-2000])
    with pytest.raises(ValueError, match="cut off"):
        pretrained.read_pretrained(cut)


@pytest.mark.parametrize("mode", ["gz", "bz2", "xz"])
def test_a_damaged_archive_is_not_unpacked(tmp_path, mode):
    content = np.random.default_rng(0).bytes(5000) + bytes(20_000)
    (tmp_path / "a.index").write_bytes(content)
    path = tmp_path / "a.tar"
    with tarfile.open(path, f"w:{mode}") as archive:
        archive.add(tmp_path / "a.index", "a.index")
    whole = path.read_bytes()
    # Not in gzip's header, which has a date and a name.
    places = range(30, len(whole) - 1, 37)
    num_refused = 0
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 5
        path.write_bytes(damaged)
        try:
            with archives.unpacked(path) as folder:
                # Some bits have no meaning, such as padding before a block.
                found = pathlib.Path(folder, "a.index").read_bytes()
                assert found == content
        except ValueError as error:
            assert "a.tar cannot be unpacked" in str(error)
            num_refused += 1
    assert num_refused >= len(places) - 2


def test_an_archive_that_unpacks_to_far_more_than_itself_is_refused(
    tmp_path, monkeypatch
):
    """Before it is unpacked, and without reading beyond the bad header."""
    bomb, crumbs = tmp_path / "bomb.tar.gz", tmp_path / "crumbs.tar.gz"
    with tarfile.open(bomb, "w:gz") as archive:
        member = tarfile.TarInfo("model.ckpt.data")
        member.size = 300_000_000
        with open("/dev/zero", "rb") as zeros:
            archive.addfile(member, zeros)
    with tarfile.open(crumbs, "w:gz") as archive:
        for i in range(10_001):
            archive.addfile(tarfile.TarInfo(str(i)))
    monkeypatch.setattr(
        tarfile.TarFile, "extractall", lambda *_, **__: pytest.fail("unpacked")
    )
    with pytest.raises(
        ValueError, match="unpacks to at least 300,000,000 in 1 files"
    ):
        pretrained.read_pretrained(bomb)
    with pytest.raises(ValueError, match="in 10,001 files"):
        pretrained.read_pretrained(crumbs)


@pytest.mark.parametrize("form", ["tf1", "own", "hf"])
def test_a_folder_may_have_any_name(tmp_path, form):
    random_model(tmp_path / "a")
    folder = tmp_path / "a [b] *?"
    convert(tmp_path / "a", folder, format=form)
    assert pretrained.read_pretrained(folder).config == TINY


def test_settings_of_another_vocabulary_are_refused(tmp_path):
    tiny.write_model(tmp_path)
    path = tmp_path / "tokenizer_settings.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps({**settings, "sha256": "0" * 64}))
    with pytest.raises(
        ValueError, match="another hash than tokenizer_settings"
    ):
        pretrained.read_pretrained(tmp_path)
    path.unlink()
    assert pretrained.read_pretrained(tmp_path).tokenizer


@pytest.mark.parametrize(
    "name", ["tokenizer_settings.json", "tokenizer_config.json"]
)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not JSON: it is empty"),
        ('{"do_lower_case": tr', "is not JSON"),
        ("[]", "found JSON of type list"),
        ("null", "found JSON of type NoneType"),
        ("[" * 100_000, "nested too deeply"),
        ('{"do_lower_case": "false"}', "do_lower_case is 'false'; wanted true"),
        ('{"keep_accents": 0}', "keep_accents is 0; wanted true or false"),
    ],
)
def test_damaged_settings_are_refused(tmp_path, name, content, message):
    tiny.write_model(tmp_path)
    (tmp_path / "tokenizer_settings.json").unlink()
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=f"{name}.*{message}"):
        pretrained.read_pretrained(tmp_path)


def damage(folder, what):
    """Damages a model in one way."""
    data = folder / "model.ckpt-best.data-00000-of-00001"
    weights = folder / "model.safetensors"
    if what == "data":
        data.write_bytes(data.read_bytes()[:-500])
    elif what == "index":
        (folder / "model.ckpt-best.index").unlink()
    elif what == "header":
        weights.write_bytes(b"\xff" * 100 + weights.read_bytes())
    elif what == "pytorch":
        weights.rename(folder / "pytorch_model.bin")
    elif what == "bert":
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(
            json.dumps({**config, "model_type": "bert"})
        )
    elif what == "vocabulary":
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
        (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    elif what == "architecture":
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(
            json.dumps({**config, "num_hidden_groups": 2})
        )
    elif what == "saved_model":
        tf.saved_model.save(tf.Module(), str(folder))


@pytest.mark.parametrize(
    ("form", "what", "message"),
    [
        ("tf1", "data", "cannot be read.*\n.*cut off"),
        ("tf1", "index", r"has no model.ckpt-\*.index; it has"),
        ("tf1", "vocabulary", "has 6 pieces, the model 31"),
        ("tf1", "saved_model", "neither ours nor one of TF Hub.s"),
        ("hf", "header", "cannot be read: .*header.*cut off"),
        ("hf", "pytorch", "convert a pytorch_model"),
        ("hf", "bert", "model_type 'bert'"),
        ("hf", "architecture", r"lacks 16 weights of the encoder.*groups\.1"),
    ],
)
def test_what_cannot_be_read_is_explained(tmp_path, form, what, message):
    random_model(tmp_path / "a")
    convert(tmp_path / "a", tmp_path / "b", format=form)
    damage(tmp_path / "b", what)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        convert(tmp_path / "b", tmp_path / "c")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


def test_a_model_of_another_architecture_is_not_written(tmp_path):
    random_model(tmp_path / "a")
    path = tmp_path / "a" / "albert_config.json"
    config = json.loads(path.read_text())
    for change, message in (
        ({"hidden_size": 24}, r"mapping_in/bias is \(12,\), .* \(24,\)"),
        ({"vocab_size": 32}, r"word_embeddings is \(31, 5\), .* vocabulary"),
        ({"num_hidden_groups": 2}, "lacks 16 of 48 .*group_1.*architecture"),
    ):
        path.write_text(json.dumps({**config, **change}))
        with pytest.raises(ValueError, match=message):
            convert(tmp_path / "a", tmp_path / "c", format="own")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_bert_checkpoint_is_recognized():
    values = {"bert/encoder/layer_0/output/dense/bias": np.zeros(3)}
    with pytest.raises(ValueError, match="a BERT checkpoint"):
        checkpoints.restore({"bert/x": None}, values, "there")


def test_a_conversion_is_not_written_into_its_model(tmp_path):
    random_model(tmp_path / "a")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "empty").mkdir()
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    for target, message in (
        ("a/b", "is inside --from"),
        ("a/empty", "is inside --from"),
        ("link/b", "is inside --from"),
        ("a", "is not empty"),
        ("a/b/../../a", "is inside --from"),
        ("file", "is a file"),
    ):
        with pytest.raises(ValueError, match=message):
            convert(tmp_path / "a", f"{tmp_path}/{target}")
    assert sorted(tmp_path.rglob("*")) == before


def test_two_conversions_do_not_write_one_folder(tmp_path):
    random_model(tmp_path / "a")
    with ownership.owning(str(tmp_path / "b")):
        with pytest.raises(BlockingIOError, match="in use by process"):
            convert(tmp_path / "a", tmp_path / "b")
    # The remains of a conversion that was stopped.
    (tmp_path / "b.incomplete").mkdir()
    (tmp_path / "b.incomplete" / "config.json").write_text("{")
    convert(tmp_path / "a", tmp_path / "b")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


def test_a_folder_with_files_is_not_overwritten(tmp_path):
    random_model(tmp_path / "a")
    with pytest.raises(ValueError, match="not empty"):
        convert(tmp_path / "a", tmp_path / "a")


def test_a_link_to_an_empty_folder_stays_a_link(tmp_path):
    random_model(tmp_path / "a")
    (tmp_path / "disk").mkdir()
    (tmp_path / "b").symlink_to(tmp_path / "disk")
    convert(tmp_path / "a", f"{tmp_path}/b/", format="own")
    assert (tmp_path / "b").is_symlink()
    assert pretrained.read_pretrained(tmp_path / "disk").values
    with pytest.raises(ValueError, match="/proc is a mount point"):
        convert(tmp_path / "a", "/proc")


def test_an_inspection_counts_all_weights(tmp_path, capsys):
    values = random_model(tmp_path / "a")
    shutil.copy(tmp_path / "a/albert_config.json", tmp_path)
    inspect_checkpoint.run(InspectFlags(init_checkpoint=str(tmp_path / "a")))
    said = capsys.readouterr().out
    assert "bert/embeddings/word_embeddings" in said
    assert f"{sum(v.size for v in values.values()):,} in {len(values)}" in said
    assert "sentence-order head" in said and '"hidden_size": 12' in said


def test_a_run_resumes_or_starts_from_random_or_other_weights(tmp_path):
    model = heads.AlbertForPreTraining(TINY)
    weights = modeling.named_weights(model)
    held = {**weights, "global_step": tf.Variable(1, dtype=tf.int64)}
    manager = checkpoints.CheckpointManager(tmp_path / "out", held)

    def initialize(source=None):
        found = source and pretrained.read_pretrained(source)
        return initialization.initialize(manager, weights, TINY, found)

    assert initialize() == "Starting from random weights."
    values = random_model(tmp_path / "a")
    said = initialize(tmp_path / "a")
    assert said.startswith(f"Restored {len(values)} of {len(values)} variables")
    # The step of the other training is not taken over.
    assert held["global_step"].numpy() == 1
    convert(tmp_path / "a", tmp_path / "b", format="hf")
    for weight in weights.values():
        weight.assign(tf.zeros_like(weight))
    assert str(tmp_path / "b") in initialize(tmp_path / "b")
    for name, weight in weights.items():
        np.testing.assert_array_equal(weight, values[name])
    manager.save()
    assert initialize(tmp_path / "a").startswith("Resuming from")


def start_from(folder, config, **kwargs):
    """Starts a model of a config from a folder; returns what is said."""
    weights = modeling.named_weights(heads.AlbertForPreTraining(config))
    held = {**weights, "global_step": tf.Variable(0, dtype=tf.int64)}
    return initialization.initialize(
        checkpoints.CheckpointManager(f"{folder}-out", held),
        weights,
        config,
        pretrained.read_pretrained(folder),
        **kwargs,
    )


@pytest.mark.parametrize(
    ("before", "after", "has_config", "message"),
    [
        (
            {},
            {"num_attention_heads": 4},
            True,
            "trained with num_attention_heads 3, the config has 4",
        ),
        ({}, {"hidden_act": "relu"}, True, "hidden_act 'gelu'.* has 'relu'"),
        ({"inner_group_num": 2}, {}, True, "inner_group_num 2"),
        ({"inner_group_num": 2}, {}, False, "layers .*inner_group_1"),
        ({"num_hidden_groups": 4}, {}, False, "layers .*group_1"),
        ({"parameter_sharing": "none"}, {}, False, "layers .*group_1"),
    ],
)
def test_weights_that_fit_by_shape_only_are_refused(
    tmp_path, before, after, has_config, message
):
    random_model(tmp_path / "a", **before)
    if not has_config:
        (tmp_path / "a" / "albert_config.json").unlink()
    config = dataclasses.replace(TINY, **after)
    with pytest.raises(ValueError, match=message):
        start_from(tmp_path / "a", config)


def test_dropout_and_surplus_groups_may_differ(tmp_path):
    random_model(tmp_path / "a", num_hidden_groups=2)
    (tmp_path / "a" / "albert_config.json").unlink()
    config = dataclasses.replace(
        TINY, hidden_dropout_prob=0.3, initializer_range=0.5
    )
    assert "new: none" in start_from(tmp_path / "a", config, from_group0=True)


def test_group_0_of_a_shallow_model_takes_smaller_steps_in_a_deeper_one(
    tmp_path,
):
    random_model(tmp_path / "a")
    size = 2 * TINY.num_hidden_layers
    config = dataclasses.replace(TINY, num_hidden_layers=size)
    found = start_from(tmp_path / "a", config, from_group0=True)
    assert found == start_from(tmp_path / "a", config)
    assert f"are used in {size}, in smaller steps" in found


def test_data_of_another_vocabulary_is_refused(tmp_path):
    random_model(tmp_path / "a")
    pieces = [*tiny.SPECIAL, *map(str, range(26))]
    (tmp_path / "a" / "vocab.txt").write_text("\n".join(pieces) + "\n")
    found = pretrained.read_pretrained(tmp_path / "a")
    settings = found.tokenizer.settings
    pretrained.check_same_vocabulary(found, settings)
    weights = modeling.named_weights(heads.AlbertForPreTraining(TINY))
    held = {**weights, "global_step": tf.Variable(0, dtype=tf.int64)}
    manager = checkpoints.CheckpointManager(tmp_path / "out", held)
    other = {**settings, "sha256": "0", "vocabulary": "other.txt"}
    with pytest.raises(
        ValueError, match="vocab.txt, which differs from other.txt"
    ):
        initialization.initialize(
            manager, weights, TINY, found, tokenizer_settings=other
        )


@pytest.mark.parametrize("has_vocabulary", [True, False])
def test_the_recorded_vocabulary_is_compared_with_data_and_files(
    tmp_path, has_vocabulary
):
    """A run of pretraining leaves the settings without the vocabulary."""
    random_model(tmp_path / "a")
    for name, last in (("vocab", "z"), ("other", "y")):
        pieces = [*tiny.SPECIAL, *map(str, range(25)), last]
        (tmp_path / f"{name}.txt").write_text("\n".join(pieces))
    ours, other = (
        tokenization.build_tokenizer(vocab_file=tmp_path / f"{name}.txt")
        for name in ("vocab", "other")
    )
    ours.write_settings(tmp_path / "a")
    if has_vocabulary:
        shutil.copy(tmp_path / "vocab.txt", tmp_path / "a")
    found = pretrained.read_pretrained(tmp_path / "a")
    assert bool(found.tokenizer) == has_vocabulary
    pretrained.replace_files(found, vocab_file=tmp_path / "vocab.txt")
    with pytest.raises(
        ValueError, match="vocab.txt, .* differs from other.txt"
    ):
        pretrained.replace_files(found, vocab_file=tmp_path / "other.txt")
    cased = ours.settings | {"do_lower_case": False}
    pretrained.check_same_vocabulary(found, ours.settings)
    for settings, message in (
        (other.settings, "differs from other.txt"),
        (cased, "with do_lower_case True, not False"),
    ):
        with pytest.raises(ValueError, match=message):
            pretrained.check_same_vocabulary(found, settings)
    # Casing that is not recorded is not compared.
    (tmp_path / "a" / tokenization.SETTINGS_FILE).unlink()
    found = pretrained.read_pretrained(tmp_path / "a")
    pretrained.check_same_vocabulary(found, cased)


def test_the_best_checkpoint_of_a_fine_tuning_is_read(tmp_path):
    values = random_model(tmp_path / "a")
    for step in (4, 8):
        checkpoints.write_checkpoint(
            tmp_path / "a" / f"model.ckpt-{step}", values
        )
    found = pretrained.read_pretrained(tmp_path / "a")
    assert found.source.endswith("model.ckpt-8")
    (tmp_path / "a" / task_heads.HEAD_FILE).write_text('{"kind": "spans"}')
    found = pretrained.read_pretrained(tmp_path / "a")
    assert found.source.endswith("model.ckpt-best")
    for path in (tmp_path / "a").glob("model.ckpt-best*"):
        path.rename(str(path).replace("model.ckpt-best", "mine"))
    found = pretrained.read_pretrained(tmp_path / "a")
    assert found.source.endswith("model.ckpt-8")
    for path in (tmp_path / "a").glob("model.ckpt-*"):
        path.unlink()
    assert pretrained.read_pretrained(tmp_path / "a").source.endswith("mine")


def test_equal_copies_of_a_vocabulary_are_accepted(tmp_path):
    random_model(tmp_path / "a")
    pieces = "\n".join([*tiny.SPECIAL, *map(str, range(26))])
    for name, text in (("vocab", pieces), ("vocab_2", pieces), ("vocab_3", "")):
        (tmp_path / "a" / f"{name}.txt").write_text(text)
        tokenizer = pretrained.read_pretrained(tmp_path / "a").tokenizer
        assert bool(tokenizer) == bool(text)


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({"strip_accents": False}, ["café"]),
        ({"strip_accents": True}, ["cafe"]),
        ({"strip_accents": None}, ["cafe"]),
        ({"strip_accents": False, "keep_accents": False}, ["cafe"]),
    ],
)
def test_accents_are_those_that_transformers_recorded(
    tmp_path, settings, tokens, caplog
):
    pieces = "\n".join([*tiny.SPECIAL, "café", "cafe"])
    (tmp_path / "vocab.txt").write_text(pieces)
    path = tmp_path / vocabulary_files.HF_SETTINGS
    path.write_text(json.dumps({"do_lower_case": True} | settings))
    tokenizer = vocabulary_files.find_vocabulary(str(tmp_path))
    assert tokenizer.tokenize("Café") == tokens
    path.write_text('{"do_lower_case": false, "strip_accents": true}')
    tokenizer = vocabulary_files.find_vocabulary(str(tmp_path))
    assert tokenizer.tokenize("café") == ["café"]
    assert "removes accents from letters" in caplog.text


@pytest.mark.parametrize(
    ("name", "value", "usual"),
    [
        ("tokenize_chinese_chars", False, True),
        ("word_tokenizer_type", "mecab", "basic"),
        ("do_basic_tokenize", False, True),
    ],
)
def test_a_vocabulary_of_words_that_are_split_otherwise_is_not_used(
    tmp_path, name, value, usual, caplog
):
    random_model(tmp_path / "a", vocab_size=25)
    write_pieces(tmp_path / "a" / "vocab.txt")
    convert(tmp_path / "a", tmp_path / "b", format="hf")
    (tmp_path / "b" / tokenization.SETTINGS_FILE).unlink()
    settings = tmp_path / "b" / vocabulary_files.HF_SETTINGS
    settings.write_text(json.dumps({name: usual}))
    assert pretrained.read_pretrained(tmp_path / "b").tokenizer
    assert not caplog.records
    settings.write_text(json.dumps({name: value}))
    assert pretrained.read_pretrained(tmp_path / "b").tokenizer is None
    assert f"{settings} has {name}={value!r}, for " in caplog.text
    assert "vocab.txt" in caplog.text


def test_a_vocabulary_that_cannot_be_used_is_replaced(tmp_path, caplog):
    folder = tmp_path / "model"
    random_model(folder, vocab_size=25)
    (folder / "vocab.txt").write_text("only\nwords\n")
    assert pretrained.read_pretrained(folder).tokenizer is None
    assert "It is not used." in caplog.text
    words = write_pieces(tmp_path / "other.list")
    given = pretrained.replace_files(
        pretrained.read_pretrained(folder), vocab_file=words
    )
    assert given.tokenizer.vocab_size == 25


def test_another_vocabulary_has_the_casing_that_is_recorded(tmp_path):
    random_model(tmp_path / "a", vocab_size=25)
    write_pieces(tmp_path / "a" / "vocab.txt")
    convert(tmp_path / "a", tmp_path / "b", format="hf")
    for path in (tmp_path / "b").glob("tokenizer*.json"):
        path.unlink()
    (tmp_path / "b" / "vocab.txt").write_text("only\nwords\n")
    settings = tmp_path / "b" / vocabulary_files.HF_SETTINGS
    words = write_pieces(tmp_path / "other.list")
    for name, value, wanted in (
        ("do_lower_case", False, {"do_lower_case": False}),
        ("strip_accents", False, {"keep_accents": True}),
    ):
        settings.write_text(json.dumps({name: value}))
        start = pretrained.read_pretrained(tmp_path / "b")
        found = pretrained.replace_files(start, vocab_file=words)
        assert found.tokenizer.settings.items() >= wanted.items()


def test_casing_of_a_tokenizer_in_memory_stays(tmp_path):
    words = write_pieces(tmp_path / "words.list")
    made = tokenization.build_tokenizer(vocab_file=words, do_lower_case=False)
    start = pretrained.Pretrained("memory", {}, tokenizer=made)
    found = pretrained.replace_files(start, vocab_file=words)
    assert found.tokenizer.settings == made.settings
    # A default does not count against what is recorded.
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    start = pretrained.Pretrained(
        "memory",
        {},
        tokenizer=tokenization.build_tokenizer(
            vocab_file=words, keep_accents=True
        ),
    )
    found = pretrained.replace_files(start, vocab_file=words)
    casing = {"do_lower_case": False, "keep_accents": True}
    assert found.tokenizer.casing == casing


def test_a_model_in_memory_is_written_with_its_vocabulary(tmp_path):
    """Under a name by which it is found again."""
    words = write_pieces(tmp_path / "words.list")
    made = tokenization.build_tokenizer(vocab_file=words, do_lower_case=False)
    values = random_model(tmp_path / "random", vocab_size=25)
    config = dataclasses.replace(TINY, vocab_size=25)
    start = pretrained.Pretrained("memory", values, config, made)
    for form in ("own", "hf"):
        pretrained.write_pretrained(tmp_path / form, start, form)
        assert (tmp_path / form / "vocab.txt").read_bytes() == made.content
        found = pretrained.read_pretrained(tmp_path / form)
        assert found.tokenizer.pieces == made.pieces
        assert not found.tokenizer.settings["do_lower_case"]


@pytest.mark.parametrize("is_given", [False, True])
def test_casing_that_is_given_counts(tmp_path, is_given, caplog):
    """Whatever is recorded, and whether or not the file is given."""
    folder = tmp_path / "model"
    random_model(folder, vocab_size=25)
    path = write_pieces(folder / "vocab.txt")
    start = pretrained.read_pretrained(folder)
    assert start.tokenizer.settings["do_lower_case"]
    files = {"vocab_file": path} if is_given else {}
    for casing in ({"do_lower_case": False}, {"keep_accents": True}):
        found = pretrained.replace_files(start, **files, **casing)
        wanted = start.tokenizer.settings | casing
        assert found.tokenizer.settings == wanted
    # As transformers records it, of a vocabulary that is given by its path.
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    for given in (path, write_pieces(tmp_path / "copy.txt")):
        found = pretrained.replace_files(
            pretrained.read_pretrained(folder), vocab_file=given
        )
        assert not found.tokenizer.settings["do_lower_case"]
    assert not caplog.records
    recorded = pretrained.read_pretrained(folder)
    pretrained.replace_files(recorded, **files, do_lower_case=True)
    says = "model.ckpt-best was created with do_lower_case=False, as is"
    assert says in caplog.text


def write_pieces(path):
    pieces = [*tiny.SPECIAL, *(f"w{i}" for i in range(20))]
    path.write_text("\n".join(pieces))
    return path


@pytest.mark.parametrize("name", ["added_tokens.json", "tokenizer.json"])
def test_a_vocabulary_with_added_tokens_is_not_used(tmp_path, name, caplog):
    (tmp_path / "vocab.txt").write_text("\n".join(tiny.SPECIAL))

    def write(token, i):
        added = {token: i}
        if name == "tokenizer.json":
            added = {"added_tokens": [{"content": token, "id": i}]}
        (tmp_path / name).write_text(json.dumps(added))

    write("[MASK]", 4)
    tokenizer = vocabulary_files.find_vocabulary(str(tmp_path))
    assert tokenizer.vocab_size == 5
    write("[E1]", 5)
    assert vocabulary_files.find_vocabulary(str(tmp_path)) is None
    assert "transformers adds ['[E1]'] to its 5 pieces" in caplog.text


@pytest.mark.parametrize("beside", ["model", "vocabulary"])
def test_a_given_vocabulary_is_used_as_in_pretraining(tmp_path, beside):
    """A model of German keeps capitals and accents in fine-tuning."""
    folders = {name: tmp_path / name for name in ("model", "vocabulary")}
    random_model(folders["model"])
    folders["vocabulary"].mkdir()
    path = folders["vocabulary"] / "vocab.txt"
    path.write_text("\n".join([*tiny.SPECIAL, "Ärzte", "arzte", *"abcd"]))
    config = tmp_path / "config.json"
    size = len(path.read_text().split())
    config.write_text(
        dataclasses.replace(TINY, vocab_size=size).to_json_string()
    )

    def tokenize(**kwargs):
        found = pretrained.replace_files(
            pretrained.read_pretrained(folders["model"]),
            albert_config_file=config,
            vocab_file=path,
            **kwargs,
        )
        return found.tokenizer.tokenize("Ärzte")

    assert tokenize() == ["arzte"]
    tokenization.build_tokenizer(
        vocab_file=path, do_lower_case=False, keep_accents=True
    ).write_settings(folders[beside])
    assert tokenize() == ["Ärzte"]
    assert tokenize(do_lower_case=True) == ["[UNK]"]  # ärzte
    if beside == "model":
        return
    path.write_text(path.read_text() + "\ne")  # Not what was recorded.
    config.write_text(
        dataclasses.replace(TINY, vocab_size=size + 1).to_json_string()
    )
    assert tokenize() == ["arzte"]


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({}, "shared weights were copied to each layer"),
        (
            {"num_hidden_layers": 6},
            "the weights of its 4 layers are used in 6, in smaller steps",
        ),
    ],
)
def test_shared_weights_begin_a_model_that_shares_less(
    tmp_path, changes, remark
):
    values = random_model(tmp_path / "a")
    config = dataclasses.replace(TINY, parameter_sharing="none", **changes)
    weights = modeling.named_weights(heads.AlbertForPreTraining(config))
    held = {**weights, "global_step": tf.Variable(0, dtype=tf.int64)}
    manager = checkpoints.CheckpointManager(tmp_path / "out", held)
    found = pretrained.read_pretrained(tmp_path / "a")
    said = initialization.initialize(manager, weights, config, found)
    assert remark in said
    kernel = "bert/encoder/transformer/group_%d/inner_group_0/ffn_1/"
    kernel += "intermediate/dense/kernel"
    np.testing.assert_array_equal(weights[kernel % 3], values[kernel % 0])
    # A config that is given to other programs does the same.
    (tmp_path / "config.json").write_text(config.to_json_string())
    given = pretrained.replace_files(
        found, albert_config_file=tmp_path / "config.json"
    )
    assert remark in given.remarks
    for name, weight in weights.items():
        np.testing.assert_array_equal(weight, given.values[name])


def test_a_config_for_which_the_weights_compute_something_else(tmp_path):
    random_model(tmp_path / "a")
    config = dataclasses.replace(TINY, hidden_act="relu")
    (tmp_path / "config.json").write_text(config.to_json_string())
    with pytest.raises(ValueError, match="hidden_act 'gelu', the config has"):
        pretrained.replace_files(
            pretrained.read_pretrained(tmp_path / "a"),
            albert_config_file=tmp_path / "config.json",
        )


def test_the_program_has_all_formats():
    hints = typing.get_type_hints(ConvertFlags)
    assert typing.get_args(hints["format"]) == pretrained.FORMS


def test_an_unknown_format_is_refused(tmp_path):
    random_model(tmp_path / "a")
    found = pretrained.read_pretrained(tmp_path / "a")
    with pytest.raises(ValueError, match="format is 'HF'; wanted one of"):
        pretrained.write_pretrained(tmp_path / "b", found, "HF")
    assert not (tmp_path / "b").exists()


def test_naming_the_head_that_a_model_has_changes_nothing():
    values = {"output_weights": np.zeros([2, 4]), "output_bias": np.zeros(2)}
    head = task_heads.TaskHead("classes", ("a", "b"), threshold=0.3)
    model = pretrained.Pretrained("somewhere", values, head=head)
    assert convert_checkpoint.set_head(model, "classes").head == head
    other = convert_checkpoint.set_head(model, "multi_label").head
    assert (other.labels, other.threshold) == (head.labels, None)


def test_a_task_takes_the_encoder_and_a_new_head(tmp_path):
    """The other model's head may have the names of the task's head."""
    other = heads.AlbertClassifier(TINY, num_labels=3)
    pretrained.write_pretrained(
        tmp_path,
        pretrained.Pretrained(
            "other",
            {n: w.numpy() for n, w in modeling.named_weights(other).items()},
            TINY,
        ),
        "own",
    )
    model = heads.AlbertClassifier(TINY, num_labels=3)
    weights = modeling.named_weights(model)
    held = {**weights, "global_step": tf.Variable(0, dtype=tf.int64)}
    manager = checkpoints.CheckpointManager(tmp_path / "out", held)
    mine = weights["output_weights"].numpy()
    said = initialization.initialize(
        manager,
        weights,
        TINY,
        pretrained.read_pretrained(tmp_path),
        body_only=True,
    )
    assert "new: output_bias, output_weights" in said
    np.testing.assert_array_equal(weights["output_weights"], mine)
    for name, weight in modeling.named_weights(other).items():
        if name.startswith("bert/"):
            np.testing.assert_array_equal(weights[name], weight)


def write_hub_module(folder, values):
    """Writes a SavedModel as TF1's Hub modules are: names and assets."""
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session(graph=graph) as session:
        for name, value in values.items():
            tf.compat.v1.get_variable(
                name, initializer=value, use_resource=False
            )
        session.run(tf.compat.v1.global_variables_initializer())
        builder = tf.compat.v1.saved_model.Builder(str(folder))
        builder.add_meta_graph_and_variables(session, ["train"])
        builder.save()
    (folder / "assets").mkdir()
    (folder / "assets" / "albert_config.json").write_text(TINY.to_json_string())


def test_a_hub_module_of_the_release_is_read(tmp_path):
    values = random_model(tmp_path / "a")
    write_hub_module(tmp_path / "module", values)
    found = pretrained.read_pretrained(tmp_path / "module")
    assert found.config == TINY
    assert set(found.values) == set(values)
    for name, value in values.items():
        np.testing.assert_array_equal(found.values[name], value)
    archive = tmp_path / "module.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(tmp_path / "module", ".")
    assert pretrained.read_pretrained(archive).config == TINY


@pytest.mark.parametrize("form", ["tf1", "own", "hf", "tar", "module"])
def test_models_are_read_from_remote_folders(tmp_path, form):
    """TensorFlow's ram:// stands for gs://."""
    values = random_model(tmp_path / "a")
    pieces = [*tiny.SPECIAL, *map(str, range(26))]
    (tmp_path / "a" / "vocab.txt").write_text("\n".join(pieces) + "\n")
    remote = f"ram://{tmp_path}/{form}"
    if form == "module":
        write_hub_module(tmp_path / form, values)
        shutil.copy(tmp_path / "a" / "vocab.txt", tmp_path / form / "assets")
    elif form == "tar":
        (tmp_path / form).mkdir()
        with tarfile.open(tmp_path / form / "a.tar.gz", "w:gz") as file:
            file.add(tmp_path / "a", "a")
    else:
        convert(tmp_path / "a", tmp_path / form, format=form)
    for path in (tmp_path / form).rglob("*"):
        if path.is_file():
            name = path.relative_to(tmp_path / form)
            filesystem.write_file(f"{remote}/{name}", path.read_bytes())
    if form == "tar":
        remote += "/a.tar.gz"
    elif form == "module":
        remote += "/variables/variables.index"
    found = pretrained.read_pretrained(remote)
    assert found.config.to_dict() == TINY.to_dict()
    assert found.tokenizer.pieces == pieces
    assert set(found.values) == set(values)
    for name, value in values.items():
        np.testing.assert_array_equal(found.values[name], value)


COUNTERS = {
    "global_step": np.int64(3),
    "loss_scale": np.array([1024.0], np.float32),
    "beta1_power": np.float32(0.9),
    "optimizer/step": np.array([3]),
}


@pytest.mark.parametrize(
    "pattern",
    [
        "{}/lamb_m",
        "{}/AdamWeightDecayOptimizer",
        "{}/Momentum",
        "{}/ExponentialMovingAverage",
        "{}/Adafactor/vr",
        "{}/lamb_m_1/.ATTRIBUTES/VARIABLE_VALUE",
        "training/LAMB/{}/m",
        "ema/{}",
    ],
)
def test_what_any_optimizer_adds_is_no_weight(tmp_path, pattern):
    values = random_model(tmp_path / "a")
    heads_of_one = ("output_bias", "cls/x/output_bias")
    weights = values | dict.fromkeys(heads_of_one, np.ones(1))
    slots = {
        pattern.format(name): value[..., :1] for name, value in values.items()
    }
    assert checkpoints.find_slots(weights) == set()
    found = checkpoints.find_slots(weights | slots | COUNTERS)
    assert found == slots.keys() | COUNTERS.keys()
    checkpoints.write_checkpoint(
        tmp_path / "a" / "model.ckpt-best", values | slots | COUNTERS
    )
    (tmp_path / "a" / "albert_config.json").unlink()
    start_from(tmp_path / "a", TINY)
    (tmp_path / "a" / "albert_config.json").write_text(TINY.to_json_string())
    convert(tmp_path / "a", tmp_path / "b", format="hf")
    read = pretrained.read_pretrained(tmp_path / "b")
    assert read.values.keys() == values.keys()
