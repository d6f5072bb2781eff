"""Downloads released models by name, once, into a cache.

A download that was interrupted continues where it stopped. It is complete if it
has the size and, where the server says it, the MD5 digest of the original;
unpacking compares the checksum inside a gzip archive, too.
"""

import base64
import http.client
import os
import time
import urllib.error
import urllib.request

from albert_tf import filesystem, ownership, progress

# Source: the release's README.
URL = "https://storage.googleapis.com/albert_models/{}.tar.gz"
NAMES = [
    f"albert_{size}_{version}"
    for version in ("v2", "v1", "zh")
    for size in ("base", "large", "xlarge", "xxlarge")
]
# Of the Hugging Face Hub: "hf:albert/albert-base-v2".
HUB = "hf:"
HUB_FILES = (
    "config.json",
    # Of this package.
    "albert_config.json",
    "model.ckpt-*",
    "head.json",
    "run.json",
    "vocab*.txt",
    # Of transformers.
    "*.safetensors",
    "*.safetensors.index.json",
    "*.model",
    "tokenizer*.json",
    "added_tokens.json",
    "special_tokens_map.json",
    # Of sentence-transformers.
    "modules.json",
    "sentence_bert_config.json",
    "*_Pooling/config.json",
    # Of KerasHub.
    "*.weights.h5",
    "model.weights.json",
    "task.json",
    "assets/tokenizer/*",
)
CACHE = "ALBERT_TF_CACHE"
BLOCK = 1 << 20
TIMEOUT = 30  # Seconds without data.
# Seconds before the next attempts to continue a download that was cut off.
PAUSES = (1, 5, 20)
PARTIAL, UNSATISFIABLE = 206, 416


def find_model(path: filesystem.Path) -> str:
    """Returns the path of a model; a name of a released one is downloaded.

    Files and folders of that name come first.

    Raises:
      ConnectionError: if it cannot be downloaded.
      ImportError: if huggingface_hub is needed and not installed.
      OSError: if the cache cannot be written.
    """
    path = str(path)
    if path.startswith(HUB):
        return _find_in_hub(path.removeprefix(HUB))
    if path not in NAMES or filesystem.exists(path):
        return path
    file = os.path.join(cache_folder(), f"{path}.tar.gz")
    if not filesystem.exists(file):
        try:
            filesystem.check_can_be_written(file)
        except OSError as error:
            reason = error.strerror or str(error)
            raise OSError(
                f"{path} cannot be downloaded to {file}: "
                f"{reason.rstrip('.')}. Set {CACHE} to a folder that can be "
                "written."
            ) from error
        download(URL.format(path), file)
        progress.Line().say(f"{path} was downloaded to {file}.")
    return file


def cache_folder() -> str:
    """Returns the folder of downloaded models: $ALBERT_TF_CACHE, or usual."""
    given = os.environ.get(CACHE)
    return os.path.expanduser(given) if given else filesystem.cache_folder()


def download(url: str, file: str, sha256: str | None = None) -> None:
    """Downloads a file, or the rest of it, if it was cut off before.

    One that exists with the digest `sha256` is not downloaded again.

    Raises:
      BlockingIOError: if another process is downloading it.
      ConnectionError: if there is no such file, no network, or no end, or
        another digest.
      ValueError: if the file exists with another digest.
    """
    filesystem.make_folder(os.path.dirname(file))
    part = f"{file}.part"
    with ownership.owning(file):
        if sha256 and os.path.exists(file):
            found = filesystem.compute_digest(file)
            if found == sha256:
                return
            raise ValueError(
                f"{file} has SHA-256 {found:.12}..., {url} had {sha256:.12}... "
                "Was it edited, or cut off? Remove or rename it, to download "
                "it again."
            )
        for pause in (*PAUSES, None):
            size = _size(part)
            try:
                digest = _download_rest(url, part)
                break
            except (OSError, http.client.HTTPException) as error:
                # What gave nothing would not give more later.
                if pause is None or _size(part) == size:
                    raise ConnectionError(_explain(url, file, error)) from error
            time.sleep(pause)
        if digest and filesystem.compute_digest(part, "md5") != digest:
            os.remove(part)
            raise ConnectionError(
                f"{url} was damaged on the way: its MD5 digest differs from "
                "the server's. It was removed; try again."
            )
        if sha256 and filesystem.compute_digest(part) != sha256:
            os.remove(part)
            raise ConnectionError(
                f"{url} was damaged on the way, or is another file than it "
                "was: its SHA-256 digest differs from the recorded one. It was "
                "removed; try again, or download it by hand and look at it."
            )
        os.replace(part, file)


def _download_rest(url, part):
    """Appends what is missing; returns the server's MD5 digest, or None."""
    begin = _size(part)
    request = urllib.request.Request(url)
    if begin:
        request.add_header("Range", f"bytes={begin}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != UNSATISFIABLE:
            raise
        os.remove(part)  # It is longer than the file, or as long.
        return _download_rest(url, part)
    with response:
        if response.status != PARTIAL:
            begin = 0  # The server begins again.
        rest = response.headers.get("Content-Length")
        total = begin + int(rest) if rest else None
        name = os.path.basename(url)
        done = progress.Progress(
            f"downloading {name}", total and total / 1e6, "MB"
        )
        done.amount = begin / 1e6
        with open(part, "r+b" if begin else "wb") as target:
            target.seek(begin)
            target.truncate()
            while block := response.read(BLOCK):
                target.write(block)
                done.add(len(block) / 1e6)
        done.clear()
        if total is not None and _size(part) != total:
            raise ConnectionResetError(
                f"it ended after {_size(part):,} of {total:,} bytes"
            )
        return _find_md5(response.headers)


def _find_md5(headers):
    """Returns the digest in the headers of Google Cloud Storage, or None."""
    for value in headers.get_all("x-goog-hash") or ():
        for part in value.split(","):
            kind, _, digest = part.strip().partition("=")
            if kind == "md5":
                return base64.b64decode(digest).hex()
    return None


def _size(file):
    return os.path.getsize(file) if os.path.exists(file) else 0


def _explain(url, file, error):
    """Returns what failed, and what to do instead."""
    reason = getattr(error, "reason", None) or error
    reason = getattr(reason, "strerror", None) or reason
    if isinstance(error, urllib.error.HTTPError):
        reason = f"the server says {error.code} {error.reason}"
    kept = ""
    if size := _size(f"{file}.part"):
        kept = f" The first {size / 1e6:,.1f} MB are kept: try again."
    return (
        f"{url} cannot be downloaded: {reason}.{kept} Or download it where "
        f"there is a network, and copy it to {file}."
    )


def _find_in_hub(name):
    """Returns the folder of a model of the Hugging Face Hub."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise ImportError(
            f"{HUB}{name} needs huggingface_hub: pip install huggingface_hub."
        ) from error
    try:
        return huggingface_hub.snapshot_download(
            name, allow_patterns=list(HUB_FILES)
        )
    # Its errors, and those of its client, have no common class.
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise ConnectionError(
            f"{HUB}{name} cannot be downloaded: {' '.join(lines[:2])} Or "
            "download it where there is a network, and give its folder."
        ) from error
