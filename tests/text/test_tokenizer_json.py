"""tokenizer.json as a vocabulary: the ids of the original, or a refusal."""

import copy
import gzip
import json

import pytest

from albert_tf.text import tokenization
from albert_tf.weights import huggingface, pretrained, vocabulary_files
from tests import tiny
from tests.weights.test_pretrained import convert, random_model

CASINGS = [(True, False), (False, False), (False, True), (True, True)]
ODD = [
    "In 2013, and 1,234,567, of $1,000,",
    '[CLS] [MASK] <pad> <unk> (a) "b" - . – £5 €6',
    "ﬁne ½ ＡＢＣ Straße Ünïcödé \u200b\xad\ue000 😀\u3000x  y",
    "``quoted''  'it''s",
    " ▁ ▁▁a\tb\n",
]


@pytest.fixture(scope="module")
def spm(shared):
    return str(shared / "golden/dev/token/spm2k.model")


@pytest.fixture(scope="module")
def texts(shared):
    path = shared / "golden/dev/token/spm2k.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return ODD + [json.loads(line)["text"] for line in file]


def of_transformers_4(described):
    """The user-defined pieces are known by their score of 0 only."""
    described["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "WhitespaceSplit"},
            described["pre_tokenizer"] | {"add_prefix_space": True},
        ],
    }
    steps = described["normalizer"]["normalizers"][:-2]
    for old in ("``", "''"):
        replace = {"pattern": {"String": old}, "content": '"'}
        steps.insert(0, {"type": "Replace", **replace})
    described["normalizer"]["normalizers"] = steps


def of_transformers_5(described):
    """Scores as in the .model; user-defined pieces are added tokens."""
    of_transformers_4(described)
    vocab = described["model"]["vocab"]
    vocab[:] = [
        [name, score + 100 if score < -50 else score] for name, score in vocab
    ]
    described["added_tokens"] += [
        {"id": i, "content": name, "special": False}
        for i, (name, score) in enumerate(vocab)
        if i > 4 and score == 0
    ]


def write(path, tokenizer, change=lambda described: None):
    described = huggingface.describe_unigram(tokenizer)
    described = json.loads(json.dumps(described))
    change(described)
    path.write_text(json.dumps(described))
    return str(path)


@pytest.mark.parametrize(
    "change", [lambda _: None, of_transformers_4, of_transformers_5]
)
@pytest.mark.parametrize(("lower", "accents"), CASINGS)
def test_the_ids_are_those_of_the_model(
    tmp_path, spm, texts, change, lower, accents
):
    ours = tokenization.build_tokenizer(
        spm_model_file=spm, do_lower_case=lower, keep_accents=accents
    )
    path = write(tmp_path / "tokenizer.json", ours, change)
    found = tokenization.build_tokenizer(spm_model_file=path)
    for name in ("do_lower_case", "keep_accents", "vocab_size", "kind"):
        assert found.settings[name] == ours.settings[name]
    assert found.special_ids == ours.special_ids
    for piece, wanted in zip(
        found.read_model().pieces, ours.read_model().pieces, strict=True
    ):
        assert (piece.piece, piece.score, piece.type) == (
            wanted.piece,
            wanted.score,
            wanted.type,
        )
    assert found.encode_batch(texts) == ours.encode_batch(texts)
    for text in texts[:60]:
        offsets = ours.encode_with_offsets(text)
        assert found.encode_with_offsets(text) == offsets
    other = tokenization.build_tokenizer(
        spm_model_file=path, do_lower_case=not lower, keep_accents=not accents
    )
    assert other.settings["do_lower_case"] is not lower


def add_token(described):
    size = len(described["model"]["vocab"])
    described["added_tokens"].append({"id": size, "content": "[ENT]"})


def put(*keys, value):
    def change(described):
        for key in keys[:-1]:
            described = described[key]
        described[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (add_token, r"adds '\[ENT\]' to the vocabulary"),
        (put("model", "type", value="BPE"), "type 'BPE'; .*spiece.model"),
        (put("model", value={}), "type None"),
        (put("model", "vocab", value=None), "is damaged"),
        (put("model", "unk_id", value="x"), "is damaged"),
        (put("normalizer", value={"type": "NFKC"}), "changes text by .*NFKC"),
        (
            put("normalizer", "normalizers", -1, "content", value="_"),
            "changes text by .*'_'",
        ),
        (
            put("pre_tokenizer", "prepend_scheme", value="first"),
            "changes text by",
        ),
        (
            put("pre_tokenizer", "add_prefix_space", value=False),
            "changes text by",
        ),
        (put("model", "type", value=["BPE"]), "type .'BPE'"),
        (put("pre_tokenizer", value=None), "changes text by"),
        (put("pre_tokenizer", "type", value="ByteLevel"), "changes text by"),
    ],
)
def test_a_tokenizer_unlike_ours_is_refused(tmp_path, spm, change, says):
    ours = tokenization.build_tokenizer(spm_model_file=spm)
    path = write(tmp_path / "tokenizer.json", ours, change)
    with pytest.raises(ValueError, match=says):
        tokenization.build_tokenizer(spm_model_file=path)


PIECES = [*tiny.SPECIAL, "w", "##w", "É", "é", "e"]
WORDPIECE: dict = {
    "added_tokens": [{"id": 0, "content": "[PAD]", "special": True}],
    "normalizer": {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    },
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "model": {
        "type": "WordPiece",
        "continuing_subword_prefix": "##",
        "vocab": {piece: i for i, piece in enumerate(PIECES)},
    },
}


@pytest.mark.parametrize(
    ("lower", "strip", "wanted"),
    [(True, None, "e"), (True, False, "é"), (False, None, "É")],
)
def test_a_list_of_wordpieces_is_read(tmp_path, lower, strip, wanted):
    described = copy.deepcopy(WORDPIECE)
    described["normalizer"] |= {"lowercase": lower, "strip_accents": strip}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(described))
    found = tokenization.build_tokenizer(vocab_file=path)
    assert found.pieces == PIECES
    assert found.tokenize("www É") == ["w", "##w", "##w", wanted]
    with pytest.raises(
        ValueError, match="is a wordpiece vocabulary.*vocab_file"
    ):
        tokenization.build_tokenizer(spm_model_file=path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (put("normalizer", "handle_chinese_chars", value=False), "normalizer"),
        (put("pre_tokenizer", "type", value="Whitespace"), "'Whitespace'"),
        (put("pre_tokenizer", value=None), r"divides text by \[\]"),
    ],
)
def test_a_list_for_words_unlike_ours_is_refused(tmp_path, change, says):
    described = copy.deepcopy(WORDPIECE)
    change(described)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(described))
    with pytest.raises(ValueError, match=f"cannot be read exactly: .*{says}"):
        tokenization.build_tokenizer(vocab_file=path)


def test_a_list_may_begin_with_a_brace(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(["{", *tiny.SPECIAL]))
    assert tokenization.build_tokenizer(vocab_file=path).pieces[0] == "{"


def test_a_folder_with_nothing_else_has_its_vocabulary(tmp_path, spm):
    ours = tokenization.build_tokenizer(spm_model_file=spm, do_lower_case=False)
    random_model(tmp_path / "a", vocab_size=ours.vocab_size)
    ours.write_settings(tmp_path / "a")
    vocabulary_files.filesystem.copy(spm, str(tmp_path / "a" / "spm2k.model"))
    convert(tmp_path / "a", tmp_path / "b", format="hf")
    for name in ("spiece.model", tokenization.SETTINGS_FILE):
        (tmp_path / "b" / name).unlink()
    convert(tmp_path / "b", tmp_path / "c", format="own")
    assert (tmp_path / "c" / "spiece.model").exists()
    for folder in "bc":
        found = pretrained.read_pretrained(tmp_path / folder)
        assert found.tokenizer.encode(ODD[0]) == ours.encode(ODD[0])
        assert found.tokenizer.settings["do_lower_case"] is False
        # Records that were made with the .model belong to it.
        pretrained.check_same_vocabulary(found, ours.settings)
        other = ours.settings | {"vocab_size": 3, "sha256": "0"}
        with pytest.raises(ValueError, match="vocab_size 2000, not 3"):
            pretrained.check_same_vocabulary(found, other)
    given = pretrained.replace_files(
        pretrained.read_pretrained(tmp_path / "a"),
        spm_model_file=tmp_path / "b" / "tokenizer.json",
    )
    name = vocabulary_files.choose_name(given.tokenizer.settings)
    assert name == "spiece.model"
    assert given.tokenizer.settings["do_lower_case"] is False


def test_its_casing_counts_for_the_list_itself(tmp_path):
    """A model's vocab.txt is given, whose tokenizer.json says the casing."""
    described = copy.deepcopy(WORDPIECE)
    described["normalizer"]["lowercase"] = False
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "tokenizer.json").write_text(json.dumps(described))
    start = pretrained.read_description(tmp_path / "a")
    assert not start.tokenizer.settings["do_lower_case"]
    path = tmp_path / "vocab.txt"
    path.write_bytes(start.tokenizer.content)
    given = pretrained.replace_files(start, vocab_file=path)
    assert not given.tokenizer.settings["do_lower_case"]


def test_a_folder_is_no_vocabulary(tmp_path):
    tiny.write_model(tmp_path)
    with pytest.raises(FileNotFoundError, match="is a folder; .*'vocab.txt'"):
        tokenization.build_tokenizer(vocab_file=tmp_path)
