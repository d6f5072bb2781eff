"""Recognizes the format of a file by its first bytes."""

import re

# (bytes, their offset, the format); the first match counts. The four compressed
# formats have no article because tables of readers have them as keys.
KINDS = (
    (b"\x1f\x8b", 0, "gzip"),
    (b"BZh", 0, "bzip2"),
    (b"\xfd7zXZ\0", 0, "xz"),
    (b"\x28\xb5\x2f\xfd", 0, "zstd"),
    (b"PK\x03\x04", 0, "a zip archive (.zip, .docx, .xlsx)"),
    (b"7z\xbc\xaf\x27\x1c", 0, "a 7z archive"),
    (b"Rar!", 0, "a RAR archive"),
    (b"ustar", 257, "a tar archive"),
    (b"\xff\xfe\0\0", 0, "text in UTF-32"),
    (b"\0\0\xfe\xff", 0, "text in UTF-32"),
    (b"\xff\xfe", 0, "text in UTF-16"),
    (b"\xfe\xff", 0, "text in UTF-16"),
    (b"%PDF-", 0, "a PDF document"),
    (b"{\\rtf", 0, "an RTF document"),
    (b"\xd0\xcf\x11\xe0", 0, "a document of Microsoft Office"),
    (b"PAR1", 0, "a Parquet table"),
    (b"ARROW1", 0, "an Arrow table"),
    (b"\x89HDF", 0, "an HDF5 file"),
    (b"SQLite format", 0, "an SQLite database"),
    (b"\x80\x02", 0, "a Python pickle"),
    (b"\x80\x04", 0, "a Python pickle"),
    (b"\x80\x05", 0, "a Python pickle"),
    (b"\x93NUMPY", 0, "a NumPy array"),
    (b"version https://git-lfs", 0, "a pointer of Git LFS, not the file"),
)
COMPRESSED = ("gzip", "bzip2", "xz", "zstd")
NUM_BYTES = 512
# Escapes that begin Japanese text, or end it.
_ISO_2022_JP = re.compile(rb"\x1b(\$[@B]|\(J)")


def describe(content: bytes) -> str | None:
    """Returns the format, such as "a PDF document"; None for text and others.

    Args:
      content: the first NUM_BYTES of the file, or more.
    """
    for start, offset, kind in KINDS:
        if content.startswith(start, offset):
            return kind
    head = content[:NUM_BYTES].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html")):
        return "an HTML page"
    if head.startswith((b"<?xml", b"<mediawiki")):
        return "an XML document"
    start = content[:65_536]  # Mails have long headers.
    if start.isascii() and _ISO_2022_JP.search(start):
        return "text in ISO-2022-JP"
    # UTF-16 without a byte order mark: every other byte of Latin text is zero.
    for first in (0, 1):
        half = content[first:NUM_BYTES:2]
        if len(half) > 1 and not any(half) and any(content[:NUM_BYTES]):
            return "text in UTF-16"
    return None
