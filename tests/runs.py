"""Compares the folders of two runs."""

import pathlib

import numpy as np

from albert_tf.weights import checkpoints


def check_equal(folder, other):
    """Asserts equal checkpoints, scores and manifests, bit for bit."""
    folder, other = pathlib.Path(folder), pathlib.Path(other)
    stems = [path.stem for path in other.glob("model.ckpt-*.index")]
    assert stems
    for stem in stems:
        ours, theirs = (
            checkpoints.read_checkpoint(path / stem) for path in (folder, other)
        )
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            np.testing.assert_array_equal(ours[name], value, err_msg=name)
    for name in ("eval_results.txt", "run.json"):
        assert (folder / name).read_text() == (other / name).read_text()
