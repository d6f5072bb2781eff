"""SavedModels: plain TensorFlow, without Keras, this package or custom ops.

Keras's variables are wrappers, which the loader of TensorFlow 1, and with it
TensorFlow Serving and saved_model_cli, does not find. So no Keras layer is
saved, only functions and the `tf.Variable`s that they read.

Shapes: B batch, T tokens, C labels.
"""

import contextlib
import os
import pathlib
import tempfile
import time

import tensorflow as tf
from absl import logging

from albert_tf import errors, filesystem, modeling, ownership, serving

LABELS_FILE = "labels.txt"
# What a folder is called until it is complete, with its name behind. As the
# release's Estimator: TensorFlow Serving passes over such a name.
UNFINISHED = "temp-"
# What the names of files in a SavedModel begin with, up to the first dot.
_PARTS = {"assets", "fingerprint", "saved_model", "variables"}
# Owned by whoever adds a version to a folder: never the folder itself, which
# may be the one that a training owns.
_NEXT_VERSION = "next.version"


def export_classifier(
    folder, model, *, max_seq_length, labels=None, threshold=None, assets=()
):
    """Writes a SavedModel that serves a classifier.

    Two signatures give the same outputs for any B and T:

      serving_default: `examples`, [B] strings, each a serialized
        `tf.train.Example` with int64 lists `input_ids`, `input_mask` and
        `segment_ids`, equally long. Shorter ones are padded with 0; other
        features, such as the labels in the release's records, are ignored.
      ids: `input_ids`, `input_mask`, `segment_ids`, [B, T] int32.

    The outputs:

      logits: [B, C] float32.
      probabilities: [B, C] float32; absent for a regression.
      predictions: [B] int32, indices of labels; [B] float32 for a regression;
        [B, C] int32, 0 or 1, for "multi_label".
      threshold: [B] float32, the same number for every row; only if given.

    Args:
      folder: local or gs://; see `next_version` for what is made in it.
      model: a `heads.AlbertClassifier`.
      max_seq_length: tokens of the longest sequence that is served, at most
        the model's positions.
      labels: C names, which become the asset `labels.txt`, a line each.
      threshold: a number for the client. It changes no prediction.
      assets: files that are put beside under their own names.

    Returns:
      The SavedModel's own folder.

    Raises:
      ValueError: if arguments contradict the model or each other.
      FileNotFoundError: if an asset is not there.

    Source: run_classifier.py, `export_saved_model`, whose records have exactly
    max_seq_length tokens, and whose threshold is a scalar: TensorFlow
    Serving's batching and its rows of JSON refuse outputs without a batch.
    """
    functions = build_signatures(
        model, classify(model), max_seq_length, threshold
    )
    signatures = {
        "serving_default": functions["examples"],
        "ids": functions["ids"],
    }
    return write_version(folder, model, signatures, assets, labels)


def write_version(
    folder, model, signatures, assets=(), labels=None, resources=()
):
    """Writes a SavedModel to a new version in a folder.

    Args:
      folder: local or gs://; see `next_version` for what is made in it.
      model: whose weights it has.
      signatures: as for `write_saved_model`.
      assets: likewise.
      labels: names of the model's outputs, which become the asset
        `labels.txt`, or None.
      resources: what else the signatures use, such as a tokenizer's model.

    Returns:
      The SavedModel's own folder.

    Raises:
      BlockingIOError: if another process is adding a version to the folder.
    """
    root = build_root(model)
    root.resources = list(resources)
    with (
        tempfile.TemporaryDirectory() as temporary,
        ownership.owning(os.path.join(folder, _NEXT_VERSION)),
    ):
        assets = [str(asset) for asset in assets]
        if labels:
            check_labels(labels, model.num_labels)
            assets.append(os.path.join(temporary, LABELS_FILE))
            lines = "".join(f"{label}\n" for label in labels)
            pathlib.Path(assets[-1]).write_text(lines, encoding="utf-8")
        remove_unfinished_versions(folder)
        path = next_version(folder)
        write_saved_model(path, root, signatures, assets)
    return path


def export_spans(folder, model, *, max_seq_length, threshold=None, assets=()):
    """Writes a SavedModel that serves a model of SQuAD.

    Its signatures take what those of `export_classifier` take, but
    `serving_default` is the one of `input_ids`, `input_mask`, `segment_ids`,
    and `examples` that of serialized records. The outputs are the model's,
    for the n best: `start_logits` and `end_logits`, or the beam of
    `span_heads.AlbertConditionalSpans`.

    Args:
      folder: as for `export_classifier`.
      model: a `span_heads.AlbertSpans` or `AlbertConditionalSpans`.
      max_seq_length: as for `export_classifier`.
      threshold: a number for the client, the output `threshold`: an answer is
        given where cls_logits is below it.
      assets: as for `export_classifier`.

    Returns:
      The SavedModel's own folder.

    Raises:
      As `export_classifier`.

    Source: run_squad_v1.py, `build_squad_serving_input_fn`, whose shapes are
    fixed and whose logits are called `start_log_prob` and `end_log_prob`.
    """
    functions = build_signatures(model, model, max_seq_length, threshold)
    signatures = {
        "serving_default": functions["ids"],
        "examples": functions["examples"],
    }
    return write_version(folder, model, signatures, assets)


def classify(model):
    """Returns a function from features to a classifier's outputs."""

    def serve(features):
        return predict(model(features)["logits"], model.objective)

    return serve


def build_answer(model, serve, max_seq_length, threshold):
    """Returns a function from a request to all outputs.

    Args:
      model: what is exported.
      serve: function from a dict of `serving.FEATURES` to a dict of outputs.
      max_seq_length: tokens of the longest sequence that is served.
      threshold: a number that is given out for each row, or None.

    Raises:
      ValueError: if the model has fewer positions than that, or the threshold
        is no number.
    """
    check_max_seq_length(model, max_seq_length)
    check_threshold(threshold)

    def answer(inputs):
        features = serving.check_features(
            inputs, serving.OWN_NAMES, model.config, max_seq_length
        )
        outputs = dict(serve(features))
        if threshold is not None:
            outputs["threshold"] = tf.fill(
                tf.shape(features["input_ids"])[:1],
                tf.constant(threshold, tf.float32),
            )  # [B]
        return outputs

    return answer


def build_signatures(model, serve, max_seq_length, threshold):
    """Returns a tf.function for `examples` and one for `ids`, by name.

    Args:
      model: as for `build_answer`.
      serve: likewise.
      max_seq_length: likewise.
      threshold: likewise.
    """
    answer = build_answer(model, serve, max_seq_length, threshold)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def serve_examples(examples):
        return answer(serving.parse_examples(examples, max_seq_length))

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 3)
    def serve_ids(input_ids, input_mask, segment_ids):
        values = input_ids, input_mask, segment_ids
        return answer(dict(zip(serving.FEATURES, values, strict=True)))

    return {"examples": serve_examples, "ids": serve_ids}


def check_max_seq_length(model, max_seq_length):
    """Raises ValueError if a model has fewer positions than that."""
    positions = model.config.max_position_embeddings
    if not 1 <= max_seq_length <= positions:
        raise ValueError(
            f"max_seq_length={max_seq_length}; the model has {positions} "
            "positions (max_position_embeddings). Give a length from 1 to "
            "that, such as the one it was fine-tuned with."
        )


def check_threshold(threshold):
    """Raises ValueError if a threshold is neither None nor a float32."""
    # NaN is not below anything.
    if threshold is not None and not abs(threshold) <= float(tf.float32.max):
        raise ValueError(
            f"The threshold is {threshold}; wanted a finite number of 32 bits."
        )


def check_labels(labels, num_labels):
    """Raises ValueError if labels cannot be the lines of the asset."""
    if len(labels) != num_labels:
        raise ValueError(
            f"{len(labels)} labels, but the model has {num_labels} outputs. "
            "Was it fine-tuned on another task?"
        )
    for label in map(str, labels):
        if label.splitlines() != [label]:
            raise ValueError(
                f"The label {label!r} is not one line; {LABELS_FILE} holds "
                "one label a line."
            )


def predict(logits, objective):
    """Returns a dict of outputs for logits [B, C] of a classifier."""
    if objective == "regression":
        return {"logits": logits, "predictions": logits[:, 0]}
    if objective == "multi_label":
        probabilities = tf.sigmoid(logits)
        predictions = tf.cast(logits > 0, tf.int32)  # [B, C]
    else:
        probabilities = tf.nn.softmax(logits)
        predictions = tf.argmax(logits, axis=-1, output_type=tf.int32)  # [B]
    return {
        "logits": logits,
        "probabilities": probabilities,
        "predictions": predictions,
    }


class Root(tf.Module):
    """What a SavedModel is saved from: an object with attributes."""

    # A tf.Module's are properties, which nothing can be assigned to and which
    # no loader finds.
    variables = None
    trainable_variables = None


def build_root(model):
    """Returns what a SavedModel of a model's functions is saved with.

    The attributes are those of TF Hub's reusable SavedModels; a caller may
    set more. Each weight is stored once however often it is used.

    Args:
      model: a layer or model whose weights have canonical names.

    Raises:
      ValueError: if a weight is NaN or infinite.
    """
    weights = modeling.named_weights(model)
    for name, weight in weights.items():
        if not tf.reduce_all(tf.math.is_finite(weight.value)):
            raise ValueError(
                f"The weight {name} has values that are NaN or infinite, so "
                "nothing is exported. Did the training diverge? Take an "
                "earlier checkpoint."
            )
    root = Root()
    # By these names `saved_weights` finds them again.
    root.weights = {name: w.value for name, w in weights.items()}
    root.variables = [w.value for w in weights.values()]
    root.trainable_variables = [
        w.value for w in weights.values() if w.trainable
    ]
    root.regularization_losses = []
    return root


def write_saved_model(path, root, signatures, assets=()):
    """Writes a SavedModel, whole or not at all.

    On gs:// a folder is renamed file by file, so there it can be seen
    incomplete.

    Args:
      path: its folder, which must not exist.
      root: from `build_root`. Its `assets` are set.
      signatures: dict from name to a `tf.function` with an input signature.
      assets: files for its folder `assets`, under their own names.

    Raises:
      ValueError: if two assets have one name.
      FileNotFoundError: if an asset is not there.
    """
    names = [os.path.basename(asset) for asset in assets]
    for name, asset in zip(names, assets, strict=True):
        if names.count(name) > 1:
            raise ValueError(f"Two assets are called {name}: {list(assets)}.")
        if not tf.io.gfile.exists(asset):
            raise FileNotFoundError(
                f"There is no {asset} to put beside the SavedModel. Is the "
                f"path right, seen from {os.getcwd()}?"
            )
    root.assets = [tf.saved_model.Asset(asset) for asset in assets]
    with appearing_at_once(path) as temporary, quietly():
        tf.saved_model.save(
            root,
            temporary,
            signatures=signatures,
            # Where a remote device, such as a TPU, cannot see local files.
            options=tf.saved_model.SaveOptions(
                experimental_io_device="/job:localhost"
            ),
        )


@contextlib.contextmanager
def quietly():
    """Keeps back what TensorFlow tells of every SavedModel."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(min(verbosity, logging.WARNING))
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


@contextlib.contextmanager
def appearing_at_once(path):
    """Gives a folder beside to write to, and renames it to `path` at the end.

    Where the writing fails, it is removed; what a killed export left of it is
    removed before.

    Yields:
      The name of the folder, whose parent exists.

    Raises:
      ValueError: if something else has that name.
    """
    parent, name = os.path.split(path)
    filesystem.make_folder(parent)
    temporary = os.path.join(parent, f"{UNFINISHED}{name}")
    if tf.io.gfile.exists(temporary):
        if not is_unfinished(temporary):
            raise ValueError(
                f"{temporary} is in the way: it holds what no export writes. "
                "Rename it."
            )
        tf.io.gfile.rmtree(temporary)
    try:
        yield temporary
        tf.io.gfile.rename(temporary, path)
    except BaseException:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.rmtree(temporary)
        raise


def is_unfinished(folder):
    """Whether a folder can be what a killed export left."""
    parts = {n.split(".")[0] for n in filesystem.list_folder(folder)}
    return tf.io.gfile.isdir(folder) and parts <= _PARTS


def remove_unfinished_versions(folder):
    """Removes what killed exports left in a folder, which has to be owned."""
    if filesystem.is_remote(folder):
        return  # Nobody can own it: there may be another at work.
    for path in filesystem.find_files(folder, f"{UNFINISHED}*"):
        number = os.path.basename(path).removeprefix(UNFINISHED)
        if number.isdecimal() and is_unfinished(path):
            tf.io.gfile.rmtree(path)


def next_version(folder):
    """Returns the path of a new version, higher than those in a folder.

    Versions are numbers: the time in seconds, as the release's Estimator
    wrote and TensorFlow Serving wants them, which serves the highest.
    """
    numbers = [int(n) for n in filesystem.list_folder(folder) if n.isdecimal()]
    version = max([int(time.time()), *(n + 1 for n in numbers)])
    return os.path.join(str(folder), str(version))


def newest_version(folder):
    """Returns the SavedModel in a folder: itself, or its highest version.

    Raises:
      FileNotFoundError: if there is none.
    """
    folder = str(folder)
    if tf.io.gfile.exists(os.path.join(folder, "saved_model.pb")):
        return folder
    versions = [n for n in filesystem.list_folder(folder) if n.isdecimal()]
    if not versions:
        raise FileNotFoundError(
            f"There is no SavedModel in {folder}: neither saved_model.pb nor a "
            "folder that is a number."
        )
    return os.path.join(folder, max(versions, key=int))


def load_saved_model(path):
    """Loads a SavedModel, whatever its folder is called.

    Where that has another name for a while, see `filesystem.named_plainly`,
    the paths of assets that the SavedModel tells are soon none.

    Raises:
      ValueError: if that cannot be done, whatever it is that fails.
    """
    try:
        with filesystem.named_plainly(path) as name:
            return tf.saved_model.load(name)
    except Exception as error:
        raise ValueError(
            f"{path} cannot be loaded as a SavedModel: "
            f"{errors.first_line(error)}. Was it copied completely? If it "
            "takes text, import tensorflow_text first."
        ) from error
