"""Keras computes with TensorFlow, whatever its own settings say."""

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

CODE = "import albert_tf, keras; print(keras.backend.backend())"


def run(code, home, **environment):
    environment = {**os.environ, "KERAS_HOME": str(home), **environment}
    environment = {n: v for n, v in environment.items() if v is not None}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_another_backend_in_the_environment_is_ignored(tmp_path, backend):
    done = run(CODE, tmp_path, KERAS_BACKEND=backend)
    assert done.stdout == "tensorflow\n"
    assert f"KERAS_BACKEND={backend} is ignored" in done.stderr
    assert "Traceback" not in done.stderr


def test_another_backend_in_kerass_settings_is_ignored(tmp_path):
    settings = {"backend": "torch", "floatx": "float32", "epsilon": 1e-7}
    (tmp_path / "keras.json").write_text(json.dumps(settings))
    done = run(CODE, tmp_path, KERAS_BACKEND=None)
    assert done.stdout == "tensorflow\n"
    assert "is ignored" not in done.stderr


def test_keras_imported_with_another_backend_is_refused(tmp_path):
    code = (
        "import sys, types\n"
        "keras = sys.modules['keras'] = types.ModuleType('keras')\n"
        "keras.backend = types.SimpleNamespace(backend=lambda: 'torch')\n"
        "import albert_tf"
    )
    done = run(code, tmp_path)
    assert "ImportError: Keras was imported with the backend" in done.stderr


def test_importing_the_package_imports_nothing_heavy(tmp_path):
    code = "import sys, albert_tf; print({'keras', 'numpy'} & {*sys.modules})"
    assert run(code, tmp_path).stdout == "set()\n"
