"""Requests that exported models refuse, and empty ones, which they answer."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import errors
from albert_tf.export import requests, serving
from albert_tf.model import heads, span_heads
from tests import tiny

MAX_SEQ_LENGTH = 16
MODELS = {
    "classes": lambda: heads.AlbertClassifier(tiny.CONFIG, num_labels=2),
    "spans": lambda: span_heads.AlbertSpans(tiny.CONFIG),
    "beam": lambda: span_heads.AlbertConditionalSpans(tiny.CONFIG),
}


@pytest.fixture(scope="module")
def signatures(tmp_path_factory):
    """Returns by model the signatures of ids and of examples."""
    folder = tmp_path_factory.mktemp("serving")
    found = {}
    for name, build in MODELS.items():
        write, names = serving.export_spans, ("serving_default", "examples")
        if name == "classes":
            write, names = serving.export_classifier, ("ids", "serving_default")
        path = write(
            folder / name,
            build(),
            max_seq_length=MAX_SEQ_LENGTH,
            threshold=0.5,
        )
        loaded = tf.saved_model.load(path)
        found[name] = [loaded.signatures[n] for n in names], loaded
    return {name: pair for name, (pair, _) in found.items()}


def make_request(dtype=np.int32):
    ids = np.full((2, 4), 5, dtype)
    values = ids, np.ones_like(ids), np.zeros_like(ids)
    return dict(zip(requests.FEATURES, values, strict=True))


def serialize(features):
    rows = []
    for row in range(len(features["input_ids"])):
        example = tf.train.Example()
        for name, values in features.items():
            feature = example.features.feature[name]
            feature.int64_list.value.extend(values[row])
        rows.append(example.SerializeToString())
    return tf.constant(rows)


def explain(signature, **inputs):
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        signature(**inputs)
    return errors.explain(caught.value)


VALUES = [
    ("input_ids", -1, "from -1 to 5"),
    ("input_ids", 25, "from 5 to 25"),
    ("input_mask", 7, "from 1 to 7"),
    ("input_mask", -1, "from -1 to 1"),
    ("segment_ids", 2, "from 0 to 2"),
    ("segment_ids", -1, "from -1 to 0"),
]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("name", "value", "message"), VALUES)
def test_values_out_of_range_are_refused_by_name(
    signatures, model, name, value, message
):
    by_ids, by_examples = signatures[model]
    request = make_request()
    request[name][1, 2] = value
    told = explain(by_ids, **{n: tf.constant(x) for n, x in request.items()})
    assert f"{name} has values {message} but" in told
    assert told == explain(by_examples, examples=serialize(request))


@pytest.mark.parametrize("name", requests.FEATURES)
def test_values_that_would_wrap_around_are_refused(signatures, name):
    request = make_request(np.int64)
    request[name][0, 0] += 2**32
    told = explain(signatures["classes"][1], examples=serialize(request))
    assert f"{name} has values from " in told
    assert str(request[name][0, 0]) in told


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", requests.FEATURES[1:])
@pytest.mark.parametrize("shape", [(2, 1), (1, 4), (1, 1), (3, 4), (2, 5)])
def test_nothing_is_broadcast(signatures, model, name, shape):
    request = make_request() | {name: np.ones(shape, np.int32)}
    told = explain(
        signatures[model][0], **{n: tf.constant(x) for n, x in request.items()}
    )
    sizes = " ".join(map(str, shape))
    assert f"{name} has the shape {sizes} but ids have the shape 2 4" in told


@pytest.mark.parametrize("model", MODELS)
def test_no_rows_are_answered_with_no_rows(signatures, model):
    by_ids, by_examples = signatures[model]
    answers = [by_examples(examples=tf.constant([], tf.string))]
    for num_tokens in (0, 4):
        none = tf.zeros([0, num_tokens], tf.int32)
        answers.append(by_ids(**dict.fromkeys(requests.FEATURES, none)))
    for answer in answers:
        assert {len(x) for x in answer.values()} == {0}
    request = {n: tf.constant(x) for n, x in make_request().items()}
    for name, value in by_ids(**request).items():
        assert answers[-1][name].shape == [0, *value.shape[1:]]
    told = explain(
        by_ids, **dict.fromkeys(requests.FEATURES, tf.zeros([2, 0], tf.int32))
    )
    assert "no token" in told


def test_valid_requests_pass(signatures):
    request = make_request()
    by_ids, by_examples = signatures["classes"]
    first = by_ids(**{n: tf.constant(x) for n, x in request.items()})
    second = by_examples(examples=serialize(request))
    for name, value in first.items():
        assert len(value) == 2
        np.testing.assert_array_equal(value, second[name])
