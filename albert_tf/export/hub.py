"""TF Hub formats: exports reusable encoders, and wraps them as Keras layers.

Shapes: B batch, T tokens, E embedding_size, H hidden_size, P masked positions,
V vocab_size.
"""

import keras
import tensorflow as tf

from albert_tf.export import requests, saved_models
from albert_tf.model import heads, modeling

# TF Hub's names of the inputs -> the release's.
INPUTS = {
    "input_word_ids": "input_ids",
    "input_mask": "input_mask",
    "input_type_ids": "segment_ids",
}


def export_encoder(path, model, *, tokenizer, assets):
    """Exports an encoder as a reusable SavedModel in TF Hub's format.

    The loaded object is called with a dict of `input_word_ids`, `input_mask`
    and `input_type_ids`, [B, T] int32, for any B and any T up to the model's
    positions, and with `training`, which enables the config's dropout. It
    returns a dict:

      pooled_output, default: [B, H].
      sequence_output: [B, T, H].
      encoder_outputs: list of [B, T, H], one per layer.

    If the model has pretraining heads, the object's attribute `mlm` also takes
    `masked_lm_positions` [B, P] and also returns `mlm_logits` [B, P, V]. Both
    have `variables`, `trainable_variables` and `regularization_losses`.

    The signature `serving_default` has the same names. The others are those of
    the release's modules, which take `input_ids`, `input_mask` and
    `segment_ids`: `tokens` (sequence_output, pooled_output), `sop` (also
    sop_log_probs [B, 2]), `mlm` (also takes mlm_positions [B, P], also returns
    mlm_logits), and `tokenization_info` (vocab_file, do_lower_case).

    The folder `path` must not exist. The model is a
    `heads.AlbertForPreTraining`, or a `modeling.AlbertEncoder` if the weights
    of the heads are missing. `assets` are files to store under their own names:
    config, tokenizer settings and, last, the vocabulary.

    Source: export_to_tfhub.py; TF Hub's API of text embeddings with
    transformer encoders.
    """
    has_heads = not isinstance(model, modeling.AlbertEncoder)
    encoder = model.encoder if has_heads else model
    root = saved_models.build_root(encoder)
    root.__call__ = _build_call(encoder, INPUTS, _encode)
    plain = requests.OWN_NAMES
    signatures = {
        "serving_default": _build_signature(encoder, INPUTS, _encode),
        "tokens": _build_signature(encoder, plain, _tokens),
    }
    if has_heads:
        root.mlm = saved_models.build_root(model)
        named = INPUTS | {requests.POSITIONS: requests.POSITIONS}
        root.mlm.__call__ = _build_call(model, named, _fill)
        named = plain | {"mlm_positions": requests.POSITIONS}
        signatures |= {
            "sop": _build_signature(model, plain, _order),
            "mlm": _build_signature(model, named, _fill),
        }
    call = signatures["serving_default"]
    # For Keras's TFSMLayer.
    root.serve = tf.function(
        lambda inputs: call(**inputs), input_signature=[_specs(INPUTS)]
    )
    *others, vocabulary = assets
    root.vocabulary = tf.saved_model.Asset(vocabulary)
    do_lower_case = tokenizer.settings["do_lower_case"]

    @tf.function(input_signature=[])
    def tokenization_info():
        return {
            "vocab_file": tf.identity(root.vocabulary.asset_path),
            "do_lower_case": tf.constant(do_lower_case),
        }

    signatures["tokenization_info"] = tokenization_info
    saved_models.write_saved_model(path, root, signatures, others)


def _features(encoder, names, inputs):
    """Returns checked inputs under the release's names."""
    config = encoder.config
    return requests.check_features(
        inputs, names, config, config.max_position_embeddings
    )


def _specs(names):
    return {
        name: tf.TensorSpec([None, None], tf.int32, name=name) for name in names
    }


def _build_call(model, names, compute):
    """Returns a function of (inputs, training), traced for both modes."""

    @tf.function
    def call(inputs, training=False):
        return compute(model, _features(model, names, inputs), training)

    for training in (True, False):
        call.get_concrete_function(_specs(names), training=training)
    return call


def _build_signature(model, names, compute):
    """Returns a function of named tensors, as signatures require."""

    @tf.function
    def call(**inputs):
        outputs = compute(model, _features(model, names, inputs), False)
        # A signature can return only tensors.
        return {n: x for n, x in outputs.items() if not isinstance(x, list)}

    return call.get_concrete_function(**_specs(names))


def _encode(encoder, features, training):
    outputs = encoder(**features, training=training)
    return {
        "pooled_output": outputs["pooled_output"],
        "default": outputs["pooled_output"],
        "sequence_output": outputs["sequence_output"],
        "encoder_outputs": outputs["all_encoder_layers"],
    }


def _tokens(encoder, features, training):
    outputs = _encode(encoder, features, training)
    names = ("sequence_output", "pooled_output")
    return {name: outputs[name] for name in names}


def _order(model, features, training):
    outputs = _tokens(model.encoder, features, training)
    logits = model.sentence_order(outputs["pooled_output"])
    return {**outputs, "sop_log_probs": tf.nn.log_softmax(logits)}


def _fill(model, features, training):
    positions = features[requests.POSITIONS]
    features = {n: x for n, x in features.items() if n in INPUTS.values()}
    outputs = _encode(model.encoder, features, training)
    vectors = heads.gather_positions(outputs["sequence_output"], positions)
    logits = model.masked_lm(vectors, model.word_embeddings)
    return {**outputs, "mlm_logits": logits}


def _to_int32(name, values):
    """Casts ids to int32; returns text unchanged."""
    if values.dtype == tf.string:
        return values
    # NumPy's integers have 64 bits, and Sequential converts them to floats.
    integers = tf.cast(values, tf.int32)
    check = tf.debugging.assert_equal(
        tf.cast(integers, values.dtype),
        values,
        f"{name} contains numbers that are not 32-bit integers.",
    )
    with tf.control_dependencies([check]):
        return tf.identity(integers)


@keras.saving.register_keras_serializable(package="albert_tf")
class HubEncoder(keras.layers.Layer):
    r"""Wraps a reusable SavedModel of a text encoder as a Keras 3 layer.

    The layer owns the SavedModel's weights, so `compile` and `fit` train them.
    A layer that only calls a loaded SavedModel would silently not train them.

    The call takes the SavedModel's inputs, such as a dict of `input_word_ids`,
    `input_mask` and `input_type_ids` [B, T] int32, and returns one of its
    outputs: [B, H], [B, T, H], or a list of these.

    Args:
      handle: folder of any SavedModel in TF Hub's format.
      output_key: name of the output to return.
      trainable: whether to train the weights.

    Raises:
      ValueError: if the SavedModel cannot be called or has no trainable
        weights; at the call, if it has no such output.

    Example:
      >>> import albert_tf, numpy as np
      >>> with open("vocab.txt", "w") as file:
      ...     _ = file.write("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello")
      >>> config = albert_tf.AlbertConfig(
      ...     vocab_size=6, embedding_size=4, hidden_size=8,
      ...     num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
      >>> export_encoder(
      ...     "hub", albert_tf.AlbertEncoder(config),
      ...     tokenizer=albert_tf.build_tokenizer(vocab_file="vocab.txt"),
      ...     assets=["vocab.txt"])
      >>> ids = np.array([[2, 5, 3]])
      >>> HubEncoder("hub")({
      ...     "input_word_ids": ids,
      ...     "input_mask": np.ones_like(ids),
      ...     "input_type_ids": np.zeros_like(ids)}).shape
      TensorShape([1, 8])
    """

    def __init__(
        self, handle, *, output_key="pooled_output", trainable=True, **kwargs
    ):
        # Casting ids to float16 would change them.
        kwargs.setdefault("autocast", False)
        super().__init__(trainable=trainable, **kwargs)
        self.handle, self.output_key = str(handle), output_key
        self.loaded = saved_models.load_saved_model(self.handle)
        variables = getattr(self.loaded, "trainable_variables", ())
        if not callable(self.loaded) or not variables:
            raise ValueError(
                f"{handle} is not a reusable SavedModel: it cannot be called, "
                "or has no trainable_variables. Was it written by "
                "export_to_tfhub.py? SavedModels of export_dir=... are only "
                "for serving."
            )
        for variable in variables:
            weight = keras.Variable(
                initializer=variable,
                name=variable.name.split(":")[0].replace("/", "_"),
            )
            self._track_variable(weight)
        # Set last: weights created while frozen could not be unfrozen.
        self.trainable = trainable
        self.built = True

    def call(self, inputs, training=False):
        is_training = bool(training) and self.trainable
        if isinstance(inputs, dict):
            inputs = {name: _to_int32(name, x) for name, x in inputs.items()}
        else:
            inputs = _to_int32("The input", inputs)
        return self._pick(self.loaded(inputs, training=is_training))

    def _pick(self, outputs):
        if self.output_key not in outputs:
            raise ValueError(
                f"{self.handle} has no output {self.output_key!r}; it has "
                f"{sorted(outputs)}."
            )
        return outputs[self.output_key]

    def compute_output_spec(self, inputs, training=False):
        del training
        specs = keras.tree.map_structure(
            lambda x: tf.TensorSpec(
                [None, *x.shape[1:]],
                tf.string if x.dtype == "string" else tf.int32,
            ),
            inputs,
        )
        traced = tf.function(
            lambda x: self._pick(self.loaded(x, training=False))
        ).get_concrete_function(specs)
        batch = keras.tree.flatten(inputs)[0].shape[0]
        return keras.tree.map_structure(
            lambda x: keras.KerasTensor((batch, *x.shape[1:]), x.dtype.name),
            traced.structured_outputs,
        )

    def get_config(self):
        return {
            **super().get_config(),
            "handle": self.handle,
            "output_key": self.output_key,
        }
