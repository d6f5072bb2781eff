"""initialize: an untrained model that begins on neighbors, in any format."""

import dataclasses

import numpy as np
import pytest

from albert_tf.commands.initialize import InitializeFlags
from albert_tf.model import initial_values
from albert_tf.programs import initialize
from albert_tf.weights import pretrained
from tests import tiny

BIAS = "cls/predictions/output_bias"


@pytest.fixture
def build(tmp_path):
    """Returns a function of flags that writes and reads a model."""
    model = tmp_path / "model"
    model.mkdir()
    tiny.write_model(model)

    def run(name, **given):
        folder = tmp_path / name
        files = {
            "albert_config_file": str(model / "albert_config.json"),
            "vocab_file": str(model / "vocab.txt"),
        }
        initialize.run(InitializeFlags(to=str(folder), **files | given))
        return pretrained.read_pretrained(folder)

    return run


def test_all_formats_have_the_same_values(build):
    one, other, third = (build(form, format=form) for form in FORMATS)
    assert one.config == other.config == third.config
    for name, value in one.values.items():
        np.testing.assert_array_equal(value, other.values[name])
        np.testing.assert_array_equal(value, third.values[name])
    again = initial_values.neighbors(one.config, one.values)
    name = "bert/embeddings/position_embeddings"
    np.testing.assert_array_equal(one.values[name], again[name])
    assert one.tokenizer.vocab_size == 25


FORMATS = "own", "tf1", "hf"


def test_what_a_format_lacks_is_said(build, tmp_path, capsys):
    config = dataclasses.replace(tiny.CONFIG, vocab_size=30_000)
    path = tmp_path / "config.json"
    path.write_text(config.to_json_string())
    files = {"albert_config_file": str(path), "vocab_file": None}
    build("k", format="keras_hub", spm_model_file=str(tiny.RELEASED), **files)
    assert "Note: omitted, because KerasHub lacks" in capsys.readouterr().out


def test_the_bias_has_the_frequencies_of_a_text(build, tmp_path, capsys):
    assert not build("without").values[BIAS].any()
    assert "Without --input_file" in capsys.readouterr().out
    (tmp_path / "text.txt").write_text("w1 w1 w2\n\nw1 other\n")
    found = build("with", input_file=str(tmp_path / "*.txt"))
    (tmp_path / "rows.jsonl").write_text('{"text": "w1 w1 w2\\nw1 other"}\n')
    rows = build("rows", input_file=str(tmp_path / "*.jsonl"))
    np.testing.assert_array_equal(found.values[BIAS], rows.values[BIAS])
    assert "Without" not in capsys.readouterr().out
    counts = np.ones(25)
    for piece, count in {"w1": 3, "w2": 1, "[UNK]": 1}.items():
        counts[found.tokenizer.pieces.index(piece)] += count
    np.testing.assert_allclose(
        found.values[BIAS], np.log(counts / counts.sum()), rtol=1e-5
    )


def test_the_seed_gives_the_weights(build):
    name = "bert/pooler/dense/kernel"
    values = [
        build(f"seed{index}", random_seed=seed).values[name]
        for index, seed in enumerate((1, 1, 2))
    ]
    np.testing.assert_array_equal(values[0], values[1])
    assert not np.allclose(values[0], values[2])
