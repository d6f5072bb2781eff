"""Tests of opening.py: records that do not fit the model are refused."""

import json
import types

import numpy as np
import pytest

from albert_tf.data.pretraining import (
    damage,
    opening,
    reading,
    records,
    sidecars,
)
from albert_tf.model.config import AlbertConfig
from tests import tiny

T, P = 9, 3
CONFIG = AlbertConfig(**{**tiny.SIZES, "num_hidden_layers": 1})


def features_of(count, num_tokens=T):
    rng = np.random.default_rng(0)
    shape, labels = (count, num_tokens), (count, P)
    return {
        "input_ids": rng.integers(5, 31, shape),
        "input_mask": np.ones(shape, int),
        "segment_ids": rng.integers(0, 2, shape),
        "masked_lm_positions": rng.integers(1, 8, labels),
        "masked_lm_ids": rng.integers(5, 31, labels),
        "masked_lm_weights": np.ones(labels, np.float32),
        "next_sentence_labels": rng.integers(0, 2, (count, 1)),
    }


def write(path, features):
    records.write_records(str(path), records.encode_examples(features))
    return str(path)


def write_described(path, tokenizer, sentence_objective="sop"):
    """Writes two records and their sidecar."""
    file = write(path, features_of(2))
    said = {
        "format": 1,
        "max_seq_length": T,
        "num_predictions": P,
        "max_predictions_per_seq": P,
        "sentence_objective": sentence_objective,
        "tokenizer": tokenizer,
        "files": [path.name],
        "num_records": [2],
        "statistics": {},
    }
    sidecars.write_sidecar(sidecars.sidecar_path(file), said)
    return file


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.tfrecord"


def test_records_of_bert_are_read(path):
    opened = opening.open_records(write(path, features_of(7)), CONFIG)
    assert opened.num_records == 7
    assert opened.sentence_objective == "sop"
    dataset = reading.build_dataset(
        opened.files, opened.features, 4, is_training=False
    )
    assert next(iter(dataset))["input_ids"].shape == (4, T)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("input_ids", 31, "31, wanted 0 to 30"),
        ("input_ids", 2**32 + 5, "wanted 0 to 30"),
        ("masked_lm_ids", -1, "wanted 0 to 30"),
        ("masked_lm_positions", 9, "wanted 0 to 8"),
        ("segment_ids", 2, "wanted 0 to 1"),
        ("input_mask", 7, "wanted 0 to 1"),
        ("input_mask", -1, "wanted 0 to 1"),
        ("next_sentence_labels", 2, "wanted 0 to 1"),
    ],
    ids=str,
)
def test_values_outside_the_range_of_the_model_are_refused(
    path, name, value, words
):
    features = features_of(7)
    features[name][5, 0] = value
    with pytest.raises(ValueError, match=f"record 6: {name}.0. is .*{words}"):
        opening.open_records(write(path, features), CONFIG)


def test_files_of_other_lengths_are_not_read_together(path, tmp_path):
    write(path, features_of(2))
    write(tmp_path / "b.tfrecord", features_of(2, 8))
    with pytest.raises(ValueError, match="b.tfrecord, record 1: .* wanted 9"):
        opening.open_records(f"{tmp_path}/*.tfrecord", CONFIG)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_seq_length": 8}, "says max_seq_length = 8; .* have 9"),
        ({"num_predictions": 6}, "says num_predictions = 6; .* have 3"),
        ({"max_predictions_per_seq": 2}, "predictions_per_seq = 2; .* have 3"),
    ],
    ids=str,
)
def test_sizes_in_a_sidecar_are_compared_with_a_record(path, changes, words):
    file = write_described(path, {"vocab_size": 31})
    said = json.loads(path.with_name("a.dataset.json").read_text())
    assert opening.open_records(file, CONFIG).num_records == 2
    sidecars.write_sidecar(sidecars.sidecar_path(file), said | changes)
    with pytest.raises(ValueError, match=words):
        opening.open_records(file, CONFIG)
    said = json.loads(path.with_name("a.dataset.json").read_text())
    del said["tokenizer"]
    path.with_name("a.dataset.json").write_text(json.dumps(said))
    with pytest.raises(ValueError, match="no tokenizer"):
        opening.open_records(file, CONFIG)


@pytest.mark.parametrize("content", [b"", b"text\n" * 9, b"\x1f\x8b" * 20])
def test_files_without_records_are_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match="a.tfrecord"):
        opening.open_records(str(path), CONFIG)


def test_records_for_fine_tuning_are_refused(path):
    features = features_of(2)
    del features["masked_lm_positions"]
    with pytest.raises(ValueError, match="not contain pretraining records"):
        opening.open_records(write(path, features), CONFIG)


def test_a_batch_is_not_larger_than_the_data(path):
    opened = opening.open_records(write(path, features_of(7)), CONFIG)
    opening.check_batch_size(opened, 7)
    with pytest.raises(ValueError, match="batch of 8 is larger.*7 records"):
        opening.check_batch_size(opened, 8)


def test_a_link_does_not_make_records_held_out(path, tmp_path):
    train = opening.open_records(write(path, features_of(7)), CONFIG)
    (tmp_path / "b.tfrecord").hardlink_to(path)
    held_out = opening.open_records(str(tmp_path / "b.tfrecord"), CONFIG)
    with pytest.raises(ValueError, match="for training and for evaluation"):
        opening.check_held_out(train, held_out)


@pytest.mark.parametrize("change", [{"sha256": "b"}, {"keep_accents": True}])
def test_held_out_records_have_the_vocabulary_of_the_others(
    path, tmp_path, change
):
    tokenizer = {"vocab_size": 31, "sha256": "a", "keep_accents": False}
    others = [{"vocabulary": "other.model"}, change]
    train, alike, unlike = (
        opening.open_records(
            write_described(tmp_path / f"{number}.tfrecord", tokenizer | other),
            CONFIG,
        )
        for number, other in enumerate([{}, *others])
    )
    opening.check_held_out(train, alike)
    with pytest.raises(ValueError, match=f"2.tfrecord.*with {[*change][0]} "):
        opening.check_held_out(train, unlike)


def test_permuted_records_have_twice_the_predictions():
    """Their number may be given as ours or, as the release wants it, twice."""
    opened = types.SimpleNamespace(
        masker=None,
        files=["a"],
        features={"masked_lm_positions": ((40,), int)},
        sidecar={"max_predictions_per_seq": 20},
    )
    for wanted in (None, 20, 40):
        opening.check_predictions(opened, wanted)
    with pytest.raises(ValueError, match="=30, but the records in a have 20"):
        opening.check_predictions(opened, 30)


def test_held_out_records_have_the_sentence_objective_of_the_others(tmp_path):
    train, held_out = (
        opening.open_records(
            write_described(
                tmp_path / objective, {"vocab_size": 31}, objective
            ),
            CONFIG,
        )
        for objective in ("sop", "nsp")
    )
    with pytest.raises(ValueError, match="nsp has the .* 'nsp', .* 'sop'"):
        opening.check_held_out(train, held_out)
    opening.check_held_out(train, held_out, is_sentence_scored=False)


def test_an_error_while_reading_names_the_damaged_record(path, monkeypatch):
    monkeypatch.setattr(opening, "MAX_CHECKED_BYTES", 10)
    file = write(path, features_of(7))
    data = bytearray(path.read_bytes())
    size = len(data) // 7
    data[4 * size + 20] ^= 1
    path.write_bytes(data)
    opened = opening.open_records(file, CONFIG)
    assert opened.num_records == 7
    with pytest.raises(ValueError, match="a.tfrecord, record 5: .*checksum"):
        with opening.naming_damage(None, opened):
            opening.score_best_guess(opened)


def test_a_damaged_first_record_is_skipped(path, tmp_path):
    file = write(path, features_of(7))
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    folder = str(tmp_path / "copies")
    opened = opening.open_records(file, CONFIG, salvage_folder=folder)
    assert (opened.num_records, opened.num_tokens) == (6, T)


def test_an_error_without_damage_is_raised_unchanged(path):
    opened = opening.open_records(write(path, features_of(7)), CONFIG)
    other = damage.reading_errors()[1](None, None, "other")
    with pytest.raises(type(other), match="other"):
        with opening.naming_damage(opened):
            raise other
