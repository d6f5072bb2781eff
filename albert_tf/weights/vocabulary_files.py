"""Finds a model's vocabulary, and the settings that were recorded for it."""

import contextlib
import fnmatch
import hashlib
import logging
import math
import os
from collections.abc import Mapping

from albert_tf import filesystem
from albert_tf.text import tokenization, tokenizer_json

# Settings of a tokenizer as transformers records them.
HF_SETTINGS = "tokenizer_config.json"
# Those of its settings that make its tokenizers split text as ours.
USUAL_SPLITS = {
    "word_tokenizer_type": "basic",
    "do_basic_tokenize": True,
    "tokenize_chinese_chars": True,
}
# Tokens that were added to a vocabulary, and their ids, in transformers 4.
ADDED_FILE = "added_tokens.json"
# WordPiece vocabularies are called vocab.txt or, say, vocab_chinese.txt.
VOCABULARIES = ("*.model", "vocab*.txt")
# Names under which other packages find a vocabulary.
USUAL_NAMES = {"sentencepiece": "spiece.model", "wordpiece": "vocab.txt"}


def find_vocabulary(folder: filesystem.Path) -> tokenization.Tokenizer | None:
    """Returns the tokenizer of a folder's only vocabulary.

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
            return None
    settings = tokenization.read_settings(folder)
    if settings is None:
        tokenization.read_settings(folder, HF_SETTINGS)  # If they are valid.
    try:
        tokenizer = _read_only(folder, paths, settings)
    except ValueError as error:
        logging.warning("%s It is not used.", error)
        return None
    if tokenizer is None:
        return None
    digest = tokenizer.settings["sha256"]
    if settings and settings.get("sha256", digest) != digest:
        raise ValueError(
            f"{paths[0]} has another hash than {tokenization.SETTINGS_FILE} "
            "next to it records. Was the vocabulary replaced? Restore it, or "
            "remove the settings if it is the right one."
        )
    if _warn_of_added(folder, paths[0], tokenizer.vocab_size):
        return None
    return tokenizer


def _read_only(folder, paths, settings):
    """Returns the tokenizer of a vocabulary under one or more names, or None.

    Raises:
      ValueError: if our tokenizers cannot represent it.
    """
    vocabularies = {
        v.content: v for v in map(tokenization.read_vocabulary, paths)
    }
    if len(vocabularies) != 1:
        return None
    (vocabulary,) = vocabularies.values()
    kind = _find_kind(paths[0], vocabulary)
    if settings is None:
        settings = read_hf_settings(folder, kind)
        for name, usual in USUAL_SPLITS.items():
            if settings.get(name, usual) != usual:
                raise ValueError(
                    f"{os.path.join(folder, HF_SETTINGS)} has {name}="
                    f"{settings[name]!r}, for {paths[0]}, by which text is "
                    "split in another way than here."
                )
    arguments: dict = {tokenization.ARGUMENTS[kind]: paths[0]}
    arguments |= tokenization.take_casing(settings)
    return tokenization.build_tokenizer(**arguments)


def _find_kind(path, vocabulary):
    """Returns the kind of a vocabulary, by its file's name if it has none."""
    is_model = str(path).endswith(".model")
    return vocabulary.kind or ("sentencepiece" if is_model else "wordpiece")


def _count_pieces(described):
    """Returns the number of pieces of a tokenizer.json."""
    with contextlib.suppress(KeyError, TypeError):
        return len(described["model"]["vocab"])
    return math.inf  # It is damaged, which its reader says.


def _warn_of_added(folder, path, num_pieces):
    """Returns whether transformers adds tokens to a vocabulary; warns then."""
    added: dict[str, int] = {}
    for name in (ADDED_FILE, tokenizer_json.FILE):
        with contextlib.suppress(FileNotFoundError, ValueError):
            found = filesystem.read_json(os.path.join(folder, name))
            if name == tokenizer_json.FILE:
                tokens = found.get("added_tokens") or []
                found = {token["content"]: token["id"] for token in tokens}
            added |= found
    more = [name for name, i in added.items() if i >= num_pieces]
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


def read_hf_settings(folder: filesystem.Path, kind: str) -> dict:
    """Returns the settings that transformers recorded, by our names."""
    settings = tokenization.read_settings(folder, HF_SETTINGS) or {}
    strips = settings.get("strip_accents")
    is_pieces = kind == "sentencepiece"
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


def choose_name(settings: Mapping) -> str:
    """Returns the name of a vocabulary's file in a model's folder.

    It is the file's own, as in the settings of its tokenizer, or else the usual
    one: `VOCABULARIES`, by which a folder's vocabulary is found, have it.
    """
    name = os.path.basename(settings["vocabulary"])
    if any(fnmatch.fnmatch(name, pattern) for pattern in VOCABULARIES):
        return name
    return USUAL_NAMES[settings["kind"]]


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


def _has_hash(settings):
    return "sha256" in settings


def read_casing(
    path: filesystem.Path, settings: Mapping | None = None
) -> dict[str, bool]:
    """Returns the `tokenization.CASING` that is recorded for a vocabulary.

    It is recorded next to its file `path` or elsewhere, in `settings`.
    """
    vocabulary = tokenization.read_vocabulary(path)
    digest = hashlib.sha256(vocabulary.content).hexdigest()
    folder = os.path.dirname(path)
    beside = tokenization.read_settings(folder)
    found = dict(vocabulary.casing)
    if beside is None:
        kind = _find_kind(path, vocabulary)
        found |= tokenization.take_casing(read_hf_settings(folder, kind))
    # Last what has a hash. Other packages record none, and that of a rebuilt
    # vocabulary is another.
    for known in sorted((beside or {}, settings or {}), key=_has_hash):
        if known.get("is_rebuilt") or known.get("sha256", digest) == digest:
            found |= tokenization.take_casing(known)
    return found
