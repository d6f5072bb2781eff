"""Tests of markup.py: corpora are read from what they are stored in."""

import bz2
import gzip
import importlib
import json
import lzma
import os

import pytest

from albert_tf import filesystem
from albert_tf.data.pretraining import corpus, markup
from albert_tf.text import coverage

ARTICLES = """<doc id="1" url="u" title="Ape">
Ape

Apes are w1.

They sleep.
</doc>
<doc id="2" url="u" title="Empty">
Empty

</doc>
<doc id="3" url="u" title="Bee">
Bees fly.
</doc>
"""
COMPRESS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda text: importlib.import_module("backports.zstd").compress(
        text
    ),
}


def read(path, *format):
    """The documents of a file, as lists of lines."""
    text = markup.TextFormat(*format)
    documents = [[]]
    for line in corpus.read_lines([str(path)], text.open):
        if line:
            documents[-1].append(line)
        elif documents[-1]:
            documents.append([])
    return documents[:-1]


@pytest.fixture
def write(tmp_path):
    def write(content, name="a.txt"):
        path = tmp_path / name
        path.write_bytes(
            content.encode() if isinstance(content, str) else content
        )
        return path

    return write


@pytest.mark.parametrize("given", ["auto", "wikiextractor"])
def test_an_article_is_a_document_without_its_title(write, given):
    wanted = [["Apes are w1.", "They sleep."], ["Bees fly."]]
    assert read(write(ARTICLES), given) == wanted


def test_a_tag_needs_no_attributes(write):
    assert read(write("<doc>\nA b.\n</doc>\n")) == [["A b."]]


def test_rows_without_text_are_counted(write, caplog):
    rows = ['{"text": "a"}'] * 8 + ['{"text": " "}', '{"text": null}']
    assert len(read(write("\n".join(rows)))) == 8
    assert "2 of 10 rows have no text in 'text'" in caplog.text


@pytest.mark.parametrize("key", [None, "text", "m.t"])
def test_a_null_is_no_text(write, key):
    rows = [
        '{"text": null, "m": {"t": null}}',
        '{"text": "a", "m": {"t": "a"}}',
    ]
    path = write("\n".join(rows))
    assert read(path, "jsonl", key) == [["a"]]


def test_entities_in_articles_are_characters(write):
    title = 'title="A "B" &amp; C"'
    for end in ("", ' lang="en"'):
        text = f'<doc id="1" {title}{end}>\nA "B" &amp; C\n1 &lt; 2.\n</doc>\n'
        assert read(write(text)) == [["1 < 2."]]


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ({"text": "A b.\n\nC."}, None),
        ({"id": 1, "content": "A b.\nC."}, None),
        ({"meta": {"text": "A b.\nC."}, "text": "no"}, "meta.text"),
        ({"meta.text": "A b.\nC."}, "meta.text"),
        ({"content": None, "text": "A b.\nC."}, None),
    ],
    ids=str,
)
def test_a_row_is_a_document(write, row, key):
    path = write(f"{json.dumps(row)}\n\n{json.dumps(row)}")
    assert read(path, "auto", key) == [["A b.", "C."]] * 2


@pytest.mark.parametrize("ending", COMPRESS)
@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("content", ["A b.\n\nC.\n", '{"text": "A b."}\n' * 2])
def test_compressed_text_is_read(write, ending, is_named, content):
    data = COMPRESS[ending](content.encode())
    path = write(data, f"a.{ending}" if is_named else "a.txt")
    assert read(path) == read(write(content, "plain.txt"))
    with pytest.raises(ValueError, match="cannot be decompressed"):
        read(write(data[:-5]))


def test_formats_are_detected_and_said(write, caplog):
    contents = ARTICLES, '{"text": "a"}\n', "Plain text.\n"
    find = markup.TextFormat().detect
    kinds = [find(str(write(content))) for content in contents]
    assert kinds == ["wikiextractor", "jsonl", "text"]
    markup.say_formats(kinds)
    assert "1 files are read as jsonl" in caplog.text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('["a", "b"]\n', "is a JSON list"),
        ('[\n{"text": "a"}\n]\n', "is a JSON list"),
        ('"a b"\n"c d"\n"e"\n', "is a list of JSON strings"),
        ('{\n "text": "a"\n}\n', "is one JSON object on several lines"),
        ("id,text\n1,a b\n2,c d\n3,e\n", "is a CSV table"),
        ("id\ttext\n1\ta b\n2\tc d\n3\te\n", "is a TSV table"),
        ("{\\rtf1 a}", "is an RTF document"),
        ("<!DOCTYPE html>\n<p>a</p>", "is an HTML page"),
        ("<p>A b.</p>\n<p>C.</p>\n", "is HTML"),
        ("A b.<br />\nC d.<br />\n", "is HTML"),
        ("<mediawiki xmlns='a'>\n<page>\n", "is an XML document"),
        ("%PDF-1.4", "is a PDF document"),
        (b"PAR1\0\0", "is a Parquet table"),
        (b"PK\x03\x04\0", "is a zip archive"),
        (gzip.compress(b"\0" * 257 + b"ustar\0", mtime=0), "is a tar archive"),
        ('{"text": "a"}\n{"id": 1}\n', "a.txt, line 2: 'text' is None"),
        ('{"text": "a"}\n["b"]\n', "a.txt, line 2: found JSON of type list"),
        ('{"text": "a", "content": "b"}\n', "line 1: which key has the text"),
        ('{"body": "a"}\n', r"line 1: which key .* one of \['body'\]"),
        ('<doc id="1">\na\n<doc id="2">\n</doc>', "line 3: a document starts"),
        ('<doc id="1">\na\n', "line 1: the document has no </doc>"),
        ('<doc id="1">\na\n</doc>\nb', "line 4: found 'b' outside"),
    ],
)
def test_what_is_no_text_is_refused(write, content, says):
    with pytest.raises(ValueError, match=says):
        read(write(content))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", "text\na b\n", "is a CSV table"),
        ("a.csv.gz", gzip.compress(b"1;a b\n2;c\n", mtime=0), "is a CSV table"),
        ("a.TSV", "1\ta b\n2\tc\n", "is a TSV table"),
    ],
)
def test_tables_are_known_by_their_names(write, name, content, says):
    path = write(content, name)
    with pytest.raises(ValueError, match=says):
        read(path)
    assert read(path, "text")


def test_what_looks_like_markup_can_be_read_as_text(write):
    assert read(write('["a", "b"]\n'), "text") == [['["a", "b"]']]


def test_bad_characters_are_counted_and_invisible_lines_are_blank(
    write, caplog
):
    path = write(b"w1 \xff\n" * 3 + b"x\0y " * 20 + b"plain " * 99)
    assert len(read(path)[0]) == 4
    assert "23 characters are not UTF-8" in caplog.text
    assert corpus._line_parts("\u200b\u2060 \ufeff") == []


@pytest.mark.parametrize(
    "form", ["%s", '{"text": "%s"}', "<doc id=1>\n%s\n</doc>"]
)
def test_text_in_another_encoding_is_refused(write, form):
    line = "Der Bär schläft in der größten Höhle. "
    text = form % (9 * line + "„Ich weiß“, sagt er.")  # ß“ looks like a letter.
    with pytest.raises(ValueError, match="iconv, such as -f cp1252"):
        read(write(text.encode("cp1252")))
    assert line in str(read(write(text.encode())))


def test_bad_characters_of_json_are_counted(write, caplog):
    found = read(write('{"text": "größer ?"}'.encode().replace(b"?", b"\xfc")))
    assert "1 characters are not UTF-8" in caplog.text
    assert "größer \ufffd" in str(found)
    # Beside an escape that could be half a character.
    row = b'{"text": "caf\xe9 and \\ud83d\\ude00"}'
    caplog.clear()
    assert read(write(row)) == [["caf\ufffd and \U0001f600"]]
    assert "1 characters are not UTF-8" in caplog.text


SENTENCES = {
    "en": "The dog sleeps in the sun. It never barks! Does he care?",
    "hi": "यह एक वाक्य है। यह दूसरा वाक्य है। तीसरा?",
    "ar": "هذه جملة واحدة. هل هذه جملة ثانية؟ نعم هي ثالثة.",
    "zh": "这是一个句子。这是第二个句子！第三个？",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_paragraphs_draw_a_warning(language):
    text = SENTENCES[language]
    assert "several sentences each" in coverage.find_unsplit([text] * 9)
    ends = coverage._INNER_END
    sentences = ends.sub(lambda end: f"{end[0]}\n", text).split("\n")
    assert len(sentences) == 3
    assert not coverage.find_unsplit(sentences * 9)


def test_wrapped_lines_draw_a_warning():
    line = "the old dog sleeps in the sun all day and it never"
    lines = [*[line] * 8, "barks."] * 9
    assert "wrapped over several" in coverage.find_unsplit(lines)


def test_a_file_of_two_names_is_read_once(write, caplog):
    path = write("A.")
    path.with_name("b.txt").symlink_to(path)
    found = filesystem.expand_files(f"{path.parent}/*")
    assert found == [str(path)]
    assert "b.txt is" in caplog.text and "it is read once" in caplog.text


@pytest.mark.parametrize(
    "read", [filesystem.expand_files, filesystem.read_file]
)
def test_a_pipe_is_refused(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe is a pipe; wanted a file"):
        read(str(tmp_path / "pipe"))
