"""Chooses n-grams of words to predict and masks them, a batch at a time.

The release masks one sequence at a time: it visits the words in random order
and masks the n-gram that starts at each word, until enough tokens are masked.
Order matters within a sequence but not between sequences. This implementation
is vectorized: step k visits the k-th word of every sequence in the batch, and
sequences with enough masked tokens drop out.

Shapes: N sequences, T tokens, W words (of the longest), P predictions.
"""

import dataclasses

import numpy as np

from albert_tf.data.pretraining import draws, rules

# Few words of text with spaces have more tokens.
MAX_WORD_TOKENS = 10


def budget_of(rule: rules.MaskingRule, num_tokens: np.ndarray) -> np.ndarray:
    """Returns how many tokens to mask in sequences of so many, [N]."""
    wanted = np.rint(num_tokens * rule.masked_lm_prob).astype(np.int64)
    return np.clip(wanted, 1, rule.max_predictions)


@dataclasses.dataclass(frozen=True)
class Words:
    """The words of each sequence; padded with 0.

    Words and n-grams do not cross the end of a segment.

    Attributes:
      index: [N, T], index of the word that contains each token.
      first: [N, W], position of the word's first token.
      end: [N, W], position after the word's last token.
      last: [N, W], index of the last word in the word's segment.
      count: [N], number of words.
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
      is_start: [N, T], whether a word starts at the token. The first token of
        a segment always starts a word.

    Source: create_pretraining_data.py, `create_masked_lm_predictions`, where
    words and n-grams could cross [SEP].
    """
    padded = np.pad(is_maskable, ((0, 0), (1, 1)))
    before, after = padded[:, :-2], padded[:, 2:]  # [N, T] each
    starts = is_maskable & (is_start | ~before)  # [N, T]
    # No word stops at the last position, so the wrap-around of roll is safe.
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


def choose_ngrams(
    words: Words, budget, is_taken, rule: rules.MaskingRule, source: draws.Draws
):
    """Chooses n-grams in each sequence until its token budget is spent.

    Words are visited in random order. At each word, the n-gram length n is
    drawn. An n-gram that exceeds the remaining budget is shortened; one that
    overlaps a chosen word is skipped.

    Args:
      words: the words of each sequence.
      budget: [N], maximum number of tokens to choose.
      is_taken: [N, W], words that must not be chosen.
      rule: which n-grams.
      source: the random numbers.

    Returns:
      [N, W], true for chosen words.
    """
    for_order, for_lengths = source.split(2)
    num_rows, num_words = words.first.shape
    rows, columns = np.arange(num_rows), np.arange(num_words)
    max_n = min(rule.ngram, num_words)
    # Extra columns after the last word avoid a bounds check.
    width = num_words + max_n
    taken = np.pad(is_taken, ((0, 0), (0, max_n))).reshape(-1)
    order = for_order.uniform(rows[:, None], columns)  # [N, W]
    order[columns >= words.count[:, None]] = 2
    order = order.argsort(axis=1)
    cumulative = _cumulative_ngram_probs(rule)
    first, end, last = (
        values.reshape(-1) for values in (words.first, words.end, words.last)
    )
    remaining = np.array(budget)
    for step in range(num_words):
        rows = rows[(remaining[rows] > 0) & (words.count[rows] > step)]
        if not len(rows):
            break
        row_budget = remaining[rows]
        word = order[rows, step]
        at = rows * num_words + word
        draw = for_lengths.uniform(rows, step)
        n = np.searchsorted(cumulative, draw, "right") + 1
        more = np.minimum(n - 1, last[at] - word)  # words after the first
        size = end[at + more] - first[at]
        # An n-gram cut at the end of its segment would be retried unchanged;
        # dropping a word from the cut n-gram has the same result.
        while (is_long := (size > row_budget) & (more > 0)).any():
            more = more - is_long
            size = end[at + more] - first[at]
        at = rows * width + word
        is_free = size <= row_budget
        for i in range(max_n):
            is_free &= (i > more) | ~taken[at + i]
        for i in range(max_n):
            taken[at[is_free & (i <= more)] + i] = True
        remaining[rows] -= size * is_free
    return taken.reshape(num_rows, width)[:, :num_words] & ~is_taken


def _cumulative_ngram_probs(rule):
    probs = 1 / np.arange(1, rule.ngram + 1)
    if not rule.favor_shorter_ngram:
        probs = probs[::-1]
    # Without the last bound, which may round to less than 1: a draw above all
    # others selects the longest.
    return np.cumsum(probs / probs.sum())[:-1]


def mask_batch(
    input_ids,
    is_maskable,
    is_start,
    rule: rules.MaskingRule,
    vocabulary,
    source: draws.Draws,
):
    """Masks a batch.

    Args:
      input_ids: [N, T]. Not modified.
      is_maskable: [N, T], false for special tokens and padding.
      is_start: [N, T], whether a word starts at the token; ignored without
        whole-word masking.
      rule: the `rules.MaskingRule`.
      vocabulary: (id of [MASK], array of ids that may replace a token).
      source: the random numbers.

    Returns:
      A dict of `input_ids` [N, T] and of `masked_lm_positions`,
      `masked_lm_ids`, `masked_lm_weights` [N, P], in the order of positions
      and padded with 0.

    Source: create_pretraining_data.py, `create_masked_lm_predictions`. Of the
    chosen tokens 80% become [MASK], 10% are kept, and 10% are replaced at
    random; each token is drawn independently, even within a word. The
    release's replacements could be special tokens.
    """
    if not rule.do_whole_word_mask:
        is_start = np.ones_like(is_maskable)
    for_ngrams, for_fates, for_others, for_shuffle = source.split(4)
    # As in the release, [CLS] and both [SEP] count as tokens.
    budget = budget_of(rule, is_maskable.sum(axis=1) + 3)  # [N]
    words = find_words(is_maskable, is_start)
    words = _divide_long(words, budget, is_maskable)
    nothing = np.zeros(words.first.shape, bool)
    chosen = choose_ngrams(words, budget, nothing, rule, for_ngrams)
    is_predicted = _tokens_of(chosen, words, is_maskable)
    output_ids = input_ids.copy()
    _replace(output_ids, is_predicted, vocabulary, for_fates)
    if rule.do_permutation:
        others = choose_ngrams(words, budget, chosen, rule, for_others)
        is_permuted = _tokens_of(others, words, is_maskable)
        _permute(output_ids, is_permuted, for_shuffle)
        is_predicted |= is_permuted
    # Permuted tokens were not masked, so every label is the original token.
    return {"input_ids": output_ids} | _predictions(
        input_ids, is_predicted, rule.num_predictions
    )


def _divide_long(words, budget, is_maskable):
    """Divides words that could never be masked into their tokens.

    The release masks nothing of a word that is longer than the budget. We do
    the same, unless the word is longer than those of text with spaces, or
    there is no other word to mask.
    """
    size = words.end - words.first  # [N, W]
    is_word = size > 0
    fits = is_word & (size <= budget[:, None])
    most = np.maximum(budget, MAX_WORD_TOKENS)
    limit = np.where(fits.any(axis=1), most, budget)
    is_long = size > limit[:, None]  # [N, W]
    if not is_long.any():
        return words
    is_start = _tokens_of(is_long, words, is_maskable)
    rows, columns = np.nonzero(is_word)
    is_start[rows, words.first[rows, columns]] = True
    return find_words(is_maskable, is_start)


def _tokens_of(is_chosen, words, is_maskable):
    """Returns which tokens belong to chosen words, [N, T]."""
    return np.take_along_axis(is_chosen, words.index, axis=1) & is_maskable


def _replace(ids, is_predicted, vocabulary, source):
    mask_id, replacements = vocabulary
    for_fates, for_replacements = source.split(2)
    rows, columns = np.nonzero(is_predicted)
    draw = for_fates.uniform(rows, columns)
    is_masked = draw < 0.8
    ids[rows[is_masked], columns[is_masked]] = mask_id
    places = rows[draw >= 0.9], columns[draw >= 0.9]
    ids[places] = for_replacements.choice(replacements, *places)


def _permute(ids, is_permuted, source):
    """Shuffles the permuted tokens of each sequence among themselves."""
    rows, columns = np.nonzero(is_permuted)
    shuffled = np.lexsort((source.uniform(rows, columns), rows))
    ids[rows, columns] = ids[rows, columns[shuffled]]


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
