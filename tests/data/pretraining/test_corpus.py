"""Tests of corpus.py: all kinds of text are tokenized without losses."""

import gzip
import time

import numpy as np
import pytest

from albert_tf.data.pretraining import corpus
from albert_tf.text import tokenization
from tests import tiny

WORDS = [f"w{i}" for i in range(20)]


@pytest.fixture
def tokenizer(tmp_path):
    path = tmp_path / "vocab.txt"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    path.write_text("\n".join([*special, *WORDS, "##x"]) + "\n")
    return tokenization.build_tokenizer(vocab_file=str(path))


def documents_of(tmp_path, tokenizer, *texts, limit=50):
    """The documents of some files, as lists of sentences of pieces."""
    files = []
    for text in texts:
        files.append(str(tmp_path / f"{len(files)}.txt"))
        data = text if isinstance(text, bytes) else text.encode()
        (tmp_path / f"{len(files) - 1}.txt").write_bytes(data)
    blocks = corpus.read_blocks(files)
    encoded = [corpus.encode_block(b, tokenizer, limit) for b in blocks]
    counts = corpus.write_store(str(tmp_path), encoded)
    store = corpus.open_store(str(tmp_path), tokenizer.vocab_size)
    tokens = store.tokens.read([0], [store.sentences[-1]])
    pieces = [tokenizer.pieces[token] for token in tokens]
    sentences = [
        pieces[i:j]
        for i, j in zip(store.sentences[:-1], store.sentences[1:], strict=True)
    ]
    documents = [
        sentences[i:j]
        for i, j in zip(store.documents[:-1], store.documents[1:], strict=True)
    ]
    assert counts["input_documents"] == len(documents)
    assert counts["input_sentences"] == len(sentences)
    assert counts["input_tokens"] == len(pieces)
    return documents, counts


def test_blank_lines_and_files_end_documents(tmp_path, tokenizer):
    documents, _ = documents_of(
        tmp_path, tokenizer, "\n\nw1 w2\nw3\n \t \n\nw4\n", "w5", "w6\n\n\n"
    )
    assert documents == [
        [["w1", "w2"], ["w3"]],
        [["w4"]],
        [["w5"]],
        [["w6"]],
    ]


def test_text_of_other_systems_is_read(tmp_path, tokenizer):
    text = b"\xef\xbb\xbfw1\r\nw2\r\n\r\nw3\r"
    documents, counts = documents_of(tmp_path, tokenizer, text)
    assert documents == [[["w1"], ["w2"]], [["w3"]]]
    assert counts["bad_characters"] == 0
    (block,) = corpus.read_blocks([str(tmp_path / "0.txt")])
    assert block.startswith(b"w1")
    corpus.check_probe("0.txt", text)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("w1\n".encode("utf-16"), "is UTF-16 text"),
        ("w1 w2 w3\n".encode("utf-16-le"), "is UTF-16 text"),
        ("текст\n".encode("koi8-r"), " 5 of its first"),
        (
            gzip.compress(b"w1 w2\n", mtime=0),
            "is compressed .gzip.; wanted UTF-8 text. Unpack",
        ),
        (bytes(range(256)), "not UTF-8 text"),
    ],
    ids=["bom", "utf-16", "koi8-r", "gzip", "binary"],
)
def test_files_other_than_utf8_text_are_refused(content, words):
    with pytest.raises(ValueError, match=words):
        corpus.check_probe("0.txt", content)


def test_a_truncated_store_is_not_accepted(tmp_path, tokenizer):
    _, counts = documents_of(tmp_path, tokenizer, "w1 w2\nw3\n\nw4\n")
    size = tokenizer.vocab_size
    assert corpus.is_store(str(tmp_path), size, counts)
    for name in ("tokens.bin", "sentences.bin", "documents.bin"):
        path = tmp_path / name
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        assert not corpus.is_store(str(tmp_path), size, counts)
        path.unlink()
        assert not corpus.is_store(str(tmp_path), size, counts)
        path.write_bytes(content)


def test_bad_characters_are_counted_and_the_rest_is_kept(tmp_path, tokenizer):
    text = b"w1 \xff\xfe w2\nw3 \xef\xbf\xbd\n\nw4\n"  # U+FFFD itself is valid
    documents, counts = documents_of(tmp_path, tokenizer, text)
    assert counts["bad_characters"] == 2
    found = [piece for d in documents for s in d for piece in s]
    assert [piece for piece in found if piece != "[UNK]"] == WORDS[1:5]


def test_lines_without_tokens_do_not_end_a_document(tmp_path, tokenizer):
    documents, counts = documents_of(tmp_path, tokenizer, "w1\n\u0301\nw2\n")
    assert documents == [[["w1"], ["w2"]]]
    assert counts["lost_lines"] == 1


def test_long_sentences_are_split_between_words(tmp_path, tokenizer):
    text = "w1x w2x w3x\nw4xx w5\nw6"
    documents, counts = documents_of(tmp_path, tokenizer, text, limit=3)
    assert documents == [
        [
            ["w1", "##x"],  # Half are three tokens, but that splits a word.
            ["w2", "##x"],
            ["w3", "##x"],
            ["w4", "##x"],  # No word starts early enough.
            ["##x", "w5"],
            ["w6"],
        ]
    ]
    assert counts["cut_lines"] == 2


@pytest.mark.parametrize("block_bytes", [7, 64, 999])
def test_blocks_do_not_change_the_documents(
    tmp_path, tokenizer, monkeypatch, block_bytes
):
    rng = np.random.default_rng(0)
    lines = [
        " ".join(rng.choice(WORDS, rng.integers(0, 9))) for _ in range(200)
    ]
    text = "\n".join(lines)
    wanted, _ = documents_of(tmp_path, tokenizer, text)
    monkeypatch.setattr(corpus, "BLOCK_BYTES", block_bytes)
    found, _ = documents_of(tmp_path, tokenizer, text)
    if block_bytes > 64:  # longer than any line
        assert found == wanted
    assert [sum(d, []) for d in found] == [sum(d, []) for d in wanted]


@pytest.mark.parametrize("space", [" ", ""], ids=["words", "one_word"])
def test_a_line_of_ten_megabytes_is_read_in_parts(tmp_path, tokenizer, space):
    start = time.monotonic()
    word = f"w7{space}"
    number = 10_000_000 // len(word)
    documents, counts = documents_of(tmp_path, tokenizer, word * number)
    assert time.monotonic() - start < 60
    assert counts["cut_documents"] == counts["input_documents"] - 1
    lengths = {len(s) for document in documents for s in document}
    assert max(lengths) <= 50
    if space:
        assert counts["input_tokens"] == number


def test_blocks_do_not_split_characters(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(corpus, "BLOCK_BYTES", 16)
    for text in ("w1é" * 40, "é" * 100, "a𝄞" * 40):
        _, counts = documents_of(tmp_path, tokenizer, text)
        assert counts["bad_characters"] == 0


def test_long_documents_are_split(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(corpus, "MAX_DOCUMENT_TOKENS", 5)
    text = "w1 w2\nw3 w4\nw5 w6\nw7\n\nw8 w9 w10\n"
    documents, counts = documents_of(tmp_path, tokenizer, text)
    assert [len(document) for document in documents] == [2, 2, 1]
    assert counts["cut_documents"] == 1


def test_large_vocabularies_use_a_wider_dtype():
    assert corpus.token_dtype(65536) == np.uint16
    assert corpus.token_dtype(65537) == np.uint32


def test_a_vocabulary_may_have_as_many_pieces_as_two_bytes_have_values(
    tmp_path,
):
    words = [f"w{i}" for i in range((1 << 16) - len(tiny.SPECIAL))]
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*tiny.SPECIAL, *words]))
    tokenizer = tokenization.build_tokenizer(vocab_file=str(path))
    documents, counts = documents_of(tmp_path, tokenizer, f"{words[-1]} x\n")
    assert documents == [[[words[-1], "[UNK]"]]]
    assert counts["unknown_tokens"] == 1
