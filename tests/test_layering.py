"""Imports between our modules point one way."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "albert_tf"

SYSTEM = {"filesystem", "progress", "ownership"}
TEXT = (
    SYSTEM
    | {"config", "normalization", "tokenization"}
    | {"damage", "sidecars", "records"}
)
BASE = TEXT | {"optimization", "metrics"}
MODEL = {"layers", "modeling", "heads", "span_heads", "checkpoints"}
STORED = {"huggingface", "pretrained", "saved_weights"}
LOOP = {"distribution", "manifest", "reporting", "training", "evaluation"}
OPTIONAL = {"tensorflow_text", "tensorflow_hub", "matplotlib"}
# What a module, or a package below albert_tf, may import of ours.
ALLOWED = {
    **dict.fromkeys(BASE | {"errors"}, set()),
    "flags": {"errors"},
    "ownership": {"filesystem"},
    "manifest": {"filesystem"},
    "config": SYSTEM,
    "reporting": SYSTEM,
    "damage": SYSTEM,
    "sidecars": SYSTEM | {"damage"},
    "records": SYSTEM | {"damage", "sidecars"},
    "tokenization": SYSTEM | {"normalization"},
    "layers": BASE,
    "modeling": BASE | {"layers"},
    "heads": BASE | {"layers", "modeling"},
    "span_heads": BASE | {"layers", "heads"},
    "checkpoints": BASE | {"modeling", "heads"},
    "huggingface": BASE | {"checkpoints"},
    "saved_weights": set(),
    "pretrained": BASE | MODEL | {"huggingface", "saved_weights"},
    "data": TEXT | {"data"},
    "distribution": BASE,
    "training": BASE | {"checkpoints", "distribution", "reporting"},
    "evaluation": BASE | {"checkpoints", "reporting", "training"},
    "finetuning": BASE | MODEL | STORED | LOOP | {"data"},
    "programs": BASE
    | MODEL
    | STORED
    | LOOP
    | {"finetuning", "data", "text_export"},
    "serving": set(),
    "export": BASE | MODEL | {"errors", "serving"},
    "characters": set(),
    "text_graph": BASE | MODEL | {"characters"},
    "text_export": BASE | MODEL | {"export", "serving", "text_graph"},
    "hub": BASE | MODEL | {"export", "serving"},
    "tools": BASE
    | MODEL
    | STORED
    | LOOP
    | {"data", "errors", "export", "flags", "serving", "tools"},
}


def unit(path):
    """The module or the package of a file: `data` for data/masking.py."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path):
    """The dotted names that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


FILES = [p for p in sorted(PACKAGE.rglob("*.py")) if p.name != "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_modules_import_only_what_stands_above_them(path):
    ours = [n.split(".") for n in imported(path) if n.startswith("albert_tf.")]
    assert unit(path) in ALLOWED, "a new module: say above what it may import"
    assert {name[1] for name in ours} <= ALLOWED[unit(path)]


@pytest.mark.parametrize(
    "path",
    [*FILES, *sorted(ROOT.glob("*.py"))],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_nothing_imports_a_script(path):
    scripts = {script.stem for script in ROOT.glob("*.py")}
    assert not {name.split(".")[0] for name in imported(path)} & scripts


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_core_runs_without_the_optional_packages(path):
    if unit(path) not in {"text_export", "text_graph", "tools"}:
        packages = {name.split(".")[0] for name in imported(path)}
        assert not packages & OPTIONAL
