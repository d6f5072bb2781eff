"""Pretraining records of random pieces and their sidecars, for tests."""

import numpy as np

from albert_tf.data.pretraining import records, sidecars

VOCAB_SIZE = 31  # As in `tiny.SIZES`.
NUM_TOKENS, NUM_PREDICTIONS = 9, 3


def make_features(num_rows, *, num_tokens=NUM_TOKENS, seed=0):
    """Returns the features of static records."""
    rng = np.random.default_rng(seed)
    shape, labels = (num_rows, num_tokens), (num_rows, NUM_PREDICTIONS)
    return {
        "input_ids": rng.integers(5, VOCAB_SIZE, shape),
        "input_mask": np.ones(shape, int),
        "segment_ids": rng.integers(0, 2, shape),
        "token_boundary": np.ones(shape, int),
        "masked_lm_positions": rng.integers(1, 8, labels),
        "masked_lm_ids": rng.integers(5, VOCAB_SIZE, labels),
        "masked_lm_weights": np.ones(labels, np.float32),
        "next_sentence_labels": rng.integers(0, 2, (num_rows, 1)),
    }


def write_records(path, features):
    """Writes records without a sidecar; returns the name of the file."""
    records.write_records(str(path), records.encode_examples(features))
    return str(path)


def write(path, num_rows, *, seed=0, features=None, **sidecar):
    """Writes records and their sidecar; returns the name of the file.

    Args:
      path: a pathlib.Path.
      num_rows: the number of records.
      seed: seed of the features.
      features: the features to write instead of random ones.
      **sidecar: values that replace those of the sidecar.
    """
    file = write_records(path, features or make_features(num_rows, seed=seed))
    description = {
        "format": sidecars.FORMAT,
        "max_seq_length": NUM_TOKENS,
        "max_predictions_per_seq": NUM_PREDICTIONS,
        "num_predictions": NUM_PREDICTIONS,
        "sentence_objective": "sop",
        "tokenizer": {"kind": "wordpiece", "vocab_size": VOCAB_SIZE},
        "masking": sidecars.STATIC,
        "flags": {},
        "files": [path.name],
        "num_records": [num_rows],
        "num_bytes": [path.stat().st_size],
        "statistics": {"sequences": num_rows},
    }
    sidecars.write_sidecar(sidecars.sidecar_path(file), description | sidecar)
    return file
