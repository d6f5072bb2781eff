"""What a job leaves, and in what two such differ."""

import hashlib
import json
import pathlib
import re

import numpy as np
import tensorflow as tf

from albert_tf.weights import checkpoints

# Names of what must not be left by a run that ended well.
LEFT_OVER = re.compile(
    r"\.incomplete|\.writing-|\.tempstate|^temp-|\.lock$|\.unfinished"
)
LEFT = "left over"
# Training's own times and rates.
VOLATILE = ("time", "seconds", "sequences_per_second")


def describe(home):
    """What a job left: dict from a name to a text that is equal if it is.

    It may run TensorFlow's operations.

    Args:
      home: the folder in which the job worked.
    """
    found = {}
    for path in sorted(pathlib.Path(home).rglob("*")):
        name = str(path.relative_to(home))
        if any(map(LEFT_OVER.search, path.relative_to(home).parts)):
            # A lock of a file that is read from now on stays; nobody waits
            # for it.
            is_lock = name.startswith("cache/") and name.endswith(".lock")
            if LEFT_OVER.search(path.name) and not is_lock:
                found[name] = LEFT
        elif path.is_file():
            found |= _describe_file(name, path)
    newest = {}
    for name in sorted(found):
        # Of the versions of an export the newest is served; what comes of
        # earlier ones is a matter of when the program was stopped.
        newest[re.sub(r"(^|/)\d{9,}/", r"\1VERSION/", name)] = found[name]
    return newest


def _describe_file(name, path):
    ending = path.name.rsplit(".", 1)[-1]
    if path.name.startswith("events.out.tfevents"):
        return {}
    if path.name.endswith(checkpoints.DATA_ENDING):
        stem = path.name.removesuffix(checkpoints.DATA_ENDING)
        return {} if path.with_name(f"{stem}.index").exists() else {name: LEFT}
    if path.name == "fingerprint.pb":
        return {}
    if ending == "index":
        return {name: _describe_tensors(path.with_suffix(""))}
    if path.name == "saved_model.pb":
        return {name: _describe_model(path.parent)}
    if path.name == "metrics.jsonl":
        rows = map(json.loads, path.read_text().splitlines())
        return {name: "\n".join(map(_describe_row, rows))}
    if ending == "json":
        return {name: _describe_json(path)}
    content = path.read_bytes()
    if ending in ("txt", "tsv") or path.name == "checkpoint":
        return {name: content.decode()}
    return {name: hashlib.sha256(content).hexdigest()}


def _describe_row(row):
    """A line of metrics; of training only its step, as averages begin anew."""
    if row["split"] == "train":
        return f"train {row['step']}"
    return _without_times(row)


def _describe_json(path):
    try:
        return _without_times(json.loads(path.read_text()))
    except ValueError as error:
        return f"no JSON: {error}"


def _without_times(value):
    if isinstance(value, dict):
        value = {k: v for k, v in value.items() if k not in VOLATILE}
    return json.dumps(value, indent=1)


def _describe_tensors(prefix):
    try:
        values = checkpoints.read_checkpoint(prefix)
    except ValueError as error:
        return str(error)
    return _hash_arrays(values)


def _hash_arrays(values):
    lines = []
    for name in sorted(values):
        array = np.ascontiguousarray(values[name])
        if array.dtype.kind in "OSU":
            lines.append(f"{name} {array.tolist()}")
            continue
        found = hashlib.sha256(array.tobytes()).hexdigest()[:16]
        lines.append(f"{name} {array.dtype} {array.shape} {found}")
    return "\n".join(lines)


def _describe_model(folder):
    """Outputs of a SavedModel's signatures for a fixed request."""
    model = tf.saved_model.load(str(folder))
    lines = []
    for name, signature in sorted(model.signatures.items()):
        specs = signature.structured_input_signature[1]
        outputs = signature(
            **{key: _request(spec) for key, spec in specs.items()}
        )
        outputs = {key: value.numpy() for key, value in outputs.items()}
        lines.append(f"{name}: {_hash_arrays(outputs)}")
    # Some tell where their vocabulary is.
    return "\n".join(lines).replace(str(folder), "")


def _request(spec):
    """An input of two rows, whatever a signature wants."""
    shape = [2, *(7 if size is None else size for size in spec.shape[1:])]
    if spec.dtype == tf.string:
        example = tf.train.Example()
        for name in ("input_ids", "input_mask", "segment_ids"):
            feature = example.features.feature[name]
            feature.int64_list.value.extend([1] * 7)
        is_text = len(spec.shape) == 1 and "example" not in spec.name
        content = b"w1 w2" if is_text else example.SerializeToString()
        return tf.fill(shape, content)
    return tf.ones(shape, spec.dtype)


def differences(found, wanted):
    """Names of what differs, each with what is wrong.

    Args:
      found: from `describe`.
      wanted: likewise, of the run that nothing happened to.
    """
    complaints = []
    for name in sorted(found.keys() | wanted.keys()):
        if found.get(name) == wanted.get(name):
            continue
        if found.get(name) == LEFT:
            complaints.append(f"{name} is left over")
        elif name not in wanted:
            complaints.append(f"{name} is not the uninterrupted run's")
        elif name not in found:
            complaints.append(f"{name} is missing")
        else:
            complaints.append(f"{name} differs")
    return complaints
