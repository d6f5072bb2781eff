"""Filling masks: positions, special pieces, order of the predictions."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.commands.fill_mask import FillMaskFlags
from albert_tf.inference import masks
from albert_tf.programs import fill_mask, models
from albert_tf.text import tokenization
from albert_tf.training import manifest
from albert_tf.weights import checkpoints, task_heads
from tests import tiny
from tests.text.test_tokenization import train_model


class Letters:
    """A tokenizer whose pieces are words of one letter."""

    pieces = [
        "<pad>",
        "<unk>",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "▁",
        ".",
        "▁a",
        "▁b",
    ]
    pad_id, cls_id, sep_id, mask_id = 0, 2, 3, 4
    kind = "letters"

    def encode(self, text):
        ids = [7 + "ab".index(letter) for letter in text if letter in "ab"]
        if text.startswith("."):
            ids = [5, 6, *ids]
        elif text.endswith("."):
            ids = [*ids, 6]
        return ids


def echo(features):
    """A model whose top prediction is the position, then the row's length."""
    positions = features["masked_lm_positions"]
    lengths = tf.reduce_sum(features["input_mask"], axis=1, keepdims=True)
    lengths = tf.broadcast_to(lengths, positions.shape)
    logits = 2 * tf.one_hot(positions, 9) + tf.one_hot(lengths, 9)
    # The probability of the order grows with the second segment's length.
    swapped = -tf.reduce_sum(features["segment_ids"], axis=1)
    order = tf.stack([tf.zeros_like(swapped), swapped], axis=1)
    return {
        "masked_lm_logits": logits,
        "sentence_order_logits": tf.cast(order, tf.float32),
    }


def test_a_mask_is_the_special_piece_and_joins_what_touches_it():
    encoded = masks.encode_masked(Letters(), "a [MASK] b [MASK].")
    assert encoded == [2, 7, 4, 8, 4, 6, 3]


def test_what_follows_a_mask_without_a_space_is_no_word(tmp_path):
    text = ["(er) kommt, er geht, leer (und) er", "wird, vom zug, er steht # #"]
    path = tmp_path / "german.model"
    path.write_bytes(train_model(text * 50, vocab_size=33))
    tokenizer = tokenization.build_tokenizer(spm_model_file=str(path))

    def pieces(text):
        ids = masks.encode_masked(tokenizer, text)
        return [tokenizer.pieces[i] for i in ids[1:-1]]

    assert {"▁er", "▁#"} <= set(tokenizer.pieces)
    assert pieces("[MASK] er") == ["[MASK]", "▁er"]
    assert "".join(pieces("[MASK]er geht")) == "[MASK]er▁geht"
    assert pieces("[MASK]#") == ["[MASK]", "#"]


def test_each_mask_gets_its_own_predictions_in_order():
    guesses, _ = masks.fill_masks(
        echo, Letters(), ["a [MASK] b [MASK].", "[MASK] a"], 2, [None] * 2, 9
    )
    words = [[[*gap] for gap in row] for row in guesses]
    # Positions 2 and 4 of 7 tokens, and 1 of 4.
    assert words == [[["[CLS]", "▁a"], ["[MASK]", "▁a"]], [["<unk>", "[MASK]"]]]
    for row in guesses:
        for gap in row:
            expected = np.exp([2, 1]) / (np.exp(2) + np.exp(1) + 7)
            np.testing.assert_allclose([*gap.values()], expected, rtol=1e-5)


def test_a_text_without_a_mask_is_refused():
    with pytest.raises(ValueError, match=r"no \[MASK\] in the text 'a b'"):
        masks.fill_masks(echo, Letters(), ["a b"], 1, [None], 9)


def test_characters_without_tokens_may_follow_a_mask():
    assert masks.encode_masked(Letters(), "a [MASK]\u200b") == [2, 7, 4, 3]


def test_a_text_longer_than_the_model_is_refused():
    texts, next_texts = ["a [MASK]", "a [MASK] b"], ["b", "a b"]
    masks.fill_masks(echo, Letters(), texts, 1, next_texts, 8)
    with pytest.raises(
        ValueError, match=r"'a \[MASK\] b' has 8 tokens.* 7 pos"
    ):
        masks.fill_masks(echo, Letters(), texts, 1, next_texts, 7)


def test_a_blank_next_text_is_none():
    assert models.pair_lines("w1\nw2", " \n") == [("w1",), ("w2",)]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"text": " \n\x1e"}, "--text is empty"),
        ({"text": "w1", "next_text": "w2\nw3"}, "--text has 1 lines"),
        ({"text": "w1"}, "no .MASK. in the text"),
        ({"text": "[MASK]" + " w1" * 30}, "has 33 tokens.* 32 positions"),
        ({"text": "[MASK]", "top_k": 26}, "top_k=26, .* has 25 pieces"),
        ({"text": "[MASK]", "top_k": 0}, "--top_k=0; wanted at least 1"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path, flags, message):
    tiny.write_model(tmp_path)
    with pytest.raises(ValueError, match=message):
        fill_mask.run(FillMaskFlags(init_checkpoint=str(tmp_path), **flags))


def test_a_piece_that_is_only_the_mark_of_a_word_is_shown(
    tmp_path, monkeypatch, capsys
):
    tiny.write_model(tmp_path)
    answers = [{"masks": [{"▁": 0.5, "▁der": 0.25, "n": 0.125}]}]
    monkeypatch.setattr(fill_mask.FillMask, "__call__", lambda *a, **k: answers)
    fill_mask.run(FillMaskFlags(init_checkpoint=str(tmp_path), text="[MASK]"))
    assert capsys.readouterr().out.endswith("    ▁ 50%, der 25%, n 12%\n")


def test_only_a_second_text_needs_the_sentence_head(tmp_path, capsys):
    """Other packages' masked language models have none, and no pooler."""
    tiny.write_model(tmp_path)
    (prefix,) = task_heads.find_trained(tmp_path)
    weights = {
        name: tf.constant(value)
        for name, value in checkpoints.read_checkpoint(prefix).items()
        if not name.startswith(("cls/seq_relationship", "bert/pooler"))
    }
    flags = FillMaskFlags(init_checkpoint=str(tmp_path), text="w1 [MASK]")
    fill_mask.run(flags)
    wanted = capsys.readouterr().out
    checkpoints.write_checkpoint(prefix, weights)
    fill_mask.run(flags)
    assert capsys.readouterr().out == wanted
    with pytest.raises(ValueError, match="no sentence-order head"):
        fill_mask.run(dataclasses.replace(flags, next_text="w2"))


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_an_untrained_sentence_head_is_said(tmp_path, caplog, weight):
    tiny.write_model(tmp_path)
    made_of = {"sentence_weight": weight}
    manifest.Manifest(str(tmp_path), made_of).write()
    flags = FillMaskFlags(init_checkpoint=str(tmp_path), text="w1 [MASK]")
    fill_mask.run(flags)
    assert "means nothing" not in caplog.text
    fill_mask.run(dataclasses.replace(flags, next_text="w2"))
    assert ("means nothing" in caplog.text) == (weight == 0)


def test_a_second_text_is_the_second_segment():
    guesses, in_order = masks.fill_masks(
        echo, Letters(), ["a b", "a"], 1, ["b", "b a [MASK]"], 9
    )
    # Of 6 and 7 tokens, the second text and its [SEP].
    wanted = [1 / (1 + np.exp(-2)), 1 / (1 + np.exp(-4))]
    np.testing.assert_allclose(in_order, wanted, rtol=1e-5)
    assert [len(row) for row in guesses] == [0, 1]
    # The mask is at position 5.
    assert [*guesses[1][0]] == ["▁"]
