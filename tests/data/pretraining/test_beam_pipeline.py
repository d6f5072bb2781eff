"""Tests of create_pretraining_data.py --runner, with Apache Beam on small text.

They run where Apache Beam is installed, as by `make test-beam`. The locked
packages leave it out: it needs an older protobuf.
"""

import bz2
import collections
import gzip
import hashlib
import importlib
import importlib.util
import io
import itertools
import json
import lzma
import random
import sys

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.commands.create_pretraining_data import DataFlags
from albert_tf.data.pretraining import blocks, opening, records, sidecars
from albert_tf.model.config import AlbertConfig
from albert_tf.programs import create_pretraining_data as program

needs_beam = pytest.mark.skipif(
    any(
        importlib.util.find_spec(name) is None
        for name in ("apache_beam", "backports", "google_crc32c")
    ),
    reason="needs the extra `beam`",
)
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"w{i}" for i in range(2000)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a vocabulary and 3 files, and small blocks."""
    monkeypatch.setattr(blocks, "TASK_BYTES", 2000)
    monkeypatch.setattr(blocks, "MAX_DOCUMENT_BYTES", 500)
    monkeypatch.setattr(blocks, "BLOCK_TOKENS", 200)
    rng = random.Random(0)
    (tmp_path / "vocab.txt").write_text("\n".join(SPECIAL + WORDS) + "\n")
    for number, count in enumerate((5, 60, 25)):
        documents = [
            "\n".join(
                " ".join(rng.choices(WORDS, k=rng.randint(1, 9)))
                for _ in range(rng.randint(2, 12))
            )
            for _ in range(count)
        ]
        text = "\n\n".join(documents).encode()
        path = tmp_path / f"text{number}.txt"
        if number == 2:
            path = tmp_path / "text2.txt.gz"
            text = gzip.compress(text)
        path.write_bytes(text)
    return tmp_path


def flags_of(folder, **changes):
    values = {
        "input_file": f"{folder}/text*",
        "output_file": f"{folder}/a.tfrecord",
        "vocab_file": f"{folder}/vocab.txt",
        "max_seq_length": 32,
        "max_predictions_per_seq": 5,
        "dupe_factor": 2,
        "num_shards": 3,
        "progress": False,
        "runner": "DirectRunner",
    }
    return DataFlags(**{**values, **changes})


def files_of(folder):
    return sorted(map(str, folder.glob("*.tfrecord")))


def digests(folder):
    return [
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("*.tfrecord"))
    ]


def read_examples(files):
    """The features of each record, as arrays."""
    features = {
        name: tf.io.FixedLenFeature(shape, dtype)
        for name, (shape, dtype) in records.pretraining_features(32, 5).items()
    }
    for serialized in tf.data.TFRecordDataset(files):
        parsed = tf.io.parse_single_example(serialized, features)
        yield {name: value.numpy() for name, value in parsed.items()}


def restore(example):
    """The ids of the two segments before masking."""
    ids = example["input_ids"].copy()
    count = int(example["masked_lm_weights"].sum())
    positions = example["masked_lm_positions"][:count]
    ids[positions] = example["masked_lm_ids"][:count]
    second = int(np.argmax(example["segment_ids"]))
    length = int(example["input_mask"].sum())
    return ids[1 : second - 1].tolist(), ids[second : length - 1].tolist()


@needs_beam
def test_records_are_read_and_described(folder):
    (folder / "text9.txt").write_text("")
    statistics = program.run(flags_of(folder))
    files = files_of(folder)
    assert [path[-24:] for path in files] == [
        f"-0000{i}-of-00003.tfrecord"[-24:] for i in range(3)
    ]
    sidecar = sidecars.read_sidecar(files)
    assert sidecar["statistics"] == statistics
    assert min(sidecar["num_records"]) > 60
    assert sidecar["flags"]["runner"] == "DirectRunner"
    examples = list(read_examples(files))
    assert (
        len(examples) == statistics["sequences"] == sum(sidecar["num_records"])
    )

    def total(name):
        return sum(float(example[name].sum()) for example in examples)

    assert total("input_mask") == statistics["tokens"]
    share = total("masked_lm_weights") / total("input_mask")
    assert statistics["masked_share"] == pytest.approx(share, abs=1e-5)
    share = total("next_sentence_labels") / len(examples)
    assert statistics["swapped_share"] == pytest.approx(share, abs=1e-5)
    names = {path.name for path in folder.iterdir()}
    assert not {name for name in names if name.startswith(".")}
    assert "a.dataset.json" in names


@needs_beam
def test_compressed_files_are_known_by_their_names(folder):
    from albert_tf.data.pretraining import beam_pipeline

    files = beam_pipeline.find_files(f"{folder}/text0.txt,{folder}/text2*")
    assert [file.is_compressed for file in files] == [False, True]
    assert files[0].num_bytes == (folder / "text0.txt").stat().st_size


@needs_beam
def test_the_statistics_are_those_of_the_local_path(folder):
    (folder / "text2.txt.gz").unlink()
    flags = flags_of(folder, dupe_factor=20)
    with_beam = program.run(flags)
    keys = json.loads((folder / "a.dataset.json").read_text())
    local = program.run(flags_of(folder, dupe_factor=20, runner=None))
    assert (
        keys.keys()
        == json.loads((folder / "a.dataset.json").read_text()).keys()
    )
    assert list(with_beam) == list(local)
    for name in ("input_documents", "input_sentences", "input_tokens"):
        assert with_beam[name] == local[name]
    for name in ("sequences", "tokens", "masked_share"):
        assert with_beam[name] == pytest.approx(local[name], rel=0.03)
    for name in ("swapped_share", "short_share"):
        assert with_beam[name] == pytest.approx(local[name], abs=0.04)


@needs_beam
def test_pretraining_accepts_the_records(folder):
    program.run(flags_of(folder))
    config = AlbertConfig(
        vocab_size=len(SPECIAL + WORDS),
        embedding_size=4,
        hidden_size=8,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=32,
    )
    opened = opening.open_records(f"{folder}/a*.tfrecord", config)
    assert opened.num_records > 200 and opened.sentence_objective == "sop"


@needs_beam
def test_each_sentence_is_in_one_record(folder, monkeypatch):
    # Divides even the shortest file.
    monkeypatch.setattr(blocks, "TASK_BYTES", 300)
    # With sentences of one word each, no segment is truncated.
    rng = random.Random(1)
    words = rng.sample(WORDS, len(WORDS))
    texts = [words[:300], words[300:1500], words[1500:]]
    for number, (path, part) in enumerate(
        zip(sorted(folder.glob("text*")), texts, strict=True)
    ):
        lines = [w + "\n" * rng.choice([1, 1, 1, 1, 2]) for w in part]
        text = "".join(lines).encode()
        path.write_bytes(gzip.compress(text) if number == 2 else text)
    statistics = program.run(flags_of(folder, dupe_factor=1))
    found = collections.Counter()
    for example in read_examples(files_of(folder)):
        first, second = restore(example)
        found.update(first + second)
    assert max(found.values()) == 1
    dropped = statistics["dropped_words"]
    assert statistics["input_sentences"] == len(found) + dropped == 2000
    assert dropped < 500


def write_word_documents(folder, count, *, lengths):
    """Writes documents of one word each, the n-th of the n-th word."""
    for path in folder.glob("text*"):
        path.unlink()
    documents = [
        "".join(" ".join([word] * length) + "\n" for length in lengths)
        for word in WORDS[:count]
    ]
    (folder / "text.txt").write_text("\n".join(documents))


@needs_beam
def test_files_are_ordered_at_random_over_the_corpus(folder):
    write_word_documents(folder, 1000, lengths=(3, 2))
    program.run(flags_of(folder, dupe_factor=1, num_shards=2))
    order = [
        max(restore(example)[0]) for example in read_examples(files_of(folder))
    ]
    assert set(order) == set(range(5, 1005))
    positions = np.arange(len(order))
    assert abs(np.corrcoef(positions, order)[0, 1]) < 0.1
    middle = len(order) // 2
    for half in (order[:middle], order[middle:]):
        assert np.mean(half) == pytest.approx(505, abs=50)


@needs_beam
def test_three_processes_write_the_same_bytes(folder, monkeypatch):
    # What other processes read must have its real value.
    monkeypatch.undo()
    monkeypatch.setattr(blocks, "TASK_BYTES", 2000)
    program.run(flags_of(folder))
    wanted = digests(folder)
    assert len(set(wanted)) == 3
    program.run(flags_of(folder, num_workers=3))
    assert digests(folder) == wanted


@needs_beam
def test_the_number_of_buckets_does_not_change_the_bytes(folder, monkeypatch):
    program.run(flags_of(folder))
    wanted = digests(folder)
    monkeypatch.setattr(blocks, "BUCKET_BYTES", 3000)
    program.run(flags_of(folder))
    assert digests(folder) == wanted


@needs_beam
def test_the_seed_decides_the_bytes(folder):
    program.run(flags_of(folder))
    first = digests(folder)
    program.run(flags_of(folder, random_seed=1))
    assert set(digests(folder)).isdisjoint(first)


@needs_beam
def test_a_divided_file_without_blank_lines_draws_a_warning(folder, caplog):
    for path in folder.glob("text*"):
        path.unlink()
    (folder / "text.txt").write_text("w1 w2 w3\nw4 w5\n" * 600)
    statistics = program.run(flags_of(folder, dupe_factor=1))
    assert statistics["input_documents"] > 2
    assert "No blank line" in caplog.text


@needs_beam
def test_nsp_takes_segments_of_other_documents(folder):
    write_word_documents(folder, 300, lengths=(3, 2, 2))
    statistics = program.run(flags_of(folder, sentence_objective="nsp"))
    assert statistics["swapped_share"] == pytest.approx(0.5, abs=0.07)
    for example in read_examples(files_of(folder)):
        first, second = map(set, restore(example))
        assert (first == second) != example["next_sentence_labels"][0]


@needs_beam
def test_words_that_are_given_by_spaces_are_masked_as_a_whole(folder):
    for path in folder.glob("text*"):
        path.unlink()
    # Words of two characters, of ids 5 and 6, 7 and 8, and so on.
    words = [chr(0x4E00 + i) + chr(0x4E01 + i) for i in range(0, 80, 2)]
    vocabulary = "\n".join([*SPECIAL, *"".join(words)])
    (folder / "vocab.txt").write_text(vocabulary, encoding="utf-8")
    rng = random.Random(0)
    lines = [" ".join(rng.choices(words, k=6)) for _ in range(300)]
    (folder / "text.txt").write_text("\n\n".join(lines), encoding="utf-8")
    program.run(flags_of(folder, words_from_spaces=True))
    num_words = 0
    for example in read_examples(files_of(folder)):
        count = int(example["masked_lm_weights"].sum())
        places = set(example["masked_lm_positions"][:count].tolist())
        start = 1
        for segment in restore(example):
            for i, (first, second) in enumerate(itertools.pairwise(segment)):
                if first % 2 and second == first + 1:
                    num_words += start + i in places
                    assert (start + i in places) == (start + i + 1 in places)
            start += len(segment) + 1
    assert num_words > 100
    text = "\n".join(lines).replace(" ", "")
    (folder / "text.txt").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="have 0 spaces among 3,600 char"):
        program.run(flags_of(folder, words_from_spaces=True))


@needs_beam
def test_a_shard_without_records_is_written(folder, caplog):
    (folder / "few.txt").write_text("w1 w2\nw3\n\nw4 w5\nw6\n")
    flags = flags_of(folder, input_file=f"{folder}/few.txt", num_shards=40)
    statistics = program.run(flags)
    assert len(files_of(folder)) == 40
    assert sidecars.read_sidecar(files_of(folder))["statistics"] == statistics
    assert "files have no sequence" in caplog.text


@needs_beam
def test_a_failed_run_leaves_existing_records(folder, monkeypatch):
    program.run(flags_of(folder))
    wanted = digests(folder)
    with monkeypatch.context() as patch:

        def fail(*args):
            raise OSError("the disk is full")

        patch.setattr(blocks, "join_buckets", fail)
        with pytest.raises(ValueError, match="DirectRunner: .*disk is full"):
            program.run(flags_of(folder))
    assert digests(folder) == wanted
    assert sidecars.read_sidecar(files_of(folder))
    assert not list(folder.glob(".*"))
    program.run(flags_of(folder))
    assert digests(folder) == wanted
    assert not list(folder.glob(".*"))


@needs_beam
def test_remote_output_leaves_nothing_behind(
    folder, monkeypatch, tmp_path_factory
):
    program.run(flags_of(folder))
    wanted = digests(folder)
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    output = f"file://{folder}/remote/a.tfrecord"
    program.run(flags_of(folder, output_file=output))
    files = [f"file://{path}" for path in files_of(folder / "remote")]
    assert len(files) == 3 and digests(folder / "remote") == wanted
    assert sidecars.read_sidecar(files)["num_records"][0] > 60
    names = {path.name for path in (folder / "remote").iterdir()}
    assert "a.dataset.json" in names and len(names) == 4
    assert not list(cache.rglob("*.json")) and not list(cache.rglob("*.lock"))


@needs_beam
def test_an_older_run_is_replaced_by_either_path(folder, monkeypatch):
    (folder / "text2.txt.gz").unlink()
    program.run(flags_of(folder, runner=None))
    local = digests(folder)
    program.run(flags_of(folder))
    with_beam = digests(folder)
    assert set(local).isdisjoint(with_beam)
    with monkeypatch.context() as patch, pytest.raises(ValueError):
        patch.setattr(blocks, "write_bucket", None)
        program.run(flags_of(folder))
    program.run(flags_of(folder, runner=None))
    assert digests(folder) == local


@needs_beam
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"input_file": "{folder}/no_such*"}, "no_such"),
        ({"input_file": "strange://a/b"}, "Apache Beam: .*strange"),
        ({"input_file": "{folder}/empty.txt"}, "files are empty"),
        ({"input_file": "{folder}/blank.txt"}, "all lines are blank"),
        ({"input_file": "{folder}/wide.txt"}, "wide.txt is UTF-16"),
        ({"input_file": "{folder}"}, "is a folder"),
        ({"output_file": "{folder}", "num_shards": 1}, "is a folder"),
        ({"output_file": "{folder}/text0.txt", "num_shards": 1}, "overwrite"),
        ({"runner": "NoRunner"}, "Apache Beam: .*NoRunner"),
        ({"runner": "DataflowRunner"}, "cannot reach .*text0"),
        ({"runner": "FlinkRunner", "num_workers": 2}, "--parallelism"),
        ({"beam_options": "project=x"}, "does not start with an option"),
        ({"beam_options": "--runner=FlinkRunner"}, "Set the runner itself"),
        ({"beam_options": "--direct_num_workers=x"}, "beam_options"),
        (
            {"input_file": "{folder}/one.txt", "random_next_sentence": True},
            "has only one",
        ),
    ],
)
def test_bad_input_is_refused_before_a_file_is_written(folder, changes, words):
    (folder / "empty.txt").write_text("")
    (folder / "blank.txt").write_text("\n \n")
    (folder / "one.txt").write_text("w1 w2\nw3 w4\n")
    (folder / "wide.txt").write_text("w1 w2\n", encoding="utf-16")
    before = {path.name for path in folder.iterdir()}
    changes = {
        name: value.format(folder=folder) if isinstance(value, str) else value
        for name, value in changes.items()
    }
    with pytest.raises(ValueError, match=words):
        program.run(flags_of(folder, **changes))
    assert {path.name for path in folder.iterdir()} == before


def compress_zstd(text):
    """Compresses as the program `zstd` does, with a checksum."""
    zstd = importlib.import_module("backports.zstd")
    options = {zstd.CompressionParameter.checksum_flag: 1}
    return zstd.compress(text, options=options)


COMPRESS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": compress_zstd,
}


@needs_beam
@pytest.mark.parametrize("ending", COMPRESS)
def test_compressed_text_is_read_to_its_end(tmp_path, ending):
    from albert_tf.data.pretraining import compressed

    compress = COMPRESS[ending]
    text = random.Random(0).randbytes(300_000)
    path = tmp_path / f"a.txt.{ending.upper()}"
    path.write_bytes(compress(text[:70_000]) + compress(text[70_000:]))
    assert compressed.is_compressed(str(path))
    with compressed.opening(str(path), lambda path: open(path, "rb")) as file:
        assert file.read(10) == text[:10]
        file.seek(0)
        assert file.read() == text


@needs_beam
@pytest.mark.parametrize("ending", COMPRESS)
@pytest.mark.parametrize("how", ["truncated", "damaged", "not compressed"])
def test_damaged_compressed_text_is_refused(tmp_path, ending, how):
    from albert_tf.data.pretraining import compressed

    data = bytearray(COMPRESS[ending](b"w1 w2 w3\n" * 10_000))
    if how == "truncated":
        data = data[:-9]
    elif how == "damaged":
        data[len(data) // 2] ^= 0xFF
    else:
        data = b"w1 w2\n" * 99
    path = tmp_path / f"a.{ending}"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"a.{ending} cannot be decompressed"):
        with compressed.opening(str(path), lambda p: open(p, "rb")) as file:
            file.read()


@needs_beam
def test_errors_of_the_system_are_not_damage(tmp_path):
    from albert_tf.data.pretraining import compressed

    class Stored(io.BytesIO):
        def read(self, size=-1):
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        with compressed.opening("a.gz", lambda path: Stored()) as file:
            file.read()


@needs_beam
def test_a_truncated_file_is_named(folder):
    path = folder / "text2.txt.gz"
    text = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(text * 50)[:-200])
    words = "text2.txt.gz cannot be decompressed: Compressed file ended before"
    with pytest.raises(ValueError, match=words):
        program.run(flags_of(folder))
    assert not files_of(folder)


@pytest.mark.parametrize("package", ["apache_beam", "google_crc32c"])
def test_without_beam_the_package_is_named(folder, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    name = "albert_tf.data.pretraining.beam_pipeline"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr(name, raising=False)
    with pytest.raises(ImportError, match="extra `beam`: pip install"):
        program.run(flags_of(folder))
    assert not files_of(folder)


def test_options_of_beam_need_a_runner(folder):
    with pytest.raises(ValueError, match="set --runner"):
        flags_of(folder, runner=None, beam_options="--project=x")
