"""Tests of table_tasks.py: GLUE's rows, a user's own tasks, and labels."""

import csv
import gzip
import json
import os
import random

import numpy as np
import pytest
from sklearn.utils import class_weight as sklearn_weights

from albert_tf.data import label_values, table_tasks, tables, text_data
from albert_tf.data.table_tasks import TableTask
from albert_tf.data.tables import Row, Table
from albert_tf.model import heads
from albert_tf.text import normalization
from tests.conftest import ROOT

OWN = {"name": "own", "train": "train.tsv", "text": "text", "label": "label"}


@pytest.fixture
def read_config(tmp_path):
    """Writes a task config with changes, and reads it."""

    def write_and_read(**changes):
        path = tmp_path / "own.json"
        path.write_text(json.dumps({**OWN, **changes}))
        return table_tasks.read_task_config(str(path))

    return write_and_read


def own_task(**settings):
    return TableTask("own", train=None, dev={}, test={}, **settings)


def rows_of(*labels):
    return [
        Row(str(i), f"text {i}", None, label, i + 2)
        for i, label in enumerate(labels)
    ]


def table_of(task, split):
    if split == "train":
        return task.train
    return next(iter(getattr(task, split).values()))


@pytest.mark.parametrize("name", list(table_tasks.GLUE))
def test_texts_and_labels_of_every_split_are_the_releases(recordings, name):
    folder = recordings / "classify"
    packed = (folder / f"{name}_examples.json.gz").read_bytes()
    recorded = json.loads(gzip.decompress(packed))
    task = table_tasks.GLUE[name]
    assert len(recorded) == (2 if name == "ax" else 6)
    for key, wanted in recorded.items():
        split, case = key.split("/")
        table = table_of(task, split)
        rows = tables.read_table(str(folder / "data" / table.file), table)
        normalize = normalization.SentenceNormalizer(case == "lower").normalize
        assert [normalize(row.text_a) for row in rows] == [
            row["text_a"] for row in wanted
        ]
        assert [row.text_b and normalize(row.text_b) for row in rows] == [
            row["text_b"] for row in wanted
        ]
        if split == "test":  # The release gives them the first label.
            assert {row.label for row in rows} == {None}
            continue
        labels = [row["label"] for row in wanted]
        if task.labels:
            encoded = table_tasks.encode_labels(rows, task, table.file)
            assert [task.labels[i] for i in encoded] == labels
        else:
            assert [float(row.label) for row in rows] == labels


def test_mnli_reads_both_parts_and_the_diagnostics():
    mnli, mismnli, ax = (table_tasks.GLUE[n] for n in ("mnli", "mismnli", "ax"))
    assert list(mnli.dev) == ["", "mismatched"]
    assert list(mnli.test) == ["MNLI-m", "MNLI-mm", "AX"]
    assert mismnli.train == mnli.train
    assert mismnli.dev == {"": mnli.dev["mismatched"]}
    assert mismnli.test == {"MNLI-mm": mnli.test["MNLI-mm"]}
    assert ax.test == {"AX": mnli.test["AX"]}
    assert ax.train is None and not ax.dev


def test_submissions_have_the_names_that_the_server_takes(shared):
    text = (shared / "data/glue/sample_submissions/heads.txt").read_text()
    names = {
        line.split()[1].removesuffix(".tsv")
        for line in text.split("\n")
        if line.startswith("==>")
    }
    found = {name for task in table_tasks.GLUE.values() for name in task.test}
    assert found - {"WNLI"} == names - {"WNLI"}


def test_each_task_is_chosen_by_the_releases_metric():
    first = {name: task.metrics[0] for name, task in table_tasks.GLUE.items()}
    others = {"cola": "matthew_corr", "sts-b": "pearson"}
    assert first == {n: others.get(n, "eval_accuracy") for n in first}
    assert list(first) == (
        "cola sst-2 mrpc sts-b qqp mnli mismnli qnli rte wnli ax".split()
    )


def test_classes_are_in_the_releases_order(recordings):
    """The order is that of a fine-tuned checkpoint's outputs."""
    text = (recordings / "classify/README.json").read_text()
    for key, info in json.loads(text)["info"].items():
        task = table_tasks.GLUE[key.split("/")[0]]
        assert list(task.labels or [None]) == info["labels"], key


def test_the_model_knows_the_same_objectives():
    assert table_tasks.OBJECTIVES == heads.OBJECTIVES


def test_a_minimal_config_is_enough(read_config):
    table = Table("train.tsv", ("text",), "label")
    assert read_config() == TableTask(
        "own", train=table, dev={}, test={}, dev_share=0.1
    )


def test_all_keys_of_a_config_are_used(read_config):
    found = read_config(
        train="train.csv",
        dev="dev.csv",
        test="test.csv",
        test_label=None,
        text=["question", 3],
        label=-1,
        id="number",
        format="csv",
        delimiter=";",
        has_header=False,
        objective="multi_label",
        labels=["b", 1],
        label_separator="|",
        metrics=["eval_accuracy"],
    )
    table, dev, test = (
        Table(f, ("question", 3), label, name, "csv", False, delimiter=";")
        for f, label, name in (
            ("train.csv", -1, None),
            ("dev.csv", -1, None),
            ("test.csv", None, "number"),
        )
    )
    assert found == TableTask(
        "own",
        train=table,
        dev={"": dev},
        test={"own": test},
        objective="multi_label",
        labels=("b", "1"),
        metrics=("eval_accuracy",),
        label_separator="|",
    )


def test_null_equals_a_missing_key(read_config):
    rest = set(table_tasks._KEYS) - set(OWN) - {"test_label"}
    assert read_config(**dict.fromkeys(rest)) == read_config()


def test_the_label_column_of_test_data_is_that_of_the_config(read_config):
    for changes, wanted in (
        ({}, "label"),
        ({"test_label": "gold"}, "gold"),
        ({"test_label": None}, None),
    ):
        task = read_config(test="test.tsv", **changes)
        assert task.test["own"].label == wanted
        assert task.train.label == "label"


@pytest.mark.parametrize("objective", table_tasks.OBJECTIVES)
def test_every_objective_has_metrics(read_config, objective):
    task = read_config(objective=objective)
    assert task.metrics == table_tasks.DEFAULT_METRICS[objective]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lables": ["a"]}, "unknown key 'lables'.*Did you mean 'labels'"),
        ({"train": None}, "lacks train"),
        ({"label": None, "text": None}, "lacks text, label"),
        ({"text": ["a", "b", "c"]}, "wanted 1 to 2 columns"),
        ({"text": []}, "wanted 1 to 2 columns"),
        ({"format": "xls"}, "format is 'xls'; wanted one of"),
        ({"has_header": "false"}, "has_header is 'false'; wanted true or"),
        ({"labels": "a,b"}, "labels is 'a,b'; wanted a list"),
        ({"labels": ["a", "a"]}, "wanted two or more, all different"),
        ({"labels": ["a"]}, "wanted two or more, all different"),
        (
            {"labels": ["0", "1"], "objective": "regression"},
            "wanted none for regression",
        ),
        ({"objective": "ranking"}, "'ranking'; wanted one of"),
        ({"metrics": ["accuracy"]}, "some of .*eval_accuracy"),
        ({"metrics": ["pearson"]}, "some of .*eval_accuracy"),
        (
            {"metrics": ["MSE", "pearson"], "objective": "regression"},
            "another first",
        ),
        ({"dev_share": 1}, "a share of at least 0 and below 1"),
        ({"dev_share": -0.1}, "a share of at least 0 and below 1"),
        ({"dev": "dev.tsv", "dev_share": 0.1}, "0 with a dev table"),
        ({"label_separator": ""}, "at least one character"),
        ({"labels": ["a", ""]}, "of a character or more"),
        ({"labels": ["a", "b\u2028c"]}, "without tabs and line breaks"),
        (
            {"labels": ["a", "b,c"], "objective": "multi_label"},
            "names without ',', the label_separator",
        ),
        ({"name": "../own"}, "part of a file name"),
        ({"name": "a\nb"}, "part of a file name"),
        ({"name": "test_results"}, "result files use this one"),
        ({"text": True}, "text is True; wanted a column"),
        ({"text": ["a", None]}, r"text is \['a', None\]; wanted a column"),
        ({"label": False}, "label is False; wanted a column"),
        ({"dev_share": True}, "dev_share is True; wanted a number"),
        ({"dev_share": float("nan")}, "a share of at least 0 and below 1"),
        ({"labels": ["a", None]}, "wanted a list of strings"),
        ({"labels": ["a", ["b"]]}, "wanted a list of strings"),
        ({"labels": ["a", "b\tc"]}, "wanted names without tabs"),
        ({"metrics": [["f1"]]}, "wanted a list of strings"),
        ({"class_weight": 2}, 'wanted "balanced", or a number for each'),
        ({"class_weight": "even"}, 'wanted "balanced", or a number for each'),
        ({"class_weight": {"a": 2, "b": -1}}, "numbers of at least 0"),
        ({"class_weight": {"a": 2, "b": "1"}}, "numbers of at least 0"),
        ({"class_weight": {"a": 0, "b": 0}}, "not all 0"),
        (
            {"class_weight": "balanced", "objective": "regression"},
            "wanted none for 'regression'",
        ),
        (
            {"class_weight": {"a": 2, "B": 1}, "labels": ["a", "b"]},
            r"\['b'\] have none, and \['B'\] are no labels",
        ),
        (
            {"class_weight": {"a": 2}, "labels": ["a", "b"]},
            r"one number for each label: \['b'\] have none\.",
        ),
        (
            {"class_weight": {"1": 2, "1.0": 3, "a": 1}, "labels": ["a", "1"]},
            "wanted one number for each label",
        ),
    ],
)
def test_an_invalid_config_is_refused(read_config, changes, message):
    with pytest.raises(ValueError, match=message) as error:
        read_config(**changes)
    assert "own.json" in str(error.value)


@pytest.mark.parametrize(
    "content", ["{'name': 1}", "", "\0", "null", "[1]", '"name"', "[" * 100_000]
)
def test_a_config_of_another_type_is_refused(tmp_path, content):
    path = tmp_path / "own.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="own.json(: found| is not)"):
        table_tasks.read_task_config(str(path))
    with pytest.raises(FileNotFoundError, match="absent"):
        table_tasks.read_task_config(str(tmp_path / "absent.json"))


def test_balanced_class_weights_are_those_of_scikit_learn():
    label_ids = np.array([0, 2, 2, 1, 2, 2, 0])
    task = own_task(labels=("a", "b", "c"), class_weight="balanced")
    found = table_tasks.find_class_weights(task, label_ids)
    wanted = sklearn_weights.compute_class_weight(
        "balanced", classes=np.arange(3), y=label_ids
    )
    np.testing.assert_allclose(found, wanted)
    more = own_task(labels=("a", "b", "c", "d"), class_weight="balanced")
    np.testing.assert_allclose(
        table_tasks.find_class_weights(more, label_ids), [*wanted, 0]
    )


def test_class_weights_are_in_the_order_of_the_labels():
    label_ids = np.array([0, 1])
    task = own_task(labels=("no", "1.0"), class_weight={1: 2, "no": 0.5})
    assert table_tasks.find_class_weights(task, label_ids) == [0.5, 2.0]
    weights = {"1": np.int64(2), "no": np.float32(0.5)}
    task = own_task(labels=("no", "1.0"), class_weight=weights)
    assert table_tasks.find_class_weights(task, label_ids) == [0.5, 2.0]
    plain = own_task(labels=("no", "1.0"))
    assert table_tasks.find_class_weights(plain, label_ids) is None
    collected = own_task(class_weight={"x": 2, "z": 1})
    with pytest.raises(ValueError, match="'y'.* have none, and .'z'. are no l"):
        table_tasks.with_labels(collected, rows_of("x", "y"))


def test_the_film_reviews_are_one_small_file(shared):
    task = table_tasks.read_task_config(
        str(ROOT / "configs/tasks/film_reviews.json")
    )
    folder = shared / "data/imdb"
    train = tables.read_table(str(folder / task.train.file), task.train)
    (test_table,) = task.test.values()
    test = tables.read_table(str(folder / test_table.file), test_table)
    assert (len(train), len(test)) == (6000, 3000)
    for rows in (train, test):
        labels = table_tasks.encode_labels(rows, task, task.name)
        assert labels.mean() == 0.5
    train, dev = table_tasks.split_rows(train, task.dev_share)
    assert len(train) + len(dev) == 6000
    assert 550 < len(dev) < 650


def test_classes_are_numbered_as_the_task_lists_them():
    task = own_task(labels=("no", "yes", "maybe"))
    encoded = table_tasks.encode_labels(
        rows_of("yes", "maybe", "no"), task, "f"
    )
    np.testing.assert_array_equal(encoded, [1, 2, 0])
    assert encoded.dtype == np.int32


def test_regressions_are_floats():
    task = own_task(objective="regression", metrics=("pearson",))
    encoded = table_tasks.encode_labels(
        rows_of("2.5", " 3 ", 1, 0.5), task, "f"
    )
    np.testing.assert_array_equal(encoded, np.float32([2.5, 3, 1, 0.5]))
    assert encoded.dtype == np.float32


def test_several_labels_are_zeros_and_ones():
    task = own_task(
        objective="multi_label", labels=("a", "b", "c d"), metrics=("f1",)
    )
    rows = rows_of("a, c d", "", ["b"], [], "b,b,")
    encoded = table_tasks.encode_labels(rows, task, "f")
    wanted = [[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 0], [0, 1, 0]]
    np.testing.assert_array_equal(encoded, np.float32(wanted))
    assert encoded.dtype == np.float32


@pytest.mark.parametrize(
    ("objective", "label", "message"),
    [
        ("classes", "c", "f.tsv, line 5: label 'c'; known: a, b"),
        ("classes", "A", "f.tsv, line 5: label 'A'; known: a, b"),
        (
            "classes",
            "",
            r"f.tsv, line 5: label ''; wanted a label.*\(label_names\).*test_l",
        ),
        (
            "classes",
            "NaN",
            "f.tsv, line 5: label 'NaN'; wanted a label.*test_l",
        ),
        ("classes", "-1", "label '-1'; known: a, b.*\"test_label\": null"),
        ("classes", ["a"], r"line 5: label \['a'\]; .*multi_label"),
        ("multi_label", "a,c", "f.tsv, line 5: label 'c'; known: a, b"),
        ("regression", "high", "f.tsv, line 5: label 'high'; wanted a number"),
        ("regression", "", "f.tsv, line 5: label ''; wanted a number"),
        ("regression", "nan", "f.tsv, line 5: label 'nan'; wanted a number"),
        ("regression", "inf", "f.tsv, line 5: label 'inf'; wanted a number"),
        ("regression", "1e39", "line 5: label '1e39'; wanted a number"),
        ("regression", "1,5", "label '1,5'; wanted a number such as 1.5"),
        ("regression", ["1"], r"line 5: label \['1'\]; wanted a number"),
    ],
)
def test_the_error_on_a_wrong_label_names_its_line(objective, label, message):
    labels = None if objective == "regression" else ("a", "b")
    good = ["1"] * 3 if objective == "regression" else ["a", "b", "a"]
    task = own_task(
        objective=objective,
        labels=labels,
        metrics=table_tasks.DEFAULT_METRICS[objective],
    )
    with pytest.raises(ValueError, match=message):
        table_tasks.encode_labels(rows_of(*good, label), task, "f.tsv")


def test_labels_are_found_in_the_training_data():
    task = table_tasks.with_labels(own_task(), rows_of("b", "a", 10, "b"))
    assert task.labels == ("10", "a", "b")
    task = own_task(objective="multi_label", metrics=("f1",))
    task = table_tasks.with_labels(task, rows_of("b, a", "", ["c", "a"]))
    assert task.labels == ("a", "b", "c")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", "a"], r"has the labels \['a'\]; wanted two"),
        (["a", "b", ""], "own, line 4: label ''; wanted a label"),
        (["a", ["a", "b"]], "line 3.*Is the objective multi_label"),
    ],
)
def test_fewer_than_two_classes_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        table_tasks.with_labels(own_task(), rows_of(*labels))


def test_a_split_depends_on_the_texts_alone():
    rows = [
        Row(str(i), f"text {i % 1900}", ["b", None][i % 2], "1", i)
        for i in range(2000)
    ]
    train, dev = table_tasks.split_rows(rows, 0.2)
    assert sorted(train + dev) == sorted(rows)
    assert 300 < len(dev) < 500
    texts = {row[1:3] for row in dev}
    assert texts.isdisjoint(row[1:3] for row in train)
    shuffled = [row._replace(label="0", id="x", line=1) for row in rows]
    random.Random(3).shuffle(shuffled)
    again, other_dev = table_tasks.split_rows(shuffled + shuffled[:50], 0.2)
    assert {row[1:3] for row in other_dev} == texts
    assert {row[1:3] for row in again} == {row[1:3] for row in train}


def test_a_larger_share_holds_out_the_same_rows_and_more():
    rows = rows_of(*["a"] * 1000)
    small, large = (set(table_tasks.split_rows(rows, s)[1]) for s in (0.1, 0.3))
    assert small < large


@pytest.mark.parametrize("share", [0.0001, 0.9999])
def test_a_split_with_an_empty_part_is_refused(share):
    with pytest.raises(ValueError, match="wanted rows in both parts"):
        table_tasks.split_rows(rows_of("a", "b", "a"), share)


def test_tables_of_glue_are_below_the_data_folder():
    for task in table_tasks.GLUE.values():
        parts = [task.train] if task.train else []
        for table in [*parts, *task.dev.values(), *task.test.values()]:
            assert not os.path.isabs(table.file)
            assert table.file.count("/") == 1


ONE_HOT = ("[1, 0, 1]", "[1 0 1]", "1,0,1", [1, 0, 1], [1.0, 0.0, 1.0])
ONE_HOT += ("[1.0, 0.0, 1.0]", [True, False, True], "(True, False, True)")
NAMES = (["a", "c"], "['a', 'c']", "['a' 'c']", '["a","c"]', "{'a', 'c'}")
NAMES += ("a, c", "[a, c]")
ONE_HOT += ("array([1, 0, 1])", "tensor([1., 0., 1.])")
NAMES += ("frozenset({'a', 'c'})",)


@pytest.mark.parametrize("value", [*ONE_HOT, *NAMES], ids=str)
def test_several_labels_may_be_one_hot_or_lists_as_text(value):
    task = TableTask(
        "own",
        None,
        {},
        {},
        objective="multi_label",
        labels=("a", "b", "c"),
        metrics=("f1",),
    )
    rows = text_data.make_rows(["x"], [value])
    found = table_tasks.encode_labels(rows, task, "f.tsv")
    assert found.tolist() == [[1, 0, 1]]


@pytest.mark.parametrize("value", ["[1, 0]", [0, 1], "1,1", "[1. 0.]"])
def test_one_hot_lists_without_names_are_refused(value):
    task = TableTask(
        "own", None, {}, {}, objective="multi_label", metrics=("f1",)
    )
    rows = text_data.make_rows(["x", "y"], [value, value])
    with pytest.raises(ValueError, match='one-hot.*"labels"'):
        table_tasks.with_labels(task, rows)


@pytest.mark.parametrize(
    ("labels", "value", "index"),
    [
        (["true", "false"], True, 0),
        (["true", "false"], "True", 0),
        (["0", "1"], "1.0", 1),
        (["0", "1"], 0.0, 0),
        (["1.0", "2.0"], 2, 1),
        (["1", "1.0"], "1.0", 1),
        (["7", "007"], "007", 1),
        (["none", "some"], "none", 0),
        (["no", "yes"], " yes\u3000", 1),
        (["no", "yes"], "\ufeffyes\u200b", 1),
        (["1", "0"], "-0.0", 1),
        (["caf\u00e9", "no"], "cafe\u0301", 0),
        (["no", "very good"], "very\u00a0good", 1),
    ],
)
def test_labels_are_found_as_written_or_as_equal_values(labels, value, index):
    task = TableTask("own", None, {}, {}, labels=tuple(labels))
    rows = text_data.make_rows(["x"], [value])
    assert table_tasks.encode_labels(rows, task, "f").tolist() == [index]


def test_equal_labels_of_training_data_are_one():
    task = TableTask("own", None, {}, {})
    values = ["1", "1.0", 0, "0", "007", "7", "caf\u00e9", "cafe\u0301"]
    rows = text_data.make_rows(list("abcdefgh"), values)
    found = table_tasks.with_labels(task, rows)
    assert found.labels == ("0", "007", "1", "7", "cafe\u0301")


def test_an_empty_set_as_python_prints_it_is_no_label():
    assert label_values.split("set()", ",") == []
    assert label_values.split("joy(great)", ",") == ["joy(great)"]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("(x)", ["(x)"]),
        ("()", []),
        ("x,\u200fy", ["x", "y"]),
        ("[a, \u200fb]", ["a", "b"]),
        ("x, (y)", ["x", "(y)"]),
        ("[good film]", ["good film"]),
        ("[good film, bad]", ["good film", "bad"]),
        ("[1 0 1]", ["1", "0", "1"]),
        ("[]", []),
        ("[NLP],[CV]", ["[NLP]", "[CV]"]),
        ("(a), (b)", ["(a)", "(b)"]),
        ("['a]', 'b']", ["a]", "b"]),
        ("[children's, adult]", ["children's", "adult"]),
        ("['a' 'it\\'s']", ["a", "it's"]),
        ("['\\q']", ["\\q"]),
        ("[None 'a' 'b, c']", ["None", "a", "b, c"]),
        ("[np.str_('a, b'), np.int64(3), np.True_]", ["a, b", "3", "True"]),
        ("array(['a', 'b'], dtype='<U1')", ["a", "b"]),
        ("tensor([1, 0], device='cuda:0', dtype=torch.int32)", ["1", "0"]),
        ("array([], dtype=float64)", []),
        ("pandas, np.array(x)", ["pandas", "np.array(x)"]),
        ("['np.sum()', 'b']", ["np.sum()", "b"]),
        ("['a' 1 'b']", ["a", "1", "b"]),
        ("[1E2, 2.50]", ["1E2", "2.50"]),
        ("[women's, men's]", ["women's", "men's"]),
        ("[it's a, that's b]", ["it's a", "that's b"]),
        ("[children's books]", ["children's books"]),
        ("[rock 'n' roll]", ["rock 'n' roll"]),
    ],
)
def test_brackets_are_those_of_lists(value, wanted):
    assert label_values.split(value, ",") == wanted


def test_a_separator_counts_in_brackets_without_commas():
    assert label_values.split("[a|good film]", "|") == ["a", "good film"]
    assert label_values.split("(a|b)", "|") == ["(a|b)"]
    assert label_values.split("[it's|that's]", "|") == ["it's", "that's"]


@pytest.mark.parametrize("write", [json.dumps, repr, ascii])
def test_lists_have_the_names_that_were_written(write):
    names = ["体育", "Größe", '5" disk', "it's", "a\\b", "C:\\temp", "😀"]
    assert label_values.split(write(names), ",") == names


def test_labels_with_spaces_around_them_are_one():
    rows = text_data.make_rows(list("abc"), ["no", " yes", "yes "])
    found = table_tasks.with_labels(TableTask("own", None, {}, {}), rows)
    assert found.labels == ("no", "yes")


@pytest.mark.parametrize("value", ["b;c", "1 0 1", "b\u3001c"])
def test_rows_of_one_label_each_may_have_another_separator(value, caplog):
    task = own_task(objective="multi_label", metrics=("f1",))
    found = table_tasks.with_labels(task, rows_of("a", value))
    assert set(found.labels) == {"a", value}
    assert "no row has several labels" in caplog.text
    caplog.clear()
    table_tasks.with_labels(task, rows_of("a", "b,c"))
    assert not caplog.text


def test_labels_of_a_config_may_be_true_and_false(read_config):
    assert read_config(labels=[True, False]).labels == ("true", "false")


def test_labels_with_columns_of_their_own_are_zeros_and_ones(
    read_config, tmp_path
):
    """In the order of the labels, not of the columns."""
    path = tmp_path / "t.csv"
    path.write_text("y,x,text\n1,0,a\n1,True,b\n0,0,c\n")
    for labels, columns in (("x", "y"), ["y", "x"]), (("u", "v"), ["x", "y"]):
        task = read_config(train="t.csv", label=columns, labels=labels)
        rows = tables.read_table(str(path), task.train)
        encoded = table_tasks.encode_labels(rows, task, "t.csv")
        assert encoded.tolist() == [[0, 1], [1, 1], [0, 0]]


ROWS = [
    ("You fool.", ["toxic", "insult"]),
    ("Thanks.", []),
    ("Filth.", ["obscene"]),
]
COLUMNS = ["toxic", "obscene", "insult"]


def write_labels(path, form, *, has_columns):
    """Writes ROWS with a column for each label, or with one for all."""
    names = ["text", *(COLUMNS if has_columns else ["labels"])]
    lines = []
    for text, labels in ROWS:
        cells = [int(name in labels) for name in COLUMNS]
        lines.append([text, *(cells if has_columns else [",".join(labels)])])
    if form == "jsonl":
        rows = [json.dumps(dict(zip(names, x, strict=True))) for x in lines]
        path.write_text("\n".join(rows))
        return
    with open(path, "w", newline="") as file:
        delimiter = {"csv": ",", "tsv": "\t"}[form]
        csv.writer(file, delimiter=delimiter).writerows([names, *lines])


@pytest.mark.parametrize("form", tables.FORMATS)
def test_columns_of_labels_give_the_examples_of_one_column(
    read_config, tmp_path, form
):
    found = []
    for has_columns, settings in (
        (True, {"label": COLUMNS}),
        (
            False,
            {"label": "labels", "labels": COLUMNS, "objective": "multi_label"},
        ),
    ):
        path = tmp_path / f"{has_columns}.{form}"
        write_labels(path, form, has_columns=has_columns)
        task = read_config(train=path.name, **settings)
        rows = tables.read_table(str(path), task.train)
        encoded = table_tasks.encode_labels(rows, task, path.name)
        found.append(([row.text_a for row in rows], encoded.tolist()))
        assert task.labels == tuple(COLUMNS)
    assert found[0] == found[1]
    assert found[0][1] == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "text,a,b\nx,0,1\ny,1,{}\n"),
        ("t.jsonl", '\n{{"text": "y", "a": false, "b": {}}}\n'),
    ],
)
@pytest.mark.parametrize("cell", ["2", "0.5", '"yes"', '""', "null"])
def test_a_cell_that_is_no_zero_or_one_is_named(
    read_config, tmp_path, name, content, cell
):
    (tmp_path / name).write_text(content.format(cell))
    task = read_config(train=name, label=["a", "b"])
    line = 1 + (tmp_path / name).read_text().rstrip().count("\n")
    with pytest.raises(
        ValueError, match=rf"{name}, line {line}: .*'b' has .*; wanted 0 or 1"
    ):
        tables.read_table(str(tmp_path / name), task.train)


def test_a_config_may_name_a_column_for_each_label(read_config):
    task = read_config(label=["x", "y"], train="t.csv", test="u.jsonl")
    assert task.objective == "multi_label" and task.labels == ("x", "y")
    assert task.train.label == ("x", "y")
    assert (task.train.format, task.test["own"].format) == ("csv", "jsonl")
    other = read_config(label=["x", "y"], labels=["y", "x"])
    assert other.labels == ("y", "x")
    assert other.train.label == ("y", "x")
    numbered = read_config(label=[2, 3], labels=["y", "x"])
    assert numbered.train.label == (2, 3)
