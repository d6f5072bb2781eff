"""Chooses n-grams of words to predict, and masks them, for a whole batch.

The release goes through one sequence after the other: it visits the words in
random order and masks, at each, an n-gram that begins there, until enough
tokens are masked. The order matters within a sequence, not between sequences,
so here step k treats the k-th word of all sequences of a batch at once; those
with enough tokens drop out.

Shapes: N sequences, T tokens, W words (of the longest), P predictions.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskingRule:
    """How much is masked, and in which units.

    Attributes:
      max_predictions: at most so many tokens of a sequence are masked.
      masked_lm_prob: share of its tokens, [CLS] and [SEP] counted.
      ngram: words of the longest n-gram.
      favor_shorter_ngram: whether p(n) ~ 1 / n, or the same reversed.
      do_whole_word_mask: whether words or single tokens are the unit.
      do_permutation: whether as many other tokens are shuffled and predicted.
    """

    max_predictions: int = 20
    masked_lm_prob: float = 0.15
    ngram: int = 3
    favor_shorter_ngram: bool = True
    do_whole_word_mask: bool = True
    do_permutation: bool = False

    @property
    def num_predictions(self) -> int:
        """Length of the lists of predictions."""
        return self.max_predictions * (2 if self.do_permutation else 1)


@dataclasses.dataclass(frozen=True)
class Words:
    """The words of each sequence; where there is none, the values are 0.

    A word, and an n-gram of words, ends at the latest where its segment does.

    Attributes:
      index: [N, T], the word that a token belongs to.
      first: [N, W], position of its first token.
      end: [N, W], position behind its last token.
      last: [N, W], the last word of its segment.
      count: [N].
    """

    index: np.ndarray
    first: np.ndarray
    end: np.ndarray
    last: np.ndarray
    count: np.ndarray


def find_words(is_maskable: np.ndarray, is_start: np.ndarray) -> Words:
    """Groups tokens into words.

    Args:
      is_maskable: [N, T], false for special tokens and padding. The last
        position of each sequence is special or padding.
      is_start: [N, T], whether a word starts there. The first token of a
        segment starts one in any case.

    Source: create_pretraining_data.py, `create_masked_lm_predictions`, where
    words and n-grams could reach across [SEP].
    """
    padded = np.pad(is_maskable, ((0, 0), (1, 1)))
    before, after = padded[:, :-2], padded[:, 2:]  # [N, T] each
    starts = is_maskable & (is_start | ~before)  # [N, T]
    # No word stops in the last position, so it may look at the first.
    stops = is_maskable & (~after | np.roll(starts, -1, axis=1))
    index = np.cumsum(starts, axis=1) - 1
    count = starts.sum(axis=1)

    rows, positions = np.nonzero(starts)
    words = index[rows, positions]
    shape = len(starts), count.max(initial=1)
    first = np.zeros(shape, np.int64)  # [N, W]
    first[rows, words] = positions
    # The k-th word stops at the k-th stop.
    _, positions = np.nonzero(stops)
    end = np.zeros(shape, np.int64)
    end[rows, words] = positions + 1
    is_last = np.zeros(shape, bool)
    is_last[rows, words] = ~after[rows, positions]
    last = np.where(is_last, np.arange(shape[1]), shape[1])
    last = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]
    return Words(np.maximum(index, 0), first, end, last, count)


def choose_ngrams(words: Words, budget, is_taken, rule: MaskingRule, rng):
    """Chooses n-grams in each sequence until its budget of tokens is spent.

    Words are visited in random order. At each, the number of words n is drawn;
    an n-gram that is too long for the rest of the budget gives way to a shorter
    one, and one that touches a chosen word is skipped.

    At most `budget` [N] tokens are chosen, and no word of `is_taken` [N, W].

    Returns:
      [N, W], true for chosen words.
    """
    num_rows, num_words = words.first.shape
    max_n = min(rule.ngram, num_words)
    # Columns behind the last word spare a check of the range.
    width = num_words + max_n
    taken = np.pad(is_taken, ((0, 0), (0, max_n))).reshape(-1)
    order = rng.random((num_rows, num_words))
    order[np.arange(num_words) >= words.count[:, None]] = 2
    order = order.argsort(axis=1)
    cumulative = _cumulative_ngram_probs(rule)
    first, end, last = (
        values.reshape(-1) for values in (words.first, words.end, words.last)
    )
    rows = np.arange(num_rows)
    left = np.array(budget)
    for step in range(num_words):
        rows = rows[(left[rows] > 0) & (words.count[rows] > step)]
        if not len(rows):
            break
        room = left[rows]
        word = order[rows, step]
        at = rows * num_words + word
        n = np.searchsorted(cumulative, rng.random(len(rows)), "right") + 1
        more = np.minimum(n - 1, last[at] - word)  # words beside the first
        size = end[at + more] - first[at]
        # A row that drew n words, but has fewer, would try the same words
        # again; taking one word less at once comes to the same.
        while (is_long := (size > room) & (more > 0)).any():
            more = more - is_long
            size = end[at + more] - first[at]
        at = rows * width + word
        is_free = size <= room
        for i in range(max_n):
            is_free &= (i > more) | ~taken[at + i]
        for i in range(max_n):
            taken[at[is_free & (i <= more)] + i] = True
        left[rows] -= size * is_free
    return taken.reshape(num_rows, width)[:, :num_words] & ~is_taken


def _cumulative_ngram_probs(rule):
    probs = 1 / np.arange(1, rule.ngram + 1)
    if not rule.favor_shorter_ngram:
        probs = probs[::-1]
    # The last one is left out: what lies above all others is the longest.
    return np.cumsum(probs / probs.sum())[:-1]


def mask_batch(
    input_ids, is_maskable, is_start, rule: MaskingRule, vocabulary, rng
):
    """Masks a batch.

    Args:
      input_ids: [N, T]. Not changed.
      is_maskable: [N, T], false for special tokens and padding.
      is_start: [N, T], whether a word starts there; not looked at without
        whole-word masking.
      rule: the `MaskingRule`.
      vocabulary: (id of [MASK], array of ids that may replace a token).
      rng: a `numpy.random.Generator`.

    Returns:
      A dict of `input_ids` [N, T] and of `masked_lm_positions`,
      `masked_lm_ids`, `masked_lm_weights` [N, P], in the order of positions
      and padded with 0.

    Source: create_pretraining_data.py, `create_masked_lm_predictions`. Of the
    chosen tokens 80% become [MASK], 10% stay, 10% are replaced at random, each
    for itself even within a word. The release's replacements could be special
    tokens.
    """
    if not rule.do_whole_word_mask:
        is_start = np.ones_like(is_maskable)
    words = find_words(is_maskable, is_start)
    length = is_maskable.sum(axis=1) + 3  # with [CLS] and two [SEP]
    wanted = np.rint(length * rule.masked_lm_prob).astype(np.int64)
    budget = np.clip(wanted, 1, rule.max_predictions)  # [N]
    nothing = np.zeros(words.first.shape, bool)
    chosen = choose_ngrams(words, budget, nothing, rule, rng)
    is_predicted = _tokens_of(chosen, words, is_maskable)
    output_ids = input_ids.copy()
    _replace(output_ids, is_predicted, vocabulary, rng)
    if rule.do_permutation:
        others = choose_ngrams(words, budget, chosen, rule, rng)
        is_permuted = _tokens_of(others, words, is_maskable)
        _permute(output_ids, is_permuted, rng)
        is_predicted |= is_permuted
    # Permuted tokens were not masked, so every label is the original token.
    return {"input_ids": output_ids} | _predictions(
        input_ids, is_predicted, rule.num_predictions
    )


def _tokens_of(is_chosen, words, is_maskable):
    """The tokens of chosen words, [N, T]."""
    return np.take_along_axis(is_chosen, words.index, axis=1) & is_maskable


def _replace(ids, is_predicted, vocabulary, rng):
    mask_id, replacements = vocabulary
    positions = np.flatnonzero(is_predicted)
    fate = rng.random(len(positions))
    ids = ids.reshape(-1)
    ids[positions[fate < 0.8]] = mask_id
    replaced = positions[fate >= 0.9]
    ids[replaced] = rng.choice(replacements, len(replaced))


def _permute(ids, is_permuted, rng):
    """Shuffles the permuted tokens of each sequence among themselves."""
    positions = np.flatnonzero(is_permuted)
    rows = positions // ids.shape[1]
    shuffled = np.lexsort((rng.random(len(rows)), rows))
    ids = ids.reshape(-1)
    ids[positions] = ids[positions[shuffled]]


def _predictions(input_ids, is_predicted, num_predictions):
    """Lists the predicted tokens of each sequence, [N, P]."""
    rows, positions = np.nonzero(is_predicted)
    counts = is_predicted.sum(axis=1)
    columns = np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]
    shape = len(input_ids), num_predictions
    lists = {
        "masked_lm_positions": np.zeros(shape, np.int32),
        "masked_lm_ids": np.zeros(shape, np.int32),
        "masked_lm_weights": np.zeros(shape, np.float32),
    }
    lists["masked_lm_positions"][rows, columns] = positions
    lists["masked_lm_ids"][rows, columns] = input_ids[rows, positions]
    lists["masked_lm_weights"][rows, columns] = 1
    return lists
