"""Converts an exported SavedModel to LiteRT (TensorFlow Lite)."""

import bisect
import os
import tempfile
import warnings

import numpy as np
import tensorflow as tf

from albert_tf import filesystem
from albert_tf.export import saved_models
from albert_tf.model import span_heads
from albert_tf.model.config import CONFIG_FILE
from albert_tf.weights import saved_weights

# Largest allowed difference of outputs, by the type of stored weights; those of
# trained models are below it.
TOLERANCES = {"float32": 1e-4, "float16": 2e-2, "int8": 1.0}


def run(args):
    """Converts a SavedModel, compares the outputs, and writes the result."""
    path = saved_models.newest_version(args.saved_model)
    filesystem.check_folders_apart(
        {"--output": args.output}, {"--saved_model": path}
    )
    filesystem.check_can_be_written(args.output)
    loaded = saved_models.load_saved_model(path)
    signature = choose_signature(loaded.signatures, args.signature, path)
    *num_ids, usual = count_ids(path, loaded)
    length = args.seq_length or find_length(signature, usual, num_ids)
    shape = args.batch_size, length
    features = make_features(signature, shape, *num_ids)
    # First, because it explains which limit a long sequence exceeds.
    wanted = signature(**{n: tf.constant(x) for n, x in features.items()})
    content = convert(loaded, signature, shape, args.weights)
    differences = compare(content, features, wanted)
    # max() could ignore NaN.
    tolerance = TOLERANCES[args.weights]
    if not all(value <= tolerance for value in differences.values()):
        raise ValueError(
            f"The outputs of the converted model differ by {differences} from "
            f"those of {path}; wanted at most {tolerance}. Nothing was written."
        )
    filesystem.write_file(args.output, content)
    print(
        f"{args.output}: {len(content) / 1e6:.1f} MB, sequences of "
        f"{length} tokens; differs by at most "
        f"{', '.join(f'{v:.2g} ({n})' for n, v in differences.items())}"
    )


def choose_signature(signatures, name, path):
    """Returns the signature of a name, or the usual one, that takes ids."""
    names = [name] if name else ["ids", "serving_default"]
    for known in names:
        if known in signatures:
            inputs = signatures[known].structured_input_signature[1]
            if "num_layers" in signatures[known].structured_outputs:
                raise ValueError(
                    f"{path} answers after as few layers as a text needs, for "
                    "which the shapes of LiteRT would have to change. Export "
                    "it with --exit_threshold=0."
                )
            if {spec.dtype for spec in inputs.values()} == {tf.int32}:
                return signatures[known]
    raise ValueError(
        f"{path} has no signature {' or '.join(names)} that takes only ids; it "
        f"has {sorted(signatures)}. Of a fine-tuned model, give the export of "
        "--export_dir, not of --export_text_dir."
    )


def convert(loaded, signature, shape, weights):
    """Converts a signature of a SavedModel to the bytes of a .tflite file.

    All inputs have the fixed shape (B, T). Weights are stored as --weights.
    """
    inputs = signature.structured_input_signature[1]
    specs = {
        n: tf.TensorSpec(shape, s.dtype, name=n) for n, s in inputs.items()
    }
    call = tf.function(lambda **features: signature(**features))
    root = saved_models.Root()
    root.loaded = loaded
    with tempfile.TemporaryDirectory() as folder, saved_models.quietly():
        # The intermediate SavedModel fixes shapes and preserves input names.
        tf.saved_model.save(root, folder, call.get_concrete_function(**specs))
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        if weights != "float32":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if weights == "float16":
            converter.target_spec.supported_types = [tf.float16]
        try:
            return converter.convert()
        except Exception as error:
            # It is not public.
            if type(error).__name__ != "ConverterError":
                raise
            raise ValueError(
                "The SavedModel has operations that LiteRT lacks; the lines "
                "above name them. Is it in bfloat16? Export it with "
                "--compute_dtype=float32."
            ) from error


def count_ids(path, loaded):
    """Returns the numbers of ids, segments and tokens for the test request."""
    weights = getattr(loaded, saved_weights.WEIGHTS, {})
    # A compact SavedModel has no embeddings among its weights.
    file = os.path.join(path, "assets", CONFIG_FILE)
    config = filesystem.read_json(file) if filesystem.exists(file) else {}
    sizes = []
    for name, key, usual in (
        ("word", "vocab_size", 1000),
        ("token_type", "type_vocab_size", 2),
        ("position", "max_position_embeddings", 128),
    ):
        table = weights.get(f"bert/embeddings/{name}_embeddings")
        size = config.get(key, usual) if table is None else table.shape[0]
        sizes.append(min(usual, size))
    return sizes


def find_length(signature, usual, num_ids):
    """Returns the length of an export, or `usual` if that is less.

    An export refuses longer sequences.
    """

    def is_refused(length):
        features = make_features(signature, (1, length), *num_ids)
        try:
            signature(**{n: tf.constant(x) for n, x in features.items()})
        except tf.errors.InvalidArgumentError:
            return True
        return False

    # If each is refused, not for its length: `run` shows the error of `usual`.
    lengths = range(1, usual + 1)
    return bisect.bisect_left(lengths, True, key=is_refused) or usual


def make_features(signature, shape, num_ids=1000, num_segments=2):
    """Returns the inputs of a request with random ids, by name."""
    rng = np.random.default_rng(1)
    mask = np.ones(shape, np.int32)
    mask[:, -(shape[1] // 4) or shape[1] :] = 0
    # SQuAD's answers are in segment 1; without it, all logits are masked.
    segments = np.zeros(shape, np.int32)
    segments[:, shape[1] // 4 :] = num_segments - 1
    features = {}
    for name in signature.structured_input_signature[1]:
        if "positions" in name or not ("mask" in name or "ids" in name):
            features[name] = np.zeros(shape, np.int32)
        elif "mask" in name:
            features[name] = mask
        elif "type" in name or "segment" in name:
            features[name] = segments
        else:
            features[name] = rng.integers(0, num_ids, shape).astype(np.int32)
    return features


def compare(content, features, wanted):
    """Returns a dict from output to its largest absolute difference."""
    outputs = run_interpreter(content, features)
    return {
        name: _difference(outputs[name], value.numpy())
        for name, value in wanted.items()
        if value.dtype.is_floating
    }


def _difference(actual, wanted):
    # Masked logits may be any large negative number: float16 has no -1e30.
    is_masked = wanted <= span_heads.MASKED_LOGIT / 2
    return float(np.abs(np.where(is_masked, 0, actual - wanted)).max())


def run_interpreter(content, features):
    """Returns the outputs of a .tflite file for a dict of inputs."""
    with warnings.catch_warnings():
        # Deprecated in favour of a separate package with the same interface.
        warnings.simplefilter("ignore")
        interpreter = tf.lite.Interpreter(model_content=content)
    return interpreter.get_signature_runner()(**features)
