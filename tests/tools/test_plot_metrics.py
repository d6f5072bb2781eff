"""The curves of a training."""

import json

import pytest

from albert_tf.commands.plot_metrics import PlotFlags
from albert_tf.tools import plot_metrics

RECORDS = [
    {"split": "eval", "step": 0, "masked_lm_loss": 9.0, "time": 1.0},
    {"split": "train", "step": 5, "masked_lm_loss": 8.0, "time": 2.0},
    {"split": "eval", "step": 10, "masked_lm_loss": 7.0, "time": 3.0},
]


@pytest.fixture
def metrics_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in RECORDS))
    return path


def test_series_are_told_apart_by_split(metrics_file):
    assert plot_metrics.read_series(metrics_file) == {
        ("eval", "masked_lm_loss"): ([0, 10], [9.0, 7.0]),
        ("train", "masked_lm_loss"): ([5], [8.0]),
    }


def draw(metrics_file, picture):
    pytest.importorskip("matplotlib")
    plot_metrics.run(
        PlotFlags(metrics_file=str(metrics_file), output_file=str(picture))
    )
    return [
        title
        for title, _ in plot_metrics.PANELS
        if f"<!-- {title} -->" in picture.read_text()
    ]


@pytest.mark.parametrize("names", [[], ["learning_rate"], None])
def test_what_was_measured_has_a_panel(metrics_file, tmp_path, names):
    titles = dict(map(reversed, plot_metrics.PANELS))
    names = list(titles) if names is None else ["masked_lm_loss", *names]
    record = {"split": "train", "step": 20} | dict.fromkeys(names, 0.5)
    metrics_file.write_text(json.dumps(record) + "\n")
    assert draw(metrics_file, tmp_path / "curves.svg") == [
        titles[name] for name in names
    ]


def test_metrics_of_something_else_are_refused(metrics_file, tmp_path):
    metrics_file.write_text('{"split": "train", "step": 20, "f1": 0.5}\n')
    with pytest.raises(ValueError, match="holds none of masked_lm_loss, "):
        draw(metrics_file, tmp_path / "curves.svg")
    assert not (tmp_path / "curves.svg").exists()


@pytest.mark.parametrize("rest", [b'{"split": "eval", "st', b"\0" * 40, b"{}"])
def test_a_torn_end_is_left_out(metrics_file, rest):
    whole = plot_metrics.read_series(metrics_file)
    metrics_file.write_bytes(metrics_file.read_bytes() + rest)
    assert plot_metrics.read_series(metrics_file) == whole


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text\n", "line 1 is not JSON"),
        ("[]\n", "line 1: found JSON of type list"),
        ('{"split": "eval"}\n', "line 1 lacks split or step"),
        ("[" * 100_000 + "\n", "line 1 is not .* nested too deeply"),
    ],
)
def test_another_file_is_refused(metrics_file, content, message):
    metrics_file.write_text(content)
    with pytest.raises(ValueError, match=message):
        plot_metrics.read_series(metrics_file)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("metrics.jsonl", "--output_file would overwrite"),
        ("x.gif", "must end in one of .svg, .png, .pdf"),
        ("metrics.jsonl/x.svg", "cannot be a folder"),
    ],
)
def test_what_cannot_be_written_is_refused(
    metrics_file, tmp_path, name, message
):
    args = PlotFlags(
        metrics_file=str(metrics_file), output_file=str(tmp_path / name)
    )
    before = metrics_file.read_bytes()
    with pytest.raises(
        (ValueError, NotADirectoryError, ImportError),
        match=f"{message}|matplotlib",
    ):
        plot_metrics.run(args)
    assert metrics_file.read_bytes() == before


def test_an_empty_file_is_an_error(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match="Has the training begun"):
        plot_metrics.read_series(tmp_path / "metrics.jsonl")
