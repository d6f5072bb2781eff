"""SavedModels: plain TensorFlow, without Keras, this package or custom ops.

Shapes: B batch, T tokens, C labels.
"""

import tensorflow as tf

from albert_tf.export import requests, saved_models


def export_classifier(
    folder, model, *, max_seq_length, labels=None, threshold=None, assets=()
):
    """Writes a SavedModel that serves a classifier.

    Two signatures give the same outputs for any B and T:

      serving_default: `examples`, [B] strings, each a serialized
        `tf.train.Example` with int64 lists `input_ids`, `input_mask` and
        `segment_ids`, equally long. Shorter ones are padded with 0; other
        features, such as the labels in the release's records, are ignored.
      ids: `input_ids`, `input_mask`, `segment_ids`, [B, T] int32.

    The outputs:

      logits: [B, C] float32.
      probabilities: [B, C] float32; absent for a regression.
      predictions: [B] int32, indices of labels; [B] float32 for a regression;
        [B, C] int32, 0 or 1, for "multi_label".
      threshold: [B] float32, the same number for every row; only if given.

    Args:
      folder: local or gs://; see `next_version` for what is made in it.
      model: a `heads.AlbertClassifier`.
      max_seq_length: tokens of the longest sequence that is served, at most
        the model's positions.
      labels: C names, which become the asset `labels.txt`, a line each.
      threshold: a number for the client. It changes no prediction.
      assets: files that are put beside under their own names.

    Returns:
      The SavedModel's own folder.

    Raises:
      ValueError: if arguments contradict the model or each other.
      FileNotFoundError: if an asset is not there.

    Source: run_classifier.py, `export_saved_model`, whose records have exactly
    max_seq_length tokens, and whose threshold is a scalar: TensorFlow
    Serving's batching and its rows of JSON refuse outputs without a batch.
    """
    examples, ids = build_signatures(
        model, classify(model), max_seq_length, threshold
    )
    signatures = {"serving_default": examples, "ids": ids}
    return saved_models.write_version(folder, model, signatures, assets, labels)


def export_spans(folder, model, *, max_seq_length, threshold=None, assets=()):
    """Writes a SavedModel that serves a model of SQuAD.

    Its signatures take what those of `export_classifier` take, but
    `serving_default` is the one of `input_ids`, `input_mask`, `segment_ids`,
    and `examples` that of serialized records. The outputs are the model's,
    for the n best: `start_logits` and `end_logits`, or the beam of
    `span_heads.AlbertConditionalSpans`.

    Args:
      folder: as for `export_classifier`.
      model: a `span_heads.AlbertSpans` or `AlbertConditionalSpans`.
      max_seq_length: as for `export_classifier`.
      threshold: a number for the client, the output `threshold`: an answer is
        given where cls_logits is below it.
      assets: as for `export_classifier`.

    Returns:
      The SavedModel's own folder.

    Raises:
      As `export_classifier`.

    Source: run_squad_v1.py, `build_squad_serving_input_fn`, whose shapes are
    fixed and whose logits are called `start_log_prob` and `end_log_prob`.
    """
    examples, ids = build_signatures(model, model, max_seq_length, threshold)
    signatures = {"serving_default": ids, "examples": examples}
    return saved_models.write_version(folder, model, signatures, assets)


def classify(model):
    """Returns a function from features to a classifier's outputs."""
    return lambda features: predict(model(features)["logits"], model.objective)


def build_answer(model, serve, max_seq_length, threshold):
    """Returns a function from a request to all outputs.

    Args:
      model: what is exported.
      serve: function from a dict of `requests.FEATURES` to a dict of outputs.
      max_seq_length: tokens of the longest sequence that is served.
      threshold: a number that is given out for each row, or None.
    """
    check_max_seq_length(model, max_seq_length)
    check_threshold(threshold)
    ids = tf.TensorSpec([None, None], tf.int32)
    # One function for all signatures: its constants are saved once.
    serve_once = tf.function(
        lambda features: dict(serve(features)),
        input_signature=[dict.fromkeys(requests.FEATURES, ids)],
    )

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


def build_signatures(model, serve, max_seq_length, threshold):
    """Returns a tf.function of `examples` and one of ids: `build_answer`'s."""
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
    """Raises ValueError if a model has fewer positions than that."""
    positions = model.config.max_position_embeddings
    if not 1 <= max_seq_length <= positions:
        raise ValueError(
            f"max_seq_length={max_seq_length}; the model has {positions} "
            "positions (max_position_embeddings). Give a length from 1 to "
            "that, such as the one it was fine-tuned with."
        )


def check_threshold(threshold):
    """Raises ValueError if a threshold is neither None nor a float32."""
    # NaN is not below anything.
    if threshold is not None and not abs(threshold) <= float(tf.float32.max):
        raise ValueError(
            f"The threshold is {threshold}; wanted a finite number of 32 bits."
        )


def predict(logits, objective):
    """Returns a dict of outputs for logits [B, C] of a classifier."""
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
