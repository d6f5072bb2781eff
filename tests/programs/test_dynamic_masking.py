"""Whole runs with --masking=dynamic: from text to a resumed training."""

import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.commands.create_pretraining_data import DataFlags
from albert_tf.commands.run_pretraining import PretrainingFlags
from albert_tf.data.pretraining import opening, records
from albert_tf.model.config import AlbertConfig
from albert_tf.programs import create_pretraining_data, run_pretraining
from albert_tf.weights import checkpoints
from tests import tiny
from tests.data.pretraining import naive

ROOT = pathlib.Path(__file__).resolve().parents[2]
T, P = 16, 3


def create(folder, name, **changes):
    """Creates records of the folder's text; returns their statistics."""
    values = {
        "input_file": f"{folder}/text.txt",
        "output_file": f"{folder}/{name}.tfrecord",
        "vocab_file": f"{folder}/vocab.txt",
        "max_seq_length": T,
        "max_predictions_per_seq": P,
        "masking": "dynamic",
        "dupe_factor": 1,
        "progress": False,
    }
    return create_pretraining_data.run(DataFlags(**{**values, **changes}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a text, a config, and dynamic and static records."""
    folder = tmp_path_factory.mktemp("dynamic")
    rng = random.Random(0)
    for name, num_documents in (("text", 20), ("valid_text", 5)):
        documents = [
            "\n".join(
                " ".join(rng.choices(tiny.WORDS, k=rng.randint(3, 9)))
                for _ in range(rng.randint(3, 8))
            )
            for _ in range(num_documents)
        ]
        (folder / f"{name}.txt").write_text("\n\n".join(documents) + "\n")
    words = [*tiny.SPECIAL, *tiny.WORDS]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    for name, dropout in (("config", 0.1), ("no_dropout", 0.0)):
        config = {**tiny.CONFIG.to_dict(), "hidden_dropout_prob": dropout}
        (folder / f"{name}.json").write_text(json.dumps(config))
    create(folder, "train")
    create(folder, "static", masking="static")
    create(folder, "valid", input_file=f"{folder}/valid_text.txt")
    return folder


@pytest.fixture
def args(folder, tmp_path):
    """Flags of a run of six steps."""
    return PretrainingFlags(
        albert_config_file=f"{folder}/config.json",
        input_file=f"{folder}/train.tfrecord",
        eval_input_file=f"{folder}/valid.tfrecord",
        output_dir=str(tmp_path / "out"),
        do_eval=True,
        train_batch_size=16,
        eval_batch_size=8,
        learning_rate=0.01,
        num_train_steps=6,
        num_warmup_steps=1,
        save_checkpoints_steps=2,
        shuffle_buffer=50,
        # A subprocess would choose another.
        compute_dtype="float32",
    )


def run(args, **changes):
    args = dataclasses.replace(args, **changes)
    run_pretraining.run(args)
    return checkpoints.read_checkpoint(args.output_dir)


def losses_of(folder):
    lines = pathlib.Path(folder, "metrics.jsonl").read_text().splitlines()
    rows = map(json.loads, lines)
    return [row["loss"] for row in rows if row["split"] == "eval"]


def test_dynamic_records_are_static_ones_without_masks(folder):
    parsed = {}
    for name, features in (
        ("train", records.dynamic_features(T)),
        ("static", records.pretraining_features(T, P)),
    ):
        spec = {
            key: tf.io.FixedLenFeature(shape, dtype)
            for key, (shape, dtype) in features.items()
        }
        file = f"{folder}/{name}.tfrecord"
        (rows,) = tf.data.TFRecordDataset(file).batch(10_000)
        parsed[name] = {
            key: values.numpy()
            for key, values in tf.io.parse_example(rows, spec).items()
        }
    dynamic, static = parsed["train"], parsed["static"]
    np.testing.assert_array_equal(
        dynamic["input_ids"], naive.original_ids(static)
    )
    position = np.arange(T)
    first_end, end = np.split(dynamic["segment_ends"], 2, axis=1)
    np.testing.assert_array_equal(static["input_mask"], position < end)
    np.testing.assert_array_equal(
        static["segment_ids"], (first_end <= position) & (position < end)
    )
    name = "next_sentence_labels"
    np.testing.assert_array_equal(dynamic[name], static[name])


def test_any_number_of_workers_writes_the_same_bytes(folder, tmp_path):
    found = set()
    for num_workers in (1, 2):
        path = tmp_path / f"{num_workers}.tfrecord"
        create(folder, "", output_file=str(path), num_workers=num_workers)
        found.add(path.read_bytes())
    assert found == {(folder / "train.tfrecord").read_bytes()}


def test_many_dynamic_copies_of_a_text_are_warned_of(folder, caplog):
    path = f"{folder}/many.tfrecord"
    create(folder, "", output_file=path, dupe_factor=10)
    create(folder, "", output_file=path, dupe_factor=11, masking="static")
    assert "once suffices" not in caplog.text
    create(folder, "", output_file=path, dupe_factor=11)
    assert "is written 11 times, where once suffices" in caplog.text


def test_the_statistics_predict_the_masks(folder):
    statistics = create(folder, "again")
    opened = opening.open_records(f"{folder}/again.tfrecord", tiny.CONFIG)
    (batch,) = opened.read_pass(statistics["sequences"])
    share = tf.reduce_sum(batch["masked_lm_weights"]) / tf.reduce_sum(
        tf.cast(batch["input_mask"], tf.float32)
    )
    assert statistics["masked_share"] == pytest.approx(float(share), abs=1e-4)


@pytest.mark.traced  # As the process that is killed.
def test_a_killed_run_resumes_bit_for_bit(args, tmp_path):
    args = dataclasses.replace(args, do_eval=False)
    whole = run(args, output_dir=str(tmp_path / "whole"))
    words = [
        f"--{field.name}={value}"
        for field in dataclasses.fields(args)
        if (value := getattr(args, field.name)) is not None
    ]
    process = subprocess.Popen(
        [sys.executable, "run_pretraining.py", *words],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not checkpoints.list_checkpoints(args.output_dir):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert checkpoints.read_checkpoint(args.output_dir)["global_step"] < 6
    resumed = run(args)
    assert resumed.keys() == whole.keys()
    for name, value in whole.items():
        np.testing.assert_array_equal(resumed[name], value, name)


def test_two_replicas_train_as_one(args, folder, tmp_path):
    changes = {
        "albert_config_file": f"{folder}/no_dropout.json",
        "learning_rate": 0.001,
        "num_train_steps": 3,
        "do_eval": False,
    }
    one = run(args, **changes)
    changes |= {"distribution": "mirrored", "output_dir": str(tmp_path / "two")}
    two = run(args, **changes)
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, atol=1e-5, err_msg=name)


def test_other_masks_of_training_change_no_evaluation(args, tmp_path, caplog):
    changes = {"learning_rate": 0.0, "num_train_steps": 2}
    run(args, **changes)
    assert "are masked: set" not in caplog.text
    run(args, output_dir=str(tmp_path / "b"), masked_lm_prob=0.5, **changes)
    assert "at most 3 are masked: set max_predictions_per_seq=8" in caplog.text
    run(
        args,
        output_dir=str(tmp_path / "c"),
        max_predictions_per_seq=8,
        ngram=1,
        do_whole_word_mask=False,
        favor_shorter_ngram=False,
        do_permutation=True,
        random_seed=args.random_seed,
        **changes,
    )
    found = [losses_of(tmp_path / name) for name in ("out", "b", "c")]
    assert len(found[0]) == 2 and found[0] == found[1] == found[2]
    # Afterwards, too, with or without the flag.
    again = dataclasses.replace(args, output_dir=str(tmp_path / "c"))
    run(again, do_train=False, max_predictions_per_seq=8)
    assert losses_of(tmp_path / "c")[-1] == found[0][-1]


def test_a_resume_with_other_masks_needs_a_flag(args, tmp_path):
    run(args, num_train_steps=2)
    with pytest.raises(
        ValueError,
        match=r"data.train.masking.ngram: was 3, is 1: needs accept_changes",
    ):
        run(args, ngram=1)
    assert run(args, ngram=1, accept_changes=True)["global_step"] == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"ngram": 1},
            "`ngram`: the records in .*static.tfrecord were masked",
        ),
        ({"do_permutation": False}, "`do_permutation`: .* were masked"),
        (
            {"masked_lm_prob": 0.2, "ngram": 3},
            "`masked_lm_prob`, `ngram`: ",
        ),
        ({"max_predictions_per_seq": 4}, "=4, but the records .* have 3"),
    ],
    ids=str,
)
def test_static_records_cannot_be_masked_otherwise(
    args, folder, changes, message
):
    with pytest.raises(ValueError, match=message):
        run(args, input_file=f"{folder}/static.tfrecord", **changes)


def test_more_predictions_than_tokens_are_refused(args):
    with pytest.raises(ValueError, match="is 17, but .* have 16 tokens"):
        run(args, max_predictions_per_seq=17)


def test_a_tpu_elsewhere_cannot_mask(args):
    config = AlbertConfig.from_json_file(args.albert_config_file)
    opened = run_pretraining.open_train_records(args, config)
    run_pretraining.check_remote_hosts(args, opened, None)
    remote = dataclasses.replace(
        args,
        input_file="gs://bucket/train.tfrecord",
        eval_input_file=None,
        do_eval=False,
        tpu_name="grpc://10.0.0.2:8470",
    )
    with pytest.raises(ValueError, match="cannot mask dynamic records"):
        run_pretraining.check_remote_hosts(remote, opened, None)
