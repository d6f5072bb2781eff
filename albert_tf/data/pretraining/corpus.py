"""Tokenizes text files, each line once, into a token store on disk.

Worker processes tokenize blocks of whole lines and one process appends the
results, so only a few blocks are in memory at a time. The store is three flat
files:

    tokens.bin      token ids of all sentences, concatenated
    sentences.bin   start offset of each sentence, and the end of the last
    documents.bin   index of the first sentence of each document, and the end

Each line is a sentence; a line longer than a sequence is split at word
boundaries. A document ends at a blank line or at the end of its file.
"""

import array
import collections
import contextlib
import dataclasses
import itertools
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from albert_tf import file_kinds, filesystem
from albert_tf.text import normalization

_NAMES = ("tokens.bin", "sentences.bin", "documents.bin")
BLOCK_BYTES = 1 << 20
# A text without blank lines is one document. It is split, because a document
# is assigned to one shard as a whole.
MAX_DOCUMENT_TOKENS = 1 << 18
# Longer lines are split before tokenization, at whitespace where possible.
MAX_LINE_CHARS = 10_000
_LINE_PARTS = re.compile(
    rf".{{1,{MAX_LINE_CHARS}}}(?:\s+|$)|.{{{MAX_LINE_CHARS}}}", re.DOTALL
)
_BOM = b"\xef\xbb\xbf"
_BAD = "\N{REPLACEMENT CHARACTER}"
# `check_probe` decodes this many bytes at the start of a file, and refuses the
# file if more than this share of the characters is invalid.
PROBE_BYTES = 1 << 16
_MAX_BAD_SHARE = 0.1
# Of a text whose other characters are ASCII; accents of German are 1.7%.
_MAX_BAD_SHARE_OF_ASCII = 0.005


class TokenFile:
    """Reads ranges of token ids from a flat file.

    Not a memory map: the pages that a worker touches would count as its memory.
    """

    def __init__(self, path: filesystem.Path, dtype):
        self._file = open(path, "rb", buffering=0)
        self._dtype = np.dtype(dtype)

    def read(self, starts: Iterable[int], ends: Iterable[int]) -> np.ndarray:
        """Returns the tokens of the given ranges, concatenated."""
        size, file = self._dtype.itemsize, self._file.fileno()
        pieces = [
            os.pread(file, (end - start) * size, start * size)
            for start, end in zip(starts, ends, strict=True)
        ]
        return np.frombuffer(b"".join(pieces), self._dtype)


class TokenArray:
    """Reads ranges of token ids from an array, like `TokenFile`."""

    def __init__(self, ids: np.ndarray):
        self._ids = ids

    def read(self, starts: Iterable[int], ends: Iterable[int]) -> np.ndarray:
        """Returns the tokens of the given ranges, concatenated."""
        pieces = [
            self._ids[start:end]
            for start, end in zip(starts, ends, strict=True)
        ]
        return np.concatenate([self._ids[:0], *pieces])


@dataclasses.dataclass(frozen=True)
class Store:
    """A token store, on disk or in memory.

    Attributes:
      tokens: the `TokenFile` or `TokenArray`.
      sentences: [sentences + 1], token offset at which each sentence starts.
      documents: [documents + 1], sentence index at which each document starts.
    """

    tokens: TokenFile | TokenArray
    sentences: np.ndarray
    documents: np.ndarray


def open_store(folder: filesystem.Path, vocab_size: int) -> Store:
    """Opens a token store that `write_store` wrote."""
    tokens, *offsets = (os.path.join(folder, name) for name in _NAMES)
    return Store(
        TokenFile(tokens, token_dtype(vocab_size)),
        *(np.memmap(o, np.int64, "r").view(np.ndarray) for o in offsets),
    )


def is_store(folder: filesystem.Path, vocab_size: int, counts: dict) -> bool:
    """Returns whether a folder contains the complete store of these counts."""
    token_bytes = np.dtype(token_dtype(vocab_size)).itemsize
    sizes = (
        counts["input_tokens"] * token_bytes,
        (counts["input_sentences"] + 1) * 8,
        (counts["input_documents"] + 1) * 8,
    )
    paths = [os.path.join(folder, name) for name in _NAMES]
    return all(map(os.path.isfile, paths)) and sizes == tuple(
        map(os.path.getsize, paths)
    )


def token_dtype(vocab_size: int) -> type:
    """Returns the smallest dtype that can represent every id."""
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


def check_probe(path: filesystem.Path, probe: bytes) -> None:
    """Refuses the first PROBE_BYTES of a file unless they are UTF-8 text.

    Raises:
      ValueError: if the file is UTF-16, compressed, or not text.
    """
    kind = file_kinds.describe(probe)
    if kind and kind.startswith("text in "):
        encoding = kind.split()[-1]
        raise ValueError(
            f"{path} is {encoding} text; wanted UTF-8. Convert it with "
            f"iconv -f {encoding} -t UTF-8."
        )
    if kind in file_kinds.COMPRESSED:
        kind = f"compressed ({kind})"
    if kind:
        raise ValueError(
            f"{path} is {kind}; wanted UTF-8 text. Unpack it, or extract its "
            "text."
        )
    text, num_bad = _decode(probe)
    limit = _MAX_BAD_SHARE * len(text)
    num_invalid = num_bad - text.count("\0")
    if num_invalid > 3:
        others = [char for char in text if not char.isascii() and char != _BAD]
        # Some pairs of letters in another encoding look like one character.
        if num_invalid > 10 * len(others):
            limit = _MAX_BAD_SHARE_OF_ASCII * len(text)
    # The probe may end within a character.
    if num_bad > max(3, limit):
        raise ValueError(
            f"{path} is not UTF-8 text: {num_bad} of its first {len(text)} "
            "characters are invalid. Is it binary, or text in another "
            "encoding? Convert text with iconv, such as -f cp1252 for Western "
            "Europe."
        )


def read_blocks(
    files: Iterable[filesystem.Path], open_file: Callable = filesystem.open_file
) -> Iterator[bytes]:
    """Yields the bytes of text files in blocks; see `split_blocks`."""
    for path in files:
        with open_file(path) as file:
            yield from split_blocks(file)


def read_lines(
    files: Iterable, open_file: Callable, is_strict: bool = False
) -> Iterator[str]:
    """Yields the lines of text files; says how much is not UTF-8 text.

    Raises:
      ValueError: if some is, and `is_strict`.
    """
    num_bad = 0
    for path in files:
        for block in read_blocks([path], open_file):
            text, count = _decode(block)
            if count and is_strict:
                raise ValueError(
                    f"{path} is not UTF-8 text: at least {count} characters "
                    "are invalid, or NUL. Is it in another encoding, or "
                    "damaged?"
                )
            num_bad += count
            yield from text.replace("\0", "").removesuffix("\n").split("\n")
    warn_of_bad_characters(num_bad)


def warn_of_bad_characters(count: int) -> None:
    """Warns of characters that are NUL or not UTF-8."""
    if count:
        logging.warning(
            "%d characters are not UTF-8 text. Is the text in another "
            "encoding, or damaged?",
            count,
        )


def split_blocks(file) -> Iterator[bytes]:
    """Yields the bytes of an open text file in blocks of whole lines.

    The file is terminated by a blank line. Only a line longer than a block is
    split, at whitespace where possible.
    """
    rest = file.read(BLOCK_BYTES).removeprefix(_BOM)
    while data := file.read(BLOCK_BYTES):
        cut = _last_cut(rest)
        yield rest[:cut]
        rest = rest[cut:] + data
    yield rest + b"\n\n"


def _last_cut(data):
    """Returns where to cut a block: after its last line, word or character."""
    cut = data.rfind(b"\n") + 1 or data.rfind(b" ") + 1
    if cut:
        return cut
    cut = max(0, len(data) - 4)  # A UTF-8 character has at most 4 bytes.
    while cut < len(data) and data[cut] & 0xC0 == 0x80:  # Continuation byte.
        cut += 1
    return cut


def encode_block(block: bytes, tokenizer, max_sentence_tokens: int) -> tuple:
    """Tokenizes a block of lines of UTF-8 text.

    Returns:
      tokens: ids of all sentences, concatenated.
      lengths: number of tokens of each sentence; 0 for a blank line.
      counts: dict with `bad_characters` (invalid UTF-8 or NUL), `cut_lines`
        (lines that were split), `lost_lines` (lines without a token) and
        `unknown_tokens`.
    """
    text, num_bad = _decode(block)
    lines = text.removesuffix("\n").split("\n")
    parts_of_lines = [_line_parts(line.strip()) for line in lines]
    encoded = iter(
        tokenizer.encode_batch([p for parts in parts_of_lines for p in parts])
    )
    counts = {"bad_characters": num_bad, "cut_lines": 0, "lost_lines": 0}
    sentences: list[list[int]] = []
    for parts in parts_of_lines:
        if not parts:
            sentences.append([])
            continue
        line_sentences = [
            sentence
            for ids in itertools.islice(encoded, len(parts))
            for sentence in _split(ids, max_sentence_tokens, tokenizer)
        ]
        sentences.extend(line_sentences)
        counts["cut_lines"] += len(line_sentences) > 1
        counts["lost_lines"] += not line_sentences
    lengths = np.fromiter(map(len, sentences), np.int32, len(sentences))
    tokens: np.ndarray = np.fromiter(
        itertools.chain.from_iterable(sentences),
        token_dtype(tokenizer.vocab_size),
        lengths.sum(),
    )
    # A SpacedTokenizer has each id twice.
    numbers = tokens.astype(np.int64) % len(tokenizer.pieces)
    is_unknown = numbers == tokenizer.unk_id
    counts["unknown_tokens"] = int(is_unknown.sum())
    return tokens, lengths, counts


def _decode(block):
    """Returns the text with Unix line endings and its bad character count."""
    try:
        text, num_bad = block.decode(), 0
    except UnicodeDecodeError:
        text = block.decode(errors="replace")
        num_bad = text.count(_BAD) - block.count(_BAD.encode())
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, num_bad + text.count("\0")


def _line_parts(line):
    """Splits an overlong line; returns no part for a blank line."""
    if normalization.is_blank(line):
        return []
    return _LINE_PARTS.findall(line) if len(line) > MAX_LINE_CHARS else [line]


def _split(ids, limit, tokenizer):
    """Yields a sentence, in parts of about equal length if it is too long."""
    while len(ids) > limit:
        size = -(-len(ids) // -(-len(ids) // limit))
        starts = np.flatnonzero(tokenizer.is_word_start[ids[1 : size + 1]])
        size = starts[-1] + 1 if len(starts) else size
        yield ids[:size]
        ids = ids[size:]
    if ids:
        yield ids


def write_store(folder: filesystem.Path, blocks: Iterable) -> dict[str, int]:
    """Writes a token store of results of `encode_block`, in text order.

    Returns:
      A dict of counts: input_documents, input_sentences, input_tokens,
      cut_documents, and the counts of `encode_block`.
    """
    counts: collections.Counter = collections.Counter()
    with contextlib.ExitStack() as stack:
        token_file, sentence_file, document_file = (
            stack.enter_context(open(os.path.join(folder, name), "wb"))
            for name in _NAMES
        )
        structure = _Structure()
        for tokens, lengths, block_counts in blocks:
            counts.update(block_counts)
            structure.append(lengths.tolist())
            token_file.write(tokens.tobytes())
            structure.flush(sentence_file, document_file)
        structure.end_document()
        structure.flush(sentence_file, document_file)
        # The store must be on disk before it is recorded as complete.
        for file in (token_file, sentence_file, document_file):
            file.flush()
            os.fsync(file.fileno())
    return {
        **counts,
        "input_documents": structure.num_documents,
        "input_sentences": structure.num_sentences,
        "input_tokens": structure.num_tokens,
        "cut_documents": structure.num_cut,
    }


class _Structure:
    """Collects the start offsets of sentences and documents."""

    def __init__(self):
        self.num_tokens = self.num_sentences = 0
        self.num_documents = self.num_cut = 0
        self.first_token = self.first_sentence = 0  # of the current document
        # Offsets not yet written to disk.
        self.sentences = array.array("q", [0])
        self.documents = array.array("q", [0])

    def append(self, lengths):
        """Adds sentences by length; a length of 0 is a blank line."""
        for length in lengths:
            if not length:
                self.end_document()
                continue
            document_tokens = self.num_tokens + length - self.first_token
            if document_tokens > MAX_DOCUMENT_TOKENS:
                self.num_cut += 1
                self.end_document()
            self.num_tokens += length
            self.num_sentences += 1
            self.sentences.append(self.num_tokens)

    def end_document(self):
        if self.num_sentences > self.first_sentence:
            self.num_documents += 1
            self.documents.append(self.num_sentences)
        self.first_token = self.num_tokens
        self.first_sentence = self.num_sentences

    def flush(self, sentence_file, document_file):
        self.sentences.tofile(sentence_file)
        self.documents.tofile(document_file)
        del self.sentences[:], self.documents[:]
