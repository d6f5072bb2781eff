"""The command that runs every task, with a classifier that only pretends."""

import json

import pytest

from albert_tf.tools import run_glue

PRETENDER = """
import json, pathlib, sys

flags = dict(f[2:].partition("=")[::2] for f in sys.argv[1:])
folder = pathlib.Path(flags["output_dir"])
folder.mkdir(parents=True)
(folder / "flags.json").write_text(json.dumps(flags))
if flags["task_name"] == flags.get("fails"):
    sys.exit(1)
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
    return tmp_path / "pretender.py"


def run(tmp_path, script, **kwargs):
    run_glue.run(
        run_glue.GlueFlags(
            data_dir=str(tmp_path / "glue"),
            output_dir=str(tmp_path / "out"),
            init_checkpoint="albert_base",
            **kwargs,
        ),
        script,
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
    assert "Mean of the best over 3 tasks: 41.7" in said
    row = next(line for line in said.splitlines() if line.startswith("rte "))
    assert row.split() == "rte eval_accuracy 50.0 75.0 10.0 1.5".split()


def test_a_task_that_fails_does_not_stop_the_others(tmp_path, script, capfd):
    with pytest.raises(ValueError, match=r"1 of 3 tasks failed: \['cola'\]"):
        run(tmp_path, script, extra_flags="--fails=cola")
    said = capfd.readouterr().out
    assert "cola    failed; see above" in said
    assert "over 2 tasks: 50.0" in said


def test_chosen_tasks_need_data(tmp_path, script):
    run(tmp_path, script, tasks="rte")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["rte"]
    with pytest.raises(ValueError, match=r"not of \['sst-2'\]; known"):
        run(tmp_path, script, tasks="rte,sst-2")
    with pytest.raises(ValueError, match="of no task"):
        run_glue.find_tasks(str(tmp_path))


def test_every_task_has_a_recipe():
    for name in run_glue.TASKS:
        path = run_glue.ROOT / "configs" / "glue" / f"{name}.flags"
        assert f"--task_name={name}\n" in path.read_text()
