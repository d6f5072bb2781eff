"""Serializes `tf.train.Example`s and writes TFRecord files.

Features keep the release's names from disk to layer. TensorFlow is imported
inside the functions that need it, because worker processes that only
serialize do not.

Shapes: N examples, K values per feature, T tokens, P predictions.
"""

import functools
from collections.abc import Iterable

import numpy as np

from albert_tf import filesystem, quiet_import


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
    """Returns the features of a record without masks, as in the above.

    They are what the release's features follow from, with the vocabulary in
    the sidecar: storing input_mask, segment_ids and token_boundary as well
    would double the size. Padding costs little, as most sequences are full.
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


def mask_checksum(crc):
    """Returns a CRC-32C as TFRecord files store it, rotated and shifted.

    Data that contain checksums then differ from their own.

    Args:
      crc: an integer, or an array of uint32.
    """
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


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
