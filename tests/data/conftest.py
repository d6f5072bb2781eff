"""The text and the vocabulary of the release's recorded statistics."""

import gzip
import pathlib

import pytest

from albert_tf.data.pretraining import corpus
from albert_tf.text import tokenization


@pytest.fixture(scope="session")
def english(shared):
    """The tokenizer of the English models."""
    model = shared / "data/albert_en/30k-clean.model"
    return tokenization.build_tokenizer(spm_model_file=str(model))


@pytest.fixture(scope="session")
def golden(shared):
    return shared / "golden/pretrain_data"


@pytest.fixture(scope="session")
def store_of(golden, english, tmp_path_factory):
    """Makes token stores of the recorded text, by the longest sentence."""
    text = gzip.decompress((golden / "corpus.txt.gz").read_bytes())
    stores = {}

    def make(max_sentence_tokens):
        if max_sentence_tokens not in stores:
            folder = pathlib.Path(tmp_path_factory.mktemp("store"))
            block = corpus.encode_block(text, english, max_sentence_tokens)
            corpus.write_store(str(folder), [block])
            stores[max_sentence_tokens] = corpus.open_store(
                str(folder), english.vocab_size
            )
        return stores[max_sentence_tokens]

    return make
