"""Words of scripts without spaces, given by spaces, are masked as a whole."""

import io
import json
import random
import re

import naive
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from albert_tf.commands.create_pretraining_data import DataFlags
from albert_tf.data.pretraining import (
    label_counts,
    opening,
    records,
    sequences,
    sidecars,
    spaced_words,
)
from albert_tf.model.config import AlbertConfig
from albert_tf.programs import create_pretraining_data as program
from albert_tf.text import normalization, tokenization

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# Lines, with | where a word ends.
LINES = {
    "Chinese": "我们|喜欢|北京|。",
    "rare": "我们|龘龘|喜欢",
    "quotes": "他|说|：|“|你好|”|。|…|…|他|走|了",
    "numbers": "在|2008|年|8|月|花|了|15|万|元|（|约|%|）",
    "Latin": "用|Python|写|代码|，|我|爱|(|北京|)|。",
    "a piece of two words": "我|喜|北京|很|大",
    "Japanese": "東京|タワー|へ|行き|まし|た|。",
    "Thai": "ที่|นี่|อากาศ|ดี|มาก",
    "a space of the text": "我们|喜欢| |北京|很|大",
    "no word of these scripts": "Hello world, “yes” — no",
}


def train_pieces(texts):
    """Returns a SentencePiece model of characters, as bytes."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(texts),
        model_writer=model,
        model_type="char",
        vocab_size=200,
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        user_defined_symbols=["喜北"],
        minloglevel=2,
    )
    return model.getvalue()


@pytest.fixture(params=["wordpiece", "sentencepiece"])
def tokenizer(request, tmp_path):
    texts = [line.replace("|", "").replace("龘", "") for line in LINES.values()]
    if request.param == "sentencepiece":
        path = tmp_path / "pieces.model"
        normalize = normalization.SentenceNormalizer(
            keep_accents=True
        ).normalize
        path.write_bytes(train_pieces([*map(normalize, texts), "."]))
        return tokenization.build_tokenizer(
            spm_model_file=path, keep_accents=True
        )
    path = tmp_path / "pieces.txt"
    known = dict.fromkeys("".join(texts).lower())
    pieces = [*known, *(f"##{character}" for character in known)]
    path.write_text("\n".join(SPECIAL + pieces), encoding="utf-8")
    return tokenization.build_tokenizer(vocab_file=path, keep_accents=True)


def encode(tokenizer, line):
    """The ids of a divided line, and which of them start a word."""
    spaced = spaced_words.SpacedTokenizer(tokenizer)
    (ids,) = spaced.encode_batch([line])
    return [i % tokenizer.vocab_size for i in ids], spaced.is_word_start[ids]


@pytest.mark.parametrize("space", [" ", "  ", "\u3000"], ids=ascii)
@pytest.mark.parametrize("name", LINES)
def test_ids_are_those_of_the_text_without_the_spaces(tokenizer, name, space):
    found, _ = encode(tokenizer, LINES[name].replace("|", space))
    assert found == tokenizer.encode(LINES[name].replace("|", ""))


@pytest.mark.parametrize("name", list(LINES)[:-1])
def test_words_start_where_the_text_says(tokenizer, name):
    text = LINES[name].replace("|", "")
    words = LINES[name].split("|")
    wanted = {len("".join(words[:i])) for i, w in enumerate(words) if w != " "}
    _, offsets = tokenizer.encode_with_offsets(text)
    _, is_start = encode(tokenizer, LINES[name].replace("|", " "))
    found = {
        start
        for (start, end), starts in zip(offsets, is_start, strict=True)
        if starts and start < end
    }
    if tokenizer.kind == "sentencepiece" and "a piece" in name:
        wanted.remove(2)  # Within the piece 喜北.
    assert found == wanted


def test_text_that_is_not_divided_keeps_the_rule_at_other_scripts(tokenizer):
    _, is_start = encode(tokenizer, "。我们，北京")
    assert is_start[-6:].tolist() == [True, True, False, True, True, False]


# Words of one to four ideographs. None is in two words, so that an id tells
# the word and the place in it.
SIZES = [1, 2, 2, 3, 4, 2] * 5
FIRST = np.cumsum([0, *SIZES])
WORDS = [
    "".join(chr(0x4E00 + i) for i in range(first, first + size))
    for first, size in zip(FIRST[:-1].tolist(), SIZES, strict=True)
]
NUM_PIECES = len(SPECIAL) + FIRST[-1] + 2
CONFIG = AlbertConfig(
    vocab_size=int(NUM_PIECES), hidden_size=8, num_attention_heads=2
)


@pytest.fixture
def folder(tmp_path):
    """A folder with a vocabulary, and a text with and without spaces."""
    rng = random.Random(0)
    lines = [
        [*rng.choices(WORDS, k=rng.randint(2, 9)), "，", *rng.choices(WORDS)]
        for _ in range(300)
    ]
    for i in range(0, len(lines), 12):
        lines[i] = []
    for name, space in (("divided", " "), ("whole", "")):
        text = "\n".join(map(space.join, lines))
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    vocabulary = "\n".join([*SPECIAL, *"".join(WORDS), "，", "。"])
    (tmp_path / "vocab.txt").write_text(vocabulary, encoding="utf-8")
    return tmp_path


def create(folder, name="divided", **changes):
    """Creates records; returns the name of their file."""
    values = {
        "input_file": f"{folder}/{name}.txt",
        "output_file": f"{folder}/{name}.tfrecord",
        "vocab_file": f"{folder}/vocab.txt",
        "max_seq_length": 48,
        "max_predictions_per_seq": 7,
        "dupe_factor": 3,
        "words_from_spaces": name == "divided",
        "progress": False,
    }
    args = DataFlags(**{**values, **changes})
    program.run(args)
    return args.output_file


def count_cut(file):
    """Counts the masked words of several tokens, and those that are cut."""
    opened = opening.open_records(file, CONFIG)
    masked = cut = 0
    (batch,) = opened.read_pass(opened.num_records).as_numpy_iterator()
    originals = naive.original_ids(batch)
    assert batch["input_ids"].max() < NUM_PIECES
    for row, ids in enumerate((originals - len(SPECIAL)).tolist()):
        count = int(batch["masked_lm_weights"][row].sum())
        places = set(batch["masked_lm_positions"][row, :count].tolist())
        for first, size in zip(FIRST.tolist(), SIZES, strict=False):
            for i, word in enumerate(ids):
                word = ids[i : i + size]
                if size == 1 or word != list(range(first, first + size)):
                    continue  # At the end of a segment, a part may remain.
                num_masked = len(places & set(range(i, i + size)))
                masked += num_masked > 0
                cut += 0 < num_masked < size
    return masked, cut


@pytest.mark.parametrize("masking", ["static", "dynamic"])
def test_no_masked_word_is_cut(folder, masking):
    masked, cut = count_cut(create(folder, masking=masking))
    assert masked > 200 and cut == 0
    masked, cut = count_cut(create(folder, "whole", masking=masking))
    assert masked > 200 and cut > 100


def test_dynamic_records_are_static_ones_without_masks(folder):
    rows = {}
    for masking in ("static", "dynamic"):
        file = create(folder, masking=masking)
        opened = opening.open_records(file, CONFIG)
        (batch,) = opened.read_pass(opened.num_records).as_numpy_iterator()
        rows[masking] = naive.original_ids(batch)
    np.testing.assert_array_equal(rows["static"], rows["dynamic"])
    counts = label_counts.count_masked_pieces(opened, opened.num_records)
    assert len(counts) == NUM_PIECES
    assert counts.sum() == batch["masked_lm_weights"].sum()


def test_a_vocabulary_survives_json(folder):
    tokenizer = tokenization.build_tokenizer(vocab_file=folder / "vocab.txt")
    spaced = spaced_words.SpacedTokenizer(tokenizer)
    wanted = sequences.Vocabulary.from_tokenizer(spaced)
    values = json.loads(json.dumps(wanted.to_json()))
    found = sequences.Vocabulary.from_json(values)
    assert found.num_pieces == wanted.num_pieces == NUM_PIECES
    np.testing.assert_array_equal(found.is_word_start, wanted.is_word_start)
    assert len(found.is_word_start) == 2 * NUM_PIECES
    assert found.replacement_ids.max() < NUM_PIECES


@pytest.mark.parametrize(
    ("name", "most"),
    [("divided", 2 * NUM_PIECES - 1), ("whole", NUM_PIECES - 1)],
)
def test_ids_of_dynamic_records_have_limits(folder, name, most):
    file = create(folder, name, masking="dynamic")
    opened = opening.open_records(file, CONFIG)
    assert opened.limits["input_ids"] == (0, most)
    features = {
        key: np.ones((1, *shape), int)
        for key, (shape, _) in records.dynamic_features(48).items()
    }
    features["input_ids"][0, 1] = most + 1
    rows = list(tf.data.TFRecordDataset(file).as_numpy_iterator())
    damaged = [*rows[:-1], *records.encode_examples(features)]
    records.write_records(file, damaged)
    sidecars.write_sidecar(
        sidecars.sidecar_path(file),
        opened.sidecar | {"num_bytes": [(folder / file).stat().st_size]},
    )
    with pytest.raises(ValueError, match=rf"input_ids\[1\] is {most + 1}"):
        opening.open_records(file, CONFIG)


def test_dynamic_records_with_and_without_spaces_are_not_mixed(folder):
    files = [
        create(folder, name, masking="dynamic") for name in ("divided", "whole")
    ]
    with pytest.raises(ValueError, match=r"Was one .* words_from_spaces=True"):
        opening.open_records(",".join(files), CONFIG)


def test_any_number_of_workers_writes_the_same_bytes(folder):
    contents = [
        (folder / create(folder, num_workers=number)).read_bytes()
        for number in (1, 2)
    ]
    assert contents[0] == contents[1]


def test_unfinished_work_of_the_other_kind_is_not_continued(
    folder, monkeypatch, caplog
):
    wanted = (folder / create(folder)).read_bytes()

    def stop(path, serialized):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(records, "write_records", stop)
        create(folder, words_from_spaces=False)
    assert (folder / ".divided.unfinished/tokens.bin").exists()
    assert (folder / create(folder)).read_bytes() == wanted
    assert "had other settings, text or paths: it is not" in caplog.text


def test_text_without_such_spaces_is_refused(folder):
    with pytest.raises(ValueError, match="have 0 spaces among .* characters"):
        create(folder, "whole", words_from_spaces=True)
    assert not list(folder.glob("*.tfrecord"))
    # Thai has spaces between sentences.
    thai = "ที่นี่อากาศดีมากและผู้คนใจดี อาหารก็อร่อยมากด้วยครับ"
    with pytest.raises(ValueError, match="have 1 spaces among"):
        spaced_words.check_sample([thai])
    for name in ("Thai", "Japanese", "no word of these scripts"):
        spaced_words.check_sample([LINES[name].replace("|", " ")])


def test_real_chinese_text_has_the_ids_that_it_has_without_spaces(shared):
    text = (shared / "data/zh/news_zh_1.txt").read_text(encoding="utf-8")
    tokenizer = tokenization.build_tokenizer(
        vocab_file=shared / "data/zh/vocab.txt"
    )
    lines = [line.strip() for line in text.split("\n")]
    divided = [re.sub("([\u4e00-\u9fff]{2})", r" \1 ", line) for line in lines]
    found = [encode(tokenizer, line) for line in divided]
    ids = tokenizer.encode_batch(lines)
    assert [row for row, _ in found] == ids
    num_starts = sum(int(is_start.sum()) for _, is_start in found)
    assert 0.5 < num_starts / sum(map(len, ids)) < 0.7
