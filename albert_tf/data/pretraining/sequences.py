"""Plans pretraining sequences as integers, then builds them in batches.

Each of the two segments of a sequence is contiguous in the token store, even
after truncation, which only removes tokens from the ends. A sequence is
therefore planned as a few integers; its tokens are gathered, masked and
serialized later, in batches of about a thousand sequences. Static records are
masked before they are written, dynamic ones when they are read.

Shapes: N sequences, T tokens, P predictions.
"""

import base64
import bisect
import dataclasses
import random

import numpy as np

from albert_tf.data.pretraining import corpus, draws, masking, rules
from albert_tf.text import tokenization

PLAN = np.dtype(
    [
        ("a_start", np.int64),
        ("b_start", np.int64),
        ("a_length", np.uint16),
        ("b_length", np.uint16),
        ("label", np.uint8),
        ("is_short", np.uint8),
    ]
)


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The properties of a tokenizer that building sequences requires.

    Attributes:
      cls_id, sep_id, mask_id: special tokens.
      num_pieces: V.
      is_word_start: [V], whether the token starts a word; [2 V] for ids of a
        `spaced_words.SpacedTokenizer`.
      replacement_ids: tokens that may replace a masked one; none is special.
    """

    cls_id: int
    sep_id: int
    mask_id: int
    num_pieces: int
    is_word_start: np.ndarray
    replacement_ids: np.ndarray

    @classmethod
    def from_tokenizer(cls, tokenizer: tokenization.Tokenizer) -> "Vocabulary":
        return cls(
            tokenizer.cls_id,
            tokenizer.sep_id,
            tokenizer.mask_id,
            len(tokenizer.pieces),
            tokenizer.is_word_start,
            np.setdiff1d(
                np.arange(len(tokenizer.pieces)), tokenizer.special_ids
            ),
        )

    @classmethod
    def from_json(cls, values: dict) -> "Vocabulary":
        """Reads what `to_json` returned; ValueError if it does not fit."""
        try:
            size, special_ids = values["vocab_size"], values["special_ids"]
            packed = base64.b64decode(values["word_starts"], validate=True)
            num_ids = size if len(packed) <= -(-size // 8) else 2 * size
            bits = np.unpackbits(np.frombuffer(packed, np.uint8), count=num_ids)
            cls_id, sep_id, mask_id = ids = [
                values[f"{name}_id"] for name in ("cls", "sep", "mask")
            ]
            is_known = np.isin([*ids, *special_ids], np.arange(size))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"the vocabulary lacks a value, or it is damaged: {error!r}"
            ) from error
        if not is_known.all() or len(packed) != -(-num_ids // 8):
            raise ValueError(f"the vocabulary does not have {size} pieces")
        replacement_ids = np.setdiff1d(np.arange(size), special_ids)
        is_start = bits.astype(bool)
        return cls(cls_id, sep_id, mask_id, size, is_start, replacement_ids)

    def to_json(self) -> dict:
        """Returns the properties as JSON values; the starts as packed bits."""
        pieces = np.arange(self.num_pieces)
        packed = np.packbits(self.is_word_start).tobytes()
        return {
            "vocab_size": len(pieces),
            "cls_id": int(self.cls_id),
            "sep_id": int(self.sep_id),
            "mask_id": int(self.mask_id),
            "special_ids": np.setdiff1d(pieces, self.replacement_ids).tolist(),
            "word_starts": base64.b64encode(packed).decode(),
        }


def plan_documents(
    store, documents, rule: rules.SequenceRule, is_word_start, seed: str
):
    """Plans the sequences of some documents.

    Sentences are collected into a chunk until it reaches the target length.
    The chunk is split between two sentences or, if it is a single sentence,
    between two words. A single word at the end of a document is dropped. For
    NSP, half of the second segments come from another document, and the
    sentences they replace are used again.

    Args:
      store: where the documents are.
      documents: their indices.
      rule: settings of the sequences.
      is_word_start: [V], as in `Vocabulary`.
      seed: any string.

    Returns:
      plan: [N] of type PLAN.
      num_dropped: number of single words that were dropped.

    Source: create_pretraining_data.py, `create_instances_from_document`, which
    paired a single sentence with a random one from another document, with
    label 1.
    """
    planner = _Planner(store, rule, is_word_start, random.Random(seed))
    rows = [row for d in documents for row in planner.plan(d)]
    return np.array(rows, PLAN), planner.num_dropped


class _Planner:
    """Plans documents in order, with one random number generator.

    A segment is a pair (start, end) of offsets in the token store.
    """

    def __init__(self, store, rule, is_word_start, rng):
        self.store = store
        self.rule = rule
        self.is_word_start = is_word_start
        self.rng = rng
        self.num_dropped = 0

    def plan(self, document):
        """Yields the plan rows of a document."""
        rng, rule = self.rng, self.rule
        first, last = self.store.documents[document : document + 2].tolist()
        starts = self.store.sentences[first : last + 1].tolist()
        num_sentences = last - first
        is_short = rng.random() < rule.short_seq_prob
        target = (
            rng.randint(2, rule.max_tokens) if is_short else rule.max_tokens
        )
        i = 0
        while i < num_sentences:
            # The chunk is the sentences from i to j.
            j = bisect.bisect_left(starts, starts[i] + target, i + 1)
            j = min(j, num_sentences)
            if rule.sentence_objective == "nsp" and rng.random() < 0.5:
                j = self._split_sentence(i, j)
                a = starts[i], starts[j]
                b = self._random_segment(document, target - (a[1] - a[0]))
                yield *self._truncated(a, b), 1, is_short
            else:
                middle, j = self._middle(starts, i, j)
                if middle:
                    a, b = (starts[i], middle), (middle, starts[j])
                    is_swapped = (
                        rule.sentence_objective == "sop" and rng.random() < 0.5
                    )
                    if is_swapped:
                        a, b = b, a
                    yield *self._truncated(a, b), is_swapped, is_short
            i = j

    def _random_below(self, limit):
        # Takes half of the time of `randrange`.
        return int(self.rng.random() * limit)

    def _split_sentence(self, i, j):
        """Returns a random sentence at which to start the second segment."""
        return i + 1 + self._random_below(j - i - 1)

    def _middle(self, starts, i, j):
        """Returns where to split a chunk, and its end.

        A chunk of one word is extended by the next sentence.
        """
        if j - i == 1:
            ids = self.store.tokens.read([starts[i] + 1], [starts[j]])
            words = np.flatnonzero(self.is_word_start[ids])
            if len(words):
                word = words[self._random_below(len(words))]
                return starts[i] + 1 + int(word), j
            j += 1
            if j == len(starts):
                self.num_dropped += 1
                return None, j
        return starts[self._split_sentence(i, j)], j

    def _random_segment(self, document, num_tokens):
        """Returns sentences of another document, of at least `num_tokens`."""
        other = self._random_below(len(self.store.documents) - 2)
        other += other >= document
        first, last = self.store.documents[other : other + 2].tolist()
        sentences = self.store.sentences
        first += self._random_below(last - first)
        start = int(sentences[first])
        # A sentence has at least one token.
        last = min(last, first + max(1, num_tokens))
        ends = sentences[first + 1 : last + 1]
        index = int(np.searchsorted(ends, start + num_tokens))
        return start, int(ends[min(index, len(ends) - 1)])

    def _truncated(self, a, b):
        """Removes tokens from the longer segment until both fit.

        Equivalent to the release's loop, which removes one token at a time
        (from the second segment if both are equally long), from the front or
        the back with equal probability.
        """
        a_length, b_length = a[1] - a[0], b[1] - b[0]
        excess = a_length + b_length - self.rule.max_tokens
        if excess <= 0:
            return a[0], b[0], a_length, b_length
        difference = a_length - b_length
        from_both = max(0, excess - abs(difference))
        from_longer = excess - from_both
        from_a = from_both // 2 + (from_longer if difference > 0 else 0)
        from_b = excess - from_a
        a_front = self.rng.getrandbits(from_a).bit_count()
        b_front = self.rng.getrandbits(from_b).bit_count()
        return (
            a[0] + a_front,
            b[0] + b_front,
            a_length - from_a,
            b_length - from_b,
        )


def build_features(
    store: corpus.Store,
    plan: np.ndarray,
    sequence_rule: rules.SequenceRule,
    vocabulary: Vocabulary,
) -> dict:
    """Builds the features of planned sequences, without masks.

    Returns:
      A dict of `input_ids` [N, T], `segment_ends` [N, 2], the position after
      the [SEP] of each segment, and `next_sentence_labels` [N, 1].
    """
    lengths = np.stack([plan["a_length"], plan["b_length"]], axis=1)
    starts = np.stack([plan["a_start"], plan["b_start"]], axis=1)
    segment_ends = np.cumsum(lengths, axis=1, dtype=np.int64) + [2, 3]
    is_text, is_real, _ = _layout(segment_ends, sequence_rule.max_seq_length)
    input_ids = np.full(is_text.shape, vocabulary.sep_id, np.int32)
    input_ids[is_text] = store.tokens.read(
        starts.reshape(-1).tolist(), (starts + lengths).reshape(-1).tolist()
    )
    input_ids[:, 0] = vocabulary.cls_id
    input_ids[~is_real] = 0
    return {
        "input_ids": input_ids,
        "segment_ends": segment_ends,
        "next_sentence_labels": plan["label"][:, None],
    }


def mask_features(
    features: dict,
    masking_rule: rules.MaskingRule,
    vocabulary: Vocabulary,
    source: draws.Draws,
) -> dict:
    """Masks sequences by `input_ids` and `segment_ends` of `build_features`.

    Other features are kept.

    Returns:
      A dict of the release's features, [N, T], [N, P] or [N, 1].

    Source: create_pretraining_data.py, `write_instance_to_example_files`.
    """
    others = dict(features)
    input_ids = others.pop("input_ids")
    is_text, is_real, is_second = _layout(
        others.pop("segment_ends"), input_ids.shape[1]
    )
    is_start = vocabulary.is_word_start[input_ids]
    input_ids = input_ids % vocabulary.num_pieces
    masked = masking.mask_batch(
        input_ids,
        is_text,
        is_start,
        masking_rule,
        (vocabulary.mask_id, vocabulary.replacement_ids),
        source,
    )
    return {
        "input_ids": masked.pop("input_ids"),
        "input_mask": is_real,
        "segment_ids": is_second,
        "token_boundary": (is_start | ~is_text) & is_real,
        **masked,
        **others,
    }


def _layout(segment_ends, max_seq_length):
    """Returns which tokens are text, real, and of the second segment."""
    position = np.arange(max_seq_length)
    first_end, end = segment_ends[:, :1], segment_ends[:, 1:]
    is_text = (0 < position) & (position < end - 1)  # [N, T]
    is_text &= position != first_end - 1
    is_real = position < end
    return is_text, is_real, (position >= first_end) & is_real
