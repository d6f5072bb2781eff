"""Divides a corpus among machines; the steps of `beam_pipeline`.

The corpus is divided by sizes and positions alone, never by machines, so the
records do not depend on where a step runs:

    span    part of a file, from one start of a document to another
    task    spans of about TASK_BYTES; its text is tokenized in one place
    block   whole documents of a task, about BLOCK_TOKENS; it is planned and
            masked in one place, once for each duplicate
    bucket  records with neighboring keys, about BUCKET_BYTES; it is sorted in
            one place
    shard   an output file, of consecutive buckets

The key of a record is a hash of the seed and its position in the corpus.
Sorted by key, the records of the whole corpus are in random order.
"""

import collections
import hashlib
import math
import os
import re
import shutil
import struct
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from albert_tf import filesystem
from albert_tf.data.pretraining import corpus, sequences, shards
from albert_tf.text import tokenization

# These sizes affect the records, because each block has its own seed.
TASK_BYTES = 1 << 25
BLOCK_TOKENS = 1 << 20
# A longer document may be cut where a span ends. In most text, it has more
# than `corpus.MAX_DOCUMENT_TOKENS` and is cut in any case.
MAX_DOCUMENT_BYTES = 1 << 22
# These affect only memory and the number of files.
BUCKET_BYTES = 1 << 26
_RECORD_BYTES_PER_TEXT_BYTE = 2
# Per token of max_seq_length, to which records are padded.
_RECORD_BYTES_PER_TOKEN = 6
_TEXT_BYTES_PER_COMPRESSED_BYTE = 4

KEY_BYTES = 16
_LINE_END = rb"(?:\n|\r(?!\n))"
_DOCUMENT_END = re.compile(_LINE_END + rb"[^\S\n]*?" + _LINE_END)
# Where to cut a document that is too long, in order of preference.
_OTHER_CUTS = (
    re.compile(_LINE_END),
    re.compile(rb" "),
    re.compile(rb"(?=[^\x80-\xbf])"),  # The start of a UTF-8 character.
)


class TextFile(NamedTuple):
    """A text file; a compressed one can only be read from its start."""

    path: str
    num_bytes: int
    is_compressed: bool = False


class Span(NamedTuple):
    """The documents that start after `start` and not after `end`.

    `start` 0 includes the document at the start of the file; `end` None is the
    end of the file.
    """

    path: str
    start: int = 0
    end: int | None = None


def list_tasks(files: Iterable[TextFile]) -> list[list[Span]]:
    """Divides files into tasks.

    No task has less than TASK_BYTES, unless the whole corpus has less. A
    compressed file is not divided.
    """
    tasks: list[list[Span]] = []
    task: list[Span] = []
    num_bytes = 0
    for path, size, is_compressed in files:
        count = 1 if is_compressed else max(1, size // TASK_BYTES)
        bounds = [size * i // count for i in range(count)]
        for start, end in zip(bounds, [*bounds[1:], None], strict=True):
            task.append(Span(path, start, end))
            num_bytes += size // count
            if num_bytes >= TASK_BYTES:
                tasks.append(task)
                task, num_bytes = [], 0
    if tasks:
        tasks[-1] += task
        return tasks
    return [task]


def find_cut(file, position: int) -> int:
    """Returns where a span that is bounded by a position ends.

    This is after the next blank line. If there is none within
    MAX_DOCUMENT_BYTES, it is after a line, a word or a character. A later
    position never has an earlier cut, so spans neither overlap nor leave gaps.
    """
    file.seek(position)
    window = file.read(MAX_DOCUMENT_BYTES + 1)
    is_end = len(window) <= MAX_DOCUMENT_BYTES
    for pattern in (_DOCUMENT_END, *_OTHER_CUTS):
        match = pattern.search(window)
        if match and match.end() <= MAX_DOCUMENT_BYTES:
            return position + match.end()
        if is_end:
            return position + len(window)
    return position


def read_task(spans: Iterable[Span], open_file: Callable) -> Iterator[bytes]:
    """Yields the text of a task in blocks of whole lines, as bytes.

    Each span is terminated by a blank line. `open_file` decompresses.

    Raises:
      ValueError: if the first bytes of a file are not UTF-8 text, or if
        `open_file` cannot decompress a file.
    """
    for path, start, end in spans:
        with open_file(path) as file:
            if not start:
                corpus.check_probe(path, file.read(corpus.PROBE_BYTES))
            first = find_cut(file, start) if start else 0
            last = math.inf if end is None else find_cut(file, end)
            file.seek(first)
            yield from corpus.split_blocks(_Limited(file, last - first))


class _Limited:
    """Reads at most a number of bytes from an open file."""

    def __init__(self, file, num_bytes):
        self._file = file
        self._left = num_bytes

    def read(self, size):
        data = self._file.read(min(size, self._left))
        self._left -= len(data)
        return data


def encode_task(
    blocks: Iterable[bytes],
    tokenizer: tokenization.Tokenizer,
    max_sentence_tokens: int,
) -> tuple[dict[str, int], Iterator[corpus.Store]]:
    """Tokenizes the text of a task into a temporary store on disk.

    Returns:
      The counts of `corpus.write_store`, and an iterator of blocks from
      `split_store`, which must be exhausted: it then removes the store.
    """
    folder = tempfile.TemporaryDirectory(prefix="albert_tf-")
    encoded = (
        corpus.encode_block(block, tokenizer, max_sentence_tokens)
        for block in blocks
    )
    counts = corpus.write_store(folder.name, encoded)

    def stores():
        with folder:
            yield from split_store(
                corpus.open_store(folder.name, tokenizer.vocab_size)
            )

    return counts, stores()


def split_store(store: corpus.Store) -> Iterator[corpus.Store]:
    """Yields the documents of a store in blocks of similar size, in memory.

    A block has at least BLOCK_TOKENS minus the longest document, so it has
    several documents if the store has.
    """
    ends = store.sentences[store.documents[1:]]  # [documents], in tokens
    if not len(ends):
        return
    count = max(1, int(ends[-1]) // BLOCK_TOKENS)
    wanted = ends[-1] * np.arange(1, count) // count
    cuts = [0, *(np.searchsorted(ends, wanted) + 1).tolist(), len(ends)]
    for first, last in zip(cuts[:-1], cuts[1:], strict=True):
        documents = store.documents[first : last + 1]
        sentences = store.sentences[documents[0] : documents[-1] + 1]
        ids = store.tokens.read([int(sentences[0])], [int(sentences[-1])])
        yield corpus.Store(
            corpus.TokenArray(ids),
            sentences - sentences[0],
            documents - documents[0],
        )


def build_records(
    store: corpus.Store,
    place: tuple[int, int],
    settings: shards.Settings,
    vocabulary: sequences.Vocabulary,
) -> Iterator[tuple[list[bytes], dict[str, int]]]:
    """Yields the records of a block in batches, with their counts.

    `place`, the index of the task and of the block in it, determines all
    random choices, with the seed.

    Yields:
      The records, each after its key of KEY_BYTES; and the counts of
      `shards.build_examples`, with `dropped_words`.

    Raises:
      ValueError: if NSP has only one document to choose from.
    """
    documents = range(len(store.documents) - 1)
    rule = settings.sequence
    if rule.sentence_objective == "nsp" and len(documents) == 1:
        raise ValueError(
            "NSP takes half of the second segments from another document of "
            f"the same block of text, but a block of {store.sentences[-1]} "
            "tokens has only one. Are documents separated by blank lines?"
        )
    size = max(1, shards.BATCH_TOKENS // rule.max_seq_length)
    for dupe in range(settings.dupe_factor):
        seed = (settings.seed, *place, dupe)
        plan, num_dropped = sequences.plan_documents(
            store, documents, rule, vocabulary.is_word_start, str(seed)
        )
        yield [], {"dropped_words": num_dropped}
        for i in range(0, len(plan), size):
            examples, counts = shards.build_examples(
                store, plan[i : i + size], settings, vocabulary, (*seed, i)
            )
            keyed = [
                key_of(*seed, number) + example
                for number, example in enumerate(examples, i)
            ]
            yield keyed, counts


def key_of(*position: int) -> bytes:
    """Returns a hash of a position in the corpus, KEY_BYTES long."""
    text = repr(position).encode()
    return hashlib.blake2b(text, digest_size=KEY_BYTES).digest()


def bucket_of(key: bytes, num_buckets: int) -> int:
    """Returns the bucket of a key; keys of a bucket precede the next one's."""
    return int.from_bytes(key[:8], "big") * num_buckets >> 64


def documents_per_byte(samples: Iterable[bytes]) -> float:
    """Returns how many documents end in a byte of text, estimated."""
    num_ends = num_bytes = 0
    for sample in samples:
        num_ends += len(_DOCUMENT_END.findall(sample))
        num_bytes += len(sample)
    return num_ends / max(num_bytes, 1)


def buckets_per_shard(
    files: Iterable[TextFile],
    num_shards: int,
    settings: shards.Settings,
    density: float,
) -> int:
    """Returns how many buckets of about BUCKET_BYTES a shard has.

    `density` is the number of documents per byte of text: short documents
    become one padded record each, which is larger than its text.
    """
    text_bytes = sum(
        file.num_bytes
        * (_TEXT_BYTES_PER_COMPRESSED_BYTE if file.is_compressed else 1)
        for file in files
    )
    record_bytes = _RECORD_BYTES_PER_TOKEN * settings.sequence.max_seq_length
    ratio = max(_RECORD_BYTES_PER_TEXT_BYTE, density * record_bytes)
    num_bytes = text_bytes * ratio * settings.dupe_factor
    return max(1, math.ceil(num_bytes / num_shards / BUCKET_BYTES))


def write_bucket(keyed: Iterable[bytes], folder: str) -> tuple[str, int]:
    """Writes the records of a bucket, sorted by key, to a file of a new name.

    A step may be repeated, even at the same time, so no name is used twice.

    Returns:
      The name, and the number of records.
    """
    path = os.path.join(folder, f"{uuid.uuid4().hex}.tfrecord")
    num_records = 0
    with filesystem.writing(path) as file:
        for record in sorted(keyed):
            file.write(frame_record(record[KEY_BYTES:]))
            num_records += 1
    return path, num_records


def frame_record(data: bytes) -> bytes:
    """Returns a record as it is in a TFRecord file.

    TensorFlow's writer would add 600 MB to the memory of each worker.
    """
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data):
    import google_crc32c

    crc = google_crc32c.value(data)
    # Rotated and shifted, so that data that contain checksums differ from
    # their own.
    crc = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<I", crc)


def join_buckets(paths: list[str], folder: str, output: str) -> int:
    """Concatenates TFRecord files into a shard; returns its size in bytes.

    It is written to `folder`, on the same file system, and then renamed.
    """
    joined = os.path.join(folder, f"{uuid.uuid4().hex}.joined")
    filesystem.make_folder(folder)
    filesystem.make_folder(os.path.dirname(output))
    with filesystem.open_file(joined, "wb") as file:
        for path in paths:
            with filesystem.open_file(path) as bucket:
                shutil.copyfileobj(bucket, file, 1 << 20)
    num_bytes = filesystem.size(joined)
    filesystem.rename(joined, output)
    return num_bytes


def merge_summaries(summaries: Iterable[dict]) -> dict:
    """Adds the counts of parts of the work.

    Each has some of `text` (the counts of `encode_task`), `records` (the
    counts of `build_records`), and `shards` (a dict from index of the shard
    to its `sequences` and `num_bytes`); the result has all three.
    """
    text: collections.Counter = collections.Counter()
    built: collections.Counter = collections.Counter()
    written: dict[str, dict] = {}
    for summary in summaries:
        text.update(summary.get("text", {}))
        built.update(summary.get("records", {}))
        written |= summary.get("shards", {})
    return {"text": dict(text), "records": dict(built), "shards": written}
