"""Sidecar files: descriptions of record files, and their verification.

A sidecar NAME.dataset.json is next to the files NAME-*.tfrecord. It determines
where in the data a resumed training continues, so it is trusted only while the
files have the sizes that it records. While files are being written, and after
an interruption, a folder .NAME.unfinished exists: the set may then mix old and
new files, unless the folder has the file `UNTOUCHED`.
"""

import base64
import hashlib
import json
import logging
import os
import re

from albert_tf import filesystem
from albert_tf.data.pretraining import records

FORMAT = 1
OBJECTIVES = ("sop", "nsp", "none")
# Whether records are masked before they are written, or when they are read.
STATIC, DYNAMIC = "static", "dynamic"
_SUFFIX = ".dataset.json"
# In an unfinished folder: no file of the set has been replaced yet.
UNTOUCHED = "untouched"
# Keys that must be equal in the sidecars of files that are read together.
_COMMON_KEYS = (
    "format",
    "max_seq_length",
    "max_predictions_per_seq",
    "num_predictions",
    "sentence_objective",
    "tokenizer",
    # Absent for static records.
    "masking_rule",
    "vocabulary",
)
_TYPES = {
    "max_seq_length": int,
    "max_predictions_per_seq": int,
    "num_predictions": int,
    "sentence_objective": str,
    "tokenizer": dict,
    "masking": str,
    "files": list,
    "num_records": list,
    "num_bytes": list,
    "statistics": dict,
}
_CHOICES = {"masking": (STATIC, DYNAMIC), "sentence_objective": OBJECTIVES}
# The vocabulary's file, in Base64. Older sidecars do not have it.
VOCABULARY = "vocabulary_file"
# Further keys of dynamic records.
_DYNAMIC_TYPES = {"masking_rule": dict, "vocabulary": dict}


def sidecar_path(record_file: str) -> str:
    """Returns the name of the sidecar of a record file."""
    stem = re.sub(r"\.(tfrecord|tf_record)$", "", record_file)
    return re.sub(r"-\d{5}-of-\d{5}$", "", stem) + _SUFFIX


def unfinished_folder(record_file: str) -> str:
    """Returns the folder that marks the set of a record file as unfinished."""
    folder, name = os.path.split(sidecar_path(record_file))
    name = name.removesuffix(_SUFFIX)
    return os.path.join(folder, f".{name}.unfinished")


def find_records(patterns: str) -> list[str]:
    """Returns the sorted record files among the matches of names or globs.

    Raises:
      ValueError: see `filesystem.expand_files`; or if there are only sidecars.
    """
    files = filesystem.expand_files(str(patterns))
    records = [file for file in files if not file.endswith(_SUFFIX)]
    if not records:
        raise ValueError(
            f"{files[0]} describes records; wanted the records themselves, "
            f"such as '{files[0].removesuffix(_SUFFIX)}*'."
        )
    return records


def write_sidecar(path: str, description: dict) -> None:
    """Writes a sidecar; `read_sidecar` lists its keys."""
    description = {**description, "digest": _digest(description)}
    text = json.dumps(description, indent=2, sort_keys=True) + "\n"
    filesystem.write_file(path, text)


def encode_vocabulary(content: bytes) -> str:
    """Returns the content of a vocabulary as the value of `VOCABULARY`."""
    return base64.b64encode(content).decode()


def decode_vocabulary(description: dict) -> bytes | None:
    """Returns the content of the vocabulary; None in an older sidecar."""
    if VOCABULARY not in description:
        return None
    return base64.b64decode(description[VOCABULARY], validate=True)


def _digest(description):
    """Returns a digest of a description, by which edits are detected."""
    values = {k: v for k, v in description.items() if k != "digest"}
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def read_sidecar(files: list[str], is_strict: bool = True) -> dict | None:
    """Reads and verifies the sidecars of some record files.

    Args:
      files: names of record files that will be read together.
      is_strict: whether the files must have the sizes that are recorded.

    Returns:
      None if none of the files has a sidecar, else a dict with `format`,
      `max_seq_length`, `max_predictions_per_seq`, `num_predictions` (length
      of the masked_lm_* lists), `sentence_objective`, `tokenizer` and `flags`
      (of the program that wrote them), `masking`, `files`, `num_records` (of
      each file) and `statistics`; of dynamic records also `masking_rule` (the
      defaults) and `vocabulary`; `decode_vocabulary` has the vocabulary's
      file. `files`, `num_records` and
      `statistics["sequences"]` cover the requested files only; the other
      statistics cover the whole run that wrote the first file.

    Raises:
      ValueError: if the set is unfinished, or if the sidecars contradict the
        files or each other, do not list a file, are missing for some of the
        files, or are damaged.
      FileNotFoundError: if a file of the set is missing.
    """
    _check_finished(files)
    paths = {file: sidecar_path(file) for file in files}
    sidecars = {
        path: _load(path)
        for path in sorted(set(paths.values()))
        if filesystem.exists(path)
    }
    if not sidecars:
        return None
    first_path, (first, _) = next(iter(sidecars.items()))
    for file, path in paths.items():
        if path not in sidecars:
            raise ValueError(
                f"{file} has no sidecar {path}, but other files have one, "
                f"such as {first_path}. Read them in separate runs, or create "
                "all of them with create_pretraining_data.py, or move the "
                "*.dataset.json files away: the program then counts the "
                "records and assumes sentence-order labels."
            )
        _check_common(path, sidecars[path][0], first_path, first)
    num_records = [
        _num_records(file, path, sidecars[path][1], is_strict)
        for file, path in paths.items()
    ]
    known = {k: v for k, v in first.items() if k not in ("digest", "num_bytes")}
    return {
        **known,
        "files": [os.path.basename(file) for file in paths],
        "num_records": num_records,
        "statistics": {**first["statistics"], "sequences": sum(num_records)},
    }


def _check_common(path, own, first_path, first):
    """Raises ValueError if descriptions have different common settings."""
    for key in _COMMON_KEYS:
        ours, theirs = own.get(key), first.get(key)
        if key == "tokenizer":  # The name of its file may differ.
            ours, theirs = ({**x, "vocabulary": ""} for x in (ours, theirs))
        if ours == theirs:
            continue
        if key == "vocabulary":  # Of the same tokenizer.
            raise ValueError(
                f"By {path}, other pieces of the vocabulary start words than "
                f"by {first_path}. Was one of them created with "
                "words_from_spaces=True? Dynamic records with and without it "
                "cannot be read together."
            )
        raise ValueError(
            f"{path} says {key} = {ours!s:.200}, but {first_path} says "
            f"{theirs!s:.200}. Files with different settings cannot be read "
            "together."
        )


def _check_finished(files):
    folders = {unfinished_folder(file): file for file in files}
    for folder, file in folders.items():
        is_untouched = filesystem.exists(os.path.join(folder, UNTOUCHED))
        if filesystem.exists(folder) and not is_untouched:
            raise ValueError(
                f"{file} belongs to an unfinished set, as {folder} shows: the "
                "set may mix old and new files. Rerun the same "
                "create_pretraining_data.py command to resume, or remove this "
                "folder and all files of the set."
            )


def _load(path):
    """Reads and checks one sidecar; checks that its files exist.

    Returns:
      The description, and the numbers of records and of bytes of each file by
      its name; of an edited sidecar, the bytes are None.
    """
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
            f"missing, such as {missing[0]}. Were all files copied?"
        )
    num_bytes = description["num_bytes"]
    if description.get("digest") != _digest(description):
        logging.warning(
            "%s was edited; it is checked against the records.", path
        )
        num_bytes = [None] * len(names)
    sizes = zip(description["num_records"], num_bytes, strict=True)
    return description, dict(zip(names, sizes, strict=True))


def _check_values(path, description):
    is_dynamic = description.get("masking") == DYNAMIC
    types = _TYPES | _DYNAMIC_TYPES if is_dynamic else _TYPES
    for key, wanted in types.items():
        if type(description.get(key)) is not wanted:
            raise ValueError(
                f"{path} has no {key} of type {wanted.__name__}; found "
                f"{str(description.get(key)):.80}. Was it edited, or written "
                "by another program?"
            )
    names, counts = description["files"], description["num_records"]
    sizes = description["num_bytes"]
    are_counts = all(type(n) is int and n >= 0 for n in [*counts, *sizes])
    if (
        not are_counts
        or not all(isinstance(name, str) for name in names)
        or not len(names) == len(counts) == len(sizes)
    ):
        raise ValueError(
            f"{path} names {len(names)} files, but does not count the records "
            "of each. Was it edited?"
        )
    for key, choices in _CHOICES.items():
        if description[key] not in choices:
            raise ValueError(
                f"{path} says {key} = {description[key]!r}; wanted one of "
                f"{choices}. Was it edited, or written by another version?"
            )
    _check_vocabulary(path, description)


def _check_vocabulary(path, description):
    try:
        content = decode_vocabulary(description)
    except (TypeError, ValueError):
        content = b""
    if content is None:
        return
    found = hashlib.sha256(content).hexdigest()
    wanted = description["tokenizer"].get("sha256")
    if found != wanted:
        raise ValueError(
            f"The vocabulary in {path} has SHA-256 {found:.12}; its tokenizer "
            f"says {wanted!s:.12}. Was it edited? Restore the file, or remove "
            f'the key "{VOCABULARY}".'
        )


def _num_records(file, path, sizes, is_strict):
    """Verifies a file against its sidecar; returns its number of records."""
    name = os.path.basename(file)
    if name not in sizes:
        raise ValueError(
            f"{path} does not list {name}. Is the file left over from an "
            "older run?"
        )
    wanted, wanted_bytes = sizes[name]
    if not is_strict:
        return wanted
    if wanted_bytes is not None:
        num_bytes = filesystem.size(file)
        if num_bytes == wanted_bytes:
            return wanted
        raise ValueError(
            f"{file} has {num_bytes} bytes; {path} says {wanted_bytes}. Was it "
            "truncated, copied partially, or replaced? Copy both files again, "
            "or create them again with create_pretraining_data.py."
        )
    count = records.count_records(file)
    if count != wanted:
        raise ValueError(
            f"{file} has {count} records; {path} says {wanted}. Was either "
            "file truncated, replaced or edited? Copy both again, or create "
            "them again with create_pretraining_data.py."
        )
    return wanted
