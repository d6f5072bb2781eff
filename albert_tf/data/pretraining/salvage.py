"""Copies damaged record files without their damaged records.

TensorFlow cannot read on after a damaged record. The copies have none, so that
whatever depends on positions in the data, such as resuming, stays exact.

Shapes: N records, L bytes of the longest.
"""

import dataclasses
import itertools
import logging
import os
import struct
from collections.abc import Iterator

import numpy as np

from albert_tf import filesystem
from albert_tf.data.pretraining import damage, records

_HEADER = struct.Struct("<QI")  # Length, and its checksum.
_FOOTER = struct.Struct("<I")
_RECORDS_AT_ONCE = 1024
# CRC-32C, whose reversed polynomial is this, of each byte.
_POLYNOMIAL = 0x82F63B78
# Faults listed in the log and in a run's manifest; others are only counted.
_MAX_LISTED = 20


@dataclasses.dataclass(frozen=True)
class Salvaged:
    """Files of which every record is valid.

    Attributes:
      sources: the names of the original files.
      files: for each, its name, or the name of its copy.
      num_records: number of records in each.
      faults: dict of damaged file -> what is wrong with which of its records.
    """

    sources: list[str]
    files: list[str]
    num_records: list[int]
    faults: dict[str, list[str]]

    def describe(self) -> dict:
        """Returns the first faults of each file, for a run's manifest."""
        names = filesystem.name_briefly([f.split("/") for f in self.faults])
        return dict(zip(names, map(listed, self.faults.values()), strict=True))


def listed(faults: list[str]) -> list[str]:
    """Returns the first faults, and the number of others."""
    more = len(faults) - _MAX_LISTED
    return faults[:_MAX_LISTED] + ([f"{more} more"] if more > 0 else [])


def replace_damaged(
    files: list[str],
    folder: str,
    features: dict,
    limits: dict,
    num_written: list[int] | None = None,
) -> Salvaged:
    """Reads all records, and copies the files that have damaged ones.

    Args:
      files: names of TFRecord files.
      folder: local folder for the copies.
      features: as in `damage.check_files`.
      limits: as in `damage.check_files`.
      num_written: number of records that each file should have, if known.

    Raises:
      ValueError: if less than half of a file is valid: of its records, or of
        its bytes if their number is not known; or if it has more records than
        were written. It is probably no record file, or another one.
    """
    found = Salvaged(files, [], [], {})
    for index, file in enumerate(files):
        copy = os.path.join(folder, str(index), os.path.basename(file))
        total = num_written[index] if num_written else None
        name, count, faults = _replace(file, copy, features, limits, total)
        if faults:
            found.faults[file] = faults
            logging.warning(
                "%s is damaged: %d records are used, and others skipped: %s.",
                file,
                count,
                "; ".join(listed(faults)),
            )
        found.files.append(name)
        found.num_records.append(count)
    return found


def _replace(file, copy, features, limits, num_written):
    """Returns name, number of records and faults of a file or its copy."""
    faults: list[str] = []
    unreadable: list[str] = []
    name = file
    error: ValueError | None = None
    try:
        damage.check_files([file], features, limits)
        count = damage.count_records(file)
    except ValueError as raised:
        error = raised
        name = copy
        os.makedirs(os.path.dirname(name), exist_ok=True)
        valid = _valid_records(file, features, limits, faults, unreadable)
        count = records.write_records(name, valid)
    num_found = count + len(faults)
    faults += unreadable
    if num_written is None:
        is_lost = 2 * filesystem.size(name) < filesystem.size(file)
    elif num_found > num_written:
        raise ValueError(
            f"{file} has {num_found} records; its sidecar says "
            f"{num_written}. Was it replaced?"
        )
    else:
        missing = num_written - num_found - len(unreadable)
        if missing > 0:
            faults.append(f"{missing} records at the end are missing")
        is_lost = 2 * count < num_written
    if is_lost:
        raise error or ValueError(
            f"{file} has only {count} of {num_written} records. Copy it again."
        )
    return name, count, faults


def read_first_intact(file: str) -> bytes | None:
    """Returns the data of the first record with its checksum, or None."""
    for row, checksum in _read_frames(file, []):
        if checksums([row])[0] == checksum:
            return row
    return None


def _valid_records(
    file, features, limits, faults, unreadable
) -> Iterator[bytes]:
    """Yields the data of valid records.

    It appends to `faults` what is wrong with each other record, and to
    `unreadable` where it cannot read on.
    """
    frames = _read_frames(file, unreadable)
    for first in itertools.count(1, _RECORDS_AT_ONCE):
        group = list(itertools.islice(frames, _RECORDS_AT_ONCE))
        if not group:
            return
        rows, wanted = zip(*group, strict=True)
        is_intact = (checksums(rows) == wanted).tolist()
        intact = list(itertools.compress(rows, is_intact))
        is_valid = _are_valid(intact, features, limits)
        for number, row in enumerate(rows, first):
            fault = None
            if not is_intact[number - first]:
                fault = "the data do not match their checksum"
            elif not is_valid:
                fault = damage.explain_record(row, features, limits)
            if fault:
                faults.append(f"record {number}: {fault}")
            else:
                yield row


def _are_valid(rows, features, limits):
    """Returns whether all records of a list are valid."""
    if not rows:
        return True
    try:
        damage.parse(rows, features, limits)
    except damage.reading_errors():
        return False
    return True


def _read_frames(file, unreadable):
    """Yields data and checksum of each record.

    It stops at a damaged length, and appends that fault to `unreadable`.
    """
    left = filesystem.size(file)
    with filesystem.open_file(file) as opened:
        for number in itertools.count(1):
            if not left:
                return
            header = opened.read(_HEADER.size)
            left -= len(header)
            is_whole = len(header) == _HEADER.size
            if is_whole:
                length, checksum = _HEADER.unpack(header)
                is_whole = checksums([header[:8]])[0] == checksum
                left -= length + _FOOTER.size
            if not is_whole or left < 0:
                unreadable.append(
                    f"record {number}: it extends beyond the end of the file, "
                    "or its length is damaged; what follows cannot be read"
                )
                return
            data = opened.read(length)
            yield data, *_FOOTER.unpack(opened.read(_FOOTER.size))


def checksums(rows) -> np.ndarray:
    """Returns the checksums of byte strings as TFRecord files store them, [N].

    They are CRC-32C, computed a column of bytes at a time.
    """
    lengths = np.array([len(row) for row in rows])
    data = np.zeros((len(rows), lengths.max(initial=0)), np.uint8)  # [N, L]
    data[np.arange(data.shape[1]) < lengths[:, None]] = np.frombuffer(
        b"".join(rows), np.uint8
    )
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for i, column in enumerate(np.ascontiguousarray(data.T)):
        after = _CRC_OF_BYTE[(crc ^ column) & 0xFF] ^ (crc >> np.uint32(8))
        crc = np.where(i < lengths, after, crc)
    return records.mask_checksum(~crc)


def _crc_of_bytes():
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        is_odd = (crc & 1).astype(bool)
        crc = (crc >> np.uint32(1)) ^ np.where(is_odd, _POLYNOMIAL, 0).astype(
            np.uint32
        )
    return crc


_CRC_OF_BYTE = _crc_of_bytes()
