"""Finds a model's vocabulary, and the settings that were recorded for it."""

import fnmatch
import hashlib
import os

from albert_tf import filesystem
from albert_tf.text import tokenization

# Settings of a tokenizer as transformers records them.
HF_SETTINGS = "tokenizer_config.json"
# Settings of a tokenizer that its vocabulary does not contain.
CASING = {"do_lower_case", "keep_accents"}
# WordPiece vocabularies are called vocab.txt or, say, vocab_chinese.txt.
VOCABULARIES = ("*.model", "vocab*.txt")


def find_vocabulary(folder):
    """Returns the tokenizer and file of a folder's only vocabulary.

    A run that was resumed with a copy of it may have it under two names.
    """
    paths = [
        path
        for pattern in VOCABULARIES
        for path in filesystem.find_files(folder, pattern)
    ]
    contents = set(map(filesystem.read_file, paths))
    if len(contents) != 1:
        return None, None
    kind = "spm_model_file" if paths[0].endswith(".model") else "vocab_file"
    settings = tokenization.read_settings(folder)
    if settings is None:
        settings = tokenization.read_settings(folder, HF_SETTINGS) or {}
    names = CASING & settings.keys()
    arguments: dict = {kind: paths[0], **{n: settings[n] for n in names}}
    tokenizer = tokenization.build_tokenizer(**arguments)
    digest = tokenizer.settings["sha256"]
    if settings.get("sha256", digest) != digest:
        raise ValueError(
            f"{paths[0]} has another hash than {tokenization.SETTINGS_FILE} "
            "next to it records. Was the vocabulary replaced? Restore it, or "
            "remove the settings if it is the right one."
        )
    return tokenizer, (os.path.basename(paths[0]), contents.pop())


def read_vocabulary_file(
    path: filesystem.Path, usual: str = "vocab.txt"
) -> tuple[str, bytes]:
    """Returns the name and content of a vocabulary.

    Args:
      path: its file.
      usual: the name to return if the file has none of `VOCABULARIES`, by which
        a folder's vocabulary is found.
    """
    name = os.path.basename(path)
    if not any(fnmatch.fnmatch(name, pattern) for pattern in VOCABULARIES):
        name = usual
    return name, filesystem.read_file(path)


def read_casing(path: filesystem.Path, settings: dict | None) -> dict:
    """Returns do_lower_case and keep_accents as recorded for a vocabulary.

    Args:
      path: file of the vocabulary; settings may be next to it.
      settings: settings that are recorded elsewhere, or None.
    """
    digest = hashlib.sha256(filesystem.read_file(path)).hexdigest()
    beside = tokenization.read_settings(os.path.dirname(path))
    for known in (settings, beside):
        if known and known.get("sha256") == digest:
            return {name: known[name] for name in CASING & known.keys()}
    return {}
