"""Reads compressed text; a damaged or truncated file is an error.

Beam's own reader takes the end of a truncated file for the end of the text.
"""

import bz2
import contextlib
import gzip
import lzma
import os
import zlib
from collections.abc import Callable

import backports.zstd

_READERS: dict[str, Callable] = {
    ".gz": lambda stored: gzip.GzipFile(fileobj=stored),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".lzma": lzma.LZMAFile,
    ".zst": backports.zstd.ZstdFile,
    ".zstd": backports.zstd.ZstdFile,
}
_ERRORS = (
    EOFError,
    OSError,
    lzma.LZMAError,
    zlib.error,
    backports.zstd.ZstdError,
)


def is_compressed(path: str) -> bool:
    """Whether a name has the ending of a compressed file."""
    return _ending(path) in _READERS


@contextlib.contextmanager
def opening(path: str, open_bytes: Callable):
    """Context manager: yields the decompressed text of a file, as a file.

    Args:
      path: name of a file. Its ending says how it is compressed, if it is.
      open_bytes: function that opens a path for reading what is stored.

    Raises:
      ValueError: if the file cannot be decompressed to its end; names it.
    """
    with open_bytes(path) as stored:
        if not is_compressed(path):
            yield stored
            return
        try:
            with _READERS[_ending(path)](stored) as text:
                yield text
        except _ERRORS as error:
            if getattr(error, "errno", None):  # Of the system, not of the data.
                raise
            raise ValueError(
                f"{path} cannot be decompressed: {str(error).rstrip('.')}. "
                "Was it copied completely, and does its name have the right "
                "ending?"
            ) from error


def _ending(path):
    return os.path.splitext(path)[1].lower()
