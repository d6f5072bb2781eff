"""Tests of records.py and reading.py: bytes, order, resuming."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.pretraining import reading, records

FEATURES = {
    "input_ids": ((3,), "int64"),
    "next_sentence_labels": ((1,), "int64"),
}


def numbered_records(tmp_path, counts):
    """Files with `counts` records; record i holds i, i + 1, i + 2."""
    files, first = [], 0
    for index, count in enumerate(counts):
        rows = np.arange(first, first + count)[:, None]
        examples = records.encode_examples(
            {"input_ids": rows + np.arange(3), "next_sentence_labels": rows % 2}
        )
        files.append(str(tmp_path / f"{index}.tfrecord"))
        assert records.write_records(files[-1], examples) == count
        first += count
    return files


def first_numbers(dataset, num_batches):
    return [
        batch["input_ids"][:, 0].numpy().tolist()
        for batch in dataset.take(num_batches)
    ]


def test_bytes_parse_as_the_examples_of_tensorflow():
    rng = np.random.default_rng(0)
    integers = rng.integers(-(2**63), 2**63, [5, 7])
    integers >>= rng.integers(0, 64, [5, 7])
    values = {
        "bits": rng.integers(0, 2, [5, 11]),
        "ids": rng.integers(0, 30000, [5, 130]).astype(np.uint16),
        "int32": rng.integers(-5, 2**31, [5, 4]).astype(np.int32),
        "int64": integers,
        "edges": np.tile(
            [0, 127, 128, 16383, 16384, 2**21, 2**63 - 1, -1], [5, 1]
        ),
        "floats": rng.normal(size=[5, 3]).astype(np.float32),
        "empty": np.zeros([5, 0], np.int64),
        "truth": np.eye(5, dtype=bool),
    }
    for row, serialized in enumerate(records.encode_examples(values)):
        example = tf.train.Example.FromString(serialized)
        assert set(example.features.feature) == set(values)
        for name, feature in example.features.feature.items():
            if name == "floats":
                found = np.array(feature.float_list.value, np.float32)
            else:
                assert feature.WhichOneof("kind") == "int64_list"
                found = np.array(feature.int64_list.value, np.int64)
            np.testing.assert_array_equal(found, values[name][row])
        # As short as Google's own serialization, so nothing is written twice.
        assert len(serialized) <= len(example.SerializeToString()) + 2


def test_pretraining_records_round_trip(tmp_path):
    features = records.pretraining_features(9, 4)
    rng = np.random.default_rng(0)
    values = {
        name: rng.integers(0, 2, [3, *shape]).astype(dtype)
        for name, (shape, dtype) in features.items()
    }
    path = str(tmp_path / "a.tfrecord")
    records.write_records(path, records.encode_examples(values))
    dataset = reading.build_dataset([path], features, 3)
    batch = next(iter(dataset))
    labels = values.pop("next_sentence_labels")
    assert batch["sentence_order_labels"].dtype == tf.int32
    np.testing.assert_array_equal(batch["sentence_order_labels"], labels[:, 0])
    for name, wanted in values.items():
        is_float = name == "masked_lm_weights"
        assert batch[name].dtype == (tf.float32 if is_float else tf.int32)
        np.testing.assert_array_equal(batch[name], wanted)
    assert "next_sentence_labels" not in batch


@pytest.mark.parametrize("kind", ["128_default", "128_permutation"])
def test_records_of_the_release_are_read(shared, kind):
    path = str(shared / f"golden/pretrain_data/instances_{kind}.tf_record")
    predictions = 40 if kind.endswith("permutation") else 20
    features = records.pretraining_features(128, predictions)
    dataset = reading.build_dataset([path], features, 64)
    num_records = sum(1 for _ in tf.data.TFRecordDataset(path))
    # The full recording, or our sample of it with other ids.
    assert num_records in (200, 12)
    batches = list(dataset)
    real = np.concatenate([batch["example_weight"] for batch in batches])
    assert len(real) == -(-num_records // 64) * 64
    assert real.sum() == num_records
    ids = np.concatenate([batch["input_ids"] for batch in batches])
    assert (ids[real == 1, 0] == 2).all() and (ids[real == 0] == 0).all()
    raw = next(iter(tf.data.TFRecordDataset(path))).numpy()
    example = tf.train.Example.FromString(raw)
    np.testing.assert_array_equal(
        example.features.feature["input_ids"].int64_list.value, ids[0]
    )


def test_an_error_while_writing_leaves_no_file(tmp_path):
    def broken():
        yield b"one"
        raise RuntimeError("disk")

    with pytest.raises(RuntimeError):
        records.write_records(str(tmp_path / "a.tfrecord"), broken())
    assert not (tmp_path / "a.tfrecord").exists()


def test_arrays_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match="same number of rows"):
        records.encode_examples({"a": np.zeros([2, 1]), "b": np.zeros([3, 1])})
    with pytest.raises(ValueError, match="integers or floats"):
        records.encode_examples({"a": np.zeros([2])})


def test_training_visits_every_record_once_an_epoch(tmp_path):
    files = numbered_records(tmp_path, [5, 11, 1, 6])
    dataset = reading.build_dataset(
        files, FEATURES, 4, reading.Order(seed=3, shuffle_buffer=7)
    )
    numbers = np.concatenate(first_numbers(dataset, 23))  # 4 epochs of 23
    assert dataset.element_spec["input_ids"].shape == (4, 3)
    epochs = numbers.reshape(4, 23)
    for epoch in epochs:
        assert sorted(epoch) == list(range(23))
    assert not (epochs[0] == epochs[1]).all()


def test_order_depends_on_the_seed_alone(tmp_path):
    files = numbered_records(tmp_path, [5, 11, 6])

    def order(seed):
        dataset = reading.build_dataset(
            files, FEATURES, 4, reading.Order(seed=seed, shuffle_buffer=7)
        )
        return first_numbers(dataset, 9)

    first = order(1)
    tf.random.set_seed(99)
    try:
        assert order(1) == first
    finally:
        tf.random.set_seed(None)
    assert order(2) != first
    # The order is a guarantee, so it must be the same in every process.
    assert first[:2] == [[4, 6, 0, 8], [5, 7, 12, 11]]


@pytest.mark.parametrize("start", [0, 4, 20, 24, 60])
def test_a_resumed_stream_equals_an_uninterrupted_one(tmp_path, start):
    files = numbered_records(tmp_path, [5, 11, 6])

    def batches(start, num_batches):
        dataset = reading.build_dataset(
            files,
            FEATURES,
            4,
            reading.Order(start=start, num_records=22, shuffle_buffer=7),
        )
        return first_numbers(dataset, num_batches)

    assert batches(start, 6) == batches(0, start // 4 + 6)[start // 4 :]


@pytest.mark.parametrize("num_hosts, num_replicas", [(1, 4), (2, 2), (2, 4)])
def test_each_host_parses_its_own_part_alone(tmp_path, num_hosts, num_replicas):
    files = numbered_records(tmp_path, [5, 11, 6])
    parsed = []

    class Recorder:
        def mask(self, batch, indices, seed):
            tf.py_function(lambda x: parsed.append(x.numpy()), [indices], [])
            return batch

    def read(context=None):
        return reading.build_dataset(
            files,
            FEATURES,
            8,
            reading.Order(start=8, num_records=22, shuffle_buffer=7),
            masker=Recorder(),
            context=context,
        )

    whole = np.array(first_numbers(read(), 5))  # [steps, B]
    num_local = num_replicas // num_hosts
    parts = []
    for host in range(num_hosts):
        parsed.clear()
        dataset = read(
            tf.distribute.InputContext(num_hosts, host, num_replicas)
        )
        assert dataset.element_spec["input_ids"].shape == (8 // num_replicas, 3)
        numbers = first_numbers(dataset, 5 * num_local)
        parts.append(np.reshape(numbers, [5, -1]))
        stream = np.arange(8, 48).reshape(5, num_hosts, -1)
        wanted = stream[:, host].flatten()  # [5 * B / num_hosts]
        # More may have been prefetched.
        found = np.sort(np.concatenate(parsed))[: len(wanted)]
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


def test_a_later_start_needs_the_number_of_records(tmp_path):
    files = numbered_records(tmp_path, [5])
    with pytest.raises(ValueError, match="number of records"):
        reading.build_dataset(files, FEATURES, 2, reading.Order(start=2))


def test_evaluation_pads_the_last_batch_with_zero_rows(tmp_path):
    files = numbered_records(tmp_path, [5, 6])
    dataset = reading.build_dataset(files, FEATURES, 4)
    assert dataset.element_spec["example_weight"].shape == (4,)
    batches = list(dataset)
    assert [batch["example_weight"].numpy().tolist() for batch in batches] == [
        [1, 1, 1, 1],
        [1, 1, 1, 1],
        [1, 1, 1, 0],
    ]
    numbers = np.concatenate([batch["input_ids"][:, 0] for batch in batches])
    np.testing.assert_array_equal(numbers, [*range(11), 0])
    assert batches[-1]["input_ids"].shape == (4, 3)


def test_files_without_records_are_refused(tmp_path):
    files = numbered_records(tmp_path, [0])
    with pytest.raises(ValueError, match="no record"):
        reading.build_dataset(files, FEATURES, 2, reading.Order())
