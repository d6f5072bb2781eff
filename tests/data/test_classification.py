"""Features of GLUE tasks, against those that the release makes."""

import gzip
import json

import numpy as np
import pytest

from albert_tf.data import classification, examples, table_tasks
from albert_tf.text import tokenization

SPLITS = ("train", "dev", "test")
FEATURES = ("input_ids", "input_mask", "segment_ids", "label_ids")


@pytest.fixture
def recorded_in(recordings):
    return recordings / "classify"


@pytest.fixture(scope="module")
def tokenizers(shared):
    model = shared / "data" / "albert_en" / "30k-clean.model"
    return {
        case: tokenization.build_tokenizer(
            spm_model_file=str(model), do_lower_case=case == "lower"
        )
        for case in ("lower", "cased")
    }


def read(folder, task, tokenizer, length):
    _, data = classification.read_data(
        str(folder),
        task,
        tokenizer,
        length,
        with_train=task.train is not None,
        with_dev=bool(task.dev),
        with_test=True,
    )
    splits = {"dev": data.dev.get(""), "test": next(iter(data.test.values()))}
    return {"train": data.train, **splits}


@pytest.mark.parametrize("name", list(table_tasks.GLUE))
def test_features_are_the_releases(recorded_in, tokenizers, name):
    recorded = np.load(recorded_in / f"{name}_features.npz")
    settings = {tuple(key.split("/")[1:3]) for key in recorded}
    num_compared = 0
    for length, case in settings:
        found = read(
            recorded_in / "data",
            table_tasks.GLUE[name],
            tokenizers[case],
            int(length),
        )
        for split, part in found.items():
            keys = {f: f"{split}/{length}/{case}/{f}" for f in FEATURES}
            if part is None or keys["input_ids"] not in recorded:
                continue
            rows = range(len(part.examples))
            batch = examples.pad_examples(part.examples, rows, int(length))
            for feature, key in keys.items():
                # The release gives test rows the first label.
                if feature in batch:
                    np.testing.assert_array_equal(
                        batch[feature], recorded[key], err_msg=key
                    )
            num_compared += len(rows)
    assert num_compared == sum(
        len(recorded[k]) for k in recorded if k.endswith("input_ids")
    )


def test_wordpiece_features_are_the_releases(recorded_in, shared):
    tokenizer = tokenization.build_tokenizer(
        vocab_file=str(shared / "golden/dev/token/vocab.txt")
    )
    recorded = np.load(recorded_in / "mrpc_dev_wordpiece64_features.npz")
    found = read(recorded_in / "data", table_tasks.GLUE["mrpc"], tokenizer, 64)
    part = found["dev"].examples
    batch = examples.pad_examples(part, range(len(part)), 64)
    for name in FEATURES:
        np.testing.assert_array_equal(batch[name], recorded[name])


@pytest.mark.parametrize("name", ["cola", "mnli", "qqp", "sts-b", "ax"])
def test_texts_and_labels_are_the_releases(recorded_in, tokenizers, name):
    path = recorded_in / f"{name}_examples.json.gz"
    recorded = json.loads(gzip.decompress(path.read_bytes()))
    _, data = classification.read_data(
        recorded_in / "data",
        table_tasks.GLUE[name],
        tokenizers["lower"],
        64,
        with_train=name != "ax",
        with_dev=name != "ax",
        with_test=True,
    )
    for split, part in (("train", data.train), ("dev", data.dev.get(""))):
        rows = recorded.get(f"{split}/lower", [])
        if not rows:
            continue
        labels = part.examples.arrays["label_ids"].tolist()
        if table_tasks.GLUE[name].labels:
            labels = [table_tasks.GLUE[name].labels[i] for i in labels]
        assert labels == pytest.approx([row["label"] for row in rows]) or (
            labels == [row["label"] for row in rows]
        )
