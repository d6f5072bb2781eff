"""A classifier from a folder answers as the run that trained it."""

import concurrent.futures
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import (
    Classification,
    Classifier,
    FineTuning,
    Recipe,
    read_pretrained,
)
from albert_tf.model import heads
from albert_tf.weights import pretrained, task_heads
from tests import tiny

TEXTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9", "", "w1 unknown"]
KINDS = {
    "classes": ("no", "yes", "perhaps"),
    "multi_label": ("rain", "sun", "snow"),
    "regression": None,
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A dict from the kind of a head to the folder of a model with it."""
    return {
        kind: tiny.write_classifier(tmp_path_factory.mktemp(kind), kind, labels)
        for kind, labels in KINDS.items()
    }


def logits_of(folder, kind, texts):
    """The logits of each text alone, by the model itself."""
    start = read_pretrained(folder)
    model = pretrained.build_model(
        lambda config: heads.AlbertClassifier(
            config, num_labels=len(KINDS[kind] or [0]), objective=kind
        ),
        start,
    )
    rows = []
    for text in texts:
        parts = [text] if isinstance(text, str) else [x for x in text if x]
        ids, segments = [start.tokenizer.cls_id], [0]
        for number, part in enumerate(parts):
            more = [*start.tokenizer.encode(part), start.tokenizer.sep_id]
            ids += more
            segments += [number] * len(more)
        features = {
            "input_ids": tf.constant([ids]),
            "input_mask": tf.ones([1, len(ids)], tf.int32),
            "segment_ids": tf.constant([segments]),
        }
        rows.append(model(features)["logits"][0].numpy())
    return np.array(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_the_model(folders, kind):
    classifier = Classifier(folders[kind], compute_dtype="float32")
    logits = logits_of(folders[kind], kind, TEXTS)
    answers = classifier(TEXTS)
    if kind == "regression":
        found = [answer["prediction"] for answer in answers]
        np.testing.assert_allclose(found, logits[:, 0], atol=1e-5)
        assert classifier.labels == () and "probabilities" not in answers[0]
        return
    wanted = 1 / (1 + np.exp(-logits))
    names = [
        [KINDS[kind][i] for i in np.flatnonzero(row > 0)] for row in logits
    ]
    if kind == "classes":
        wanted = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        names = [KINDS[kind][i] for i in logits.argmax(axis=1)]
    assert [answer["prediction"] for answer in answers] == names
    for answer, row in zip(answers, wanted, strict=True):
        assert [*answer["probabilities"]] == [*KINDS[kind]]
        found = [*answer["probabilities"].values()]
        np.testing.assert_allclose(found, row, atol=1e-5)


def test_threads_may_ask_at_the_same_time(folders):
    classifier = Classifier(folders["classes"], compute_dtype="float32")
    logits = logits_of(folders["classes"], "classes", TEXTS)
    with concurrent.futures.ThreadPoolExecutor(len(TEXTS)) as pool:
        answers = list(pool.map(classifier, [[text] for text in 4 * TEXTS]))
    names = [KINDS["classes"][i] for i in logits.argmax(axis=1)]
    assert [answer["prediction"] for (answer,) in answers] == 4 * names


def test_pairs_have_two_segments(folders):
    pairs = [("w1 w2", "w3"), ["w4", "w5 w6"], ("w7", "")]
    answers = Classifier(folders["classes"], compute_dtype="float32")(pairs)
    logits = logits_of(folders["classes"], "classes", pairs)
    names = [KINDS["classes"][i] for i in logits.argmax(axis=1)]
    assert [answer["prediction"] for answer in answers] == names


def test_a_run_and_its_folder_agree(folders, tmp_path):
    start = read_pretrained(folders["classes"])
    task = Classification.from_texts(
        start.tokenizer, TEXTS[:3], [*KINDS["classes"]], max_seq_length=16
    )
    recipe = Recipe(train_step=2, train_batch_size=3)
    tuning = FineTuning(tmp_path, task, start, recipe)
    tuning.train()
    classifier = Classifier(tmp_path)
    assert classifier.max_seq_length == 16  # As it was trained.
    assert Classifier(read_pretrained(tmp_path)).max_seq_length == 16
    assert Classifier(tmp_path, max_seq_length=8).max_seq_length == 8
    pretrained.write_pretrained(
        tmp_path / "copy", read_pretrained(tmp_path), "own"
    )
    assert Classifier(tmp_path / "copy").max_seq_length == 16
    task.export(tuning, tmp_path / "served")
    assert Classifier(tmp_path / "served").max_seq_length == 16
    assert classifier.labels == ("no", "perhaps", "yes")
    found = [answer["prediction"] for answer in classifier(TEXTS)]
    assert found == task.predict(tuning, TEXTS)


def test_losses_of_texts_are_said_once(folders, caplog):
    classifier = Classifier(folders["classes"], max_seq_length=8)
    classifier(["w1 w2"])
    assert not caplog.records
    for _ in range(2):
        classifier(["w1 w2 w3 w4 w5 w6 w7", "w1"])
        classifier(["北 京 w1"])
    long, unknown = caplog.records
    assert "1 of 2 examples are truncated to 8 tokens" in long.message
    assert "of the pieces are unknown" in unknown.message


@pytest.mark.parametrize(
    ("has_pairs", "message"),
    [
        (None, ""),
        (True, "trained on pairs of texts, but 2 of 3 are single texts"),
        (False, "trained on single texts, but 1 of 3 are pairs of texts"),
    ],
)
def test_texts_that_should_be_pairs_are_said(
    folders, caplog, has_pairs, message
):
    start = read_pretrained(folders["classes"])
    head = dataclasses.replace(start.head, has_pairs=has_pairs)
    classifier = Classifier(dataclasses.replace(start, head=head))
    classifier(["w1", ("w2", "w3"), "w4"])
    assert message in caplog.text
    assert bool(caplog.text) == (has_pairs is not None)


def test_it_leaves_early_if_it_is_told_to(folders):
    folder = folders["classes"]
    plain = Classifier(folder, compute_dtype="float32")(TEXTS)
    assert "num_layers" not in plain[0]
    early = Classifier(folder, exit_threshold=1.0, compute_dtype="float32")
    assert [x["num_layers"] for x in early(TEXTS)] == [1] * len(TEXTS)
    start = read_pretrained(folder)
    start.head.__dict__["threshold"] = 1.0  # As a file says it.
    assert "num_layers" in Classifier(start)(TEXTS[:1])[0]
    full = Classifier(start, exit_threshold=0.0, compute_dtype="float32")
    assert full(TEXTS) == plain


@pytest.mark.parametrize("kind", ["multi_label", "regression"])
def test_only_single_classes_leave_early(folders, kind):
    with pytest.raises(ValueError, match=f"objective {kind!r}: only answers"):
        Classifier(folders[kind], exit_threshold=0.5)
    with pytest.raises(ValueError, match="exit_threshold=50; wanted"):
        Classifier(folders[kind], exit_threshold=50)


def test_a_vocabulary_of_another_size_is_refused(tmp_path):
    folder = tiny.write_classifier(tmp_path)
    pieces = (folder / "vocab.txt").read_text().splitlines()
    (folder / "vocab.txt").write_text("\n".join(pieces[:-1]))
    (folder / "tokenizer_settings.json").unlink()
    with pytest.raises(
        ValueError, match=r"vocab.txt has \d+ pieces, the model"
    ):
        Classifier(folder)


def test_what_is_no_list_of_texts_is_refused(folders):
    classifier = Classifier(folders["classes"])
    assert classifier([]) == []
    with pytest.raises(ValueError, match="wanted a list"):
        classifier("w1")
    for wrong in [2, None, {"w1", "w2"}, {"a": "w1", "b": "w2"}]:
        with pytest.raises(ValueError, match="wanted a text or a pair"):
            classifier(["w1", wrong])
    assert classifier(iter(TEXTS)) == classifier(TEXTS)


def test_models_without_a_classifier_are_refused(tmp_path):
    start = read_pretrained(tiny.write_model(tmp_path))
    with pytest.raises(ValueError, match="no head of a task; wanted a class"):
        Classifier(tmp_path)
    start = dataclasses.replace(start, head=task_heads.TaskHead("spans"))
    with pytest.raises(ValueError, match="the head 'spans'; wanted a class"):
        Classifier(start)
