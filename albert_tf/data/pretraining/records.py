"""The format of record files: features, serialization, parsing, counting.

A TFRecord file stores each record as its length (8 bytes), a checksum of the
length (4), the data, and a checksum of the data (4). The data are a serialized
`tf.train.Example`, whose features keep the release's names from disk to layer.

TensorFlow is imported inside the functions that need it: the worker processes
of `shards` only serialize, and TensorFlow would add 600 MB to each.

Shapes: N examples, K values per feature, B batch, T tokens, P predictions.
"""

import functools
import mmap
import os
import struct
from collections.abc import Iterable

import numpy as np

from albert_tf import filesystem, quiet_import

_INT32 = np.iinfo(np.int32)
_LENGTH = struct.Struct("<Q")
_HEADER_BYTES = 12
_FOOTER_BYTES = 4
_GZIP = b"\x1f\x8b"


class DamagedFile(ValueError):
    """A file has a record that cannot be read or used.

    Attributes:
      num_intact: number of records before it.
    """

    def __init__(self, message: str, num_intact: int):
        super().__init__(message)
        self.num_intact = num_intact


def pretraining_features(max_seq_length: int, num_predictions: int) -> dict:
    """Returns the features of a pretraining record.

    Args:
      max_seq_length: tokens per sequence, after padding, T.
      num_predictions: length of the masked_lm_* lists, P; with permutation,
        twice max_predictions_per_seq.

    Returns:
      A dict of name -> (shape, dtype name).

    Source: create_pretraining_data.py, `write_instance_to_example_files`.
    """
    tokens = ((max_seq_length,), "int64")
    predictions = ((num_predictions,), "int64")
    return {
        "input_ids": tokens,
        "input_mask": tokens,
        "segment_ids": tokens,
        "token_boundary": tokens,
        "masked_lm_positions": predictions,
        "masked_lm_ids": predictions,
        "masked_lm_weights": ((num_predictions,), "float32"),
        "next_sentence_labels": ((1,), "int64"),
    }


def dynamic_features(max_seq_length: int) -> dict:
    """Returns the features of a record without masks, by name.

    The other features of `pretraining_features` follow from these and from
    the vocabulary in the sidecar. Storing input_mask, segment_ids and
    token_boundary as well would double the size. Padding costs little, as
    most sequences are full.
    """
    return {
        "input_ids": ((max_seq_length,), "int64"),
        "segment_ends": ((2,), "int64"),
        "next_sentence_labels": ((1,), "int64"),
    }


# Serialization. An Example consists of nested length-prefixed messages. Its
# only long parts are one packed list per feature, so all rows of a feature are
# packed at once.


def encode_examples(features: dict[str, np.ndarray]) -> list[bytes]:
    """Serializes each row of the given arrays as a `tf.train.Example`.

    Args:
      features: dict of name -> [N, K] array; integers become int64 lists,
        floats float lists. K may differ between features.

    Returns:
      N byte strings.

    Raises:
      ValueError: if an array is not [N, K], or neither integers nor floats.
    """
    num_rows = {len(values) for values in features.values()}
    if len(num_rows) != 1:
        raise ValueError(
            f"Features must have the same number of rows; got "
            f"{sorted(num_rows)}."
        )
    columns = map(_encode_column, features, map(np.asarray, features.values()))
    bodies = map(b"".join, zip(*columns, strict=True))
    return [_length_prefixed(0x0A, len(body)) + body for body in bodies]


def _encode_column(name, values):
    """Serializes each row of `values` as one map entry of `Features`."""
    if values.ndim != 2 or values.dtype.kind not in "iubf":
        raise ValueError(
            f"Feature {name!r} must be an [N, K] array of integers or floats; "
            f"got shape {values.shape} of {values.dtype}."
        )
    tag = 0x1A  # Feature.int64_list
    if values.dtype.kind == "f":
        tag = 0x12  # Feature.float_list
        packed = np.ascontiguousarray(values, "<f4").tobytes()
        sizes = np.full(len(values), 4 * values.shape[1])
    else:
        packed, sizes = _pack_varints(values)
    ends = np.cumsum(sizes).tolist()
    return [
        _entry_header(name, tag, size) + packed[end - size : end]
        for size, end in zip(sizes.tolist(), ends, strict=True)
    ]


def _pack_varints(values):
    """Packs rows of integers [N, K]; returns the bytes and each row's size."""
    if values.size == 0:
        return b"", np.zeros(len(values), np.int64)
    if 0 <= values.min() and values.max() < 128:
        sizes = np.full(len(values), values.shape[1])
        return values.astype(np.uint8).tobytes(), sizes
    # Negative numbers are encoded in two's complement, in ten bytes.
    values = values.astype(np.int64).view(np.uint64)
    width = (int(values.max()).bit_length() + 6) // 7
    if width <= 4:
        values = values.astype(np.uint32)
    digits = np.empty((*values.shape, width), np.uint8)  # [N, K, width]
    is_used = np.empty(digits.shape, bool)
    for i in range(width):
        rest = values >> np.array(7 * i, values.dtype)
        is_used[..., i] = (rest > 0) if i else True
        is_continued = rest > 127
        digits[..., i] = (rest & 127) | (is_continued * 128).astype(np.uint8)
    sizes = is_used.sum(axis=(1, 2))
    return digits[is_used].tobytes(), sizes


@functools.lru_cache(maxsize=100_000)
def _entry_header(name, tag, size):
    """Returns the bytes that precede a packed list of `size` bytes."""
    packed = _length_prefixed(0x0A, size)  # Int64List.value, FloatList.value
    feature = _length_prefixed(tag, len(packed) + size) + packed
    key = name.encode()
    entry = _length_prefixed(0x0A, len(key)) + key
    entry += _length_prefixed(0x12, len(feature) + size) + feature
    return _length_prefixed(0x0A, len(entry) + size) + entry


def _length_prefixed(tag, size):
    prefix = bytearray([tag])
    while size > 127:
        prefix.append(size & 127 | 128)
        size >>= 7
    prefix.append(size)
    return bytes(prefix)


def write_records(path: filesystem.Path, serialized: Iterable[bytes]) -> int:
    """Writes a TFRecord file atomically.

    Returns:
      The number of records.
    """
    tf = quiet_import.import_quietly("tensorflow")

    num_records = 0
    with filesystem.replacing(path) as temporary:
        with tf.io.TFRecordWriter(temporary) as writer:
            for record in serialized:
                writer.write(record)
                num_records += 1
    return num_records


# Parsing, and counting.


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
        least, most = limits_of_feature(name, features, limits)
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


def limits_of_feature(name: str, features: dict, limits: dict) -> tuple:
    """Returns the least and the most value, None if any float is allowed."""
    is_float = features[name][1].startswith("float")
    default = (None, None) if is_float else (_INT32.min, _INT32.max)
    return limits.get(name, default)


def count_records(file: filesystem.Path) -> int:
    """Counts the records of a file; of a local one from the lengths alone.

    Raises:
      DamagedFile: if the file does not end at the end of a record.
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
        raise _truncated(file, number, content[:2])


def _count_remote_records(file):
    import tensorflow as tf

    number = 0
    try:
        for _ in tf.data.TFRecordDataset(file):
            number += 1
    except tf.errors.DataLossError:
        raise _truncated(file, number, b"") from None
    return number


def _truncated(file, num_intact, start_bytes):
    """Returns the error of a file that ends within a record."""
    number = num_intact + 1
    if start_bytes == _GZIP:
        message = f"{file} is compressed. Unpack it with gunzip."
    elif number == 1:
        message = (
            f"{file} is not a TFRecord file, or it is truncated in record 1: "
            "the first record extends beyond the end of the file. Is it text? "
            "create_pretraining_data makes records of text."
        )
    else:
        message = (
            f"{file} is damaged or truncated in record {number}: the record "
            "extends beyond the end of the file. Was it copied completely?"
        )
    return DamagedFile(message, num_intact)


def parse_example(serialized: bytes):
    """Returns the features by name; None if not a `tf.train.Example`."""
    import tensorflow as tf
    from google.protobuf import message

    try:
        return tf.train.Example.FromString(serialized).features.feature
    except message.DecodeError:
        return None
