"""The output of a run: log lines, JSON lines, summaries."""

import io
import json

import pytest
import tensorflow as tf

from albert_tf.training import reporting


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test moves."""
    now = [100.0]
    monkeypatch.setattr(reporting.time, "monotonic", lambda: now[0])
    return now


def test_rate_and_remaining_time_exclude_compilation(tmp_path, clock):
    terminal = Terminal()
    reporter = reporting.Reporter(tmp_path, terminal)
    reporter.start(0, 100, batch_size=8)
    clock[0] += 60
    reporter.progress(1, {"loss": 9.0}, is_compiling=True)
    clock[0] += 10
    reporter.progress(21, {"loss": 8.0})
    line = terminal.getvalue().split("\r\x1b[K")[-1]
    # 2 steps per second, 79 steps remaining.
    assert line == "step 21/100 loss 8 16.0 seq/s ETA 0:00:40"
    clock[0] += 1000
    reporter.clock.resume()
    clock[0] += 10
    reporter.progress(41, {"loss": 8.0})
    assert reporter.clock.rate == pytest.approx(2.0)


def test_the_share_of_each_replica_is_said(tmp_path):
    output = io.StringIO()
    reporting.Reporter(tmp_path, output).start(0, 10, 8, num_replicas=4)
    assert "8 sequences per step, 2 on each of 4 replicas." in output.getvalue()


def test_a_log_gets_no_terminal_codes(tmp_path, clock):
    output = io.StringIO()
    reporter = reporting.Reporter(tmp_path, output)
    reporter.start(0, 10, batch_size=8)
    clock[0] += 1
    reporter.progress(1, {"loss": 9.0}, is_compiling=True)
    clock[0] += 1
    reporter.progress(2, {"loss": 9.0})
    assert output.getvalue().splitlines() == [
        "Training from step 0 to 10, 8 sequences per step. The first step "
        "compiles the model.",
        "First step done in 0:00:01.",
    ]
    reporter.log(
        "train",
        2,
        {"masked_lm_accuracy": 0.25, "learning_rate": 1e-3},
    )
    assert output.getvalue().splitlines()[-1] == (
        "step 2/10 mlm_acc 0.25 lr 0.001 8.0 seq/s ETA 0:00:08"
    )


def read_summaries(folder):
    """Returns step, name and value of all summaries."""
    return sorted(
        (event.step, value.tag, float(tf.make_ndarray(value.tensor)))
        for path in folder.iterdir()
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
    )


def test_values_go_to_json_lines_and_summaries(tmp_path):
    reporter = reporting.Reporter(tmp_path, io.StringIO())
    reporter.log("eval", 5, {"loss": 2.5, "masked_lm_accuracy": 0.5})
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert record.pop("time") > 0
    assert record == {
        "split": "eval",
        "step": 5,
        "loss": 2.5,
        "masked_lm_accuracy": 0.5,
    }
    assert read_summaries(tmp_path / "eval") == [
        (5, "loss", 2.5),
        (5, "masked_lm_accuracy", 0.5),
    ]


def test_lines_of_lost_work_are_dropped_on_resume(tmp_path):
    first = reporting.Reporter(tmp_path, io.StringIO())
    first.start(0, 100, batch_size=8)
    for step in (10, 20, 30):
        first.log("train", step, {"loss": 1.0})
    second = reporting.Reporter(tmp_path, io.StringIO())
    second.start(20, 100, batch_size=8)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [10, 20]


def test_a_reporter_that_resumes_loses_no_summaries(tmp_path):
    """As where an interrupted `train` is called again."""
    reporter = reporting.Reporter(tmp_path, io.StringIO())
    for first_step, steps in ((0, (10, 20, 30)), (20, (25, 30))):
        reporter.start(first_step, 100, batch_size=8)
        for step in steps:
            reporter.log("train", step, {"loss": 1.0 + first_step})
    assert read_summaries(tmp_path / "train") == [
        (10, "loss", 1.0),
        (20, "loss", 1.0),
        (25, "loss", 21.0),
        (30, "loss", 21.0),
    ]


def test_warnings_are_recorded_once_and_dropped_with_their_step(tmp_path):
    output = io.StringIO()
    for _ in range(2):  # The second one resumes.
        reporter = reporting.Reporter(tmp_path, output)
        reporter.say("WARNING: rare labels")
        reporter.start(4, 100, batch_size=8)
        reporter.say("Something else.")
        reporter.log("train", 4, {"loss": 1.0})
        reporter.step = 8
        reporter.say("WARNING: it predicts the same")
    assert output.getvalue().count("WARNING: rare labels\n") == 2
    assert reporter.read("warning") == [
        {"split": "warning", "step": 0, "text": "rare labels"},
        {"split": "warning", "step": 8, "text": "it predicts the same"},
    ]
    reporter.start(4, 100, batch_size=8)
    assert [r["step"] for r in reporter.read("warning")] == [0]


def test_a_warning_does_not_continue_an_incomplete_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"split": "train", "step": 1}\n{"split": "tr')
    reporting.Reporter(tmp_path, io.StringIO()).say("WARNING: x")
    splits = [json.loads(x)["split"] for x in path.read_text().splitlines()]
    assert splits == ["train", "warning"]
