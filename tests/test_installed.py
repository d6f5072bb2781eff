"""An installed package does what a clone does, in any folder."""

import importlib
import os
import pathlib
import pkgutil
import subprocess
import sys

import pytest

import albert_tf
from albert_tf import __main__ as command
from albert_tf import commands, filesystem
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Folder that the package is installed in, by a wheel."""
    pytest.importorskip("setuptools", reason="builds a wheel with setuptools")
    folder = tmp_path_factory.mktemp("installed")
    source = folder / "source"
    source.mkdir()
    texts = "README.md", "LICENSE", "NOTICE", "pyproject.toml"
    for name in ("albert_tf", "configs", *texts):
        (source / name).symlink_to(ROOT / name)
    code = "from setuptools import build_meta as b; b.build_wheel('..')"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True)
    (wheel,) = folder.glob("*.whl")
    site = folder / "site"
    unpack = [sys.executable, "-m", "zipfile", "-e", str(wheel), str(site)]
    subprocess.run(unpack, check=True)
    return site


def run_albert(site, folder, *words):
    return subprocess.run(
        [sys.executable, "-m", "albert_tf", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
    )


def test_make_names_the_debian_package_that_a_python_lacks(tmp_path):
    python = tmp_path / "python3.13"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    done = subprocess.run(
        [
            *("make", f"--file={ROOT}/Makefile", f"PYTHON={python}"),
            ".venv/bin/python",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode
    assert "apt-get install python3.13-venv. Or choose" in done.stderr
    assert list(tmp_path.iterdir()) == [python]


def test_a_wheel_holds_all_that_commands_need(installed, tmp_path):
    said = run_albert(installed, tmp_path).stdout
    assert said.splitlines()[-1].endswith(str(installed / "albert_tf/configs"))
    ours = {p.relative_to(ROOT / "configs") for p in files(ROOT / "configs")}
    there = installed / "albert_tf" / "configs"
    assert {p.relative_to(there) for p in files(there)} == ours
    modules = {p.relative_to(ROOT) for p in files(ROOT / "albert_tf", "*.py")}
    site = {p.relative_to(installed) for p in files(installed, "*.py")}
    assert modules <= site
    for name in ("py.typed", "reports/page.html"):
        assert (installed / "albert_tf" / name).exists()


def files(folder, pattern="*"):
    return [p for p in pathlib.Path(folder).rglob(pattern) if p.is_file()]


def test_a_command_finds_its_recipes_and_its_program(installed, tmp_path):
    (tmp_path / "glue" / "RTE").mkdir(parents=True)
    (tmp_path / "glue" / "RTE" / "train.tsv").touch()
    done = run_albert(
        installed,
        tmp_path,
        *("run_glue", "--data_dir=glue", "--output_dir=out"),
    )
    assert done.returncode == 1
    # It got as far as the flags of the program that it runs.
    assert "albert run_classifier: No checkpoint to start from" in done.stderr
    assert "albert run_glue: 1 of 1 tasks failed" in done.stderr


@pytest.mark.parametrize("name", [*command.PROGRAMS, *command.TOOLS])
def test_each_command_has_a_program(name):
    program, flags_class = commands.find(name)
    assert program.endswith(f".{name}")
    assert callable(importlib.import_module(program).run)
    assert flags_class.__module__ == f"albert_tf.commands.{name}"


def test_each_command_is_listed():
    found = pkgutil.iter_modules(commands.__path__)
    known = {**command.PROGRAMS, **command.TOOLS}
    assert {m.name for m in found} == known.keys() | {"groups"}


@pytest.mark.parametrize("name", command.PROGRAMS)
def test_each_program_is_a_script(name):
    lines = (ROOT / f"{name}.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 10
    assert f"from albert_tf.commands import {name}" in lines


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("run_everything", ""),
        ("run_sqaud", "Did you mean run_squad"),
        ("fill-mask", "Did you mean fill_mask"),
        ("pretrain", ""),
    ],
)
def test_a_word_that_is_no_command_is_refused(monkeypatch, capsys, name, hint):
    for words in ([name], ["help", name]):
        monkeypatch.setattr(sys, "argv", ["albert", *words])
        assert command.main() == 1
        said = capsys.readouterr().err
        assert f"unknown command {name!r}" in said and hint in said
        assert len(said.splitlines()) == 1


def test_albert_alone_lists_the_commands(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["albert"])
    assert command.main() == 0
    said = capsys.readouterr().out
    assert str(filesystem.shipped_configs()) in said


def test_the_version_is_printed(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["albert", "--version"])
    assert command.main() == 0
    assert capsys.readouterr().out == f"albert_tf {albert_tf.__version__}\n"


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["help", "embed"],
        ["analyze", "--help"],
        ["analyze", "--albert_config_file=configs/model/v2/base.json"],
    ],
    ids=str,
)
def test_a_closed_pipe_is_no_error(words):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "albert_tf", *words],
        cwd=ROOT,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    assert done.stderr == "" and done.returncode == 141


def test_help_of_a_command_is_that_of_its_flag():
    said = {
        subprocess.run(
            [sys.executable, "-m", "albert_tf", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
        ).stdout
        for words in (["help", "embed"], ["embed", "--help"])
    }
    assert len(said) == 1 and "--pooling" in said.pop()
