"""The samples that the repository carries of the release's recordings."""

import gzip
import json

import numpy as np
import pytest

from albert_tf.weights import checkpoints
from tests import recorded
from tests.conftest import CARRIED, SHARED


def test_a_sample_always_has_the_same_positions(tmp_path):
    rng = np.random.default_rng(0)
    shapes = {"a": (7, 31), "b/c": (5,), "d": (), "e": (3, 4, 50)}
    wanted = {n: np.float32(rng.normal(size=s)) for n, s in shapes.items()}
    recorded.write_sample(tmp_path / "a.npz", wanted)
    found = recorded.read(tmp_path / "a.npz")
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        recorded.check(value, found[name], atol=0)
        num_kept = np.count_nonzero(~np.isnan(found[name]))
        assert num_kept == min(value.size, recorded.NUM_SAMPLES)
    # The positions are fixed: the samples in tests/golden depend on them.
    assert recorded.places(1600)[:4].tolist() == [22, 30, 52, 58]


def test_a_sample_detects_a_wrong_value_and_a_wrong_shape(tmp_path):
    values = np.zeros((40, 50), np.float32)
    recorded.write_sample(tmp_path / "a.npz", {"a": values})
    wanted = recorded.read(tmp_path / "a.npz")["a"]
    recorded.check(values, wanted)
    with pytest.raises(AssertionError):
        recorded.check(values.T, wanted)
    changed = values.copy()
    changed.flat[recorded.places(values.size)[5]] = 1e-3
    with pytest.raises(AssertionError):
        recorded.check(changed, wanted)


FOLDERS = ("model", "heads", "optim")


@pytest.fixture
def full(shared):
    """Folder of all recordings."""
    if shared != SHARED:
        pytest.skip(
            "needs all of the release's recorded numbers, of which "
            "tests/golden carries samples: that these are equal to them"
        )
    return SHARED / "golden/dev"


def test_the_samples_match_the_recordings(full):
    num_compared = 0
    for path in (p for f in FOLDERS for p in CARRIED.glob(f"{f}/**/*.npz")):
        wanted = recorded.read(full / path.relative_to(CARRIED))
        found = recorded.read(path)
        assert set(found) == set(wanted), path
        for name, value in wanted.items():
            recorded.check(value, found[name], atol=0, name=f"{path} {name}")
        num_compared += 1
    assert num_compared > 100


def test_the_seeded_weights_match_the_recordings(full):
    paths = [p for f in FOLDERS for p in CARRIED.glob(f"{f}/*/README.json")]
    assert len(paths) == 20
    for path in paths:
        folder = full / path.parent.relative_to(CARRIED)
        values = checkpoints.read_checkpoint(folder / "model.ckpt-best")
        described = json.loads(path.read_text())
        assert values.pop("global_step") == described["global_step"]
        weights = recorded.random_weights(described)
        assert set(weights) == set(values)
        for name, value in values.items():
            np.testing.assert_array_equal(weights[name], value, err_msg=name)


def test_third_party_files_are_unchanged(full):
    for path in (CARRIED / "token").glob("*.jsonl.gz"):
        ours, theirs = (
            gzip.decompress(p.read_bytes()).splitlines()
            for p in (path, full / "token" / path.name)
        )
        assert len(ours) == 219
        assert ours == theirs[:219]
    names = ["data/albert_en/30k-clean.model", "data/zh/vocab.txt"]
    for name in names:
        assert (CARRIED / name).read_bytes() == (SHARED / name).read_bytes()
    for name in ("spm2k.model", "vocab.txt", "vocab_quirks.txt"):
        ours = (CARRIED / "token" / name).read_bytes()
        assert ours == (full / "token" / name).read_bytes()
    for name in ("spec/original_flags.json", "data/zh/albert_config_base.json"):
        ours, theirs = (
            json.loads((folder / name).read_text())
            for folder in (CARRIED, SHARED)
        )
        assert ours == theirs
