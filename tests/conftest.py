"""Set-up that every test relies on."""

import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest
import tensorflow as tf

ROOT = pathlib.Path(__file__).resolve().parent.parent
NUM_LOGICAL_CPUS = 2

# Replicas for the tests of tf.distribute. TensorFlow refuses to change this
# once it has run its first operation.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * NUM_LOGICAL_CPUS,
)


@pytest.fixture(scope="session")
def shared():
    """Folder with the release's recorded numbers, outside the repository."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip(f"needs {folder}, which is not part of the repository")
    return folder


@pytest.fixture(scope="session")
def golden():
    """Finds recorded numbers of the release: all of them, or our few."""
    roots = ROOT.parent / "shared" / "golden" / "dev", ROOT / "tests/golden"

    def find(name):
        for root in roots:
            if (root / name).exists():
                return root / name
        pytest.skip(f"needs {roots[0] / name}, not part of the repository")

    return find
