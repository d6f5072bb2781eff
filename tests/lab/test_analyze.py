"""Tables, JSON and page of what models are made of."""

import json
import pathlib
import re

import pytest

from albert_tf.commands.analyze import AnalyzeFlags
from albert_tf.lab import analyze, speed
from albert_tf.reports import plot_metrics
from tests import pages, tiny

CONFIGS = pathlib.Path(__file__).parents[2] / "configs" / "model"
BASE, BERT = str(CONFIGS / "v2/base.json"), str(CONFIGS / "bert/base.json")


@pytest.fixture
def folder(tmp_path):
    """A function that analyzes base beside BERT, and returns the folder."""

    def run(**kwargs):
        analyze.run(
            AnalyzeFlags(
                albert_config_file=BASE,
                compare=BERT,
                output_file=str(tmp_path / "x.html"),
                json_file=str(tmp_path / "x.json"),
                **kwargs,
            )
        )
        return tmp_path

    return run


def test_tables_and_files_say_the_same(folder, capsys):
    path = folder(batch_sizes="4", seq_lengths="64,32")
    printed = capsys.readouterr().out
    values = json.loads((path / "x.json").read_text())
    assert values["flags"]["seq_lengths"] == "64,32"
    found = values["models"]
    assert list(found) == ["v2/base", "bert/base"]
    page = pages.Page((path / "x.html").read_text())
    for name, model in found.items():
        (line,) = re.findall(r"^encoder  .*$", printed, re.M)
        assert f" {model['encoder']:,}" in line
        (parts,) = page.tables["parameters"]
        column = parts[0].index(name)
        rows = {row[0]: row[column] for row in parts}
        assert rows["encoder"] == f"{model['encoder']:,}"
        assert rows["pooler"].startswith(f"{model['parameters']['pooler']:,} ")
    assert rows["in the paper"] == "108M"
    (speeds,) = page.tables["flops"]
    assert [row[1] for row in speeds[1:]] == ["32", "64"] * 2
    assert {row[5] for row in speeds[1:]} == {"5.6", "4.7"}
    (steps,) = page.tables["memory-of-a-training-step"]
    assert len(steps) == 1 + 2 * 2 * 2 * 2
    first = found["v2/base"]["training"][0]
    assert steps[1][-1] == f"{first['peak'] / 2**30:.2f}"
    (words,) = page.tables["word-embeddings"]
    assert words[1][-1] == "82.9%" and words[2][-2] == "not factorized"
    assert words[2][1] == words[3][1] == "23,440,896"
    assert words[3][2:] == ["128", "4,005,120", "82.9%"]
    assert rows["all embeddings"] == "23,837,184 (21.8%)"
    assert rows["one layer"] == "7,087,872"
    assert rows["all layers"].startswith("85,054,464 ")
    assert rows["encoder"] == "109,482,240"
    assert all(link.startswith("#") for link in page.links)


def test_models_are_named_by_what_differs():
    name = analyze.name_configs
    assert name(["/x/v2/base.json"]) == ["base"]
    assert name([BASE, BERT]) == ["v2/base", "bert/base"]
    assert name(["a/albert_config.json", "b/large.json"]) == ["a", "large"]
    assert name(["/a/x.json", "/a/x/albert_config.json"]) == [
        "x.json",
        "albert_config.json",
    ]


def test_each_config_is_shown_once(tmp_path, capsys):
    (tmp_path / "other.json").symlink_to(BASE)
    again = f"{BERT},{BASE},{tmp_path}/other.json"
    analyze.run(AnalyzeFlags(albert_config_file=BASE, compare=again))
    head = capsys.readouterr().out.splitlines()[2]
    assert head.split() == ["v2/base", "bert/base"]


def test_without_matplotlib_all_but_plots_is_there(folder, monkeypatch):
    def refuse():
        raise ImportError("Plots require matplotlib: pip install it.")

    monkeypatch.setattr(plot_metrics, "import_matplotlib", refuse)
    page = pages.Page((folder() / "x.html").read_text())
    assert "Plots require matplotlib" in page.text
    assert page.tables["parameters"] and not page.tags["svg"]


def write_page(tmp_path, **changes):
    """Analyzes a tiny model with other fields; returns its page."""
    values = tiny.CONFIG.to_dict() | changes
    (tmp_path / "albert_config.json").write_text(json.dumps(values))
    path = tmp_path / "x.html"
    analyze.run(
        AnalyzeFlags(
            albert_config_file=str(tmp_path / "albert_config.json"),
            output_file=str(path),
            seq_lengths="16",
            max_predictions_per_seq=3,
        )
    )
    return path.read_text()


def test_a_tiny_model_has_a_page(tmp_path):
    assert f"What {tmp_path.name} is made of" in write_page(tmp_path)


def test_a_name_that_begins_with_an_underscore_is_in_the_legend(tmp_path):
    """Without being asked, matplotlib leaves it out."""
    pytest.importorskip("matplotlib")
    (tmp_path / "_own").mkdir()
    page = write_page(tmp_path / "_own")
    plot = page[page.index('aria-label="V * E + E * H; dotted') :]
    assert ">_own</text>" in plot[: plot.index("</svg>")]


def test_lengths_are_those_that_all_models_have(tmp_path, capsys):
    config = str(CONFIGS / "tiny.json")
    analyze.run(AnalyzeFlags(albert_config_file=config, compare=BASE))
    lines = capsys.readouterr().out.splitlines()
    flops = lines[lines.index("FLOPs") :]
    assert [line.split()[1] for line in flops[3:5]] == ["128", "128"]


def test_speed_is_measured_beside_flops(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(speed, "TURN_SECONDS", 0.0)
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, layers in zip(paths, (1, 4), strict=True):
        values = tiny.CONFIG.to_dict() | {"num_hidden_layers": layers}
        path.write_text(json.dumps(values))
    output = tmp_path / "x.json"
    analyze.run(
        AnalyzeFlags(
            albert_config_file=str(paths[0]),
            compare=str(paths[1]),
            json_file=str(output),
            batch_sizes="4,2",
            seq_lengths="16",
            max_predictions_per_seq=3,
            measure_speed=True,
        )
    )
    first, second = json.loads(output.read_text())["speed"]
    assert (first["name"], first["batch_size"]) == ("a", 2)
    assert first["speedup"] == first["speedup_by_flops"] == 1
    ratio = first["seconds"] / second["seconds"]
    assert second["speedup"] == pytest.approx(ratio)
    # Of four layers, only the last one leaves out tokens.
    assert 0.1 < second["speedup_by_flops"] < 0.25
    lines = capsys.readouterr().out.splitlines()
    row = lines[lines.index(analyze.SPEED) + 4].split()
    assert row[0] == "b" and row[4] == f"{ratio:.2f}"


def test_deep_blocks_have_a_page(tmp_path):
    """Plots leave out depths that no config may have."""
    pytest.importorskip("matplotlib")
    page = write_page(tmp_path, inner_group_num=30)
    assert "Depth: encoder parameters" in page


def test_a_browser_shows_the_plots(folder):
    pytest.importorskip("matplotlib")
    seen = pages.browse(folder() / "x.html", "--dump-dom")
    titles = re.findall(r'<div role="img" aria-label="(.*?)">', seen)
    assert len(titles) == len(set(titles)) == 2 + 1 + 2 + 2 + 1 + 1 + 4
    figures = re.findall(r'<div role="img".*?</svg>', seen, re.S)
    assert len(figures) == len(titles)
    assert all(figure.count("<path") > 5 for figure in figures)
