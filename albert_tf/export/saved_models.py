"""Writes SavedModels atomically, finds their newest version, and loads them.

Keras's variables are wrappers, which TensorFlow 1's loader, and so TensorFlow
Serving and saved_model_cli, cannot find. So no Keras layer is saved, only
functions and the `tf.Variable`s that they read.
"""

import contextlib
import dataclasses
import importlib
import inspect
import os
import pathlib
import tempfile
import time
from collections.abc import Sequence

import tensorflow as tf
from absl import logging

from albert_tf import errors, filesystem, ownership
from albert_tf.model import execution, modeling

LABELS_FILE = "labels.txt"
# Prefix of a folder's name until it is complete, as in the release's
# Estimator: TensorFlow Serving skips such names.
UNFINISHED = "temp-"
# Names of the files in a SavedModel, up to the first dot.
_PARTS = {"assets", "fingerprint", "saved_model", "variables"}
# Locked while a version is added to a folder. The folder itself cannot be
# locked, as the run that exports may hold its lock.
_NEXT_VERSION = "next.version"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contents:
    """What a SavedModel stores besides its functions.

    Args:
      assets: files to store as assets under their own names.
      labels: C names of a classifier's outputs, stored as the asset
        `labels.txt`, one per line; or None.
      is_compact: whether to store kernels and word embeddings only as
        constants, in the model's compute dtype: half the size or less, but
        nothing can be trained from it.

    Example:
      >>> from albert_tf.export.saved_models import Contents
      >>> Contents(labels=["no", "yes"]).is_compact
      False
    """

    assets: Sequence[str | os.PathLike] = ()
    labels: Sequence[str] | None = None
    is_compact: bool = False


def write_version(folder, model, signatures, contents=None, resources=()):
    """Writes a SavedModel as a new version in a folder.

    `folder`, local or gs://, is that of versions, see `next_version`; the
    folder of the new one is returned. `signatures` are as for
    `write_saved_model`. `resources` are other objects that they use, such as a
    tokenizer's model.

    Raises:
      BlockingIOError: if another process is adding a version to the folder.
      ValueError: if a compact model's constants would be too large.
    """
    contents = contents or Contents()
    choosing_kernels = _choose_kernels(model, contents.is_compact)
    root = build_root(model, contents.is_compact)
    root.resources = list(resources)
    if signatures:
        root.serve = build_endpoint(signatures)
    with (
        tempfile.TemporaryDirectory() as temporary,
        ownership.owning(os.path.join(folder, _NEXT_VERSION)),
    ):
        assets = [str(asset) for asset in contents.assets]
        if labels := contents.labels:
            check_labels(labels, model.num_labels)
            assets.append(os.path.join(temporary, LABELS_FILE))
            lines = "".join(f"{label}\n" for label in labels)
            pathlib.Path(assets[-1]).write_text(lines, encoding="utf-8")
        remove_unfinished_versions(folder)
        path = next_version(folder)
        with choosing_kernels:
            write_saved_model(path, root, signatures, assets)
    return path


def build_endpoint(signatures):
    """Returns the endpoint `serve` for Keras's TFSMLayer.

    Of the two signatures for ids and for serialized Examples, it is that for
    ids. It takes one argument: the only input of the signature, or a dict of
    them.
    """
    call = signatures.get("ids") or signatures["serving_default"]
    spec = inspect.signature(call.python_function).parameters
    names = [*spec][: len(call.input_signature)]
    specs = dict(zip(names, call.input_signature, strict=True))
    if len(specs) == 1:
        return tf.function(call, input_signature=[*specs.values()])
    return tf.function(
        lambda inputs: call(*(inputs[name] for name in names)),
        input_signature=[specs],
    )


def _choose_kernels(model, is_compact):
    """Stores kernels as constants, for speed, if they are small enough.

    A SavedModel contains constants in addition to its weights, and TensorFlow,
    which copies graphs often, needs several times their size to load them.
    """
    if is_compact:
        check_compact(model)
    if not execution.may_hold(model):
        return contextlib.nullcontext()
    chosen = execution.Execution(
        constant_kernels=True,
        # In bfloat16, oneDNN has one order of kernels.
        separate_few_rows=model.compute_dtype == "float32"
        and not is_compact
        and execution.may_hold_twice(model),
        constant_embeddings=is_compact,
    )
    return execution.using(chosen)


def check_compact(model):
    """Raises ValueError if a model is too large for a compact SavedModel."""
    if getattr(model, "reads_layers", False):
        raise ValueError(
            "The model reads all layers, of which a compact SavedModel keeps "
            "the last one only: export it without that option."
        )
    size = execution.count_kernel_bytes(model)
    if size > execution.MAX_CONSTANT_BYTES:
        raise ValueError(
            f"The model has kernels of {size >> 20} MiB; a compact SavedModel "
            "stores them as constants, which may have at most "
            f"{execution.MAX_CONSTANT_BYTES >> 20} MiB. Export it without that "
            "option."
        )


def is_constant(name):
    """Whether a compact SavedModel has this weight as a constant only."""
    return name.endswith(("kernel", "/word_embeddings"))


def check_labels(labels, num_labels):
    """Raises ValueError unless there is one label of one line per output."""
    if len(labels) != num_labels:
        raise ValueError(
            f"{len(labels)} labels, but the model has {num_labels} outputs. "
            "Was it fine-tuned on another task?"
        )
    for label in map(str, labels):
        if label.splitlines() != [label]:
            raise ValueError(
                f"The label {label!r} is not a single line; {LABELS_FILE} "
                "contains one label per line."
            )


class Root(tf.Module):
    """The root object of a SavedModel, with freely settable attributes."""

    # In tf.Module these are properties, which cannot be assigned and which no
    # loader finds.
    variables: list | None = None
    trainable_variables: list | None = None


def build_root(model, is_compact=False):
    """Returns the Root of a SavedModel, with the model's weights.

    It has the attributes of TF Hub's reusable SavedModels; callers may set
    more. Each weight is stored once, however often it is used.

    The weights have canonical names; if `is_compact`, those of `is_constant`
    are left out.

    Raises:
      ValueError: if a weight is NaN or infinite.
    """
    weights = modeling.named_weights(model)
    for name, weight in weights.items():
        if not tf.reduce_all(tf.math.is_finite(weight.value)):
            raise ValueError(
                f"The weight {name} has NaN or infinite values, so nothing is "
                "exported. Did training diverge? Use an earlier checkpoint."
            )
    if is_compact:
        weights = {n: w for n, w in weights.items() if not is_constant(n)}
    root = Root()
    # `saved_weights` looks them up by these names.
    root.weights = {name: w.value for name, w in weights.items()}
    root.variables = list(root.weights.values())
    # Also those that were frozen in training: whoever loads it decides anew.
    root.trainable_variables = root.variables
    root.regularization_losses = []
    return root


def write_saved_model(path, root, signatures, assets=()):
    """Writes a SavedModel atomically.

    On gs:// a folder is renamed file by file, so there an incomplete one can be
    visible.

    The folder `path` must not exist. `root` is from `build_root`; its attribute
    `assets` is set here. `signatures` are `tf.function`s with an input
    signature, by name. `assets` are copied to the folder's `assets`, under
    their own names.

    Raises:
      ValueError: if two assets have the same name.
      FileNotFoundError: if an asset does not exist.
    """
    names = [os.path.basename(asset) for asset in assets]
    for name, asset in zip(names, assets, strict=True):
        if names.count(name) > 1:
            raise ValueError(f"Two assets are named {name}: {list(assets)}.")
        if not filesystem.exists(asset):
            raise FileNotFoundError(
                f"The asset {asset} does not exist. Is the path relative to "
                f"{os.getcwd()}?"
            )
    root.assets = [tf.saved_model.Asset(asset) for asset in assets]
    with appearing_at_once(path) as temporary, quietly():
        tf.saved_model.save(
            root,
            temporary,
            signatures=signatures,
            # A remote device, such as a TPU, cannot access local files.
            options=tf.saved_model.SaveOptions(
                experimental_io_device="/job:localhost"
            ),
        )


@contextlib.contextmanager
def quietly():
    """Suppresses TensorFlow's log lines about every SavedModel."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(min(verbosity, logging.WARNING))
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


@contextlib.contextmanager
def appearing_at_once(path):
    """Yields a temporary folder and renames it to `path` at the end.

    If writing fails, the temporary folder is removed. The remains of a killed
    export are removed first. The parent of the yielded path exists.

    Raises:
      ValueError: if its name is taken by something other than such remains.
    """
    parent, name = os.path.split(path)
    filesystem.make_folder(parent)
    temporary = os.path.join(parent, f"{UNFINISHED}{name}")
    if filesystem.exists(temporary):
        if not is_unfinished(temporary):
            raise ValueError(
                f"{temporary} exists and was not written by an export, so it "
                "cannot be replaced. Rename it."
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
    """Whether a folder may be the remains of a killed export."""
    parts = {n.split(".")[0] for n in filesystem.list_folder(folder)}
    return filesystem.is_folder(folder) and parts <= _PARTS


def remove_unfinished_versions(folder):
    """Removes the remains of killed exports; the caller must own the folder."""
    if filesystem.is_remote(folder):
        return  # It cannot be locked: another export may be running.
    for path in filesystem.find_files(folder, f"{UNFINISHED}*"):
        number = os.path.basename(path).removeprefix(UNFINISHED)
        if number.isdecimal() and is_unfinished(path):
            filesystem.remove_folder(path)


def next_version(folder):
    """Returns the path of a new version, higher than those in a folder.

    Versions are times in seconds, as in the release's Estimator. TensorFlow
    Serving serves the highest.
    """
    numbers = [int(n) for n in filesystem.list_folder(folder) if n.isdecimal()]
    version = max([int(time.time()), *(n + 1 for n in numbers)])
    return os.path.join(str(folder), str(version))


def newest_version(folder):
    """Returns the folder of a SavedModel: `folder` or its highest version.

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
            "numbered version folder."
        )
    return os.path.join(folder, max(versions, key=int))


def load_saved_model(path):
    """Loads a SavedModel, whatever the name of its folder.

    One that takes text is loaded with tensorflow-text, if that is installed.

    If the folder needs a temporary name, see `filesystem.named_plainly`, the
    asset paths in the loaded SavedModel become invalid.

    Raises:
      ValueError: if loading fails for any reason.
    """
    try:
        return _load_saved_model(path)
    except Exception as error:
        raise ValueError(
            f"{path} cannot be loaded as a SavedModel: "
            f"{errors.first_line(error)}. Is the copy complete? One that takes "
            "text needs the package tensorflow-text."
        ) from error


def _load_saved_model(path):
    with filesystem.named_plainly(path) as name:
        try:
            return tf.saved_model.load(name)
        except Exception as error:  # TensorFlow raises a bare RuntimeError.
            if "not registered" not in str(error):
                raise
            # Registers the operations of tensorflow-text.
            importlib.import_module("albert_tf.text.operations")
            return tf.saved_model.load(name)
