"""Tests of masking.py: against a naive loop and the release's statistics."""

import collections
import gzip
import json
import random

import naive
import numpy as np
import pytest

from albert_tf.data.pretraining import draws, masking, rules, sequences
from tests.conftest import CARRIED

MASK, CLS, SEP = 4, 2, 3
REPLACEMENTS = np.arange(5, 31)
VOCABULARY = MASK, REPLACEMENTS
# Random numbers for static and for dynamic records, of so many rows.
SOURCES = {
    "in order": lambda count: draws.InOrder(np.random.default_rng(3)),
    "by position": lambda count: draws.ByPosition.of_records(
        3, np.arange(count)
    ),
}
of_sources = pytest.mark.parametrize("kind", SOURCES)
# Two segments; + begins a word. The second begins inside a word.
TOY_TEXT = " ++-+ -+--+ "


def toy_batch(num_rows):
    """The same sequence of 12 tokens many times."""
    is_maskable = np.array([mark != " " for mark in TOY_TEXT])
    is_start = np.array([mark == "+" for mark in TOY_TEXT])
    ids = np.where(is_maskable, np.arange(12) + 10, SEP)
    return tuple(
        np.tile(x, (num_rows, 1)) for x in (ids, is_maskable, is_start)
    )


def random_batch(rng, num_rows=300, num_tokens=41):
    """Sequences of different lengths, with words of different lengths."""
    position = np.arange(num_tokens)
    a = rng.integers(1, 12, [num_rows, 1])
    b = rng.integers(1, num_tokens - 15, [num_rows, 1])
    end = a + b + 2
    is_maskable = (position > 0) & (position < end) & (position != a + 1)
    ids = rng.integers(5, 31, is_maskable.shape)
    ids[~is_maskable] = SEP
    ids[:, 0] = CLS
    ids[position > end] = 0
    return ids, is_maskable, rng.random(ids.shape) < 0.6


@pytest.mark.parametrize("do_permutation", [False, True])
@pytest.mark.parametrize("favor_shorter_ngram", [False, True])
@pytest.mark.parametrize("do_whole_word_mask", [False, True])
@of_sources
def test_outcomes_are_as_frequent_as_in_a_naive_loop(
    kind, do_permutation, favor_shorter_ngram, do_whole_word_mask
):
    rule = rules.MaskingRule(
        max_predictions=4,
        masked_lm_prob=0.33,
        favor_shorter_ngram=favor_shorter_ngram,
        do_whole_word_mask=do_whole_word_mask,
        do_permutation=do_permutation,
    )
    num_rows = 6000
    ids, is_maskable, is_start = toy_batch(num_rows)
    masked = masking.mask_batch(
        ids, is_maskable, is_start, rule, VOCABULARY, SOURCES[kind](num_rows)
    )
    rng = random.Random(0)
    found, wanted = collections.Counter(), collections.Counter()
    for row in range(num_rows):
        count = int(masked["masked_lm_weights"][row].sum())
        places = masked["masked_lm_positions"][row, :count].tolist()
        found[str(places)] += 1
        _, places = naive.mask(
            ids[row],
            is_maskable[row],
            is_start[row],
            rule,
            VOCABULARY,
            rng,
            False,
        )
        wanted[str(places)] += 1
    assert len(wanted) > 9
    naive.assert_same_distribution(found, wanted, "places")


def test_words_end_with_their_segment():
    _, is_maskable, is_start = toy_batch(1)
    words = masking.find_words(is_maskable, is_start)
    count = words.count[0]
    spans = zip(words.first[0], words.end[0], strict=True)
    assert [(int(i), int(j)) for i, j in spans][:count] == [
        (1, 2),
        (2, 4),
        (4, 5),
        (6, 7),  # not joined to the word before [SEP]
        (7, 10),
        (10, 11),
    ]
    assert words.last[0, :count].tolist() == [2, 2, 2, 5, 5, 5]


@pytest.mark.parametrize("ngram", [1, 3, 7])
@pytest.mark.parametrize("do_permutation", [False, True])
@of_sources
def test_predictions_recover_the_original(kind, ngram, do_permutation):
    rng = np.random.default_rng(ngram)
    ids, is_maskable, is_start = random_batch(rng)
    rule = rules.MaskingRule(
        max_predictions=6,
        masked_lm_prob=0.2,
        ngram=ngram,
        do_permutation=do_permutation,
    )
    masked = masking.mask_batch(
        ids, is_maskable, is_start, rule, VOCABULARY, SOURCES[kind](len(ids))
    )
    np.testing.assert_array_equal(naive.original_ids(masked), ids)
    weights = masked["masked_lm_weights"]
    positions = masked["masked_lm_positions"]
    assert weights.shape == (300, 12 if do_permutation else 6)
    assert (np.diff(weights, axis=1) <= 0).all()  # padding stands behind
    is_padding = weights == 0
    assert not positions[is_padding].any()
    assert not masked["masked_lm_ids"][is_padding].any()
    is_ascending = np.diff(positions, axis=1) > 0
    assert is_ascending[weights[:, 1:] > 0].all()
    length = is_maskable.sum(axis=1) + 3
    wanted = [min(6, max(1, round(number * 0.2))) for number in length]
    limit = np.array(wanted) * (2 if do_permutation else 1)
    assert (weights.sum(axis=1) <= limit).all()
    is_changed = masked["input_ids"] != ids
    is_predicted = np.zeros(ids.shape, bool)
    rows, columns = np.nonzero(weights)
    is_predicted[rows, positions[rows, columns]] = True
    assert is_predicted[is_changed].all() and is_maskable[is_predicted].all()


@of_sources
def test_whole_words_are_masked(kind):
    rng = np.random.default_rng(5)
    ids, is_maskable, is_start = random_batch(rng)
    rule = rules.MaskingRule(max_predictions=9, masked_lm_prob=0.3)
    words = masking.find_words(is_maskable, is_start)
    masked = masking.mask_batch(
        ids, is_maskable, is_start, rule, VOCABULARY, SOURCES[kind](len(ids))
    )
    for row in range(len(ids)):
        count = int(masked["masked_lm_weights"][row].sum())
        places = set(masked["masked_lm_positions"][row, :count].tolist())
        for word in range(words.count[row]):
            tokens = range(words.first[row, word], words.end[row, word])
            assert len(places.intersection(tokens)) in (0, len(tokens))


def test_special_tokens_do_not_replace_others():
    ids, is_maskable, is_start = toy_batch(3000)
    vocabulary = sequences.Vocabulary.from_tokenizer(FakeTokenizer)
    assert vocabulary.replacement_ids.tolist() == [1, 3, 5, 7, 9]
    rule = rules.MaskingRule(max_predictions=4, masked_lm_prob=0.33)
    masked = masking.mask_batch(
        ids,
        is_maskable,
        is_start,
        rule,
        (vocabulary.mask_id, vocabulary.replacement_ids),
        SOURCES["in order"](3000),
    )
    found = set(np.unique(masked["input_ids"][:, 1:5]))
    assert found == {1, 3, 5, 7, 9, vocabulary.mask_id, 11, 12, 13, 14}


class FakeTokenizer:
    pieces = list(range(10))
    special_ids = pad_id, unk_id, cls_id, sep_id, mask_id = 0, 2, 4, 6, 8
    is_word_start = np.ones(10, bool)


def test_a_word_beyond_the_budget_is_masked_in_parts():
    is_maskable = np.array([[False, True, True, True, False]])
    is_start = np.array([[False, True, False, False, False]])
    ids = np.array([[CLS, 10, 11, 12, SEP]])
    rule = rules.MaskingRule(max_predictions=2, masked_lm_prob=0.5)
    masked = masking.mask_batch(
        ids,
        is_maskable,
        is_start,
        rule,
        VOCABULARY,
        SOURCES["in order"](1),
    )
    assert masked["masked_lm_weights"].sum() == 2


@pytest.mark.parametrize("length", [12, 20, 64])
@of_sources
def test_text_without_spaces_is_masked_as_much_as_is_asked(kind, length):
    rng = np.random.default_rng(0)
    ids, is_maskable, is_start = random_batch(rng, 500, 130)
    # Words of one length, with a short one here and there.
    is_start = np.arange(130) % length == 0
    is_start = is_start | (rng.random(ids.shape) < 0.005)
    rule = rules.MaskingRule(max_predictions=20)
    masked = masking.mask_batch(
        ids, is_maskable, is_start, rule, VOCABULARY, SOURCES[kind](500)
    )
    wanted = masking.budget_of(rule, is_maskable.sum(axis=1) + 3).sum()
    assert masked["masked_lm_weights"].sum() > 0.7 * wanted


# The release's statistics. Its sequences (made by the naive planner, with its
# faults) and its rule for words, so that only the masking is compared.

GOLDEN = (
    ("128_default", {}),
    ("128_favor_longer", {"favor_shorter_ngram": False}),
    ("128_ngram1", {"ngram": 1}),
    ("128_no_wwm", {"do_whole_word_mask": False}),
    ("128_permutation", {"do_permutation": True}),
    ("128_random_next", {}),
    ("512_default", {"max_predictions": 77}),
    ("512_favor_longer", {"max_predictions": 77, "favor_shorter_ngram": False}),
    ("512_permutation", {"max_predictions": 77, "do_permutation": True}),
    ("512_random_next", {"max_predictions": 77}),
)


@pytest.mark.parametrize(
    ("kind", "name", "changes"),
    [("in order", *row) for row in GOLDEN]
    + [("by position", *row) for row in GOLDEN[:5]],
    ids=lambda x: str(x)[:16],
)
def test_statistics_match_the_release(
    golden, store_of, english, kind, name, changes
):
    recorded = json.loads((golden / f"stats_{name}.json").read_text())
    rule = rules.MaskingRule(**changes)
    starts = naive.release_starts(english.pieces)
    max_seq_length = recorded["max_seq_length"]
    is_nsp = recorded["variant"] == "random_next"
    sequence_rule = rules.SequenceRule(
        max_seq_length=max_seq_length,
        sentence_objective="nsp" if is_nsp else "sop",
    )
    store = store_of(10**9)
    plan = naive.plan(store, sequence_rule, starts, random.Random(1), True)
    order = np.random.default_rng(2).permutation(len(plan))
    plan = plan[order[: 400_000 // max_seq_length]]
    vocabulary = sequences.Vocabulary(
        english.cls_id,
        english.sep_id,
        english.mask_id,
        len(starts),
        starts,
        np.arange(5, 30000),
    )
    features = sequences.mask_features(
        sequences.build_features(store, plan, sequence_rule, vocabulary),
        rule,
        vocabulary,
        SOURCES[kind](len(plan)),
    )
    counts = naive.count(features, plan, starts, english.mask_id, rule)
    # Only the words that the release joins across [SEP] (607 of 2.2 million).
    assert counts["partial"][True] < 0.0003 * counts["partial"][False]
    num_tokens = counts["tokens"]["masked"] + counts["tokens"]["other"]
    assert counts["tokens"]["masked"] / num_tokens == pytest.approx(
        recorded["share_tokens_masked_of_all_tokens"], abs=0.0015
    )
    budget = np.clip(
        np.rint(features["input_mask"].sum(axis=1) * 0.15),
        1,
        rule.max_predictions,
    ).sum() * (2 if rule.do_permutation else 1)
    assert counts["tokens"]["masked"] >= 0.9999 * budget  # reached by all
    total = 1_000_000
    fates = {
        fate: recorded[f"share_{fate}"] * total
        for fate in ("MASK", "kept", "random")
    }
    same = naive.assert_same_distribution
    same(counts["fate"], fates, "fate")
    same(counts["run"], recorded["masked_run_length_in_words_hist"], "run")
    # The same long words come again and again, so the counts scatter more.
    lengths = recorded["masked_word_length_in_pieces_hist"]
    same(counts["word"], lengths, "word", sigmas=8, least=200)
    bins = recorded["masked_position_hist_20_bins_of_relative_position"]
    same(
        counts["position"],
        {i: share * total for i, share in enumerate(bins)},
        "position",
        sigmas=6,
    )


def test_words_start_where_the_release_starts_them(golden, english):
    path = golden / "instances_128_default.json.gz"
    starts = naive.release_starts(english.pieces)
    ids = {piece: i for i, piece in enumerate(english.pieces)}
    for instance in json.loads(gzip.decompress(path.read_bytes())):
        pieces = list(instance["tokens"])
        for place, piece in zip(
            instance["masked_lm_positions"],
            instance["masked_lm_labels"],
            strict=True,
        ):
            pieces[place] = piece
        tokens = [ids.get(piece, english.unk_id) for piece in pieces]
        special = np.isin(tokens, [english.cls_id, english.sep_id])
        np.testing.assert_array_equal(
            instance["token_boundary"][: len(tokens)], starts[tokens] | special
        )


def test_words_start_where_the_release_saw_them_start(english):
    """The starts are recorded for each piece of its instances, without text."""
    recorded = np.load(CARRIED / "pretrain_data/word_starts.npz")
    assert len(recorded["ids"]) > 4000
    np.testing.assert_array_equal(
        naive.release_starts(english.pieces)[recorded["ids"]],
        recorded["starts"],
    )


@pytest.mark.parametrize("name", ["default", "favor_longer", "ngram1"])
def test_number_of_words_is_drawn_as_in_the_release(golden, name):
    recorded = json.loads((golden / f"stats_128_{name}.json").read_text())
    draws = recorded["raw_np_random_choice_draws_n_available->n"]
    rule = rules.MaskingRule(
        ngram=1 if name == "ngram1" else 3,
        favor_shorter_ngram=name != "favor_longer",
    )
    probs = np.diff([0, *masking._cumulative_ngram_probs(rule), 1])
    wanted = np.array([*draws.values()]) / sum(draws.values())
    np.testing.assert_allclose(probs, wanted, atol=0.005)
