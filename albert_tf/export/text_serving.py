"""SavedModels that take text. They need tensorflow-text where they are loaded.

Shapes: B texts; (T) tokens, ragged; T tokens after padding; C labels.
"""

import tensorflow as tf

from albert_tf.export import requests, saved_models, serving
from albert_tf.text import operations

TEXTS = tf.TensorSpec([None], tf.string)
# The score where no answer is possible.
NO_SPAN = -1e30


def export_preprocessor(path, tokenizer, *, seq_length=128, assets=()):
    """Writes what makes an encoder's inputs of text, as TF Hub's do.

    Loaded, it is called with texts, [B] strings, and returns a dict of
    `input_word_ids`, `input_mask` and `input_type_ids`, [B, seq_length] int32.
    Its parts: `tokenize(texts)` returns ids [B, (T)] int32, and
    `tokenize.get_special_tokens_dict()` those of the special pieces;
    `bert_pack_inputs([ids] or [ids, ids], seq_length=...)` packs one or two
    segments of them.

    Args:
      path: the SavedModel's folder, which must not exist.
      tokenizer: a `tokenization.Tokenizer`.
      seq_length: tokens of a sequence where the caller does not say.
      assets: files that are put beside under their own names.

    Source: TF Hub's API of preprocessors for text.
    """
    root = build_preprocessor(tokenizer, seq_length)
    signatures = {"serving_default": root.__call__}
    saved_models.write_saved_model(path, root, signatures, assets)


def check_tokenizer(tokenizer, config):
    """Raises ValueError if a tokenizer makes ids that a model has not."""
    if tokenizer.vocab_size > config.vocab_size:
        raise ValueError(
            f"The vocabulary has {tokenizer.vocab_size} pieces, the model "
            f"{config.vocab_size}. Is it another model's?"
        )


def build_preprocessor(tokenizer, seq_length):
    """Returns what `export_preprocessor` saves."""
    graph = operations.GraphTokenizer(tokenizer)
    root, tokenize, bert_pack_inputs = (saved_models.Root() for _ in range(3))
    for part in (root, tokenize, bert_pack_inputs):
        part.variables = part.trainable_variables = []
        part.regularization_losses = []
    # One function for all: its tables stand in the SavedModel once.
    ids_of = tf.function(graph.tokenize, input_signature=[TEXTS])

    @tf.function(input_signature=[])
    def get_special_tokens_dict():
        return {
            "padding_id": tf.constant(tokenizer.pad_id),
            "start_of_sequence_id": tf.constant(tokenizer.cls_id),
            "end_of_segment_id": tf.constant(tokenizer.sep_id),
            "mask_id": tf.constant(tokenizer.mask_id),
            "vocab_size": tf.constant(tokenizer.vocab_size),
        }

    @tf.function
    def call_pack(inputs, seq_length=seq_length):
        inputs = [
            x if x.ragged_rank == 1 else x.merge_dims(1, 2) for x in inputs
        ]
        return operations.pack(tokenizer, inputs, seq_length)

    @tf.function(input_signature=[TEXTS])
    def call(sentences):
        return operations.pack(tokenizer, [ids_of(sentences)], seq_length)

    for num_segments in (1, 2):
        for rank in (1, 2):
            spec = tf.RaggedTensorSpec([None] * (rank + 1), tf.int32, rank)
            call_pack.get_concrete_function(
                [spec] * num_segments, seq_length=tf.TensorSpec([], tf.int32)
            )
    tokenize.__call__ = ids_of
    tokenize.get_special_tokens_dict = get_special_tokens_dict
    bert_pack_inputs.__call__ = call_pack
    root.__call__ = call
    root.tokenize, root.bert_pack_inputs = tokenize, bert_pack_inputs
    return root


def export_text_classifier(
    folder,
    model,
    *,
    tokenizer,
    has_pairs,
    max_seq_length,
    labels=None,
    threshold=None,
    assets=(),
):
    """Writes a SavedModel that serves a classifier of text.

    `serving_default` takes `text_a` [B] strings, and `text_b` where texts come
    in pairs; it returns what `serving.export_classifier` does. Texts are cut to
    `max_seq_length` tokens.

    Args:
      folder: as for `serving.export_classifier`.
      model: a `heads.AlbertClassifier`.
      tokenizer: a `tokenization.Tokenizer`.
      has_pairs: whether there is a second text.
      max_seq_length: tokens of the longest sequence.
      labels: as for `serving.export_classifier`.
      threshold: likewise.
      assets: likewise.

    Returns:
      The SavedModel's own folder.

    Raises:
      ValueError: if arguments contradict the model or each other.
    """
    answer = serving.build_answer(
        model, serving.classify(model), max_seq_length, threshold
    )
    check_tokenizer(tokenizer, model.config)
    graph = operations.GraphTokenizer(tokenizer)
    ids_of = tf.function(graph.tokenize, input_signature=[TEXTS])

    def features_of(*texts):
        segments = [ids_of(text) for text in texts]
        packed = operations.pack(tokenizer, segments, max_seq_length)
        # To the longest of the batch: the rest is padding in every row.
        lengths = tf.reduce_sum(packed["input_mask"], axis=1)  # [B]
        # [CLS] and [SEP] are there even where no text is.
        longest = tf.maximum(tf.reduce_max(lengths), 2)
        return {
            "input_ids": packed["input_word_ids"][:, :longest],
            "input_mask": packed["input_mask"][:, :longest],
            "segment_ids": packed["input_type_ids"][:, :longest],
        }

    @tf.function(input_signature=[TEXTS] * (2 if has_pairs else 1))
    def serve(text_a, text_b=None):
        texts = {"text_a": text_a, "text_b": text_b}
        given = {n: x for n, x in texts.items() if x is not None}
        return answer(features_of(*requests.check_texts(**given)))

    return saved_models.write_version(
        folder, model, {"serving_default": serve}, assets, labels
    )


def export_text_spans(
    folder,
    model,
    *,
    tokenizer,
    max_seq_length,
    max_query_length=64,
    max_answer_length=30,
    threshold=None,
    assets=(),
):
    """Writes a SavedModel that answers questions about texts.

    `serving_default` takes `question` and `context`, [B] strings each, and
    returns, [B] each: `answer`, a piece of the context as it is; `start` and
    `end`, its characters there; `score`, the sum of its logits or
    log-probabilities; and for SQuAD 2.0 `null_odds`, the larger, the less
    there is an answer, and where a threshold is given `is_answered`. A context
    that does not fit into one sequence is cut.

    Args:
      folder: as for `serving.export_classifier`.
      model: a `span_heads.AlbertSpans` or `AlbertConditionalSpans`.
      tokenizer: a `tokenization.Tokenizer`.
      max_seq_length: tokens of the longest sequence.
      max_query_length: tokens of a question, at most.
      max_answer_length: tokens of an answer, at most.
      threshold: answers are given where null_odds is below it, or None.
      assets: as for `serving.export_classifier`.

    Returns:
      The SavedModel's own folder.

    Raises:
      ValueError: if arguments contradict the model or each other.
    """
    serving.check_max_seq_length(model, max_seq_length)
    serving.check_threshold(threshold)
    check_tokenizer(tokenizer, model.config)
    if max_seq_length < max_query_length + 4 or max_query_length < 1:
        raise ValueError(
            f"max_seq_length={max_seq_length} has to hold max_query_length="
            f"{max_query_length}, [CLS], 2 [SEP] and a token of the context."
        )
    graph = operations.GraphTokenizer(tokenizer)

    @tf.function(input_signature=[TEXTS] * 2)
    def serve(question, context):
        question, context = requests.check_texts(
            question=question, context=context
        )
        # Else what is no UTF-8 would be counted otherwise here and there.
        context = tf.strings.unicode_transcode(context, "UTF-8", "UTF-8")
        query = graph.tokenize(question)[:, :max_query_length]
        ids, *offsets = graph.tokenize_with_offsets(context)
        features, before = operations.pack_question(
            tokenizer, query, ids, max_seq_length
        )
        features = requests.check_features(
            features, requests.OWN_NAMES, model.config, max_seq_length
        )
        outputs = model(features)
        span = choose_span(outputs, features, before, max_answer_length)
        return {
            **_quote(context, offsets, *span),
            **_judge(outputs, threshold),
        }

    signatures = {"serving_default": serve}
    return saved_models.write_version(
        folder, model, signatures, assets, resources=graph.resources
    )


def _judge(outputs, threshold):
    """The outputs about whether there is an answer: none for SQuAD 1.1."""
    if "cls_logits" not in outputs:
        return {}
    judged = {"null_odds": outputs["cls_logits"]}
    if threshold is not None:
        judged["is_answered"] = judged["null_odds"] < threshold
    return judged


def _quote(context, offsets, first, last, score):
    """The outputs about spans of texts, [B]: see `export_text_spans`.

    `first`, `last` and `score` are from `choose_span`; `offsets` are two of
    [B, (T)], where each token starts and ends in characters.
    """
    start, end = (
        _look_up(values, tokens, score)
        for values, tokens in zip(offsets, (first, last), strict=True)
    )
    answer = tf.strings.substr(context, start, end - start, "UTF8_CHAR")
    return {
        "answer": tf.strings.strip(answer),
        "start": start,
        "end": end,
        "score": score,
    }


def _look_up(offsets, tokens, score):
    """The offset of one token in each row, 0 where there is no answer."""
    padded = tf.pad(offsets.to_tensor(), [[0, 0], [0, 1]])  # [B, T + 1]
    tokens = tf.where(score > NO_SPAN, tokens, tf.shape(padded)[1] - 1)
    return tf.gather(padded, tokens, batch_dims=1)


def choose_span(outputs, features, before, max_answer_length):
    """Chooses the best span of each text.

    Args:
      outputs: of an `AlbertSpans` or `AlbertConditionalSpans`.
      features: dict of `input_mask` and `segment_ids`, [B, T].
      before: [B] tokens before the text.
      max_answer_length: tokens of an answer, at most.

    Returns:
      First and last token of the answer in the text, [B] int32 each, and the
      sum of their scores [B]; NO_SPAN where there is none.
    """
    if "cls_logits" in outputs:
        starts = outputs["start_top_index"]  # [B, K]
        ends = outputs["end_top_index"]  # [B, K * J]
        num_ends = tf.shape(ends)[1] // tf.shape(starts)[1]
        starts = tf.repeat(starts, num_ends, axis=1)
        scores = outputs["end_top_log_probs"] + tf.repeat(
            outputs["start_top_log_probs"], num_ends, axis=1
        )
    else:
        num_tokens = tf.shape(outputs["start_logits"])[1]
        starts, ends = tf.meshgrid(
            tf.range(num_tokens), tf.range(num_tokens), indexing="ij"
        )
        starts, ends = (tf.reshape(x, [1, -1]) for x in (starts, ends))
        scores = tf.reshape(
            outputs["start_logits"][:, :, tf.newaxis]
            + outputs["end_logits"][:, tf.newaxis],
            [-1, num_tokens * num_tokens],
        )  # [B, T * T]
    # The last [SEP].
    behind = tf.reduce_sum(features["input_mask"], axis=1) - 1
    is_valid = (
        (starts >= before[:, tf.newaxis])
        & (starts <= ends)
        & (ends < behind[:, tf.newaxis])
        & (ends - starts < max_answer_length)
    )
    scores = tf.where(is_valid, scores, NO_SPAN)
    best = tf.argmax(scores, axis=1, output_type=tf.int32)  # [B]
    shape = tf.shape(scores)
    first, last = (
        tf.gather(tf.broadcast_to(x, shape), best, batch_dims=1) - before
        for x in (starts, ends)
    )
    return first, last, tf.reduce_max(scores, axis=1)
