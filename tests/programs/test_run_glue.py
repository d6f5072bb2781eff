"""run_glue, with a fake classifier."""

import json
import os
import re
import signal
import sys
import time

import pytest
from absl import flags as absl_flags

from albert_tf import filesystem, ownership
from albert_tf.commands.groups import FineTuningFlags
from albert_tf.commands.run_glue import GlueFlags
from albert_tf.programs import run_glue
from tests.conftest import ROOT, started

# run_glue.sh of the release: warmup, rate, steps, between checkpoints, batch.
# WNLI, which it leaves out, is the paper's Table 14.
RELEASED = {
    "sst-2": "1256 1e-5 20935 100 32",
    "mnli": "1000 3e-5 10000 100 128",
    "cola": "320 1e-5 5336 100 16",
    "qnli": "1986 1e-5 33112 200 32",
    "qqp": "1000 5e-5 14000 100 128",
    "rte": "200 3e-5 800 100 32",
    "sts-b": "214 2e-5 3598 100 16",
    "mrpc": "200 2e-5 800 100 32",
    "wnli": "250 2e-5 2000 100 16",
}
SIZES = ("large", "xlarge", "xxlarge")

PRETENDER = """
import json, pathlib, sys

flags = dict(f[2:].partition("=")[::2] for f in sys.argv[1:])
folder = pathlib.Path(flags["output_dir"])
folder.mkdir(parents=True, exist_ok=True)
(folder / "flags.json").write_text(json.dumps(flags))
if flags["task_name"] == flags.get("fails"):
    sys.exit(1)
if flags["task_name"] == flags.get("says_nothing"):
    sys.exit()
(folder / "summary.json").write_text(json.dumps({
    "metric": "eval_accuracy",
    "last": {"eval_accuracy": 0.5},
    "best": {"eval_accuracy": 0.75 if "rte" in str(folder) else 0.25},
    "baseline": {"eval_accuracy": 0.1},
    "seconds": 90,
}))
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "pretender.py").write_text(PRETENDER)
    for folder in ("RTE", "CoLA", "MNLI"):
        (tmp_path / "glue" / folder).mkdir(parents=True)
        (tmp_path / "glue" / folder / "train.tsv").touch()
    for name in ("RTE/test.tsv", "CoLA/test.tsv", "MNLI/test_matched.tsv"):
        (tmp_path / "glue" / name).touch()
    return tmp_path / "pretender.py"


def run(tmp_path, script, **kwargs):
    run_glue.run(
        GlueFlags(
            data_dir=str(tmp_path / "glue"),
            output_dir=str(tmp_path / "out"),
            init_checkpoint="albert_base",
            **kwargs,
        ),
        [sys.executable, str(script)],
    )


def test_every_task_with_data_is_run_by_its_recipe(tmp_path, script, capfd):
    run(tmp_path, script, extra_flags="--max_seq_length=64")
    said = capfd.readouterr().out
    for name in ("rte", "cola", "mnli"):
        path = tmp_path / "out" / name / "flags.json"
        flags = json.loads(path.read_text())
        assert flags["flagfile"].endswith(f"configs/glue/{name}.flags")
        assert flags["task_name"] == name
        assert flags["init_checkpoint"] == "albert_base"
        assert flags["max_seq_length"] == "64"
        assert {"do_train", "do_eval", "do_predict"} <= set(flags)
    assert "Task 1 of 3, " in said and "Task 3 of 3, " in said
    assert "Mean of the best scores of 3 tasks: 41.7" in said
    # What a task took before it was resumed is not known.
    assert "Minutes are of each task's last call." in said
    *_, row = (x for x in said.splitlines() if x.startswith("rte "))
    assert row.split() == "rte eval_accuracy 50.0 75.0 10.0 1.5".split()


def test_a_task_that_fails_does_not_stop_the_others(tmp_path, script, capfd):
    with pytest.raises(ValueError, match=r"1 of 3 tasks failed: \['cola'\]"):
        run(tmp_path, script, extra_flags="--fails=cola")
    said = capfd.readouterr().out
    assert "cola    failed; see above" in said
    assert "scores of 2 tasks: 50.0" in said


def test_the_summary_of_an_earlier_run_does_not_hide_a_failure(
    tmp_path, script, capfd
):
    run(tmp_path, script)
    with pytest.raises(ValueError, match=r"1 of 3 tasks failed: \['cola'\]"):
        run(tmp_path, script, extra_flags="--fails=cola")
    assert "cola    failed; see above" in capfd.readouterr().out


def test_a_task_without_a_summary_does_not_stop_the_others(
    tmp_path, script, capfd
):
    with pytest.raises(ValueError, match=r"1 of 3 tasks failed: \['cola'\]"):
        run(tmp_path, script, extra_flags="--says_nothing=cola")
    assert "scores of 2 tasks: 50.0" in capfd.readouterr().out


def test_summaries_are_read_from_remote_folders(
    tmp_path, script, capfd, monkeypatch
):
    """TensorFlow's ram:// stands for gs://."""
    run(tmp_path, script)
    summary = (tmp_path / "out/cola/summary.json").read_text()
    remote = f"ram:/{tmp_path}/out"

    def pretend(command):
        filesystem.write_file(f"{remote}/cola/summary.json", summary)
        return 0

    monkeypatch.setattr(run_glue.subprograms, "run_program", pretend)
    monkeypatch.chdir(tmp_path)
    flags = {"data_dir": str(tmp_path / "glue"), "init_checkpoint": "a"}
    run_glue.run(GlueFlags(**flags, output_dir=remote, tasks="cola"))
    assert "scores of 1 tasks: 25.0" in capfd.readouterr().out
    assert not (tmp_path / "ram:").exists()


def test_without_test_data_nothing_is_predicted(tmp_path, script):
    (tmp_path / "glue" / "MNLI" / "test_matched.tsv").unlink()
    run(tmp_path, script)
    for name in ("rte", "cola", "mnli"):
        path = tmp_path / "out" / name / "flags.json"
        has_it = "do_predict" in json.loads(path.read_text())
        assert has_it == (name != "mnli")


def run_code(tmp_path, script):
    """Returns code that does what `run` does."""
    return (
        "from albert_tf.commands.run_glue import GlueFlags\n"
        "from albert_tf.programs import run_glue\n"
        f"args = GlueFlags(data_dir={str(tmp_path / 'glue')!r}, "
        f"output_dir={str(tmp_path / 'out')!r})\n"
        f"run_glue.run(args, {[sys.executable, str(script)]!r})"
    )


SAVES_AT_CTRL_C = """
import pathlib, time
try:
    print("started", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(1)
    pathlib.Path(__file__).with_name("saved").touch()
    raise
"""


def test_ctrl_c_leaves_the_classifier_time_to_save(tmp_path, script):
    script.write_text(SAVES_AT_CTRL_C)
    with started(run_code(tmp_path, script), start_new_session=True) as tool:
        os.killpg(tool.pid, signal.SIGINT)
        rest, _ = tool.communicate(timeout=30)
    assert script.with_name("saved").exists()
    assert "started" not in rest


SAVES_AT_SIGTERM = """
import pathlib, signal, sys, time
def save(*_):
    time.sleep(1)
    pathlib.Path(__file__).with_name("saved").touch()
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
print("started", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("after_ctrl_c", [False, True])
def test_sigterm_reaches_the_classifier(tmp_path, script, after_ctrl_c):
    script.write_text(SAVES_AT_SIGTERM)
    code = (
        "from albert_tf import flags\n"
        "from albert_tf.commands.run_glue import GlueFlags\n"
        "from albert_tf.programs import run_glue\n"
        f"classifier = {[sys.executable, str(script)]!r}\n"
        "flags.launch(lambda args: run_glue.run(args, classifier), "
        "GlueFlags)"
    )
    folders = [
        f"--data_dir={tmp_path / 'glue'}",
        f"--output_dir={tmp_path / 'out'}",
    ]
    with started(code, *folders) as tool:
        if after_ctrl_c:  # Only this process receives it.
            tool.send_signal(signal.SIGINT)
            time.sleep(1)
        tool.terminate()
        rest, _ = tool.communicate(timeout=30)
    assert tool.returncode == 143
    assert script.with_name("saved").exists()
    assert "started" not in rest


@pytest.mark.skipif(sys.platform != "linux", reason="a feature of Linux")
def test_the_classifier_exits_if_the_tool_is_killed(tmp_path, script):
    script.write_text(SAVES_AT_SIGTERM)
    with started(run_code(tmp_path, script)) as tool:
        tool.kill()
        # The pipe is at its end once the classifier has ended, too.
        tool.communicate(timeout=30)
    assert script.with_name("saved").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extra_flags": "--a='b"}, "--extra_flags=.*quotation. Is a quot"),
        ({"recipes": "nowhere"}, "no nowhere/cola.flags"),
    ],
)
def test_invalid_flags_are_refused_at_once(tmp_path, script, changes, message):
    with pytest.raises(ValueError, match=message):
        run(tmp_path, script, **changes)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_another_run_writes_is_refused(tmp_path, script):
    with ownership.owning_folder(tmp_path / "out"):
        with pytest.raises(BlockingIOError, match="in use by process"):
            run(tmp_path, script)


def test_chosen_tasks_need_data(tmp_path, script):
    run(tmp_path, script, tasks="RTE")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["rte"]
    with pytest.raises(ValueError, match=r"not for \['sst-2'\]; known"):
        run(tmp_path, script, tasks="rte,sst-2")
    with pytest.raises(ValueError, match="for no task"):
        run_glue.find_tasks(str(tmp_path))


def read_recipe(*names):
    """Returns the flags that absl parses from recipes, as a dict of strings."""
    values = absl_flags.FlagValues()
    for name in (
        "task_name",
        *FineTuningFlags.__dataclass_fields__,
    ):
        absl_flags.DEFINE_string(name, None, "", flag_values=values)
    folder = ROOT / "configs" / "glue"
    values(["script", *(f"--flagfile={folder / n}.flags" for n in names)])
    return {n: values[n].value for n in values if values[n].present}


@pytest.mark.parametrize("name", run_glue.TASKS)
def test_a_task_has_the_recipe_of_the_release(name):
    # Its length, 512, is the default.
    warmup, rate, steps, between, batch = RELEASED[name].split()
    assert read_recipe(name) == {
        "task_name": name,
        "warmup_step": warmup,
        "learning_rate": rate,
        "train_step": steps,
        "save_checkpoints_steps": between,
        "train_batch_size": batch,
    }


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", run_glue.TASKS)
def test_the_recipe_of_a_size_is_more_conservative(name, size):
    task, both = read_recipe(name), read_recipe(name, f"sizes/{size}")
    assert float(both["learning_rate"]) <= float(task["learning_rate"])
    steps = int(task["train_step"])
    num_warmup_steps = int(float(both["warmup_proportion"]) * steps)
    assert num_warmup_steps >= int(task["warmup_step"])
    # The classifier's dropout is the paper's for every task: the default.
    assert both["hidden_dropout_prob"] == "0"
    assert both["attention_probs_dropout_prob"] == "0"
    assert "classifier_dropout" not in both


def test_a_recipe_opens_with_its_command_and_its_source():
    folder = ROOT / "configs" / "glue"
    for path in folder.rglob("*.flags"):
        text = path.read_text()
        assert f"--flagfile={path.relative_to(ROOT)}" in text
        assert re.search("^# (Values|Source): ", text, re.M), path
        assert max(map(len, text.splitlines())) <= 80, path
