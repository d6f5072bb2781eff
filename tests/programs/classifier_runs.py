"""Shared by tests: runs of run_classifier on data in SST-2's format."""

import dataclasses
import json

import numpy as np

from albert_tf.commands.run_classifier import ClassifierFlags
from albert_tf.training import results_file
from albert_tf.weights import checkpoints
from tests import tiny

DEV_FILE = "dev_predictions.jsonl"


def make_rows(num_rows, seed):
    """Texts of 1 to 15 words, and whether "w1" is among them."""
    rng = np.random.default_rng(seed)
    texts = [
        " ".join(rng.choice(tiny.WORDS, rng.integers(1, 16)))
        for _ in range(num_rows)
    ]
    return [(text, int("w1" in text.split())) for text in texts]


def write_table(path, rows, header="sentence\tlabel"):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [header, *(f"{first}\t{second}" for first, second in rows)]
    path.write_text("\n".join(lines) + "\n")


def build_args(folder, model):
    """Returns the flags of a run of twelve steps, and writes its data."""
    data = folder / "data" / "SST-2"
    write_table(data / "train.tsv", make_rows(60, seed=1))
    write_table(data / "dev.tsv", make_rows(21, seed=2))
    # The server's index, of some rows in another order.
    rows = [
        (str(80 - 7 * i), text)
        for i, (text, _) in enumerate(make_rows(9, seed=3))
    ]
    write_table(data / "test.tsv", rows, "index\tsentence")
    return ClassifierFlags(
        task_name="sst-2",
        data_dir=str(folder / "data"),
        output_dir=str(folder / "out"),
        init_checkpoint=str(model),
        do_train=True,
        do_eval=True,
        do_predict=True,
        train_batch_size=8,
        eval_batch_size=8,
        predict_batch_size=8,
        learning_rate=1e-3,
        train_step=12,
        warmup_step=2,
        save_checkpoints_steps=4,
        log_every_steps=4,
        max_seq_length=16,
        bucket_lengths="",
    )


def read_lines(path):
    return path.read_text().splitlines()


def results_of(folder):
    blocks = (
        (folder / "eval_results.txt").read_text().split(results_file.HEADER)
    )
    return [dict(x.split(" = ") for x in b.splitlines()) for b in blocks[1:]]


def weights_of(folder):
    values = checkpoints.read_checkpoint(folder / "model.ckpt-12")
    slots = checkpoints.find_slots(values)
    return {n: v for n, v in values.items() if n not in slots}


def with_config(args, tmp_path, **kwargs):
    """Returns the flags of a task of one's own, and writes its file."""
    path = tmp_path / "task.json"
    path.write_text(
        json.dumps(
            {
                "name": "mine",
                "train": "train.csv",
                "test": "test.csv",
                "format": "csv",
                "text": ["first", "second"],
                "label": "label",
                **kwargs,
            }
        )
    )
    return dataclasses.replace(args, task_name=None, task_config=str(path))
