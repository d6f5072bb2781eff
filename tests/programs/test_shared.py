import builtins

import pytest
import tensorflow as tf

from albert_tf.programs import shared


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ModuleNotFoundError("No module named 'tensorflow_text'"),
            r"--x needs tensorflow-text \(No module.*: pip install",
        ),
        (
            tf.errors.NotFoundError(
                None, None, "_sentencepiece.so: undefined symbol: _ZN4absl"
            ),
            r"fits TensorFlow 2.* \(_sentencepiece.so: undefined symbol: "
            r"_ZN4absl\): pip install 'tensorflow-text==2.\d+\.\*'",
        ),
    ],
)
def test_a_missing_or_wrong_tensorflow_text_is_explained(
    error, message, monkeypatch
):
    original = builtins.__import__

    def failing(name, *args):
        if "text_serving" in (args[2] or ()):  # Names to import from it.
            raise error
        return original(name, *args)

    monkeypatch.setattr(builtins, "__import__", failing)
    with pytest.raises(ImportError, match=message):
        shared.import_text_serving("--x")
