"""Encoded examples: concatenated token sequences, and a cache on disk.

Shapes: N examples, R sequences, S tokens in all sequences, T tokens.
"""

import contextlib
import dataclasses
import functools
import hashlib
import io
import json
import logging
import os
import zipfile
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from albert_tf import filesystem, ownership, progress
from albert_tf.text import tokenization

# Part of the cache key; increase it when the meaning of the values changes.
FORMAT = 4
# Of a token that has no label.
NO_LABEL = -1
# Texts per call of the tokenizer; progress is shown between calls.
TEXTS_PER_CALL = 4096

_STORED = ("ids", "lengths", "first_lengths", "num_choices", "truncation")
# In a file, the names of these arrays begin so.
_PREFIXES = {
    "array": "arrays",
    "token": "token_arrays",
    "label": "token_labels",
}
# Exceptions that zipfile and NumPy raise on damaged files.
_DAMAGE = (ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile)


@dataclasses.dataclass(frozen=True)
class Examples:
    """Concatenated token sequences of N examples, and arrays aligned to them.

    Attributes:
      ids: [S] int32, the tokens of all sequences, including [CLS] and [SEP].
      lengths: [R] int32, tokens in each of the R = N * num_choices sequences.
      first_lengths: [R] int32, tokens of segment 0 in each sequence.
      arrays: dict of name -> [N, ...] array, such as `label_ids`.
      num_choices: sequences per example.
      token_arrays: dict of name -> [S, ...] array, for decoding outputs; not
        model inputs.
      token_labels: dict of name -> [S] int32 array, model inputs as `ids` are;
        NO_LABEL is for tokens without one, and for padding.
      truncation: a sentence on how many texts were truncated; "" if none was.

    Example:
      >>> ids, lengths = np.array([2, 7, 3, 2, 8, 9, 3]), np.array([3, 4])
      >>> two = Examples(ids, lengths, lengths, {"label_ids": np.array([0, 1])})
      >>> pad_examples(two, [0], length=5)["input_ids"]
      array([[2, 7, 3, 0, 0]], dtype=int32)
    """

    ids: np.ndarray
    lengths: np.ndarray
    first_lengths: np.ndarray
    arrays: dict[str, np.ndarray]
    num_choices: int = 1
    token_arrays: dict[str, np.ndarray] = dataclasses.field(
        default_factory=dict
    )
    token_labels: dict[str, np.ndarray] = dataclasses.field(
        default_factory=dict
    )
    truncation: str = ""

    def __post_init__(self):
        sizes = {name: len(values) for name, values in self.arrays.items()}
        num_sequences = len(self.lengths)
        per_token = [*self.token_arrays.values(), *self.token_labels.values()]
        if (
            self.lengths.sum() != len(self.ids)
            or len(self.first_lengths) != num_sequences
            or num_sequences % self.num_choices
            or set(sizes.values()) - {len(self)}
            or {len(values) for values in per_token} - {len(self.ids)}
        ):
            raise ValueError(
                f"{num_sequences} sequences with {self.lengths.sum()} tokens "
                f"in total, {self.num_choices} per example, do not match "
                f"{len(self.ids)} ids and arrays of sizes {sizes}."
            )

    def __len__(self) -> int:
        return len(self.lengths) // self.num_choices

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """The offset of each sequence in `ids`, [R]."""
        return np.cumsum(self.lengths) - self.lengths


def pack_pairs(
    tokenizer: tokenization.Tokenizer,
    texts_a: Sequence[str],
    texts_b: Sequence[str | None] | None,
    max_seq_length: int,
) -> Examples:
    """Encodes texts, or pairs of texts, as [CLS] A [SEP] (B [SEP]).

    Truncation removes the last token of the longer text until both fit; if
    they are equally long, of the second one.

    There are R texts of each kind. A second text of None or without tokens,
    such as "" or " ", is absent, as all are for `texts_b=None`.

    Returns:
      Examples without arrays.

    Raises:
      ValueError: if max_seq_length leaves no room for a token.

    Source: classifier_utils.py, `convert_single_example`.
    """
    if max_seq_length < 3:
        raise ValueError(
            f"max_seq_length={max_seq_length}; wanted at least 3, for [CLS], "
            "a token and [SEP]."
        )
    if texts_b is None:
        texts_b = [None] * len(texts_a)
    rows_a = encode_texts(tokenizer, texts_a)
    rows_b = encode_texts(tokenizer, [text or "" for text in texts_b])

    def pairs():
        for a, b in zip(rows_a, rows_b, strict=True):
            limit = max_seq_length - (3 if b else 2)
            num_a, num_b = tokenization.cut_pair(len(a), len(b), limit)
            yield (
                [tokenizer.cls_id, *a[:num_a], tokenizer.sep_id],
                [*b[:num_b], tokenizer.sep_id] if num_b else [],
            )

    num_tokens = [
        len(a) + len(b) + (3 if b else 2)
        for a, b in zip(rows_a, rows_b, strict=True)
    ]
    truncation = describe_truncation("examples", num_tokens, max_seq_length)
    return Examples(*join_pairs(pairs()), {}, truncation=truncation)


def describe_truncation(what: str, num_tokens, limit: int) -> str:
    """Returns a sentence on which of `what` are longer than `limit`, or "".

    `num_tokens` [R] are their tokens before truncation.
    """
    num_tokens = np.asarray(num_tokens)
    if not (num_cut := int((num_tokens > limit).sum())):
        return ""
    return (
        f"{num_cut:,} of {len(num_tokens):,} {what} are truncated to {limit} "
        f"tokens; their median length is {np.median(num_tokens):.0f}, the "
        f"longest has {num_tokens.max():,}."
    )


def encode_texts(tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Returns the ids of each text, and shows progress."""
    done = progress.Progress("tokenizing", len(texts), "texts")
    rows: list[list[int]] = []
    for start in range(0, len(texts), TEXTS_PER_CALL):
        some = texts[start : start + TEXTS_PER_CALL]
        rows += tokenizer.encode_batch(some, num_threads=os.cpu_count() or 1)
        done.add(len(some))
    done.clear()
    return rows


def join_pairs(pairs: Iterable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Concatenates R pairs of id lists (segments 0 and 1).

    Returns:
      ids [S], lengths [R] and first_lengths [R], as in `Examples`.
    """
    ids: list[np.ndarray] = [np.zeros(0, np.int32)]
    lengths, first_lengths = [], []
    for first, second in pairs:
        ids.append(np.array([*first, *second], np.int32))
        lengths.append(len(ids[-1]))
        first_lengths.append(len(first))
    return (
        np.concatenate(ids),
        np.array(lengths, np.int32),
        np.array(first_lengths, np.int32),
    )


def pad_examples(
    examples: Examples, indices, length: int
) -> dict[str, np.ndarray]:
    """Pads the examples of some indices [B] to a length of T tokens.

    Returns:
      Dict of `input_ids`, `input_mask`, `segment_ids` and
      `examples.token_labels`, [B, T] int32, or [B, C, T] for C > 1 choices;
      and the rows of `examples.arrays`.

    Raises:
      ValueError: if a sequence is longer than `length`.
    """
    num_choices = examples.num_choices
    indices = np.asarray(indices, np.int64)
    rows = (indices[:, None] * num_choices + np.arange(num_choices)).ravel()
    longest = examples.lengths[rows].max(initial=0)
    if longest > length:
        raise ValueError(
            f"A sequence has {longest} tokens; wanted at most {length}. Was "
            "it encoded for another max_seq_length?"
        )
    positions = np.arange(length)
    is_token = positions < examples.lengths[rows, None]  # [B * C, T]
    is_second = positions >= examples.first_lengths[rows, None]
    where = np.minimum(
        examples.starts[rows, None] + positions, len(examples.ids) - 1
    )
    shape: tuple[int, ...] = (len(indices), num_choices, length)
    if num_choices == 1:
        shape = (len(indices), length)

    def pad(values, padding):
        padded = np.full((len(rows), length), padding, np.int32)
        padded[is_token] = values[where][is_token]
        return padded.reshape(shape)

    return {
        "input_ids": pad(examples.ids, 0),
        "input_mask": is_token.astype(np.int32).reshape(shape),
        "segment_ids": (is_token & is_second).astype(np.int32).reshape(shape),
        **{n: pad(v, NO_LABEL) for n, v in examples.token_labels.items()},
        **{name: values[indices] for name, values in examples.arrays.items()},
    }


def cached_examples(
    folder: filesystem.Path | None,
    name: str,
    parts: Iterable,
    build: Callable[[], Examples],
) -> Examples:
    """Reads examples from the cache, or builds and caches them.

    Logs how many are truncated. `parts` are everything that determines the
    examples, JSON-serializable, `name` the start of the file's name. Nothing is
    cached if `folder` is None.
    """
    path = examples = None
    if folder:
        key = hashlib.sha256(json.dumps([FORMAT, *parts]).encode()).hexdigest()
        path = os.path.join(folder, f"{name}-{key[:16]}.npz")
        examples = _read_examples(path)
    if examples is None:
        examples = build()
        if path:
            _write_examples(path, examples)
    if examples.truncation:
        logging.warning("%s: %s", name, examples.truncation)
    return examples


def _write_examples(path, examples):
    arrays = {
        f"{prefix}/{name}": values
        for prefix, field in _PREFIXES.items()
        for name, values in getattr(examples, field).items()
    }
    values: dict = {
        "num_arrays": len(arrays),
        **{name: getattr(examples, name) for name in _STORED},
        **arrays,
    }
    content = io.BytesIO()
    np.savez(content, **values)
    # If another run is writing the same file, this one need not.
    with contextlib.suppress(BlockingIOError), ownership.owning(path):
        filesystem.write_file(path, content.getvalue())


def _read_examples(path):
    """Returns the examples in a file; None if absent or damaged."""
    if not filesystem.exists(path):
        return None
    try:
        values = dict(np.load(io.BytesIO(filesystem.read_file(path))))
        stored: dict = {field: {} for field in _PREFIXES.values()}
        for name, array in values.items():
            prefix, _, rest = name.partition("/")
            if rest:
                stored[_PREFIXES[prefix]][rest] = array
        # A damaged zip directory may list too few arrays.
        num_arrays = sum(map(len, stored.values()))
        if num_arrays != values["num_arrays"]:
            raise ValueError(f"{num_arrays} of {values['num_arrays']} arrays")
        stored |= {name: values[name] for name in _STORED}
        for name in ("num_choices", "truncation"):
            stored[name] = stored[name].item()
        return Examples(**stored)
    except _DAMAGE as error:
        logging.warning("%s is damaged (%s); encoding again.", path, error)
        return None
