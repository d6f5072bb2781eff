"""Prints the predictions for the [MASK] tokens of texts."""

from albert_tf.inference.masks import FillMask
from albert_tf.programs import models
from albert_tf.text import tokenization


def run(args):
    """Prints each text and, below it, the predictions for each [MASK]."""
    texts, next_texts = (
        models.split_lines(text or "") for text in (args.text, args.next_text)
    )
    if next_texts and len(next_texts) != len(texts):
        raise ValueError(
            f"--text has {len(texts)} lines, --next_text {len(next_texts)}; "
            "wanted one continuation per text."
        )
    if not texts:
        raise ValueError(f"--text={args.text!r:.80} contains no text.")
    fill_mask = FillMask(models.read_checkpoint(args))
    rows = list(zip(texts, next_texts, strict=True)) if next_texts else texts
    for row, answer in zip(
        rows, fill_mask(rows, top_k=args.top_k), strict=True
    ):
        print(row if isinstance(row, str) else " | ".join(row))
        for candidates in answer["masks"]:
            words = (f"{name(x)} {p:.0%}" for x, p in candidates.items())
            print("   ", ", ".join(words))
        if "in_order" in answer:
            print(f"    in order {answer['in_order']:.0%}")


def name(piece):
    """Returns a piece without the mark of a word, unless it is only that."""
    return piece.replace(tokenization.WORD_PREFIX, "") or piece
