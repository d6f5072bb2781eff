"""Times one short request: our encoder and SavedModel against transformers.

  pip install -e '.[peers]'
  python -m benchmarks.one_request

The models are ALBERT-base with random weights; the batch is one sequence
without padding. `SavedModel` is what `run_classifier.py --export_dir` writes,
which also validates its input and has a head. It is loaded once for all
lengths, and its first request has 512 tokens. `AlbertEncoder` is
traced with constant kernels for each length, `AlbertEncoder as it is` without.
The candidates take turns as in `benchmarks.encoder`, whose flags apply here.
"""

import os
import tempfile

import numpy as np
import tensorflow as tf
from absl import app, flags

from albert_tf.export import serving
from albert_tf.model import execution, heads, layers, modeling
from benchmarks import encoder

FLAGS = flags.FLAGS
LENGTHS = (16, 32, 128)


def build_encoder(ids, dtype, is_constant):
    """Returns a function that runs the encoder once."""
    model = modeling.AlbertEncoder(encoder.CONFIG, dtype=layers.POLICIES[dtype])
    function = tf.function(lambda *args: model(*args)["pooled_output"])
    args = ids, tf.ones_like(ids), tf.zeros_like(ids)
    if is_constant:
        with execution.using(execution.Execution(constant_kernels=True)):
            function = function.get_concrete_function(*args)
    return lambda: function(*args).numpy()


def export_classifier(config, dtype="float32"):
    """Exports a classifier and returns the loaded SavedModel."""
    model = heads.AlbertClassifier(
        config, num_labels=2, dtype=layers.POLICIES[dtype]
    )
    with tempfile.TemporaryDirectory() as folder:
        path = serving.export_classifier(folder, model, max_seq_length=512)
        return tf.saved_model.load(path)


def build_saved_model(loaded, ids):
    """Returns a function that runs an exported classifier once."""
    inputs = {
        "input_ids": ids,
        "input_mask": tf.ones_like(ids),
        "segment_ids": tf.zeros_like(ids),
    }
    # Look the signature up at each call: it alone does not keep `loaded` alive.
    return lambda: loaded.signatures["ids"](**inputs)["logits"].numpy()


def build_candidates(loaded, num_tokens, dtype):
    """Returns a dict from each candidate's name to its function."""
    rng = np.random.default_rng(0)
    shape = (1, num_tokens)
    ids = rng.integers(5, encoder.CONFIG.vocab_size, shape)
    ids = tf.constant(ids, tf.int32)
    runs = {
        "transformers": lambda: encoder.build_transformers(
            "inference", ids, dtype
        ),
        "AlbertEncoder as it is": lambda: build_encoder(ids, dtype, False),
        "AlbertEncoder": lambda: build_encoder(ids, dtype, True),
        "SavedModel": lambda: build_saved_model(loaded, ids),
    }
    return {
        name: build()
        for name, build in runs.items()
        if FLAGS.peers or name != "transformers"
    }


def main(_):
    """Prints a table with a row per candidate, length and dtype."""
    load = os.getloadavg()[0]
    print(f"Load average before: {load:.2f}. {FLAGS.rounds} rounds.\n")
    print("| request | candidate | ms | speedup over transformers |")
    print("|---|---|---|---|")
    for dtype in ("float32", "bfloat16"):
        loaded = export_classifier(encoder.CONFIG, dtype)
        build_saved_model(loaded, tf.ones([1, 512], tf.int32))()
        for num_tokens in LENGTHS:
            request = f"B1 T{num_tokens} {dtype}"
            if not all(word in request for word in FLAGS.only):
                continue
            seconds = encoder.take_turns(
                build_candidates(loaded, num_tokens, dtype)
            )
            theirs = seconds.get("transformers", float("nan"))
            for name, s in seconds.items():
                print(
                    f"| {request} | {name} | {1000 * s:.1f} | "
                    f"{theirs / s:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    app.run(main)
