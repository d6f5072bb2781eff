"""Finds damaged records and reports their file and number (from 1).

TensorFlow's errors name neither the damaged file nor the record, and it does
not check values. After an error, it cannot read the rest of the file.
"""

import logging
import math

import tensorflow as tf

from albert_tf import filesystem
from albert_tf.data.pretraining import records

_RECORDS_AT_ONCE = 1024
# Above this size, checking takes long enough to log a message.
_LONG_BYTES = 1 << 30
# What TensorFlow raises on damaged records.
READING_ERRORS = (
    tf.errors.DataLossError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    # Python cannot decode a message that quotes the damaged bytes.
    UnicodeDecodeError,
)


def explain_record(
    serialized: bytes, features: dict, limits: dict
) -> str | None:
    """Explains what is wrong with a record.

    Returns:
      A clause, or None if the record is valid.
    """
    stored = records.parse_example(serialized)
    if stored is None:
        return "it is not a tf.train.Example"
    if missing := sorted(features.keys() - stored.keys()):
        return f"it lacks {missing}; it has {sorted(stored)}"
    for name, (shape, dtype) in features.items():
        kind = stored[name].WhichOneof("kind")
        wanted = "float_list" if dtype.startswith("float") else "int64_list"
        if kind not in (wanted, None):
            return f"{name} is a {kind}, wanted {wanted}"
        values = getattr(stored[name], wanted).value
        if len(values) != math.prod(shape):
            return f"{name} has {len(values)} values, wanted {shape[0]}"
        least, most = records.limits_of_feature(name, features, limits)
        for i, value in enumerate(values):
            if least is not None and not least <= value <= most:
                return f"{name}[{i}] is {value}, wanted {least} to {most}"
    return None


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
      DamagedFile: if a record is damaged, lacks a feature, or has too many,
        too few or out-of-range values; names the file and the record.
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


def count_usable(
    files, features: dict, limits: dict, num_written: list[int] | None
) -> tuple[int, dict[str, records.DamagedFile]]:
    """Counts the records of each file up to its first damaged one.

    Args:
      files: names of TFRecord files, all of which are read.
      features: as in `check_files`.
      limits: as in `check_files`.
      num_written: number of records that each file should have, if known.

    Returns:
      The number of usable records in all files, and the error of each damaged
      file by its name.

    Raises:
      ValueError: if no record of a file is usable, or if it has more than
        were written: it is probably no record file, or another one.
    """
    total, damaged = 0, {}
    for i, file in enumerate(files):
        wanted = num_written[i] if num_written else None
        try:
            count = _check_file(file, features, limits)
            if wanted is not None and count < wanted:
                raise records.DamagedFile(
                    f"{file} has only {count} of {wanted} records.", count
                )
        except records.DamagedFile as error:
            if not error.num_intact:
                raise
            damaged[file], count = error, error.num_intact
            lost = "the rest" if wanted is None else f"{wanted - count}"
            logging.warning(
                "%s Its first %d records are used, %s are left out.",
                error,
                count,
                lost,
            )
        if wanted is not None and count > wanted:
            raise ValueError(
                f"{file} has {count} records; its sidecar says {wanted}. Was "
                "it replaced?"
            )
        total += count
    return total, damaged


def read_first_record(file: filesystem.Path) -> bytes | None:
    """Returns the data of a file's first record; None for an empty file.

    Raises:
      DamagedFile: if the file is no TFRecord file, or its record is damaged.
    """
    try:
        for serialized in tf.data.TFRecordDataset(file).take(1):
            return serialized.numpy()
    except tf.errors.DataLossError:
        raise _explain_data_loss(file, 0) from None
    # TensorFlow ignores an incomplete length at the end of a file.
    if filesystem.size(file):
        raise _explain_data_loss(file, 0)
    return None


def _check_file(file, features, limits):
    """Returns the number of records, which are all valid."""
    number = 0  # of valid records
    try:
        for serialized in tf.data.TFRecordDataset(file).batch(_RECORDS_AT_ONCE):
            records.parse(serialized, features, limits)
            number += len(serialized)
    except READING_ERRORS:
        pass  # Find the record by parsing one at a time, below.
    else:
        if not filesystem.is_remote(file):
            # TensorFlow ignores an incomplete length at the end of a file.
            records.count_records(file)
        return number
    try:
        for serialized in tf.data.TFRecordDataset(file).skip(number):
            _check_record(
                file, number + 1, serialized.numpy(), features, limits
            )
            number += 1
    except tf.errors.DataLossError:
        raise _explain_data_loss(file, number) from None
    return number


def _explain_data_loss(file, num_intact):
    """Returns the error of a file that TensorFlow cannot read further."""
    if not filesystem.is_remote(file):
        try:
            records.count_records(file)
        except records.DamagedFile as error:
            if error.num_intact == num_intact:
                return error
    return records.DamagedFile(
        f"{file}, record {num_intact + 1}: the data do not match their "
        "checksum; they are damaged. Copy or create the file again.",
        num_intact,
    )


def _check_record(file, number, serialized, features, limits):
    if fault := explain_record(serialized, features, limits):
        raise records.DamagedFile(
            f"{file}, record {number}: {fault}. Is it damaged, or created with "
            "other settings or another vocabulary?",
            number - 1,
        )
