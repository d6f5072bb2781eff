"""Text files -> a token store on disk, each line tokenized once.

The files are read in blocks of whole lines, which worker processes tokenize;
one process appends the results, so that never more than some blocks are in
memory. The store is three flat files:

    tokens.bin      ids of all sentences, one after the other
    sentences.bin   where each sentence begins, and the end of the last one
    documents.bin   the first sentence of each document, and the end

A sentence is a line; a line longer than a sequence is cut at a word boundary
into several. A document ends at a blank line and at the end of its file.
"""

import array
import collections
import contextlib
import dataclasses
import itertools
import os
import re
from collections.abc import Iterable, Iterator

import numpy as np

from albert_tf import filesystem

_TOKENS, _SENTENCES, _DOCUMENTS = (
    f"{name}.bin" for name in ("tokens", "sentences", "documents")
)
BLOCK_BYTES = 1 << 20
MAX_DOCUMENT_TOKENS = 1 << 18
# Longer lines are cut before they are tokenized, at white space if there is
# any in so many characters.
MAX_LINE_CHARS = 10_000
_LINE_PARTS = re.compile(
    rf".{{1,{MAX_LINE_CHARS}}}(?:\s+|$)|.{{{MAX_LINE_CHARS}}}", re.DOTALL
)
_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_GZIP = b"\x1f\x8b"
_BAD = "\N{REPLACEMENT CHARACTER}"
# Of which the beginning of a file is looked at: more of it cannot be text.
_PROBE_BYTES = 1 << 16
_MAX_BAD_SHARE = 0.1


class TokenFile:
    """The ids of all sentences, of which pieces are read.

    A memory map would do as well, but the pages that it has touched count as
    memory of each worker.
    """

    def __init__(self, path: filesystem.Path, dtype):
        self._file = open(path, "rb", buffering=0)
        self._dtype = np.dtype(dtype)

    def read(self, starts: Iterable[int], ends: Iterable[int]) -> np.ndarray:
        """The tokens of some ranges, one range after the other."""
        size, file = self._dtype.itemsize, self._file.fileno()
        pieces = [
            os.pread(file, (end - start) * size, start * size)
            for start, end in zip(starts, ends, strict=True)
        ]
        return np.frombuffer(b"".join(pieces), self._dtype)


@dataclasses.dataclass(frozen=True)
class Store:
    """A token store on disk.

    Attributes:
      tokens: the `TokenFile`.
      sentences: [sentences + 1], where each begins among the tokens.
      documents: [documents + 1], where each begins among the sentences.
    """

    tokens: TokenFile
    sentences: np.ndarray
    documents: np.ndarray


def open_store(folder: filesystem.Path, vocab_size: int) -> Store:
    """Opens what `write_store` wrote."""

    def mapped(name):
        path = os.path.join(folder, name)
        return np.memmap(path, np.int64, "r").view(np.ndarray)

    tokens = os.path.join(folder, _TOKENS)
    return Store(
        TokenFile(tokens, token_dtype(vocab_size)),
        mapped(_SENTENCES),
        mapped(_DOCUMENTS),
    )


def is_store(folder: filesystem.Path, vocab_size: int, counts: dict) -> bool:
    """Whether a folder holds all of a store that was counted."""
    token_bytes = np.dtype(token_dtype(vocab_size)).itemsize
    sizes = {
        _TOKENS: counts["input_tokens"] * token_bytes,
        _SENTENCES: (counts["input_sentences"] + 1) * 8,
        _DOCUMENTS: (counts["input_documents"] + 1) * 8,
    }
    paths = {os.path.join(folder, name): size for name, size in sizes.items()}
    return all(
        os.path.isfile(path) and os.path.getsize(path) == size
        for path, size in paths.items()
    )


def token_dtype(vocab_size: int) -> type:
    """The smallest type that holds every id."""
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


def check_text(path: filesystem.Path) -> None:
    """Refuses a file that does not begin as UTF-8 text does.

    Raises:
      ValueError: if it is UTF-16, compressed, or holds other bytes.
    """
    with filesystem.open_file(path) as file:
        probe = file.read(_PROBE_BYTES)
    if probe.startswith(_UTF16_BOMS):
        raise ValueError(
            f"{path} begins as UTF-16 text does; only UTF-8 is read. "
            "Please convert it: iconv -f utf-16 -t utf-8"
        )
    if probe.startswith(_GZIP):
        raise ValueError(f"{path} is compressed. Please unpack it: gunzip")
    text, num_bad = _decode(probe)
    if num_bad > max(3, _MAX_BAD_SHARE * len(text)):  # One may be cut.
        raise ValueError(
            f"{path} is no UTF-8 text: of its first {len(text)} characters, "
            f"{num_bad} are not. Is it binary, or text in another encoding? "
            "Text can be converted with iconv."
        )


def read_blocks(files: Iterable[filesystem.Path]) -> Iterator[bytes]:
    """Yields the text of files in blocks of bytes that end with a line.

    A file ends with a blank line, whether it has one or not. Only a line that
    is longer than a block is cut, at white space if there is any.
    """
    for path in files:
        with filesystem.open_file(path) as file:
            rest = file.read(BLOCK_BYTES).removeprefix(_BOM)
            while data := file.read(BLOCK_BYTES):
                cut = _last_cut(rest)
                yield rest[:cut]
                rest = rest[cut:] + data
            yield rest + b"\n\n"


def _last_cut(data):
    """Where to cut a block: after its last line, word, or character."""
    cut = data.rfind(b"\n") + 1 or data.rfind(b" ") + 1
    if cut:
        return cut
    cut = max(0, len(data) - 4)  # no character is longer
    while cut < len(data) and data[cut] & 0xC0 == 0x80:  # inside a character
        cut += 1
    return cut


def encode_block(block: bytes, tokenizer, max_sentence_tokens: int) -> tuple:
    """Tokenizes a block of lines.

    Args:
      block: UTF-8 text, as bytes.
      tokenizer: a `Tokenizer`.
      max_sentence_tokens: longer sentences are cut.

    Returns:
      tokens: ids of all sentences.
      lengths: tokens of each sentence; 0 for a blank line.
      counts: dict of how many characters were not UTF-8 or 0, how many lines
        were cut, and how many became no token.
    """
    text, num_bad = _decode(block)
    lines = text.removesuffix("\n").split("\n")
    parts = [_line_parts(line.strip()) for line in lines]
    encoded = iter(
        tokenizer.encode_batch([part for line in parts for part in line])
    )
    counts = {"bad_characters": num_bad, "cut_lines": 0, "lost_lines": 0}
    sentences: list[list[int]] = []
    for line in parts:
        if not line:
            sentences.append([])
            continue
        found = [
            sentence
            for ids in itertools.islice(encoded, len(line))
            for sentence in _cut(ids, max_sentence_tokens, tokenizer)
        ]
        sentences.extend(found)
        counts["cut_lines"] += len(found) > 1
        counts["lost_lines"] += not found
    lengths = np.fromiter(map(len, sentences), np.int32, len(sentences))
    tokens: np.ndarray = np.fromiter(
        itertools.chain.from_iterable(sentences),
        token_dtype(tokenizer.vocab_size),
        lengths.sum(),
    )
    return tokens, lengths, counts


def _decode(block):
    """The text with Unix line ends, and its number of bad characters."""
    try:
        text, num_bad = block.decode(), 0
    except UnicodeDecodeError:
        text = block.decode(errors="replace")
        num_bad = text.count(_BAD) - block.count(_BAD.encode())
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, num_bad + text.count("\0")


def _line_parts(line):
    """A line as strings that are not too long; none for a blank line."""
    if len(line) > MAX_LINE_CHARS:
        return _LINE_PARTS.findall(line)
    return [line] if line else []


def _cut(ids, limit, tokenizer):
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
    """Writes a token store.

    Args:
      folder: where; it exists.
      blocks: results of `encode_block`, in the order of the text.

    Returns:
      A dict of what was counted: input_documents, input_sentences,
      input_tokens, cut_documents, and the counts of `encode_block`.
    """
    counts: collections.Counter = collections.Counter()
    with contextlib.ExitStack() as stack:
        token_file, sentence_file, document_file = (
            stack.enter_context(open(os.path.join(folder, name), "wb"))
            for name in (_TOKENS, _SENTENCES, _DOCUMENTS)
        )
        structure = _Structure()
        for tokens, lengths, block_counts in blocks:
            counts.update(block_counts)
            structure.append(lengths.tolist())
            token_file.write(tokens.tobytes())
            structure.flush(sentence_file, document_file)
        structure.end_document()
        structure.flush(sentence_file, document_file)
        # The disk has the store before anybody notes that it is complete.
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
    """Where sentences and documents begin, as the text comes in."""

    def __init__(self):
        self.num_tokens = self.num_sentences = 0
        self.num_documents = self.num_cut = 0
        self.first_token = self.first_sentence = 0  # of the open document
        # Written soon: the first values are the beginning.
        self.sentences = array.array("q", [0])
        self.documents = array.array("q", [0])

    def append(self, lengths):
        """Takes up sentences; a length of 0 is a blank line."""
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
