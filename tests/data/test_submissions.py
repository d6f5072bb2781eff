"""Files of predictions: the release's, and what the GLUE server takes."""

import json

import numpy as np
import pytest

from albert_tf.data import submissions, table_tasks


def samples(shared):
    """The first lines of GLUE's sample submissions: dict of name -> text."""
    path = shared / "data/glue/sample_submissions/heads.txt"
    _, *parts = path.read_text().split("==> ")
    found = {}
    for part in parts:
        name, _, text = part.partition(".tsv <==\n")
        found[name] = text.rstrip("\n") + "\n"
    return found


def test_submissions_have_the_names_and_the_format_of_glue(shared, tmp_path):
    wanted = samples(shared)
    of_name = {n: task for task in table_tasks.GLUE.values() for n in task.test}
    assert set(of_name) == set(wanted)
    for name, task in of_name.items():
        values = [line.split("\t")[1] for line in wanted[name].splitlines()[1:]]
        if task.objective == "regression":
            predictions = np.float32(values)
        else:
            predictions = np.array([task.labels.index(v) for v in values])
        path = tmp_path / f"{name}.tsv"
        words = submissions.format_predictions(
            predictions, task.labels, task.objective, task.bounds
        )
        submissions.write_submission(path, ["0", "1", "2"], words)
        assert path.read_text() == wanted[name]


def test_a_regression_stays_within_its_bounds():
    found = submissions.format_predictions(
        np.array([-0.2, 2.34567, 5.1]), None, "regression", (0.0, 5.0)
    )
    assert found == ["0.000", "2.346", "5.000"]


def test_small_values_of_a_regression_keep_their_digits():
    found = submissions.format_predictions(
        np.float32([-0.2, 5.1, 0.00012, 0.00038]), None, "regression"
    )
    assert found == ["-0.2", "5.1", "0.00012", "0.00038"]


def test_a_row_can_have_several_labels_or_none():
    found = submissions.format_predictions(
        np.array([[1, 0, 1], [0, 0, 0]]), ("joy", "fear", "awe"), "multi_label"
    )
    assert found == ["joy,awe", ""]
    found = submissions.format_predictions(
        np.array([[1, 1]]), ("a, b", "c"), "multi_label", separator=";"
    )
    assert found == ["a, b;c"]


def test_ids_and_their_order_are_kept(tmp_path):
    path = tmp_path / "new" / "RTE.tsv"
    submissions.write_submission(path, ["b", "a", "7"], ["x", "y", "z"])
    assert path.read_text() == "index\tprediction\nb\tx\na\ty\n7\tz\n"


@pytest.mark.parametrize("num_predictions", [2, 4])
def test_a_missing_or_surplus_prediction_is_refused(tmp_path, num_predictions):
    path = tmp_path / "RTE.tsv"
    with pytest.raises(ValueError, match=f"{num_predictions} pred.* 3 rows"):
        submissions.write_submission(path, "abc", ["x"] * num_predictions)
    assert not list(tmp_path.iterdir())


def test_probabilities_survive_the_file(tmp_path):
    path = tmp_path / "test_results.tsv"
    values = np.random.default_rng(0).dirichlet([1, 1, 1], size=5)
    submissions.write_test_results(path, values)
    lines = path.read_text().splitlines()
    assert lines[0] == "\t".join(str(float(value)) for value in values[0])
    found = [[float(word) for word in line.split("\t")] for line in lines]
    np.testing.assert_array_equal(found, values)


def test_half_a_character_of_a_text_does_not_end_a_training(tmp_path):
    rows = [{"id": "1", "text": ["good \ud83d"], "prediction": "ä"}]
    path = tmp_path / "dev.jsonl"
    submissions.write_dev_predictions(path, 5, rows)
    (row,) = map(json.loads, path.read_text("utf-8").splitlines())
    assert row == {"step": 5, **rows[0], "text": ["good ?"]}
