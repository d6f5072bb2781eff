"""Reads compressed text; a damaged or truncated file is an error.

Beam's own reader takes the end of a truncated file for the end of the text.
"""

import bz2
import contextlib
import gzip
import importlib
import lzma
import os
import zlib
from collections.abc import Callable

from albert_tf import file_kinds

_ENDINGS = {
    ".gz": "gzip",
    ".bz2": "bzip2",
    ".xz": "xz",
    ".lzma": "xz",
    ".zst": "zstd",
    ".zstd": "zstd",
}
_ERRORS = (EOFError, OSError, lzma.LZMAError, zlib.error)


def is_compressed(path: str) -> bool:
    """Whether a name has the ending of a compressed file."""
    return _ending(path) in _ENDINGS


@contextlib.contextmanager
def opening(path: str, open_bytes: Callable):
    """Context manager: yields the decompressed text of a file, as a file.

    Args:
      path: name of a file. Its first bytes or, if they are unknown, its
        ending say how it is compressed, if it is.
      open_bytes: function that opens a path for reading what is stored.

    Raises:
      ImportError: if zstd needs a package that is not installed.
      ValueError: if the file cannot be decompressed to its end; names it.
    """
    with open_bytes(path) as stored:
        kind = file_kinds.describe(stored.read(file_kinds.NUM_BYTES))
        stored.seek(0)
        if kind not in file_kinds.COMPRESSED:
            kind = _ENDINGS.get(_ending(path))
        if not kind:
            yield stored
            return
        reader, errors = _reader(kind, path)
        try:
            with reader(stored) as text:
                yield text
        except errors as error:
            # Errors of the system have a number, errors of the data have none.
            if getattr(error, "errno", None):
                raise
            raise ValueError(
                f"{path} cannot be decompressed: {str(error).rstrip('.')}. "
                "Was it copied completely, and does its name have the right "
                "ending?"
            ) from error


def _reader(kind, path):
    """Returns a function that decompresses, and its errors for bad data."""
    if kind == "gzip":
        return lambda stored: gzip.GzipFile(fileobj=stored), _ERRORS
    if kind == "bzip2":
        return bz2.BZ2File, _ERRORS
    if kind == "xz":
        return lzma.LZMAFile, _ERRORS
    try:
        zstd = importlib.import_module("backports.zstd")
    except ModuleNotFoundError:
        raise ImportError(
            f"{path} is compressed with zstd, which needs the extra `corpus`: "
            "pip install backports-zstd."
        ) from None
    return zstd.ZstdFile, (*_ERRORS, zstd.ZstdError)


def _ending(path):
    return os.path.splitext(path)[1].lower()
