"""Prints the predictions for the [MASK] tokens of texts."""

from albert_tf.inference.masks import FillMask
from albert_tf.programs import models
from albert_tf.text import tokenization


def run(args):
    """Prints each text and, below it, the predictions for each [MASK]."""
    texts = models.pair_lines(args.text, args.next_text)
    fill_mask = FillMask(models.read_checkpoint(args))
    rows = [text if len(text) == 2 else text[0] for text in texts]
    answers = fill_mask(rows, top_k=args.top_k)
    for text, answer in zip(texts, answers, strict=True):
        print(" | ".join(text))
        for candidates in answer["masks"]:
            words = (f"{name(x)} {p:.0%}" for x, p in candidates.items())
            print("   ", ", ".join(words))
        if "in_order" in answer:
            print(f"    in order {answer['in_order']:.0%}")


def name(piece):
    """Returns a piece without the mark of a word, unless it is only that."""
    return piece.replace(tokenization.WORD_PREFIX, "") or piece
