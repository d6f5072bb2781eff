"""The curves of a training."""

import json

import pytest

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


def test_a_picture_with_every_panel_is_written(metrics_file, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "curves.svg"
    args = plot_metrics.PlotFlags(
        metrics_file=str(metrics_file), output_file=str(picture)
    )
    plot_metrics.run(args)
    text = picture.read_text()
    for title, _ in plot_metrics.PANELS:
        assert f"<!-- {title} -->" in text


def test_an_empty_file_is_an_error(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match="Has the training begun"):
        plot_metrics.read_series(tmp_path / "metrics.jsonl")
