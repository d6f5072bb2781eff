"""Finds damaged records and reports their file and number (from 1).

A TFRecord file stores each record as its length (8 bytes), a checksum of the
length (4), the data, and a checksum of the data (4). TensorFlow's errors name
neither the damaged file nor the record, and it does not check values.

Shapes: B batch, K values of a feature.
"""

import logging
import math
import mmap
import os
import struct

import numpy as np

from albert_tf import filesystem

_INT32 = np.iinfo(np.int32)
_LENGTH = struct.Struct("<Q")
_HEADER_BYTES = 12
_FOOTER_BYTES = 4
_RECORDS_AT_ONCE = 1024
_GZIP = b"\x1f\x8b"
# Above this size, checking takes long enough to log a message.
_LONG_BYTES = 1 << 30


def count_records(file: filesystem.Path) -> int:
    """Counts the records of a file; of a local one from the lengths alone.

    Raises:
      ValueError: if the file does not end at the end of a record.
    """
    if filesystem.is_remote(file):
        return _count_remote_records(file)
    size = os.path.getsize(file)
    if not size:
        return 0
    end = number = 0
    with (
        open(file, "rb") as opened,
        mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        while end + _HEADER_BYTES <= size:
            (length,) = _LENGTH.unpack_from(content, end)
            end += _HEADER_BYTES + length + _FOOTER_BYTES
            if end > size:
                break
            number += 1
        if end == size:
            return number
        raise ValueError(_explain_truncation(file, number + 1, content[:2]))


def _count_remote_records(file):
    import tensorflow as tf

    number = 0
    try:
        for _ in tf.data.TFRecordDataset(file):
            number += 1
    except tf.errors.DataLossError:
        raise ValueError(_explain_truncation(file, number + 1, b"")) from None
    return number


def _explain_truncation(file, number, start_bytes):
    """Explains why record `number` does not end within the file."""
    if start_bytes == _GZIP:
        return f"{file} is compressed. Unpack it with gunzip."
    if number == 1:
        return (
            f"{file} is not a TFRecord file, or it is truncated in record 1: "
            "the first record extends beyond the end of the file. Is it text? "
            "create_pretraining_data makes records of text."
        )
    return (
        f"{file} is damaged or truncated in record {number}: the record "
        "extends beyond the end of the file. Was it copied completely?"
    )


def read_first_record(file: filesystem.Path) -> bytes | None:
    """Returns the data of a file's first record; None for an empty file.

    Raises:
      ValueError: if the file is not a TFRecord file.
    """
    size = filesystem.size(file)
    if not size:
        return None
    with filesystem.open_file(file) as opened:
        header = opened.read(_HEADER_BYTES)
        if len(header) == _HEADER_BYTES:
            (length,) = _LENGTH.unpack_from(header)
            if _HEADER_BYTES + length + _FOOTER_BYTES <= size:
                return opened.read(length)
    raise ValueError(_explain_truncation(file, 1, header[:2]))


def parse(serialized, features: dict, limits: dict) -> dict:
    """Parses a batch of records; values out of range are an error.

    Integers without limits must fit into int32, as a cast would wrap them.

    Args:
      serialized: [B], strings.
      features: dict of name -> (shape, dtype name).
      limits: dict of name -> (least, most), for features with known limits.

    Returns:
      A dict of name -> [B, *shape], integers as int32.
    """
    import tensorflow as tf

    spec = {
        name: tf.io.FixedLenFeature(shape, dtype)
        for name, (shape, dtype) in features.items()
    }
    batch = {}
    for name, values in tf.io.parse_example(serialized, spec).items():
        least, most = _feature_limits(name, features, limits)
        if least is not None:
            tf.debugging.Assert(
                _are_within(values, least, most),
                [f"{name} is not in {least} to {most}"],
            )
        is_integer = values.dtype.is_integer
        batch[name] = tf.cast(values, tf.int32) if is_integer else values
    return batch


def _are_within(values, least, most):
    """Returns whether all values of a batch are in a range, as a tensor.

    Integers are reduced to one maximum of 32-bit words, which costs a tenth of
    comparing each value: a value below `least`, or far too large, sets the
    upper word.
    """
    import tensorflow as tf

    if not values.dtype.is_integer:
        return tf.reduce_all((values >= least) & (values <= most))
    words = tf.bitcast(values - least, tf.uint32)  # [B, *shape, 2]
    highest = tf.reduce_max(words, axis=0)
    return tf.reduce_all(highest <= tf.constant([most - least, 0], tf.uint32))


def _feature_limits(name, features, limits):
    is_float = features[name][1].startswith("float")
    default = (None, None) if is_float else (_INT32.min, _INT32.max)
    return limits.get(name, default)


def feature_sizes(serialized: bytes) -> dict[str, int]:
    """Returns the number of integers in each feature of a record, by name."""
    return {
        name: len(feature.int64_list.value)
        for name, feature in (_parse_example(serialized) or {}).items()
    }


def _parse_example(serialized):
    """Returns the features by name; None if not a `tf.train.Example`."""
    import tensorflow as tf
    from google.protobuf import message

    try:
        return tf.train.Example.FromString(serialized).features.feature
    except message.DecodeError:
        return None


def explain_record(
    serialized: bytes, features: dict, limits: dict
) -> str | None:
    """Explains what is wrong with a record.

    Returns:
      A clause, or None if the record is valid.
    """
    found = _parse_example(serialized)
    if found is None:
        return "it is not a tf.train.Example"
    if missing := sorted(features.keys() - found.keys()):
        return f"it lacks {missing}; it has {sorted(found)}"
    for name, (shape, dtype) in features.items():
        kind = found[name].WhichOneof("kind")
        wanted = "float_list" if dtype.startswith("float") else "int64_list"
        if kind not in (wanted, None):
            return f"{name} is a {kind}, wanted {wanted}"
        values = getattr(found[name], wanted).value
        if len(values) != math.prod(shape):
            return f"{name} has {len(values)} values, wanted {shape[0]}"
        least, most = _feature_limits(name, features, limits)
        for i, value in enumerate(values):
            if least is not None and not least <= value <= most:
                return f"{name}[{i}] is {value}, wanted {least} to {most}"
    return None


def reading_errors() -> tuple[type[BaseException], ...]:
    """Returns the exceptions that TensorFlow raises on damaged records."""
    import tensorflow as tf

    return (
        tf.errors.DataLossError,
        tf.errors.InvalidArgumentError,
        tf.errors.NotFoundError,
        UnicodeDecodeError,  # From a message that quotes the damaged bytes.
    )


def check_files(
    files, features: dict, limits: dict, max_bytes: int | None = None
):
    """Reads records and raises an error at the first invalid one.

    Args:
      files: names of TFRecord files.
      features: dict of name -> (shape, dtype name); others are not checked.
      limits: dict of name -> (least, most), for features with known limits.
      max_bytes: if the total size is larger, only the first record of each
        file is checked. None checks all records.

    Raises:
      ValueError: if a record is damaged, lacks a feature, or has too many, too
        few or out-of-range values; names the file and the record.
    """
    num_bytes = sum(filesystem.size(file) for file in files)
    if max_bytes is not None and num_bytes > max_bytes:
        for file in files:
            first = read_first_record(file)
            if first is not None:
                _check_record(file, 1, first, features, limits)
        return
    if num_bytes > _LONG_BYTES:
        logging.warning("Checking the records of %d files.", len(files))

    for file in files:
        _check_file(file, features, limits)


def _check_file(file, features, limits):
    import tensorflow as tf

    if not filesystem.is_remote(file):
        count_records(file)
    number = 0  # of valid records
    try:
        for serialized in tf.data.TFRecordDataset(file).batch(_RECORDS_AT_ONCE):
            parse(serialized, features, limits)
            number += len(serialized)
        return
    except reading_errors():
        pass  # Find the record by parsing one at a time.
    try:
        for serialized in tf.data.TFRecordDataset(file).skip(number):
            number += 1
            _check_record(file, number, serialized.numpy(), features, limits)
    except tf.errors.DataLossError:
        raise ValueError(
            f"{file}, record {number + 1}: the data do not match their "
            "checksum; they are damaged. Copy or create the file again."
        ) from None


def _check_record(file, number, serialized, features, limits):
    if fault := explain_record(serialized, features, limits):
        raise ValueError(
            f"{file}, record {number}: {fault}. Is it damaged, or created with "
            "other settings or another vocabulary?"
        )
