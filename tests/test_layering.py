"""Imports between our modules point one way."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "albert_tf"

# Modules at the top of the package, which import none of its folders.
SYSTEM = {
    "errors",
    "file_kinds",
    "filesystem",
    "flags",
    "messages",
    "ownership",
    "progress",
    "settings",
}
SYSTEM |= {"__version__", "quiet_import"}
STATE = {"model", "text", "weights"}
WORK = STATE | {"data", "metrics", "training", "export"}
ANYTHING = WORK | {"tasks", "data.pretraining"}
# Our folders that the modules of a folder may import, besides their own.
ALLOWED = {
    "": set(),
    # Of these, modules without TensorFlow.
    "commands": {"model", "data.pretraining", "tasks"},
    "model": set(),
    "text": set(),
    "metrics": set(),
    "weights": {"model", "text"},
    "data": {"text", "metrics"},
    "data.pretraining": {"text", "data"},
    "training": {"model", "weights", "data"},
    "export": STATE,
    "tasks": WORK | {"data.pretraining"},
    "inference": WORK | {"tasks"},
    "reports": ANYTHING | {"commands"},
    "programs": ANYTHING | {"commands", "reports", "inference"},
    # Nobody imports it: commands name its programs.
    "lab": ANYTHING | {"commands", "programs", "reports"},
}
# Only folders with command lines import flags.
WITH_FLAGS = {"", "commands", "programs", "lab"}
OPTIONAL = {"tensorflow_text", "tensorflow_hub", "matplotlib"}
OPTIONAL |= {"apache_beam", "google_crc32c", "jax", "jaxlib"}
OPTIONAL_IN = {"text.operations", "export.text_serving", "reports.plot_metrics"}
OPTIONAL_IN |= {"data.pretraining.beam_pipeline", "data.pretraining.blocks"}
OPTIONAL_IN |= {"lab.tpu_compiler"}


def dotted(path):
    """The name of a module below albert_tf: `data.squad`."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def folder(name):
    """The folder of a module: "data" for `data.squad`, "" at the top."""
    folders = [f for f in ALLOWED if f".{name}.".startswith(f".{f}.")]
    return max(folders, key=len, default="")


def imported(path):
    """The dotted names that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


FILES = [p for p in sorted(PACKAGE.rglob("*.py")) if p.name != "__init__.py"]


def test_each_folder_has_a_row():
    folders = {dotted(path.parent / "x")[:-2] for path in FILES}
    assert folders == set(ALLOWED)


def test_each_folder_is_installed():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"setuptools\]\npackages = \[(.*?)\]", text, re.S)[1]
    own = {f"albert_tf.{name}".rstrip(".") for name in ALLOWED}
    assert {*re.findall(r'"(.*?)"', listed)} == own | {"albert_tf.configs"}


@pytest.mark.parametrize("path", FILES, ids=dotted)
def test_modules_import_only_what_their_folder_may(path):
    own = folder(dotted(path))
    system = SYSTEM if own in WITH_FLAGS else SYSTEM - {"flags"}
    # At the top, only the entry point knows of commands.
    allowed = {"commands"} if path.stem == "__main__" else ALLOWED[own]
    for name in imported(path):
        top, _, name = name.partition(".")
        if top == "albert_tf" and name.split(".")[0] not in system:
            assert folder(name) in allowed | {own} - {""}, name


@pytest.mark.parametrize(
    "path",
    [*FILES, *sorted(ROOT.glob("*.py"))],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_nothing_imports_a_script(path):
    scripts = {script.stem for script in ROOT.glob("*.py")}
    assert not {name.split(".")[0] for name in imported(path)} & scripts


@pytest.mark.parametrize("path", FILES, ids=dotted)
def test_the_core_runs_without_the_optional_packages(path):
    if dotted(path) not in OPTIONAL_IN:
        packages = {name.split(".")[0] for name in imported(path)}
        assert not packages & OPTIONAL


@pytest.mark.parametrize("path", FILES, ids=dotted)
def test_each_function_can_be_read_on_one_screen(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            num_lines = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node):
                doc = node.body[0]
                num_lines -= doc.end_lineno - doc.lineno + 1
            assert num_lines <= 50, node.name


# Messages of a library name arguments; `messages.show` makes flags of them.
# Beam's own options are flags in Python, too.
WITH_COMMANDS = {"commands", "programs", "reports", "lab"}
LIBRARY = [
    path
    for path in FILES
    if folder(dotted(path)) not in WITH_COMMANDS
    and dotted(path) not in {"flags", "__main__", "messages"}
    and dotted(path) != "data.pretraining.beam_pipeline"
]


@pytest.mark.parametrize("path", LIBRARY, ids=dotted)
def test_the_library_names_arguments_and_no_flags(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_doc = id(node) in docs
            assert is_doc or not re.search("--([a-z]|$)", node.value), (
                node.lineno
            )
