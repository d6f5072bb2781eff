"""SavedModels for serving: plain TensorFlow, variables stored once.

Keras's own export hides variables from the loaders of TensorFlow 1 and
TensorFlow Serving, so the root here is a plain trackable object that holds the
`tf.Variable`s themselves.

Shapes: B batch, T tokens, C classes; B and T are any.
"""

import os
import pathlib
import tempfile
import time

import tensorflow as tf

LABELS_FILE = "labels.txt"
FEATURES = ("input_ids", "input_mask", "segment_ids")


def export_classifier(
    folder, model, *, max_seq_length, labels=None, threshold=None, assets=()
):
    """Writes a SavedModel that serves a classifier.

    Two signatures give `logits` [B, C], `predictions` [B] (indices of labels;
    numbers of a regression; [B, C] of 0 and 1 for multi_label) and, but for a
    regression, `probabilities` [B, C]:

      serving_default: `examples`, [B] serialized `tf.train.Example`s with
        int64 lists `input_ids`, `input_mask` and `segment_ids` of any length
        up to max_seq_length; shorter ones are padded.
      ids: `input_ids`, `input_mask`, `segment_ids`, [B, T] int32.

    Args:
      folder: where; the SavedModel goes to a folder below, whose name is the
        time in seconds, as TensorFlow Serving wants its versions.
      model: a `heads.AlbertClassifier`.
      max_seq_length: tokens of the longest sequence.
      labels: names of the classes, which become the asset `labels.txt`.
      threshold: a number that is given out as `threshold`, or None.
      assets: other files to put beside.

    Returns:
      The SavedModel's folder.

    Source: run_classifier.py, `serving_input_receiver_fn`, which takes records
    of exactly max_seq_length tokens and asks for their labels.
    """

    def answer(features):
        logits = model(features)["logits"]
        outputs = {"logits": logits, **_predict(logits, model.objective)}
        if threshold is not None:
            outputs["threshold"] = tf.constant(threshold, tf.float32)
        return outputs

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, name="examples")]
    )
    def serve_examples(examples):
        return answer(parse_examples(examples, max_seq_length))

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.int32, name=name)
            for name in FEATURES
        ]
    )
    def serve_ids(input_ids, input_mask, segment_ids):
        features = (input_ids, input_mask, segment_ids)
        return answer(dict(zip(FEATURES, features, strict=True)))

    with tempfile.TemporaryDirectory() as temporary:
        files = [str(path) for path in assets]
        if labels:
            files.append(os.path.join(temporary, LABELS_FILE))
            text = "".join(f"{label}\n" for label in labels)
            pathlib.Path(files[-1]).write_text(text, encoding="utf-8")
        return write_saved_model(
            folder,
            model,
            {"serving_default": serve_examples, "ids": serve_ids},
            files,
        )


def _predict(logits, objective):
    """Predictions and, where there are any, probabilities."""
    if objective == "regression":
        return {"predictions": logits[:, 0]}
    if objective == "multi_label":
        return {
            "predictions": tf.cast(logits > 0, tf.int32),
            "probabilities": tf.sigmoid(logits),
        }
    return {
        "predictions": tf.argmax(logits, axis=-1, output_type=tf.int32),
        "probabilities": tf.nn.softmax(logits),
    }


def parse_examples(serialized, max_seq_length):
    """Parses serialized Examples [B] to a dict of features [B, T] int32.

    Lists are padded with 0 to the longest of the batch.
    """
    spec = {
        name: tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)
        for name in FEATURES
    }
    parsed = tf.io.parse_example(serialized, spec)
    num_tokens = tf.shape(parsed["input_ids"])[1]
    check = tf.debugging.Assert(
        (num_tokens > 0) & (num_tokens <= max_seq_length),
        [
            "Wanted input_ids of 1 to",
            max_seq_length,
            "tokens, found",
            num_tokens,
        ],
    )
    with tf.control_dependencies([check]):
        return {name: tf.cast(x, tf.int32) for name, x in parsed.items()}


def write_saved_model(folder, model, signatures, assets=()):
    """Writes a SavedModel, whole or not at all.

    Args:
      folder: where; the SavedModel gets a folder of its own below.
      model: a Keras layer whose variables the signatures use.
      signatures: dict of name -> `tf.function` with an input signature.
      assets: paths of files to put beside, under their own names.

    Returns:
      The SavedModel's folder.
    """
    root = tf.__internal__.tracking.AutoTrackable()
    # The tf.Variables in Keras's: its own are not seen by every loader.
    root.variables = [v.value for v in model.variables]
    root.trainable_variables = [v.value for v in model.trainable_variables]
    root.regularization_losses = []
    root.assets = [tf.saved_model.Asset(path) for path in assets]
    target = os.path.join(str(folder), str(int(time.time())))
    while tf.io.gfile.exists(target):
        target = os.path.join(
            str(folder), str(1 + int(pathlib.Path(target).name))
        )
    temporary = f"{target}.incomplete"
    tf.saved_model.save(
        root,
        temporary,
        signatures=signatures,
        options=tf.saved_model.SaveOptions(
            experimental_io_device="/job:localhost"
        ),
    )
    tf.io.gfile.rename(temporary, target)
    return target
