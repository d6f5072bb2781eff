"""Windows of paragraphs: against the release's, and one token at a time."""

import tracemalloc
import unicodedata

import numpy as np
import pytest

from albert_tf.data import examples, squad, windows
from albert_tf.data.windows import WindowSettings
from albert_tf.text import tokenization

SETTINGS = {
    "384": WindowSettings(384, 128, 64),
    "128": WindowSettings(128, 64, 64),
}
CASES = [
    (version, length, casing)
    for version in ("v1", "v2")
    for length, casing in (("384", "lower"), ("128", "lower"), ("128", "cased"))
]


@pytest.fixture(scope="module")
def tokenizers(shared):
    model = str(shared / "data/albert_en/30k-clean.model")
    return {
        casing: tokenization.build_tokenizer(
            spm_model_file=model, do_lower_case=casing == "lower"
        )
        for casing in ("lower", "cased")
    }


def find_rows(encoded, padded, recorded):
    """Our windows that the release also has, and the questions it skipped."""
    rows, given_up = [], set()
    for row, question in enumerate(encoded.arrays["question_index"]):
        wanted = recorded["input_ids"][
            min(len(rows), len(recorded["input_ids"]) - 1)
        ]
        if np.array_equal(padded["input_ids"][row], wanted):
            rows.append(row)
        else:
            given_up.add(int(question))
    assert len(rows) == len(recorded["input_ids"])
    return rows, given_up


def read_case(recordings, tokenizers, case, kind):
    version, length, casing = case
    folder = recordings / "squad"
    data = f"{version}_train_data" if kind == "train" else f"{version}_data"
    questions = squad.read_squad(str(folder / f"{data}.json"))
    encoded = windows.encode_squad(
        questions,
        tokenizers[casing],
        SETTINGS[length],
        is_training=kind == "train",
    )
    recorded = np.load(
        folder / f"{version}_{length}_{casing}_{kind}_features.npz"
    )
    padded = examples.pad_examples(encoded, range(len(encoded)), int(length))
    rows, given_up = find_rows(encoded, padded, recorded)
    # The release could not align Korean: Hangul decomposes into its letters.
    for number in given_up:
        question = questions.questions[number]
        assert questions.contexts[question.context].startswith("한국어")
    return questions, encoded, recorded, padded, rows


@pytest.mark.parametrize("case", CASES, ids="_".join)
def test_training_windows_are_the_releases(recordings, tokenizers, case):
    _, encoded, recorded, padded, rows = read_case(
        recordings, tokenizers, case, "train"
    )
    for ours, theirs in (
        ("input_mask", "input_mask"),
        ("segment_ids", "segment_ids"),
        ("start_positions", "start_position"),
        ("end_positions", "end_position"),
        ("is_impossible", "is_impossible"),
    ):
        np.testing.assert_array_equal(
            padded[ours][rows], recorded[theirs], err_msg=ours
        )
    np.testing.assert_array_equal(
        encoded.lengths[rows], recorded["paragraph_len"]
    )


@pytest.mark.parametrize("case", CASES, ids="_".join)
def test_token_spans_are_the_releases(recordings, tokenizers, case):
    questions, encoded, recorded, _, rows = read_case(
        recordings, tokenizers, case, "predict"
    )
    token_starts = np.cumsum(encoded.lengths) - encoded.lengths
    bounds = np.cumsum(recorded["tok_start_to_orig_index.lengths"])[:-1]
    theirs = [
        np.split(recorded[f"{name}.values"], bounds)
        for name in (
            "tok_start_to_orig_index",
            "tok_end_to_orig_index",
            "max_context_value",
        )
    ]
    num_better = 0
    for row, starts, ends, is_max_context in zip(rows, *theirs, strict=True):
        first = token_starts[row] + encoded.first_lengths[row]
        tokens = slice(first, first + len(starts))
        np.testing.assert_array_equal(
            encoded.token_arrays["is_max_context"][tokens], is_max_context
        )
        question = questions.questions[encoded.arrays["question_index"][row]]
        context = questions.contexts[question.context]
        for token, span, start, end in zip(
            encoded.ids[tokens],
            encoded.token_arrays["token_spans"][tokens],
            starts,
            ends,
            strict=True,
        ):
            ours = context[span[0] : span[1]].strip()
            their = context[start : end + 1].strip()
            if ours != their:
                num_better += 1
                # A "▁" before the first word, which stands for no character
                # and there got the word's first; an accent behind its letter.
                if tokenizers[case[2]].pieces[token] != "▁":
                    assert ours.startswith(their)
                    rest = ours[len(their) :]
                    assert all(unicodedata.category(c)[0] == "M" for c in rest)
    assert num_better < 0.005 * recorded["tok_end_to_orig_index.values"].size


def test_several_workers_encode_the_same_windows(
    recordings, tokenizers, monkeypatch
):
    monkeypatch.setattr(windows, "CONTEXTS_PER_TASK", 9)
    path = recordings / "squad/v2_data.json"
    questions = squad.read_squad(str(path))
    one, two = (
        windows.encode_squad(
            questions,
            tokenizers["lower"],
            SETTINGS["128"],
            is_training=False,
            num_workers=num_workers,
        )
        for num_workers in (1, 2)
    )
    for name in ("ids", "lengths", "first_lengths"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    for name in ("arrays", "token_arrays"):
        for key, values in getattr(one, name).items():
            np.testing.assert_array_equal(values, getattr(two, name)[key])


def test_gold_answers_are_recovered_unless_they_split_a_token(
    shared, tokenizers
):
    questions = squad.read_squad(str(shared / "data/squad/dev-v1.1.json"))
    tokenizer = tokenizers["lower"]
    spans = [
        np.array(tokenizer.encode_with_offsets(context)[1])
        for context in questions.contexts
    ]
    num_answers = num_exact = 0
    for question in questions.questions:
        context = questions.contexts[question.context]
        for answer in set(question.answers):
            first, last = windows.find_tokens(spans[question.context], answer)
            start, end = (
                spans[question.context][first, 0],
                spans[question.context][last, 1],
            )
            num_answers += 1
            if context[start:end].strip() == answer.text.strip():
                num_exact += 1
            else:  # It begins or ends inside a token: "gold" in "golden".
                assert answer.text.strip() in context[start:end]
                inner = spans[question.context][first : last + 1]
                assert start <= answer.start < inner[0, 1]
                assert inner[-1, 0] < answer.start + len(answer.text) <= end
    assert (num_answers, num_exact) == (18216, 18130)


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A tokenizer of a few words and letters."""
    path = tmp_path_factory.mktemp("words") / "vocab.txt"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##do", "北"]
    pieces += [f"w{i}" for i in range(30)]
    path.write_text("\n".join(pieces) + "\n")
    return tokenization.build_tokenizer(vocab_file=str(path))


def encode(
    words, context, answers=(), *, is_training, query="w1 w2 w3", **kwargs
):
    settings = WindowSettings(
        **{
            "max_seq_length": 10,
            "doc_stride": 2,
            "max_query_length": 2,
            **kwargs,
        }
    )
    question = squad.Question("q", query, 0, answers)
    return windows.encode_squad(
        squad.Squad([context], [question]),
        words,
        settings,
        is_training=is_training,
    )


def pieces_of(words, encoded):
    bounds = np.cumsum(encoded.lengths)[:-1]
    return [
        " ".join(words.pieces[i] for i in row)
        for row in np.split(encoded.ids, bounds)
    ]


def test_windows_overlap_and_contain_every_token(words):
    context = "w4 undo 北w5 w6 w7 w8"
    encoded = encode(words, context, is_training=False)
    assert pieces_of(words, encoded) == [
        "[CLS] w1 w2 [SEP] w4 un ##do 北 w5 [SEP]",
        "[CLS] w1 w2 [SEP] ##do 北 w5 w6 w7 [SEP]",
        "[CLS] w1 w2 [SEP] w5 w6 w7 w8 [SEP]",
    ]
    spans = encoded.token_arrays["token_spans"][:10]
    texts = [context[start:end] for start, end in spans]
    assert texts == ["", "", "", "", "w4", "un", "do", "北", "w5", ""]
    # 北 has 3 tokens to its left and 1 to its right, or the other way round.
    assert [
        "".join("#" if best else "." for best in row)
        for row in np.split(encoded.token_arrays["is_max_context"], [10, 20])
    ] == ["....####..", "......##..", "......##."]


def test_a_window_without_the_whole_answer_is_impossible(words):
    context = "w4 undo 北w5 w6 w7 w8"
    answer = squad.Answer("北w5", context.index("北"))
    encoded = encode(words, context, (answer,), is_training=True)
    arrays = {name: v.tolist() for name, v in encoded.arrays.items()}
    assert arrays == {
        "question_index": [0, 0, 0],
        "start_positions": [7, 5, 0],
        "end_positions": [8, 6, 0],
        "is_impossible": [0, 0, 1],
    }
    assert "in no window" not in encoded.truncation


def test_answers_that_are_in_no_window_are_counted(words):
    context = "w4 undo 北w5 w6 w7 w8"
    for text, is_lost in (("w4 undo 北w5", False), ("w4 undo 北w5 w6", True)):
        answer = squad.Answer(text, 0)
        encoded = encode(words, context, (answer,), is_training=True)
        said = "The answers of 1 of 1 questions are in no window"
        assert (said in encoded.truncation) == is_lost
        assert min(encoded.arrays["is_impossible"]) == is_lost


def test_a_question_without_an_answer_is_impossible(words):
    encoded = encode(words, "w4 w5", is_training=True)
    assert encoded.arrays["is_impossible"].tolist() == [1]
    assert encoded.arrays["start_positions"].tolist() == [0]


def test_an_answer_that_cannot_be_trained_on_is_refused(words):
    lost = squad.Answer("w9", squad.NOWHERE)
    for answers, message in (((lost,), "not in its paragraph"), (None, "1 q")):
        with pytest.raises(ValueError, match=message):
            encode(words, "w4 w5", answers, is_training=True)
    with pytest.raises(ValueError, match="There are no questions"):
        windows.encode_squad(
            squad.Squad(["w4"], []),
            words,
            WindowSettings(10, 2, 2),
            is_training=False,
        )


def test_training_uses_the_first_of_several_answers(words):
    context = "w4 w5 w6"
    both = squad.Answer("w6", 6), squad.Answer("w4", 0)
    encoded = encode(words, context, both, is_training=True)
    assert encoded.arrays["start_positions"].tolist() == [6]


@pytest.mark.parametrize(
    ("text", "start", "tokens"),
    [
        ("cd", 3, (1, 1)),
        (" cd", 2, (1, 1)),
        ("b c", 1, (0, 1)),
        ("d\u200be", 4, (1, 2)),
        ("ab cd\u200be", 0, (0, 2)),
        # Characters without a token get the next token.
        ("\u200b", 5, (2, 2)),
        ("\u200b", 7, (2, 2)),
    ],
)
def test_an_answer_has_the_tokens_that_it_overlaps(text, start, tokens):
    assert "ab cd\u200be\u200b".startswith(text, start)
    spans = np.array([(0, 2), (3, 5), (6, 7)])
    assert windows.find_tokens(spans, squad.Answer(text, start)) == tokens


def test_whitespace_around_an_answer_is_ignored():
    # A token may cover only whitespace, as SentencePiece's "▁" does.
    spans = np.array([(0, 2), (2, 2), (3, 3), (3, 5), (5, 5)])  # Of "ab cd ".
    for text, start, tokens in ((" cd ", 2, (3, 3)), ("ab ", 0, (0, 0))):
        answer = squad.Answer(text, start)
        assert windows.find_tokens(spans, answer) == tokens
    assert windows.find_tokens(spans[:0], answer) is None


def test_paragraphs_without_questions_are_ignored(words, monkeypatch):
    monkeypatch.setattr(windows, "CONTEXTS_PER_TASK", 1)
    questions = [squad.Question(f"q{i}", "w1", 2 * i + 1, ()) for i in (0, 1)]
    encoded = windows.encode_squad(
        squad.Squad(["w2", "w3", "w4", "w5"], questions),
        words,
        WindowSettings(10, 2, 2),
        is_training=False,
    )
    assert pieces_of(words, encoded) == [
        "[CLS] w1 [SEP] w3 [SEP]",
        "[CLS] w1 [SEP] w5 [SEP]",
    ]
    assert encoded.arrays["question_index"].tolist() == [0, 1]


@pytest.mark.parametrize("context", ["", " \n", "\u200b"])
def test_an_empty_paragraph_has_one_window(words, context):
    for is_training in (False, True):
        encoded = encode(words, context, is_training=is_training)
        assert pieces_of(words, encoded) == ["[CLS] w1 w2 [SEP] [SEP]"]


@pytest.mark.parametrize("num_tokens", [0, 1, 4, 5, 6, 7, 8, 9, 23])
@pytest.mark.parametrize("size", [1, 2, 5, 7])
@pytest.mark.parametrize("stride", [1, 3, 5, 9])
def test_windows_are_cut_as_the_release_does(num_tokens, size, stride):
    wanted, start = [], 0
    while start < num_tokens:
        length = min(num_tokens - start, size)
        wanted.append((start, start + length))
        if start + length == num_tokens:
            break
        start += min(length, stride)
    found = windows.cut_windows(num_tokens, size, stride)
    assert found == (wanted or [(0, 0)])
    if num_tokens:
        best = np.zeros((len(found), num_tokens), bool)
        for row, (a, b), is_best in zip(
            best,
            found,
            windows.find_max_context(found, num_tokens),
            strict=True,
        ):
            row[a:b] = is_best
        for token in range(num_tokens):
            scores = [
                min(token - a, b - 1 - token) + 0.01 * (b - a)
                if a <= token < b
                else -1
                for a, b in found
            ]
            assert best[:, token].tolist() == [
                i == scores.index(max(scores)) for i in range(len(found))
            ]


def test_max_context_equals_a_dense_computation():
    """Evaluates the formula for all windows and all tokens."""
    rng = np.random.default_rng(4)
    for _ in range(200):
        num_tokens, size, stride = rng.integers(1, [300, 60, 70])
        bounds = windows.cut_windows(num_tokens, size, stride)
        starts, ends = np.array(bounds).T[:, :, np.newaxis]  # [W, 1] each
        positions = np.arange(num_tokens)
        context = np.minimum(positions - starts, ends - 1 - positions)
        scores = context + 0.01 * (ends - starts)
        best = np.where(context < 0, -np.inf, scores).argmax(axis=0)  # [P]
        wanted = best == np.arange(len(bounds))[:, np.newaxis]  # [W, P]
        found = windows.find_max_context(bounds, num_tokens)
        for row, (start, end), is_best in zip(
            wanted, bounds, found, strict=True
        ):
            np.testing.assert_array_equal(is_best, row[start:end])
            assert not row[:start].any() and not row[end:].any()


def test_a_long_paragraph_needs_little_memory(words):
    settings = {"max_seq_length": 384, "doc_stride": 128}
    tracemalloc.start()
    encoded = encode(words, "w4 w5 " * 30_000, is_training=False, **settings)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert encoded.token_arrays["is_max_context"].sum() == 60_000
    assert peak < 100e6


@pytest.mark.parametrize(
    "wrong",
    [
        WindowSettings(67, 128, 64),
        WindowSettings(384, 0, 64),
        WindowSettings(384, 128, 0),
    ],
)
def test_windows_without_room_are_refused(wrong):
    windows.check_settings(WindowSettings(68, 1, 64))
    with pytest.raises(ValueError, match="max_seq_length"):
        windows.check_settings(wrong)
