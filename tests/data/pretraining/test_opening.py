"""Tests of opening.py: records that do not fit the model are refused."""

import json
import types

import pytest

from albert_tf.data.pretraining import (
    agreement,
    damage,
    label_counts,
    opening,
    reading,
    sidecars,
)
from albert_tf.model.config import AlbertConfig
from tests import tiny, tiny_records
from tests.tiny_records import make_features, write_records

T = tiny_records.NUM_TOKENS
CONFIG = AlbertConfig(**{**tiny.SIZES, "num_hidden_layers": 1})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.tfrecord"


def test_records_of_bert_are_read(path):
    opened = opening.open_records(write_records(path, make_features(7)), CONFIG)
    assert opened.num_records == 7
    assert opened.sentence_objective == "sop"
    dataset = reading.build_dataset(opened.files, opened.features, 4)
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
    features = make_features(7)
    features[name][5, 0] = value
    with pytest.raises(ValueError, match=f"record 6: {name}.0. is .*{words}"):
        opening.open_records(write_records(path, features), CONFIG)


def test_files_of_other_lengths_are_not_read_together(path, tmp_path):
    write_records(path, make_features(2))
    write_records(tmp_path / "b.tfrecord", make_features(2, num_tokens=8))
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
    file = tiny_records.write(path, 2)
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


@pytest.mark.parametrize("skip_damaged", [False, True])
@pytest.mark.parametrize("place", [0, 9, 15, 60])
def test_damage_of_the_first_record_is_named(path, place, skip_damaged):
    tiny_records.write(path, 9)
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="a.tfrecord, record 1: .* checksum"):
        opening.open_records(str(path), CONFIG, skip_damaged=skip_damaged)


def test_records_for_fine_tuning_are_refused(path):
    features = make_features(2)
    del features["masked_lm_positions"]
    with pytest.raises(ValueError, match="not contain pretraining records"):
        opening.open_records(write_records(path, features), CONFIG)


def test_a_batch_is_not_larger_than_the_data(path):
    opened = opening.open_records(write_records(path, make_features(7)), CONFIG)
    agreement.check_batch_size(opened, 7)
    with pytest.raises(ValueError, match="batch of 8 is larger.*7 records"):
        agreement.check_batch_size(opened, 8)


def test_a_link_does_not_make_records_held_out(path, tmp_path):
    train = opening.open_records(write_records(path, make_features(7)), CONFIG)
    (tmp_path / "b.tfrecord").hardlink_to(path)
    held_out = opening.open_records(str(tmp_path / "b.tfrecord"), CONFIG)
    with pytest.raises(ValueError, match="for training and for evaluation"):
        agreement.check_held_out(train, held_out)


@pytest.mark.parametrize("change", [{"sha256": "b"}, {"keep_accents": True}])
def test_held_out_records_have_the_vocabulary_of_the_others(
    path, tmp_path, caplog, change
):
    tokenizer = {"vocab_size": 31, "sha256": "a", "keep_accents": False}
    others = [{"vocabulary": "other.model"}, change]
    train, alike, unlike = (
        opening.open_records(
            tiny_records.write(
                tmp_path / f"{number}.tfrecord", 2, tokenizer=tokenizer | other
            ),
            CONFIG,
        )
        for number, other in enumerate([{}, *others])
    )
    agreement.check_held_out(train, alike)
    assert not caplog.records
    # Together, too.
    opening.open_records(f"{tmp_path}/[01].tfrecord", CONFIG)
    with pytest.raises(ValueError, match=f"2.tfrecord.*with {[*change][0]} "):
        agreement.check_held_out(train, unlike)


def test_longer_held_out_records_draw_a_warning(tmp_path, caplog):
    short, long = (
        opening.open_records(
            write_records(
                str(tmp_path / f"{num_tokens}.tfrecord"),
                make_features(3, num_tokens=num_tokens),
            ),
            CONFIG,
        )
        for num_tokens in (8, 11)
    )
    caplog.clear()
    agreement.check_held_out(long, short)
    assert not caplog.records
    agreement.check_held_out(short, long)
    assert "have 11 tokens, those of training 8" in caplog.text


def test_held_out_records_of_the_same_text_draw_a_warning(tmp_path, caplog):
    counts = {"sequences": 2, "input_documents": 3, "input_tokens": 70}
    train, same, other, older = (
        opening.open_records(
            tiny_records.write(tmp_path / str(i), 2, statistics=some),
            CONFIG,
        )
        for i, some in enumerate(
            [counts, counts, counts | {"input_tokens": 9}, {"sequences": 2}]
        )
    )
    for records in (other, older):
        agreement.check_held_out(train, records)
        assert not caplog.records
    agreement.check_held_out(train, same)
    assert "both of 3 documents with 70 tokens" in caplog.text


def test_records_without_a_sidecar_draw_a_warning(path, caplog):
    opening.open_records(write_records(path, make_features(7)), CONFIG)
    assert "whether its vocabulary is the model's cannot be" in caplog.text


def test_permuted_records_have_twice_the_predictions():
    """Their number may be given as ours or, as the release wants it, twice."""
    opened = types.SimpleNamespace(
        masker=None,
        files=["a"],
        features={"masked_lm_positions": ((40,), int)},
        sidecar={"max_predictions_per_seq": 20},
    )
    for wanted in (None, 20, 40):
        agreement.check_predictions(opened, wanted)
    with pytest.raises(ValueError, match="=30, but the records in a have 20"):
        agreement.check_predictions(opened, 30)


def test_held_out_records_have_the_sentence_objective_of_the_others(tmp_path):
    train, held_out = (
        opening.open_records(
            tiny_records.write(
                tmp_path / objective, 2, sentence_objective=objective
            ),
            CONFIG,
        )
        for objective in ("sop", "nsp")
    )
    with pytest.raises(ValueError, match="nsp has the .* 'nsp', .* 'sop'"):
        agreement.check_held_out(train, held_out)
    agreement.check_held_out(train, held_out, sentence_weight=0.0)


def test_an_error_while_reading_names_the_damaged_record(path, monkeypatch):
    monkeypatch.setattr(opening, "MAX_CHECKED_BYTES", 10)
    file = write_records(path, make_features(7))
    data = bytearray(path.read_bytes())
    size = len(data) // 7
    data[4 * size + 20] ^= 1
    path.write_bytes(data)
    opened = opening.open_records(file, CONFIG)
    assert opened.num_records == 7
    with pytest.raises(ValueError, match="a.tfrecord, record 5: .*checksum"):
        with opening.naming_damage(None, opened):
            label_counts.score_best_guess(opened)


@pytest.mark.parametrize("is_described", [True, False])
def test_a_file_is_read_up_to_its_damaged_record(path, tmp_path, is_described):
    other = tmp_path / "b.tfrecord"
    if is_described:
        tiny_records.write(path, 7)
        tiny_records.write(other, 5, seed=1)
    else:
        write_records(path, make_features(7))
        write_records(other, make_features(5, seed=1))
    data = bytearray(path.read_bytes())
    data[4 * len(data) // 7 + 20] ^= 1
    path.write_bytes(data)
    files = f"{tmp_path}/*.tfrecord"
    with pytest.raises(ValueError, match="a.tfrecord, record 5: .*checksum"):
        opening.open_records(files, CONFIG)
    opened = opening.open_records(files, CONFIG, skip_damaged=True)
    assert opened.num_records == 4 + 5
    assert opened.describe() == {
        "skipped": {"a.tfrecord": "record 5 and all after it"}
    }
    wanted = [*make_features(7)["input_ids"][:4].tolist()]
    wanted += make_features(5, seed=1)["input_ids"].tolist()
    (batch,) = opened.read_pass(9)
    assert batch["input_ids"].numpy().tolist() == wanted
    (batch,) = opened.read_part(batch_size=9, shuffle_buffer=3).take(1)
    assert sorted(batch["input_ids"].numpy().tolist()) == sorted(wanted)
    # Damage that is left out is not the reason of another error.
    other = damage.READING_ERRORS[1](None, None, "other")
    with pytest.raises(type(other), match="other"):
        with opening.naming_damage(opened):
            raise other


def test_an_error_without_damage_is_raised_unchanged(path):
    opened = opening.open_records(write_records(path, make_features(7)), CONFIG)
    other = damage.READING_ERRORS[1](None, None, "other")
    with pytest.raises(type(other), match="other"):
        with opening.naming_damage(opened):
            raise other
