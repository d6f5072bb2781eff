"""Heads of SQuAD: against the release's recorded outputs."""

import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import heads, span_heads
from albert_tf.model.config import AlbertConfig
from albert_tf.model.dropout import Dropout
from tests import recorded as recorded_models
from tests import tiny

TOLERANCE = recorded_models.TOLERANCE
MODELS = ("A", "C")


@pytest.mark.parametrize("name", MODELS)
def test_spans_give_the_recorded_outputs(golden, name):
    model, features, read = recorded_models.load(
        golden(f"heads/squad1_{name}"), span_heads.AlbertSpans
    )
    recorded = read("outputs_predict.npz")
    outputs = model(features)
    for key in ("start_logits", "end_logits"):
        np.testing.assert_allclose(outputs[key], recorded[key], atol=TOLERANCE)
    recorded = read("outputs_train.npz")
    loss, gradients = recorded_models.loss_and_gradients(model, features)
    np.testing.assert_allclose(loss, recorded["loss"], atol=TOLERANCE)
    recorded_models.check_gradients(gradients, recorded)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("is_compiled", [False, True])
def test_conditional_spans_give_the_recorded_outputs(golden, name, is_compiled):
    folder = golden(f"heads/squad2_{name}")
    described = json.loads((folder / "README.json").read_text())
    model, features, read = recorded_models.load(
        folder,
        span_heads.AlbertConditionalSpans,
        start_n_top=described["start_n_top"],
        end_n_top=described["end_n_top"],
    )
    call = tf.function(model, jit_compile=True) if is_compiled else model
    outputs = call(features)
    recorded = read("outputs_predict.npz")
    assert set(outputs) == set(recorded)
    for key in recorded:
        np.testing.assert_allclose(
            outputs[key], recorded[key], atol=TOLERANCE, err_msg=key
        )
    recorded = read("outputs_train.npz")
    np.testing.assert_allclose(
        outputs["cls_logits"], recorded["cls_logits"], atol=TOLERANCE
    )
    loss, gradients = recorded_models.loss_and_gradients(model, features)
    np.testing.assert_allclose(loss, recorded["loss"], atol=TOLERANCE)
    recorded_models.check_gradients(gradients, recorded)


def build(model_class=span_heads.AlbertConditionalSpans, **kwargs):
    config = AlbertConfig(
        **tiny.SIZES, hidden_dropout_prob=0, attention_probs_dropout_prob=0
    )
    return model_class(config, **kwargs)


def features(num_tokens=11):
    rng = np.random.default_rng(3)
    ids = rng.integers(5, 31, (3, num_tokens), np.int32)
    p_mask = np.ones_like(ids)
    p_mask[:, 0] = 0
    p_mask[:, 3 : num_tokens - 1] = 0
    return {
        "input_ids": tf.constant(ids),
        "input_mask": tf.ones_like(ids),
        "segment_ids": tf.zeros_like(ids),
        "p_mask": tf.constant(p_mask),
        "start_positions": tf.constant([0, 4, 5]),
        "end_positions": tf.constant([0, 5, 5]),
        "is_impossible": tf.constant([1, 0, 0]),
    }


def test_answers_are_in_the_paragraph_or_at_cls():
    found = span_heads.build_p_mask(
        {
            # [CLS] question [SEP] w w [SEP]; no question, no w; padding.
            "input_mask": tf.constant([[1] * 6 + [0], [1] * 3 + [0] * 4]),
            "segment_ids": tf.constant(
                [[0, 0, 0, 1, 1, 1, 0], [0, 0, 1, 0, 0, 0, 0]]
            ),
        }
    )
    assert found.numpy().tolist() == [
        [0, 1, 1, 0, 0, 1, 1],
        [0, 1, 1, 1, 1, 1, 1],
    ]


def test_masked_positions_are_chosen_last():
    model = build(start_n_top=4, end_n_top=3)
    batch = features()
    outputs = model(batch)
    p_mask = batch["p_mask"].numpy()
    for key in ("start_top_index", "end_top_index"):
        chosen = np.take_along_axis(p_mask, outputs[key].numpy(), axis=1)
        assert not chosen.any(), key
    assert outputs["end_top_index"].shape == (3, 12)


def test_a_beam_is_at_most_as_wide_as_the_text():
    outputs = build(start_n_top=9, end_n_top=8)(features(num_tokens=5))
    assert outputs["start_top_index"].shape == (3, 5)
    assert outputs["end_top_index"].shape == (3, 25)


@pytest.mark.parametrize(
    "model_class",
    [span_heads.AlbertSpans, span_heads.AlbertConditionalSpans],
)
def test_rows_of_padding_are_ignored(model_class):
    model = build(model_class)
    batch = features()
    whole = model.ratios({k: v[:2] for k, v in batch.items()})
    batch["example_weight"] = tf.constant([1.0, 1.0, 0.0])
    padded = model.ratios(batch)
    assert set(whole) == {*model.loss_scales, *model.metric_names}
    for name, ratio in whole.items():
        np.testing.assert_allclose(padded[name].total, ratio.total, rtol=1e-5)
        assert padded[name].weight == ratio.weight == 2


def test_metrics_count_correct_predictions():
    model = build()
    batch = features()
    outputs = model(batch)
    batch["start_positions"] = outputs["start_top_index"][:, 0]
    batch["end_positions"] = outputs["end_top_index"][:, 0]
    batch["is_impossible"] = tf.cast(outputs["cls_logits"] > 0, tf.int32)
    ratios = model.ratios(batch)
    for name in model.metric_names:
        assert ratios[name].total == 3, name
    batch["end_positions"] = outputs["end_top_index"][:, 1]
    assert model.ratios(batch)["exact_span"].total == 0


@pytest.mark.parametrize("wrong", ["start_positions", "end_positions"])
@pytest.mark.parametrize(
    "model_class",
    [span_heads.AlbertSpans, span_heads.AlbertConditionalSpans],
)
def test_a_span_is_exact_if_both_its_ends_are(model_class, wrong):
    model = build(model_class)
    batch = features()
    # Without weights all logits are equal, and the first is chosen.
    for weight in model.trainable_variables:
        weight.assign(tf.zeros_like(weight))
    zeros = tf.zeros([3], tf.int32)
    batch |= {"start_positions": zeros, "end_positions": zeros}
    assert model.ratios(batch)["exact_span"].total == 3
    batch[wrong] = tf.constant([0, 4, 5])
    assert model.ratios(batch)["exact_span"].total == 1


def test_training_losses_have_dropout():
    model = build(dropout_prob=0.9)
    seed = tf.constant([1, 2])
    quiet, loud = (
        model.ratios(features(), training=training, seed=seed)
        for training in (False, True)
    )
    np.testing.assert_allclose(
        quiet["span_loss"].total, loud["span_loss"].total, rtol=1e-5
    )
    assert quiet["answerability_loss"].total != loud["answerability_loss"].total


def test_a_graph_of_unknown_length_also_clips_the_beam():
    model = build(start_n_top=9, end_n_top=8)
    batch = features(num_tokens=5)
    signature = {
        name: tf.TensorSpec([None] * value.shape.rank, value.dtype)
        for name, value in batch.items()
    }
    outputs = tf.function(model, input_signature=[signature])(batch)
    for name, value in model(batch).items():
        np.testing.assert_allclose(outputs[name], value, atol=1e-6)


def test_only_answerability_has_head_dropout():
    model = build(dropout_prob=0.9)
    batch = features()
    quiet = model(batch)
    loud = model(batch, training=True, seed=tf.constant([1, 2]))
    for name, values in quiet.items():
        is_equal = np.allclose(values, loud[name], rtol=1e-5, atol=1e-6)
        assert is_equal == (name != "cls_logits"), name


def test_bfloat16_gives_finite_float32():
    for model_class in (
        span_heads.AlbertSpans,
        span_heads.AlbertConditionalSpans,
    ):
        model = build(model_class, dtype="mixed_bfloat16")
        for value in model(features()).values():
            if value.dtype.is_floating:
                assert value.dtype == tf.float32
                assert np.isfinite(value).all()
        for ratio in model.ratios(features()).values():
            assert np.isfinite(ratio.total)


@pytest.mark.parametrize(
    "build_model",
    [
        lambda **kwargs: build(span_heads.AlbertSpans, **kwargs),
        build,
        lambda **kwargs: build(heads.AlbertForPreTraining, **kwargs),
        lambda **kwargs: build(heads.AlbertClassifier, num_labels=3, **kwargs),
    ],
    ids=["spans", "conditional", "pretraining", "classifier"],
)
def test_logits_of_bfloat16_models_are_products_in_float32(build_model):
    batch = features() | {"masked_lm_positions": tf.constant([[1, 2, 3]] * 3)}
    outputs = build_model(dtype="mixed_bfloat16")(batch)
    for name, values in outputs.items():
        if values.dtype.is_floating:
            shown = values.numpy()[np.abs(values.numpy()) < 1e9]
            rounded = tf.cast(tf.cast(shown, tf.bfloat16), tf.float32)
            assert np.mean(shown != rounded) > 0.5, name


def test_float32_inputs_of_bfloat16_layers_are_not_rounded():
    model = build(dtype="mixed_bfloat16")
    assert not any(layer.autocast for layer in model._flatten_layers())
    x = tf.cast(tf.random.stateless_normal([1, 2, 12], [3, 4]), tf.bfloat16)
    near, far = (
        model.answerability(
            x, tf.constant([logits]), dropout=Dropout(None), rate=0
        )
        # In bfloat16 1001 is 1000, but softmax depends on differences only.
        for logits in ([0.0, 1.0], [1000.0, 1001.0])
    )
    np.testing.assert_allclose(near, far, rtol=1e-6)


def test_models_are_rebuilt_from_their_config():
    model = build(start_n_top=3, end_n_top=4, dropout_prob=0.2)
    twin = type(model).from_config(model.get_config())
    assert twin.get_config() == model.get_config()
    assert (twin.start_n_top, twin.end_n_top) == (3, 4)
    assert twin.dropout_prob == 0.2
    assert isinstance(twin, heads.AlbertModel)


def test_an_empty_batch_gets_an_empty_beam():
    none = {name: value[:0] for name, value in features().items()}
    found = build(start_n_top=3, end_n_top=2)(none)
    assert found["start_top_index"].shape == (0, 3)
    assert found["end_top_index"].shape == (0, 6)
