"""What the benchmarks do again, and what they do not."""

import json
import pathlib

import pytest

from albert_tf.lab import digests
from benchmarks import plateau, programs, transfer

SUMMARY = {"metric": "f1", "runs": [{"best": {"f1": 0.5}}], "median": 0.5}


@pytest.fixture
def calls(monkeypatch):
    """The commands that were run, which write what is expected of them."""
    found = []

    def run(*arguments):
        found.append(arguments)
        flags = dict(word[2:].partition("=")[::2] for word in arguments[1:])
        if file := flags.get("output_file"):
            path = file.replace(".tfrecord", ".dataset.json")
        else:
            path = f"{flags['output_dir']}/summary.json"
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(path).write_text(json.dumps(SUMMARY))

    monkeypatch.setattr(programs, "run", run)
    return found


@pytest.mark.parametrize("name", ["train_text", "spm_model_file"])
def test_records_of_changed_text_are_made_anew(tmp_path, calls, name):
    paths = {
        name: str(tmp_path / name)
        for name in ("train_text", "heldout_text", "spm_model_file")
    }
    for path in paths.values():
        pathlib.Path(path).write_text("A sentence.\n")
    args = programs.TextFlags(output_dir=str(tmp_path / "out"), **paths)

    def make():
        digests.digest_file.cache_clear()
        return programs.make_records(args, args.train_text, programs.SHORT)

    assert make() == make() and len(calls) == 1
    pathlib.Path(paths[name]).write_text("Another.\n")
    assert make() != calls[0][2].partition("=")[2] and len(calls) == 2


def test_a_fine_tuning_from_another_checkpoint_is_checked(tmp_path, calls):
    """The program refuses it, as what it notes in run.json differs."""
    for start in ("first", "second"):
        args = transfer.BenchmarkFlags(
            init_checkpoint=start,
            spm_model_file="a.model",
            output_dir=str(tmp_path),
            glue_dir="glue",
        )
        assert transfer.fine_tune(args, "CoLA", "pretrained", 1e-4) == SUMMARY
        assert f"--init_checkpoint={start}" in calls[-1]


@pytest.mark.parametrize(
    ("benchmark", "kwargs", "known"),
    [
        (plateau, {"train_text": "x", "heldout_text": "x"}, "beta_2; sent"),
        (transfer, {"init_checkpoint": "model"}, "film reviews; SST-2; "),
    ],
)
def test_a_row_that_is_unknown_is_refused_at_once(
    tmp_path, calls, benchmark, kwargs, known
):
    name = known.partition(";")[0]
    args = benchmark.BenchmarkFlags(
        spm_model_file="a.model",
        output_dir=str(tmp_path),
        only=f"{name};betta",
        **kwargs,
    )
    with pytest.raises(ValueError, match=f"names .'betta'.; .*{known}"):
        benchmark.run(args)
    assert not calls


def test_a_cut_line_leaves_the_other_scores(tmp_path, capsys):
    line = json.dumps(
        {"split": "eval", "step": 500, "masked_lm_accuracy": 0.25}
    )
    for name, rest in (("base", ""), ("batch", line[:20])):
        path = tmp_path / name / "metrics.jsonl"
        path.parent.mkdir()
        path.write_text(f"{line}\n{rest}")
    plateau.print_table(str(tmp_path))
    table = capsys.readouterr().out
    assert "| none | 25.0% |  |  |" in table
    assert "{'train_batch_size': 32} |  | 25.0% |  |" in table


def test_articles_are_divided(tmp_path):
    """Another process may be reading them, so they are renamed."""
    path = tmp_path / "squad.json"
    path.write_text(json.dumps({"version": "1.1", "data": [1, 2, 3, 4]}))
    files = transfer.split_squad(path, tmp_path / "out")
    before = [file.stat().st_ino for file in files]
    assert files == transfer.split_squad(path, tmp_path / "out")
    assert all(map(int.__ne__, before, [f.stat().st_ino for f in files]))
    parts = [json.loads(file.read_text())["data"] for file in files]
    assert parts == [[1, 2, 3], [4]]


def test_a_part_of_the_fine_tunings_can_be_run(tmp_path, calls, capsys):
    args = transfer.BenchmarkFlags(
        init_checkpoint="model",
        spm_model_file="a.model",
        output_dir=str(tmp_path),
        glue_dir="glue",
        only="CoLA;STS-B",
        rates="3e-4",
        start="random",
    )
    transfer.run(args)
    assert len(calls) == 2
    for call in calls:
        assert {"--learning_rate=0.0003", "--from_scratch=True"} <= set(call)
    row = "| STS-B, f1 |  |  | 0.500 | 0.500 (0.0003) |"
    assert capsys.readouterr().out.endswith(f"{row}\n")
