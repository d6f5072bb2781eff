"""Objects built from flags."""

import builtins
import dataclasses

import pytest
import tensorflow as tf

from albert_tf.commands.run_pretraining import PretrainingFlags
from albert_tf.programs import shared
from tests import cluster


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ModuleNotFoundError("No module named 'tensorflow_text'"),
            r"--x needs tensorflow-text \(No module.*: pip install --no-deps "
            r"'tensorflow-text==2.\d+\.\*'",
        ),
        (
            tf.errors.NotFoundError(
                None, None, "_sentencepiece.so: undefined symbol: _ZN4absl"
            ),
            r"fits TensorFlow 2.* \(_sentencepiece.so: undefined symbol: "
            r"_ZN4absl\): pip install --no-deps 'tensorflow-text==2.\d+\.\*'",
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


@pytest.mark.parametrize(
    ("hosts", "distribution", "is_refused"),
    [
        (2, "auto", True),
        (2, "mirrored", True),
        (2, "tpu", False),
        (2, "multi_worker", False),
        (1, "auto", False),
        (None, "auto", False),
    ],
)
def test_several_hosts_do_not_train_apart(
    hosts, distribution, is_refused, monkeypatch
):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if hosts:
        config = cluster.describe(
            worker=[f"10.0.0.{i}:1" for i in range(hosts)]
        )
        monkeypatch.setenv("TF_CONFIG", config)
    args = PretrainingFlags(
        albert_config_file="x",
        input_file="x",
        output_dir="x",
        do_train=True,
        distribution=distribution,
    )
    if not is_refused:
        return shared.check_devices(args)
    evaluation = {"do_train": False, "do_eval": True, "eval_input_file": "x"}
    shared.check_devices(dataclasses.replace(args, **evaluation))
    with pytest.raises(ValueError, match="lists 2 hosts, each of which"):
        shared.check_devices(args)
