"""SavedModels as folders: written whole or not at all, and found again.

Keras's variables are wrappers, which the loader of TensorFlow 1, and with it
TensorFlow Serving and saved_model_cli, does not find. So no Keras layer is
saved, only functions and the `tf.Variable`s that they read.
"""

import contextlib
import os
import pathlib
import tempfile
import time

import tensorflow as tf
from absl import logging

from albert_tf import errors, filesystem, ownership
from albert_tf.model import layers, modeling

LABELS_FILE = "labels.txt"
# What a folder is called until it is complete, with its name behind. As the
# release's Estimator: TensorFlow Serving passes over such a name.
UNFINISHED = "temp-"
# What the names of files in a SavedModel begin with, up to the first dot.
_PARTS = {"assets", "fingerprint", "saved_model", "variables"}
# Kernels of more bytes are no constants: of the release's models, xxlarge's.
MOST_CONSTANT_BYTES = 256 << 20
# Owned by whoever adds a version to a folder: never the folder itself, which
# may be the one that a training owns.
_NEXT_VERSION = "next.version"


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
        with _choosing_kernels(model):
            write_saved_model(path, root, signatures, assets)
    return path


def _choosing_kernels(model):
    """Makes kernels constants, for speed, if they are not too large for it.

    A SavedModel keeps them beside its weights, and TensorFlow, which copies a
    graph often, takes several times their size when it loads them.
    """
    size = sum(
        weight.value.dtype.size * weight.shape.num_elements()
        for weight in model.weights
        if weight.canonical_name.endswith("kernel")
    )
    is_small = size <= MOST_CONSTANT_BYTES
    return layers.constant_kernels() if is_small else contextlib.nullcontext()


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


class Root(tf.Module):
    """What a SavedModel is saved from: an object with attributes."""

    # A tf.Module's are properties, which nothing can be assigned to and which
    # no loader finds.
    variables: list | None = None
    trainable_variables: list | None = None


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
    root.variables = list(root.weights.values())
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
        if not filesystem.exists(asset):
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
    if filesystem.exists(temporary):
        if not is_unfinished(temporary):
            raise ValueError(
                f"{temporary} is in the way: it holds what no export writes. "
                "Rename it."
            )
        filesystem.remove_folder(temporary)
    try:
        yield temporary
        filesystem.rename(temporary, path)
    except BaseException:
        if filesystem.exists(temporary):
            filesystem.remove_folder(temporary)
        raise


def is_unfinished(folder):
    """Whether a folder can be what a killed export left."""
    parts = {n.split(".")[0] for n in filesystem.list_folder(folder)}
    return filesystem.is_folder(folder) and parts <= _PARTS


def remove_unfinished_versions(folder):
    """Removes what killed exports left in a folder, which has to be owned."""
    if filesystem.is_remote(folder):
        return  # Nobody can own it: there may be another at work.
    for path in filesystem.find_files(folder, f"{UNFINISHED}*"):
        number = os.path.basename(path).removeprefix(UNFINISHED)
        if number.isdecimal() and is_unfinished(path):
            filesystem.remove_folder(path)


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
    if filesystem.exists(os.path.join(folder, "saved_model.pb")):
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
