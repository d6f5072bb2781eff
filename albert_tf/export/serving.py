"""Exports SavedModels that need neither Keras, this package nor custom ops.

Shapes: B batch, T tokens, C labels.
"""

import tensorflow as tf

from albert_tf.export import requests, saved_models
from albert_tf.model import execution, exits


def export_classifier(
    folder,
    model,
    *,
    max_seq_length,
    threshold=None,
    exit_threshold=None,
    contents=None,
):
    """Exports a classifier as a SavedModel.

    Two signatures return the same outputs for any B and T:

      serving_default: `examples`, [B] strings, each a serialized
        `tf.train.Example` with int64 lists `input_ids`, `input_mask` and
        `segment_ids` of equal length. Shorter ones are padded with 0; other
        features, such as the labels in the release's records, are ignored.
      ids: `input_ids`, `input_mask`, `segment_ids`, [B, T] int32.

    The outputs:

      logits: [B, C] float32.
      probabilities: [B, C] float32; absent for a regression.
      predictions: [B] int32, indices of labels; [B] float32 for a regression;
        [B, C] int32, 0 or 1, for "multi_label".
      threshold: [B] float32, the same number for every row; only if given.
      num_layers: [B] int32, the layer that answered; with exit_threshold only.

    Args:
      folder: local or gs:// folder of versions, see `next_version`.
      model: a `heads.AlbertClassifier`.
      max_seq_length: maximum length of a sequence, in tokens; at most the
        model's positions.
      threshold: constant output for the client; it does not affect
        predictions.
      exit_threshold: answers are given after the first layer whose uncertainty
        is below this, see `exits.predict`; None or 0 computes all layers.
      contents: what else is stored, a `saved_models.Contents`, or None.

    Returns:
      The folder of the new version.

    Raises:
      ValueError: if arguments contradict the model or each other.
      FileNotFoundError: if an asset does not exist.

    Source: run_classifier.py, `export_saved_model`, whose records have exactly
    max_seq_length tokens, and whose threshold is a scalar: TensorFlow
    Serving's batching and its JSON rows reject outputs without a batch axis.
    """
    examples, ids = build_signatures(
        model, classify(model, exit_threshold), max_seq_length, threshold
    )
    signatures = {"serving_default": examples, "ids": ids}
    return saved_models.write_version(folder, model, signatures, contents)


def export_spans(
    folder, model, *, max_seq_length, threshold=None, contents=None
):
    """Exports a SQuAD model as a SavedModel.

    The signatures have the inputs of `export_classifier`, but `serving_default`
    takes `input_ids`, `input_mask` and `segment_ids`, and `examples` takes
    serialized records. The outputs are those of the model, from which a client
    computes the n best answers: `start_logits` and `end_logits`, or the beam of
    `span_heads.AlbertConditionalSpans`.

    The constant output `threshold` is for the client: a question has an answer
    if cls_logits is below it. The model is a `span_heads.AlbertSpans` or
    `AlbertConditionalSpans`. Other arguments, the result and errors are those
    of `export_classifier`.

    Source: run_squad_v1.py, `build_squad_serving_input_fn`, whose shapes are
    fixed and whose logits are called `start_log_prob` and `end_log_prob`.
    """
    return _export(folder, model, model, contents, max_seq_length, threshold)


def export_tagger(folder, model, *, max_seq_length, contents=None):
    """Exports a tagger as a SavedModel.

    The signatures are those of `export_spans`. Their outputs:

      logits, probabilities: [B, T, C] float32.
      predictions: [B, T] int32, indices of tags.

    A client reads those of each word's first token. The model is a
    `tag_heads.AlbertTagger`. Other arguments, the result and errors are those
    of `export_classifier`.
    """
    return _export(folder, model, classify(model), contents, max_seq_length)


def export_vectors(folder, model, *, max_seq_length, contents=None):
    """Exports a model of vectors of texts as a SavedModel.

    The signatures are those of `export_spans`; their output is `vectors`,
    [B, H] float32, of length 1. The model is a `vector_heads.AlbertVectors`.
    Other arguments, the result and errors are those of `export_classifier`.
    """
    return _export(folder, model, model, contents, max_seq_length)


def _export(folder, model, serve, contents, max_seq_length, threshold=None):
    """Exports a model whose `serving_default` takes ids."""
    examples, ids = build_signatures(model, serve, max_seq_length, threshold)
    signatures = {"serving_default": ids, "examples": examples}
    return saved_models.write_version(folder, model, signatures, contents)


def classify(model, exit_threshold=None):
    """Returns a function from features to outputs of a classifier or tagger."""
    objective = getattr(model, "objective", "classes")  # A tagger has none.
    if exit_threshold is not None:
        exits.check_threshold(exit_threshold, objective)

    def serve(features):
        if not exit_threshold:
            return predict(model(features)["logits"], objective)
        outputs = exits.predict(model, features, exit_threshold)
        return {
            **predict(outputs["logits"], objective),
            "num_layers": outputs["num_layers"],
        }

    return serve


def build_answer(model, serve, max_seq_length, threshold=None):
    """Returns a function from a request to all outputs.

    `serve` maps a dict of `requests.FEATURES` to a dict of outputs, to which a
    `threshold` is added for each row.
    """
    check_max_seq_length(model, max_seq_length)
    check_threshold(threshold)
    # One for all signatures, so that the SavedModel has its constants once.
    serve_once = _serve_by_rows(serve)

    def answer(inputs):
        features = requests.check_features(
            inputs, requests.OWN_NAMES, model.config, max_seq_length
        )
        outputs = serve_once(features)
        if threshold is not None:
            outputs["threshold"] = tf.fill(
                tf.shape(features["input_ids"])[:1],
                tf.constant(threshold, tf.float32),
            )  # [B]
        return outputs

    return answer


def _serve_by_rows(serve):
    """Returns `serve`, with separate kernels for few and for many rows.

    oneDNN orders kernels differently for each, see `execution.FEW_ROWS`. Unless
    `Execution.separate_few_rows` is set, both share one set.
    """
    ids = tf.TensorSpec([None, None], tf.int32)
    serve_few, serve_many = (
        tf.function(
            lambda features: dict(serve(features)),
            input_signature=[dict.fromkeys(requests.FEATURES, ids)],
        )
        for _ in range(2)
    )

    def serve_features(features):
        if not execution.current().separate_few_rows:
            return serve_many(features)
        return tf.cond(
            tf.size(features["input_ids"]) <= execution.FEW_ROWS,
            lambda: serve_few(features),
            lambda: serve_many(features),
        )

    return serve_features


def build_signatures(model, serve, max_seq_length, threshold):
    """Returns the tf.functions of `examples` and of ids."""
    answer = build_answer(model, serve, max_seq_length, threshold)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def serve_examples(examples):
        return answer(requests.parse_examples(examples, max_seq_length))

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 3)
    def serve_ids(input_ids, input_mask, segment_ids):
        values = input_ids, input_mask, segment_ids
        return answer(dict(zip(requests.FEATURES, values, strict=True)))

    return serve_examples, serve_ids


def check_max_seq_length(model, max_seq_length):
    """Raises ValueError if a model has fewer positions than max_seq_length."""
    positions = model.config.max_position_embeddings
    if not 1 <= max_seq_length <= positions:
        raise ValueError(
            f"max_seq_length={max_seq_length}, but the model has {positions} "
            f"positions (max_position_embeddings). Give a length from 1 to "
            f"{positions}, such as that of the fine-tuning."
        )


def check_threshold(threshold):
    """Raises ValueError unless a threshold is None or a finite float32."""
    # The form of the comparison also rejects NaN.
    if threshold is not None and not abs(threshold) <= float(tf.float32.max):
        raise ValueError(
            f"The threshold is {threshold}; wanted a finite float32."
        )


def predict(logits, objective):
    """Returns the dict of outputs for logits [B, C], or [B, T, C] of tags."""
    if objective == "regression":
        return {"logits": logits, "predictions": logits[:, 0]}
    if objective == "multi_label":
        probabilities = tf.sigmoid(logits)
        predictions = tf.cast(logits > 0, tf.int32)  # [B, C]
    else:
        probabilities = tf.nn.softmax(logits)
        predictions = tf.argmax(logits, axis=-1, output_type=tf.int32)  # [B]
    return {
        "logits": logits,
        "probabilities": probabilities,
        "predictions": predictions,
    }
