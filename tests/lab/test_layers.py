"""The page and the figures about passes through the layers."""

import dataclasses
import json
import pathlib
import re
import shutil

import numpy as np
import pytest

from albert_tf.commands.layers import LayersFlags
from albert_tf.lab import layers
from albert_tf.text import tokenization
from albert_tf.weights import pretrained
from tests import pages, tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder with a model in "model", another in "other", and text."""
    folder = tmp_path_factory.mktemp("layers")
    for name in ("model", "other"):
        (folder / name).mkdir()
        tiny.write_model(folder / name)
    rng = np.random.default_rng(1)
    sentences = [
        " ".join(rng.choice(tiny.WORDS, rng.integers(4, 9))) for _ in range(300)
    ]
    (folder / "text.txt").write_text("\n".join(sentences))
    return folder


def run(folder, **kwargs):
    layers.run(
        LayersFlags(
            **{
                "init_checkpoint": str(folder / "model"),
                "input_file": str(folder / "text.txt"),
                "max_seq_length": 24,
                "num_sequences": 16,
                **kwargs,
            }
        )
    )


def test_table_page_and_figures_agree(folder, tmp_path, capsys):
    run(
        folder,
        compare=str(folder / "other"),
        output_file=str(tmp_path / "x.html"),
        json_file=str(tmp_path / "x.json"),
    )
    printed = capsys.readouterr().out
    found = json.loads((tmp_path / "x.json").read_text())["models"]
    assert list(found) == ["model", "other"]
    page = pages.Page((tmp_path / "x.html").read_text())
    for number, (name, model) in enumerate(found.items()):
        (table,) = page.tables[f"model-{number}"]
        # Twice the two passes of training, and state 0.
        assert [row[0] for row in table[1:]] == "0,1,2 (trained),3,4".split(",")
        for row, norm in zip(table[1:], model["passes"]["norm"], strict=True):
            assert row[1] == f"{norm:.2f}"
        assert name in printed
        assert model["trained_passes"] == 2
        assert sorted(model["pieces"]) == sorted(tiny.WORDS)
        assert 300 < model["passes"]["num_tokens"] <= 16 * 24
    assert "2 (trained)" in printed
    first, other = (m["passes"]["masked_lm_loss"] for m in found.values())
    assert first != other


def test_as_many_sequences_as_asked_for(folder, tmp_path, capsys):
    """Batches are no reason to measure more."""
    counts = []
    for number in (3, 4):
        path = tmp_path / f"{number}.json"
        run(
            folder,
            json_file=str(path),
            num_sequences=number,
            predict_batch_size=4,
        )
        (model,) = json.loads(path.read_text())["models"].values()
        counts.append(model["passes"]["num_sequences"])
    assert counts == [3, 4]
    said = capsys.readouterr().out
    assert "model: 4 sequences, " in said and "sentence order 25.0%." in said


def test_files_of_a_compared_model_are_not_overwritten(folder):
    config = folder / "other" / "albert_config.json"
    with pytest.raises(ValueError, match="--json_file.*--compare"):
        run(folder, compare=str(folder / "other"), json_file=str(config))
    run_config = json.loads(config.read_text())
    assert run_config["hidden_size"] == tiny.CONFIG.hidden_size


def test_a_page_in_the_models_folder_is_made_anew(folder):
    paths = {
        "output_file": str(folder / "model" / "layers.html"),
        "json_file": str(folder / "model" / "layers.json"),
    }
    for _ in range(2):
        run(folder, **paths)
    for path in paths.values():
        pathlib.Path(path).unlink()


def test_models_of_another_casing_are_not_compared(folder, tmp_path):
    cased = tmp_path / "cased"
    shutil.copytree(folder / "other", cased)
    settings = tokenization.read_settings(cased)
    (cased / tokenization.SETTINGS_FILE).write_text(
        json.dumps(settings | {"do_lower_case": False})
    )
    message = "cased has do_lower_case False, .*model True"
    with pytest.raises(ValueError, match=message):
        run(folder, compare=str(cased))


@pytest.mark.parametrize(
    ("change", "flags", "message"),
    [
        (
            {"max_position_embeddings": 23},
            {},
            "other: max_seq_length=24, but .* 23 positions",
        ),
        ({"parameter_sharing": "none"}, {"num_passes": 6}, "other: --num_pas"),
    ],
)
def test_all_models_are_checked_before_one_is_measured(
    folder, monkeypatch, change, flags, message
):
    real = pretrained.complete

    def complete(start):
        found = real(start)
        config = found.config
        if "/other" in start.source:
            config = dataclasses.replace(config, **change)
        return dataclasses.replace(found, config=config)

    monkeypatch.setattr(pretrained, "complete", complete)
    monkeypatch.setattr(layers, "describe", None)
    with pytest.raises(ValueError, match=message):
        run(folder, compare=str(folder / "other"), **flags)


def test_other_numbers_of_passes(folder, tmp_path):
    path = tmp_path / "x.json"
    run(folder, num_passes=1, json_file=str(path))
    (model,) = json.loads(path.read_text())["models"].values()
    assert len(model["passes"]["change"]) == 1


def test_only_shared_layers_run_more_often_than_in_training():
    apart = dataclasses.replace(tiny.CONFIG, parameter_sharing="none")
    assert layers.deepen(apart, None) == apart
    assert layers.deepen(apart, 2) == apart
    with pytest.raises(ValueError, match="only a model whose layers share"):
        layers.deepen(apart, 1)
    inner = dataclasses.replace(tiny.CONFIG, inner_group_num=2)
    assert layers.deepen(inner, 6).num_hidden_layers == 3
    with pytest.raises(ValueError, match="not a multiple of inner_group_num"):
        layers.deepen(inner, 5)


def test_the_same_text_is_masked_alike_for_every_model(folder, tmp_path):
    found = []
    for name in ("a", "b"):
        path = tmp_path / f"{name}.json"
        run(folder, json_file=str(path))
        (model,) = json.loads(path.read_text())["models"].values()
        found.append(model["passes"])
    assert found[0] == found[1]


def test_a_browser_shows_the_plots(folder, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "x.html"
    # matplotlib's legends leave out a name like this, unless it is asked for.
    other = shutil.copytree(folder / "other", tmp_path / "_other")
    run(folder, output_file=str(path), compare=str(other))
    seen = pages.browse(path, "--dump-dom")
    titles = re.findall(r'<div role="img" aria-label="(.*?)">', seen)
    assert len(titles) == len(set(titles)) == 7 + 2 * 5
    figures = re.findall(r'<div role="img".*?</svg>', seen, re.S)
    assert all(figure.count("<path") > 5 for figure in figures)
    assert all(">_other</text>" in figure for figure in figures[:7])
