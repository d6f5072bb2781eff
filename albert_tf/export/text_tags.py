"""Exports taggers that take text. Loading them requires tensorflow-text.

Shapes: B texts; (P) pieces per text, ragged; P, W pieces and words of all
texts; V windows; T tokens after padding; C tags.
"""

import math

import tensorflow as tf

from albert_tf.export import requests, saved_models, serving, text_serving
from albert_tf.text import word_operations


def export_text_tagger(
    folder,
    model,
    *,
    tokenizer,
    max_seq_length: int,
    doc_stride: int,
    contents: saved_models.Contents,
):
    """Exports a tagger as a SavedModel that takes text.

    `serving_default` takes `text` [B] strings. It returns, [B, words of the
    longest text] each: `words`, those of `words.find_words`; `tags`;
    `probabilities`; and `starts` and `ends`, character positions in the text.
    Behind a text's last word, they are "" and 0. A long text is divided into
    windows, as by `word_windows.encode_sentences`.

    Args:
      folder: as for `serving.export_classifier`.
      model: a `tag_heads.AlbertTagger`.
      tokenizer: its tokenizer.
      max_seq_length: maximum length of a window, in tokens.
      doc_stride: pieces between the starts of windows.
      contents: what else is stored; its labels are the C names of tags.

    Returns:
      The folder of the new version.

    Raises:
      ValueError: if arguments contradict the model or each other.
    """
    answer, graph = text_serving.build_parts(
        model, serving.classify(model), tokenizer, max_seq_length
    )
    divisions = word_operations.build_divisions(tokenizer)
    size = max_seq_length - 2
    stride = min(size, doc_stride)

    @tf.function(input_signature=[text_serving.TEXTS])
    def serve(text):
        (text,) = requests.check_texts(text=text)
        # Invalid UTF-8 would make the character counts of operations differ.
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")
        found = word_operations.find_words(text)
        divided = word_operations.divide_pieces(
            found, *graph.tokenize_with_offsets(text), divisions=divisions
        )
        ids, pieces = word_operations.place_words(
            found, *divided, unk_id=tokenizer.unk_id
        )
        windows, counts = cut_windows(ids, size, stride)
        features = text_serving.pack(tokenizer, [windows], max_seq_length)
        window, position = find_best(ids, pieces, counts, size, stride)
        # [CLS] is before the window's pieces.
        places = tf.stack([window, position + 1], axis=1)  # [W, 2]
        probabilities = answer(features)["probabilities"]  # [V, T, C]
        probabilities = tf.gather_nd(probabilities, places)  # [W, C]
        return describe(found, probabilities, contents.labels)

    signatures = {"serving_default": serve}
    return saved_models.write_version(
        folder, model, signatures, contents, resources=graph.resources
    )


def describe(found: word_operations.Words, probabilities, labels) -> dict:
    """Returns the outputs for words with probabilities [W, C] of C labels."""
    best = tf.argmax(probabilities, axis=1)  # [W]
    outputs = {
        "words": found.texts,
        "tags": found.texts.with_flat_values(tf.gather(labels, best)),
        "probabilities": found.texts.with_flat_values(
            tf.reduce_max(probabilities, axis=1)
        ),
        "starts": found.starts,
        "ends": found.ends,
    }
    return {name: values.to_tensor() for name, values in outputs.items()}


def cut_windows(ids, size: int, stride: int) -> tuple:
    """Cuts texts, ids [B, (P)] int32, as `windows.cut_windows` cuts each.

    `stride` is at most `size`.

    Returns:
      [V, (pieces)] int32 windows, and how many each text has, [B] int32.
    """
    lengths = tf.cast(ids.row_lengths(), tf.int32)  # [B]
    counts = 1 + tf.maximum(lengths - size + stride - 1, 0) // stride
    before = tf.cast(ids.row_starts(), tf.int32)
    starts = stride * tf.ragged.range(counts)  # [B, (windows)]
    ends = tf.minimum(starts + size, lengths[:, tf.newaxis])
    starts, ends = (x + before[:, tf.newaxis] for x in (starts, ends))
    places = tf.ragged.range(starts.flat_values, ends.flat_values)
    return tf.gather(ids.flat_values, places), counts


def find_best(ids, pieces, counts, size: int, stride: int) -> tuple:
    """Finds the window with most context, like `windows.find_max_context`.

    Args:
      ids: [B, (P)] int32, the pieces of the texts.
      pieces: [W] int32, indices of pieces among those of all texts.
      counts: from `cut_windows`.
      size: maximum number of pieces of a window.
      stride: number of pieces between the starts of two windows, at most
        `size`.

    Returns:
      [W] int32 the window of each of `pieces`, of V, and its position there.
    """
    rows = tf.gather(ids.value_rowids(), pieces)  # [W]
    splits = tf.cast(ids.row_splits, tf.int32)
    place = pieces - tf.gather(splits, rows)  # In the text.
    length = tf.gather(splits[1:] - splits[:-1], rows)
    # The windows that begin at the piece or before, and may reach it, in order.
    most = math.ceil(size / stride)
    number = place[:, tf.newaxis] // stride - tf.range(most)[::-1]
    start = number * stride  # [W, windows]
    end = tf.minimum(start + size, length[:, tf.newaxis])
    place = place[:, tf.newaxis]
    context = tf.minimum(place - start, end - 1 - place)
    score = tf.cast(context, tf.float64) + 0.01 * tf.cast(
        end - start, tf.float64
    )
    count = tf.gather(counts, rows)[:, tf.newaxis]
    is_valid = (number >= 0) & (number < count) & (context >= 0)
    score = tf.where(is_valid, score, -math.inf)
    best = tf.argmax(score, axis=1, output_type=tf.int32)[:, tf.newaxis]
    number, start = (
        tf.gather(x, best, batch_dims=1)[:, 0] for x in (number, start)
    )
    first = tf.gather(tf.cumsum(counts, exclusive=True), rows)
    return first + number, place[:, 0] - start
