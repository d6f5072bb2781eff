"""Exports SavedModels that take text. Loading them requires tensorflow-text.

Shapes: B texts; (T) tokens, ragged; T tokens after padding; C labels.
"""

import tensorflow as tf

from albert_tf.export import hub, requests, saved_models, serving
from albert_tf.text import characters, operations

TEXTS = tf.TensorSpec([None], tf.string)
# Score of a text in which no answer is possible. Not -inf: JSON has none.
NO_SPAN = -1e30


def export_preprocessor(path, tokenizer, *, seq_length=128, assets=()):
    """Exports the text preprocessor of an encoder in TF Hub's format.

    The loaded object is called with texts, [B] strings, and returns a dict of
    `input_word_ids`, `input_mask` and `input_type_ids`, [B, seq_length] int32.
    Its parts: `tokenize(texts)` returns ids [B, (T)] int32, and
    `tokenize.get_special_tokens_dict()` the ids of special pieces;
    `bert_pack_inputs([ids] or [ids, ids], seq_length=...)` packs one or two
    segments of ids.

    The folder `path` must not exist. `seq_length` is the default length of a
    sequence, in tokens; `assets` are files to store under their own names.

    Source: TF Hub's API of preprocessors for text.
    """
    root = build_preprocessor(tokenizer, seq_length)
    root.serve = root.__call__  # For Keras's TFSMLayer.
    signatures = {"serving_default": root.__call__}
    saved_models.write_saved_model(path, root, signatures, assets)


def build_parts(model, serve, tokenizer, max_seq_length, threshold=None):
    """Returns what an export for text calls.

    Arguments are those of `serving.build_answer`, and the model's tokenizer.

    Returns:
      The function of `serving.build_answer`, and an
      `operations.GraphTokenizer`.

    Raises:
      ValueError: if arguments contradict the model, or the tokenizer has ids
        that the model does not.
    """
    answer = serving.build_answer(model, serve, max_seq_length, threshold)
    num_pieces = model.config.vocab_size
    if tokenizer.vocab_size > num_pieces:
        raise ValueError(
            f"The vocabulary has {tokenizer.vocab_size} pieces, but the model "
            f"has {num_pieces}. Does it belong to another model?"
        )
    return answer, operations.GraphTokenizer(tokenizer)


def build_preprocessor(tokenizer, seq_length):
    """Returns the root object that `export_preprocessor` saves."""
    graph = operations.GraphTokenizer(tokenizer)
    root, tokenize, bert_pack_inputs = (saved_models.Root() for _ in range(3))
    for part in (root, tokenize, bert_pack_inputs):
        part.variables = part.trainable_variables = []
        part.regularization_losses = []
    # One function for all, so that the SavedModel has its tables once.
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
    threshold=None,
    exit_threshold=None,
    contents=None,
):
    """Exports a classifier as a SavedModel that takes text.

    `serving_default` takes `text_a` [B] strings and, for pairs, `text_b`. Its
    outputs are those of `serving.export_classifier`. Texts are truncated to
    `max_seq_length` tokens.

    If the model `has_pairs`, there is a second text. The other arguments are as
    for `serving.export_classifier`. Returns the folder of the new version.

    Raises:
      ValueError: if arguments contradict the model or each other.
    """
    answer, graph = build_parts(
        model,
        serving.classify(model, exit_threshold),
        tokenizer,
        max_seq_length,
        threshold,
    )
    ids_of = tf.function(graph.tokenize, input_signature=[TEXTS])

    @tf.function(input_signature=[TEXTS] * (2 if has_pairs else 1))
    def serve(text_a, text_b=None):
        texts = {"text_a": text_a}
        if has_pairs:
            texts["text_b"] = text_b
        segments = [ids_of(x) for x in requests.check_texts(**texts)]
        return answer(pack(tokenizer, segments, max_seq_length))

    signatures = {"serving_default": serve}
    return saved_models.write_version(folder, model, signatures, contents)


def export_text_vectors(
    folder, model, *, tokenizer, max_seq_length, contents=None
):
    """Exports a model of vectors of texts as a SavedModel that takes text.

    `serving_default` takes `text` [B] strings and returns `vectors` [B, H]
    float32, of length 1. Texts are truncated to `max_seq_length` tokens.

    The model is a `vector_heads.AlbertVectors`. The other arguments, the result
    and errors are those of `export_text_classifier`.
    """
    answer, graph = build_parts(model, model, tokenizer, max_seq_length)

    @tf.function(input_signature=[TEXTS])
    def serve(text):
        (text,) = requests.check_texts(text=text)
        ids = graph.tokenize(text)
        return answer(pack(tokenizer, [ids], max_seq_length))

    signatures = {"serving_default": serve}
    return saved_models.write_version(folder, model, signatures, contents)


def pack(tokenizer, segments, max_seq_length):
    """Packs one or two segments of ids, [B, (T)] int32, for a model.

    Returns:
      Dict of `requests.FEATURES`, [B, T] int32; T is that of the longest row.
    """
    packed = operations.pack(tokenizer, segments, max_seq_length)
    # Short texts are fast: what is padding in every row is cut off.
    lengths = tf.reduce_sum(packed["input_mask"], axis=1)  # [B]
    # [CLS] and [SEP] remain even if the batch is empty.
    longest = tf.maximum(tf.reduce_max(lengths), 2)
    return {
        ours: packed[theirs][:, :longest] for theirs, ours in hub.INPUTS.items()
    }


def export_text_spans(
    folder,
    model,
    *,
    tokenizer,
    max_seq_length,
    max_query_length=64,
    max_answer_length=30,
    threshold=None,
    contents=None,
):
    """Exports a SQuAD model as a SavedModel that takes text.

    `serving_default` takes `question` and `context`, [B] strings each. It
    returns, [B] each: `answer`, the best span of the context that shows
    something, without white space and invisible characters at its ends;
    `start` and `end`, its character positions there; `score`, the sum of its
    logits or log-probabilities; for SQuAD 2.0 `null_odds`, the no-answer score;
    and, if a threshold is given, `is_answered`. Without such a span, as in an
    empty context, the answer is "" at 0, the score -1e30, and `is_answered`
    false. A context that does not fit into one sequence is truncated.

    The model is a `span_heads.AlbertSpans` or `AlbertConditionalSpans`. All
    lengths are maxima, in tokens. `is_answered` is true if null_odds is below
    the threshold. The other arguments are as for `serving.export_classifier`.
    Returns the folder of the new version.

    Raises:
      ValueError: if arguments contradict the model or each other.
    """
    serving.check_threshold(threshold)
    check_lengths(max_seq_length, max_query_length)
    answer, graph = build_parts(model, model, tokenizer, max_seq_length)

    @tf.function(input_signature=[TEXTS] * 2)
    def serve(question, context):
        question, context = requests.check_texts(
            question=question, context=context
        )
        # Invalid UTF-8 would make the character counts of operations differ.
        context = tf.strings.unicode_transcode(context, "UTF-8", "UTF-8")
        query = graph.tokenize(question)[:, :max_query_length]
        ids, *spans = graph.tokenize_with_offsets(context)
        offsets = characters.trim(context, *spans)
        features, before = operations.pack_question(
            tokenizer, query, ids, max_seq_length
        )
        outputs = answer(features)
        candidates = list_spans(outputs, features, before, max_answer_length)
        quoted = quote(context, offsets, before, *candidates)
        return {**quoted, **_judge(outputs, quoted, threshold)}

    signatures = {"serving_default": serve}
    return saved_models.write_version(
        folder, model, signatures, contents, resources=graph.resources
    )


def check_lengths(max_seq_length, max_query_length):
    """Raises ValueError unless a sequence has room for question and context."""
    if max_seq_length < max_query_length + 4 or max_query_length < 1:
        raise ValueError(
            f"max_seq_length={max_seq_length} is too small for "
            f"max_query_length={max_query_length}, [CLS], 2 [SEP] and a token "
            "of the context; wanted at least max_query_length + 4, and "
            "max_query_length at least 1."
        )


def _judge(outputs, quoted, threshold):
    """Returns the no-answer outputs; empty for SQuAD 1.1."""
    if "cls_logits" not in outputs:
        return {}
    judged = {"null_odds": outputs["cls_logits"]}
    if threshold is not None:
        has_span = quoted["end"] > quoted["start"]
        judged["is_answered"] = has_span & (judged["null_odds"] < threshold)
    return judged


def quote(context, offsets, before, starts, ends, scores):
    """Returns the outputs about texts, [B], see `export_text_spans`.

    Args:
      context: [B] strings.
      offsets: first character and end of each token, [B, (T)] int32 each,
        from `characters.trim`.
      before: [B] number of tokens before the text.
      starts: [B or 1, C] first tokens of candidates, from `list_spans`.
      ends: [B or 1, C] last tokens.
      scores: [B, C] scores, NO_SPAN for an invalid candidate.
    """
    # A column for texts without a token.
    offsets = [tf.pad(x.to_tensor(), [[0, 0], [0, 1]]) for x in offsets]

    def characters_of(values, tokens):
        """Returns the offsets of tokens, [B, C]."""
        tokens = tf.broadcast_to(tokens, tf.shape(scores))
        tokens -= before[:, tf.newaxis]
        tokens = tf.clip_by_value(tokens, 0, tf.shape(values)[1] - 1)
        return tf.gather(values, tokens, batch_dims=1)

    firsts, lasts = map(characters_of, offsets, (starts, ends))
    scores = tf.where(firsts < lasts, scores, NO_SPAN)
    best = tf.argmax(scores, axis=1, output_type=tf.int32)  # [B]
    score = tf.reduce_max(scores, axis=1)
    start, end = (
        tf.where(score > NO_SPAN, tf.gather(x, best, batch_dims=1), 0)
        for x in (firsts, lasts)
    )
    return {
        "answer": tf.strings.substr(context, start, end - start, "UTF8_CHAR"),
        "start": start,
        "end": end,
        "score": score,
    }


def list_spans(outputs, features, before, max_answer_length):
    """Lists the candidates for the answer of each text.

    `outputs` are those of an `AlbertSpans` or `AlbertConditionalSpans`;
    `features` `input_mask` and `segment_ids`, [B, T]; `before` [B] the number
    of tokens before the text.

    Returns:
      First and last token of each candidate as positions in the sequence,
      [B or 1, C] int32 each, and the sum of their scores [B, C]; NO_SPAN for
      one that cannot be an answer.
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
    return starts, ends, tf.where(is_valid, scores, NO_SPAN)
