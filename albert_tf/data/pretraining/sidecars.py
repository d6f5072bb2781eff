"""Sidecars: what the writer of record files says of them, and whether it holds.

A sidecar NAME.dataset.json stands beside the files NAME-*.tfrecord. What it
says decides where in the data a resumed training goes on, so it is believed
only while the files have the sizes that it was written with. While files are
being written, and after that was broken off, there is a folder .NAME.unfinished
instead: new files may stand beside old ones then.
"""

import hashlib
import json
import logging
import os
import re

from albert_tf import filesystem
from albert_tf.data.pretraining import damage

FORMAT = 1
OBJECTIVES = ("sop", "nsp", "none")
_SUFFIX = ".dataset.json"
# What must be equal in the sidecars of files that are read together.
_COMMON_KEYS = (
    "format",
    "max_seq_length",
    "max_predictions_per_seq",
    "num_predictions",
    "sentence_objective",
    "tokenizer",
)
_TYPES = {
    "max_seq_length": int,
    "max_predictions_per_seq": int,
    "num_predictions": int,
    "sentence_objective": str,
    "tokenizer": dict,
    "files": list,
    "num_records": list,
    "statistics": dict,
}


def sidecar_path(record_file: str) -> str:
    """The name of the description that stands beside a record file."""
    stem = re.sub(r"\.(tfrecord|tf_record)$", "", record_file)
    return re.sub(r"-\d{5}-of-\d{5}$", "", stem) + _SUFFIX


def unfinished_folder(record_file: str) -> str:
    """The name of the folder beside a record file whose set is not complete."""
    folder, name = os.path.split(sidecar_path(record_file))
    name = name.removesuffix(_SUFFIX)
    return os.path.join(folder, f".{name}.unfinished")


def write_sidecar(path: str, description: dict) -> None:
    """Writes a sidecar; `read_sidecar` lists what is in it."""
    description = {**description, "digest": _digest(description)}
    text = json.dumps(description, indent=2, sort_keys=True) + "\n"
    filesystem.write_file(path, text)


def _digest(description):
    """What shows that a description was edited."""
    values = {k: v for k, v in description.items() if k != "digest"}
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def read_sidecar(files: list[str]) -> dict | None:
    """What is known about some record files.

    Args:
      files: names of record files that will be read together.

    Returns:
      None if none of them has a sidecar, else a dict with `format`,
      `max_seq_length`, `max_predictions_per_seq`, `num_predictions` (length
      of the masked_lm_* lists), `sentence_objective`, `tokenizer` and `flags`
      (of the program that wrote them), `files`, `num_records` (of each file)
      and `statistics`. `files` and `num_records` are those of the files
      asked for, and `statistics["sequences"]` counts these alone; the other
      statistics are those of the first file's whole run.

    Raises:
      ValueError: if the files were not finished, or the sidecars contradict
        them or each other, do not know a file, are absent for some of the
        files, or are damaged.
      FileNotFoundError: if a file that belongs to the set is gone.
    """
    _check_finished(files)
    paths = {file: sidecar_path(file) for file in files}
    descriptions = {
        path: _load(path)
        for path in sorted(set(paths.values()))
        if filesystem.exists(path)
    }
    if not descriptions:
        return None
    first_path, first = next(iter(descriptions.items()))
    for file, path in paths.items():
        if path not in descriptions:
            raise ValueError(
                f"{file} has no description {path}, but other files have one, "
                f"such as {first_path}. Read them in different runs; or make "
                "all of them with create_pretraining_data.py; or move the "
                "*.dataset.json files away: all records are then counted, and "
                "taken as made for sentence order."
            )
        for key in _COMMON_KEYS:
            if descriptions[path][key] != first[key]:
                raise ValueError(
                    f"{path} says {key} = {descriptions[path][key]}, but "
                    f"{first_path} says {first[key]}. Files of different "
                    "settings cannot be read together."
                )
    num_records = [
        _num_records(file, path, descriptions[path])
        for file, path in paths.items()
    ]
    known = {k: v for k, v in first.items() if k not in ("digest", "num_bytes")}
    return {
        **known,
        "files": [os.path.basename(file) for file in paths],
        "num_records": num_records,
        "statistics": {**first["statistics"], "sequences": sum(num_records)},
    }


def _check_finished(files):
    folders = {unfinished_folder(file): file for file in files}
    for folder, file in folders.items():
        if filesystem.exists(folder):
            raise ValueError(
                f"{file} is of a set that is not finished, as {folder} shows: "
                "old and new records may stand side by side. Run the same "
                "create_pretraining_data.py command again, which goes on where "
                "it was stopped; or remove this folder and all files of the "
                "set."
            )


def _load(path):
    """Reads one sidecar and checks it, and that its files are still there."""
    description = filesystem.read_json(path)
    if description.get("format") != FORMAT:
        raise ValueError(
            f"{path} has format {description.get('format')}; this program "
            f"reads {FORMAT}. Was it written by another version?"
        )
    _check_values(path, description)
    folder, names = os.path.dirname(path), description["files"]
    missing = [
        name
        for name in names
        if not filesystem.exists(os.path.join(folder, name))
    ]
    if missing:
        raise FileNotFoundError(
            f"{path} describes {len(names)} files, but {len(missing)} are "
            f"missing, such as {missing[0]}. Were all copied?"
        )
    if description.get("digest", _digest(description)) != _digest(description):
        logging.warning(
            "%s was edited; what it says is compared with the records.", path
        )
    return description


def _check_values(path, description):
    for key, wanted in _TYPES.items():
        if type(description.get(key)) is not wanted:
            raise ValueError(
                f"{path} has no {key} of the type {wanted.__name__}; found "
                f"{str(description.get(key)):.80}. Was it edited, or is it of "
                "another program?"
            )
    names, counts = description["files"], description["num_records"]
    sizes = description.get("num_bytes", counts)
    is_list_of_counts = isinstance(sizes, list) and all(
        type(number) is int and number >= 0 for number in [*counts, *sizes]
    )
    if (
        not is_list_of_counts
        or not all(isinstance(name, str) for name in names)
        or not len(names) == len(counts) == len(sizes)
    ):
        raise ValueError(
            f"{path} names {len(names)} files, but does not count the records "
            "of each. Was it edited?"
        )
    if description["sentence_objective"] not in OBJECTIVES:
        raise ValueError(
            f"{path} says sentence_objective = "
            f"{description['sentence_objective']!r}; known are {OBJECTIVES}. "
            "Was it edited, or written by another version?"
        )


def _num_records(file, path, description):
    """The number of records of a file, if it is what its sidecar says."""
    name = os.path.basename(file)
    if name not in description["files"]:
        raise ValueError(
            f"{path} does not know {name}. Is the file left over from an "
            "older run?"
        )
    index = description["files"].index(name)
    said = description["num_records"][index]
    num_bytes = filesystem.size(file)
    is_whole = description.get("digest") == _digest(description)
    if is_whole and "num_bytes" in description:
        if num_bytes == description["num_bytes"][index]:
            return said
        raise ValueError(
            f"{file} has {num_bytes} bytes; {path} says "
            f"{description['num_bytes'][index]}. Was it cut off, copied in "
            "part, or replaced? Copy file and sidecar again, or make them "
            "again with create_pretraining_data.py."
        )
    found = damage.count_records(file)
    if found != said:
        raise ValueError(
            f"{file} has {found} records; {path} says {said}. Was one of them "
            "cut off, replaced or edited? Copy both again, or make them again "
            "with create_pretraining_data.py."
        )
    return said
