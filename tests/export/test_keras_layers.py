"""Exports as layers of Keras, `keras.layers.TFSMLayer`."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.export import hub, serving, text_serving
from albert_tf.model import heads, modeling, span_heads
from albert_tf.text import tokenization
from tests import tiny


def export(folder, kind):
    """Exports a model of a kind; returns its path."""
    tiny.write_model(folder)
    vocab_file = str(folder / "vocab.txt")
    words = tokenization.build_tokenizer(vocab_file=vocab_file)
    given = {"max_seq_length": 32}
    text = given | {"tokenizer": words}
    classifier = heads.AlbertClassifier(tiny.CONFIG, num_labels=3)
    spans = span_heads.AlbertSpans(tiny.CONFIG)
    path = str(folder / "export")
    if kind == "hub":
        encoder = modeling.AlbertEncoder(tiny.CONFIG)
        hub.export_encoder(path, encoder, tokenizer=words, assets=[vocab_file])
        return path
    if kind == "preprocessor":
        text_serving.export_preprocessor(path, words)
        return path
    return {
        "classifier": lambda: serving.export_classifier(
            path, classifier, **given
        ),
        "spans": lambda: serving.export_spans(path, spans, **given),
        "text": lambda: text_serving.export_text_classifier(
            path, classifier, has_pairs=False, **text
        ),
        "pair": lambda: text_serving.export_text_classifier(
            path, classifier, has_pairs=True, **text
        ),
        "text spans": lambda: text_serving.export_text_spans(
            path, spans, max_query_length=8, **text
        ),
    }[kind]()


NAMES = {
    "hub": ("input_word_ids", "input_mask", "input_type_ids"),
    "classifier": ("input_ids", "input_mask", "segment_ids"),
    "spans": ("input_ids", "input_mask", "segment_ids"),
    "text": (),
    "preprocessor": (),
    "pair": ("text_a", "text_b"),
    "text spans": ("question", "context"),
}


# Exports of text take ten seconds each to load; one kind of them is enough to
# see a change of Keras or of our signatures.
NIGHTLY = {"pair", "preprocessor", "text spans"}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(k, marks=pytest.mark.nightly) if k in NIGHTLY else k
        for k in NAMES
    ],
)
def test_every_export_is_a_layer_of_keras(tmp_path, kind):
    path = export(tmp_path, kind)
    layer = keras.layers.TFSMLayer(path, call_endpoint="serve")
    signatures = tf.saved_model.load(path).signatures
    signature = signatures.get("ids", signatures["serving_default"])
    names = NAMES[kind]
    for size in ((2, 7), (3, 5)):  # Rows and tokens.
        if len(names) == 3:
            values = tf.ones(size, tf.int32)
        else:
            values = tf.constant(["w1 w2"] * size[0])
        if names:
            inputs = dict.fromkeys(names, values)
            wanted = signature(**inputs)
        else:
            inputs = values
            (name,) = signature.structured_input_signature[1]
            wanted = signature(**{name: values})
        found = layer(inputs)
        for name in wanted:
            if wanted[name].dtype.is_floating:
                np.testing.assert_allclose(found[name], wanted[name], atol=1e-5)
            else:
                assert (found[name].numpy() == wanted[name].numpy()).all()
