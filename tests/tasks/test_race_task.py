"""The RACE task: its baseline and its scores."""

import types

import numpy as np
import pytest

from albert_tf.data import examples, race
from albert_tf.tasks.race import MultipleChoice, Part


def make_part(levels, labels):
    """A part whose questions have these levels and labels."""
    questions = [
        race.Question(f"{level}/{i}/0", "w1", ("w2",) * 4, label)
        for i, (level, label) in enumerate(zip(levels, labels, strict=True))
    ]
    num_sequences = 4 * len(labels)
    encoded = examples.Examples(
        ids=np.ones(3 * num_sequences, np.int32),
        lengths=np.full(num_sequences, 3, np.int32),
        first_lengths=np.full(num_sequences, 3, np.int32),
        arrays={"label_ids": np.array(labels, np.int32)},
        num_choices=4,
    )
    return Part(questions, encoded)


def make_task(**parts):
    return MultipleChoice(parts, max_seq_length=9, max_qa_length=4)


def test_the_baseline_knows_only_the_training_data():
    levels = "middle", "middle", "high"
    train, dev = make_part(levels, [1, 1, 3]), make_part(levels, [3, 3, 1])
    tasks = make_task(train=train, dev=dev), make_task(dev=dev)
    assert [task.num_train for task in tasks] == [3, 0]
    for name, values in (
        ("eval_accuracy", [1 / 3, 2 / 3]),
        ("middle_eval_accuracy", [0, 1]),
        ("high_eval_accuracy", [1, 0]),
    ):
        found = [task.baseline[name] for task in tasks]
        np.testing.assert_allclose(found, values)


def test_the_baseline_guesses_options_that_there_are():
    train = make_part(["dev"] * 3, [2, 2, 1])
    dev = make_part(["dev"] * 2, [1, 2])
    lengths = np.full([2, 4], 3, np.int32)
    lengths[0, 2:] = 0  # The most frequent answer is no option here.
    encoded = examples.Examples(
        ids=dev.examples.ids[: lengths.sum()],
        lengths=lengths.ravel(),
        first_lengths=lengths.ravel(),
        arrays=dev.examples.arrays,
        num_choices=4,
    )
    task = make_task(train=train, dev=dev._replace(examples=encoded))
    assert task.baseline["eval_accuracy"] == 1
    assert task.name == "choices"
    assert make_task(dev=make_part(["high"], [0])).name == "race"


@pytest.mark.parametrize("name", ["train", "dev"])
def test_only_test_data_may_lack_answers(name):
    part = make_part(["high"] * 2, [0, -1])
    known, other = part.questions
    unknown = other._replace(label=None)
    part = part._replace(questions=[known, unknown])
    with pytest.raises(
        ValueError, match=f"{name} has 1 questions without an answer, such as h"
    ):
        make_task(**{name: part})
    make_task(test=part)


@pytest.mark.parametrize(
    ("labels", "accuracy"), [([0, 1], 0.5), ([0, -1], None), ([-1, -1], None)]
)
def test_scores_need_every_answer(tmp_path, labels, accuracy):
    tuning = types.SimpleNamespace(
        folder=str(tmp_path),
        reporter=types.SimpleNamespace(say=print),
        predict=lambda _: {"logits": np.array([[9.0, 0, 0, 0]] * 2)},
    )
    task = make_task(test=make_part(["high", "high"], labels))
    scores = task.write_predictions(tuning)
    # By name, as the report and the model card show them.
    assert scores.get("test", {}).get("eval_accuracy") == accuracy
    assert scores.keys() <= {"test"}
    lines = (tmp_path / "predictions.tsv").read_text().splitlines()
    assert lines[1:] == ["high/0/0\tA", "high/1/0\tA"]
