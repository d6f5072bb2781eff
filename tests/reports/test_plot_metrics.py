"""The curves of a training."""

import json

import pytest

from albert_tf import filesystem
from albert_tf.commands.plot_metrics import PlotFlags
from albert_tf.reports import plot_metrics

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


def draw(metrics_files, picture):
    pytest.importorskip("matplotlib")
    plot_metrics.run(
        PlotFlags(metrics_file=metrics_files, output_file=str(picture))
    )
    text = picture.read_text()
    return [t for t, _ in plot_metrics.PANELS if f"<!-- {t} -->" in text]


@pytest.mark.parametrize(
    ("names", "titles"),
    [
        # What pretraining writes, with and without the gauge's values.
        (
            "loss masked_lm_loss masked_lm_accuracy learning_rate",
            ["Masked-LM loss", "Masked-LM accuracy", "Learning rate"],
        ),
        (
            "masked_lm_loss frequency_gain attention_entropy",
            [
                "Masked-LM loss",
                "Gain over unigram loss",
                "Attention entropy",
            ],
        ),
        # A classifier, STS-B, SQuAD 1.1 and 2.0, RACE.
        ("eval_loss eval_accuracy f1", ["Loss", "Accuracy", "F1"]),
        (
            "eval_loss pearson spearman",
            ["Loss", "Pearson correlation", "Spearman correlation"],
        ),
        ("loss exact_match f1", ["Loss", "F1", "Exact match"]),
        (
            "exact f1 HasAns_f1 best_f1_thresh total",
            ["F1", "Exact match"],
        ),
        ("middle_eval_accuracy", ["Accuracy"]),
        ("mismatched_eval_accuracy", ["Accuracy"]),
    ],
)
def test_what_was_measured_has_a_panel(metrics_file, tmp_path, names, titles):
    record = {"split": "train", "step": 20} | dict.fromkeys(names.split(), 0.5)
    metrics_file.write_text(json.dumps(record) + "\n")
    assert draw(str(metrics_file), tmp_path / "curves.svg") == titles


def test_beside_a_pretraining_others_keep_their_loss():
    pretraining = {
        ("train", name): ([1], [0.5]) for name in ("loss", "masked_lm_loss")
    }
    other = {("train", "loss"): ([1], [0.5])}
    for runs, titles in (
        ({"a": pretraining}, ["Masked-LM loss"]),
        ({"a": pretraining, "b": other}, ["Masked-LM loss", "Loss"]),
    ):
        panels = plot_metrics.choose_panels(runs)
        assert [title for title, _ in panels] == titles


def test_curves_are_in_the_order_of_their_steps():
    """A checkpoint may be scored after later ones."""
    assert plot_metrics.collect_series(RECORDS[::-1]) == (
        plot_metrics.collect_series(RECORDS)
    )


def test_a_picture_is_written_to_a_remote_folder(metrics_file):
    """TensorFlow's ram:// stands for gs://."""
    pytest.importorskip("matplotlib")
    picture = f"ram:/{metrics_file.parent}/curves.svg"
    plot_metrics.run(
        PlotFlags(metrics_file=str(metrics_file), output_file=picture)
    )
    assert b"</svg>" in filesystem.read_file(picture)


def test_parts_of_the_dev_data_have_lines_of_their_own():
    series = {
        ("train", "accuracy"): ([1], [0.1]),
        ("eval", "eval_accuracy"): ([1], [0.2]),
        ("eval", "middle_eval_accuracy"): ([1], [0.3]),
        ("eval", "best_eval_accuracy"): ([1], [0.4]),
    }
    assert plot_metrics.find_lines(series, ("accuracy", "eval_accuracy")) == {
        "train": ("train", "accuracy"),
        "eval": ("eval", "eval_accuracy"),
        "middle": ("eval", "middle_eval_accuracy"),
    }


def test_several_runs_share_the_panels(metrics_file, tmp_path):
    other = tmp_path / "run_2" / "metrics.jsonl"
    other.parent.mkdir()
    record = {"split": "train", "step": 9, "loss": 1.0, "masked_lm_loss": 1.0}
    other.write_text(json.dumps(record) + "\n")
    runs = {
        name: plot_metrics.read_series(path)
        for name, path in (("first", metrics_file), ("second", other))
    }
    pytest.importorskip("matplotlib")
    (axes,) = plot_metrics.draw(runs).axes
    lines = {line.get_label(): line.get_xydata() for line in axes.get_lines()}
    assert lines.keys() == {"first: train", "first: eval", "second: train"}
    assert lines["first: eval"].tolist() == [[0, 9], [10, 7]]
    assert lines["second: train"].tolist() == [[9, 1]]
    tokens = plot_metrics.parse_tokens("500000, 1000000", list(runs))
    (axes,) = plot_metrics.draw(runs, "", tokens).axes
    lines = {line.get_label(): line.get_xydata() for line in axes.get_lines()}
    assert lines["first: eval"].tolist() == [[0, 9], [5, 7]]
    assert lines["second: train"].tolist() == [[9, 1]]
    assert axes.get_xlabel() == "M tokens"
    picture = tmp_path / "curves.svg"
    for files in (
        f"{metrics_file},{other}",
        f"{metrics_file},{tmp_path}/run_*/*",
    ):
        assert draw(files, picture) == ["Masked-LM loss"]
        assert "<!-- run_2: train -->" in picture.read_text()


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["a/out/m.jsonl"], ["out"]),
        (["a/r1/m.jsonl", "a/r2/m.jsonl"], ["r1", "r2"]),
        (["a/out/m.jsonl", "b/out/m.jsonl"], ["a/out", "b/out"]),
        (["out/m.jsonl", "out/n.jsonl"], ["m.jsonl", "n.jsonl"]),
    ],
)
def test_runs_are_named_by_folders_that_tell_them_apart(paths, names):
    assert plot_metrics.name_runs(paths) == names


def test_tokens_are_in_the_order_of_the_files(
    metrics_file, tmp_path, monkeypatch
):
    first = tmp_path / "z" / "metrics.jsonl"
    first.parent.mkdir()
    first.write_bytes(metrics_file.read_bytes())
    drawn = []

    def draw(runs, title, tokens_per_step):
        drawn.append((list(runs), tokens_per_step))
        raise ImportError("This test needs no plots.")

    monkeypatch.setattr(plot_metrics, "draw", draw)
    with pytest.raises(ImportError, match="no plots"):
        plot_metrics.run(
            PlotFlags(
                metrics_file=f"{first},{metrics_file},{first}",
                output_file=str(tmp_path / "x.svg"),
                tokens_per_step="8,1",
            )
        )
    ((names, tokens),) = drawn
    assert names == ["z", tmp_path.name] and list(tokens.values()) == [8, 1]


@pytest.mark.parametrize("text", ["5", "5,6,7", "5,x", "5,0", "5,-1", "5,1.5"])
def test_each_run_has_its_tokens(text):
    with pytest.raises(ValueError, match="each of the 2 runs, a, b"):
        plot_metrics.parse_tokens(text, ["a", "b"])


def test_metrics_of_something_else_are_refused(metrics_file, tmp_path):
    metrics_file.write_text('{"split": "train", "step": 20, "speed": 0.5}\n')
    with pytest.raises(ValueError, match="at least one of .*masked_lm_los"):
        draw(str(metrics_file), tmp_path / "curves.svg")
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
        ("x.gif", "must end in .svg or .png or .pdf"),
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
    with pytest.raises(ValueError, match="Has the training started"):
        plot_metrics.read_series(tmp_path / "metrics.jsonl")
