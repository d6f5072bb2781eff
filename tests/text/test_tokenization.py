"""Tokenization equals the release's but for the faults that were mended."""

import gzip
import io
import itertools
import json
import logging
import pickle
import unicodedata

import numpy as np
import pytest
import sentencepiece

from albert_tf.text import normalization, tokenization
from tests.conftest import CARRIED, SHARED

NASTY = [
    "",
    " \t\n",
    "İstanbul'da ΣΑΣ ΟΔΟΣ. Σ",
    "e\u0301\u0323x q\u0307\u0323 \u1e9b\u0323 \u0344x",
    "\u0301abc caf\u0065\u0301 cre\u0300me",
    "½¾ ﬁ ㍿ ª ´ a´b ´ ﷺ",
    "한국어 각 가",
    "नमस्ते हिन्दी",
    "日本語カナ ﾊﾟ 。漢字",
    "\u200d\u200b x\u200b a\u00ad b",
    "\x00a\x00 \ufffd b\x7f",
    "a\ud800b",
    "▁a ▁ b ▁5, \u200b20,19,",
    "１２，３４５， 20,19, 2013, 1,000,",
    "[CLS] the [MASK] <pad> ##s",
    "a" * 300,
]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES += ["the", "un", "##aff", "##able", "a", "b", "##b", ",", "中", "##文"]

# Every tenth paragraph of SQuAD, and all of ours.
SQUAD = {
    name: (path, step)
    for name, path, step in (
        ("squad", SHARED / "data/squad/dev-v1.1.json", 10),
        ("ours", CARRIED / "squad/v1_data.json", 1),
    )
    if path.exists()
}

# Indices of lines in spm2k.jsonl.gz that the corrected rule changes.
# fmt: off
CHANGED_LINES = [
    14, 15, 16, 17, 18, 19, 21, 22, 24, 28, 31, 38, 52, 74, 85, 99, 100,
    101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 112, 113, 114, 116,
    118, 119, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132,
    133, 134, 135, 137, 138, 139, 140, 141, 142, 143, 144, 145, 146, 147,
    148, 149, 150, 151, 152, 153, 154, 155, 156, 157, 158, 159, 171, 175,
    178, 204, 207, 211, 234, 239, 240, 241, 243, 246, 247, 248, 250, 252,
    253, 254, 256, 257, 258, 261, 262, 265, 267, 269, 270, 271, 272, 274,
    277, 279, 280, 282, 283, 285, 286, 287, 288, 289, 290, 291, 292, 293,
    294, 295, 296, 297, 299, 304, 305, 307, 308, 309, 310, 311, 313, 324,
    329, 365, 369, 379, 386, 392, 396, 403, 408, 421, 422, 437,
]
# fmt: on


def build_wordpiece(folder, pieces=PIECES, **settings):
    path = folder / "vocab.txt"
    path.write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return tokenization.build_tokenizer(vocab_file=str(path), **settings)


def train_model(lines, **options):
    """Returns a SentencePiece model as bytes."""
    output = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(lines),
        model_writer=output,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols="[CLS],[SEP],[MASK]",
        minloglevel=2,
        num_threads=1,
        **options,
    )
    return output.getvalue()


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    """A model with pieces of digits and commas, and without brackets."""
    numbers = [
        f"in {a},{b}, and 19{b}, of {b}, or cafe x"
        for a in range(10, 30)
        for b in range(10, 99)
    ]
    path = tmp_path_factory.mktemp("model") / "numbers.model"
    path.write_bytes(train_model(numbers, vocab_size=200))
    return str(path)


@pytest.fixture(scope="module")
def golden(shared):
    """Folder of recorded tokens; the repository's are of our own text."""
    return shared / "golden" / "dev" / "token"


@pytest.fixture(scope="module")
def clean_model(shared):
    return str(shared / "data" / "albert_en" / "30k-clean.model")


def read_lines(path):
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize("casing", ["lower", "cased"])
def test_english_equals_the_release(golden, clean_model, casing):
    tokenizer = tokenization.build_tokenizer(
        spm_model_file=clean_model, do_lower_case=casing == "lower"
    )
    for line in read_lines(golden / "spm30k.jsonl.gz"):
        text, wanted = line["text"], line[casing]
        assert tokenizer.normalize(text) == wanted["preprocessed"]
        assert tokenizer.tokenize(text) == wanted["pieces"]
        assert tokenizer.encode(text) == wanted["ids"]


@pytest.mark.parametrize("kind", ["sentencepiece", "wordpiece"])
def test_a_changed_casing_is_that_of_a_new_tokenizer(golden, clean_model, kind):
    """And the tokenizer stays as it was."""
    paths = {"sentencepiece": clean_model, "wordpiece": golden / "vocab.txt"}
    file = {tokenization.ARGUMENTS[kind]: str(paths[kind])}
    first = tokenization.build_tokenizer(**file, keep_accents=True)
    before = first.encode(text := "The Bush, a café in 2013, ÉTÉ")
    changed = first.change_casing(do_lower_case=False)
    casing = {"do_lower_case": False, "keep_accents": True}
    wanted = tokenization.build_tokenizer(**file, **casing)
    assert changed.settings == wanted.settings
    assert changed.casing == wanted.casing == casing
    assert changed.encode(text) == wanted.encode(text) != before
    assert changed.encode_with_offsets(text) == wanted.encode_with_offsets(text)
    assert first.encode(text) == before and first.casing == {
        "keep_accents": True
    }


@pytest.mark.parametrize("casing", ["lower", "cased"])
def test_wordpiece_equals_the_release(golden, casing):
    tokenizer = tokenization.build_tokenizer(
        vocab_file=str(golden / "vocab.txt"), do_lower_case=casing == "lower"
    )
    for line in read_lines(golden / "wordpiece.jsonl.gz"):
        text, wanted = line["text"], line[f"vocab_{casing}"]
        assert tokenizer.normalize(text).split() == wanted["basic"]
        assert tokenizer.tokenize(text) == wanted["tokens"]
        assert tokenizer.encode(text) == wanted["ids"]


def apply_comma_rule(pieces, tokenizer):
    """The rule as written in release.md, with the second split spelled out."""
    model, result = tokenizer._model, []
    for piece in pieces:
        if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
            parts = model.EncodeAsPieces(piece[:-1].replace("▁", ""))
            if piece[0] != "▁" and parts[0] == "▁":
                parts = parts[1:]
            elif piece[0] != "▁" and parts[0][1:] not in tokenizer.pieces:
                parts = list(parts[0][1:]) + parts[1:]
            elif piece[0] != "▁":
                parts = [parts[0][1:], *parts[1:]]
            result += [*parts, ","]
        else:
            result.append(piece)
    return result


def has_inner_number(pieces):
    """Whether the fix matters: a number with a comma inside a word."""
    return any(
        len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()
        for piece in pieces
        if piece[0] != "▁"
    )


def test_only_numbers_inside_words_differ_from_the_release(golden):
    tokenizer = tokenization.build_tokenizer(
        spm_model_file=str(golden / "spm2k.model")
    )
    changed, lines = [], read_lines(golden / "spm2k.jsonl.gz")
    for number, line in enumerate(lines):
        pieces = tokenizer.tokenize(line["text"])
        assert tokenizer.normalize(line["text"]) == line["preprocessed"]
        assert pieces == apply_comma_rule(line["sp_pieces"], tokenizer)
        ids = tokenizer.encode(line["text"])
        assert (ids == line["ids"]) == (pieces == line["pieces"])
        assert (ids != line["ids"]) == has_inner_number(line["sp_pieces"])
        if ids != line["ids"]:
            changed.append(number)
    assert len(lines) in (219, 520)
    assert changed == [n for n in CHANGED_LINES if n < len(lines)]


def test_hugging_face_encodings(shared, clean_model):
    path = shared / "data" / "albert_en" / "hf_expected_encodings.json"
    for case in json.loads(path.read_text(encoding="utf-8")):
        tokenizer = tokenization.build_tokenizer(
            spm_model_file=clean_model,
            keep_accents=case.get("keep_accents", False),
        )
        ids = tokenizer.encode(case["text"])
        if "ids" in case:
            ids = [tokenizer.cls_id, *ids, tokenizer.sep_id]
        assert ids == case.get("ids", case.get("ids_no_special"))


def test_a_vocabulary_with_a_duplicate_is_refused(golden):
    with pytest.raises(
        ValueError, match="'dup' on line 7 and again on line 10"
    ):
        tokenization.build_tokenizer(
            vocab_file=str(golden / "vocab_quirks.txt")
        )


def build_all(golden, clean_model):
    """Every kind of tokenizer, with and without case and accents."""
    models = [clean_model, str(golden / "spm2k.model")]
    for lower, accents in itertools.product((True, False), repeat=2):
        settings = {"do_lower_case": lower, "keep_accents": accents}
        for model in models:
            yield tokenization.build_tokenizer(spm_model_file=model, **settings)
        yield tokenization.build_tokenizer(
            vocab_file=str(golden / "vocab.txt"), **settings
        )


def check_offsets(tokenizer, text):
    """Offsets are in order and select the characters of each piece."""
    ids, offsets = tokenizer.encode_with_offsets(text)
    pieces = tokenizer.tokenize(text)
    assert ids == tokenizer.encode(text)
    assert len(pieces) == len(offsets) == len(ids)
    for before, after in itertools.pairwise([(0, 0), *offsets]):
        assert before[0] <= after[0] and before[1] <= after[1] <= len(text)
    for piece, piece_id, (start, end) in zip(pieces, ids, offsets, strict=True):
        assert start <= end
        part = tokenizer.normalize(text[start:end])
        if tokenizer.kind == "sentencepiece":
            part = tokenizer._model.Normalize(part).replace("▁", "")
        elif piece_id == tokenizer.unk_id:
            continue
        wanted = piece.replace("▁", "").removeprefix("##")
        # Pieces may share a "½", which becomes several characters, and a
        # letter with its accents, which are reordered.
        is_shared = any(
            len(unicodedata.normalize("NFKD", char)) > 1
            or unicodedata.combining(char)
            for char in text[start:end]
        )
        assert part == wanted or (is_shared and wanted in part), text


def test_offsets_locate_every_piece_in_the_text(golden, clean_model):
    texts = [line["text"] for line in read_lines(golden / "spm30k.jsonl.gz")]
    for tokenizer in build_all(golden, clean_model):
        for text in texts[:: 1 if tokenizer.kind == "sentencepiece" else 4]:
            check_offsets(tokenizer, text)
        for text in NASTY:
            check_offsets(tokenizer, text)


@pytest.mark.parametrize("name", SQUAD)
def test_offsets_locate_answers_in_paragraphs(name, clean_model):
    tokenizer = tokenization.build_tokenizer(spm_model_file=clean_model)
    path, step = SQUAD[name]
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    paragraphs = [p for article in articles for p in article["paragraphs"]]
    for paragraph in paragraphs[::step]:
        text = paragraph["context"]
        check_offsets(tokenizer, text)
        _, offsets = tokenizer.encode_with_offsets(text)
        starts = [start for start, end in offsets if end > start]
        ends = [end for start, end in offsets if end > start]
        for answer in (a for q in paragraph["qas"] for a in q["answers"]):
            first = np.searchsorted(ends, answer["answer_start"], "right")
            end = answer["answer_start"] + len(answer["text"])
            last = np.searchsorted(starts, end) - 1
            assert answer["text"] in text[starts[first] : ends[last]]


def test_offsets_of_accents_and_numbers(tmp_path, model_file):
    tokenizer = tokenization.build_tokenizer(spm_model_file=model_file)
    text = "x  20,19, cafe\u0301 x"
    ids, offsets = tokenizer.encode_with_offsets(text)
    cut = [text[start:end] for start, end in offsets]
    assert "".join(cut) == "x20,19,cafe\u0301x"
    assert "e\u0301" in cut[-2]
    wordpiece = build_wordpiece(tmp_path)
    ids, offsets = wordpiece.encode_with_offsets("  Únaffable,中文")
    assert wordpiece.decode(ids) == "unaffable , 中 [UNK]"
    assert offsets == [(2, 4), (4, 7), (7, 11), (11, 12), (12, 13), (13, 14)]
    # A removed vowel sign belongs to the preceding letter.
    hindi = build_wordpiece(tmp_path, [*PIECES, "क"])
    assert hindi.encode_with_offsets("कु a") == ([15, 9], [(0, 2), (3, 4)])


@pytest.mark.parametrize(
    "kind", [normalization.SentenceNormalizer, normalization.WordNormalizer]
)
@pytest.mark.parametrize("do_lower_case", [True, False])
@pytest.mark.parametrize("keep_accents", [True, False])
def test_normalization_with_spans_gives_the_same_text(
    kind, do_lower_case, keep_accents
):
    normalizer = kind(do_lower_case, keep_accents)
    # All characters except most of Han and Hangul, in unusual contexts.
    codes = [*range(0x3400), *range(0x3400, 0xD7FF, 97), *range(0xD800, 0xDA00)]
    codes += [*range(0xF900, 0x20000), *range(0x20000, 0x110000, 997)]
    for first in range(0, len(codes), 500):
        chunk = "Σ\u0301".join(map(chr, codes[first : first + 500]))
        normalized, spans = normalizer.normalize_with_spans(chunk)
        assert normalized == normalizer.normalize(chunk)
        assert len(spans) == len(normalized)
        assert spans == sorted(spans)


def test_numbers_do_not_keep_their_comma(model_file):
    tokenizer = tokenization.build_tokenizer(spm_model_file=model_file)
    assert tokenizer.expansions
    for text in (
        "in 20,19, of 19, x",
        "2013,",
        "1,000,",
        "12,345",
        "1923, 45,",
    ):
        pieces = tokenizer.tokenize(text)
        assert "".join(pieces).replace("▁", " ").strip() == text
        assert not any(p[-1] == "," and p[-2:-1].isdigit() for p in pieces)
        assert tokenizer.unk_id not in tokenizer.encode(text)
        assert tokenizer.pieces[tokenizer.encode(text)[-1]] == pieces[-1]


def test_a_number_inside_a_word_does_not_start_a_word(golden):
    tokenizer = tokenization.build_tokenizer(
        spm_model_file=str(golden / "spm2k.model")
    )
    # "▁17" is a piece and "17" is not: it is split, not unknown.
    assert "▁17" in tokenizer.pieces and "17" not in tokenizer.pieces
    assert tokenizer.tokenize("20,17,") == ["▁", "20", ",", "1", "7", ","]


def test_the_text_of_a_special_piece_is_not_special(model_file):
    tokenizer = tokenization.build_tokenizer(spm_model_file=model_file)
    ids = tokenizer.encode("[CLS] of [MASK]")
    assert tokenizer.cls_id not in ids and tokenizer.mask_id not in ids
    assert tokenizer.unk_id in ids


@pytest.mark.parametrize("texts", [{"text": ["good"]}, {"good", "bad"}, "good"])
def test_what_is_no_list_of_texts_is_refused(tmp_path, texts):
    tokenizer = build_wordpiece(tmp_path)
    with pytest.raises(ValueError, match="wanted a list of texts"):
        tokenizer(texts)
    with pytest.raises(ValueError, match="wanted a list of texts"):
        tokenizer(["good"], texts)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_batch_equals_single_texts(tmp_path, model_file, num_threads):
    for tokenizer in (
        tokenization.build_tokenizer(spm_model_file=model_file),
        build_wordpiece(tmp_path),
    ):
        texts = [*NASTY, "in 20,19, of 19,"] * 20
        rows = tokenizer.encode_batch(texts, num_threads=num_threads)
        assert rows == [tokenizer.encode(text) for text in texts]
        assert tokenizer.encode_batch([]) == []


def starts(tokenizer, pieces):
    return [tokenizer._starts_word(piece) for piece in pieces]


def test_the_prefix_starts_a_word_in_every_script(model_file):
    tokenizer = tokenization.build_tokenizer(spm_model_file=model_file)
    turkish, russian = ["▁ev", "ler", "imiz", "ış"], ["▁при", "вет", "ы"]
    hindi, german = ["▁नम", "स्ते", "ी", "\u094d"], ["▁Haus", "tür", "ß", "1"]
    for pieces in (turkish, russian, hindi, german):
        assert (
            starts(tokenizer, pieces)
            == [True, False, False, False][: len(pieces)]
        )
    assert all(starts(tokenizer, ["中", "中文", "々", "カナ", "ひ", "▁", "𠮷"]))
    # Thai, Lao, Tibetan, Burmese, Khmer: no spaces between words.
    assert all(starts(tokenizer, ["กิน", "ข้าว", "ລາວ", "བོད", "မြန်", "ខ្មែរ"]))
    marks = ["\u00ad-", "\u3099", "\u0301", "\u0e34", "\u103c"]
    assert not any(starts(tokenizer, marks))
    assert all(starts(tokenizer, [".", "'s", "...", "€", "(", ","]))
    assert all(tokenizer.is_word_start[:5])
    assert tokenizer.is_word_start.shape == (tokenizer.vocab_size,)
    assert tokenizer.is_word_start.dtype == bool


def test_byte_pieces_do_not_start_a_word(tmp_path):
    model = train_model(["ab ba"], vocab_size=264, byte_fallback=True)
    (tmp_path / "bytes.model").write_bytes(model)
    tokenizer = tokenization.build_tokenizer(
        spm_model_file=str(tmp_path / "bytes.model")
    )
    assert not tokenizer.is_word_start[tokenizer.pieces.index("<0xE4>")]
    text = "ab 中"
    ids, offsets = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text)
    assert "".join(text[start:end] for start, end in offsets) == "ab中"


def test_wordpiece_pieces_without_hashes_start_a_word(tmp_path):
    tokenizer = build_wordpiece(tmp_path)
    continued = [p for p in PIECES if p.startswith("##") and p != "##文"]
    assert [
        piece
        for piece, is_start in zip(PIECES, tokenizer.is_word_start, strict=True)
        if not is_start
    ] == continued


def test_ids_are_line_numbers(tmp_path):
    pieces = [*PIECES, "", "\u2028", "  padded  ", "two words", "last"]
    tokenizer = build_wordpiece(tmp_path, pieces)
    assert tokenizer.encode("padded last words") == [17, 19, tokenizer.unk_id]
    assert tokenizer.vocab_size == len(pieces)


def test_a_long_word_is_unknown(tmp_path):
    tokenizer = build_wordpiece(tmp_path, [*PIECES, "##a"])
    assert len(tokenizer.encode("a" * 200)) == 200
    assert tokenizer.encode("a" * 201) == [tokenizer.unk_id]


def test_accents_can_be_kept(tmp_path, model_file):
    for keep_accents, wanted in ((True, "é"), (False, "e")):
        for tokenizer in (
            tokenization.build_tokenizer(
                spm_model_file=model_file, keep_accents=keep_accents
            ),
            build_wordpiece(tmp_path, keep_accents=keep_accents),
        ):
            text = tokenizer.normalize("É")
            assert unicodedata.normalize("NFC", text) == wanted


def test_pickled_tokenizers_encode_alike(tmp_path, model_file):
    for tokenizer in (
        tokenization.build_tokenizer(spm_model_file=model_file),
        build_wordpiece(tmp_path, do_lower_case=False),
    ):
        pickled = pickle.dumps(tokenizer)
        wanted = tokenizer.encode("In 20,19, The the a ab")
        assert pickle.dumps(tokenizer) == pickled
        copy = pickle.loads(pickled)
        assert copy.encode("In 20,19, The the a ab") == wanted
        assert copy.settings == tokenizer.settings


def test_decoding_gives_the_normalized_text(model_file):
    tokenizer = tokenization.build_tokenizer(spm_model_file=model_file)
    ids = np.array([tokenizer.cls_id, *tokenizer.encode("In 20,19, of x")])
    assert tokenizer.decode(ids) == "in 20,19, of x"


def test_settings_are_stored_and_compared(tmp_path, caplog):
    tokenizer = build_wordpiece(tmp_path, do_lower_case=False)
    tokenizer.write_settings(tmp_path)
    assert tokenization.read_settings(tmp_path) == tokenizer.settings
    assert tokenization.read_settings(tmp_path / "elsewhere") is None
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "tokenizer_settings.json",
        "vocab.txt",
    ]
    with caplog.at_level(logging.WARNING):
        build_wordpiece(tmp_path, do_lower_case=False)
        assert not caplog.records
        build_wordpiece(tmp_path, do_lower_case=True)
    assert "do_lower_case=False" in caplog.text


def test_bytes_are_refused(tmp_path, model_file):
    for tokenizer in (
        tokenization.build_tokenizer(spm_model_file=model_file),
        build_wordpiece(tmp_path),
    ):
        for method in (
            tokenizer.encode,
            tokenizer.tokenize,
            tokenizer.encode_with_offsets,
        ):
            with pytest.raises(TypeError, match="decode bytes as UTF-8"):
                method(b"the")


def test_files_of_the_wrong_kind_are_refused(tmp_path, model_file):
    build = tokenization.build_tokenizer
    listing = tmp_path / "pieces.vocab"
    listing.write_text("<pad>\t0\n<unk>\t0\n▁the\t-3.5\n", encoding="utf-8")
    words = tmp_path / "words.txt"
    words.write_text("the\nof\n")
    missing = str(tmp_path / "missing.model")
    with pytest.raises(ValueError, match="Set exactly one vocabulary"):
        build()
    with pytest.raises(ValueError, match="Set exactly one vocabulary"):
        build(spm_model_file=model_file, vocab_file=str(words))
    with pytest.raises(FileNotFoundError, match="missing.model"):
        build(spm_model_file=missing)
    with pytest.raises(ValueError, match="the .model file next to it"):
        build(spm_model_file=str(listing))
    with pytest.raises(ValueError, match="spm_model_file to the .model file"):
        build(vocab_file=str(listing))
    with pytest.raises(ValueError, match="vocab_file for a WordPiece"):
        build(spm_model_file=str(words))
    with pytest.raises(ValueError, match="Set spm_model_file"):
        build(vocab_file=model_file)
    with pytest.raises(
        ValueError, match=r"lacks the special pieces \['\[PAD\]"
    ):
        build(vocab_file=str(words))
