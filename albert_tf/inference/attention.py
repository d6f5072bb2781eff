"""Which tokens a model attends to.

Shapes: L layers, T tokens.
"""

import numpy as np
import tensorflow as tf

from albert_tf.data import examples
from albert_tf.inference import masks
from albert_tf.text import tokenization


def attend(
    model,
    tokenizer: tokenization.Tokenizer,
    text: str,
    next_text: str = "",
    *,
    max_length: int = 128,
) -> tuple[list[str], np.ndarray]:
    """Computes the attention of every token to every other.

    Args:
      model: an `AlbertEncoder`, or a model with one, such as the `model` of a
        `Classifier`.
      tokenizer: its tokenizer.
      text: text; [MASK] in it is the special token.
      next_text: second text, or "".
      max_length: maximum of T: memory grows with its square.

    Returns:
      The T tokens, and the attention probabilities [L, heads, T, T] float32:
      of a token (third axis) to the others (fourth).

    Raises:
      ValueError: if there are more tokens than `max_length`, or than the
        model has positions.
    """
    first = masks.encode_masked(tokenizer, text)
    second = masks.encode_masked(tokenizer, next_text)[1:] if next_text else []
    encoded = examples.Examples(*examples.join_pairs([(first, second)]), {})
    length = int(encoded.lengths[0])
    if length > max_length:
        raise ValueError(
            f"The text has {length} tokens; attention is shown for at most "
            f"{max_length}."
        )
    features = examples.pad_examples(encoded, [0], length)
    encoder = getattr(model, "encoder", model)
    names = "input_ids", "input_mask", "segment_ids"
    outputs = encoder(
        *(tf.constant(features[name]) for name in names), with_attention=True
    )
    probs = np.concatenate(outputs["all_attention_probs"])
    return [tokenizer.pieces[i] for i in [*first, *second]], probs
