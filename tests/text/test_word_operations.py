"""Words and their pieces inside a graph: the same as outside."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data import tagged, word_windows
from albert_tf.data.examples import NO_LABEL
from albert_tf.text import operations, word_operations
from tests.data.test_word_windows import (
    KINDS,
    build_tokenizer,
    random_sentences,
)

TEXTS = [
    "",
    " \t\n",
    "It's 5€, 東京!",
    "\u200ba\u200b b\u0301 \u0301c \u00ad\u00ad d\ufe0fe",
    "ㅤaㅤb 한ㅤ",
    "हिन्दी क्षि ไทยภาษา 👩\u200d👩\u200d👧🏽",
    "x\u0301\u0301y\u0301z.\u0301q \u0301\u0301",
    "½ⅧＡ\x00\x1c\u3000²",
    "\u200b\u0301",
    "\u00ad",  # It is an unknown piece, but no word.
    "\u3164 \u2800",
]


def list_sentences():
    """Returns sentences of words, of random ones and of the texts above."""
    rng = np.random.default_rng(5)
    found = list(random_sentences(rng, 60, 9))
    texts = [sentence.text for sentence in found] + TEXTS
    return [tagged.split_text(text) for text in texts]


def test_words_are_those_of_python():
    sentences = list_sentences()
    found = word_operations.find_words([s.text for s in sentences])
    assert found.texts.to_list() == [
        [word.encode() for word in s.words] for s in sentences
    ]
    for values, place in ((found.starts, 0), (found.ends, 1)):
        assert values.to_list() == [
            [span[place] for span in s.spans] for s in sentences
        ]


@pytest.mark.parametrize("kind", KINDS)
def test_words_have_the_same_first_pieces(kind, tmp_path):
    tokenizer = build_tokenizer(kind, tmp_path)
    sentences = list_sentences()
    texts = [sentence.text for sentence in sentences]
    found = word_operations.find_words(texts)
    graph = operations.GraphTokenizer(tokenizer)
    ids, starts, ends = graph.tokenize_with_offsets(texts)
    joined, pieces = word_operations.place_words(
        found,
        *word_operations.divide_pieces(
            found,
            ids,
            starts,
            ends,
            divisions=word_operations.build_divisions(tokenizer),
        ),
        unk_id=tokenizer.unk_id,
    )
    assert joined.row_lengths().shape == [len(texts)]
    splits = joined.row_splits.numpy()
    num_same = num_lost = done = 0
    for row, sentence in enumerate(sentences):
        words = pieces[done : done + len(sentence.words)].numpy() - splits[row]
        done += len(sentence.words)
        # Of several equally probable splits, the graph may choose another.
        if ids[row].numpy().tolist() != tokenizer.encode(sentence.text):
            continue
        num_same += 1
        wanted, numbers, _ = word_windows.encode_words(sentence, tokenizer)
        assert joined[row].numpy().tolist() == wanted.tolist(), sentence.text
        places = np.flatnonzero(numbers != NO_LABEL)
        assert words.tolist() == places.tolist(), sentence.text
        num_lost += len(wanted) - len(ids[row])
    assert done == len(pieces) and num_same > 0.8 * len(sentences)
    assert num_lost  # Normalization removes some words.


def test_no_texts_have_no_words():
    found = word_operations.find_words(tf.constant([], tf.string))
    assert [x.shape[0] for x in found] == [0, 0, 0]
