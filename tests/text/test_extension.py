"""Words that are added to a vocabulary."""

import collections

import pytest

from albert_tf.text import extension, normalization, tokenization
from tests.conftest import ROOT
from tests.text.test_tokenization import train_model

TEXTS = [
    'Myocardial "infarction", myocardial; an edgy infarction',
    "The cat’s MYOCARDIAL x 12 2nd p53 ひらがな myocardially fund",
]


@pytest.fixture(scope="module")
def english(shared):
    """The tokenizer of the released vocabulary."""
    path = shared / "data/albert_en/30k-clean.model"
    return tokenization.build_tokenizer(spm_model_file=path)


@pytest.fixture(scope="module")
def chinese(tmp_path_factory):
    """The tokenizer of a WordPiece vocabulary without an end of line."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "##s", "a"]
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(pieces))
    return tokenization.build_tokenizer(vocab_file=path)


def word(tokenizer, text, count=1):
    return extension.Word(text, count, tokenizer.encode(text))


def test_a_word_is_the_letters_that_begin_a_unit(english):
    units = extension.count_units(TEXTS, english)
    assert extension.find_words(units) == {
        "myocardial": 3,
        "myocardially": 1,
        "infarction": 1,  # The other follows a quotation mark.
        "edgy": 1,
        "an": 1,
        "the": 1,
        "cat": 1,
        "fund": 1,
        "p53": 1,
    }


def test_pieces_of_units_are_counted(english):
    tokenizer = english
    texts = ["cat \u200b cat x", "▁"]  # Two units have no piece.
    counts = extension.count_pieces(
        extension.count_units(texts, tokenizer), tokenizer
    )
    assert counts.shape == (tokenizer.vocab_size,)
    wanted = {tokenizer.encode("cat")[0]: 2, tokenizer.encode("x")[0]: 1}
    assert {i: counts[i] for i in counts.nonzero()[0]} == wanted


def test_words_that_save_most_pieces_come_first(english):
    tokenizer = english
    counts = {"myocardial": 2, "edgy": 3, "cat": 9, "infarction": 1}
    found = extension.find_split(counts, tokenizer)
    lengths = {w.text: len(tokenizer.encode(w.text)) for w in found}
    assert lengths["edgy"] > 1 and lengths["myocardial"] > 1
    assert "cat" not in lengths
    gains = [counts[w.text] * (lengths[w.text] - 1) for w in found]
    assert gains == sorted(gains, reverse=True) == [w.gain for w in found]


def test_an_existing_piece_is_not_added(english):
    """The released vocabulary has "▁ford", and splits "ford"."""
    tokenizer = english
    assert "▁ford" in tokenizer.pieces
    assert len(tokenizer.encode("ford")) > 1
    assert not extension.find_split({"ford": 1}, tokenizer)


def test_new_words_are_single_pieces(english):
    tokenizer = english
    units = extension.count_units(TEXTS, tokenizer)
    split = extension.find_split(extension.find_words(units), tokenizer)
    found = extension.extend(tokenizer, "new", split)
    first_id = tokenizer.vocab_size
    assert found.tokenizer.vocab_size == first_id + len(found.words)
    assert found.tokenizer.pieces[:first_id] == tokenizer.pieces
    for i, new in enumerate(found.words, first_id):
        assert found.tokenizer.encode(new.text) == [i]
        assert found.tokenizer.pieces[i] == f"▁{new.text}"
        assert found.tokenizer.is_word_start[i]
    before = sum(len(tokenizer.encode(text)) for text in TEXTS)
    assert extension.count_pieces(units, tokenizer).sum() == before
    after = sum(len(found.tokenizer.encode(text)) for text in TEXTS)
    assert extension.count_pieces(units, found.tokenizer).sum() == after
    assert before - after >= sum(new.gain for new in found.words)


def test_other_text_is_split_as_before(english):
    tokenizer = english
    words = [word(tokenizer, t) for t in ("myocardial", "edgy", "believable")]
    found = extension.extend(tokenizer, "new", words)
    assert found.words == words
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for other in (text, "myocardially", "unbelievable"):
        assert found.tokenizer.encode(other) == tokenizer.encode(other)
    assert found.tokenizer.tokenize("edgy.") == ["▁edgy", "."]


def test_words_that_would_still_be_split_are_left_out(english):
    """SentencePiece prefers "▁ed" with what follows, and has no joiners."""
    tokenizer = english
    words = [word(tokenizer, text) for text in ("½", "edgy", "ed", "a\u200db")]
    found = extension.extend(tokenizer, "new", words)
    assert [w.text for w in found.words] == ["½", "ed"]
    assert found.tokenizer.encode("½") == [tokenizer.vocab_size]
    assert found.tokenizer.encode("ed") == [tokenizer.vocab_size + 1]
    assert found.tokenizer.vocab_size == tokenizer.vocab_size + 2


@pytest.mark.parametrize(
    "text",
    [
        "Hüftprothese Gefäßverschluss",
        "갑상선기능저하증 심근경색",
        "göğüs ağrısı",
    ],
)
def test_words_with_accents_and_korean_ones_are_added(text, tmp_path):
    normalize = normalization.SentenceNormalizer(True, True).normalize
    content = train_model(
        [" ".join(normalize(text))] * 9, vocab_size=60, hard_vocab_limit=False
    )
    path = tmp_path / "vocab.model"
    path.write_bytes(content)
    tokenizer = tokenization.build_tokenizer(
        spm_model_file=path, keep_accents=True
    )
    units = extension.count_units([text], tokenizer)
    split = extension.find_split(extension.find_words(units), tokenizer)
    assert len(split) == 2
    found = extension.extend(tokenizer, "new", split)
    assert found.words == split
    assert found.tokenizer.encode(text) == [
        tokenizer.vocab_size + [w.text for w in split].index(normalize(name))
        for name in text.split()
    ]
    assert not extension.find_split(
        extension.find_words(units), found.tokenizer
    )


def test_only_unigram_models_can_be_extended(english, monkeypatch):
    tokenizer = english
    model = tokenizer.read_model()
    model.trainer_spec.model_type = 2  # BPE
    monkeypatch.setattr(type(tokenizer), "read_model", lambda self: model)
    with pytest.raises(ValueError, match="model with bpe; only plain unigram"):
        extension.extend(tokenizer, "new", [word(tokenizer, "edgy")])


def test_lines_are_added_to_a_wordpiece_vocabulary(chinese):
    tokenizer = chinese
    counts = collections.Counter({"cats": 3, "dog": 2, "cat": 5})
    split = extension.find_split(counts, tokenizer)
    assert [(w.text, w.parts) for w in split] == [
        ("cats", [5, 6]),
        ("dog", [1]),
    ]
    found = extension.extend(tokenizer, "new", split)
    assert found.tokenizer.encode("a dog, cats") == [7, 9, 1, 8]
    assert found.tokenizer.content == tokenizer.content + b"\ncats\ndog\n"


def test_casing_stays_that_of_the_vocabulary(shared):
    path = shared / "data/albert_en/30k-clean.model"
    tokenizer = tokenization.build_tokenizer(
        spm_model_file=path, do_lower_case=False, keep_accents=True
    )
    words = [word(tokenizer, "myocardial")]
    found = extension.extend(tokenizer, "new", words)
    settings = found.tokenizer.settings
    assert not settings["do_lower_case"] and settings["keep_accents"]
