"""Predicts the [MASK] tokens of a text with a pretrained checkpoint."""

import logging

import numpy as np
import tensorflow as tf

from albert_tf import filesystem
from albert_tf.data import examples
from albert_tf.model import heads
from albert_tf.programs import models
from albert_tf.text import tokenization
from albert_tf.training import manifest

MASK = "[MASK]"


def run(args):
    """Prints each text and, below it, the predictions for each [MASK]."""
    texts, next_texts = (
        [line for line in (text or "").splitlines() if line.strip()]
        for text in (args.text, args.next_text)
    )
    if next_texts and len(next_texts) != len(texts):
        raise ValueError(
            f"--text has {len(texts)} lines, --next_text {len(next_texts)}; "
            "wanted one continuation per text."
        )
    if not texts:
        raise ValueError(f"--text={args.text!r:.80} contains no text.")
    # Other packages' masked language models do not have these weights.
    unused = [] if next_texts else ["cls/seq_relationship", "bert/pooler"]
    model, tokenizer = models.build(args, heads.AlbertForPreTraining, unused)
    if next_texts:
        check_sentence_head(args.init_checkpoint)
    if args.top_k > tokenizer.vocab_size:
        raise ValueError(
            f"--top_k={args.top_k}, but the vocabulary has "
            f"{tokenizer.vocab_size} pieces; wanted at most so many."
        )
    length = model.config.max_position_embeddings
    predictions, in_order = fill_masks(
        model, tokenizer, texts, args.top_k, next_texts, length
    )
    for row, text in enumerate(texts):
        print(" | ".join([text, *next_texts[row : row + 1]]))
        for candidates in predictions[row]:
            words = (
                f"{w.replace(tokenization.WORD_PREFIX, '')} {p:.0%}"
                for w, p in candidates
            )
            print("   ", ", ".join(words))
        if next_texts:
            print(f"    in order {in_order[row]:.0%}")


def check_sentence_head(checkpoint):
    """Warns if a model was trained without a sentence loss."""
    folder = filesystem.folder_of(checkpoint)
    if manifest.read_setting(folder, "sentence_weight") == 0:
        logging.warning(
            "%s was trained with --sentence_weight=0. Unless it began from a "
            "model that knows the order of texts, the probability that two are "
            "in order means nothing.",
            checkpoint,
        )


def fill_masks(
    model, tokenizer, texts, top_k, next_texts=(), max_seq_length=None
):
    """Predicts the piece at each [MASK].

    A text with the next one, if any, has at most `max_seq_length` tokens, or
    any number for None.

    Returns:
      For each text, for each [MASK] in it, `top_k` pairs of a piece and its
      probability, the most probable first; and for each text the probability
      that the second segment follows it.
    """
    firsts = [encode_masked(tokenizer, text) for text in texts]
    seconds = [encode_masked(tokenizer, text)[1:] for text in next_texts]
    pairs = list(zip(firsts, seconds or [[]] * len(firsts), strict=True))
    masks = [
        np.flatnonzero(np.equal([*first, *second], tokenizer.mask_id)).tolist()
        for first, second in pairs
    ]
    for text, positions in zip(texts, masks, strict=True):
        if not positions and not next_texts:
            raise ValueError(f"There is no {MASK} in the text {text!r:.200}.")
    encoded = examples.Examples(*examples.join_pairs(pairs), {})
    for text, length in zip(texts, encoded.lengths, strict=True):
        if max_seq_length and length > max_seq_length:
            raise ValueError(
                f"The text {text!r:.80} has {length} tokens, including [CLS] "
                f"and [SEP]; the model has {max_seq_length} positions. Shorten "
                "it."
            )
    rows = range(len(encoded))
    features = examples.pad_examples(encoded, rows, encoded.lengths.max())
    features = {name: tf.constant(x) for name, x in features.items()}
    padded = tf.ragged.constant(masks, tf.int32, 1).to_tensor()  # [B, P]
    outputs = model({**features, "masked_lm_positions": padded})
    probs = tf.nn.softmax(outputs["masked_lm_logits"])  # [B, P, V]
    best = tf.math.top_k(probs, top_k)  # [B, P, top_k]
    probs, ids = best.values.numpy().tolist(), best.indices.numpy().tolist()
    predictions = [
        [
            [
                (tokenizer.pieces[i], p)
                for i, p in zip(ids[row][mask], probs[row][mask], strict=True)
            ]
            for mask in range(len(positions))
        ]
        for row, positions in enumerate(masks)
    ]
    in_order = tf.nn.softmax(outputs["sentence_order_logits"])[:, 0]  # [B]
    return predictions, in_order.numpy().tolist()


def encode_masked(tokenizer, text):
    """Returns the ids of [CLS], a text with [MASK] as special piece, [SEP]."""
    ids = [tokenizer.cls_id]
    for number, part in enumerate(text.split(MASK)):
        if number:
            ids.append(tokenizer.mask_id)
        if number and part[:1].strip():
            ids += encode_glued(tokenizer, part)
        else:
            ids += tokenizer.encode(part)
    return [*ids, tokenizer.sep_id]


def encode_glued(tokenizer, text):
    """Returns the ids of text that follows [MASK] without a space."""
    if tokenizer.kind == "sentencepiece":
        # It prepends a space, but "[MASK]en" is not "[MASK] en". There is no
        # space after "(", if that is a piece of its own.
        before = tokenizer.encode("(")
        encoded = tokenizer.encode(f"({text}")
        if encoded[: len(before)] == before:
            return encoded[len(before) :]
    encoded = tokenizer.encode(text)
    # `encoded` may be empty: some characters have no token.
    if encoded and tokenizer.pieces[encoded[0]] == tokenization.WORD_PREFIX:
        del encoded[0]
    return encoded
