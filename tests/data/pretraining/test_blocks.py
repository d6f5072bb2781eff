"""Tests of how a corpus is divided; Apache Beam is not needed."""

import dataclasses
import gzip
import io
import random
import re

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import filesystem
from albert_tf.data.pretraining import (
    blocks,
    corpus,
    rules,
    sequences,
    shards,
)
from albert_tf.text import tokenization

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"w{i}" for i in range(40)]
DOCUMENT_END = re.compile(r"\n[^\S\n]*\n")


@pytest.fixture
def vocabulary_file(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(SPECIAL + WORDS) + "\n")
    return str(path)


@pytest.fixture
def tokenizer(vocabulary_file):
    return tokenization.build_tokenizer(vocab_file=vocabulary_file)


@pytest.fixture
def small(monkeypatch):
    """Makes tasks and blocks small."""
    monkeypatch.setattr(blocks, "TASK_BYTES", 500)
    monkeypatch.setattr(blocks, "MAX_DOCUMENT_BYTES", 200)
    monkeypatch.setattr(blocks, "BLOCK_TOKENS", 60)


def settings_of(vocabulary_file, objective="sop", dupe_factor=1, seed=7):
    return shards.Settings(
        tokenizer=(("vocab_file", vocabulary_file),),
        sequence=rules.SequenceRule(
            max_seq_length=16, sentence_objective=objective
        ),
        masking=rules.MaskingRule(max_predictions=3),
        dupe_factor=dupe_factor,
        seed=seed,
    )


def make_text(rng, num_documents=30, line_end="\n", most=9):
    """Documents of a few sentences, with separators of several kinds."""
    text = ""
    for _ in range(num_documents):
        for _ in range(rng.randint(1, most)):
            words = rng.choices(WORDS, k=rng.randint(1, 5))
            text += " ".join(words) + line_end
        text += rng.choice(["", " ", "\t "]) + line_end * rng.randint(1, 2)
    return text


def documents_of(text):
    """Lists of lines, by a rule of one line each."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    parts = DOCUMENT_END.split(re.sub(r"\n(?:[^\S\n]*\n)+", "\n\n", text))
    lists = ([x.strip() for x in p.split("\n") if x.strip()] for p in parts)
    return [lines for lines in lists if lines]


def read_documents(tasks, contents):
    """The documents of all tasks, through `read_task`."""
    documents = []
    for task in tasks:
        text = b"".join(
            blocks.read_task(task, lambda path: io.BytesIO(contents[path]))
        )
        documents += documents_of(text.decode())
    return documents


def test_tasks_cover_each_byte_of_each_file_once(small):
    rng = random.Random(1)
    files = [
        blocks.TextFile(f"{i:03}", rng.choice([0, 30, 499, 500, 999, 9000]))
        for i in range(50)
    ]
    tasks = blocks.list_tasks(files)
    spans = [span for task in tasks for span in task]
    for path, size, _ in files:
        own = [span for span in spans if span.path == path]
        assert own[0].start == 0 and own[-1].end is None
        assert [s.end for s in own[:-1]] == [s.start for s in own[1:]]
        sizes = np.diff([*(span.start for span in own), size])
        assert min(sizes) >= min(size, 500) and max(sizes) < 1000
    assert [s.path for s in spans] == sorted(s.path for s in spans)
    sizes = {path: size for path, size, _ in files}
    for task in tasks:
        num_bytes = sum(
            (sizes[path] if end is None else end) - start
            for path, start, end in task
        )
        assert 500 <= num_bytes < 3 * 500


def test_compressed_files_are_not_divided(small):
    file = blocks.TextFile("a.gz", 9999, is_compressed=True)
    assert blocks.list_tasks([file]) == [[blocks.Span("a.gz")]]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_documents_stay_whole_wherever_files_are_divided(small, line_end):
    rng = random.Random(2)
    texts = [make_text(rng, n, line_end) for n in (0, 3, 40, 90)]
    texts[1] = texts[1].rstrip()
    contents = {str(i): text.encode() for i, text in enumerate(texts)}
    contents["3"] = b"\xef\xbb\xbf" + contents["3"]  # A byte order mark.
    tasks = blocks.list_tasks(
        blocks.TextFile(path, len(data)) for path, data in contents.items()
    )
    assert len(tasks) > 8
    wanted = [doc for text in texts for doc in documents_of(text)]
    assert read_documents(tasks, contents) == wanted


@pytest.mark.parametrize("kind", ["lines", "words", "characters"])
def test_no_text_is_lost_where_a_document_is_too_long(small, kind):
    rng = random.Random(3)
    words = rng.choices(WORDS, k=900)
    text = {
        "lines": "\n".join(words),
        "words": " ".join(words),
        "characters": "äü☃🂡" * 300,
    }[kind]
    data = text.encode()
    positions = range(0, len(data), 7)
    cuts = [blocks.find_cut(io.BytesIO(data), p) for p in positions]
    assert cuts == sorted(cuts) and cuts[-1] == len(data)
    pieces = [
        data[start:end].decode()  # An error if a character is cut.
        for start, end in zip([0, *cuts[:-1]], cuts, strict=True)
    ]
    assert "".join(pieces) == text
    if kind != "characters":
        assert " ".join(pieces).split() == words
    assert any(len(piece.encode()) < 500 for piece in pieces)


def test_cuts_are_in_the_order_of_positions(small):
    rng = random.Random(4)
    ends = ["\n", "\r\n", "\r", " ", "\n\n", "\n \t\r\n", "x" * 250, "ä"]
    for _ in range(60):
        data = "".join(rng.choices(ends, k=80)).encode()
        file = io.BytesIO(data)
        cuts = [blocks.find_cut(file, p) for p in range(len(data) + 1)]
        assert cuts == sorted(cuts)
        assert all(p <= cut <= len(data) for p, cut in enumerate(cuts))


def test_a_file_that_is_not_text_is_named():
    data = {"a": b"good\n", "b": b"\x1f\x8b" + bytes(range(256))}
    task = [blocks.Span("a"), blocks.Span("b")]
    with pytest.raises(ValueError, match="b is compressed"):
        list(blocks.read_task(task, lambda path: io.BytesIO(data[path])))


def test_compressed_text_is_read_whole(tmp_path):
    text = make_text(random.Random(5)).encode()
    (tmp_path / "a.gz").write_bytes(gzip.compress(text))
    task = [blocks.Span(str(tmp_path / "a.gz"))]
    assert b"".join(blocks.read_task(task, gzip.open)) == text + b"\n\n"


def test_blocks_hold_what_one_store_holds(small, tokenizer, tmp_path):
    text = make_text(random.Random(6), 80).encode()
    encoded = corpus.encode_block(text, tokenizer, 4)
    wanted = corpus.write_store(tmp_path, [encoded])
    store = corpus.open_store(tmp_path, tokenizer.vocab_size)
    counts, stores = blocks.encode_task([text], tokenizer, 4)
    found = list(stores)
    assert counts == wanted and len(found) > 5
    ids = [s.tokens.read([0], [int(s.sentences[-1])]) for s in found]
    np.testing.assert_array_equal(
        np.concatenate(ids), store.tokens.read([0], [wanted["input_tokens"]])
    )
    lengths = [np.diff(s.sentences) for s in found]
    np.testing.assert_array_equal(
        np.concatenate(lengths), np.diff(store.sentences)
    )
    sizes = [np.diff(s.documents) for s in found]
    np.testing.assert_array_equal(
        np.concatenate(sizes), np.diff(store.documents)
    )
    longest = np.diff(store.sentences[store.documents]).max()
    for block in found:
        assert 60 - longest <= block.sentences[-1] < 3 * 60
        assert block.sentences[0] == block.documents[0] == 0


def test_a_store_in_memory_reads_like_one_on_disk(tmp_path):
    ids = np.arange(50, dtype=np.uint16)
    (tmp_path / "ids").write_bytes(ids.tobytes())
    on_disk = corpus.TokenFile(tmp_path / "ids", np.uint16)
    in_memory = corpus.TokenArray(ids)
    for starts, ends in (([], []), ([3], [3]), ([7, 0, 49], [9, 5, 50])):
        found = in_memory.read(starts, ends)
        np.testing.assert_array_equal(found, on_disk.read(starts, ends))
        assert found.dtype == np.uint16


def built(block, settings, place=(0, 0)):
    """All records of a block after their keys, and the sums of counts."""
    vocabulary = sequences.Vocabulary.from_tokenizer(
        tokenization.build_tokenizer(**dict(settings.tokenizer))
    )
    batches = list(blocks.build_records(block, place, settings, vocabulary))
    summary = blocks.merge_summaries({"records": c} for _, c in batches)
    return [r for keyed, _ in batches for r in keyed], summary["records"]


def block_of(text, tokenizer):
    _, stores = blocks.encode_task([text.encode()], tokenizer, 13)
    (block,) = stores
    return block


def test_seed_and_place_decide_the_records(tokenizer, vocabulary_file):
    block = block_of(make_text(random.Random(7)), tokenizer)
    settings = settings_of(vocabulary_file, dupe_factor=3)
    first, counts = built(block, settings)
    assert counts["sequences"] == len(first) > 60
    assert built(block, settings)[0] == first
    keys = {record[: blocks.KEY_BYTES] for record in first}
    assert len(keys) == len(first)
    for other, place in (
        (settings, (0, 1)),
        (settings, (1, 0)),
        (settings_of(vocabulary_file, dupe_factor=3, seed=8), (0, 0)),
    ):
        found, _ = built(block, other, place)
        assert keys.isdisjoint(r[: blocks.KEY_BYTES] for r in found)
        examples = {record[blocks.KEY_BYTES :] for record in found}
        same = examples & {record[blocks.KEY_BYTES :] for record in first}
        assert len(same) < len(first) / 5


def test_nsp_needs_two_documents_in_a_block(tokenizer, vocabulary_file):
    settings = settings_of(vocabulary_file, "nsp", dupe_factor=20)
    with pytest.raises(ValueError, match="has only one"):
        built(block_of("w1 w2\nw3 w4\n", tokenizer), settings)
    two = block_of("w1 w2\nw3 w4\n\nw5 w6\nw7\n", tokenizer)
    _, counts = built(two, settings)
    assert 0.3 < counts["swapped"] / counts["sequences"] < 0.7


def test_buckets_are_ranges_of_keys_of_equal_width():
    keys = sorted(blocks.key_of(5, i) for i in range(3000))
    found = [blocks.bucket_of(key, 7) for key in keys]
    assert found == sorted(found)
    assert set(found) == set(range(7))
    assert max(np.bincount(found)) < 1.2 * 3000 / 7
    assert blocks.bucket_of(b"\xff" * 16, 7) == 6


def test_the_number_of_buckets_follows_the_size(monkeypatch):
    monkeypatch.setattr(blocks, "BUCKET_BYTES", 1000)
    plain = blocks.TextFile("a", 5000)
    once, thrice = settings_of("v"), settings_of("v", dupe_factor=3)
    assert blocks.buckets_per_shard([plain], 100, once, 0) == 1
    assert blocks.buckets_per_shard([plain], 2, once, 0) == 5
    assert blocks.buckets_per_shard([plain], 2, thrice, 0) == 15
    packed = blocks.TextFile("a", 5000, is_compressed=True)
    assert blocks.buckets_per_shard([packed], 2, once, 0) > 5


def test_the_number_of_buckets_follows_that_of_short_documents(
    vocabulary_file, tokenizer, monkeypatch
):
    assert blocks.documents_per_byte([b"w1 w2\n\n" * 9, b""]) == 1 / 7
    monkeypatch.setattr(blocks, "BUCKET_BYTES", 100_000)
    text = "w1 w2\n\n" * 500
    density = blocks.documents_per_byte([text.encode()])
    settings = settings_of(vocabulary_file, dupe_factor=2)
    settings = dataclasses.replace(
        settings,
        sequence=dataclasses.replace(settings.sequence, max_seq_length=512),
        masking=dataclasses.replace(settings.masking, max_predictions=77),
    )
    found, _ = built(block_of(text, tokenizer), settings)
    file = blocks.TextFile("a", len(text))
    count = blocks.buckets_per_shard([file], 2, settings, density)
    assert 0.7e5 < sum(map(len, found)) / 2 / count < 1.1e5


def test_records_are_framed_as_tensorflow_frames_them(tmp_path):
    pytest.importorskip("google_crc32c", reason="needs the extra `beam`")
    data = [b"", b"x", bytes(range(256)) * 300]
    path = str(tmp_path / "a.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for record in data:
            writer.write(record)
    framed = b"".join(map(blocks.frame_record, data))
    assert framed == (tmp_path / "a.tfrecord").read_bytes()


def test_buckets_are_sorted_and_joined_in_order(tmp_path):
    pytest.importorskip("google_crc32c", reason="needs the extra `beam`")
    rng = random.Random(8)
    keyed = [blocks.key_of(i) + b"%d" % i for i in range(200)]
    rng.shuffle(keyed)
    parts: dict[int, list] = {}
    for record in keyed:
        parts.setdefault(blocks.bucket_of(record, 4), []).append(record)
    written = [blocks.write_bucket(parts[i], str(tmp_path)) for i in range(4)]
    assert [number for _, number in written] == [
        len(parts[i]) for i in range(4)
    ]
    output = tmp_path / "made/a.tfrecord"
    size = blocks.join_buckets(
        [path for path, _ in written], str(tmp_path / "x"), str(output)
    )
    assert size == output.stat().st_size
    found = list(tf.data.TFRecordDataset(str(output)).as_numpy_iterator())
    assert found == [record[blocks.KEY_BYTES :] for record in sorted(keyed)]
    assert not list((tmp_path / "x").iterdir())


@pytest.mark.parametrize("scheme", ["", "ram://"])
def test_a_shard_without_buckets_is_written(tmp_path, scheme):
    """A remote file that nothing is written to does not appear by itself."""
    path = f"{scheme}{tmp_path}/empty.tfrecord"
    assert blocks.join_buckets([], f"{scheme}{tmp_path}/x", path) == 0
    assert filesystem.exists(path)


def test_summaries_add_counts_and_collect_shards():
    rows = [
        {"text": {"input_tokens": 5, "bad_characters": 0}},
        {"records": {"sequences": 2}},
        {"shards": {"0": {"sequences": 1, "num_bytes": 9}}},
        {"text": {"input_tokens": 6, "bad_characters": 1}},
        {"shards": {"1": {"sequences": 4, "num_bytes": 8}}},
    ]
    whole = blocks.merge_summaries(rows)
    assert whole == {
        "text": {"input_tokens": 11, "bad_characters": 1},
        "records": {"sequences": 2},
        "shards": {
            "0": {"sequences": 1, "num_bytes": 9},
            "1": {"sequences": 4, "num_bytes": 8},
        },
    }
    # A runner merges them in any grouping.
    parts = [blocks.merge_summaries(rows[:2]), blocks.merge_summaries(rows[2:])]
    assert blocks.merge_summaries([*parts, blocks.merge_summaries([])]) == whole
