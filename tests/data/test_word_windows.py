"""Words, their first pieces and their windows: against naive code."""

import numpy as np
import pytest

from albert_tf.data import tagged, word_windows
from albert_tf.data.examples import NO_LABEL
from albert_tf.data.tagged import Sentence
from albert_tf.text import normalization, tokenization
from albert_tf.text import words as text_words
from tests import tiny
from tests.text.test_tokenization import train_model

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
    if kind == "pieces":
        path = tmp_path / "vocab.model"
        path.write_bytes(train_pieces())
        return tokenization.build_tokenizer(spm_model_file=str(path))
    path = tmp_path / "vocab.txt"
    words = [
        *tiny.SPECIAL,
        *"あいウงจ",
        *("あい", "งจ", "##あ", "##い", "##うえ", "##イ", "##アイ", "##คง"),
        *"abcdeäабвגאकखก漢字",
        "##a",
        "##b",
        "##в",
        "(",
        ".",
    ]
    path.write_text("\n".join(words), encoding="utf-8")
    return tokenization.build_tokenizer(vocab_file=str(path))


def naive_parts(sentence):
    """Yields (word, whether it is a later part, start, end) of its parts."""
    units = [start for start, _ in text_words.find_words(sentence.text)]
    for number, (start, end) in enumerate(sentence.spans):
        cuts = []
        if any(map(normalization.is_unspaced, sentence.words[number])):
            cuts = [unit for unit in units if start < unit < end]
        for i, a in enumerate([start, *cuts]):
            yield number, i > 0, a, [*cuts, end][i]


def naive_pieces(sentence, parts, tokenizer):
    """Yields (id, start, end) of pieces, those of several parts divided."""
    known = dict(zip(tokenizer.pieces, range(99_999), strict=False))
    units = text_words.find_words(sentence.text)
    ids, spans = tokenizer.encode_with_offsets(sentence.text)
    for i, (start, end) in zip(ids, spans, strict=True):
        inside, shared = (
            [x for x in some if max(x[0], start) < min(x[1], end)]
            for some in (units, [part[2:] for part in parts])
        )
        piece = tokenizer.pieces[i].replace("##", "")
        text = piece.replace("▁", " ")
        names = [text[a:b] for a, b in text_words.find_words(text)]
        is_whole = len(shared) < 2 or not 1 < len(inside) == len(names)
        if is_whole or i in tokenizer.special_ids:
            yield i, start, end
            continue
        is_wordpiece = tokenizer.kind == "wordpiece"
        prefixes = {"▁"} if piece[0] == "▁" else {""}
        prefixes = {"", "##"} if is_wordpiece else prefixes
        for name, (a, b) in zip(names, inside, strict=True):
            whole = [known[x + name] for x in prefixes if x + name in known]
            whole = whole or [known.get(name, tokenizer.unk_id)]
            letters = [known.get(x, tokenizer.unk_id) for x in name]
            for j in letters if whole == [tokenizer.unk_id] else whole[:1]:
                yield j, max(a, start), min(b, end)
            prefixes = {"##"} if is_wordpiece else {""}


def train_pieces():
    """Returns a SentencePiece model with pieces of many characters each."""
    rng = np.random.default_rng(7)
    letters = [*"กขคงจ", *"あいうえおアイウ", *"漢字語人大小", *"abc", *"。…5"]
    words = [
        "".join(rng.choice(letters, rng.integers(2, 4))) for _ in range(99)
    ]
    return train_model(
        ["".join(rng.choice(words, 6)) for _ in range(200)],
        vocab_size=150,
        hard_vocab_limit=False,
        split_by_unicode_script=False,
        split_by_number=False,
    )


KINDS = ["sentencepiece", "cased", "pieces", "wordpiece"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_word_is_tagged_at_its_first_piece(kind, tmp_path):
    tokenizer = build_tokenizer(kind, tmp_path)
    num_unknown = num_divided = 0
    for sentence in random_sentences(np.random.default_rng(3), 150, 12):
        parts = [*naive_parts(sentence)]
        divided = [*naive_pieces(sentence, parts, tokenizer)]
        pieces = [i for i, _, _ in divided]
        num_divided += pieces != tokenizer.encode(sentence.text)
        ids, first, inner = word_windows.encode_words(sentence, tokenizer)
        found = [
            (max(pair), pair[0] == NO_LABEL)
            for pair in zip(first, inner, strict=True)
            if pair != (NO_LABEL, NO_LABEL)
        ]
        assert found == [part[:2] for part in parts]
        expected = {}
        for piece, (_, a, b) in enumerate(divided):
            # It may contain the end of a word and the start of the next.
            for number, (*_, start, end) in enumerate(parts):
                if max(a, start) < min(b, end):
                    expected.setdefault(number, piece)
                    break
        places = np.flatnonzero((first != NO_LABEL) | (inner != NO_LABEL))
        lost = sorted({*range(len(parts))} - {*expected})
        assert all(ids[places[part]] == tokenizer.unk_id for part in lost)
        num_unknown += len(lost)
        # Without those that were inserted, the pieces are the text's own.
        kept = np.delete(np.arange(len(ids)), places[lost])
        assert ids[kept].tolist() == pieces
        for part, piece in expected.items():
            assert places[part] == kept[piece]
    assert num_unknown  # Normalization removes some words.
    assert num_divided


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


@pytest.mark.parametrize("kind", KINDS)
def test_given_words_without_spaces_are_seen_as_in_a_raw_text(kind, tmp_path):
    tokenizer = build_tokenizer(kind, tmp_path)
    rng = np.random.default_rng(11)
    for _ in range(50):
        letters = [*"กขคงจ", *"あいうえおアイウ", *"漢字語人大小"]
        words = [
            f"{a}{middle}{b}"
            for a, b in rng.choice(letters, (9, 2))
            for middle in rng.choice([*letters, *"。…5"], 1)
        ]
        given = tagged.join_words(words)
        assert given.text == "".join(words)
        raw = word_windows.encode_words(
            tagged.split_text(given.text), tokenizer
        )
        seen = word_windows.encode_words(given, tokenizer)
        assert seen.ids.tolist() == raw.ids.tolist()
        # Of other scripts, a word has one tag.
        units = [given.text[a] for a, _ in text_words.find_words(given.text)]
        is_known = (seen.first != NO_LABEL) | (seen.inner != NO_LABEL)
        missed = (raw.first != NO_LABEL) & ~is_known
        assert {units[i] for i in raw.first[missed]} <= set("。…5")
        inner = seen.inner[seen.inner != NO_LABEL]
        assert (np.diff(inner) >= 0).all() and len(inner) > 5


@pytest.mark.parametrize("kind", ["pieces", "wordpiece"])
def test_later_characters_of_a_word_go_on_with_its_tag(kind, tmp_path):
    tokenizer = build_tokenizer(kind, tmp_path)
    labels = ["O", "B-LOC", "I-LOC"]
    sentences = [
        tagged.join_words(["漢字", "人", "大小", "ab"], tags)
        for tags in (
            ["B-LOC", "I-LOC", "O", "B-LOC"],
            ["I-LOC", "O", "B-LOC", "O"],
        )
    ]
    encoded = word_windows.encode_sentences(
        sentences, tokenizer, 32, 16, labels
    )
    tags = encoded.token_labels["tag_ids"]
    assert tags[tags != NO_LABEL].tolist() == [
        *(1, 2, 2, 0, 0, 1),
        *(2, 2, 0, 1, 2, 0),
    ]
    # The words' own pieces are those that are scored.
    index = encoded.token_arrays["word_index"]
    assert index[index != NO_LABEL].tolist() == [*range(8)]


def test_spaces_around_a_given_word_are_no_part_of_it(tmp_path):
    tokenizer = build_tokenizer("wordpiece", tmp_path)
    sentence = tagged.join_words([" 漢字 ", "\u200b字"])
    ids, first, inner = word_windows.encode_words(sentence, tokenizer)
    assert [tokenizer.pieces[i] for i in ids] == ["漢", "字", "字"]
    assert first.tolist() == [0, NO_LABEL, 1]
    assert inner.tolist() == [NO_LABEL, 0, NO_LABEL]
