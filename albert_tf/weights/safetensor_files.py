"""Reads a folder's safetensors: one file, or the shards listed by an index.

Requires the package safetensors, but neither PyTorch nor transformers.
"""

import os
import re
from collections.abc import Collection

import numpy as np

from albert_tf import filesystem

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = f"{WEIGHTS_FILE}.index.json"
_SHARD = re.compile(r"-\d+-of-\d+\.safetensors$")
FLOATS = ("float16", "bfloat16", "float32", "float64")


def read_folder(
    folder: filesystem.Path,
    ignored: Collection[str] = (),
    file: str | None = None,
) -> tuple[str, dict, list]:
    """Reads the arrays of a folder as float32.

    The folder has `model.safetensors`, or shards and their index; or `file`,
    one of either. The names in `ignored` are omitted.

    Returns:
      The path of the file or the index, a dict from name to array, and a list
      of remarks on conversions.

    Raises:
      FileNotFoundError: if there are no safetensors, or a shard is missing.
      ValueError: if a file is damaged, an array is not floating-point, or
        index and shards contradict each other.
    """
    if file is None:
        # If there are both, transformers ignores the index, too.
        names = filesystem.list_folder(folder)
        is_sharded = WEIGHTS_FILE not in names and INDEX_FILE in names
        file = INDEX_FILE if is_sharded else WEIGHTS_FILE
    # A shard stands for all of them.
    file = _SHARD.sub(".safetensors.index.json", file)
    path = os.path.join(folder, file)
    is_index = file.endswith(".json")
    arrays = _read_shards(path) if is_index else _read_file(path)
    arrays = {n: a for n, a in arrays.items() if n not in ignored}
    wrong = [n for n, a in arrays.items() if str(a.dtype) not in FLOATS]
    if wrong:
        raise ValueError(
            f"{path} has {len(wrong)} weights of other types, such as "
            f"{wrong[0]} of {arrays[wrong[0]].dtype}; wanted "
            f"{', '.join(FLOATS)}. Is the model quantized? Convert the "
            "original."
        )
    remarks = describe_conversions({str(a.dtype) for a in arrays.values()})
    arrays = {n: np.asarray(a, np.float32) for n, a in arrays.items()}
    return path, arrays, remarks


def describe_conversions(kinds: Collection[str]) -> list[str]:
    """Returns remarks on the types that were converted to float32."""
    others = sorted({*kinds} - {"float32"})
    return [f"{kind} was converted to float32" for kind in others]


def _read_file(path):
    """Returns the arrays of one file by name."""
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError(
            "Hugging Face files require safetensors: pip install safetensors."
        ) from error
    if not filesystem.exists(path):
        names = filesystem.list_folder(os.path.dirname(path))
        raise FileNotFoundError(
            f"{path} does not exist; the folder has {names}. To convert a "
            "pytorch_model.bin, load it with transformers and call "
            "save_pretrained(folder)."
        )
    try:
        with filesystem.local_copy(path) as local:
            return safetensors.numpy.load_file(local)
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise ValueError(
            f"{path} cannot be read: {error}. Was the download cut off, or is "
            "it a Git LFS pointer?"
        ) from error


def _read_shards(index):
    """Returns the arrays of all shards of an index by name."""
    if not filesystem.exists(index):
        raise FileNotFoundError(
            f"{index}, the index of the shards, does not exist. Was the folder "
            "downloaded completely?"
        )
    shard_of = _read_index(index)
    folder = os.path.dirname(index)
    shards = sorted({*shard_of.values()})
    missing = {*shards} - {*filesystem.list_folder(folder)}
    if missing:
        raise FileNotFoundError(
            f"{index} lists {len(shards)} shards; {len(missing)} are missing, "
            f"such as {min(missing)}. Was the folder downloaded completely?"
        )
    arrays: dict = {}
    origins: dict[str, str] = {}
    for shard in shards:
        for name, array in _read_file(os.path.join(folder, shard)).items():
            if name in origins:
                raise ValueError(
                    f"{folder}: {name} is in two shards, {origins[name]} and "
                    f"{shard}. Does the folder mix two models?"
                )
            arrays[name], origins[name] = array, shard
    for name, shard in shard_of.items():
        if origins.get(name) != shard:
            actual = origins.get(name, "no shard")
            raise ValueError(
                f"{index} assigns {name} to {shard}; {actual} contains it. Do "
                "index and shards belong to the same model?"
            )
    return arrays


def _read_index(index):
    """Returns the name of each array's shard."""
    shard_of = filesystem.read_json(index).get("weight_map")
    if not isinstance(shard_of, dict) or not shard_of:
        raise ValueError(
            f"{index} has weight_map {shard_of!r:.80}; wanted an object from "
            "weight to shard. Was it cut off?"
        )
    for name, shard in shard_of.items():
        if not isinstance(shard, str) or os.path.basename(shard) != shard:
            raise ValueError(
                f"{index} assigns {name} to {shard!r:.80}; wanted the name of "
                "a file in the same folder."
            )
    return shard_of
