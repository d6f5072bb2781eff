"""Tests of examples.py: packing, padding and the cache."""

import dataclasses
import random

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import progress
from albert_tf.data import examples, table_tasks, tables
from albert_tf.data.examples import Examples
from albert_tf.text import tokenization

WORDS = [f"w{i}" for i in range(25)]
CLS, SEP = 2, 3
KEY = ["texts", 64]


def sequences(packed):
    """The arrays of sequences of some Examples."""
    return packed.ids, packed.lengths, packed.first_lengths


@pytest.fixture
def tokenizer(tmp_path):
    path = tmp_path / "vocab.txt"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    path.write_text("\n".join([*special, *WORDS]) + "\n")
    return tokenization.build_tokenizer(vocab_file=str(path))


@pytest.fixture
def three():
    """Examples of 2 choices each, 4 + 2, 3 + 5 and 2 + 3 tokens."""
    lengths = np.array([4, 2, 3, 5, 2, 3], np.int32)
    return Examples(
        ids=np.arange(5, 5 + lengths.sum(), dtype=np.int32),
        lengths=lengths,
        first_lengths=np.array([2, 2, 3, 4, 1, 2], np.int32),
        arrays={
            "label_ids": np.array([1, 0, 1], np.int32),
            "scores": np.arange(6, dtype=np.float32).reshape(3, 2),
        },
        num_choices=2,
        token_arrays={"places": np.arange(2 * lengths.sum()).reshape(-1, 2)},
        token_labels={"tag_ids": np.arange(lengths.sum(), dtype=np.int32)},
    )


def cut_slowly(num_a, num_b, limit):
    """The release's `_truncate_seq_pair`, on lengths."""
    while num_a + num_b > limit:
        if num_a > num_b:
            num_a -= 1
        else:
            num_b -= 1
    return num_a, num_b


def test_truncation_equals_removing_one_token_at_a_time():
    for num_a in range(14):
        for num_b in range(14):
            for limit in range(30):
                found = tokenization.cut_pair(num_a, num_b, limit)
                wanted = cut_slowly(num_a, num_b, limit)
                assert found == wanted, (num_a, num_b, limit)
    rng = random.Random(5)
    for _ in range(2000):
        sizes = [rng.randrange(700) for _ in range(3)]
        assert tokenization.cut_pair(*sizes) == cut_slowly(*sizes)


def pack_slowly(tokenizer, text_a, text_b, max_seq_length):
    """Source: classifier_utils.py, `convert_single_example`."""
    a = tokenizer.encode(text_a)
    b = tokenizer.encode(text_b) if text_b else None
    if b:
        num_a, num_b = cut_slowly(len(a), len(b), max_seq_length - 3)
        a, b = a[:num_a], b[:num_b]
    else:
        a = a[: max_seq_length - 2]
    row = [CLS, *a, SEP]
    first_length = len(row)
    if b:
        row += [*b, SEP]
    return row, first_length


@pytest.mark.parametrize("max_seq_length", [3, 4, 5, 9, 16])
def test_packing_a_batch_equals_packing_each_text(tokenizer, max_seq_length):
    rng = random.Random(max_seq_length)

    def text():
        return " ".join(rng.choices(WORDS, k=rng.randrange(12)))

    texts_a = [text() for _ in range(300)]
    texts_b = [rng.choice([None, "", " ", text()]) for _ in range(300)]
    packed = examples.pack_pairs(tokenizer, texts_a, texts_b, max_seq_length)
    ids, lengths, first = sequences(packed)
    wanted = [
        pack_slowly(tokenizer, a, b, max_seq_length)
        for a, b in zip(texts_a, texts_b, strict=True)
    ]
    assert ids.tolist() == [i for row, _ in wanted for i in row]
    assert lengths.tolist() == [len(row) for row, _ in wanted]
    assert first.tolist() == [n for _, n in wanted]
    assert lengths.max() == max_seq_length
    assert {ids.dtype, lengths.dtype, first.dtype} == {np.dtype(np.int32)}


@pytest.mark.parametrize("second", [None, "", " ", "\t\u3000"])
def test_an_empty_second_text_counts_as_missing(tokenizer, second):
    packed = examples.pack_pairs(tokenizer, ["w0 w1", ""], [second] * 2, 8)
    ids, lengths, first = sequences(packed)
    assert ids.tolist() == [CLS, 5, 6, SEP, CLS, SEP]
    assert lengths.tolist() == first.tolist() == [4, 2]


def test_truncation_is_counted_in_tokens_before_it(tokenizer):
    texts = [" ".join(WORDS[:n]) for n in (1, 2, 5)]
    found = examples.pack_pairs(tokenizer, texts, ["w0", "", None], 5)
    assert found.truncation == (
        "1 of 3 examples are truncated to 5 tokens; their median length is 5, "
        "the longest has 7."
    )
    assert examples.pack_pairs(tokenizer, texts, None, 7).truncation == ""


def test_truncation_is_logged_with_and_without_a_cache(
    tokenizer, tmp_path, caplog
):
    def build():
        return examples.pack_pairs(tokenizer, ["w0 w1", "w2"], None, 3)

    for folder in (None, tmp_path, tmp_path):
        caplog.clear()
        examples.cached_examples(folder, "own-dev.tsv", "key", build)
        (record,) = caplog.records
        assert record.getMessage().startswith("own-dev.tsv: 1 of 2 examples")


def test_many_texts_are_tokenized_in_parts(tokenizer, monkeypatch, capsys):
    monkeypatch.setattr(examples, "TEXTS_PER_CALL", 3)
    monkeypatch.setattr(progress, "LOG_SECONDS", 0)
    texts = [" ".join(WORDS[i : i + 3]) for i in range(7)]
    assert examples.encode_texts(tokenizer, texts) == [
        tokenizer.encode(text) for text in texts
    ]
    lines = capsys.readouterr().err.splitlines()
    assert [x.split()[1] for x in lines] == ["43%", "86%", "100%"]


def test_second_texts_may_be_missing_altogether(tokenizer):
    texts = ["w0 w1 w2", "w3"]
    for found, wanted in zip(
        sequences(examples.pack_pairs(tokenizer, texts, None, 4)),
        sequences(examples.pack_pairs(tokenizer, texts, [None, None], 4)),
        strict=True,
    ):
        np.testing.assert_array_equal(found, wanted)
    for values in sequences(examples.pack_pairs(tokenizer, [], None, 4)):
        assert values.dtype == np.int32 and values.shape == (0,)


def test_a_length_without_room_is_refused(tokenizer):
    with pytest.raises(ValueError, match="max_seq_length=2; wanted at least 3"):
        examples.pack_pairs(tokenizer, ["w0"], None, 2)


@pytest.mark.parametrize("name", ["mrpc", "sts-b"])
def test_examples_equal_the_releases_records(recordings, english, name):
    folder = recordings / "classify"
    task = table_tasks.GLUE[name]
    table = task.dev[""]
    rows = tables.read_table(str(folder / "data" / table.file), table)[:10]
    packed = examples.pack_pairs(
        english, [r.text_a for r in rows], [r.text_b for r in rows], 64
    )
    labels = table_tasks.encode_labels(rows, task, table.file)
    found = examples.pad_examples(
        dataclasses.replace(packed, arrays={"label_ids": labels}),
        range(10),
        64,
    )
    kind = tf.float32 if name == "sts-b" else tf.int64
    records = tf.data.TFRecordDataset(str(folder / f"{name}_dev.tf_record"))
    spec = {
        "input_ids": tf.io.FixedLenFeature([64], tf.int64),
        "input_mask": tf.io.FixedLenFeature([64], tf.int64),
        "segment_ids": tf.io.FixedLenFeature([64], tf.int64),
        "label_ids": tf.io.FixedLenFeature([], kind),
        "is_real_example": tf.io.FixedLenFeature([], tf.int64),
    }
    recorded = next(records.batch(12).as_numpy_iterator())
    recorded = tf.io.parse_example(recorded, spec)
    is_real = recorded.pop("is_real_example").numpy()
    assert is_real.tolist() == [1] * 10 + [0]
    assert set(found) == set(recorded)
    for feature, values in recorded.items():
        np.testing.assert_array_equal(found[feature], values[:10])
        assert not values[10].numpy().any()


def test_sequences_are_padded_one_by_one(three):
    found = examples.pad_examples(three, [2, 0], 7)
    ids = [
        [[19, 20, 0, 0, 0, 0, 0], [21, 22, 23, 0, 0, 0, 0]],
        [[5, 6, 7, 8, 0, 0, 0], [9, 10, 0, 0, 0, 0, 0]],
    ]
    segments = [
        [[0, 1, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0, 0]],
        [[0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0]],
    ]
    np.testing.assert_array_equal(found["input_ids"], ids)
    np.testing.assert_array_equal(found["input_mask"], np.array(ids) > 0)
    np.testing.assert_array_equal(found["segment_ids"], segments)
    tags = np.where(np.array(ids) > 0, np.array(ids) - 5, -1)
    np.testing.assert_array_equal(found["tag_ids"], tags)
    np.testing.assert_array_equal(found["label_ids"], [1, 1])
    np.testing.assert_array_equal(found["scores"], [[4, 5], [0, 1]])
    for name in ("input_ids", "input_mask", "segment_ids"):
        assert found[name].dtype == np.int32


def test_single_sequences_have_no_axis_of_choices(tokenizer):
    packed = examples.pack_pairs(tokenizer, ["w0", "w1 w2"], None, 9)
    found = examples.pad_examples(packed, [1, 0, 1], 4)
    np.testing.assert_array_equal(
        found["input_ids"],
        [[CLS, 6, 7, SEP], [CLS, 5, SEP, 0], [CLS, 6, 7, SEP]],
    )
    assert not found["segment_ids"].any()


def test_padding_no_examples_gives_empty_arrays(three):
    for values in examples.pad_examples(three, [], 7).values():
        assert len(values) == 0


def test_padding_to_less_than_the_longest_is_refused(three):
    examples.pad_examples(three, [0], 4)
    with pytest.raises(ValueError, match="has 5 tokens; wanted at most 4"):
        examples.pad_examples(three, [0, 1], 4)


@pytest.mark.parametrize(
    "changes",
    [
        {"ids": np.zeros(18, np.int32)},
        {"first_lengths": np.ones(5, np.int32)},
        {"num_choices": 4, "arrays": {}},
        {"num_choices": 3},
        {"arrays": {"label_ids": np.zeros(6, np.int32)}},
    ],
)
def test_inconsistent_arrays_are_refused(three, changes):
    assert len(three) == 3
    with pytest.raises(ValueError, match="do not match"):
        Examples(**{**vars(three), **changes})


def assert_same(first, second):
    for name in ("ids", "lengths", "first_lengths"):
        np.testing.assert_array_equal(
            getattr(first, name), getattr(second, name)
        )
    for field in ("arrays", "token_arrays", "token_labels"):
        ours, theirs = getattr(first, field), getattr(second, field)
        assert list(ours) == list(theirs)
        for name, wanted in ours.items():
            np.testing.assert_array_equal(theirs[name], wanted)
            assert theirs[name].dtype == wanted.dtype
    assert first.num_choices == second.num_choices


class Builder:
    """Counts its calls."""

    def __init__(self, result):
        self.result = result
        self.count = 0

    def __call__(self):
        self.count += 1
        return self.result


def test_encoded_examples_are_read_again(three, tmp_path):
    build = Builder(three)
    folder = str(tmp_path / "made" / "for it")
    for _ in range(3):
        assert_same(three, examples.cached_examples(folder, "dev", KEY, build))
    assert build.count == 1
    examples.cached_examples(folder, "dev", ["other texts", 64], build)
    examples.cached_examples(folder, "test", KEY, build)
    assert build.count == 3
    names = {path.name for path in (tmp_path / "made/for it").iterdir()}
    # Other names would lose the caches that users have.
    assert names == {
        "dev-783c09d805682f57.npz",
        "dev-6a8c908a9cd8f441.npz",
        "test-783c09d805682f57.npz",
    }


def test_without_a_folder_nothing_is_cached(three, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build = Builder(three)
    for folder in (None, ""):
        assert examples.cached_examples(folder, "dev", KEY, build) is three
    assert build.count == 2 and not list(tmp_path.iterdir())


def test_remote_folders_are_used(three):
    build = Builder(three)
    for _ in range(2):
        assert_same(
            three, examples.cached_examples("ram://cache", "d", KEY, build)
        )
    assert build.count == 1


def test_damaged_cache_files_are_encoded_again(three, tmp_path, caplog):
    build = Builder(three)
    examples.cached_examples(str(tmp_path), "dev", KEY, build)
    (path,) = tmp_path.iterdir()
    good = path.read_bytes()
    # The zip's directory from the last entry but one, whose damage may hide
    # the last; of the rest every 17th byte.
    entry = good.rindex(b"PK\x01\x02", 0, good.rindex(b"PK\x01\x02"))
    damaged = [good[:size] for size in range(0, len(good), 97)]
    damaged += [
        good[:i] + bytes([good[i] ^ 0xFF]) + good[i + 1 :]
        for i in [*range(0, entry, 17), *range(entry, entry + 120)]
    ]
    num_rebuilt = 0
    for content in damaged:
        path.write_bytes(content)
        caplog.clear()
        before = build.count
        assert_same(
            three, examples.cached_examples(str(tmp_path), "dev", KEY, build)
        )
        if build.count > before:
            num_rebuilt += 1
            (record,) = caplog.records
            assert f"{path.name} is damaged" in record.getMessage()
            assert path.read_bytes() == good
    # Some bytes, such as dates, have no effect.
    assert num_rebuilt > len(damaged) / 2


def test_a_build_that_fails_leaves_nothing(tmp_path):
    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        examples.cached_examples(str(tmp_path), "dev", KEY, fail)
    assert not list(tmp_path.iterdir())


def test_files_depend_on_every_part(three, tmp_path, monkeypatch):
    parts = ["text"], {"b": 1, "a": [2.5]}, None, 64
    build = Builder(three)
    for some in (
        parts,
        parts,
        parts[:3],
        (*parts[:3], 65),
        (*parts[:3], "64"),
        (["te", "xt"], *parts[1:]),
        (["text"], {"b": 1, "a": [2.25]}, None, 64),
    ):
        examples.cached_examples(tmp_path, "dev", some, build)
    monkeypatch.setattr(examples, "FORMAT", examples.FORMAT + 1)
    examples.cached_examples(tmp_path, "dev", parts, build)
    assert build.count == 7


@pytest.mark.parametrize("max_length", [None, 3, 7, 8, 20])
@pytest.mark.parametrize("has_pairs", [True, False])
def test_a_tokenizer_packs_as_the_programs_do(tokenizer, has_pairs, max_length):
    rng = random.Random(1)
    words = [f"w{i}" for i in range(20)]
    texts, others = (
        [" ".join(rng.choices(words, k=rng.randint(0, 9))) for _ in range(40)]
        for _ in range(2)
    )
    pairs = others if has_pairs else None
    found = tokenizer(texts, pairs, max_length=max_length)
    packed = examples.pack_pairs(tokenizer, texts, pairs, max_length or 99)
    wanted = examples.pad_examples(
        packed, range(len(texts)), packed.lengths.max()
    )
    assert [*found] == [*wanted]
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values)
        assert found[name].dtype == np.int32


def test_a_tokenizer_refuses_what_it_cannot_pack(tokenizer):
    assert tokenizer([])["input_ids"].shape == (0, 0)
    with pytest.raises(ValueError, match="Found 'w1'; wanted a list"):
        tokenizer("w1")
    with pytest.raises(ValueError, match="2 texts and 1 second texts"):
        tokenizer(["w1", "w2"], ["w3"])
    with pytest.raises(ValueError, match="max_length=2; wanted at least 3"):
        tokenizer(["w1"], max_length=2)
