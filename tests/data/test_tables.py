"""Tests of tables.py: every row is read, or refused with its place."""

import logging
import time

import pytest

from albert_tf.data import table_tasks, tables
from albert_tf.data.tables import Table
from tests.conftest import CARRIED, SHARED

# GLUE's own files, and ours of the same layout.
FOLDERS = {
    name: folder
    for name, folder in (
        ("glue", SHARED / "data/glue"),
        ("ours", CARRIED / "classify/data"),
    )
    if folder.is_dir()
}
PAIRS = Table("pairs.tsv", ("first", "second"), "label")


@pytest.fixture
def read(tmp_path):
    """Writes a file and reads it as a table."""

    def write_and_read(content, table=PAIRS):
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / table.file).write_bytes(data)
        return tables.read_table(str(tmp_path / table.file), table)

    return write_and_read


def values(rows):
    return [(row.text_a, row.text_b, row.label) for row in rows]


@pytest.mark.parametrize(
    ("task", "sizes"),
    [
        ("cola", (8551, 1043, 1063)),
        ("mrpc", (3668, 408, 1725)),
        ("sst-2", (67349, 872, 1821)),
        ("sts-b", (5749, 1500, 1379)),
    ],
)
def test_all_rows_of_glue_are_read(shared, caplog, task, sizes):
    task = table_tasks.GLUE[task]
    parts = task.train, task.dev[""], *task.test.values()
    began = time.monotonic()
    for table, size in zip(parts, sizes, strict=True):
        path = shared / "data/glue" / table.file
        rows = tables.read_table(str(path), table)
        assert len(rows) == size
        assert [row.id for row in rows] == [str(i) for i in range(size)]
        assert rows[0].line == 1 + table.has_header
        assert rows[-1].line == size + table.has_header
    assert time.monotonic() - began < 5
    assert not caplog.records


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("sentence\tlabel\tidx", "column 1, where .* is 'label'"),
        ("0\tA good film.", None),
    ],
)
def test_other_columns_are_no_files_of_glue(tmp_path, caplog, header, message):
    (table,) = table_tasks.GLUE["sst-2"].test.values()
    path = tmp_path / "test.tsv"
    path.write_text(f"{header}\n1\tbad\n2\t \n")
    if message:
        with pytest.raises(ValueError, match=message):
            tables.read_table(str(path), table)
        return
    assert len(tables.read_table(str(path), table)) == 2
    assert "its first line, ['0', 'A good film.'], is read as" in caplog.text
    assert "a text of 1 rows is empty" in caplog.text


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("task", ["cola", "mrpc", "sst-2", "sts-b"])
def test_ids_of_glue_are_the_index_of_its_test_files(folder, tmp_path, task):
    """The first column counts, where a file has some rows in another order."""
    ((_, table),) = table_tasks.GLUE[task].test.items()
    path = FOLDERS[folder] / table.file
    header, *lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    part = lines[400:10:-3] if len(lines) > 400 else lines[8:1:-3]
    (tmp_path / "test.tsv").write_text("\n".join([header, *part]))
    for found, wanted in ((path, lines), (tmp_path / "test.tsv", part)):
        rows = tables.read_table(str(found), table)
        assert [r.id for r in rows] == [x.split("\t")[0] for x in wanted]


def test_the_first_column_of_glue_test_files_is_the_index():
    found = {name: t.test for name, t in table_tasks.GLUE.items()}
    assert {t.id for test in found.values() for t in test.values()} == {0}


def test_columns_are_names_or_numbers(read):
    content = "label\tx\tfirst\tsecond\n1\tu\ta\tb\n0\tv\tc\t\n"
    wanted = [("a", "b", "1"), ("c", "", "0")]
    assert values(read(content)) == wanted
    by_number = Table("t.tsv", (2, -1), 0)
    assert values(read(content, by_number)) == wanted
    without_header = Table("t.tsv", (2, 3), 0, has_header=False)
    assert values(read(content, without_header))[1:] == wanted
    (single, _) = read(content, Table("t.tsv", ("first",), id="x"))
    assert single == tables.Row("u", "a", None, None, 2)


def test_quotes_of_tsv_are_text(read):
    rows = read('first\tsecond\tlabel\n"a\tb"\t1\n"c"\t""\t"0"\n')
    assert values(rows) == [('"a', 'b"', "1"), ('"c"', '""', '"0"')]


def test_quotes_of_excel_are_removed(read, caplog):
    """It quotes what has a comma, between tabs, too."""
    rows = read('first\tsecond\tlabel\n"a, b"\tc\t1\nd\t"e, f"\t0\n')
    assert values(rows) == [("a, b", "c", "1"), ("d", "e, f", "0")]
    assert "the quotes are removed" in caplog.text


def test_no_row_of_a_single_column_is_lost(read):
    table = Table("t.csv", ("text",), id="text", format="csv")
    with pytest.raises(ValueError, match="line 3"):
        read("text\r\na\r\n\r\nb\r\n", table)
    with pytest.raises(ValueError, match="is empty"):
        read("\r\ntext\r\na\r\n\r\nb\r\n", table)
    assert len(read("text\r\na\r\nb\r\n\r\n", table)) == 2


@pytest.mark.parametrize("format", ["tsv", "csv", "jsonl"])
def test_files_of_other_systems_are_read(read, format):
    content = {
        "tsv": "first\tsecond\tlabel\na\tb\t1\nc\td\t0\n\n",
        "csv": "first,second,label\na,b,1\nc,d,0\n\n",
        "jsonl": '{"label": "1", "first": "a", "second": "b"}\n'
        '{"first": "c", "second": "d", "label": "0", "other": []}\n\n',
    }[format]
    table = Table("t", ("first", "second"), "label", format=format)
    wanted = [("a", "b", "1"), ("c", "d", "0")]
    for changed in (
        content,
        content.rstrip("\n"),
        content.replace("\n", "\r\n"),
        "\ufeff" + content,
    ):
        assert values(read(changed, table)) == wanted


@pytest.mark.parametrize("format", ["tsv", "csv", "jsonl"])
def test_only_line_feeds_end_a_line(read, format):
    """str.splitlines() would split at all of these."""
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei"
    content = f"{text}\t1\n" if format == "tsv" else f"{text},1\n"
    table = Table("t", (0,), 1, format=format, has_header=False)
    if format == "jsonl":
        # JSON requires control characters to be escaped, but not the others.
        text = "a\u2028b\u2029c\x85d"
        content = f'{{"text": "{text}", "label": "1"}}\n'
        table = Table("t", ("text",), "label", format=format)
    assert values(read(content * 2, table)) == [(text, None, "1")] * 2


def test_carriage_returns_in_a_tsv_are_text(read):
    """The release's reader dropped them and joined the words."""
    rows = read("first\tsecond\tlabel\r\na\rb\tc\t1\r\n")
    assert values(rows) == [("a\rb", "c", "1")]


def test_csv_fields_may_be_quoted_and_long(read):
    long = "x" * 200_000
    table = Table("t.csv", ("a", "b"), "l", format="csv")
    content = f'a,b,l\n"one, ""two""\nthree",,1\n\n{long},"4\r\n5",0\n6,"7",1'
    rows = read(content, table)
    assert values(rows) == [
        ('one, "two"\nthree', "", "1"),
        (long, "4\r\n5", "0"),
        ("6", "7", "1"),
    ]
    assert [row.line for row in rows] == [2, 5, 7]


def test_json_values_keep_their_types(read):
    table = Table("t", ("a", "b"), "l", format="jsonl", id="i")
    content = (
        '{"a": "1", "b": null, "l": ["x", "y"], "i": 7}\n\n'
        '{"a": "2", "b": "c", "l": 0.5, "i": "z"}\n'
    )
    assert read(content, table) == [
        tables.Row("7", "1", None, ["x", "y"], 1),
        tables.Row("z", "2", "c", 0.5, 3),
    ]


def test_short_rows_are_skipped_if_the_task_allows_it(read, caplog):
    content = "first\tsecond\tlabel\na\tb\t1\nc\td\ne\tf\t0\n"
    table = Table(
        "t", ("first", "second"), "label", id=None, skips_short_rows=True
    )
    rows = read(content, table)
    assert [row.line for row in rows] == [2, 4]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "1 of 3 rows have too few columns" in record.getMessage()


@pytest.mark.parametrize(
    ("table", "content", "wanted"),
    [
        # As pandas writes it: fields with tabs, quotes or line breaks; all; all
        # but numbers; with another delimiter; of an older Mac.
        (
            PAIRS,
            'first\tsecond\tlabel\n"a ""b"" \tc"\td\t1\n"e\nf"\tg\t0\n',
            [('a "b" \tc', "d", "1"), ("e\nf", "g", "0")],
        ),
        (
            PAIRS,
            'first\tsecond\tlabel\n"say ""x"""\td\t1\ne\tg\t0\n',
            [('say "x"', "d", "1"), ("e", "g", "0")],
        ),
        (
            PAIRS,
            '"first"\t"second"\t"label"\n"a"\t"b"\tTrue\n"c"\t"d"\t0.5\n',
            [("a", "b", "True"), ("c", "d", "0.5")],
        ),
        (
            Table("t.csv", ("a",), "l", format="csv", delimiter=";"),
            'a;l\n"x; ""y""";1\n"b,c";0\n',
            [('x; "y"', None, "1"), ("b,c", None, "0")],
        ),
        (PAIRS, "first\tsecond\tlabel\ra\tb\t1\r", [("a", "b", "1")]),
        # Quotes that are text.
        (
            PAIRS,
            'first\tsecond\tlabel\n"a"\t"b" c\t1\nd\t""\t0\n',
            [('"a"', '"b" c', "1"), ("d", '""', "0")],
        ),
        # A trailing delimiter.
        (
            Table("t.csv", ("a",), "l", format="csv"),
            "a,l\nx,1,\n",
            [("x", None, "1")],
        ),
    ],
)
def test_tables_are_read_as_they_were_written(read, table, content, wanted):
    assert values(read(content, table)) == wanted


@pytest.mark.parametrize(
    ("file", "format"),
    [
        ("a.csv", "csv"),
        ("b/A.CSV", "csv"),
        ("a.jsonl", "jsonl"),
        ("a.json", "jsonl"),
        ("a.tsv", "tsv"),
        ("a.csv.tsv", "tsv"),
        ("csv", "tsv"),
    ],
)
def test_the_name_of_a_file_suggests_its_format(file, format):
    assert tables.format_of(file) == format


def test_each_label_may_have_its_own_column(read):
    table = Table("t.csv", ("x",), ("b", "a"), format="csv")
    rows = read("a,x,b\n0,one,1\nTrue,two,1.0\nfalse,three,0\n", table)
    assert [row.label for row in rows] == [
        [True, False],
        [True, True],
        [False, False],
    ]
    with pytest.raises(ValueError, match="line 2: .* 'a' has '2'; wanted"):
        read("a,x,b\n2,one,1\n", table)


@pytest.mark.parametrize("has_header", [True, False])
def test_a_first_row_that_nothing_checks_is_logged(read, caplog, has_header):
    table = Table("t.tsv", (0,), 1, has_header=has_header)
    read("good film\t1\nbad film\t0\n", table)
    (record,) = caplog.records
    assert "['good film', '1']" in record.getMessage()
    assert '"has_header": false' in record.getMessage() or not has_header


LAST = Table("t.tsv", ("first",), -1)
FAULTS = {
    "a delimiter in a text": (
        "label\tfirst\tsecond\n1\ta\tb\n0\tc\td\te\n",
        PAIRS,
        "pairs.tsv, line 3: found 4 columns; the header has 3. Does a text",
    ),
    "a comma in a text": (
        "a,l,x\ngood, but long,1,u\n",
        Table("t.csv", ("a",), "l", format="csv"),
        "t.csv, line 2: found 4 columns; the header has 3",
    ),
    "a row that lacks an unused column": (
        "first\tsecond\tlabel\tx\na\tb\t1\tu\nc\td\t0\n",
        PAIRS,
        "line 3: found 3 columns",
    ),
    "an empty text": (
        "text\tlabel\n \u200b\ufeff\t1\n",
        Table("t.tsv", ("text",), "label"),
        "t.tsv, line 2: the text is empty. Remove the row",
    ),
    "a label of null": (
        '{"a": "x", "l": null}\n',
        Table("t", ("a",), "l", format="jsonl"),
        'label is None; wanted .*Test data without labels need "test_label"',
    ),
    "a row of JSON without its label": (
        '{"a": "x"}\n',
        Table("t", ("a",), "l", format="jsonl"),
        'missing from the keys.*Test data without labels need "test_label"',
    ),
    "an empty file": ("", PAIRS, "no rows"),
    "a file of blank lines": ("\n\r\n\n", PAIRS, "no rows"),
    "a header only": ("first\tsecond\tlabel\n", PAIRS, "no rows"),
    "an empty CSV file": ("", Table("t", (0,), 1, format="csv"), "no rows"),
    "empty JSON lines": ("\n\n", Table("t", ("a",), format="jsonl"), "no rows"),
    "a short row": (
        "first\tsecond\tlabel\na\tb\t1\nc\td\n",
        PAIRS,
        r"pairs.tsv, line 3: found 2 columns, wanted at least 3. Is the row",
    ),
    "a blank line": (
        "first\tsecond\tlabel\na\tb\t1\n\nc\td\t0\n",
        PAIRS,
        "line 3: found 1 columns, wanted at least 3",
    ),
    "a row that the last column cannot be counted in": (
        "first\tsecond\tlabel\na\tb\t1\nc\t0\n",
        LAST,
        "line 3: found 2 columns, wanted at least 3",
    ),
    "a row shorter than a column from the end": (
        "a\tb\tc\nd\n",
        Table("t", (0,), -2, has_header=False),
        "line 2: found 1 columns, wanted at least 3",
    ),
    "one column that is the first and the last": (
        "a\tb\nc\n",
        Table("t", (0,), -1, has_header=False),
        "line 2: found 1 columns, wanted at least 2",
    ),
    "short rows only": (
        "first\tsecond\tlabel\na\nb\n",
        Table("t", ("first", "second"), "label", skips_short_rows=True),
        "all 2 rows have too few columns. Does it use another delimiter",
    ),
    "another delimiter": (
        "first,second,label\na,b,1\n",
        PAIRS,
        r"no column 'first'; its header is \['first,second,label'\]",
    ),
    "a blank line, and quotes": (
        'first\tsecond\tlabel\nsay "x"\tb\t1\n\nc\td\t0\n',
        PAIRS,
        "line 3: found 1 columns",
    ),
    "another delimiter, and quotes": (
        'a;b\n"c";d\n',
        Table("t", (0,), format="csv"),
        'line 2: .*or is the "delimiter" another one',
    ),
    "a column in capitals": (
        "First\tSecond\tLabel\na\tb\t1\n",
        PAIRS,
        "no column 'first'; .* Did you mean 'First'",
    ),
    "an unknown column": (
        "one\ttwo\tlabel\na\tb\t1\n",
        PAIRS,
        r"no column 'first'; its header is \['one', 'two', 'label'\]",
    ),
    "a name without a header": (
        "a\tb\n",
        Table("t", ("first",), has_header=False),
        "no column 'first'; its header is None",
    ),
    "Chinese in another encoding": (
        "好\t1\n".encode("gbk"),
        PAIRS,
        "not UTF-8 .*gb18030",
    ),
    "names of rows as R writes them": (
        'a,b\n"1",c,d\n',
        Table("t", ("a",), format="csv"),
        "line 2: found 3 columns; the header has 2. .*row.names=FALSE",
    ),
    "another encoding": ("caf\xe9\t1\n".encode("latin-1"), PAIRS, "not UTF-8"),
    "no value for a label with a column of its own": (
        "a,x\nb,-1\n",
        Table("t", ("a",), ("x",), format="csv"),
        "line 2: .* has '-1'; wanted 0 or 1. .*\"test_label\": null",
    ),
    "no key for a label of its own": (
        '{"a": "b"}\n',
        Table("t", ("a",), ("x",), format="jsonl"),
        "line 1: .*'x'.* are missing .*\"test_label\": null",
    ),
    "an open quote": (
        'a,b\nc,d\n"e,f\ng,h\n',
        Table("t", ("a",), format="csv"),
        "line 3: unexpected end of data",
    ),
    "text after a quote": (
        'a,b\n"c"d,e\n',
        Table("t", ("a",), format="csv"),
        "line 2: ',' expected after '\"'",
    ),
    "broken JSON": (
        '{"a": "b"}\n{"a": \n',
        Table("t", ("a",), format="jsonl"),
        "line 2 is not JSON: Expecting value",
    ),
    "JSON of another form": (
        '{"a": "b"}\n\n["b"]\n',
        Table("t", ("a",), format="jsonl"),
        "line 3: found JSON of type list, wanted an object",
    ),
    "a missing key": (
        '{"a": "b", "l": 1}\n{"a": "b", "label": 1}\n',
        Table("t", ("a",), "l", format="jsonl"),
        r"line 2: \['l'\] are missing from the keys \['a', 'label'\]",
    ),
    "a null text": (
        '{"a": null}\n',
        Table("t", ("a",), format="jsonl"),
        "line 1: text_a is None; wanted a string",
    ),
    "a number as second text": (
        '{"a": "b", "c": 5}\n',
        Table("t", ("a", "c"), format="jsonl"),
        "line 1: text_b is 5; wanted a string",
    ),
    "a null label": (
        '{"a": "b", "l": null}\n',
        Table("t", ("a",), "l", format="jsonl"),
        "line 1: label is None; wanted a string, a number or a list",
    ),
    "an object as a label": (
        '{"a": "b", "l": {}}\n',
        Table("t", ("a",), "l", format="jsonl"),
        "line 1: label is {}; wanted a string, a number or a list",
    ),
    "null among labels": (
        '{"a": "b", "l": ["x", null]}\n',
        Table("t", ("a",), "l", format="jsonl"),
        "line 1: the labels contain None",
    ),
    "JSON too deep": (
        '{"a": "b"}\n' + "[" * 100_000,
        Table("t", ("a",), format="jsonl"),
        "line 2 is not readable JSON: it is nested too deeply",
    ),
    "half a pair": (
        '{"a": "\\ud83d"}\n',
        Table("t", ("a",), format="jsonl"),
        "line 1 contains an unpaired surrogate",
    ),
    "a list for an id": (
        '{"a": "b", "i": [1]}\n',
        Table("t", ("a",), id="i", format="jsonl"),
        r"line 1: id is \[1\]; wanted a string or a number",
    ),
    "an id twice": (
        "i\ta\n7\tx\n8\ty\n7\tz\n",
        Table("t", ("a",), id="i"),
        "the id '7' on line 2 and again on line 4",
    ),
    "no id": (
        "i\ta\n7\tx\n \ty\n",
        Table("t", ("a",), id="i"),
        "line 3: id is ' '; wanted a value",
    ),
    "an id of two lines": (
        'i,a\n"7\n8",x\n',
        Table("t", ("a",), id="i", format="csv"),
        "line 2: id is '7.n8'; wanted a value without tabs",
    ),
    "a column twice": (
        "a\tb\ta\n1\t2\t3\n",
        Table("t", ("a",)),
        "has 2 columns named 'a'. Use a column number",
    ),
    "Japanese of old mails": (
        "a\tb\nこれは\t1\n".encode("iso2022_jp"),
        Table("t", ("a",)),
        "is text in ISO-2022-JP; wanted UTF-8",
    ),
    "UTF-16 without a mark": (
        "a\tb\n".encode("utf-16-le"),
        Table("t", ("a",)),
        "is text in UTF-16; wanted UTF-8",
    ),
    "NULs at the end": (
        b"a\tb\n1\t2\n" + b"\0" * 9,
        Table("t", ("a",)),
        "line 3 contains a NUL character",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_error_names_the_file_and_line(read, fault):
    content, table, message = FAULTS[fault]
    with pytest.raises(ValueError, match=message) as error:
        read(content, table)
    assert table.file in str(error.value)


def test_an_error_names_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no .*pairs.tsv"):
        tables.read_table(str(tmp_path / "pairs.tsv"), PAIRS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"text": ("a", "b", "c", "d")}, "wanted 1 to 2 columns"),
        ({"text": ()}, "wanted 1 to 2 columns"),
        ({"text": "ab"}, "wanted 1 to 2 columns"),
        ({"text": ("a",), "format": "xlsx"}, "format is 'xlsx'; wanted one of"),
    ],
)
def test_an_invalid_table_description_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Table("t", **settings)


@pytest.mark.parametrize(
    "content",
    ["", "\n", "a", "a\nb\n", "a\r\n\r\nb\r\r\n\rc", "\ufeffa\n\ufeffb\n\n"]
    + ["a\u2028b\x0b\x85c\nd"],
)
def test_lines_are_those_of_the_whole_text(tmp_path, content):
    path = tmp_path / "lines.txt"
    path.write_bytes(content.encode())
    text = tables.read_text(path).replace("\r\n", "\n")
    wanted = text.split("\n")
    wanted = wanted if wanted[-1] else wanted[:-1]
    assert list(tables.read_lines(path)) == wanted


@pytest.mark.parametrize(
    ("content", "table", "said"),
    [
        (
            "a b\t1\nc\t0\n",
            Table("t.tsv", (0,), (1,)),
            "head",
        ),
        (
            'first\tlabel\n"He said ""no"""\t1\n"open\t0\n',
            Table("t.tsv", ("first",), "label"),
            "its quotes are read as text",
        ),
        (
            "first\tsecond\tlabel\na\tNaN\t1\nb\t\t1\nc\td\t0\n",
            PAIRS,
            "a text of 2 rows is empty or only a word",
        ),
    ],
)
def test_ambiguous_content_is_logged(read, caplog, content, table, said):
    read(content, table)
    assert said in caplog.text


def test_lines_of_json_may_end_as_on_older_macs(read):
    content = '{"a": "b"}\r{"a": "c"}\r'
    rows = read(content, Table("t.jsonl", ("a",), format="jsonl"))
    assert [(row.text_a, row.line) for row in rows] == [("b", 1), ("c", 2)]
