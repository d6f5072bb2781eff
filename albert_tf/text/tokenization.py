"""Converts text to token ids: SentencePiece and WordPiece, one interface.

`build_tokenizer` reads a vocabulary and returns a `SentencePieceTokenizer` (the
English models) or a `WordPieceTokenizer` (the Chinese models). Both normalize,
split and encode single texts or batches, and can return the offsets of each
token in the original text. The settings that affect the ids (kind, casing,
accents, vocabulary) are in `tokenizer.settings`; programs store them as
`tokenizer_settings.json` next to their output.
"""

import abc
import copy
import functools
import hashlib
import itertools
import logging
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence, Set

import numpy as np
import sentencepiece

from albert_tf import filesystem
from albert_tf.text import normalization, tokenizer_json
from albert_tf.text import words as text_words

SETTINGS_FILE = "tokenizer_settings.json"
# Settings that a vocabulary does not contain.
CASING = ("do_lower_case", "keep_accents")
# Arguments that take the path of a vocabulary, by its kind.
ARGUMENTS = {"sentencepiece": "spm_model_file", "wordpiece": "vocab_file"}

WORD_PREFIX = "▁"  # U+2581, SentencePiece's visible space
MAX_CHARS_PER_WORD = 200  # As in BERT; longer words are unknown.
_MAX_CACHED_WORDS = 1_000_000  # Bounds the memory of a long corpus.


def build_tokenizer(
    *,
    spm_model_file: filesystem.Path | None = None,
    vocab_file: filesystem.Path | None = None,
    do_lower_case: bool | None = None,
    keep_accents: bool | None = None,
) -> "Tokenizer":
    """Builds the tokenizer of a vocabulary.

    Args:
      spm_model_file: a SentencePiece `.model`, or transformers'
        `tokenizer.json` of type Unigram; exclusive with `vocab_file`.
      vocab_file: a WordPiece vocabulary, one piece per line, or a
        `tokenizer.json` of type WordPiece.
      do_lower_case: whether to lower-case text; must match the vocabulary.
        None for what a `tokenizer.json` says, or else True.
      keep_accents: whether to keep combining characters. None for what a
        `tokenizer.json` says, or else False.

    Raises:
      ValueError: if not exactly one file is given, or it is of another kind.
      FileNotFoundError: if there is no such file.
    """
    if spm_model_file and not vocab_file:
        return SentencePieceTokenizer(
            spm_model_file, do_lower_case, keep_accents
        )
    if vocab_file and not spm_model_file:
        return WordPieceTokenizer(vocab_file, do_lower_case, keep_accents)
    raise ValueError(
        "Set exactly one vocabulary: spm_model_file (SentencePiece .model) or "
        f"vocab_file (WordPiece); got spm_model_file={spm_model_file!r} "
        f"and vocab_file={vocab_file!r}."
    )


def read_settings(
    folder: filesystem.Path, name: str = SETTINGS_FILE
) -> dict | None:
    """Returns the settings stored in a folder, or None if there are none.

    Raises:
      ValueError: if they are not JSON, or have wrong types.
    """
    path = os.path.join(folder, name)
    if not filesystem.exists(path):
        return None
    settings = filesystem.read_json(path)
    for key in CASING:
        if not isinstance(settings.get(key, False), bool):
            raise ValueError(
                f"{path}: {key} is {settings[key]!r:.80}; wanted true or false."
            )
    return settings


def take_casing(settings: Mapping) -> dict[str, bool]:
    """Returns those of `CASING` that settings or arguments give, not None."""
    return {n: settings[n] for n in CASING if settings.get(n) is not None}


def take_identity(settings: Mapping | None) -> dict:
    """Returns the settings on which ids depend; empty for None."""
    known, names = settings or {}, ("kind", "sha256", *CASING)
    return {n: known[n] for n in names if n in known}


@functools.cache  # One warning for each pair.
def fits(num_pieces: int, num_rows: int) -> bool:
    """Returns whether a vocabulary fits a model with rows for its pieces.

    A model may have more rows, padded to a multiple of 8 to 128, which makes
    some devices faster. The padding is never predicted.
    """
    padded = {-(-num_pieces // n) * n for n in (8, 16, 32, 64, 128)}
    if num_rows != num_pieces and num_rows in padded:
        logging.warning(
            "The model has %d rows for %d pieces. The rows beyond are padding, "
            "and are never predicted.",
            num_rows,
            num_pieces,
        )
    return num_rows in {num_pieces, *padded}


class Tokenizer(abc.ABC):
    r"""Base class of the two tokenizers.

    Attributes:
      pieces: list of pieces; the index is the id.
      vocab_size: number of pieces.
      content: bytes of the vocabulary's file.
      pad_id, unk_id, cls_id, sep_id, mask_id: ids of the special pieces.
      special_ids: list of these five.
      is_word_start: [V], whether a piece starts a word (whole-word masking).
      casing: the settings of `CASING` that were given, or that the file has.
      settings: JSON-serializable dict of the settings that affect the ids.

    Example:
      >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] good bad film".split()
      >>> with open("vocab.txt", "w") as file:
      ...     size = file.write("\n".join(words))
      >>> tokenizer = build_tokenizer(vocab_file="vocab.txt")
      >>> tokenizer(["Good", "Bad film"])["input_ids"].tolist()
      [[2, 5, 3, 0], [2, 6, 7, 3]]
    """

    kind: str
    normalizer: type
    special_pieces: tuple  # padding, unknown, class, separator, mask

    def __init__(
        self,
        path: filesystem.Path,
        do_lower_case: bool | None = None,
        keep_accents: bool | None = None,
    ):
        content, kind, casing = read_vocabulary(path)
        if kind not in (None, self.kind):
            raise ValueError(
                f"{path} is a {kind} vocabulary. Set {ARGUMENTS[kind]} for it."
            )
        given = {"do_lower_case": do_lower_case, "keep_accents": keep_accents}
        self.casing = casing | take_casing(given)
        self.content = content
        self.pieces = self._load(content, path)
        self.vocab_size = len(self.pieces)
        ids = {piece: i for i, piece in enumerate(self.pieces)}
        missing = [piece for piece in self.special_pieces if piece not in ids]
        if missing:
            raise ValueError(
                f"{path} lacks the special pieces {missing} among its "
                f"{self.vocab_size} pieces. Was it trained for another model? "
                "albert train_vocab adds them."
            )
        self.special_ids = [ids[piece] for piece in self.special_pieces]
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            self.special_ids
        )
        self.is_word_start = np.array(
            [self._starts_word(piece) for piece in self.pieces]
        )
        self.settings = {
            "kind": self.kind,
            "do_lower_case": True,
            "keep_accents": False,
            **self.casing,
            "vocabulary": os.path.basename(path),
            "sha256": hashlib.sha256(content).hexdigest(),
            "vocab_size": self.vocab_size,
        }
        if tokenizer_json.REBUILT.encode() in content:
            self.settings["is_rebuilt"] = True
        self._normalizer = self.normalizer(**take_casing(self.settings))
        self._warn_of_other_settings(path)

    def change_casing(
        self,
        *,
        do_lower_case: bool | None = None,
        keep_accents: bool | None = None,
    ) -> "Tokenizer":
        """Returns a tokenizer of the same vocabulary with another casing.

        None is for what stays.
        """
        casing = take_casing(
            {"do_lower_case": do_lower_case, "keep_accents": keep_accents}
        )
        changed = copy.copy(self)
        changed.casing = self.casing | casing
        changed.settings = self.settings | casing
        changed._normalizer = self.normalizer(**take_casing(changed.settings))
        return changed

    def normalize(self, text: str) -> str:
        """Returns the normalized text, which is then split into pieces."""
        return self._normalizer.normalize(text)

    @abc.abstractmethod
    def _load(self, content, path):
        """Returns the list of pieces in a vocabulary file."""

    @abc.abstractmethod
    def _starts_word(self, piece):
        """Returns whether a piece starts a word."""

    @abc.abstractmethod
    def _spell_words(self, piece):
        """Returns lists of pieces for each of `find_words` in a piece.

        In each list, the first that are in the vocabulary are to be used.
        """

    @functools.cached_property
    def divisions(self) -> dict[int, list[list[int]]]:
        """The ids of each word in pieces of several words, by their id.

        Words are those of `words.find_words`. One that is no piece has the ids
        of its characters.
        """
        ids = {piece: i for i, piece in enumerate(self.pieces)}
        found = {}
        for i, piece in enumerate(self.pieces):
            spelled = [] if i in self.special_ids else self._spell_words(piece)
            if len(spelled) > 1:
                found[i] = [_find_ids(x, ids, self.unk_id) for x in spelled]
        return found

    @abc.abstractmethod
    def tokenize(self, text: str) -> list[str]:
        """Returns the pieces of a text."""

    @abc.abstractmethod
    def encode_batch(
        self, texts: Sequence[str], num_threads: int = 1
    ) -> list[list[int]]:
        """Returns the ids of each text; SentencePiece can use threads."""

    def __call__(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        max_length: int | None = None,
    ) -> dict[str, np.ndarray]:
        """Encodes texts, or pairs of texts, as the inputs of a model.

        A row is [CLS] text [SEP], or [CLS] text [SEP] second text [SEP], and is
        padded to the longest.

        Args:
          texts: B texts.
          pairs: B second texts, of which "" is none; or None.
          max_length: T at most, in tokens; the longer of two texts is cut
            first. None cuts nothing.

        Returns:
          Dict of `input_ids`, `input_mask` and `segment_ids`, [B, T] int32.

        Raises:
          ValueError: if `texts` is one text, the numbers of texts differ, or
            max_length leaves no room for a token.
        """
        for some in (texts, pairs):
            is_other = isinstance(some, str | Mapping | Set)
            if is_other or hasattr(some, "columns"):
                raise ValueError(
                    f"Found {some!r:.80}; wanted a list of texts, or one "
                    "column of a table."
                )
        if max_length is not None and max_length < 3:
            raise ValueError(
                f"max_length={max_length}; wanted at least 3, for [CLS], a "
                "token and [SEP]."
            )
        firsts = self.encode_batch(texts)
        seconds: list[list[int]] = [[]] * len(firsts)
        if pairs is not None:
            seconds = self.encode_batch(pairs)
        if len(firsts) != len(seconds):
            raise ValueError(
                f"{len(firsts)} texts and {len(seconds)} second texts; wanted "
                "as many."
            )
        rows = []
        for a, b in zip(firsts, seconds, strict=True):
            if max_length is not None:
                num_a, num_b = cut_pair(
                    len(a), len(b), max_length - (3 if b else 2)
                )
                a, b = a[:num_a], b[:num_b]
            first = [self.cls_id, *a, self.sep_id]
            rows.append((first, [*b, self.sep_id] if b else []))
        shape = len(rows), max((len(a) + len(b) for a, b in rows), default=0)
        ids = np.full(shape, self.pad_id, np.int32)
        mask, segments = (np.zeros(shape, np.int32) for _ in range(2))
        for i, (a, b) in enumerate(rows):
            ids[i, : len(a) + len(b)] = a + b
            mask[i, : len(a) + len(b)] = 1
            segments[i, len(a) : len(a) + len(b)] = 1
        return {"input_ids": ids, "input_mask": mask, "segment_ids": segments}

    @abc.abstractmethod
    def encode_with_offsets(self, text: str) -> tuple[list[int], list]:
        """Encodes a text and returns the offsets of its tokens.

        Returns:
          ids: as from `encode`.
          offsets: (start, end) of each token, in characters of `text`, without
            preceding whitespace; start equals end for a whitespace token.
            Tokens that come from one character ("½") share its offsets.
        """

    @abc.abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of ids; normalization is not undone."""

    def spell(self, word: str) -> str:
        """Returns a normalized word as a piece of the vocabulary has it."""
        return word

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, without [CLS] and [SEP]."""
        return self.encode_batch([text])[0]

    def write_settings(self, folder: filesystem.Path) -> None:
        """Stores the settings as `tokenizer_settings.json` in a folder."""
        path = os.path.join(folder, SETTINGS_FILE)
        filesystem.write_json(path, self.settings)

    def _warn_of_other_settings(self, path):
        stored = read_settings(os.path.dirname(path)) or {}
        if stored.get("sha256") == self.settings["sha256"]:
            self.warn_of_casing(path, stored)

    def warn_of_casing(self, source: filesystem.Path, stored: Mapping) -> None:
        """Warns if the settings that a source has recorded differ."""
        for name, used in take_casing(self.settings).items():
            if stored.get(name, used) != used:
                logging.warning(
                    "%s was created with %s=%s, as is recorded next to it, but "
                    "%s is used.",
                    source,
                    name,
                    stored[name],
                    used,
                )


def cut_pair(num_a: int, num_b: int, limit: int) -> tuple[int, int]:
    """Returns how many tokens of two texts to keep, at most `limit` in total.

    Source: classifier_utils.py, `_truncate_seq_pair`.
    """
    # Cutting the longer text first leaves the second one at least its half.
    kept_b = min(num_b, max(limit // 2, limit - num_a))
    return min(num_a, limit - kept_b), kept_b


class SentencePieceTokenizer(Tokenizer):
    """The tokenizer of the English models.

    A piece that ends in a digit and a comma ("2013,") is split again without
    the comma, so that the number has the same pieces as without a comma. The
    split depends only on the piece: `expansions` maps the id of each such
    piece to the ids that replace it.

    Source: tokenization.py, `preprocess_text` and `encode_pieces`, which on
    Python 3 never removed the "▁" that the second split prepends.
    """

    kind = "sentencepiece"
    normalizer = normalization.SentenceNormalizer
    special_pieces = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")

    def _load(self, content, path):
        if _is_sentencepiece_list(content):
            raise ValueError(
                f"{path} is SentencePiece's list of pieces and scores; wanted "
                "the .model file next to it."
            )
        self._model = sentencepiece.SentencePieceProcessor()
        try:
            self._model.LoadFromSerializedProto(content)
            pieces = [self._model.IdToPiece(i) for i in range(len(self._model))]
        except (RuntimeError, UnicodeDecodeError) as error:
            raise ValueError(
                f"{path} is not a SentencePiece model, or is damaged "
                f"({error}). Set vocab_file for a WordPiece vocabulary."
            ) from None
        if self._model.IdToPiece(self._model.unk_id()) != "<unk>":
            raise ValueError(
                f"{path} has the unknown piece "
                f"{self._model.IdToPiece(self._model.unk_id())!r}; wanted "
                "'<unk>'. Was it trained for another model?"
            )
        self._piece_expansions = {
            piece: self._without_comma(piece) + [","]
            for piece in pieces
            if tokenizer_json.has_number_comma(piece)
        }
        self.expansions = {
            self._model.PieceToId(piece): [
                self._model.PieceToId(part) for part in parts
            ]
            for piece, parts in self._piece_expansions.items()
        }
        return pieces

    def serialized_model(self) -> bytes:
        """Returns the SentencePiece model as bytes."""
        return self._model.serialized_model_proto()

    def read_model(self):
        """Returns the SentencePiece model as a ModelProto."""
        model = tokenizer_json.build_proto()
        model.ParseFromString(self.serialized_model())
        return model

    def check_unigram(self) -> None:
        """Checks that other implementations of the model compute the same ids.

        Raises:
          ValueError: if the model is of another type, or splits differently.
        """
        spec = self.read_model().trainer_spec
        kind = spec.ModelType.Name(spec.model_type).lower()
        # A model of characters splits a text in only one way.
        others = [kind] if kind not in ("unigram", "char") else []
        for option in ("byte_fallback", "treat_whitespace_as_suffix"):
            others += [option] if getattr(spec, option) else []
        if others:
            raise ValueError(
                f"{self.settings['vocabulary']} is a SentencePiece model with "
                f"{', '.join(others)}; only plain unigram models can be "
                "extended, or represented exactly outside Python."
            )

    def spell(self, word):
        # SentencePiece composes letters and accents, and parts of Korean.
        spelled = self._model.Normalize(word).removeprefix(WORD_PREFIX)
        return word if WORD_PREFIX in spelled else spelled

    def _without_comma(self, piece):
        """Splits the number in a piece that ends in a digit and a comma."""
        number = piece[:-1].replace(WORD_PREFIX, "")
        parts = self._model.EncodeAsPieces(number)
        if piece[0] == WORD_PREFIX or parts[0][0] != WORD_PREFIX:
            return parts
        inner = [parts[0][1:], *parts[1:]] if parts[0][1:] else parts[1:]
        if not self._model.IsUnknown(self._model.PieceToId(inner[0])):
            return inner
        # "▁17" may be a piece while "17" is not. The best split that separates
        # the prefix from the number avoids an unknown piece.
        for parts in self._model.NBestEncodeAsPieces(number, nbest_size=64):
            if parts[0] == WORD_PREFIX:
                return parts[1:]
        return inner

    def _starts_word(self, piece):
        if piece.startswith(WORD_PREFIX):
            return True
        if self._model.IsByte(self._model.PieceToId(piece)):
            return False
        # Punctuation, symbols and special pieces are words of their own; a soft
        # hyphen is not.
        kind = unicodedata.category(piece[0])
        is_word = kind[0] not in "LNM" and kind != "Cf"
        return is_word or normalization.is_unspaced(piece[0])

    def _spell_words(self, piece):
        text = piece.replace(WORD_PREFIX, " ")
        spelled = []
        for start, end in text_words.find_words(text):
            word = text[start:end]
            first = [[WORD_PREFIX + word]] if text[:start][-1:] == " " else []
            spelled.append([*first, [word], [*word]])
        return spelled

    def tokenize(self, text):
        # Unknown pieces keep their text.
        pieces = self._model.EncodeAsPieces(self.normalize(text))
        return [
            part
            for piece in pieces
            for part in self._piece_expansions.get(piece, (piece,))
        ]

    def encode_batch(self, texts, num_threads=1):
        texts = [self.normalize(text) for text in texts]
        rows = self._model.EncodeAsIds(texts, num_threads=num_threads)
        has_no_comma = self.expansions.keys().isdisjoint
        return [
            row
            if has_no_comma(row)
            else [part for i in row for part in self.expansions.get(i, (i,))]
            for row in rows
        ]

    def encode_with_offsets(self, text):
        normalized, spans = self._normalizer.normalize_with_spans(text)
        mapping = self._model.EncodeAsOffsetMapping(normalized)
        ids: list[int] = []
        offsets = []
        for i, piece, (start, end) in zip(
            mapping["ids"], mapping["pieces"], mapping["offsets"], strict=True
        ):
            while start < end and normalized[start] == " ":
                start += 1
            ids.extend(self.expansions.get(i, (i,)))
            parts = self._piece_expansions.get(piece, (piece,))
            offsets.extend(_split_span(parts, start, end))
        return ids, _original_offsets(offsets, spans)

    def decode(self, ids):
        # Special pieces decode to nothing.
        return self._model.DecodeIds([int(i) for i in ids])


class WordPieceTokenizer(Tokenizer):
    """The tokenizer of the Chinese models, as in BERT.

    Text is split into words at whitespace, punctuation and around Chinese
    characters. Each word is split greedily into the longest pieces from the
    left; a word that cannot be split completely becomes [UNK]. The id of a
    piece is its line number.

    Source: tokenization.py, `BasicTokenizer`, `WordpieceTokenizer`; in its
    `load_vocab`, a duplicate shifted all later ids.
    """

    kind = "wordpiece"
    normalizer = normalization.WordNormalizer
    special_pieces = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

    def _load(self, content, path):
        pieces = _parse_wordpiece(content, path)
        self._ids = {piece: i for i, piece in enumerate(pieces)}
        self._word_ids = {}  # Words repeat: most are split only once.
        return pieces

    def __getstate__(self):  # Worker processes begin with an empty cache.
        return {**self.__dict__, "_word_ids": {}}

    def _starts_word(self, piece):
        if not piece.startswith("##"):
            return True
        return len(piece) > 2 and normalization.is_unspaced(piece[2])

    def _spell_words(self, piece):
        text = piece.removeprefix("##")
        is_first = text == piece
        spelled = []
        for start, end in text_words.find_words(text):
            rest = [f"##{char}" for char in text[start:end]]
            if start == 0 and is_first:
                rest[0] = text[0]
            spelled.append([[rest[0] + text[start + 1 : end]], rest])
        return spelled

    def _split_word(self, word):
        """Splits a word into pieces and returns their ids."""
        if len(word) > MAX_CHARS_PER_WORD:
            return [self.unk_id]
        ids, start, prefix = [], 0, ""
        while start < len(word):
            for end in range(len(word), start, -1):
                piece_id = self._ids.get(prefix + word[start:end])
                if piece_id is not None:
                    break
            else:
                return [self.unk_id]
            ids.append(piece_id)
            start, prefix = end, "##"
        return ids

    def _encode_word(self, word):
        ids = self._word_ids.get(word)
        if ids is None:
            if len(self._word_ids) >= _MAX_CACHED_WORDS:
                self._word_ids.clear()
            ids = self._word_ids[word] = self._split_word(word)
        return ids

    def tokenize(self, text):
        return [self.pieces[i] for i in self.encode(text)]

    def encode_batch(self, texts, num_threads=1):
        del num_threads
        words_of = (self.normalize(text).split() for text in texts)
        return [
            [i for word in words for i in self._encode_word(word)]
            for words in words_of
        ]

    def encode_with_offsets(self, text):
        normalized, spans = self._normalizer.normalize_with_spans(text)
        ids, offsets = [], []
        for match in re.finditer(r"\S+", normalized):
            start, end = match.span()
            word_ids = self._encode_word(match.group())
            parts = [self.pieces[i] for i in word_ids]
            ids.extend(word_ids)
            if word_ids[0] == self.unk_id:
                offsets.append((start, end))
            else:
                parts[1:] = [part[2:] for part in parts[1:]]
                offsets.extend(_split_span(parts, start, end))
        return ids, _original_offsets(offsets, spans)

    def decode(self, ids):
        return " ".join(self.pieces[i] for i in ids).replace(" ##", "")


def read_vocabulary(path: filesystem.Path) -> tokenizer_json.Vocabulary:
    """Reads the file of a vocabulary.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if a `tokenizer.json` cannot be represented exactly.
    """
    if filesystem.is_folder(path):
        names = filesystem.list_folder(path)
        raise FileNotFoundError(
            f"{path} is a folder; it has {names[:12]}. Wanted the vocabulary "
            "in it, such as spiece.model, tokenizer.json or vocab.txt."
        )
    try:
        content = filesystem.read_file(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no vocabulary file {path}") from None
    # A WordPiece list may begin with a brace, too.
    if content.startswith(b"{") and b'"model"' in content:
        return tokenizer_json.parse(content, path)
    return tokenizer_json.Vocabulary(content)


def _find_ids(spellings, ids, unk_id):
    """Returns the ids of the first of some lists of pieces that has them all.

    If there is none, they are those of the last one, some of them unknown.
    """
    for pieces in spellings:
        found = [ids.get(piece, unk_id) for piece in pieces]
        if unk_id not in found:
            break
    return found


def _is_sentencepiece_list(content):
    """Returns whether a file looks like a `.vocab` file (piece, tab, score)."""
    lines = content[:2000].split(b"\n")[:-1][:5]
    return bool(lines) and all(
        re.fullmatch(rb"[^\t]+\t-?[\d.e-]+\r?", line) for line in lines
    )


def _parse_wordpiece(content, path):
    """Returns the pieces of a WordPiece vocabulary, by line number."""
    if _is_sentencepiece_list(content):
        raise ValueError(
            f"{path} is SentencePiece's list of pieces and scores; wanted a "
            "WordPiece vocabulary. Set spm_model_file to the .model file next "
            "to it."
        )
    if b"\0" in content:
        raise ValueError(
            f"{path} contains NUL characters. Set spm_model_file for a "
            "SentencePiece .model, or convert UTF-16 text to UTF-8."
        )
    text = filesystem.decode(
        content,
        path,
        "{path} is not UTF-8 text ({error}). Set spm_model_file for a "
        "SentencePiece .model.",
    )
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    pieces = [line.strip(" \t\r") for line in lines]
    first_line: dict[str, int] = {}
    for number, piece in enumerate(pieces):
        if piece and first_line.setdefault(piece, number) != number:
            raise ValueError(
                f"{path} has {piece!r} on line {first_line[piece] + 1} and "
                f"again on line {number + 1}; wanted each piece once, as ids "
                "are line numbers. Were files concatenated?"
            )
    return pieces


def _split_span(parts, start, end):
    """Splits the span of a piece among its parts; returns their (start, end).

    Parts may start with the visible space. Characters that the SentencePiece
    model removed belong to the first part; if it added characters, all parts
    share the whole span.
    """
    lengths = [len(part.removeprefix(WORD_PREFIX)) for part in parts[1:]]
    first_end = end - sum(lengths)
    if first_end < start:
        return [(start, end)] * len(parts)
    ends = list(itertools.accumulate(lengths, initial=first_end))
    return list(zip([start, *ends[:-1]], ends, strict=True))


def _original_offsets(offsets, spans):
    """Converts offsets in normalized text to offsets in the original."""
    original = []
    last_end = 0
    text_end = spans[-1][1] if spans else 0
    for start, end in offsets:
        first = spans[start][0] if start < len(spans) else text_end
        last = spans[end - 1][1] if end > start else first
        # An empty token may be inside a character that became several.
        last_end = max(last, last_end)
        original.append((first, last_end))
    return original
