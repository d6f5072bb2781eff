"""The tokenizers inside a graph: the same ids as outside."""

import dataclasses
import random
import sys
import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import errors
from albert_tf.data import examples, squad
from albert_tf.export import saved_models, text_serving
from albert_tf.model import heads, span_heads
from albert_tf.model.config import AlbertConfig
from albert_tf.text import (
    characters,
    normalization,
    operations,
    tokenization,
)
from albert_tf.weights import huggingface
from tests import conftest, tiny
from tests.text.test_tokenization import train_model

CASES = [
    (kind, do_lower_case)
    for kind in ("sentencepiece", "wordpiece")
    for do_lower_case in (True, False)
]
# Marks of several scripts; they have different ranks in the canonical order.
MARKS = [
    *"\u0300\u0301\u0316\u0323\u0327\u0345\u034f\u035c\u0591\u05b0\u05bc",
    *"\u064b\u0651\u0655\u093c\u094d\u0e38\u0e48\u0f71\u0f74\u0f80\u3099",
    *"\u0488\u1dca\u20d0\u302a\u302e\U0001d165\U0001d16e\U00016af0",
]
LETTERS = [*"aÉßσΣжאלبकคཀかガ가한각北ﬁ½Ǆ ", "\u212b", "\u1e69", "\U0001d15e"]
ODD = [
    *"Σ ΟΔΟΣ ΑΣ'Α ΣΑΣ Σ. aΣ\u0301 Straße İstanbul ﬁ ½ 北京 한국어 e\u0301 "
    "👩\u200d👩\u200d👧 🇺🇸 don't U.S.A. ｆｕｌｌ ǅ \u1e9e a\u0302\u0323b "
    "हिन्दी ไทย ٣٤ "
    "Ⅷ … $5,000. 1,234,567 20,19, 2013, 3, ##do [MASK] [UNK] ▁ <pad> "
    "looooooong -------".split(),
    "\x00",
    "\x1c",
    "\u3000",
    "\xa0",
    "\ufffd",
    "\u200b",
    "x" * 201,
]


@pytest.fixture(scope="module")
def graphs(shared):
    made = {}

    def make(kind, do_lower_case):
        if (kind, do_lower_case) not in made:
            paths = {
                "sentencepiece": (
                    "spm_model_file",
                    shared / "data/albert_en/30k-clean.model",
                ),
                "wordpiece": ("vocab_file", shared / "data/zh/vocab.txt"),
            }
            name, path = paths[kind]
            tokenizer = tokenization.build_tokenizer(
                **{name: str(path)}, do_lower_case=do_lower_case
            )
            graph = operations.GraphTokenizer(tokenizer)
            call = tf.function(
                graph.tokenize,
                input_signature=[tf.TensorSpec([None], tf.string)],
            )
            made[kind, do_lower_case] = tokenizer, graph, call
        return made[kind, do_lower_case]

    return make


def in_chunks(lines, size):
    """Splits a list; many lines at once need gigabytes in a graph."""
    for start in range(0, len(lines), size):
        yield lines[start : start + size]


def differences(tokenizer, call, lines):
    return [
        line
        for chunk in in_chunks(lines, 500)
        for line, ours, theirs in zip(
            chunk,
            call(tf.constant(chunk)).to_list(),
            tokenizer.encode_batch(chunk),
            strict=True,
        )
        if ours != theirs
    ]


def make_line(rng):
    """Unusual words, numbers and characters of all kinds."""
    words = []
    for _ in range(rng.randint(0, 8)):
        kind = rng.random()
        if kind < 0.5:
            words.append(rng.choice(ODD))
        elif kind < 0.7:
            number = str(rng.randint(0, 10 ** rng.randint(1, 9)))
            words.append(number + rng.choice(["", ",", "."]))
        else:
            start, end = rng.choice(
                [(32, 127), (0x80, 0x250), (0x300, 0x400), (0, 0xD800)]
            )
            size = rng.randint(1, 6)
            words.append(
                "".join(chr(rng.randrange(start, end)) for _ in range(size))
            )
    return rng.choice([" ", "", " \t "]).join(words)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_unusual_text_gets_the_same_ids_as_in_python(graphs, case):
    rng = random.Random(3)
    tokenizer, _, call = graphs(*case)
    lines = ["", " ", *ODD, *(make_line(rng) for _ in range(1500))]
    # Letters after unknown characters have many equally probable splits.
    lines = [x for x in lines if case[0] == "wordpiece" or "xxxxx" not in x]
    assert not differences(tokenizer, call, lines)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_character_is_normalized_as_in_python(graphs, case):
    """Includes only some unassigned and private-use characters."""
    tokenizer, graph, _ = graphs(*case)
    codes = [
        *range(0xD800),
        *range(0xE000, 0x40000),
        *range(0x40000, 0xE0000, 97),
        *range(0xE0000, 0xE1000),
        *range(0xE1000, sys.maxunicode + 1, 97),
        sys.maxunicode,
    ]
    wrong = []
    for chunk in in_chunks(codes, 25_000):
        lines = [f"a{chr(i)}b" for i in chunk]
        found = graph.normalize(tf.constant(lines)).codes
        found = tf.strings.unicode_encode(found, "UTF-8").numpy()
        wrong += [
            line
            for line, text in zip(lines, found, strict=True)
            if text.decode() != tokenizer.normalize(line)
        ]
    assert not wrong
    tables = normalization._WITHOUT_COMBINING, normalization._CLEANED
    assert all(len(table) <= table.MAX_SIZE for table in tables)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_real_text_gets_the_same_ids_as_in_python(shared, graphs, case):
    tokenizer, _, call = graphs(*case)
    novels = (shared / "data/text/novels_valid.txt").read_text("utf-8")
    reviews = (shared / "data/imdb/test.tsv").read_text("utf-8")
    lines = [*novels.split("\n")[:4000], *reviews.split("\n")[:1000]]
    assert not differences(tokenizer, call, lines)


def test_sources_are_indices_of_original_characters(graphs):
    _, graph, _ = graphs("sentencepiece", True)
    text = "  ½ Éa\u0301 ﬁ"
    codes, starts, ends = graph.normalize(tf.constant([text]))
    normalized = "".join(map(chr, codes[0].numpy()))
    assert normalized == "1⁄2 ea fi"
    assert [text[i] for i in starts[0].numpy()] == list("½½½ Éa ﬁﬁ")
    assert (ends - starts == 1).numpy().all()


@pytest.fixture(params=["ours", "all"])
def contexts(request):
    """Paragraphs: the repository's, odd ones too; and SQuAD's dev set."""
    if request.param == "all":
        if not conftest.SHARED.is_dir():
            pytest.skip(conftest.reason("data/squad"))
        path = conftest.SHARED / "data/squad/dev-v1.1.json"
        return squad.read_squad(str(path)).contexts[::40]
    path = conftest.CARRIED / "squad/v1_data.json"
    odd = [" ".join(ODD[:40]), "", "  ½ Éa\u0301 ﬁ x", " 北京 é 2013, ok"]
    return [*squad.read_squad(str(path)).contexts, *odd]


@pytest.mark.parametrize("kind", ["sentencepiece", "wordpiece"])
def test_offsets_are_the_same_as_in_python(contexts, graphs, kind):
    tokenizer, graph, _ = graphs(kind, True)
    ids, starts, ends = graph.tokenize_with_offsets(tf.constant(contexts))
    num_tokens = num_others = 0
    for text, *found in zip(
        contexts, ids.to_list(), starts.to_list(), ends.to_list(), strict=True
    ):
        wanted_ids, wanted = tokenizer.encode_with_offsets(text)
        assert found[0] == wanted_ids
        for (start, end), first, last in zip(wanted, *found[1:], strict=True):
            num_tokens += 1
            num_others += (start, end) != (first, last)
    # Several parts of a number before a comma share its characters.
    assert num_others < 1e-3 * num_tokens


def test_word_length_is_in_characters_and_padding_uses_its_id(tmp_path):
    path = tmp_path / "vocab.txt"
    pieces = ["é", "##é", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[PAD]"]
    path.write_text("\n".join(pieces))
    tokenizer = tokenization.build_tokenizer(
        vocab_file=str(path), do_lower_case=False
    )
    graph = operations.GraphTokenizer(tokenizer)
    lines = ["é" * 200, "é" * 201, "é é"]
    ids = graph.tokenize(tf.constant(lines))
    found = ids.to_list()
    assert found == tokenizer.encode_batch(lines)
    assert list(map(len, found)) == [200, 1, 2]
    packed = operations.pack(tokenizer, [ids[1:2]], 5)["input_word_ids"]
    assert packed.numpy().tolist() == [[3, 2, 4, 6, 6]]


def test_blank_and_unused_pieces_are_never_found(tmp_path):
    """KerasHub's copies have unused pieces, some vocabularies blank lines."""
    pieces = "[PAD] [UNK] [CLS] [SEP] [MASK] a ##b".split()
    (tmp_path / "vocab.txt").write_text("\n".join([*pieces, "", "", ""]))
    lines = ["the cat in 2013, sat on 7, the mat", "cafe 7, and tea"] * 20
    path = tmp_path / "original.model"
    path.write_bytes(train_model(lines, vocab_size=28))
    original = tokenization.build_tokenizer(spm_model_file=path)
    model = original.read_model()
    numbers = [p for p in model.pieces if p.piece.endswith("7,")]
    for piece in (*numbers, model.pieces[-1]):
        piece.type = piece.UNUSED
    (tmp_path / "unused.model").write_bytes(model.SerializeToString())
    for kind, name in (
        ("vocab_file", "vocab.txt"),
        ("spm_model_file", "unused.model"),
    ):
        tokenizer = tokenization.build_tokenizer(**{kind: tmp_path / name})
        graph = operations.GraphTokenizer(tokenizer)
        texts = [*lines[:2], "a ab abb x", model.pieces[-1].piece]
        wanted = tokenizer.encode_batch(texts)
        assert graph.tokenize(tf.constant(texts)).to_list() == wanted


def make_marked_line(rng):
    """Letters with up to five marks each; marks may begin a line."""
    parts = [
        rng.choice([*LETTERS, ""]) + "".join(rng.choices(MARKS, k=count))
        for count in rng.choices(range(6), weights=[9, 5, 4, 2, 1, 1], k=12)
    ]
    return "".join(parts)


@pytest.fixture(scope="module")
def accented(tmp_path_factory):
    """A vocabulary that has learned letters with their marks."""
    rng = random.Random(1)
    lines = [f"é ü ñ \u1ec7 a {make_marked_line(rng)}" for _ in range(800)]
    lines = [unicodedata.normalize("NFKD", line) for line in lines]
    path = tmp_path_factory.mktemp("accented") / "accented.model"
    path.write_bytes(
        train_model(lines, vocab_size=400, normalization_rule_name="nfkc")
    )
    return path


@pytest.mark.parametrize("do_lower_case", [True, False])
@pytest.mark.parametrize("kind", ["sentencepiece", "wordpiece"])
def test_kept_accents_are_ordered_as_in_python(
    accented, tmp_path, kind, do_lower_case
):
    if kind == "wordpiece":
        path = tmp_path / "vocab.txt"
        pieces = sorted(
            {f"{p}{c}" for c in MARKS + LETTERS for p in ("", "##")}
        )
        path.write_text(
            "\n".join([*tiny.SPECIAL, *(p for p in pieces if p.strip("# "))])
        )
        names = {"vocab_file": str(path)}
    else:
        names = {"spm_model_file": str(accented)}
    tokenizer = tokenization.build_tokenizer(
        **names, do_lower_case=do_lower_case, keep_accents=True
    )
    graph = operations.GraphTokenizer(tokenizer)
    rng = random.Random(2)
    lines = ["", "\u0323\u0301", *(make_marked_line(rng) for _ in range(3000))]
    codes = graph.normalize(tf.constant(lines)).codes
    found = tf.strings.unicode_encode(codes, "UTF-8").numpy()
    wanted = [tokenizer.normalize(line) for line in lines]
    assert [text.decode() for text in found] == wanted
    assert not differences(tokenizer, graph.tokenize, lines)


def test_kept_accents_come_from_the_same_characters(accented):
    tokenizer = tokenization.build_tokenizer(
        spm_model_file=str(accented), keep_accents=True
    )
    graph = operations.GraphTokenizer(tokenizer)
    rng = random.Random(3)
    texts = [
        "Cafe\u0301 \u1ec7\u0323",
        *(make_marked_line(rng) for _ in range(99)),
    ]
    ids, starts, ends = graph.tokenize_with_offsets(tf.constant(texts))
    for text, *found in zip(
        texts, ids.to_list(), starts.to_list(), ends.to_list(), strict=True
    ):
        wanted_ids, wanted = tokenizer.encode_with_offsets(text)
        assert found[0] == wanted_ids
        for (start, end), first, last in zip(wanted, *found[1:], strict=True):
            assert (start, end) == (first, last)


@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "bpe"},
        {"model_type": "word", "vocab_size": 18},
        {"byte_fallback": True, "vocab_size": 281},
        {"treat_whitespace_as_suffix": True},
    ],
)
def test_other_models_than_unigram_are_refused(tmp_path, options):
    """The operations and package tokenizers would find other pieces."""
    lines = ["the cat sat on the mat in a hat", "cafe and tea for two"] * 9
    path = tmp_path / "other.model"
    path.write_bytes(train_model(lines, **{"vocab_size": 27, **options}))
    tokenizer = tokenization.build_tokenizer(spm_model_file=str(path))
    name = options.get("model_type", next(iter(options)))
    for refuse in operations.GraphTokenizer, huggingface.describe_unigram:
        with pytest.raises(ValueError, match=f"other.model is .* {name}; only"):
            refuse(tokenizer)


@pytest.fixture(scope="module")
def preprocessor(graphs, tmp_path_factory):
    tokenizer, _, _ = graphs("sentencepiece", True)
    path = tmp_path_factory.mktemp("hub") / "preprocess"
    text_serving.export_preprocessor(str(path), tokenizer, seq_length=16)
    return tokenizer, tf.saved_model.load(str(path))


@pytest.mark.parametrize("seq_length", [3, 4, 5, 16, 33])
@pytest.mark.parametrize("has_pairs", [True, False])
def test_packing_equals_python(preprocessor, seq_length, has_pairs):
    tokenizer, loaded = preprocessor
    rng = random.Random(seq_length)
    words = ["a", "cat", "sat", "on", "the", "mats", "2013,", "½", ""]
    texts = [
        [" ".join(rng.choices(words, k=rng.randint(0, 30))) for _ in range(60)]
        for _ in range(2)
    ]
    if not has_pairs:
        texts[1] = None
    wanted = examples.pack_pairs(tokenizer, *texts, seq_length)
    wanted = examples.pad_examples(wanted, range(60), seq_length)
    segments = [loaded.tokenize(tf.constant(x)) for x in texts if x]
    found = loaded.bert_pack_inputs(
        segments, seq_length=tf.constant(seq_length)
    )
    for theirs, ours in (
        ("input_word_ids", "input_ids"),
        ("input_mask", "input_mask"),
        ("input_type_ids", "segment_ids"),
    ):
        np.testing.assert_array_equal(found[theirs], wanted[ours])
    if seq_length == 16 and not has_pairs:
        at_once = loaded(tf.constant(texts[0]))
        for name, value in found.items():
            np.testing.assert_array_equal(at_once[name], value)


def test_a_length_without_room_for_a_token_is_refused(preprocessor, tmp_path):
    tokenizer, loaded = preprocessor
    for seq_length in (0, 2):
        with pytest.raises(tf.errors.InvalidArgumentError, match="at least 3"):
            loaded.bert_pack_inputs(
                [loaded.tokenize(["a cat"])], seq_length=seq_length
            )
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least 3"):
        text_serving.export_preprocessor(
            str(tmp_path / "short"), tokenizer, seq_length=2
        )
    assert not (tmp_path / "short").exists()


def test_invalid_utf8_is_accepted(graphs):
    tokenizer, _, call = graphs("sentencepiece", True)
    lines = [b"a \xff cat", b"\xc3", b"a\x00cat", b"a\xed\xa0\x80"]
    wanted = tokenizer.encode_batch([x.decode(errors="replace") for x in lines])
    assert call(tf.constant(lines)).to_list() == wanted


def test_a_preprocessor_returns_its_special_tokens(preprocessor):
    tokenizer, loaded = preprocessor
    special = loaded.tokenize.get_special_tokens_dict()
    assert {name: int(value) for name, value in special.items()} == {
        "padding_id": tokenizer.pad_id,
        "start_of_sequence_id": tokenizer.cls_id,
        "end_of_segment_id": tokenizer.sep_id,
        "mask_id": tokenizer.mask_id,
        "vocab_size": 30000,
    }


def test_long_and_empty_texts_are_served(preprocessor):
    _, loaded = preprocessor
    found = loaded(tf.constant(["word " * 20_000, "", "x" * 100_000]))
    assert found["input_word_ids"].shape == (3, 16)
    assert found["input_mask"].numpy().sum(axis=1).tolist() == [16, 2, 16]
    assert loaded(tf.constant([], tf.string))["input_mask"].shape == (0, 16)
    in_pipeline = tf.data.Dataset.from_tensors(["a cat"]).map(loaded)
    assert next(iter(in_pipeline))["input_mask"].shape == (1, 16)


@pytest.mark.parametrize("has_pairs", [True, False])
def test_a_text_classifier_equals_a_classifier_of_ids(
    graphs, words, tmp_path, has_pairs
):
    """Pairs with SentencePiece, and single, also unusual, texts."""
    tokenizer = graphs("sentencepiece", True)[0] if has_pairs else words
    config = AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=4,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=40,
    )
    model = heads.AlbertClassifier(config, num_labels=2)
    texts = [["w1 w2, w19.", "", "w3 w4 no w5" * 9]]
    if has_pairs:
        texts = [
            ["A cat sat.", "", "It cost $1,000, no less. " * 9],
            ["On mats?", "Nothing.", ""],
        ]
    path = text_serving.export_text_classifier(
        tmp_path / "serving",
        model,
        tokenizer=tokenizer,
        has_pairs=has_pairs,
        max_seq_length=20,
        threshold=0.5,
        contents=saved_models.Contents(labels=("no", "yes")),
    )
    signature = tf.saved_model.load(path).signatures["serving_default"]
    names = ("text_a", "text_b")[: 1 + has_pairs]
    found = signature(
        **{n: tf.constant(x) for n, x in zip(names, texts, strict=True)}
    )
    rows = examples.pack_pairs(tokenizer, *(texts + [None])[:2], 20)
    wanted = model(examples.pad_examples(rows, range(3), 20))["logits"]
    np.testing.assert_allclose(found["logits"], wanted, atol=1e-5)
    np.testing.assert_allclose(
        found["probabilities"], tf.nn.softmax(wanted), atol=1e-5
    )
    assert found["threshold"].numpy().tolist() == [0.5] * 3
    none = signature(**{n: tf.constant([], tf.string) for n in names})
    assert none["logits"].shape == (0, 2)
    with pytest.raises(ValueError, match="the model has 40 positions"):
        text_serving.export_text_classifier(
            tmp_path / "long",
            model,
            tokenizer=tokenizer,
            has_pairs=has_pairs,
            max_seq_length=41,
        )
    with open(f"{path}/assets/labels.txt") as file:
        assert file.read() == "no\nyes\n"
    if not has_pairs:
        lines = [*STRANGE.values()]
        decoded = [line.decode(errors="replace") for line in lines]
        found = signature(text_a=tf.constant(lines))["logits"]
        assert np.isfinite(found).all()
        np.testing.assert_allclose(
            found, signature(text_a=tf.constant(decoded))["logits"], atol=1e-6
        )


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A case-preserving tokenizer of a few words."""
    path = tmp_path_factory.mktemp("words") / "vocab.txt"
    path.write_text("\n".join([*tiny.SPECIAL, *tiny.WORDS]) + "\n")
    return tokenization.build_tokenizer(
        vocab_file=str(path), do_lower_case=False
    )


STRANGE = {
    "empty": b"",
    "space": b" \t\n",
    "a zero": b"\0",
    "zeros between": b"w1\0w2 w3",
    "no UTF-8": b"w1 \xff\xfe w2 \xc3",
    "half a pair": b"w1 \xed\xa0\x80 w2",
    "cut": "w1 w2 €".encode()[:-1],
    "a byte order mark": "\ufeffw1 w2".encode(),
    "emoji": "w1 👩\u200d👩\u200d👧 w2".encode(),
    "a long word": b"w1" * 500_000,
    "many words": b"w1 " * 340_000,
    "a long run of no UTF-8": b"\xff" * 1_000_000,
}


INVISIBLE = {
    "spaces at the ends": "  w1 w2 \t",
    "no-break spaces": "\u00a0w1\u00a0w2\u00a0",
    "joiners": "\u200bw1\u200b w2\ufeff",
    "fillers": "\u3164w1 \u2800",
    "a selector": "\ufe0fw1 \u2764\ufe0f \u200d",
    "beyond 16 bits": " \U0001f600 w1\U0001f600 ",
    "full-width": "\u3000\uff57\uff11 ",
    "combining marks": " e\u0301\u034f w1 \u0301 ",
    "line separators": "\x85w1\u2028\x1c",
}
NOTHING = {
    "joiners alone": "\u200b\u200d",
    "selectors alone": "\ufe0f\u034f",
    "fillers alone": "\u3164 \u2800",
}


@pytest.fixture(
    scope="module",
    params=[
        ("sentencepiece", "v1"),
        ("wordpiece", "v2"),
        pytest.param(("sentencepiece", "v2"), marks=pytest.mark.nightly),
        pytest.param(("wordpiece", "v1"), marks=pytest.mark.nightly),
    ],
    ids="-".join,
)
def answering(request, words, tmp_path_factory):
    kind, version = request.param
    folder = tmp_path_factory.mktemp("answering")
    tokenizer, config = words, tiny.ONE_LAYER
    if kind == "sentencepiece":
        line = "w1 w2 w3 \u200b \u034f \u2800 \u2764\ufe0f"
        path = folder / "spiece.model"
        path.write_bytes(train_model([line] * 9, vocab_size=16))
        tokenizer = tokenization.build_tokenizer(spm_model_file=str(path))
        config = dataclasses.replace(config, vocab_size=tokenizer.vocab_size)
    arguments = {"threshold": 1e9} if version == "v2" else {}
    build = {
        "v1": span_heads.AlbertSpans,
        "v2": span_heads.AlbertConditionalSpans,
    }[version]
    path = text_serving.export_text_spans(
        folder / "export",
        build(config),
        tokenizer=tokenizer,
        max_seq_length=32,
        max_query_length=8,
        **arguments,
    )
    return tf.saved_model.load(path).signatures["serving_default"]


TEXTS = STRANGE | {n: text.encode() for n, text in INVISIBLE.items()}
TEXTS |= {n: text.encode() for n, text in NOTHING.items()}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_answers_are_visible_spans_of_any_context(answering, text):
    """Invalid UTF-8 is decoded as U+FFFD, as in Python."""
    texts = [text, b"w3 w4"]
    found = answering(question=tf.constant(texts), context=tf.constant(texts))
    for i, context in enumerate(texts):
        whole = context.decode(errors="replace")
        start, end = (int(found[name][i]) for name in ("start", "end"))
        answer = found["answer"][i].numpy().decode()
        assert whole[start:end] == answer
        assert normalization.trim(whole, start, end) == (start, end)
        has_answer = float(found["score"][i]) > -1e30
        assert bool(answer) == has_answer
        if normalization.is_blank(whole):
            assert not has_answer
        if "is_answered" in found:  # No question is above this threshold.
            assert bool(found["is_answered"][i]) == has_answer
    assert np.isfinite(found["score"]).all()


def test_the_best_visible_span_is_taken():
    context = tf.constant(["\u200b w1", "\u200b", ""])
    offsets = [
        tf.ragged.constant([[0, 2], [1], []], tf.int32),
        tf.ragged.constant([[0, 4], [0], []], tf.int32),
    ]
    candidates = tf.constant([[2, 3]]), tf.constant([[2, 3]])
    found = text_serving.quote(
        context,
        offsets,
        tf.constant([2, 2, 2]),
        *candidates,
        tf.constant([[5.0, 1.0]] * 3),
    )
    assert [x.decode() for x in found["answer"].numpy()] == ["w1", "", ""]
    np.testing.assert_array_equal(found["start"], [2, 0, 0])
    np.testing.assert_allclose(found["score"], [1.0, -1e30, -1e30])


def test_spans_are_trimmed_as_in_python():
    rng = random.Random(1)
    parts = ["a", " ", "\u200b", "\ufe0f", "\U0001f600", "\u3164", "e\u0301"]
    texts = ["".join(rng.choices(parts, k=12)) for _ in range(60)] + ["", " "]
    spans = [
        sorted(sorted(rng.choices(range(len(text) + 1), k=2)) for _ in range(5))
        for text in texts
    ]
    ragged = tf.ragged.constant(spans, tf.int32, ragged_rank=1)
    starts, ends = characters.trim(texts, ragged[..., 0], ragged[..., 1])
    for text, row, firsts, lasts in zip(
        texts, spans, starts.to_list(), ends.to_list(), strict=True
    ):
        for span, first, last in zip(row, firsts, lasts, strict=True):
            wanted = normalization.trim(text, *span)
            if wanted[0] == wanted[1]:
                assert first >= last
            else:
                assert (first, last) == wanted


def test_empty_batches_work_and_other_sizes_are_refused(answering):
    none = tf.constant([], tf.string)
    found = answering(question=none, context=none)
    assert {len(x) for x in found.values()} == {0}
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        answering(question=tf.constant(["w1"]), context=tf.constant(["a", "b"]))
    told = errors.explain(caught.value)
    assert "context has 2 rows, wanted as many as question 1" in told


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_seq_length": 11}, "too small for max_query_length=8"),
        ({"max_query_length": 0}, "too small for max_query_length=0"),
        ({"threshold": float("nan")}, "wanted a finite float32"),
        ({"model": "small"}, "vocabulary has 25 pieces, but the model has 24"),
    ],
)
def test_an_unsupported_text_model_is_not_exported(
    words, tmp_path, changes, message
):
    config = tiny.CONFIG
    if "model" in changes:
        config = dataclasses.replace(config, vocab_size=24)
    arguments = {"max_seq_length": 32, "max_query_length": 8} | changes
    arguments["model"] = span_heads.AlbertSpans(config)
    with pytest.raises(ValueError, match=message):
        text_serving.export_text_spans(tmp_path, tokenizer=words, **arguments)
    assert list(tmp_path.iterdir()) == []
