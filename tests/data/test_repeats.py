"""Texts that occur several times: which are equal, and what is said."""

import pytest

from albert_tf.data import repeats, table_tasks, tables, text_data
from albert_tf.data.tables import Row
from albert_tf.text import tokenization
from tests import tiny


def rows_of(*pairs):
    return [
        Row(str(i), text, None, label, i + 2)
        for i, (text, label) in enumerate(pairs)
    ]


@pytest.mark.parametrize(
    ("text", "other", "are_equal"),
    [
        ("The cat", " the  CAT ", True),
        ("ﬁne", "fine", True),
        ("Straße", "STRASSE", True),
        ("the cat", "the cats", False),
        ("a b", "ab", False),
    ],
)
def test_nearly_equal_texts_have_one_key(text, other, are_equal):
    first, second = rows_of((text, "1"), (other, "0"))
    assert (repeats.key_of(first) == repeats.key_of(second)) == are_equal


def test_both_texts_of_a_pair_count():
    row = Row("1", "a", "b", "1", 2)
    keys = [row, row._replace(text_b="c"), row._replace(text_b=None)]
    assert len({repeats.key_of(x) for x in keys}) == 3


def describe_conflicts(rows):
    return repeats.describe_conflicts(rows, [*map(repeats.key_of, rows)])


def test_texts_of_several_labels_are_counted():
    rows = rows_of(("a", "1"), ("b", "1"), ("A ", "0"), ("b", "1"))
    said = describe_conflicts(rows)
    assert said.startswith("2 of 4 rows have the text") and "line 2" in said
    many = rows_of(*((str(i), "1") for i in range(500)))
    assert describe_conflicts(rows + many) is None  # Below 2%.
    alike = rows_of(("a", "café"), ("a", " cafe\u0301 "), ("b", 1), ("b", 1.0))
    assert describe_conflicts(alike) is None
    assert describe_conflicts(many) is None


def test_texts_of_the_training_data_are_counted():
    rows = rows_of(("a", "1"), ("b", "1"), ("C", "1"))
    said = repeats.describe_overlap(rows, {"b", "c"})
    assert said.startswith("2 of 3 rows") and "first on line 3" in said
    assert repeats.describe_overlap(rows, {"d"}) is None


def test_nearly_equal_texts_are_held_out_together():
    rows = [
        Row(str(i), f"text {i // 2}" + " " * (i % 2), None, "1", i)
        for i in range(400)
    ]
    train, dev = table_tasks.split_rows(rows, 0.3)
    keys = {repeats.key_of(row) for row in train}
    assert len(dev) > 60
    assert keys.isdisjoint(map(repeats.key_of, dev))


def test_what_training_data_repeats_or_leaves_out_is_said(tmp_path, caplog):
    tiny.write_model(tmp_path)
    content = "text\tlabel\nw1 w2\ta\nw3\tb\nW3 \ta\n"
    for name in ("train", "dev", "other"):
        (tmp_path / f"{name}.tsv").write_text(content)

    def read(**kwargs):
        caplog.clear()
        table = tables.Table("train.tsv", ("text",), "label")
        task = table_tasks.TableTask("own", table, test={}, **kwargs)
        text_data.read_data(
            tmp_path,
            task,
            tokenization.build_tokenizer(vocab_file=tmp_path / "vocab.txt"),
            9,
            with_train=True,
            with_dev=True,
            with_test=False,
        )
        return caplog.text

    said = read(dev={"": tables.Table("dev.tsv", ("text",), "label")})
    assert "train.tsv: 2 of 3 rows have the text of a row with ano" in said
    assert "dev.tsv: 3 of 3 rows have texts of the training data" in said
    assert "The task 'own' does not use other.tsv of" in said
    said = read(dev={}, dev_share=0.1)
    assert "train.tsv: 1 of 3 rows are held out to evaluate" in said
    assert "does not use dev.tsv, other.tsv" in said
