"""Unpacks tar archives of checkpoints, and refuses unsafe ones."""

import contextlib
import io
import lzma
import pathlib
import tarfile
import tempfile
import zlib
from collections.abc import Iterator

from albert_tf import filesystem
from albert_tf.weights import keras_hub

# An archive that exceeds both limits is no checkpoint: weights compress little.
MAX_UNPACKED = 200_000_000  # Bytes.
MAX_COMPRESSION = 20
MAX_MEMBERS = 10_000
# Errors of damaged archives, in addition to those of tarfile.
_DAMAGE = (zlib.error, lzma.LZMAError, ValueError)


@contextlib.contextmanager
def unpacked(path: filesystem.Path) -> Iterator[str]:
    """Unpacks an archive temporarily; yields its folder with a model.

    Raises:
      ValueError: if the archive is damaged, is too large, contains links or
        paths outside its folder, or does not contain exactly one checkpoint.
    """
    content = filesystem.read_file(path)
    with tempfile.TemporaryDirectory(prefix="albert_tf-") as folder:
        try:
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                problem = _find_problem(archive, len(content))
                if problem is None:
                    # Python before 3.12 may lack it; `_find_problem` alone
                    # protects there.
                    is_known = hasattr(tarfile, "data_filter")
                    safe: dict = {"filter": "data"} if is_known else {}
                    archive.extractall(folder, **safe)
        except (tarfile.TarError, EOFError, OSError, *_DAMAGE) as error:
            if isinstance(error, OSError) and error.errno:  # Of the disk.
                where = error.filename or folder  # TMPDIR chooses it.
                raise OSError(error.errno, error.strerror, where) from error
            raise ValueError(
                f"{path} cannot be unpacked: {error}. Was the download cut off?"
            ) from error
        if problem:
            raise ValueError(f"{path} {problem} Nothing was unpacked.")
        root = pathlib.Path(folder)
        folders = {p.parent for p in root.rglob("*.index")}
        folders = {p.parent if p.name == "variables" else p for p in folders}
        for name in ("*.safetensors", keras_hub.WEIGHTS_FILE):
            folders |= {p.parent for p in root.rglob(name)}
        if len(folders) != 1:
            raise ValueError(
                f"{path} has {len(folders)} folders with a checkpoint; wanted "
                "one. Unpack it and give the folder to read."
            )
        yield str(folders.pop())


def _find_problem(archive, size):
    """Returns why an archive of `size` bytes must not be unpacked, or None.

    Only headers are read, up to the first problem.
    """
    limit = max(MAX_UNPACKED, MAX_COMPRESSION * size)
    unpacked_size = 0
    for number, member in enumerate(archive, 1):
        parts = pathlib.PurePosixPath(member.name).parts
        is_inside = ".." not in parts and not member.name.startswith("/")
        if not is_inside or not (member.isfile() or member.isdir()):
            return (
                f"contains {member.name!r}, which is not a regular file or "
                "leads outside the archive's folder."
            )
        unpacked_size += member.size
        if unpacked_size > limit or number > MAX_MEMBERS:
            return (
                f"has {size:,} bytes but unpacks to at least "
                f"{unpacked_size:,} in {number:,} files; wanted at most "
                f"{limit:,} in {MAX_MEMBERS:,}. If you trust it, unpack it and "
                "give the folder."
            )
    # The checksum of gzip is at the end of its data, after the last member.
    while archive.fileobj.read(1 << 20):
        pass
    return None
