"""Taggers that take text: windows and answers as outside the graph."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import Tagger, read_pretrained
from albert_tf.data import windows
from albert_tf.export import saved_models, text_tags
from tests import tiny

# Of one window and of many; without words, invalid and not normalized.
TEXTS = [
    "W1 w2, w3-w4",
    " ".join(f"w{i} ." for i in range(40)),
    "",
    "\u200b x\u0301y",
    "½ 東京!",
]

# Outputs of the export, and what Tagger calls them.
NAMES = {
    "words": "word",
    "tags": "tag",
    "probabilities": "probability",
    "starts": "start",
    "ends": "end",
}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("stride", [1, 2, 5, 64])
def test_windows_are_those_of_python(size, stride):
    stride = min(size, stride)
    lengths = [0, 1, size, size + 1, 3 * size + 2, 23]
    ids = tf.RaggedTensor.from_row_lengths(tf.range(sum(lengths)), lengths)
    found_ids, counts = text_tags.cut_windows(ids, size, stride)
    wanted_ids, wanted, done = [], {}, 0
    for row, length in zip(ids.to_list(), lengths, strict=True):
        bounds = windows.cut_windows(length, size, stride)
        best = windows.find_max_context(bounds, length)
        for (start, end), is_best in zip(bounds, best, strict=True):
            for place in np.flatnonzero(is_best):
                wanted[row[start + place]] = len(wanted_ids), place
            wanted_ids.append(row[start:end])
            done += 1
    assert found_ids.to_list() == wanted_ids
    window, position = text_tags.find_best(
        ids, tf.range(sum(lengths)), counts, size, stride
    )
    found = list(zip(window.numpy(), position.numpy(), strict=True))
    assert found == [wanted[piece] for piece in range(sum(lengths))]


def test_a_served_text_has_the_tags_of_python(tmp_path):
    folder = tiny.write_tagger(tmp_path)
    start = read_pretrained(folder)
    tagger = Tagger(folder, max_seq_length=9, doc_stride=3)
    path = text_tags.export_text_tagger(
        tmp_path / "served",
        tagger.model,
        tokenizer=start.tokenizer,
        max_seq_length=9,
        doc_stride=3,
        contents=saved_models.Contents(labels=tagger.labels),
    )
    # In a process without this package and its resources.
    program = f"""
import numpy as np
import tensorflow as tf
import tensorflow_text
loaded = tf.saved_model.load({str(path)!r})
texts = {[text.encode() for text in TEXTS]!r}
serve = loaded.signatures["serving_default"]
outputs = serve(text=tf.constant(texts))
alone = serve(text=tf.constant(texts[:1]))
none = serve(text=tf.constant([], tf.string))
invalid = serve(text=tf.constant([b"a \\xff\\xfe b", b""]))
np.savez({str(tmp_path / "outputs.npz")!r},
    alone=alone["tags"], none=none["tags"], invalid=invalid["words"],
    **{{k: v.numpy() for k, v in outputs.items()}})
"""
    subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": ""},
    )
    served = np.load(tmp_path / "outputs.npz", allow_pickle=True)
    for row, answer in enumerate(tagger(TEXTS)):
        count = len(answer["words"])
        for name, one in NAMES.items():
            found = served[name][row]
            assert not any(found[count:]), name
            wanted = [word[one] for word in answer["words"]]
            if name == "probabilities":
                np.testing.assert_allclose(found[:count], wanted, atol=1e-5)
            else:
                texts = [
                    x.decode() if isinstance(x, bytes) else x for x in found
                ]
                assert texts[:count] == wanted, name
    alone = served["alone"][0]
    assert alone.tolist() == served["tags"][0, : len(alone)].tolist()
    assert served["none"].shape == (0, 0)
    invalid = [word.decode() for word in served["invalid"][0]]
    assert invalid == ["a", "\ufffd", "\ufffd", "b"]
