"""Finds the model that a path names: what is named, or nothing else.

A path is a folder, a file of weights in one, a checkpoint's prefix, or the name
of a released model, which `downloads` fetches. Of a folder without a model, the
newest of the numbered folders in it is taken.
"""

import logging
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from albert_tf import filesystem
from albert_tf.weights import checkpoints, downloads, task_heads

ARCHIVES = (".tar", ".tar.gz", ".tgz")
MANIFEST_FILE = "run.json"  # Of a run of this package.
CONFIG_FILE = "config.json"  # Written by transformers and KerasHub.
SAVED_MODEL = "saved_model.pb"
_DESCRIBED = (".safetensors", ".safetensors.index.json", ".weights.h5")
_PART = re.compile(r"\.(index|meta|data-\d+-of-\d+)$")
# Checkpoints of transformers' Trainer, and versions of a SavedModel.
_NUMBERED = re.compile(r"(?:checkpoint-)?(\d+)")


class Location(NamedTuple):
    """The location of a model.

    Attributes:
      kind: "archive"; "described", a folder with CONFIG_FILE; "module", a
        SavedModel; "checkpoint".
      path: the archive, or the folder.
      file: name of the file of weights in a described folder; None for the
        usual one.
      prefixes: checkpoints, of which the last that is not damaged is to be
        read.
    """

    kind: str
    path: str
    file: str | None = None
    prefixes: Sequence[str] = ()


def locate(path: filesystem.Path) -> Location:
    """Returns the location of the model that a path names.

    Raises:
      FileNotFoundError: if there is none.
      ValueError: if the path names something else.
    """
    path = downloads.find_model(path).rstrip("/") or "/"
    if path.startswith(("http://", "https://")):
        raise ValueError(
            f"{path} is not on this machine. Download it, and give the file or "
            "the folder, or the name of a released model, such as "
            f"{downloads.NAMES[0]}."
        )
    if filesystem.is_folder(path):
        return _locate_in(path)
    prefix = _PART.sub("", path)
    folder, name = os.path.dirname(path) or ".", os.path.basename(path)
    if filesystem.exists(f"{prefix}.index"):
        # Of a remote path, ".." is a name like others.
        is_remote = filesystem.is_remote(folder)
        parent = os.path.dirname(folder) if is_remote else f"{folder}/.."
        is_module = os.path.basename(prefix) == "variables"
        if is_module and _has(parent, SAVED_MODEL):
            return _locate_module(parent)
        return Location("checkpoint", folder, prefixes=[prefix])
    _check_file(path, prefix, folder)
    if name == SAVED_MODEL:
        return _locate_module(folder)
    if path.endswith(ARCHIVES):
        return Location("archive", path)
    if not _has(folder, CONFIG_FILE):
        raise FileNotFoundError(
            f"There is no {CONFIG_FILE} next to {name} in {folder}. Was the "
            "folder copied completely?"
        )
    return Location("described", folder, name)


def _check_file(path, prefix, folder):
    """Raises an error unless a path is a file that may have weights."""
    models = [n for n in filesystem.list_folder(folder) if _is_model(n)]
    there = f"{folder} has {models[:12] or 'no model'}"
    if not filesystem.exists(path):
        endings = (*_DESCRIBED, *ARCHIVES, SAVED_MODEL, ".h5", ".bin")
        is_file = path.endswith(endings)
        raise FileNotFoundError(
            f"{path if is_file else f'{prefix}.index'} does not exist; {there}."
            " Wanted a folder, a file of weights, or a checkpoint's prefix, "
            "such as model.ckpt-best, or the name of a released model, such "
            f"as {downloads.NAMES[0]}."
        )
    if not _is_model(os.path.basename(path)):
        raise ValueError(
            f"{path} is not a model; {there}. Wanted a folder, a checkpoint's "
            f"prefix, or a file ending in {', '.join(_DESCRIBED + ARCHIVES)}. "
            "(To convert weights of PyTorch, load them with transformers and "
            "call save_pretrained(folder).)"
        )


def _is_model(name):
    """Returns whether a file of this name may have weights."""
    endings = (".index", SAVED_MODEL, *_DESCRIBED, *ARCHIVES)
    return name.endswith(endings)


def _locate_in(folder):
    """Returns the location of a folder's model."""
    if _has(folder, SAVED_MODEL):
        return _locate_module(folder)
    numbered = {
        int(match[1]): os.path.join(folder, name)
        for name in filesystem.list_folder(folder)
        if (match := _NUMBERED.fullmatch(name.rstrip("/")))
    }
    numbered = {n: path for n, path in numbered.items() if _is_complete(path)}
    if numbered and not _is_complete(folder):
        newest = numbered[max(numbered)]
        logging.warning(
            "%s has numbered models. The newest is used: %s.", folder, newest
        )
        return _locate_in(newest)
    if _has(folder, CONFIG_FILE):
        return Location("described", folder)
    # Fine-tuning scores its checkpoints, so that there the best one is read.
    is_task = _has(folder, task_heads.HEAD_FILE)
    prefixes = task_heads.find_trained(folder) if is_task else []
    prefixes = prefixes or checkpoints.find_checkpoints(folder)
    return Location("checkpoint", folder, prefixes=prefixes)


def _locate_module(folder):
    """Returns the location of a SavedModel; its checkpoint is inside."""
    prefix = os.path.join(folder, "variables", "variables")
    return Location("module", folder, prefixes=[prefix])


def _is_complete(folder):
    """Returns whether a folder has weights of its own."""
    return any(map(_is_model, filesystem.list_folder(folder)))


def _has(folder, name):
    return filesystem.exists(os.path.join(folder, name))
