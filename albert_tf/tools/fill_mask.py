"""Lets a pretrained model guess the words that stand as [MASK] in a text.

    python -m albert_tf.tools.fill_mask --init_checkpoint=out \
        --spm_model_file=30k-clean.model --text="The cat [MASK] on the mat."

prints the text and, for each [MASK], the most probable pieces.
"""

import dataclasses
import os

import numpy as np
import tensorflow as tf

from albert_tf import checkpoints, flags, heads, modeling, tokenization
from albert_tf.config import AlbertConfig

MASK = "[MASK]"
WORD_PREFIX = "▁"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FillMaskFlags:
    """A model and a text with gaps."""

    text: str = flags.flag(
        required=True, help="Texts with [MASK] in them, one a line."
    )
    init_checkpoint: str = flags.flag(
        required=True, help="Checkpoint: prefix, .index file or folder."
    )
    albert_config_file: str | None = flags.flag(
        help="JSON file with the architecture. Default: albert_config.json "
        "beside the checkpoint."
    )
    spm_model_file: str | None = flags.flag(
        help="SentencePiece model; this or --vocab_file."
    )
    vocab_file: str | None = flags.flag(help="WordPiece vocabulary.")
    do_lower_case: bool = flags.flag(True, "Whether to lower-case the text.")
    top_k: int = flags.flag(5, "Guesses for each [MASK].")


def run(args):
    """Prints each text and, below it, the guesses for each [MASK]."""
    prefix = checkpoints.find_checkpoint(args.init_checkpoint)
    config = AlbertConfig.from_json_file(
        args.albert_config_file
        or os.path.join(os.path.dirname(prefix), "albert_config.json")
    )
    tokenizer = tokenization.build_tokenizer(
        spm_model_file=args.spm_model_file,
        vocab_file=args.vocab_file,
        do_lower_case=args.do_lower_case,
    )
    if tokenizer.vocab_size != config.vocab_size:
        raise ValueError(
            f"The vocabulary has {tokenizer.vocab_size} pieces, the model "
            f"{config.vocab_size}. Was it trained with another vocabulary?"
        )
    model = heads.AlbertForPreTraining(config)
    checkpoints.restore(
        modeling.named_weights(model),
        checkpoints.read_checkpoint(prefix),
        prefix,
    )
    texts = [line for line in args.text.splitlines() if line.strip()]
    all_guesses = fill_masks(model, tokenizer, texts, args.top_k)
    for text, guesses in zip(texts, all_guesses, strict=True):
        print(text)
        for row in guesses:
            words = [f"{w.replace(WORD_PREFIX, '')} {p:.0%}" for w, p in row]
            print("   ", ", ".join(words))


def fill_masks(model, tokenizer, texts, top_k):
    """Guesses the piece at each [MASK].

    Args:
      model: a `heads.AlbertForPreTraining`.
      tokenizer: a `tokenization.Tokenizer` of the model's vocabulary.
      texts: strings that contain [MASK].
      top_k: guesses for each.

    Returns:
      For each text, for each [MASK] in it, `top_k` pairs of a piece and its
      probability, the most probable first.

    Raises:
      ValueError: if a text has no [MASK].
    """
    rows = [encode_masked(tokenizer, text) for text in texts]
    gaps = [np.flatnonzero(np.equal(r, tokenizer.mask_id)) for r in rows]
    for text, gap in zip(texts, gaps, strict=True):
        if not gap.size:
            raise ValueError(f"There is no {MASK} in the text {text!r}.")
    input_ids = pad(rows, tokenizer.pad_id)
    features = {
        "input_ids": input_ids,
        "input_mask": pad([np.ones_like(row) for row in rows], 0),
        "segment_ids": np.zeros_like(input_ids),
        "masked_lm_positions": pad(gaps, 0),
    }
    features = {k: tf.constant(v, tf.int32) for k, v in features.items()}
    logits = model(features)["masked_lm_logits"]  # [B, P, V]
    best = tf.math.top_k(tf.nn.softmax(logits), top_k)  # [B, P, top_k]
    probs, ids = best.values.numpy(), best.indices.numpy()
    return [
        [
            [
                (tokenizer.pieces[i], float(p))
                for p, i in zip(*pair, strict=True)
            ]
            for pair in zip(probs[row, : gap.size], ids[row], strict=False)
        ]
        for row, gap in enumerate(gaps)
    ]


def encode_masked(tokenizer, text):
    """The ids of [CLS], a text in which [MASK] is the special piece, [SEP]."""
    ids = [tokenizer.cls_id]
    for number, part in enumerate(text.split(MASK)):
        if number:
            ids.append(tokenizer.mask_id)
        encoded = tokenizer.encode(part)
        # "[MASK]." has no space where SentencePiece puts one.
        is_glued = number and part[:1].strip()
        if is_glued and tokenizer.pieces[encoded[0]] == WORD_PREFIX:
            del encoded[0]
        ids += encoded
    return [*ids, tokenizer.sep_id]


def pad(rows, value):
    """[B, T] of rows, each filled up with `value` to the longest one's T."""
    padded = np.full((len(rows), max(map(len, rows))), value)
    for row, ids in zip(padded, rows, strict=True):
        row[: len(ids)] = ids
    return padded


if __name__ == "__main__":
    flags.launch(run, FillMaskFlags)
