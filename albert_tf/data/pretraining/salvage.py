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
_UNREADABLE = "what follows cannot be read"


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
        faults: list[str] = []
        name = file
        error: ValueError | None = None
        try:
            damage.check_files([file], features, limits)
            count = damage.count_records(file)
        except ValueError as raised:
            error = raised
            name = os.path.join(folder, str(index), os.path.basename(file))
            os.makedirs(os.path.dirname(name), exist_ok=True)
            valid = _valid_records(file, features, limits, faults)
            count = records.write_records(name, valid)
        if num_written:
            total = num_written[index]
            _check_number(file, count, total, faults)
            is_lost = 2 * count < total
        else:
            is_lost = 2 * filesystem.size(name) < filesystem.size(file)
        if is_lost:
            raise error or ValueError(
                f"{file} has only {count} of {total} records. Copy it again."
            )
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


def _check_number(file, count, num_written, faults):
    """Counts missing records, and refuses a file that has too many."""
    missing = num_written - count - len(faults)
    if missing == -1 and faults and faults[-1].endswith(_UNREADABLE):
        return  # What follows the last record is none.
    if missing < 0:
        raise ValueError(
            f"{file} has {count + len(faults)} records; its sidecar says "
            f"{num_written}. Was it replaced?"
        )
    if missing:
        faults.append(f"{missing} records at the end are missing")


def read_first_intact(file: str) -> bytes | None:
    """Returns the data of the first record with its checksum, or None."""
    for row, checksum in _read_frames(file, []):
        if checksums([row])[0] == checksum:
            return row
    return None


def _valid_records(file, features, limits, faults) -> Iterator[bytes]:
    """Yields the data of valid records; appends to `faults` what others are."""
    last_fault: list[str] = []
    frames = _read_frames(file, last_fault)
    for first in itertools.count(1, _RECORDS_AT_ONCE):
        group = list(itertools.islice(frames, _RECORDS_AT_ONCE))
        if not group:
            faults += last_fault
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


def _read_frames(file, last_fault):
    """Yields data and checksum of each record.

    It stops at a damaged length, and appends that fault to a list.
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
                last_fault.append(
                    f"record {number}: it extends beyond the end of the file, "
                    f"or its length is damaged; {_UNREADABLE}"
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
