"""Tests of answers.py: against the release, and of cases made by hand."""

import gzip
import json
import unicodedata

import numpy as np
import pytest

from albert_tf.data import answers, examples, squad, windows
from albert_tf.text import normalization

CASES = [(v, length) for v in ("v1", "v2") for length in (384, 128)]
STRIDES = {384: 128, 128: 64}
PAIR_BEST = answers.pair_best


def pair_padding(start_logits, end_logits, num_tokens, n_best_size):
    """Pairs like the release, which also pairs padding."""
    del num_tokens
    return PAIR_BEST(start_logits, end_logits, None, n_best_size)


def trim_spaces(text, start, end):
    """Trims like the release, which keeps invisible characters."""
    text = text[start:end]
    start += len(text) - len(text.lstrip())
    return start, start + len(text.strip())


@pytest.fixture(scope="module")
def recorded(recordings, english):
    """Loads the release's recording of a case, and our answers from it."""
    folder = recordings / "squad"
    made = {}

    def make(version, length):
        case = f"{version}_{length}_lower"
        if case in made:
            return made[case]
        questions = squad.read_squad(str(folder / f"{version}_data.json"))
        encoded = windows.encode_squad(
            questions,
            english,
            windows.WindowSettings(length, STRIDES[length], 64),
            is_training=False,
        )
        # The release has no window of the Korean paragraph.
        is_there = [
            not questions.contexts[questions.questions[i].context].startswith(
                "한국어"
            )
            for i in encoded.arrays["question_index"]
        ]
        outputs = {}
        for name, values in np.load(folder / f"{case}_results.npz").items():
            name = (
                name.replace("log_prob", "logits") if version == "v1" else name
            )
            outputs[name] = np.zeros(
                (len(encoded), *values.shape[1:]), values.dtype
            )
            outputs[name][is_there] = values
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(answers, "pair_best", pair_padding)
            patch.setattr(normalization, "trim", trim_spaces)
            found = answers.find_answers(questions, encoded, outputs)
        made[case] = questions, encoded, outputs, found
        return made[case]

    return make


def read(recordings, name):
    path = recordings / "squad" / name
    if name.endswith(".gz"):
        return json.loads(gzip.decompress(path.read_bytes()))
    return json.loads(path.read_text())


def has_candidates(entries):
    """Whether the release found any; otherwise it gives "empty" or -1e6."""
    first = entries[0]
    return first["text"] != "empty" and first["start_log_prob"] != -1e6


def without_last_marks(entry):
    """Removes accents of the last letter, some of which the release lost."""
    text = entry["text"]
    while text and unicodedata.combining(text[-1]):
        text = text[:-1]
    return text


@pytest.mark.parametrize("case", CASES, ids=str)
def test_answers_from_recorded_scores_are_the_releases(
    recordings, recorded, case
):
    version, length = case
    _, _, _, found = recorded(*case)
    suffix = "" if version == "v1" else "_nothresh"
    wanted = read(
        recordings, f"{version}_{length}_lower_predictions{suffix}.json"
    )
    nbest = read(recordings, f"{version}_{length}_lower_nbest.json.gz")
    assert set(found.best) == set(wanted) == set(nbest)
    num_checked = num_lists_checked = 0
    for question_id, text in wanted.items():
        if not has_candidates(nbest[question_id]):
            continue
        assert found.best[question_id] == text
        num_checked += 1
        ours = found.nbest[question_id]
        if any(
            # A "▁" that the release takes for the next character.
            our["text"] == "" and len(their["text"]) == 1
            for our, their in zip(ours, nbest[question_id], strict=False)
        ):
            continue
        num_lists_checked += 1
        assert list(map(without_last_marks, ours)) == list(
            map(without_last_marks, nbest[question_id])
        )
        for our, their in zip(ours, nbest[question_id], strict=True):
            for name in ("probability", "start_log_prob", "end_log_prob"):
                np.testing.assert_allclose(our[name], their[name], rtol=1e-9)
    assert num_checked > (125 if len(wanted) > 100 else 24)
    assert num_lists_checked >= num_checked - min(12, num_checked // 5)


@pytest.mark.parametrize("length", [384, 128])
def test_null_odds_and_threshold_are_the_releases(recordings, recorded, length):
    _, _, _, found = recorded("v2", length)
    odds = read(recordings, f"v2_{length}_lower_null_odds.json")
    for question_id, value in odds.items():
        if value != 1e6:  # No window.
            assert found.null_odds[question_id] == value
    evaluated = read(recordings, f"v2_{length}_lower_eval.json")
    threshold = evaluated["null_score_diff_threshold"]
    predictions = answers.apply_threshold(found, threshold)
    wanted = read(recordings, f"v2_{length}_lower_predictions.json")
    # 0 replaces the odds of questions without a window in the release.
    there = [i for i in wanted if odds[i] != 1e6]
    assert [predictions[i] for i in there] == [wanted[i] for i in there]
    assert any(wanted.values())
    assert not all(wanted.values())


def test_padding_does_not_change_answers(recorded):
    questions, encoded, outputs, _ = recorded("v1", 128)
    rng = np.random.default_rng(1)
    whole, other = (
        {
            name: np.where(
                np.arange(128) < encoded.lengths[:, None],
                values,
                rng.normal(3, 9, values.shape),
            )
            for name, values in outputs.items()
            if name != "unique_id"
        }
        for _ in range(2)
    )
    assert answers.find_answers(
        questions, encoded, whole
    ) == answers.find_answers(questions, encoded, other)


TEXT = "aa bb cc dd"


def make_window(num_before=2):
    """One question about TEXT, whose words follow two other tokens."""
    spans = np.array([(3 * i, 3 * i + 2) for i in range(4)])
    return examples.Examples(
        np.zeros(num_before + 5, np.int32),
        np.array([num_before + 5], np.int32),
        np.array([num_before], np.int32),
        {"question_index": np.zeros(1, np.int32)},
        token_arrays={
            "token_spans": np.pad(spans, ((num_before, 1), (0, 0))),
            "is_max_context": np.pad(np.ones(4, bool), (num_before, 1)),
        },
    )


def find(starts, ends, window=None, **kwargs):
    questions = squad.Squad([TEXT], [squad.Question("q", "?", 0, None)])
    outputs = {
        "start_logits": np.array([starts], np.float32),
        "end_logits": np.array([ends], np.float32),
    }
    window = window or make_window()
    return answers.find_answers(questions, window, outputs, **kwargs)


def test_the_best_pair_inside_the_paragraph_is_the_answer():
    # The best start is the question's, the best end [SEP]; then bb, cc.
    found = find([9, 0, 1, 5, 2, 0, 7], [0, 8, 1, 2, 4, 3, 9])
    assert found.best == {"q": "bb cc"}
    assert not found.null_odds
    nbest = found.nbest["q"]
    assert nbest[0]["start_log_prob"] == 5
    assert nbest[0]["end_log_prob"] == 4
    scores = [e["start_log_prob"] + e["end_log_prob"] for e in nbest]
    assert scores == sorted(scores, reverse=True)
    assert len(nbest) == 10  # Pairs of 4 words, in order.
    np.testing.assert_allclose(sum(e["probability"] for e in nbest), 1)
    ratio = nbest[1]["probability"] / nbest[0]["probability"]
    np.testing.assert_allclose(ratio, np.exp(scores[1] - scores[0]))


def test_an_answer_is_not_too_long():
    starts, ends = [0, 0, 9, 0, 0, 0, 0], [0, 0, 0, 0, 1, 9, 0]
    assert find(starts, ends).best["q"] == TEXT
    found = find(starts, ends, max_answer_length=3)
    assert found.best["q"] == "aa bb cc"
    assert len(find(starts, ends, n_best_size=2).nbest["q"]) <= 2


def test_a_start_is_taken_from_the_window_with_most_context():
    window = make_window()
    window.token_arrays["is_max_context"][3] = False
    starts, ends = [0, 0, 1, 9, 3, 0, 0], [0, 0, 0, 0, 9, 0, 0]
    assert find(starts, ends, window).best["q"] == "cc"


def test_without_candidates_the_answer_is_empty():
    starts, ends = [0, 0, 0, 0, 0, 9, 0], [0, 0, 9, 0, 0, 0, 0]
    found = find(starts, ends, n_best_size=1)
    assert found.best == {"q": ""}
    assert found.nbest["q"][0]["probability"] == 1


def test_large_scores_have_probabilities_and_small_ones_differ():
    found = find([0, 0, 900, 0, 0, 0, 0], [0, 0, 900, 899, 0, 0, 0])
    chances = [entry["probability"] for entry in found.nbest["q"][:2]]
    np.testing.assert_allclose(chances, [0.7310586, 0.2689414], rtol=1e-6)
    # The sums of "aa" and "bb" are equal in float32.
    found = find([0, 0, 1e8, 1e8 + 8, 0, 0, 0], [0, 0, 10, 1, 0, 0, 0])
    assert found.best["q"] == "aa"


def test_equal_texts_count_once():
    window = make_window()
    window.token_arrays["token_spans"][4] = window.token_arrays["token_spans"][
        3
    ]
    found = find([0, 0, 0, 9, 8, 0, 0], [0, 0, 0, 9, 8, 0, 0], window)
    texts = [entry["text"] for entry in found.nbest["q"]]
    assert texts[0] == "bb"
    assert len(texts) == len(set(texts))


@pytest.mark.parametrize(
    ("context", "wanted"),
    [
        ("\u200b40 kg\ufeff ", "40 kg"),
        ("\u3164 40\u00a0kg\u2800", "40\u00a0kg"),
        ("\u00ad\u2764\ufe0f\u200d", "\u2764\ufe0f"),
        (" \u034f\u200d", ""),
        ("", ""),
    ],
)
def test_answers_begin_and_end_with_visible_characters(context, wanted):
    ends, scores = np.array([len(context)]), np.ones(1, np.float32)
    ranked, ((start, end),) = answers.rank(
        context, 20, np.zeros(1, int), ends, scores, scores
    )
    assert context[start:end] == wanted
    assert [entry["text"] for entry in ranked] == [wanted]


def test_below_the_threshold_there_is_an_answer():
    found = answers.Answers(
        {"a": "x", "b": "y", "c": "z"}, {}, {"a": -1.0, "b": 0.5, "c": 2.0}
    )
    assert answers.apply_threshold(found, 0.5) == {"a": "x", "b": "", "c": ""}
