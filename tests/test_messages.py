"""Messages: arguments for Python, flags for the command line."""

import logging
import re
import types

import pytest
from absl import logging as absl_logging

from albert_tf import errors, messages
from albert_tf.data import batches
from albert_tf.training import distribution, workers

FLAGS = {"max_seq_length": "max_seq_length", "seed": "seed", "from_": "from"}
FLAGS |= {"remat": "remat"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("max_seq_length=512 exceeds 64", "--max_seq_length=512 exceeds 64"),
        ("Lower max_seq_length.", "Lower --max_seq_length."),
        ("Lower --max_seq_length.", "Lower --max_seq_length."),
        ("Set remat=True, or not.", "Set --remat, or not."),
        ("remat=False needs more", "--remat=False needs more"),
        ("`seed`, and `max`: a seed", "--seed, and `max`: a seed"),
        ("seed=7 of the seed", "--seed=7 of the seed"),
        ("from_ is missing", "--from is missing"),
        ("max_query_length=3", "max_query_length=3"),
        ("/data/max_seq_length/x", "/data/max_seq_length/x"),
        ("max_seq_length.json", "max_seq_length.json"),
        ('the key "max_seq_length"', 'the key "max_seq_length"'),
        ("/runs/seed=3/a", "/runs/seed=3/a"),
        ("if seed==3", "if seed==3"),
    ],
)
def test_arguments_are_shown_as_flags_while_a_program_runs(text, shown):
    with messages.showing(FLAGS):
        assert messages.show(text) == shown
    assert messages.show(text) == text


def test_lines_of_the_log_show_flags():
    handler = absl_logging.get_absl_handler()
    parts = ("absl", logging.WARNING, "file", 1, "%s is %d%% off")
    record = logging.LogRecord(*parts, ("max_seq_length", 3), None)
    with messages.showing(FLAGS):
        assert handler.filter(record)
    assert record.getMessage() == "--max_seq_length is 3% off"
    record = logging.LogRecord(*parts, ("max_seq_length", 3), None)
    handler.filter(record)
    assert record.getMessage() == "max_seq_length is 3% off"


def refuse_a_batch():
    strategy = types.SimpleNamespace(num_replicas_in_sync=2)
    distribution.check_batch_size(strategy, 8, "train_batch_size", 3)


def raise_memory_error():
    raise MemoryError("68 GiB")


@pytest.mark.parametrize(
    ("function", "in_python", "in_a_program"),
    [
        (
            refuse_a_batch,
            "train_batch_size=8 .* gradient_accumulation_steps=3;",
            "--train_batch_size=8 .* --gradient_accumulation_steps=3;",
        ),
        (
            lambda: batches.parse_bucket_lengths("x", 9),
            "^bucket_lengths='x': wanted",
            "^--bucket_lengths='x': wanted",
        ),
        (
            lambda: workers.read_cluster(None),
            "^distribution=multi_worker needs",
            "^--distribution=multi_worker needs",
        ),
        (raise_memory_error, "as does remat=True,", "as does --remat,"),
    ],
)
def test_a_message_suits_python_and_a_program(
    function, in_python, in_a_program
):
    with pytest.raises((ValueError, MemoryError)) as caught:
        function()
    message = errors.explain(caught.value)
    assert re.search(in_python, message) and "--" not in message
    names = ("train_batch_size", "gradient_accumulation_steps", "remat")
    names += ("distribution", "bucket_lengths")
    with messages.showing({name: name for name in names}):
        assert re.search(in_a_program, messages.show(message))
