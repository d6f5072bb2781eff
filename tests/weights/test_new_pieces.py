"""Rows of new words in a model's weights."""

import numpy as np
import pytest

from albert_tf.model import heads
from albert_tf.text import extension
from albert_tf.weights import new_pieces, pretrained
from tests import tiny

WORD_EMBEDDINGS, OUTPUT_BIAS = new_pieces.ROWS_OF_PIECES


@pytest.fixture
def model(tmp_path):
    return pretrained.complete(
        pretrained.read_pretrained(tiny.write_model(tmp_path))
    )


def test_a_new_piece_is_the_mean_of_its_parts():
    rng = np.random.default_rng(0)
    values = {
        WORD_EMBEDDINGS: rng.normal(size=(6, 3)).astype(np.float32),
        OUTPUT_BIAS: rng.normal(size=6).astype(np.float32),
        "output_bias": np.zeros(6, np.float32),  # Of a classifier.
    }
    found = new_pieces.add_rows(values, [[1, 3, 3], [5]])
    for name in new_pieces.ROWS_OF_PIECES:
        old = values[name]
        np.testing.assert_array_equal(found[name][:6], old)
        wanted = [(old[1] + 2 * old[3]) / 3, old[5]]
        np.testing.assert_allclose(found[name][6:], wanted, rtol=1e-6)
        assert found[name].dtype == np.float32
    assert found["output_bias"].shape == (6,)
    assert new_pieces.add_rows(values, []).keys() == values.keys()


def test_an_extended_model_computes_as_before_where_words_are_old(model):
    words = extension.find_split(
        {"w1w2": 3, "w7": 1, "new": 1}, model.tokenizer
    )
    extended, added = new_pieces.add_words(model, words)
    assert [word.text for word in added] == ["w1w2", "new"]
    assert extended.config.vocab_size == extended.tokenizer.vocab_size == 27
    features = {
        "input_ids": np.array([[2, 7, 9, 3]], np.int32),
        "input_mask": np.ones((1, 4), np.int32),
        "segment_ids": np.zeros((1, 4), np.int32),
        "masked_lm_positions": np.array([[1]], np.int32),
    }
    before, after = (
        pretrained.build_model(heads.AlbertForPreTraining, m)(features)
        for m in (model, extended)
    )
    logits = after["masked_lm_logits"].numpy()
    np.testing.assert_allclose(
        logits[..., :25],
        before["masked_lm_logits"].numpy(),
        rtol=1e-5,
        atol=1e-6,
    )
    assert logits.shape[-1] == 27


def test_a_model_can_be_extended_twice(model):
    for number, text in enumerate(("one", "two"), 1):
        words = extension.find_split({text: 1}, model.tokenizer)
        model, _ = new_pieces.add_words(model, words)
        name = model.tokenizer.settings["vocabulary"]
        assert name == "vocab_extended.txt"
        assert len(model.values[OUTPUT_BIAS]) == 25 + number
    assert model.tokenizer.tokenize("two w1 one") == ["two", "w1", "one"]
