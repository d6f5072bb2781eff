"""Bad requests to SavedModels, and bad calls of the library."""

import functools
import os

import numpy as np
import tensorflow as tf

from albert_tf import errors
from albert_tf.data import processes
from albert_tf.data.pretraining import shards
from albert_tf.export import saved_models
from tests.bad_inputs.table import Call, Request

CLASSIFIER, SQUAD, HUB = "serving/classifier", "serving/squad", "hub"
SHAPE = (2, 5)
IDS, MASK, SEGMENTS = "input_ids", "input_mask", "segment_ids"


@functools.cache
def _load(folder):
    return tf.saved_model.load(saved_models.newest_version(folder))


def answer(folder, signature, inputs):
    """Returns the outputs of a SavedModel."""
    inputs = {name: tf.constant(value) for name, value in inputs.items()}
    return _load(str(folder)).signatures[signature](**inputs)


def ask(folder, signature, inputs):
    """Returns what a SavedModel says against a request."""
    try:
        answered = answer(folder, signature, inputs)
    except (tf.errors.OpError, TypeError, ValueError) as error:
        return str(error)
    raise AssertionError(f"answered: {list(answered)}")


def ids(value=None, name=IDS, dtype=np.int32, **others):
    """Inputs of which one has one value that is not as it should be."""
    inputs = {
        IDS: np.full(SHAPE, 7, dtype),
        MASK: np.ones(SHAPE, dtype),
        SEGMENTS: np.zeros(SHAPE, dtype),
    }
    if value is not None:
        inputs[name][1, 2] = value
    return {n: x for n, x in {**inputs, **others}.items() if x is not None}


def hub_ids(value=None, name="input_word_ids"):
    inputs = {
        "input_word_ids": np.full(SHAPE, 7, np.int32),
        "input_mask": np.ones(SHAPE, np.int32),
        "input_type_ids": np.zeros(SHAPE, np.int32),
    }
    if value is not None:
        inputs[name][1, 2] = value
    return inputs


def record(**changes):
    """A serialized example, of which some features are other ones."""
    features = {IDS: [7] * 5, MASK: [1] * 5, SEGMENTS: [0] * 5, **changes}
    example = tf.train.Example()
    for name, values in features.items():
        if values is None:
            continue
        kind = "float_list" if isinstance(values[0], float) else "int64_list"
        feature = example.features.feature[name]
        getattr(feature, kind).value.extend(values)
    return {"examples": [record_of_5(), example.SerializeToString()]}


def record_of_5():
    example = tf.train.Example()
    for name, value in ((IDS, 7), (MASK, 1), (SEGMENTS, 0)):
        example.features.feature[name].int64_list.value.extend([value] * 5)
    return example.SerializeToString()


ROWS = [
    *(
        Request(f"{model}: {what}", model, signature, inputs, says)
        for model, signature in (
            (CLASSIFIER, "ids"),
            (SQUAD, "serving_default"),
        )
        for what, inputs, says in (
            ("an id that is too large", ids(25), "input_ids"),
            ("a negative id", ids(-1), "input_ids"),
            ("a mask of 7", ids(7, MASK), "input_mask"),
            ("a mask of -1", ids(-1, MASK), "input_mask"),
            ("a segment of 2", ids(2, SEGMENTS), "segment_ids"),
            ("a segment of -1", ids(-1, SEGMENTS), "segment_ids"),
            (
                "segments for one token",
                ids(**{SEGMENTS: np.zeros((2, 1), np.int32)}),
                "segment_ids",
            ),
            (
                "a mask for one row",
                ids(**{MASK: np.ones((1, 5), np.int32)}),
                "input_mask",
            ),
            (
                "ids of one row",
                ids(**{IDS: np.full((1, 5), 7, np.int32)}),
                r"input_mask has the shape. .2 5. .but ids have the",
            ),
            (
                "no tokens",
                {
                    name: np.zeros((2, 0), np.int32)
                    for name in (IDS, MASK, SEGMENTS)
                },
                "no token",
            ),
            (
                "too many tokens",
                {
                    name: np.ones((1, 17), np.int32)
                    for name in (IDS, MASK, SEGMENTS)
                },
                "longer than",
            ),
            (
                "no mask",
                ids(**{MASK: None}),
                "missing required arguments: input_mask",
            ),
            ("an unknown input", ids(tokens=[1]), "tokens"),
            (
                "ids of 64 bits",
                ids(dtype=np.int64),
                "expected to be a int32 tensor but is a int64",
            ),
            (
                "ids with a point",
                ids(**{IDS: np.full(SHAPE, 7.0, np.float32)}),
                "expected to be a int32 tensor but is a float",
            ),
            (
                "ids of one sequence",
                ids(**{IDS: [7] * 5}),
                "axis 0 must equal 2, got shape",
            ),
        )
    ),
    *(
        Request(f"{model}: in a record, {what}", model, signature, inputs, says)
        for model, signature in (
            (CLASSIFIER, "serving_default"),
            (SQUAD, "examples"),
        )
        for what, inputs, says in (
            ("an id that is too large", record(input_ids=[25] * 5), IDS),
            ("an id of 2^32 + 5", record(input_ids=[2**32 + 5] * 5), IDS),
            ("a negative id", record(input_ids=[-1] * 5), IDS),
            ("a mask of 7", record(input_mask=[7] * 5), MASK),
            ("a mask of 2^32 + 1", record(input_mask=[2**32 + 1] * 5), MASK),
            ("a segment of 2", record(segment_ids=[2] * 5), SEGMENTS),
            ("a segment of -1", record(segment_ids=[-1] * 5), SEGMENTS),
            ("a short mask", record(input_mask=[1] * 4), MASK),
            ("no mask", record(input_mask=None), MASK),
            ("no ids", record(input_ids=None), "has no tokens. Is input_ids"),
            (
                "ids with a point",
                record(input_ids=[7.0] * 5),
                "input_ids.*Expected type: int64",
            ),
            (
                "too many tokens",
                record(
                    input_ids=[7] * 17,
                    input_mask=[1] * 17,
                    segment_ids=[0] * 17,
                ),
                "longer than",
            ),
            ("text", {"examples": ["text"]}, "Could not parse example"),
            (
                "nothing in it",
                {"examples": [b""]},
                "has no tokens. Is input_ids",
            ),
        )
    ),
    *(
        Request(f"{HUB}: {what}", HUB, "serving_default", inputs, says)
        for what, inputs, says in (
            (
                "an id that is too large",
                hub_ids(25),
                "input_word_ids has values from",
            ),
            ("a negative id", hub_ids(-1), "input_word_ids has values from"),
            ("a mask of 7", hub_ids(7, "input_mask"), "input_mask"),
            ("a mask of -1", hub_ids(-1, "input_mask"), "input_mask"),
            (
                "a segment of 2",
                hub_ids(2, "input_type_ids"),
                "input_type_ids has ",
            ),
            (
                "a segment of -1",
                hub_ids(-1, "input_type_ids"),
                "input_type_ids has ",
            ),
            (
                "segments for one token",
                {**hub_ids(), "input_type_ids": np.zeros((2, 1), np.int32)},
                "input_type_ids has ",
            ),
            (
                "too many tokens",
                {name: np.ones((1, 33), np.int32) for name in hub_ids()},
                "longer than",
            ),
        )
    ),
    *(
        Request(f"{HUB}, masked words: {what}", HUB, "mlm", inputs, says)
        for what, inputs, says in (
            (
                "a position behind the end",
                {**ids(), "mlm_positions": [[1], [5]]},
                "mlm_positions has ",
            ),
            (
                "a negative position",
                {**ids(), "mlm_positions": [[1], [-1]]},
                "mlm_positions has ",
            ),
            (
                "positions for one row",
                {**ids(), "mlm_positions": [[1]]},
                "mlm_positions has ",
            ),
        )
    ),
]


# Requests without a row, which are answered without a row.
EMPTY = [
    (model, signature, inputs)
    for model, signatures in (
        (CLASSIFIER, ("ids", "serving_default")),
        (SQUAD, ("serving_default", "examples")),
    )
    for signature, inputs in zip(
        signatures,
        (
            {n: np.zeros((0, 5), np.int32) for n in (IDS, MASK, SEGMENTS)},
            {"examples": np.zeros(0, object)},
        ),
        strict=True,
    )
]


def _break_a_worker():
    """What is told of a worker that was killed."""
    try:
        with processes.ordered_map(2) as run:
            list(run(os._exit, [(1,), (2,)]))
    except Exception as error:
        raise ValueError(errors.explain(error)) from error


CALLS = [
    Call("a worker is killed", _break_a_worker, "worker process was killed"),
    Call(
        "shards without a name",
        lambda: shards.output_names("", 2),
        "output_file",
    ),
]
