"""Keras computes with TensorFlow, whatever its own settings say."""

import json
import os
import platform
import subprocess
import sys

import numpy as np
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


@pytest.mark.nightly  # tests/test_bad_inputs.py has a program with it.
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


@pytest.mark.skipif(platform.machine() != "x86_64", reason="TensorFlow's own")
@pytest.mark.parametrize(
    ("value", "is_used"),
    [(None, True), pytest.param("0", False, marks=pytest.mark.nightly)],
)
def test_onednn_is_used_on_any_x86_cpu_unless_forbidden(
    tmp_path, value, is_used
):
    code = (
        "import albert_tf\n"
        "from tensorflow.python.framework import test_util\n"
        "print(test_util.IsMklEnabled())\n"
    )
    done = run(code, tmp_path, TF_ENABLE_ONEDNN_OPTS=value)
    assert done.stdout == f"{is_used}\n"


def test_importing_the_package_imports_nothing_heavy(tmp_path):
    code = "import sys, albert_tf; print({'keras', 'numpy'} & {*sys.modules})"
    assert run(code, tmp_path).stdout == "set()\n"


@pytest.fixture(scope="module")
def two_encoders(tmp_path_factory):
    """A trained Keras model with two encoders, saved, and its outputs."""
    import keras

    import albert_tf
    from tests import tiny

    config = albert_tf.AlbertConfig(**tiny.SIZES | {"num_hidden_layers": 1})
    inputs = [keras.Input([7], dtype="int32") for _ in range(2)]
    vectors = [
        albert_tf.AlbertEncoder(config)(ids)["pooled_output"] for ids in inputs
    ]
    outputs = keras.layers.Dense(1)(keras.layers.Concatenate()(vectors))
    model = keras.Model(inputs, outputs)
    model.compile("adam", "mse", run_eagerly=True)
    ids = np.full([2, 7], 5, np.int32)
    model.fit([ids, ids], np.ones([2, 1]), verbose=0)
    path = tmp_path_factory.mktemp("two") / "model.keras"
    model.save(path)
    return path, model([ids, ids]).numpy().tolist()


@pytest.mark.parametrize(
    "modules",
    [
        pytest.param("albert_tf, keras", marks=pytest.mark.nightly),
        "keras, albert_tf",
    ],
)
def test_a_new_process_loads_a_model_of_two_encoders(
    two_encoders, tmp_path, modules
):
    path, wanted = two_encoders
    code = (
        f"import {modules}\nimport numpy as np\n"
        f"model = keras.models.load_model({str(path)!r})\n"
        "ids = np.full([2, 7], 5, np.int32)\n"
        "print(model([ids, ids]).numpy().tolist())\n"
    )
    done = run(code, tmp_path, KERAS_BACKEND="tensorflow")
    found = json.loads(done.stdout.splitlines()[-1])
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_layers_are_known_after_a_search_for_keras(tmp_path):
    code = (
        "import importlib.util, albert_tf\n"
        "found = [importlib.util.find_spec('keras') for _ in range(2)]\n"
        "assert all(found)\n"
        "import keras\n"
        "known = keras.saving.get_custom_objects()\n"
        "print('albert_tf>AlbertEncoder' in known)\n"
    )
    done = run(code, tmp_path, KERAS_BACKEND="tensorflow")
    assert done.stdout.splitlines()[-1] == "True"
