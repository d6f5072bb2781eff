"""Times one request: LiteRT against SavedModel and transformers.

  pip install -e '.[peers]'
  python -m benchmarks.devices

`programs.convert_to_litert` converts a SavedModel like those of
`run_classifier.py --export_dir`, with random weights. `float16` and `int8` are
the storage types of the weights; int8 also quantizes activations dynamically.
All candidates use one thread per core and otherwise compute in float32. They
take turns as in `benchmarks.encoder`, whose flags apply here.
"""

import os

import numpy as np
import tensorflow as tf
from absl import app, flags

from albert_tf.model.config import AlbertConfig
from albert_tf.programs import convert_to_litert
from benchmarks import encoder, one_request

FLAGS = flags.FLAGS
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODELS = ("v2/base", "small")
LENGTHS = (32, 128)
WEIGHTS = ("float32", "float16", "int8")


def build_litert(loaded, num_tokens, weights):
    """Returns a function that runs the converted model, and its size in MB."""
    signature = loaded.signatures["ids"]
    shape = (1, num_tokens)
    content = convert_to_litert.convert(loaded, signature, shape, weights)
    interpreter = tf.lite.Interpreter(
        model_content=content, num_threads=os.cpu_count()
    )
    runner = interpreter.get_signature_runner()
    inputs = {
        "input_ids": np.full(shape, 7, np.int32),
        "input_mask": np.ones(shape, np.int32),
        "segment_ids": np.zeros(shape, np.int32),
    }
    return lambda: runner(**inputs)["logits"], len(content) / 1e6


def main(_):
    """Prints a table with a row per model, length and candidate."""
    print(f"Load average before: {os.getloadavg()[0]:.2f}.\n")
    print("| request | candidate | MB | ms | time relative to SavedModel |")
    print("|---|---|---|---|---|")
    for name in MODELS:
        config = AlbertConfig.from_json_file(
            f"{ROOT}/configs/model/{name}.json"
        )
        loaded = one_request.export_classifier(config)
        for num_tokens in LENGTHS:
            ids = tf.fill([1, num_tokens], 7)
            runs = {"SavedModel": one_request.build_saved_model(loaded, ids)}
            sizes = {}
            for weights in WEIGHTS:
                key = f"LiteRT, {weights}"
                runs[key], sizes[key] = build_litert(
                    loaded, num_tokens, weights
                )
            if FLAGS.peers and name == "v2/base":
                runs["transformers"] = encoder.build_transformers(
                    "inference", ids, "float32"
                )
            seconds = encoder.take_turns(runs)
            for key, s in seconds.items():
                size = f"{sizes[key]:.1f}" if key in sizes else ""
                print(
                    f"| {name} B1 T{num_tokens} | {key} | {size} | "
                    f"{1000 * s:.1f} | {s / seconds['SavedModel']:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    app.run(main)
