"""Vectors of lines: each is its own line's, whatever stands beside it."""

import io
import itertools
import json
import os
import threading
import types

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.commands.embed import EmbedFlags
from albert_tf.inference import embedder
from albert_tf.model import modeling
from albert_tf.model.config import AlbertConfig
from albert_tf.programs import embed
from albert_tf.weights import checkpoints

PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat ##s sat on mat . dog".split()
LINES = ["The cat sat.", "", "  dogs on the mat", "The cats, the dog " * 9, "X"]


@pytest.fixture
def model(tmp_path):
    config = AlbertConfig(
        vocab_size=len(PIECES),
        embedding_size=5,
        hidden_size=12,
        num_hidden_layers=3,
        num_attention_heads=3,
        intermediate_size=17,
        max_position_embeddings=40,
        initializer_range=0.3,
    )
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    (folder / "albert_config.json").write_text(config.to_json_string())
    encoder = modeling.AlbertEncoder(config)
    weights = modeling.named_weights(encoder)
    checkpoints.write_checkpoint(
        str(folder / "model.ckpt-best"),
        {n: w.value for n, w in weights.items()},
    )
    (tmp_path / "lines.txt").write_text("\n".join(LINES) + "\n")
    return encoder


def run(folder, name, **kwargs):
    output = folder / name
    embed.run(
        EmbedFlags(
            **{
                "init_checkpoint": str(folder / "model"),
                "input_file": str(folder / "lines.txt"),
                "output_file": str(output),
                "max_seq_length": 40,
                "tokens_per_batch": 32,
                **kwargs,
            }
        )
    )
    if name.endswith(".npz"):
        return dict(np.load(output))
    return [json.loads(line) for line in output.read_text().splitlines()]


@pytest.mark.parametrize("layer", [-1, 0])
def test_vectors_are_those_of_the_line_alone(model, tmp_path, layer):
    tokens = run(tmp_path, "t.npz", pooling="tokens", layer=layer)
    means = run(tmp_path, "m.npz", layer=layer)["vectors"]
    pooled = run(tmp_path, "p.npz", pooling="pooled")["vectors"]
    assert means.shape == pooled.shape == (len(LINES), 12)
    ends = np.cumsum(tokens["lengths"])
    for i, (end, size) in enumerate(zip(ends, tokens["lengths"], strict=True)):
        ids = tokens["ids"][end - size : end]
        outputs = model(np.array([[2, *ids, 3]], np.int32))
        alone = outputs["all_encoder_layers"][layer][0, 1:-1]
        vectors = tokens["vectors"][end - size : end]
        np.testing.assert_allclose(vectors, alone, atol=1e-5)
        mean = np.mean(alone, axis=0) if size else np.zeros(12)
        np.testing.assert_allclose(means[i], mean, atol=1e-5)
        np.testing.assert_allclose(
            pooled[i], outputs["pooled_output"][0], atol=1e-5
        )
    assert tokens["lengths"].tolist() == [4, 0, 5, 38, 1]


def test_json_lines_say_which_characters_a_token_is(model, tmp_path):
    rows = run(tmp_path, "t.jsonl", pooling="tokens")
    assert [row["text"] for row in rows] == LINES
    words = [LINES[2][start:end] for start, end in rows[2]["offsets"]]
    assert words == ["dog", "s", "on", "the", "mat"]
    assert np.shape(rows[2]["vectors"]) == (len(words), 12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer": 3}, "the model has 3 layers"),
        ({"max_seq_length": 41}, "the model has 40 positions"),
        ({"max_seq_length": 2}, "max_seq_length=2; wanted at least 3"),
        ({"tokens_per_batch": 0}, "per_batch=0; wanted at least 1"),
        ({"layer": 10**6}, "layer=1000000; wanted"),
        ({"name": "x.csv"}, "must end in"),
        (
            {"name": "lines.jsonl", "input_file": "lines.*"},
            "overwrite .*lines.jsonl, which --input_f",
        ),
        ({"input_file": "lines.jsonl"}, "lines.jsonl is a table by its name"),
        ({"name": "vocab.npz"}, "overwrite .*vocab.npz, which --vocab_file"),
        ({"name": "model/x.npz"}, "overwrite .*x.npz, which --init_checkpoint"),
        (
            {"name": "bad.npz", "input_file": "latin.txt"},
            "latin.txt, line 1 is",
        ),
        ({"name": "bad.npz", "input_file": "wide.txt"}, "wide.txt, line 1 con"),
    ],
)
def test_what_cannot_work_is_refused(
    model, tmp_path, monkeypatch, changes, message
):
    monkeypatch.chdir(tmp_path)
    pieces = (tmp_path / "model" / "vocab.txt").read_text()
    for name, content in (
        ("latin.txt", "é".encode("latin-1")),
        ("wide.txt", "the cat".encode("utf-16-le")),
        ("lines.jsonl", b"the cat"),
        ("vocab.npz", pieces.encode()),
        ("model/x.npz", b"model"),
    ):
        (tmp_path / name).write_bytes(content)
    settings = {
        "name": "x.npz",
        "input_file": "lines.txt",
        "vocab_file": "vocab.npz",
        **changes,
    }
    before = {p: p.is_file() and p.read_bytes() for p in tmp_path.rglob("*")}
    with pytest.raises(ValueError, match=message):
        run(tmp_path, **settings)
    after = {p: p.is_file() and p.read_bytes() for p in tmp_path.rglob("*")}
    assert after == before


def test_a_batch_may_be_larger_than_the_text(model, tmp_path):
    found = run(tmp_path, "m.npz", tokens_per_batch=1 << 20)["vectors"]
    wanted = run(tmp_path, "n.npz")["vectors"]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def many_lines(folder):
    """Writes 300 lines, so many that there are several chunks."""
    rng = np.random.default_rng(0)
    lines = [
        " ".join(rng.choice(PIECES[5:], rng.integers(0, 50)))
        for _ in range(300)
    ]
    (folder / "lines.txt").write_text("\n".join(lines) + "\n")


def contents_of(found):
    """The columns of an .npz or .jsonl, as lists of arrays."""
    if isinstance(found, dict):
        return {name: [array] for name, array in found.items()}
    return {name: [row[name] for row in found] for name in found[0]}


@pytest.mark.parametrize("pooling", ["mean", "tokens"])
@pytest.mark.parametrize("form", ["npz", "jsonl"])
def test_lines_in_many_chunks_are_as_in_one(
    model, tmp_path, monkeypatch, pooling, form
):
    many_lines(tmp_path)
    found = contents_of(run(tmp_path, f"a.{form}", pooling=pooling))
    monkeypatch.setattr(embed, "BATCHES_PER_CHUNK", 10**6)
    wanted = contents_of(run(tmp_path, f"b.{form}", pooling=pooling))
    assert list(found) == list(wanted)
    for name, values in wanted.items():
        for a, b in zip(found[name], values, strict=True):
            if name == "vectors":
                np.testing.assert_allclose(a, b, atol=1e-5)
            else:
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("pooling", ["mean", "pooled", "tokens"])
def test_the_file_is_as_numpy_writes_it(model, tmp_path, pooling):
    many_lines(tmp_path)
    arrays = run(tmp_path, "a.npz", pooling=pooling)
    content = io.BytesIO()
    np.savez(content, **arrays)
    assert (tmp_path / "a.npz").read_bytes() == content.getvalue()
    assert arrays["vectors"].dtype == np.float32
    if pooling == "tokens":
        assert list(arrays) == ["vectors", "lengths", "ids", "offsets"]
        assert arrays["lengths"].dtype == np.int64
        assert arrays["ids"].dtype == arrays["offsets"].dtype == np.int32
        assert (
            len(arrays["ids"])
            == len(arrays["offsets"])
            == len(arrays["vectors"])
        )


def test_lines_without_a_token_have_arrays_without_rows(model, tmp_path):
    (tmp_path / "lines.txt").write_text("\n\n")
    found = run(tmp_path, "a.npz", pooling="tokens")
    assert found["vectors"].shape == (0, 12)
    assert found["offsets"].shape == (0, 2)
    assert found["lengths"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("line", "is_known"), [("dog", True), ("犬 猫", False)]
)
def test_unknown_pieces_are_said(model, tmp_path, caplog, line, is_known):
    (tmp_path / "lines.txt").write_text(f"{line}\nthe cat\n")
    run(tmp_path, "vectors.npz")
    assert ("pieces are unknown" in caplog.text) != is_known


def test_what_another_config_changes_is_said(model, tmp_path, caplog):
    path = tmp_path / "model/albert_config.json"
    deeper = json.loads(path.read_text()) | {"num_hidden_layers": 6}
    (tmp_path / "deeper.json").write_text(json.dumps(deeper))
    end = "the weights of its 3 layers are used in 6, in smaller steps."
    run(tmp_path, "same.npz")
    assert end not in caplog.text
    run(tmp_path, "own.npz", albert_config_file=str(path))
    config = str(tmp_path / "deeper.json")
    run(tmp_path, "deeper.npz", albert_config_file=config)
    (said,) = (text for text in caplog.messages if "layers" in text)
    assert said.endswith(f"model.ckpt-best: {end}")


def test_chunks_are_as_large_as_some_batches_however_many_lines():
    endless = itertools.cycle(["a" * 98, "", "a" * 1000])
    chunks = itertools.islice(embed.split_lines(endless, 32), 100)
    sizes = [sum(len(line) + 2 for line in chunk) for chunk in chunks]
    assert min(sizes) >= 512 and max(sizes) < 512 + 1002


def test_all_chunks_together_meet_few_shapes():
    """TensorFlow keeps some memory for each."""
    tokenizer = types.SimpleNamespace(cls_id=2, sep_id=3)
    shapes = set()

    def count_tokens(ids, mask):
        shapes.add(ids.shape)
        return tf.reduce_sum(mask, axis=1)

    rng = np.random.default_rng(0)
    for _ in range(30):
        rows = [[7] * n for n in rng.integers(0, 36, rng.integers(50, 90))]
        found = embedder.compute(count_tokens, tokenizer, rows, 37, 100)
        assert found == [len(row) + 2 for row in rows]
    assert shapes == {(12, 8), (6, 16), (4, 24), (3, 32), (2, 37)}


def through_pipe(folder, content, name):
    """What becomes of content that comes from a pipe."""
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    thread = threading.Thread(target=pipe.write_bytes, args=[content])
    thread.start()
    try:
        return run(folder, name, input_file=str(pipe))
    finally:
        thread.join()
        pipe.unlink()


def test_files_keep_the_order_in_which_they_are_named(model, tmp_path):
    for name, text in (("b", "The cat sat."), ("a", "dog")):
        (tmp_path / f"{name}.txt").write_text(f"{text}\n")
    names = [str(tmp_path / f"{name}.txt") for name in "bab"]
    rows = run(tmp_path, "v.jsonl", input_file=",".join(names))
    assert [row["text"] for row in rows] == [
        "The cat sat.",
        "dog",
        "The cat sat.",
    ]


def test_lines_may_come_through_a_pipe(model, tmp_path):
    content = (tmp_path / "lines.txt").read_bytes()
    found = through_pipe(tmp_path, content, "a.npz")
    run(tmp_path, "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (
        tmp_path / "b.npz"
    ).read_bytes()
    assert len(found["vectors"]) == len(LINES)


@pytest.mark.parametrize("form", ["npz", "jsonl"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "There are no lines in .*pipe"),
        (b"the cat\n" * 99 + b"\xe9\n", "pipe, line 100 is not UTF-8"),
    ],
)
def test_a_pipe_with_a_fault_leaves_nothing(
    model, tmp_path, content, message, form
):
    (tmp_path / f"a.{form}").write_bytes(b"older")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=message):
        through_pipe(tmp_path, content, f"a.{form}")
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / f"a.{form}").read_bytes() == b"older"
