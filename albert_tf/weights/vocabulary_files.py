"""Finds a model's vocabulary, and the settings that were recorded for it."""

import contextlib
import fnmatch
import hashlib
import logging
import math
import os
import tempfile

from albert_tf import filesystem
from albert_tf.text import tokenization, tokenizer_json

# Settings of a tokenizer as transformers records them.
HF_SETTINGS = "tokenizer_config.json"
# Tokens that were added to a vocabulary, and their ids, in transformers 4.
ADDED_FILE = "added_tokens.json"
# Settings of a tokenizer that its vocabulary does not contain.
CASING = {"do_lower_case", "keep_accents"}
# WordPiece vocabularies are called vocab.txt or, say, vocab_chinese.txt.
SENTENCEPIECE_FILE = "spiece.model"
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
    described = os.path.join(folder, tokenizer_json.FILE)
    if not paths and filesystem.exists(described):
        # KerasHub writes a file of this name, too, without a model.
        values = filesystem.read_json(described)
        paths = [described] if "model" in values else []
        if paths and _warn_of_added(folder, described, _count_pieces(values)):
            return None, None
    settings = tokenization.read_settings(folder)
    if settings is None:
        tokenization.read_settings(folder, HF_SETTINGS)  # If they are valid.
    try:
        tokenizer, file = _read_only(folder, paths, settings)
    except ValueError as error:
        logging.warning("%s It is not used.", error)
        return None, None
    if tokenizer is None:
        return None, None
    digest = tokenizer.settings["sha256"]
    if settings and settings.get("sha256", digest) != digest:
        raise ValueError(
            f"{paths[0]} has another hash than {tokenization.SETTINGS_FILE} "
            "next to it records. Was the vocabulary replaced? Restore it, or "
            "remove the settings if it is the right one."
        )
    if _warn_of_added(folder, paths[0], tokenizer.vocab_size):
        return None, None
    return tokenizer, file


def _read_only(folder, paths, settings):
    """Returns the tokenizer and file of a vocabulary under one or more names.

    Raises:
      ValueError: if our tokenizers cannot represent it.
    """
    vocabularies = {
        v.content: v for v in map(tokenization.read_vocabulary, paths)
    }
    if len(vocabularies) != 1:
        return None, None
    ((content, vocabulary),) = vocabularies.items()
    is_pieces = vocabulary.kind == "sentencepiece" or paths[0].endswith(
        ".model"
    )
    if settings is None:
        settings = read_hf_settings(folder, is_pieces)
    names = CASING & settings.keys()
    kind = "spm_model_file" if is_pieces else "vocab_file"
    arguments: dict = {kind: paths[0], **{n: settings[n] for n in names}}
    tokenizer = tokenization.build_tokenizer(**arguments)
    return tokenizer, (name_vocabulary(paths[0], is_pieces), content)


def _count_pieces(described):
    """Returns the number of pieces of a tokenizer.json."""
    with contextlib.suppress(KeyError, TypeError):
        return len(described["model"]["vocab"])
    return math.inf  # It is damaged, which its reader says.


def _warn_of_added(folder, path, num_pieces):
    """Returns whether transformers adds tokens to a vocabulary; warns then."""
    more = _list_added(folder, num_pieces)
    if more:
        logging.warning(
            "%s is not used: transformers adds %s to its %d pieces, and finds "
            "them before it normalizes a text. Train a model without added "
            "tokens, or add words with extend_vocab.",
            path,
            more[:3],
            num_pieces,
        )
    return bool(more)


def _list_added(folder, num_pieces):
    """Returns tokens that transformers adds to a folder's vocabulary."""
    added: dict[str, int] = {}
    for name in (ADDED_FILE, tokenizer_json.FILE):
        with contextlib.suppress(FileNotFoundError, ValueError):
            found = filesystem.read_json(os.path.join(folder, name))
            if name == tokenizer_json.FILE:
                tokens = found.get("added_tokens") or []
                found = {token["content"]: token["id"] for token in tokens}
            added |= found
    return [name for name, i in added.items() if i >= num_pieces]


def read_hf_settings(folder, is_pieces):
    """Returns the settings that transformers recorded, by our names."""
    settings = tokenization.read_settings(folder, HF_SETTINGS) or {}
    strips = settings.get("strip_accents")
    if is_pieces or strips is None or "keep_accents" in settings:
        return settings
    if settings.get("do_lower_case", True):
        return {**settings, "keep_accents": not strips}
    if strips:
        logging.warning(
            "%s in %s removes accents from letters that keep their case. Here "
            "they stay, so ids of such letters differ from transformers'.",
            HF_SETTINGS,
            folder,
        )
    return settings


def read_vocabulary_file(
    path: filesystem.Path, is_pieces: bool = False
) -> tuple[str, bytes]:
    """Returns the name and content of a vocabulary, SentencePiece or not.

    The name is one of `VOCABULARIES`, by which a folder's vocabulary is found.
    """
    content = tokenization.read_vocabulary(path).content
    return name_vocabulary(path, is_pieces), content


def name_vocabulary(path: filesystem.Path, is_pieces: bool) -> str:
    """Returns the name of a vocabulary in a model's folder."""
    name = os.path.basename(path)
    if any(fnmatch.fnmatch(name, pattern) for pattern in VOCABULARIES):
        return name
    return SENTENCEPIECE_FILE if is_pieces else "vocab.txt"


def choose_file(
    spm_model_file: filesystem.Path | None, vocab_file: filesystem.Path | None
) -> dict[str, filesystem.Path]:
    """Returns the vocabulary that counts, by the name of its argument.

    Commands of the release give both, of which a SentencePiece model counts.
    """
    if not spm_model_file:
        return {"vocab_file": vocab_file} if vocab_file else {}
    if vocab_file:
        logging.warning(
            "vocab_file=%s is ignored: spm_model_file contains the vocabulary.",
            vocab_file,
        )
    return {"spm_model_file": spm_model_file}


def change_casing(
    tokenizer: tokenization.Tokenizer, file: tuple[str, bytes], casing: dict
) -> tokenization.Tokenizer:
    """Returns the tokenizer of a vocabulary with another casing.

    `file` is the name and content of the vocabulary.
    """
    known = {name: tokenizer.settings[name] for name in CASING}
    if known == known | casing:
        return tokenizer
    name, content = file
    is_pieces = tokenizer.kind == "sentencepiece"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, name)
        filesystem.write_file(path, content)
        kind = "spm_model_file" if is_pieces else "vocab_file"
        arguments: dict = {kind: path, **known, **casing}
        return tokenization.build_tokenizer(**arguments)


def _has_hash(settings):
    return "sha256" in settings


def read_casing(path: filesystem.Path, settings: dict | None) -> dict:
    """Returns do_lower_case and keep_accents as recorded for a vocabulary.

    They are recorded next to its file `path` or elsewhere, in `settings`.
    """
    content, kind, casing = tokenization.read_vocabulary(path)
    digest = hashlib.sha256(content).hexdigest()
    beside = tokenization.read_settings(os.path.dirname(path))
    found = dict(casing)
    if beside is None:
        is_pieces = kind == "sentencepiece" or str(path).endswith(".model")
        theirs = read_hf_settings(os.path.dirname(path), is_pieces)
        found |= {name: theirs[name] for name in CASING & theirs.keys()}
    # Last what has a hash. Other packages record none, and that of a rebuilt
    # vocabulary is another.
    for known in sorted((beside or {}, settings or {}), key=_has_hash):
        if known.get("is_rebuilt") or known.get("sha256", digest) == digest:
            found |= {name: known[name] for name in CASING & known.keys()}
    return found
