"""A naive second implementation of data creation, one token at a time.

`is_release` reproduces the release's behaviour including its faults, so that
the recorded statistics can be reproduced and the effect of a fault measured.
"""

import collections
import string

import numpy as np

from albert_tf.data.pretraining import sequences


def release_starts(pieces):
    """Where words start by the release's rule for SentencePiece."""
    special = set(string.punctuation) - set("'<=>")
    known = special | set(string.ascii_lowercase)
    return np.array(
        [
            piece[0] in "▁<"
            or piece in special
            or any(character.lower() not in known for character in piece)
            for piece in pieces
        ]
    )


def plan(store, rule, is_word_start, rng, is_release):
    """Sequences of all documents: rows of `pretraining.PLAN`."""
    rows = []
    for document in range(len(store.documents) - 1):
        plan_document(
            store, document, rule, is_word_start, rng, is_release, rows
        )
    return np.array(rows, sequences.PLAN)


def plan_document(store, document, rule, is_word_start, rng, is_release, rows):
    sentences = sentences_of(store, document)
    target, is_short = rule.max_tokens, False
    if rng.random() < rule.short_seq_prob:
        target, is_short = rng.randint(2, rule.max_tokens), True
    i = 0
    chunk, length = [], 0
    while i < len(sentences):
        chunk.append(sentences[i])
        length += sentences[i][1] - sentences[i][0]
        is_stuck = (
            not is_release
            and len(chunk) == 1
            and not middles(store, chunk[0], is_word_start)
        )
        i += 1
        if i < len(sentences) and (length < target or is_stuck):
            continue
        a_end = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
        a = [chunk[0][0], chunk[a_end - 1][1]]
        is_alone = is_release and len(chunk) == 1
        is_nsp = rule.sentence_objective == "nsp"
        if is_alone or (is_nsp and rng.random() < 0.5):
            b = random_segment(store, document, target - (a[1] - a[0]), rng)
            i -= len(chunk) - a_end
            label = 1
        else:
            if len(chunk) == 1:
                places = middles(store, chunk[0], is_word_start)
                if not places:
                    chunk, length = [], 0
                    continue
                a[1] = rng.choice(places)
            b = [a[1], chunk[-1][1]]
            label = int(not is_nsp and rng.random() < 0.5)
            if label:
                a, b = b, a
        while a[1] - a[0] + b[1] - b[0] > rule.max_tokens:
            longer = a if a[1] - a[0] > b[1] - b[0] else b
            if rng.random() < 0.5:
                longer[0] += 1
            else:
                longer[1] -= 1
        rows.append((a[0], b[0], a[1] - a[0], b[1] - b[0], label, is_short))
        chunk, length = [], 0


def sentences_of(store, document):
    first, last = store.documents[document : document + 2].tolist()
    starts = store.sentences[first : last + 1].tolist()
    return list(zip(starts[:-1], starts[1:], strict=True))


def middles(store, sentence, is_word_start):
    start, end = sentence
    inner = store.tokens.read([start + 1], [end])
    return (start + 1 + np.flatnonzero(is_word_start[inner])).tolist()


def random_segment(store, document, num_tokens, rng):
    other = document
    while other == document:
        other = rng.randrange(len(store.documents) - 1)
    sentences = sentences_of(store, other)
    first = rng.randrange(len(sentences))
    last = first
    while (
        last < len(sentences) - 1
        and sentences[last][1] - sentences[first][0] < num_tokens
    ):
        last += 1
    return [sentences[first][0], sentences[last][1]]


def mask(ids, is_text, is_start, rule, vocabulary, rng, is_release):
    """Masks one sequence [T]; returns its new ids and the predicted places."""
    mask_id, replacements = vocabulary
    words = group_words(is_text, is_start, rule, is_release)
    ngrams = []
    for i, (segment, _) in enumerate(words):
        ngram = []
        for n in range(1, rule.ngram + 1):
            part = words[i : i + n]
            if not is_release:
                part = [word for word in part if word[0] == segment]
            ngram.append([index for _, word in part for index in word])
        ngrams.append(ngram)
    num_tokens = int(is_text.sum()) + 3
    budget = min(
        rule.max_predictions, max(1, round(num_tokens * rule.masked_lm_prob))
    )
    masked = choose(ngrams, budget, set(), rule, rng)
    output = list(ids)
    for index in masked:
        if rng.random() < 0.8:
            output[index] = mask_id
        elif rng.random() < 0.5:
            output[index] = rng.choice(replacements)
    if not rule.do_permutation:
        return output, sorted(masked)
    others = sorted(choose(ngrams, budget, masked, rule, rng))
    tokens = [output[index] for index in others]
    rng.shuffle(tokens)
    for index, token in zip(others, tokens, strict=True):
        output[index] = token
    return output, sorted(masked | set(others))


def group_words(is_text, is_start, rule, is_release):
    """Words as (segment, positions); for the release they cross segments."""
    words, segment = [], 0
    for index in range(len(is_text)):
        if not is_text[index]:
            segment += 1
            continue
        if (
            not words
            or is_start[index]
            or not rule.do_whole_word_mask
            or (not is_release and words[-1][0] != segment)
        ):
            words.append((segment, [index]))
        else:
            words[-1][1].append(index)
    return words


def choose(ngrams, budget, avoided, rule, rng):
    weights = [1 / n for n in range(1, rule.ngram + 1)]
    if not rule.favor_shorter_ngram:
        weights.reverse()
    ngrams = list(ngrams)
    rng.shuffle(ngrams)
    chosen = set()
    for ngram in ngrams:
        if len(chosen) == budget:
            break
        (n,) = rng.choices(range(rule.ngram), weights)
        while n and len(chosen) + len(ngram[n]) > budget:
            n -= 1
        if len(chosen) + len(ngram[n]) > budget:
            continue
        if chosen.isdisjoint(ngram[n]) and avoided.isdisjoint(ngram[n]):
            chosen.update(ngram[n])
    return chosen


def naive_features(features, plan, rule, vocabulary, rng, is_release):
    """`features` masked again, by `mask`."""
    mask_id, is_start, replacements = vocabulary
    result = {name: values.copy() for name, values in features.items()}
    for name in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
        result[name][:] = 0
    originals = original_ids(features)
    for row, original in enumerate(originals):
        a_length, b_length = int(plan["a_length"][row]), plan["b_length"][row]
        is_text = np.zeros(len(original), bool)
        is_text[1 : a_length + 1] = True
        is_text[a_length + 2 : a_length + 2 + b_length] = True
        ids, places = mask(
            original,
            is_text,
            is_start[original],
            rule,
            (mask_id, replacements),
            rng,
            is_release,
        )
        result["input_ids"][row] = ids
        result["masked_lm_positions"][row, : len(places)] = places
        result["masked_lm_ids"][row, : len(places)] = original[places]
        result["masked_lm_weights"][row, : len(places)] = 1
    return result


def original_ids(features):
    """The ids before masking, [N, T]."""
    ids = np.array(features["input_ids"])
    rows, columns = np.nonzero(features["masked_lm_weights"])
    places = features["masked_lm_positions"][rows, columns]
    ids[rows, places] = features["masked_lm_ids"][rows, columns]
    return ids


def count(features, plan, is_start, mask_id, rule):
    """Histograms as in the recorded statistics: dict of name -> Counter."""
    counts = collections.defaultdict(collections.Counter)
    originals = original_ids(features)
    num_masked = features["masked_lm_weights"].sum(axis=1).astype(int)
    lengths = features["input_mask"].sum(axis=1)
    for row, original in enumerate(originals):
        places = features["masked_lm_positions"][row, : num_masked[row]]
        for place in places:
            token = features["input_ids"][row, place]
            fate = "MASK" if token == mask_id else "random"
            fate = "kept" if token == original[place] else fate
            counts["fate"][fate] += 1
        position = (20 * places / lengths[row]).astype(int)
        counts["position"].update(position.tolist())
        counts["masked"][int(num_masked[row])] += 1
        counts["tokens"]["masked"] += int(num_masked[row])
        counts["tokens"]["other"] += int(lengths[row] - num_masked[row])
        count_words(
            original, plan[row], set(places.tolist()), is_start, rule, counts
        )
    return counts


def count_words(original, row, places, is_start, rule, counts):
    """Counts masked words and runs; words are grouped as in the release."""
    a_length, b_length = int(row["a_length"]), int(row["b_length"])
    is_text = np.zeros(len(original), bool)
    is_text[1 : a_length + 1] = True
    is_text[a_length + 2 : a_length + 2 + b_length] = True
    words = group_words(is_text, is_start[original], rule, is_release=True)
    run = 0
    for _, word in words:
        num_masked = len(places.intersection(word))
        counts["partial"][0 < num_masked < len(word)] += 1
        if num_masked == len(word):
            counts["word"][len(word)] += 1
            run += 1
        elif run:
            counts["run"][run] += 1
            run = 0
    if run:
        counts["run"][run] += 1


def assert_same_distribution(found, wanted, name, sigmas=5, least=25):
    """Compares two histograms, value by value, as shares of their sums.

    Values that were seen fewer than `least` times are compared as one.
    """
    found = {str(key): value for key, value in found.items()}
    wanted = {str(key): value for key, value in wanted.items()}
    pairs = {"rare": (0, 0)}
    for key in sorted(found.keys() | wanted.keys()):
        pair = found.get(key, 0), wanted.get(key, 0)
        if sum(pair) < least:
            pair = np.add(pair, pairs["rare"])
            key = "rare"
        pairs[key] = pair
    totals = sum(found.values()), sum(wanted.values())
    for key, pair in pairs.items():
        share = sum(pair) / sum(totals)
        error = (share * (1 - share) * sum(1 / n for n in totals)) ** 0.5
        difference = pair[0] / totals[0] - pair[1] / totals[1]
        assert abs(difference) <= sigmas * error, (
            f"{name} {key}: {pair[0] / totals[0]:.4f}, not "
            f"{pair[1] / totals[1]:.4f}; {difference / error:.1f} sigma"
        )
