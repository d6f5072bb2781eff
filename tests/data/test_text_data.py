"""Features of GLUE tasks, against those that the release makes."""

import numpy as np
import pytest

from albert_tf.data import examples, table_tasks, tables, text_data
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
    _, data = text_data.read_data(
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


def test_a_cache_never_gives_examples_of_other_settings_or_rows(
    model, tmp_path
):
    def read_train(cached_dir, content, max_seq_length, do_lower_case, labels):
        (tmp_path / "train.tsv").write_text(f"text\tlabel\n{content}\n")
        task = table_tasks.TableTask(
            "own",
            train=tables.Table("train.tsv", ("text",), "label"),
            dev={},
            test={},
            labels=labels,
        )
        tokenizer = tokenization.build_tokenizer(
            vocab_file=str(model / "vocab.txt"), do_lower_case=do_lower_case
        )
        _, data = text_data.read_data(
            tmp_path,
            task,
            tokenizer,
            max_seq_length,
            with_train=True,
            with_dev=False,
            with_test=False,
            cached_dir=cached_dir,
        )
        found = data.train.examples
        return [
            x.tolist()
            for x in (found.ids, found.lengths, *found.arrays.values())
        ]

    labels = ("a", "b")
    seen = []
    for settings in (
        ("W1 w2 w3\ta\nw4\tb", 9, True, labels),
        ("W1 w2 w3\ta\nw4\tb", 4, True, labels),
        ("W1 w2 w3\ta\nw4\tb", 9, False, labels),
        ("W1 w2 w3\tb\nw4\tb", 9, True, labels),
        ("W1 w2 w3\ta\nw4\tb", 9, True, labels[::-1]),
        ("W1 w2 w5\ta\nw4\tb", 9, True, labels),
    ):
        wanted = read_train(None, *settings)
        assert wanted not in seen
        seen.append(wanted)
        for _ in range(2):
            assert read_train(tmp_path / "cache", *settings) == wanted


@pytest.fixture
def tokenizer(tokenizers):
    return tokenizers["lower"]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (np.array([[1, 0], [1, 1]]), [[1, 0], [1, 1]]),
        ([("a",), {"a", "b"}], [[1, 0], [1, 1]]),
        ([set(), np.array(["b"])], [[0, 0], [0, 1]]),
    ],
)
def test_several_labels_in_memory_may_be_of_any_kind(tokenizer, values, labels):
    _, data = text_data.encode_texts(
        tokenizer,
        (["x", "y"], values),
        max_seq_length=9,
        objective="multi_label",
        label_names=["a", "b"],
    )
    assert data.train.examples.arrays["label_ids"].tolist() == labels


@pytest.mark.parametrize("names", [[1, 0], np.array([1, 0]), ["1", "0"]])
def test_names_of_labels_may_be_numbers_and_pairs_arrays(tokenizer, names):
    task, data = text_data.encode_texts(
        tokenizer, (["x", "y"], [1, 0]), max_seq_length=9, label_names=names
    )
    assert task.labels == ("1", "0")
    assert data.train.examples.arrays["label_ids"].tolist() == [0, 1]
    pairs = tokenizer(np.array(["x", "y"]), np.array(["y", "x"]))
    assert pairs["segment_ids"].any(axis=1).all()
    with pytest.raises(ValueError, match="2 texts and 0 second texts"):
        tokenizer(["x", "y"], [])


@pytest.mark.parametrize(
    ("text", "objective", "message"),
    [
        (None, "classes", r"texts\[1\] is None; wanted a text or a pair"),
        (float("nan"), "classes", r"texts\[1\] is nan"),
        (("a", "b", "c"), "classes", r"texts\[1\] is \('a', 'b', 'c'\)"),
        (("a", 1), "classes", r"texts\[1\] is \('a', 1\)"),
        ("y", "classification", "objective of .* is 'classification'; wanted"),
    ],
)
def test_an_error_names_the_element_that_is_no_text(
    tokenizer, text, objective, message
):
    with pytest.raises(ValueError, match=message):
        text_data.encode_texts(
            tokenizer,
            (["x", text], [0, 1]),
            max_seq_length=9,
            objective=objective,
        )
