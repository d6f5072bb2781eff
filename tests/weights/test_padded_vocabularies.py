"""Models with more rows than pieces: read, kept, and never predicted."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.pretraining import agreement
from albert_tf.inference import masks
from albert_tf.model import heads, modeling
from albert_tf.text import extension, tokenization
from albert_tf.training import optimization, plateau
from albert_tf.weights import checkpoints, new_pieces, pretrained
from tests import tiny
from tests.bad_inputs import commands, world
from tests.weights.test_pretrained import convert

pytestmark = pytest.mark.usefixtures("eager_steps")
NUM_PIECES, NUM_ROWS = tiny.CONFIG.vocab_size, 32
PADDED = dataclasses.replace(tiny.ONE_LAYER, vocab_size=NUM_ROWS)


@pytest.mark.parametrize(
    ("num_pieces", "num_rows", "wanted"),
    [
        (30_000, 30_000, True),
        (30_000, 30_016, True),
        (30_000, 30_080, True),
        (30_000, 30_008, False),  # 30,000 is a multiple of 8.
        (30_000, 30_001, False),
        (30_000, 30_208, False),
        (30_000, 29_999, False),
        (30_016, 30_000, False),
        (25, 32, True),
        (25, 128, True),
        (25, 26, False),
    ],
)
def test_padding_is_up_to_a_multiple(num_pieces, num_rows, wanted):
    assert tokenization.fits(num_pieces, num_rows) == wanted


def pad(value):
    """Adds rows that would always be predicted."""
    width = [(0, NUM_ROWS - NUM_PIECES)] + [(0, 0)] * (value.ndim - 1)
    return np.pad(value, width, constant_values=50.0)


def pad_values(values):
    names = new_pieces.ROWS_OF_PIECES
    return {n: pad(v) if n in names else v for n, v in values.items()}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """`world`, with a padded copy of its model and of its config."""
    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        world.make(folder)
    shutil.copytree(folder / "model", folder / "padded")
    prefix = folder / "padded" / "model.ckpt-best"
    values = pad_values(checkpoints.read_checkpoint(prefix))
    checkpoints.write_checkpoint(prefix, values)
    (folder / "padded" / "albert_config.json").write_text(
        PADDED.to_json_string()
    )
    return folder


def features():
    rng = np.random.default_rng(0)
    ids = rng.integers(5, NUM_PIECES, (3, 9), dtype=np.int32)
    return {
        "input_ids": tf.constant(ids),
        "input_mask": tf.ones_like(ids),
        "segment_ids": tf.zeros_like(ids),
        "masked_lm_positions": tf.constant([[1, 2]] * 3),
        "masked_lm_ids": tf.constant(ids[:, 1:3]),
        "masked_lm_weights": tf.ones([3, 2]),
        "sentence_order_labels": tf.constant([0, 1, 0]),
    }


def losses_and_gradients(folder):
    model = pretrained.build_model(
        heads.AlbertForPreTraining, pretrained.read_pretrained(folder)
    )
    weights = modeling.named_weights(model)
    weights = {name: weight.value for name, weight in weights.items()}
    with tf.GradientTape() as tape:
        ratios = model.ratios(features())
        loss = ratios["masked_lm_loss"].total
    gradients = optimization.make_dense(tape.gradient(loss, weights))
    measured = plateau.Measured(
        model, tf.zeros(NUM_PIECES), tf.fill([NUM_PIECES], True)
    ).ratios(features())
    return (
        model,
        {n: r.total for n, r in (ratios | measured).items()},
        gradients,
    )


def test_padding_is_not_in_the_softmax(folders):
    _, wanted, wanted_gradients = losses_and_gradients(folders / "model")
    model, found, gradients = losses_and_gradients(folders / "padded")
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5)
    for name, value in wanted_gradients.items():
        extra = gradients[name][len(value) :]
        assert not np.any(extra)
        np.testing.assert_allclose(
            gradients[name][: len(value)], value, atol=1e-5
        )
    assert model.get_config()["num_pieces"] == NUM_PIECES
    logits = model(features())["masked_lm_logits"]
    assert tf.nn.softmax(logits)[..., NUM_PIECES:].numpy().max() == 0


def scores_of(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [
        {k: v for k, v in json.loads(line).items() if "loss" in k or "acc" in k}
        for line in lines
    ]


def test_pretraining_does_not_see_padding(folders, monkeypatch, caplog):
    tokenization.fits.cache_clear()
    monkeypatch.chdir(folders)
    for name in ("model", "padded"):
        assert not commands.call(
            f"run_pretraining --init_checkpoint={name} "
            f"--albert_config_file={name}/albert_config.json "
            f"--output_dir=out_{name} --log_every_steps=1 --do_train "
            "--optimizer=adamw"
        )
    wanted, found = (
        scores_of(folders / "out_model"),
        scores_of(folders / "out_padded"),
    )
    assert len(wanted) == len(found) >= 2
    for before, after in zip(wanted, found, strict=True):
        assert before.keys() == after.keys()
        for name, value in before.items():
            assert after[name] == pytest.approx(value, rel=1e-4), name
    assert "32 rows for 25 pieces" in caplog.text


@pytest.mark.parametrize("form", pretrained.FORMS)
def test_a_conversion_keeps_padding(folders, tmp_path, form):
    source = folders / "padded"
    if form == "keras_hub":
        (tmp_path / "a").mkdir()
        for path in source.glob("*[!t]"):
            if path.name != "tokenizer_settings.json":
                shutil.copy(path, tmp_path / "a")
        source = tmp_path / "a"
    convert(source, tmp_path / "b", format=form)
    found = pretrained.read_pretrained(tmp_path / "b")
    name = "bert/embeddings/word_embeddings"
    assert found.config.vocab_size == NUM_ROWS
    assert found.values[name].shape[0] == NUM_ROWS
    assert (found.values[name][NUM_PIECES:] == 50).all()


def test_fill_mask_and_exports_never_predict_padding(folders):
    found = pretrained.read_pretrained(folders / "padded")
    model = pretrained.build_model(heads.AlbertForPreTraining, found)
    (candidates,), _ = masks.fill_masks(
        model, found.tokenizer, ["w1 [MASK]"], NUM_PIECES, [None], 9
    )
    assert len(candidates[0]) == NUM_PIECES
    assert model.num_pieces == NUM_PIECES


@pytest.mark.parametrize("words", [["neu"], []])
def test_new_words_replace_padding(folders, words):
    model = pretrained.complete(pretrained.read_pretrained(folders / "padded"))
    new = [extension.Word(word, 1, [7, 8]) for word in words]
    extended, _ = new_pieces.add_words(model, new)
    size = NUM_PIECES + len(words)
    assert extended.config.vocab_size == size == extended.tokenizer.vocab_size
    for name in new_pieces.ROWS_OF_PIECES:
        assert len(extended.values[name]) == size
        assert extended.values[name].max() < 50


def test_a_vocabulary_larger_than_the_model_is_refused(folders):
    found = pretrained.read_pretrained(folders / "model")
    small = dataclasses.replace(tiny.CONFIG, vocab_size=24)
    with pytest.raises(ValueError, match="has 25 pieces, the model 24"):
        pretrained.check_vocabulary(found.tokenizer, small)
    with pytest.raises(ValueError, match="vocab_size 24"):
        agreement.check_vocabulary(["x"], found.tokenizer.settings, small)
