"""Arrays of a folder's safetensors: one file, or shards that an index lists.

Reading needs the package safetensors, and neither PyTorch nor transformers.
"""

import os
from collections.abc import Collection

import numpy as np

from albert_tf import filesystem

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = f"{WEIGHTS_FILE}.index.json"
FLOATS = ("float16", "bfloat16", "float32", "float64")


def read_folder(
    folder: filesystem.Path, ignored: Collection[str] = ()
) -> tuple[str, dict, list]:
    """Reads the arrays of a folder as float32.

    Args:
      folder: with `model.safetensors`, or with shards and their index.
      ignored: names that are left out.

    Returns:
      The path of the file or of the index, dict from name to array, and a
      list of remarks on what was converted.

    Raises:
      FileNotFoundError: if there are no safetensors, or a shard is missing.
      ValueError: if a file is damaged or holds no floats, or index and shards
        contradict each other.
    """
    path = os.path.join(folder, WEIGHTS_FILE)
    index = os.path.join(folder, INDEX_FILE)
    # As transformers: where there are both, the index is not read.
    is_sharded = not filesystem.exists(path) and filesystem.exists(index)
    path = index if is_sharded else path
    arrays = _read_shards(index) if is_sharded else _read_file(path)
    arrays = {n: a for n, a in arrays.items() if n not in ignored}
    wrong = [n for n, a in arrays.items() if str(a.dtype) not in FLOATS]
    if wrong:
        raise ValueError(
            f"{path} holds {len(wrong)} weights that are no floating-point "
            f"numbers, such as {wrong[0]} of {arrays[wrong[0]].dtype}; known "
            f"are {', '.join(FLOATS)}. Is the model quantized? Convert the one "
            "it was made from."
        )
    kinds = sorted({str(a.dtype) for a in arrays.values()} - {"float32"})
    remarks = [f"{kind} became float32" for kind in kinds]
    arrays = {n: np.asarray(a, np.float32) for n, a in arrays.items()}
    return path, arrays, remarks


def _read_file(path):
    """Dict from name to array of one file."""
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError(
            "Hugging Face files need safetensors: pip install safetensors."
        ) from error
    if not filesystem.exists(path):
        names = filesystem.list_folder(os.path.dirname(path))
        raise FileNotFoundError(
            f"{path} does not exist; the folder has {names}. A "
            "pytorch_model.bin is a pickle, which only PyTorch reads: load it "
            "with transformers and save_pretrained(folder) writes "
            f"{WEIGHTS_FILE}."
        )
    try:
        with filesystem.local_copy(path) as local:
            return safetensors.numpy.load_file(local)
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise ValueError(
            f"{path} cannot be read: {error}. Was the download cut off, or is "
            "it a pointer of Git LFS?"
        ) from error


def _read_shards(index):
    """Dict from name to array of all shards that an index lists."""
    shard_of = _read_index(index)
    folder = os.path.dirname(index)
    shards = sorted({*shard_of.values()})
    missing = {*shards} - {*filesystem.list_folder(folder)}
    if missing:
        raise FileNotFoundError(
            f"{index} lists {len(shards)} shards, of which {len(missing)} are "
            f"not there, such as {min(missing)}. Was all of it downloaded?"
        )
    arrays: dict = {}
    origins: dict[str, str] = {}
    for shard in shards:
        for name, array in _read_file(os.path.join(folder, shard)).items():
            if name in origins:
                raise ValueError(
                    f"{folder}: {name} is in two shards, {origins[name]} and "
                    f"{shard}. Are there files of two models?"
                )
            arrays[name], origins[name] = array, shard
    for name, shard in shard_of.items():
        if origins.get(name) != shard:
            found = origins.get(name, "no shard")
            raise ValueError(
                f"{index} says that {name} is in {shard}; {found} has it. Are "
                "index and shards of one model?"
            )
    return arrays


def _read_index(index):
    """Dict from name of an array to the name of its shard."""
    shard_of = filesystem.read_json(index).get("weight_map")
    if not isinstance(shard_of, dict) or not shard_of:
        raise ValueError(
            f"{index} has weight_map {shard_of!r:.80}; wanted an object that "
            "names the shard of each weight. Was it cut off?"
        )
    for name, shard in shard_of.items():
        if not isinstance(shard, str) or os.path.basename(shard) != shard:
            raise ValueError(
                f"{index} says that {name} is in {shard!r:.80}; wanted the "
                "name of a file beside it."
            )
    return shard_of
