"""Tests of dynamic records: the same statistics, new masks in each epoch."""

import collections
import dataclasses
import json
import os

import naive
import numpy as np
import pytest

from albert_tf.data.pretraining import (
    agreement,
    damage,
    draws,
    dynamic,
    label_counts,
    opening,
    reading,
    records,
    rules,
    sequences,
    sidecars,
)
from albert_tf.model.config import AlbertConfig
from tests import tiny_records

T, V = 41, 31
CONFIG = AlbertConfig(
    vocab_size=V,
    embedding_size=5,
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=17,
    max_position_embeddings=T,
)
RULE = rules.MaskingRule(max_predictions=6, masked_lm_prob=0.2)
VOCABULARY = sequences.Vocabulary(
    cls_id=2,
    sep_id=3,
    mask_id=4,
    num_pieces=V,
    is_word_start=np.arange(V) % 3 > 0,
    replacement_ids=np.arange(5, V),
)


def features_of(count, seed=0):
    """Random sequences as a dynamic record stores them."""
    rng = np.random.default_rng(seed)
    first = rng.integers(3, 15, count)
    ends = np.stack([first, first + rng.integers(2, T - 14, count)], axis=1)
    ids = rng.integers(5, V, (count, T))
    position = np.arange(T)
    ids[position == ends[:, :1] - 1] = 3
    ids[position == ends[:, 1:] - 1] = 3
    ids[:, 0] = 2
    ids[position >= ends[:, 1:]] = 0
    return {
        "input_ids": ids,
        "segment_ends": ends,
        "next_sentence_labels": rng.integers(0, 2, (count, 1)),
    }


def write(path, count, **changes):
    """Writes dynamic records and their sidecar; returns the path."""
    description = {
        "max_seq_length": T,
        "max_predictions_per_seq": 6,
        "num_predictions": 6,
        "masking": "dynamic",
        "masking_rule": dataclasses.asdict(RULE),
        "vocabulary": VOCABULARY.to_json(),
    }
    return tiny_records.write(
        path, count, features=features_of(count), **description | changes
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.tfrecord"


def read(opened, batch_size, **kwargs):
    """Batches of an endless training stream."""
    dataset = reading.build_dataset(
        opened.files,
        opened.features,
        batch_size,
        reading.Order(
            num_records=opened.num_records, shuffle_buffer=7, **kwargs
        ),
        masker=opened.masker,
    )
    return dataset.as_numpy_iterator()


def rows_of(batches, num_rows):
    """The first rows of some batches, as one dict of arrays."""
    parts = collections.defaultdict(list)
    count = 0
    for batch in batches:
        count += len(batch["input_ids"])
        for name, values in batch.items():
            parts[name].append(values)
        if count >= num_rows:
            break
    return {
        name: np.concatenate(values)[:num_rows]
        for name, values in parts.items()
    }


def assert_equal(found, wanted):
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def measure(masked, originals, is_text, is_start):
    """Counts masks by number, fate, position, words and tokens per run."""
    weights = masked["masked_lm_weights"]
    rows, columns = np.nonzero(weights)
    places = rows, masked["masked_lm_positions"][rows, columns]
    now, before = masked["input_ids"][places], originals[places]
    fate = np.where(now == before, "kept", np.where(now == 4, "MASK", "random"))
    is_masked = np.zeros(originals.shape, bool)
    is_masked[places] = True
    # [CLS] and [SEP] end runs, and they are never masked.
    edges = np.diff(is_masked.astype(int), axis=1, append=0)
    begins = np.argwhere(edges == 1) + [0, 1]
    ends = np.argwhere(edges == -1) + [0, 1]
    words = np.cumsum(is_start & is_text, axis=1)
    # A run ends before a word or at the end of its segment.
    whole = is_start | ~is_text
    # Except in the few sequences of which every word exceeds the budget.
    assert whole[tuple(ends.T)].mean() > 0.99
    whole |= ~is_text[:, [0, *range(T - 1)]]
    assert whole[tuple(begins.T)].mean() > 0.99
    return {
        "number": collections.Counter(weights.sum(axis=1).tolist()),
        "fate": collections.Counter(fate.tolist()),
        "position": collections.Counter(places[1].tolist()),
        "tokens": collections.Counter((ends - begins)[:, 1].tolist()),
        "words": collections.Counter(
            (
                words[ends[:, 0], ends[:, 1] - 1]
                - words[begins[:, 0], begins[:, 1]]
            ).tolist()
        ),
    }


def test_statistics_of_20000_sequences_equal_the_static_ones(path):
    opened = opening.open_records(write(path, 20_000), CONFIG)
    features = features_of(20_000)
    position, ends = np.arange(T), features["segment_ends"]
    is_text = (position > 0) & (position < ends[:, 1:] - 1)
    is_text &= position != ends[:, :1] - 1
    is_start = VOCABULARY.is_word_start[features["input_ids"]]
    static = sequences.mask_features(
        features, RULE, VOCABULARY, draws.InOrder(np.random.default_rng(1))
    )
    found, wanted = (
        measure(masked, features["input_ids"], is_text, is_start)
        for masked in (
            rows_of(opened.read_pass(500).as_numpy_iterator(), 20_000),
            static,
        )
    )
    for name, counts in wanted.items():
        naive.assert_same_distribution(found[name], counts, name)
    total = wanted["fate"].total()
    assert found["fate"].total() == pytest.approx(total, rel=0.001)
    assert found["fate"]["MASK"] / total == pytest.approx(0.8, abs=0.01)


def test_two_epochs_have_the_same_sequences_with_other_masks(path):
    opened = opening.open_records(write(path, 230), CONFIG)
    rows = rows_of(read(opened, 4, seed=1), 460)
    originals = naive.original_ids(rows)
    first, second = (np.lexsort(originals[i : i + 230].T) + i for i in (0, 230))
    np.testing.assert_array_equal(originals[first], originals[second])
    wanted = features_of(230)["input_ids"]
    np.testing.assert_array_equal(
        originals[first], wanted[np.lexsort(wanted.T)]
    )
    positions = rows["masked_lm_positions"]
    is_equal = (positions[first] == positions[second]).all(axis=1)
    # By chance, for sequences of a few words.
    assert is_equal.sum() < 35
    is_long = rows["input_mask"][first].sum(axis=1) > 30
    assert is_long.sum() > 30 and not is_equal[is_long].any()


@pytest.mark.parametrize("batch_size", [1, 4, 9])
@pytest.mark.parametrize("start", [0, 5, 40])
def test_masks_depend_on_seed_and_position_alone(path, batch_size, start):
    opened = opening.open_records(write(path, 23), CONFIG)
    whole = rows_of(read(opened, 3, seed=2), 70)
    resumed = rows_of(read(opened, batch_size, seed=2, start=start), 18)
    assert_equal(
        resumed, {name: x[start : start + 18] for name, x in whole.items()}
    )


def test_the_seed_changes_the_masks(path):
    opened = opening.open_records(write(path, 23), CONFIG)
    positions = []
    for seed in (0, 1):
        source = draws.ByPosition.of_records(seed, np.arange(23))
        masked = sequences.mask_features(
            features_of(23), RULE, VOCABULARY, source
        )
        positions.append(masked["masked_lm_positions"])
    assert (positions[0] != positions[1]).any(axis=1).sum() > 20
    # An evaluation has the masks of seed 0, whatever its batches.
    for batch_size in (5, 23):
        rows = rows_of(opened.read_pass(batch_size).as_numpy_iterator(), 23)
        np.testing.assert_array_equal(rows["masked_lm_positions"], positions[0])


def test_features_are_those_of_static_records(path):
    opened = opening.open_records(write(path, 7), CONFIG)
    dataset = opened.read_pass(4)
    static = records.pretraining_features(T, 6)
    del static["token_boundary"]
    labels = static.pop("next_sentence_labels")
    assert labels == ((1,), "int64")
    spec = dict(dataset.element_spec)
    assert spec.pop("sentence_order_labels").shape == (4,)
    assert spec.pop("example_weight").shape == (4,)
    assert {name: tuple(x.shape) for name, x in spec.items()} == {
        name: (4, *shape) for name, (shape, _) in static.items()
    }
    last = list(dataset.as_numpy_iterator())[-1]
    assert last["example_weight"].tolist() == [1, 1, 1, 0]
    assert not last["input_mask"][3].any() and last["input_mask"][2].any()


def test_a_vocabulary_survives_json():
    values = json.loads(json.dumps(VOCABULARY.to_json()))
    found = sequences.Vocabulary.from_json(values)
    for field in dataclasses.fields(VOCABULARY):
        np.testing.assert_array_equal(
            getattr(found, field.name), getattr(VOCABULARY, field.name)
        )


def test_settings_replace_those_recorded(path):
    opened = opening.open_records(
        write(path, 50),
        CONFIG,
        max_predictions_per_seq=9,
        masking_changes={"masked_lm_prob": 0.4, "do_permutation": True},
    )
    rows = rows_of(read(opened, 10), 50)
    assert rows["masked_lm_ids"].shape == (50, 18)
    share = rows["masked_lm_weights"].sum() / rows["input_mask"].sum()
    assert 0.6 < share < 0.8
    assert opened.describe()["masking"] == {
        **dataclasses.asdict(RULE),
        "max_predictions": 9,
        "masked_lm_prob": 0.4,
        "do_permutation": True,
    }
    counts = label_counts.count_masked_pieces(opened, 50)
    first_pass = rows_of(opened.read_pass(50).as_numpy_iterator(), 50)
    assert counts.sum() == first_pass["masked_lm_weights"].sum()


VALUES = VOCABULARY.to_json()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"masking": "static"}, "says masking = static; .* have dynamic"),
        ({"masking": "both"}, "masking = 'both'; wanted one of"),
        ({"masking_rule": None}, "no masking_rule of type dict"),
        ({"vocabulary": None}, "no vocabulary of type dict"),
        ({"masking_rule": {"n": 3}}, "does not describe the masks.*'n'"),
        ({"masking_rule": {"ngram": 0}}, "ngram=0; wanted at least 1"),
        ({"masking_rule": {"ngram": "3"}}, "does not describe the masks"),
        ({"masking_rule": {"max_predictions": 42}}, "is 42, but .* 41 tokens"),
        ({"vocabulary": {}}, "lacks a value"),
        ({"vocabulary": {**VALUES, "mask_id": 31}}, "not have 31 pieces"),
        ({"vocabulary": {**VALUES, "vocab_size": 50}}, "not have 50 pieces"),
        ({"vocabulary": {**VALUES, "vocab_size": 30}}, "describes 30 word st"),
        ({"vocabulary": {**VALUES, "word_starts": "?"}}, "lacks a value"),
        ({"max_seq_length": 40}, "says max_seq_length = 40"),
    ],
    ids=lambda x: str(x)[:40],
)
def test_a_sidecar_that_does_not_fit_is_refused(path, changes, words):
    with pytest.raises(ValueError, match=words):
        opening.open_records(write(path, 3, **changes), CONFIG)


def test_dynamic_records_need_their_sidecar(path):
    file = write(path, 3)
    os.remove(sidecars.sidecar_path(file))
    with pytest.raises(ValueError, match="sidecar .*a.dataset.json is missing"):
        opening.open_records(file, CONFIG)


def test_sets_with_other_masks_are_not_read_together(path, tmp_path):
    write(path, 3)
    rule = {**dataclasses.asdict(RULE), "ngram": 2}
    write(tmp_path / "b.tfrecord", 3, masking_rule=rule)
    with pytest.raises(ValueError, match="b.dataset.json says masking_rule"):
        opening.open_records(f"{tmp_path}/*.tfrecord", CONFIG)


@pytest.mark.parametrize(
    ("name", "value"),
    [("input_ids", V), ("segment_ends", T + 1), ("segment_ends", -1)],
)
def test_values_out_of_range_are_refused(path, name, value):
    features = features_of(5)
    features[name][3, 1] = value
    file = write(path, 5)
    tiny_records.write_records(file, features)
    with pytest.raises(ValueError, match=f"record 4: {name}.1. is {value}"):
        damage.check_files(
            [file],
            records.dynamic_features(T),
            agreement.limits_of(CONFIG, T),
        )


def test_a_masker_has_static_shapes_in_training(path):
    opened = opening.open_records(write(path, 7), CONFIG)
    assert isinstance(opened.masker, dynamic.Masker)
    dataset = reading.build_dataset(
        opened.files, opened.features, 4, reading.Order(), masker=opened.masker
    )
    for name, spec in dataset.element_spec.items():
        assert spec.shape.is_fully_defined(), name
