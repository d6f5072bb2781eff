"""SentencePiece alone gives our ids, from the models made for it."""

import gzip
import json
import re

import pytest
import sentencepiece

from albert_tf.text import standalone, tokenization


@pytest.fixture(scope="module")
def texts(shared):
    path = shared / "golden/dev/token/spm30k.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file]


def different(tokenizer, texts):
    """Those of some texts that SentencePiece alone splits otherwise."""
    content = standalone.serialize(tokenizer)
    alone = sentencepiece.SentencePieceProcessor(model_proto=content)
    assert [alone.IdToPiece(i) for i in range(len(alone))] == tokenizer.pieces
    return [x for x in texts if alone.EncodeAsIds(x) != tokenizer.encode(x)]


@pytest.mark.parametrize(
    "settings",
    [{}, {"do_lower_case": False, "keep_accents": True}],
    ids=["uncased", "as it is"],
)
def test_odd_lines_get_our_ids(shared, texts, settings):
    path = str(shared / "data/albert_en/30k-clean.model")
    ours = tokenization.build_tokenizer(spm_model_file=path, **settings)
    assert different(ours, texts) == []


def test_only_numbers_before_commas_and_final_sigmas_differ(shared, texts):
    path = str(shared / "golden/dev/token/spm2k.model")
    ours = tokenization.build_tokenizer(spm_model_file=path)
    found = different(ours, texts)
    assert 0 < len(found) < 20
    for text in found:
        assert re.search(r"\d,|Σ", ours.normalize(text) + text)
