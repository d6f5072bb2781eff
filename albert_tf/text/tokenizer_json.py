"""Reads tokenizer.json of the package tokenizers as a vocabulary of ours.

transformers 5 saves no other vocabulary. The file holds the pieces and their
scores; of its other settings, those that our tokenizers have are read, and any
other is refused, so that ids are those of the original vocabulary.
"""

import base64
import functools
import itertools
import re
import sys
import unicodedata
from typing import NamedTuple

from albert_tf import filesystem

FILE = "tokenizer.json"
# Marks SentencePiece models that are built here: their hash is not that of the
# original vocabulary.
REBUILT = "albert_tf: rebuilt from tokenizer.json"
# transformers lowers the scores of pieces such as "2013,", which it splits.
COMMA_PENALTY = 100
# SentencePiece's types of pieces.
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6
# Replacements that `SentencePieceTokenizer` or SentencePiece itself makes, too;
# except the first two, which unify quotation marks.
_REPLACED = {
    *(("``", '"'), ("''", '"')),
    *((" {2,}", " "), (" {2,}", "▁"), (r"\s+", " "), (" ", "▁")),
    *((r"\A▁", "▁▁"), (r"\A +| +\z", "")),
}
_STEPS = {"NFKD", "StripAccents", "Lowercase", "NFC", "Precompiled", "Strip"}
# `without_accents` of any version of Unicode.
_WITHOUT_ACCENTS = re.compile(r"\[\u0300-[^A-Za-z]*\]")
_ADVICE = (
    "Give the .model or the vocab.txt with which the model was trained; the "
    "original model has it (spiece.model)."
)


class Vocabulary(NamedTuple):
    """A vocabulary.

    Attributes:
      content: content of a SentencePiece model or of a WordPiece list.
      kind: "sentencepiece" or "wordpiece"; None if the file does not say.
      casing: do_lower_case and keep_accents, as far as the file says.
    """

    content: bytes
    kind: str | None = None
    casing: dict[str, bool] = {}


@functools.cache
def without_accents() -> dict:
    """Returns the step that removes combining characters, as we do.

    StripAccents removes more: all marks, also the vowels of Hindi or Thai.
    """
    codes = [i for i in range(sys.maxunicode) if unicodedata.combining(chr(i))]
    # Of consecutive codes, the difference from their index is the same.
    runs = itertools.groupby(enumerate(codes), lambda pair: pair[1] - pair[0])
    ranges = [[code for _, code in run] for _, run in runs]
    pattern = "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in ranges)
    return {
        "type": "Replace",
        "pattern": {"Regex": f"[{pattern}]"},
        "content": "",
    }


def has_number_comma(piece: str) -> bool:
    """Returns whether a piece ends in a digit and a comma."""
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def parse(content: bytes, path: filesystem.Path) -> Vocabulary:
    """Converts the content of a tokenizer.json.

    Raises:
      ValueError: if it cannot be represented exactly; `path` is named.
    """
    described = filesystem.parse_json(content, path)
    model = described.get("model")
    model = model if isinstance(model, dict) else {}
    kind = model.get("type")
    convert = {"Unigram": _parse_unigram, "WordPiece": _parse_wordpiece}
    if kind not in list(convert):
        raise ValueError(
            f"{path} describes a tokenizer of type {kind!r}; wanted 'Unigram' "
            f"(SentencePiece) or 'WordPiece'. {_ADVICE}"
        )
    try:
        return convert[kind](described, model)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{path} is damaged: {error!r:.80}.") from None
    except ValueError as error:
        raise ValueError(
            f"{path} cannot be read exactly: {error}. {_ADVICE}"
        ) from None


def _steps(node, key):
    """Returns the parts of a normalizer or pre-tokenizer, flattened."""
    if node and node["type"] == "Sequence":
        return [step for part in node[key] for step in _steps(part, key)]
    return [node] if node else []


def _check_added(described, pieces):
    known = set(enumerate(pieces))
    for token in described["added_tokens"]:
        if (token["id"], token["content"]) not in known:
            raise ValueError(
                f"it adds {token['content']!r} to the vocabulary, which "
                "transformers finds before it normalizes a text"
            )


def _parse_wordpiece(described, model):
    pieces = sorted(model["vocab"], key=model["vocab"].get)
    _check_added(described, pieces)
    normalizer = described["normalizer"]
    is_lower, strip = normalizer["lowercase"], normalizer["strip_accents"]
    splits = _steps(described["pre_tokenizer"], "pretokenizers")
    is_ours = (
        normalizer["type"] == "BertNormalizer"
        and [step["type"] for step in splits] == ["BertPreTokenizer"]
        and normalizer["handle_chinese_chars"]
        and (is_lower or not strip)
        and model["continuing_subword_prefix"] == "##"
        and sorted(model["vocab"].values()) == list(range(len(pieces)))
    )
    if not is_ours:
        raise ValueError(
            f"its normalizer is {normalizer}, it divides text by {splits}, or "
            "ids are missing"
        )
    casing = {"do_lower_case": is_lower, "keep_accents": strip is False}
    content = "".join(f"{piece}\n" for piece in pieces).encode()
    return Vocabulary(content, "wordpiece", casing)


def _parse_unigram(described, model):
    _check_added(described, [piece for piece, _ in model["vocab"]])
    steps = _steps(described["normalizer"], "normalizers")
    unknown = [step for step in steps if not _is_known(step)]
    splits = _steps(described["pre_tokenizer"], "pretokenizers")
    # WhitespaceSplit changes nothing before Metaspace, which is required.
    others = [s for s in splits if s["type"] != "WhitespaceSplit"]
    if unknown or len(others) != 1 or not _is_known(others[0]):
        raise ValueError(f"it changes text by {unknown or splits}")
    by_type = {step["type"]: step for step in steps}
    strips_accents = "StripAccents" in by_type or any(map(_is_strip, steps))
    charsmap = by_type.get("Precompiled", {}).get("precompiled_charsmap")
    if not charsmap and ("NFKD" not in by_type or "NFC" in by_type):
        raise ValueError(
            "without the step Precompiled, texts are to be in NFKD"
        )
    content = _build_model(described, model, base64.b64decode(charsmap or ""))
    casing = {
        "do_lower_case": "Lowercase" in by_type,
        "keep_accents": not strips_accents,
    }
    return Vocabulary(content, "sentencepiece", casing)


def _is_strip(step):
    """Returns whether a step is that of `without_accents`."""
    if step["type"] != "Replace" or step["content"]:
        return False
    return bool(_WITHOUT_ACCENTS.fullmatch(step["pattern"].get("Regex", "")))


def _is_known(step):
    """Returns whether SentencePiece or our tokenizer does a step, too."""
    if step["type"] == "Replace":
        (pattern,) = step["pattern"].values()
        return _is_strip(step) or (pattern, step["content"]) in _REPLACED
    if step["type"] == "Metaspace":
        has_prefix = step.get("add_prefix_space", True)
        return has_prefix and step.get("prepend_scheme", "always") == "always"
    return step["type"] in _STEPS


def build_proto():
    """Returns an empty ModelProto of SentencePiece.

    Raises:
      ImportError: if protobuf is too old for the installed sentencepiece, which
        does not require a version.
    """
    from google.protobuf import runtime_version

    try:
        from sentencepiece import sentencepiece_model_pb2 as messages
    except runtime_version.VersionError as error:
        raise ImportError(
            f"sentencepiece needs a newer protobuf ({error}): "
            "pip install -U protobuf."
        ) from error
    return messages.ModelProto()  # type: ignore[attr-defined]


def _build_model(described, model, charsmap):
    """Returns a SentencePiece model as bytes."""
    proto = build_proto()
    has_bytes = bool(model.get("byte_fallback"))
    special = {t["content"]: t["special"] for t in described["added_tokens"]}
    for i, (piece, score) in enumerate(_restore_scores(model["vocab"])):
        # Training never gives the score 0; predefined pieces have it.
        kind = _NORMAL if score else _USER_DEFINED
        if i == model["unk_id"]:
            kind = _UNKNOWN
        elif has_bytes and re.fullmatch("<0x[0-9A-F]{2}>", piece):
            kind = _BYTE
        elif piece in special:
            kind = _CONTROL if special[piece] else _USER_DEFINED
        proto.pieces.add(piece=piece, score=score, type=kind)
    spec = proto.trainer_spec
    spec.model_type, spec.model_prefix = spec.UNIGRAM, REBUILT
    spec.byte_fallback, spec.vocab_size = has_bytes, len(proto.pieces)
    spec.unk_id, spec.bos_id, spec.eos_id = model["unk_id"], -1, -1
    spec.pad_id, spec.pad_piece = 0, proto.pieces[0].piece
    proto.normalizer_spec.name = "nmt_nfkc" if charsmap else "identity"
    proto.normalizer_spec.precompiled_charsmap = charsmap
    return proto.SerializeToString()


def _restore_scores(vocab):
    """Returns pairs of piece and score, without the penalty on commas."""
    with_comma = {score for piece, score in vocab if has_number_comma(piece)}
    least = min(score for piece, score in vocab if not has_number_comma(piece))
    if not with_comma or max(with_comma) > least - COMMA_PENALTY / 2:
        return vocab
    return [
        (piece, score + COMMA_PENALTY * has_number_comma(piece))
        for piece, score in vocab
    ]
