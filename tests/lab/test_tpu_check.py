"""The check of a TPU without one: what it finds, and what it says."""

import ast
import json
import os
import re
import shlex

import pytest

from albert_tf import filesystem
from albert_tf.commands.tpu_check import TpuCheckFlags
from albert_tf.lab import tpu_check, tpu_environment
from tests import tiny

GIB = 2**30


def flags(tmp_path, **kwargs):
    path = tmp_path / "albert_config.json"
    path.write_text(tiny.CONFIG.to_json_string())
    return TpuCheckFlags(
        albert_config_file=str(path),
        max_seq_length=16,
        max_predictions_per_seq=3,
        **kwargs,
    )


FITS = {
    "peak_bytes": 3 * GIB,
    "argument_bytes": GIB,
    "temporary_bytes": 2 * GIB,
    "flops": 1e9,
    "all_reduces": [1, 32],
    "seconds": 12.3,
}
TOO_LARGE = {
    "error": "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory "
    "on HBM, the total memory required (20G) exceeds available HBM (15G).\nSee",
    "is_out_of_memory": True,
    "seconds": 4.5,
}


@pytest.fixture
def environment(tmp_path):
    """A function that makes an environment whose compiler says what it is told.

    Its arguments are the answers to a description and to a compilation.
    """

    def make(described=None, compiled=None):
        described = described or {
            "device": "TPU v3",
            "num_cores": 4,
            "available_bytes": 15 * GIB,
        }
        (tmp_path / "described").write_text(json.dumps(described))
        (tmp_path / "compiled").write_text(json.dumps(compiled))
        python = tmp_path / "python"
        python.write_text(
            f"#!/bin/sh\ncd {shlex.quote(str(tmp_path))}\n"
            'case "$*" in *num_replicas*) cat compiled;; *) cat described;; '
            "esac\n"
        )
        python.chmod(0o755)
        place = tpu_environment.find_python(str(tmp_path / "environments"))
        os.makedirs(os.path.dirname(place))
        os.symlink(python, place)
        return str(tmp_path / "environments")

    return make


def test_a_step_that_fits_is_described(tmp_path, environment, capsys):
    folder = environment(compiled=FITS)
    tpu_check.run(flags(tmp_path, train_batch_size=8, environment=folder))
    said = capsys.readouterr().out
    assert "v3:2x2: 4 cores (TPU v3), 15.00 GiB each; 4 replicas." in said
    assert "Compiling for 2 sequences a core" in said
    assert "3.00 GiB a core at the peak, 20% of 15.00 GiB" in said
    assert "1.00 GiB of it are weights" in said
    assert "2 a step, of 1, 32 tensors" in said
    assert "12 s on this machine" in said


def test_a_step_that_does_not_fit_is_refused(tmp_path, environment):
    folder = environment(compiled=TOO_LARGE)
    with pytest.raises(ValueError) as caught:
        tpu_check.run(flags(tmp_path, train_batch_size=8, environment=folder))
    assert str(caught.value).startswith(
        "2 sequences a core do not fit: Ran out of memory on HBM, the total "
        "memory required (20G) exceeds available HBM (15G). Lower"
    )


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        ({"train_batch_size": 6}, "not a multiple of the 4 replicas; use 4"),
        (
            {"train_batch_size": 8, "num_replicas": 8},
            "--num_replicas=8: v3:2x2 has only 4 cores",
        ),
        (
            {"find_batch": True, "gradient_accumulation_steps": 3},
            "--batch_multiple=8 must be a multiple of",
        ),
    ],
)
def test_what_cannot_be_divided_is_refused(tmp_path, environment, kwargs, says):
    with pytest.raises(ValueError, match=says):
        tpu_check.run(flags(tmp_path, environment=environment(), **kwargs))


def test_an_unknown_topology_is_refused(tmp_path, environment):
    folder = environment(described={"error": "no such chip."})
    with pytest.raises(ValueError, match="v9:1: no such chip. Wanted.*v3:2x2"):
        tpu_check.run(
            flags(
                tmp_path,
                topology="v9:1",
                train_batch_size=8,
                environment=folder,
            )
        )


def test_other_errors_of_the_compiler_are_passed_on(tmp_path, environment):
    refusal = {"error": "no such op", "is_out_of_memory": False}
    python = tpu_environment.find_python(environment(compiled=refusal))
    compiler = tpu_environment.Compiler(python, "v3:2x2")
    with pytest.raises(ValueError, match="compiler refused: no such op"):
        compiler.compile(b"", 4)
    with open(python, "w") as file:
        file.write("#!/bin/sh\necho 'Segmentation fault' >&2\nexit 7\n")
    with pytest.raises(ValueError, match="status 7: Segmentation fault"):
        compiler.compile(b"", 4)


def test_without_packages_nothing_is_left(tmp_path, monkeypatch, capsys):
    # As without a network: pip finds no package.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ValueError, match="jax==.*Is there a connection"):
        tpu_environment.prepare(str(tmp_path))
    said = capsys.readouterr().out
    assert "Installing jax==" in said and str(tmp_path) in said
    assert not list(tmp_path.iterdir())


def test_an_old_python_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tpu_environment, "OLDEST_PYTHON", (9, 9))
    with pytest.raises(ValueError, match="needs Python 9.9 or newer; this is"):
        tpu_environment.prepare(str(tmp_path))


@pytest.mark.parametrize("multiple", [1, 8])
@pytest.mark.parametrize("limit", [0, 1, 7, 16, 45, 1000])
@pytest.mark.parametrize("bend", [0, 0.3])
@pytest.mark.parametrize("is_needed_known", [True, False])
def test_the_largest_batch_is_found(multiple, limit, bend, is_needed_known):
    """`limit` multiples fit; memory bends below the line between two sizes."""
    available = 1000.0 * GIB
    compiled = []

    def compile_at(size):
        compiled.append(size)
        part = 0.01 + 0.99 * size / multiple / (limit + 0.5)
        needed = available * (part - bend * part * (1 - part))
        if needed <= available:
            return {"peak_bytes": needed}
        known = {"needed_bytes": needed} if is_needed_known else {}
        return {"error": "too large", **known}

    tried = tpu_check.find_largest(compile_at, multiple, available)
    assert tpu_check.largest_fitting(tried) == limit * multiple
    assert (limit + 1) * multiple in tried
    assert len(compiled) == len({*compiled})
    if is_needed_known:
        assert len(compiled) <= (7 if bend else 5)
    assert len(compiled) <= 16
    assert all(size > 0 and size % multiple == 0 for size in compiled)
    # What is known is not compiled again.
    compiled.clear()
    tpu_check.find_largest(compile_at, multiple, available, tried)
    assert not compiled


def test_a_search_says_what_it_tried(tmp_path, environment, capsys):
    folder = environment(compiled=TOO_LARGE)
    with pytest.raises(ValueError, match="Not even 8 sequences a core fit"):
        tpu_check.run(flags(tmp_path, find_batch=True, environment=folder))
    said = capsys.readouterr().out
    assert "512 a core (4 s): Ran out of memory" in said
    assert "\n8 a core (4 s): Ran out of memory" in said


def test_the_compiler_is_a_script_of_its_own():
    names = set()
    tree = ast.parse(tpu_environment.SCRIPT.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module)
    roots = {name.split(".")[0] for name in names}
    assert "jax" in roots and "albert_tf" not in roots
    package = tpu_environment.SCRIPT.parent.parent
    for path in package.rglob("*.py"):
        assert not re.search(
            r"import.*\btpu_compiler\b", path.read_text(encoding="utf-8")
        ), path


FOLDER = filesystem.cache_folder()


@pytest.mark.skipif(
    not os.path.exists(tpu_environment.find_python(FOLDER)),
    reason="needs the TPU compiler: run `albert tpu_check` once",
)
@pytest.mark.parametrize("topology", ["v3:2x2", "v6e:2x2"])
def test_a_real_compiler_takes_the_step(tmp_path, capsys, topology):
    tpu_check.run(
        flags(tmp_path, topology=topology, train_batch_size=8, remat=True)
    )
    said = capsys.readouterr().out
    assert re.search(r"0\.\d\d GiB a core at the peak, 0% of [13]\d\.", said)
    assert ("2 a step, of 1, 32 tensors" in said) == (topology == "v3:2x2")
