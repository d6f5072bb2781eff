"""Predicts the [MASK] tokens of texts with a pretrained model.

Shapes: B texts, P masks of a text, V vocab_size.
"""

import functools
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from albert_tf import filesystem
from albert_tf.data import examples, text_data
from albert_tf.inference import remarks
from albert_tf.model import heads
from albert_tf.text import tokenization
from albert_tf.training import manifest
from albert_tf.weights import pretrained

MASK = "[MASK]"
# Texts that are computed at once.
BATCH_SIZE = 32
SENTENCE_HEAD = "cls/seq_relationship"


class FillMask:
    r"""A pretrained model that predicts masked tokens.

    Args:
      model: what `read_pretrained` takes, such as the --output_dir of
        run_pretraining, or what it returns.

    Raises:
      ValueError: if the model has no vocabulary or no masked language model, as
        fine-tuned ones.

    Example:
      >>> from albert_tf import AlbertConfig, build_tokenizer, named_weights
      >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat".split()
      >>> size = open("vocab.txt", "w").write("\n".join(words))
      >>> config = AlbertConfig(
      ...     vocab_size=8, hidden_size=8, num_attention_heads=2)
      >>> random = named_weights(heads.AlbertForPreTraining(config))
      >>> fill_mask = FillMask(pretrained.Pretrained(
      ...     "random", {n: w.numpy() for n, w in random.items()}, config,
      ...     build_tokenizer(vocab_file="vocab.txt")))
      >>> [answer] = fill_mask(["the [MASK] sat"], top_k=3)
      >>> [len(candidates) for candidates in answer["masks"]]
      [3]
    """

    def __init__(self, model: filesystem.Path | pretrained.Pretrained):
        start = pretrained.complete(model)
        if start.head:
            raise ValueError(
                f"{start.source} has the head {start.head.kind!r}; wanted a "
                "pretrained model, such as the one that it was fine-tuned from."
            )
        self.tokenizer, self.source = start.tokenizer, start.source
        # Other packages' masked language models do not have this head.
        self.has_order = start.has_pooler and any(
            name.startswith(SENTENCE_HEAD) for name in start.values
        )
        self._remarks = remarks.Remarks()
        unused = () if self.has_order else (SENTENCE_HEAD, pretrained.POOLER)
        self.model = pretrained.build_model(
            lambda config: heads.AlbertForPreTraining(config, dtype="float32"),
            start,
            unused,
        )

    def __call__(self, texts: Iterable, *, top_k: int = 5) -> list[dict]:
        """Predicts each [MASK] of texts, or of pairs of a text and the next.

        An empty next text is none.

        Returns:
          A dict for each text, in order:

          masks: for each [MASK], a dict from the `top_k` most probable pieces
            to their probability, the most probable first.
          in_order: for a pair, the probability that the second text follows
            the first.

        Raises:
          ValueError: if `texts` is no list of texts or of pairs, a text that
            is no pair contains no [MASK], a text is longer than the model, or
            the model does not know the order of texts.
        """
        rows = [
            row if (row.text_b or "").strip() else row._replace(text_b=None)
            for row in text_data.make_rows(texts)
        ]
        if not rows:
            return []
        size = self.tokenizer.vocab_size
        if not 1 <= top_k <= size:
            raise ValueError(
                f"top_k={top_k}, but the vocabulary has {size} pieces; wanted "
                f"1 to {size}."
            )
        if any(row.text_b is not None for row in rows):
            self._check_order()
        texts = [x for row in rows for x in (row.text_a, row.text_b) if x]
        ids = [i for x in texts for i in encode_masked(self.tokenizer, x)]
        self._remarks.say_unknown(ids, self.tokenizer)
        described = []
        for first in range(0, len(rows), BATCH_SIZE):
            some = rows[first : first + BATCH_SIZE]
            masks, in_order = fill_masks(
                self.model,
                self.tokenizer,
                [row.text_a for row in some],
                top_k,
                [row.text_b for row in some],
                self.model.config.max_position_embeddings,
            )
            for row, candidates, probability in zip(
                some, masks, in_order, strict=True
            ):
                described.append({"masks": candidates})
                if row.text_b is not None:
                    described[-1]["in_order"] = probability
        return described

    def _check_order(self):
        """Checks that the model knows the order of texts, warns if unsure."""
        if not self.has_order:
            raise ValueError(
                f"{self.source} has no sentence-order head, as masked language "
                "models of other packages. Give texts without the next ones."
            )
        self._remarks.say("order", self.order_remark)

    @functools.cached_property
    def order_remark(self) -> str | None:
        """Says that the order of texts was not trained; None if it was."""
        folder = filesystem.folder_of(self.source)
        if not folder or manifest.read_setting(folder, "sentence_weight") != 0:
            return None
        return (
            f"{self.source} was trained with sentence_weight=0. Unless it "
            "began from a model that knows the order of texts, the probability "
            "that two are in order means nothing."
        )


def fill_masks(model, tokenizer, texts, top_k, next_texts, max_seq_length):
    """Predicts the piece at each [MASK].

    A text with the next one, if that is not None, has at most `max_seq_length`
    tokens.

    Returns:
      For each text, for each [MASK] in it, a dict from the `top_k` pieces to
      their probability, the most probable first; and for each text the
      probability that the second segment follows it.
    """
    firsts = [encode_masked(tokenizer, text) for text in texts]
    seconds = [
        [] if text is None else encode_masked(tokenizer, text)[1:]
        for text in next_texts
    ]
    pairs = list(zip(firsts, seconds, strict=True))
    masks = [
        np.flatnonzero(np.equal([*first, *second], tokenizer.mask_id)).tolist()
        for first, second in pairs
    ]
    for text, next_text, positions in zip(
        texts, next_texts, masks, strict=True
    ):
        if not positions and next_text is None:
            raise ValueError(f"There is no {MASK} in the text {text!r:.200}.")
    encoded = examples.Examples(*examples.join_pairs(pairs), {})
    for text, length in zip(texts, encoded.lengths, strict=True):
        if length > max_seq_length:
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
            {
                tokenizer.pieces[i]: p
                for i, p in zip(ids[row][mask], probs[row][mask], strict=True)
            }
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
