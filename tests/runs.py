"""Stops runs, and compares the folders of two."""

import dataclasses
import pathlib
import re
from unittest import mock

import numpy as np
import pytest

from albert_tf.training import evaluation
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


def stop_at(step, run, args):
    """Calls run(args), as if it was interrupted before it evaluates a step."""
    original = evaluation.Evaluator.evaluate

    def stop(evaluator, number, prefix=None):
        if number == step:
            raise KeyboardInterrupt
        return original(evaluator, number, prefix)

    with (
        mock.patch.object(evaluation.Evaluator, "evaluate", stop),
        pytest.raises(KeyboardInterrupt),
    ):
        run(args)


def check_resumes(run, args, folder):
    """Asserts that a run that stops, and goes on in `folder`, is the same.

    Returns the flags of six steps that were trained in `folder`.
    """
    args = dataclasses.replace(
        args, train_step=6, save_checkpoints_steps=2, do_predict=False
    )
    run(args)
    again = dataclasses.replace(args, output_dir=str(folder))
    stop_at(4, run, again)
    run(again)
    check_equal(folder, args.output_dir)
    return again


def check_two_copies(run, args, *names, model=None):
    """Asserts that an ensemble of two copies of a model answers as one does.

    That is the model of the finished run, unless it only scored a `model`;
    `names` are those of the files of its predictions. Numbers may differ in the
    fifth digit.
    """
    out = pathlib.Path(args.output_dir)
    model = model or out
    together = out.with_name("together")
    args = dataclasses.replace(
        args,
        init_checkpoint=None,
        ensemble=f"{model},{model}",
        output_dir=str(together),
        do_train=False,
    )
    run(args)
    for name in (*names, "dev_predictions.jsonl"):
        one, other = (
            [_round(line) for line in (folder / name).read_text().splitlines()]
            for folder in (out, together)
        )
        assert one == other, name


def _round(line):
    """Returns a line without its step, with numbers of four digits."""
    line = re.sub(r'"step": \d+', "", line)
    number = r"-?\d+\.\d+(e-?\d+)?"
    return re.sub(number, lambda found: f"{float(found[0]):.4g}", line)
