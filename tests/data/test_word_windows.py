"""Words, their first pieces and their windows: against naive code."""

import numpy as np
import pytest

from albert_tf.data import tagged, word_windows
from albert_tf.data.examples import NO_LABEL
from albert_tf.data.tagged import Sentence
from albert_tf.text import tokenization
from tests import tiny

SCRIPTS = (
    "abcdefghijklmnopqrstuvwxyz",
    "ABCXYZ0123456789",
    "äöüßéèñçşğıİ",
    "абвгдежз",
    "αβγδεάή",
    "אבגדה",
    "ابتثج",
    "कखगघािी",
    "กขคงจ",
    "あいうえおアイウ",
    "漢字語人大小",
    "한국어말",
    "ﬁ½²™㎏…",
    "\u0301\u0308\u200d\u00ad\ufeff\u200b",
    "'-.,!?$%&()",
    "🙂🎉",
    "ակնվև",
    "აბგდე",
    "தமிழ்",
    "ሀለሐመ",
)


def build(words, tags=None):
    spans, end = [], 0
    for word in words:
        spans.append((end, end + len(word)))
        end += len(word) + 1
    return Sentence(words, tags, " ".join(words), spans)


def random_sentences(rng, count, longest):
    for _ in range(count):
        words = []
        for _ in range(rng.integers(1, longest)):
            script = SCRIPTS[rng.integers(len(SCRIPTS))]
            letters = rng.choice(list(script), rng.integers(1, 9))
            words.append("".join(letters))
        yield build(words)
        # Of other words, which may adjoin.
        yield tagged.split_text("".join(words[:4]))


def build_tokenizer(kind, tmp_path):
    if kind == "sentencepiece":
        return tokenization.build_tokenizer(spm_model_file=str(tiny.RELEASED))
    if kind == "cased":
        return tokenization.build_tokenizer(
            spm_model_file=str(tiny.RELEASED), do_lower_case=False
        )
    path = tmp_path / "vocab.txt"
    words = [
        *tiny.SPECIAL,
        *"abcdeäабвגאकखก漢字",
        "##a",
        "##b",
        "##в",
        "(",
        ".",
    ]
    path.write_text("\n".join(words), encoding="utf-8")
    return tokenization.build_tokenizer(vocab_file=str(path))


@pytest.mark.parametrize("kind", ["sentencepiece", "cased", "wordpiece"])
def test_each_word_is_tagged_at_its_first_piece(kind, tmp_path):
    tokenizer = build_tokenizer(kind, tmp_path)
    num_unknown = 0
    for sentence in random_sentences(np.random.default_rng(3), 150, 12):
        ids, words = word_windows.encode_words(sentence, tokenizer)
        pieces, spans = tokenizer.encode_with_offsets(sentence.text)
        # Without those that were inserted, the pieces are the text's own.
        found = [w for w in words if w != NO_LABEL]
        assert found == list(range(len(sentence.words)))
        rest, expected = list(ids), {}
        for piece, (a, b) in enumerate(spans):
            # It may contain the end of a word and the start of the next.
            for number, (first, end) in enumerate(sentence.spans):
                if max(a, first) < min(b, end):
                    expected.setdefault(number, piece)
                    break
        missing = sorted({*range(len(sentence.words))} - {*expected})
        places = np.flatnonzero(np.isin(words, missing))
        assert all(ids[place] == tokenizer.unk_id for place in places)
        num_unknown += len(places)
        rest = np.delete(ids, places).tolist()
        assert rest == pieces
        numbers = np.delete(words, places)
        for number, piece in expected.items():
            assert numbers[piece] == number
    assert num_unknown  # Normalization removes some words.


@pytest.mark.parametrize("length", [3, 4, 7, 16, 400])
@pytest.mark.parametrize("stride", [1, 3, 64])
def test_each_word_has_one_tag_whatever_the_window(length, stride):
    tokenizer = tokenization.build_tokenizer(spm_model_file=str(tiny.RELEASED))
    rng = np.random.default_rng(length)
    sentences = list(random_sentences(rng, 12, 40))
    num_words = sum(len(s.words) for s in sentences)
    encoded = word_windows.encode_sentences(
        sentences, tokenizer, length, stride
    )
    assert encoded.lengths.max() <= length
    starts = encoded.starts
    assert (encoded.ids[starts] == tokenizer.cls_id).all()
    assert (encoded.ids[starts + encoded.lengths - 1] == tokenizer.sep_id).all()
    # A model that answers with the word's own number.
    index = encoded.token_arrays["word_index"]
    answers = np.full([len(encoded), length], -7)
    for row, (start, size) in enumerate(
        zip(starts, encoded.lengths, strict=True)
    ):
        answers[row, :size] = index[start : start + size]
        assert (index[start : start + size] != NO_LABEL).any()
    taken = word_windows.take_words(answers, encoded)
    assert taken.tolist() == list(range(num_words))


def test_a_word_is_tagged_where_it_has_most_context():
    tokenizer = tokenization.build_tokenizer(spm_model_file=str(tiny.RELEASED))
    words = ["the", "man", "is", "in", "the", "house"]
    encoded = word_windows.encode_sentences([build(words)], tokenizer, 6, 2)
    # Windows of pieces 0 to 3 and 2 to 5.
    assert encoded.lengths.tolist() == [6, 6]
    index = encoded.token_arrays["word_index"].reshape(2, 6)[:, 1:-1]
    assert index.tolist() == [[0, 1, 2, -1], [-1, 3, 4, 5]]


def test_tags_are_where_words_are_and_unknown_ones_are_not_scored():
    tokenizer = tokenization.build_tokenizer(spm_model_file=str(tiny.RELEASED))
    sentences = [
        build(["Unbelievable", "Berlin"], ["O", "B-LOC"]),
        build(["Ann"], ["B-PER"]),
    ]
    labels = ["O", "B-LOC", "I-LOC"]
    encoded = word_windows.encode_sentences(sentences, tokenizer, 16, 8, labels)
    tags = encoded.token_labels["tag_ids"]
    index = encoded.token_arrays["word_index"]
    assert tags[index == 0] == [0] and tags[index == 1] == [1]
    assert tags[index == 2] == [NO_LABEL]
    assert (tags[index == NO_LABEL] == NO_LABEL).all()
    assert (index == NO_LABEL).sum() > 4  # "Unbelievable" has further pieces.
