"""Ablations: with pretended programs, and once with the real ones."""

import contextlib
import json
import pathlib
import re
import shutil

import pytest

from albert_tf import ownership
from albert_tf.commands.ablate import AblateFlags
from albert_tf.lab import ablate, digests, grid_jobs, grid_reports, grids
from albert_tf.reports import plot_metrics
from albert_tf.text import tokenization
from albert_tf.training import results_file
from tests import pages, tiny
from tests.bad_inputs import commands
from tests.lab.test_grids import GRID
from tests.programs import classifier_runs

ROOT = pathlib.Path(__file__).parents[2]
PROGRAMS = "run_pretraining", "run_classifier"


def pretend(folder, command):
    """Notes a program's command, and writes what its caller reads."""
    program, *words = command[len(grid_jobs.subprograms.ALBERT) :]
    flags = dict(word[2:].partition("=")[::2] for word in words)
    with open(folder / "calls", "a") as file:
        print(json.dumps([program, flags]), file=file)
    failing = folder / "fail"
    if failing.exists() and failing.read_text() in (program, *words):
        return 1
    if program != "create_pretraining_data":
        output = pathlib.Path(flags["output_dir"])
        output.mkdir(parents=True, exist_ok=True)
        line = {"split": "train", "step": 1, "sequences_per_second": 50.0}
        (output / "metrics.jsonl").write_text(json.dumps(line) + "\n")
        score = {"accuracy": 0.5 + 0.1 * int(flags["random_seed"])}
        summary = {"metric": "accuracy", "best": score | {"loss": 3.0}}
        summary["last"] = {"accuracy": 0.1, "loss": 2.0}
        (output / "summary.json").write_text(json.dumps(summary))
    return 0


def refuse_plots():
    raise ImportError("This test needs no plots.")


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A function that runs a grid with pretended programs.

    It returns the calls of programs, and the results. Plots take long, so only
    `with_plots` draws them.
    """
    (tmp_path / "grid.json").write_text(json.dumps(GRID))
    (tmp_path / "vocab.txt").write_text("\n".join(tiny.SPECIAL + tiny.WORDS))
    (tmp_path / "glue/CoLA").mkdir(parents=True)
    (tmp_path / "glue/CoLA/train.tsv").write_text("a sentence")
    for name in ("train", "heldout"):
        (tmp_path / f"{name}.txt").write_text("w1 w2\nw3\n")

    def evaluate(self, row, seed, job, folder):
        score = row.config.num_hidden_layers / 10 + seed / 100
        return dict.fromkeys(("SOP", "NSP"), score)

    monkeypatch.setattr(grid_jobs.GridRunner, "evaluate", evaluate)
    monkeypatch.setattr(ablate, "WAIT", 0.01)
    monkeypatch.setattr(
        grid_jobs.subprograms,
        "run_program",
        lambda command: pretend(tmp_path, command),
    )

    def run(with_plots=False, **kwargs):
        (tmp_path / "calls").unlink(missing_ok=True)
        (tmp_path / "calls").touch()
        with monkeypatch.context() as patch:
            if not with_plots:
                patch.setattr(plot_metrics, "import_matplotlib", refuse_plots)
            ablate.run(make_flags(tmp_path, **kwargs))
        return read_calls(tmp_path), json.loads(
            (tmp_path / "out/grid.json").read_text()
        )

    return run


def make_flags(tmp_path, **kwargs):
    return AblateFlags(
        **{
            "grid": str(tmp_path / "grid.json"),
            "train_text": str(tmp_path / "train.txt"),
            "heldout_text": str(tmp_path / "heldout.txt"),
            "vocab_file": str(tmp_path / "vocab.txt"),
            "output_dir": str(tmp_path / "out"),
            "task_data": f"CoLA={tmp_path / 'glue'}",
            **kwargs,
        }
    )


def read_calls(tmp_path):
    lines = (tmp_path / "calls").read_text().splitlines()
    return [json.loads(line) for line in lines]


def count(calls):
    names = [name for name, _ in calls]
    return {name: names.count(name) for name in set(names)}


def test_what_rows_share_is_done_once(work, tmp_path):
    calls, results = work()
    # A first phase for two rows of one config, and one for the third.
    assert count(calls) == {
        "create_pretraining_data": 1,
        "run_pretraining": 2 * (2 + 3),
        "run_classifier": 2 * 3,
    }
    starts = [flags for name, flags in calls if name == "run_pretraining"]
    for flags in starts:
        if "init_checkpoint" in flags:
            assert flags["init_checkpoint"] in [s["output_dir"] for s in starts]
    two = results["two"]["columns"]
    assert two["CoLA"] == {"1": 0.6, "2": 0.7}
    assert two["phase 2, tokens/s"] == {"1": 800.0, "2": 800.0}
    assert two["phase 1, seconds"]["1"] == 10 * 4 / 50
    # The last phase's, of each row and seed.
    folders = [row["folders"][s] for row in results.values() for s in "12"]
    ended = [
        flags["init_checkpoint"]
        for name, flags in calls
        if name == "run_classifier"
    ]
    assert len(set(folders)) == 6
    assert {str(tmp_path / "out" / folder) for folder in folders} == set(ended)
    again, same = work()
    assert not again and same == results


@pytest.mark.parametrize(
    ("name", "redone"),
    [
        ("train.txt", ["create_pretraining_data", *PROGRAMS]),
        ("vocab.txt", ["create_pretraining_data", *PROGRAMS]),
        ("glue/CoLA/train.tsv", ["run_classifier"]),
        ("glue/CoLA/dev.tsv", ["run_classifier"]),
        ("glue/RTE.tsv", []),  # Of another task.
        ("heldout.txt", []),  # Only the evaluation, which is no program here.
    ],
)
def test_what_depends_on_a_changed_file_is_redone(
    work, tmp_path, monkeypatch, name, redone
):
    work()
    # Not what depends on its path.
    (tmp_path / "moved").mkdir()
    for path in ("train.txt", "heldout.txt", "vocab.txt", "glue"):
        (tmp_path / path).rename(tmp_path / "moved" / path)
    moved = {
        "train_text": str(tmp_path / "moved/*n.txt"),
        "heldout_text": str(tmp_path / "moved/heldout.txt"),
        "vocab_file": str(tmp_path / "moved/vocab.txt"),
        "task_data": f"CoLA={tmp_path / 'moved/glue'}",
    }
    calls, results = work(**moved)
    assert not calls
    evaluated = []
    monkeypatch.setattr(
        grid_jobs.GridRunner,
        "evaluate",
        lambda self, row, *_: evaluated.append(row) or {},
    )
    with open(tmp_path / "moved" / name, "a") as file:
        file.write("w19\n")
    digests.digest_file.cache_clear()
    calls, _ = work(**moved)
    assert sorted(count(calls)) == sorted(redone)
    assert len(evaluated) == (0 if name.startswith("glue") else 6)


def test_checkpoints_do_not_change_the_weights(work, tmp_path):
    work()
    values = json.loads(json.dumps(GRID))
    values["phases"][1]["flags"]["save_checkpoints_steps"] = 5
    (tmp_path / "grid.json").write_text(json.dumps(values))
    calls, _ = work()
    assert not calls


def test_a_task_that_the_programs_lack_is_refused(work, tmp_path):
    values = GRID | {"tasks": {"CoLA": {"task_name": "colla"}}}
    (tmp_path / "grid.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match="task_name=colla; known: cola, "):
        work()


def cells_of(text, number=0):
    """The cells of a table in Markdown, by names of row and column."""
    tables = [p for p in text.split("\n\n") if p.startswith("|")]
    head, _, *rows = (
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in tables[number].splitlines()
    )
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


def test_the_table_has_means_deviations_and_the_paper(work, tmp_path, capsys):
    _, results = work()
    table = (tmp_path / "out/grid.md").read_text()
    assert table in capsys.readouterr().out
    cells = cells_of(table)
    head = list(cells["two"])
    assert cells["three"]["SOP"] == "31.5 ± 0.7 (2)"
    assert cells["two"]["CoLA"] == "65.0 ± 7.1 (2)"
    assert cells["two"]["phase 1, tokens/s"] == "800 ± 0 (2)"
    assert cells["three"]["paper: average"] == "80.1"
    assert cells["two"]["paper: average"] == ""
    assert cells["two"]["parameters"] == f"{results['two']['parameters']:,}"
    # Two phases of 10 steps of 4, 50 sequences per second.
    assert cells["two"]["seconds"] == "2"
    assert cells["two"]["commit"] == grid_jobs.find_commit()
    assert cells["three"]["paper: parameters"] == "12M"
    assert head.index("paper: parameters") == head.index("parameters") + 1
    assert "phase 1, seconds" not in head


def test_the_name_of_a_row_may_have_a_bar(work, tmp_path):
    text = json.dumps(GRID).replace('"two"', '"one | two"')
    (tmp_path / "grid.json").write_text(text)
    work(report_only=True)
    head, _, row, *_ = (tmp_path / "out/grid.md").read_text().splitlines()[2:]
    assert row.startswith(r"| one \| two |")
    assert row.replace(r"\|", "").count("|") == head.count("|")


def test_a_second_table_has_each_seed(work, tmp_path):
    work(only="three", seeds="2", task_data="")
    work(only="two", seeds="7,2", task_data="")
    table = (tmp_path / "out/grid.md").read_text()
    assert "Of the seeds 2, 7, in this order:" in table
    cells = cells_of(table, 1)
    assert cells["two"]["SOP"] == "22.0 27.0"
    assert cells["three"]["SOP"] == "32.0 –"
    assert cells["two"]["phase 1, seconds"] == "1 1"
    assert cells["longer"]["SOP"] == ""


def test_some_rows_and_seeds(work):
    calls, results = work(only="three", seeds="2", task_data="")
    assert not results["two"]["columns"]
    assert {f["random_seed"] for n, f in calls if n == "run_pretraining"} == {
        "2"
    }
    assert "CoLA" not in results["three"]["columns"]
    assert results["three"]["summary"]["SOP"]["deviation"] is None
    # A part that is done later does not replace what there is.
    _, results = work(only="two", seeds="7", task_data="")
    assert set(results["two"]["columns"]["SOP"]) == {"7"}
    _, results = work(report_only=True)
    assert set(results["two"]["columns"]["SOP"]) == {"7"}
    assert set(results["three"]["columns"]["SOP"]) == {"2"}


def test_a_failure_leaves_out_one_model(work, tmp_path):
    (tmp_path / "fail").write_text("--num_train_steps=20")
    with pytest.raises(ValueError, match="2 of 6 models failed.*longer, seed"):
        work()
    results = json.loads((tmp_path / "out/grid.json").read_text())
    assert set(results["three"]["columns"]["SOP"]) == {"1", "2"}
    assert "SOP" not in results["longer"]["columns"]
    table = (tmp_path / "out/grid.md").read_text()
    assert cells_of(table)["longer"]["seconds"] == ""
    (tmp_path / "fail").unlink()
    calls, _ = work()
    assert count(calls) == {"run_pretraining": 2, "run_classifier": 2}


def test_a_failed_evaluation_leaves_out_one_model(work, monkeypatch):
    evaluate = grid_jobs.GridRunner.evaluate

    def fail(self, row, seed, job, folder):
        if row.name == "two" and seed == 1:
            raise OSError("The checkpoint is gone.")
        return evaluate(self, row, seed, job, folder)

    with monkeypatch.context() as patch:
        patch.setattr(grid_jobs.GridRunner, "evaluate", fail)
        with pytest.raises(ValueError, match="1 of 6 .*two, seed 1: The check"):
            work()
    calls, results = work()
    assert count(calls) == {"run_classifier": 1}
    assert set(results["two"]["columns"]["SOP"]) == {"1", "2"}


def test_a_phase_of_one_call_has_no_speed(work, tmp_path, monkeypatch):
    line = {"split": "train", "step": 1}
    monkeypatch.setattr(plot_metrics, "read_records", lambda path: [line])
    _, results = work(seeds="1")
    assert set(results["two"]["columns"]) == {"SOP", "NSP", "CoLA"}


def test_random_weights_are_only_fine_tuned(work, tmp_path):
    values = GRID | {"rows": [{"name": "random", "phases": []}]}
    (tmp_path / "grid.json").write_text(json.dumps(values))
    calls, results = work()
    assert count(calls) == {"run_classifier": 2}
    flags = calls[0][1]
    assert flags["from_scratch"] == "True" and "init_checkpoint" not in flags
    assert pathlib.Path(flags["albert_config_file"]).exists()
    assert results["random"]["tokens"] == 0
    assert set(results["random"]["columns"]) == {"CoLA"}
    assert not results["random"]["folders"]
    (tmp_path / "train.txt").write_text("Text that it never sees.\n")
    digests.digest_file.cache_clear()
    assert not work()[0]


def test_a_folder_of_data_is_the_users(work, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "glue").rename(tmp_path / "configs")
    (tmp_path / "configs/glue").mkdir()
    (tmp_path / "configs/CoLA").rename(tmp_path / "configs/glue/CoLA")
    calls, _ = work(only="two", seeds="1", task_data="CoLA=configs/glue")
    assert calls[-1][1]["data_dir"] == "configs/glue"


def test_a_row_may_fine_tune_with_other_flags(work, tmp_path):
    own = {"tasks": {"CoLA": {"learning_rate": 0.5}}}
    rows = [{"name": "plain", "phases": []}]
    rows += [{"name": "random", "phases": []} | own]
    (tmp_path / "grid.json").write_text(json.dumps(GRID | {"rows": rows}))
    calls, _ = work(seeds="1")
    flags = [flags for _, flags in calls]
    assert [f.get("learning_rate") for f in flags] == [None, "0.5"]
    assert {f["task_name"] for f in flags} == {"cola"}


def test_what_another_process_does_is_left_to_it(
    work, tmp_path, capsys, monkeypatch
):
    args = make_flags(tmp_path)
    grid = grids.read_grid(args.grid)
    folder = grid_jobs.GridRunner(grid, args).folder(grid.rows[0], 1, 0)
    done = []

    def end(seconds):
        """The other process ends after the second look."""
        calls = read_calls(tmp_path)
        done.append(count(calls)["run_pretraining"])
        if len(done) == 2:
            other.close()

    monkeypatch.setattr(ablate.time, "sleep", end)
    with contextlib.ExitStack() as other:
        other.enter_context(ownership.owning_folder(folder))
        calls, results = work(seeds="1")
    said = capsys.readouterr().out
    waiting = "Waiting for another process: two, seed 1, longer, seed 1."
    assert said.count(waiting) == 1
    # A heading for each job that is begun, and none for looks in vain.
    for job in ("phase 1", "phase 2", "held out", "CoLA"):
        assert said.count(f"\ntwo, seed 1: {job}\n") == 1
    assert said.count("\ntwo, seed 1") == 4
    assert done == [2, 2] and count(calls)["run_pretraining"] == 5
    assert "SOP" in results["longer"]["columns"]


def test_a_report_waits_for_that_of_another_process(
    work, tmp_path, monkeypatch
):
    existed = []

    def end(seconds):
        existed.append((tmp_path / "out/grid.json").exists())
        other.close()

    monkeypatch.setattr(grid_jobs.time, "sleep", end)
    with contextlib.ExitStack() as other:
        other.enter_context(ownership.owning_folder(tmp_path / "out"))
        assert work(report_only=True)[1]
    assert existed == [False]


def test_a_report_trains_nothing(work, tmp_path):
    work(seeds="1")
    calls, results = work(report_only=True)
    assert not calls
    assert results["two"]["summary"]["CoLA"]["count"] == 1


def test_a_report_has_what_other_folders_have_done(work, tmp_path):
    _, other = work(seeds="1", only="two;three")
    shutil.move(tmp_path / "out", tmp_path / "other")
    path = tmp_path / "other/grid.json"
    other["two"]["commits"] = ["a"]
    other["two"]["columns"]["SOP"]["1"] = 0.9
    other["three"]["columns"]["SOP"]["10"] = 0.5
    del other["three"]["phases"]  # As in reports of an earlier version.
    path.write_text(json.dumps(other))
    _, own = work(seeds="2", only="two", task_data="")
    flags = {"report_only": True, "other_results": str(path)}
    _, both = work(**flags)
    two, three = both["two"], both["three"]
    assert two["columns"]["SOP"] == {"1": 0.9, "2": 0.22}
    assert two["columns"]["CoLA"] == {"1": 0.6}
    assert two["summary"]["SOP"] == grids.summarize([0.9, 0.22])
    assert two["commits"] == sorted(["a", *own["two"]["commits"]])
    assert three["columns"] == other["three"]["columns"]
    assert set(two["folders"]) == {"2"} and not three["folders"]
    assert three["phases"] == 2
    assert "SOP" not in both["longer"]["columns"]
    cells = cells_of((tmp_path / "out/grid.md").read_text())
    assert cells["three"]["SOP"] == "40.5 ± 13.4 (2)"
    # Own results count, and those of other folders are not kept as own.
    _, both = work(**flags, seeds="1", only="two")
    assert both["two"]["columns"]["SOP"]["1"] == 0.9
    _, own = work(seeds="1", only="two")
    assert own["two"]["columns"]["SOP"] == pytest.approx({"1": 0.21, "2": 0.22})
    assert not own["three"]["columns"]
    _, both = work(**flags)
    assert both["two"]["columns"]["SOP"] == pytest.approx(
        {"1": 0.21, "2": 0.22}
    )
    assert both["two"]["commits"] == own["two"]["commits"]


def change(*keys, value):
    """Returns a function that changes a value in nested dicts."""

    def edit(report):
        for key in keys[:-1]:
            report = report[key]
        report[keys[-1]] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (dict.clear, r"has the keys \[\]; wanted rows of the grid, .'two'"),
        (change("four", value={}), "has the keys .*'four'.; wanted rows"),
        (change("two", value=1), "row 'two', is 1; wanted .'parameters', "),
        (change("two", value={}), "row 'two', is {}; wanted .'parameters', "),
        (change("two", "tokens", value=5), "has .*'tokens': 5}; the grid has"),
        (change("two", "columns", value=[]), "columns .*; wanted a number"),
        (change("two", "columns", "SOP", value={"1": "x"}), "wanted a number"),
        (change("two", "columns", "SOP", value={"x": 1}), "wanted a number"),
        (change("two", "commits", value="a"), "commits 'a'; wanted texts"),
    ],
)
def test_what_is_no_report_of_the_grid_is_refused(
    work, tmp_path, edit, message
):
    _, report = work(report_only=True)
    edit(report)
    path = tmp_path / "other.json"
    path.write_text(json.dumps(report))
    with pytest.raises(ValueError, match=f"other.json.*{message}"):
        work(report_only=True, other_results=str(path))


@pytest.mark.parametrize("name", ["table3", "table4", "table5", "initializer"])
def test_documented_results_are_reports_of_their_grids(name):
    grid = grids.read_grid(ROOT / f"configs/ablations/{name}.json")
    path = ROOT / f"docs/ablations/{name}.json"
    for results in grid_reports.read_report(path, grid).values():
        summary = grid_reports.summarize(results["columns"])
        assert results["summary"] == summary


def test_a_report_among_its_results_is_refused(work, tmp_path):
    work(report_only=True)
    with pytest.raises(ValueError, match="overwrite .*--other_results"):
        work(report_only=True, other_results=str(tmp_path / "out/grid.json"))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"only": "two;four"}, "names .'four'.; wanted some of two; thr"),
        ({"seeds": "1,x"}, "wanted whole numbers from 0"),
        ({"task_data": "CoLA=no"}, "an existing folder"),
        ({"task_data": "RTE=/"}, "one of the grid's tasks, .'CoLA'."),
        ({"task_data": "CoLA=/"}, "--task_data=/ are the same folder, or one"),
        ({"train_text": "no"}, "No file matches"),
    ],
)
def test_what_the_grid_lacks_is_refused(work, kwargs, message):
    with pytest.raises(ValueError, match=message):
        work(**kwargs)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("learning_rat", "run_pretraining does not: .'learning_rat'."),
        ("random_seed", "sets itself: .'random_seed'."),
    ],
)
def test_flags_that_a_grid_cannot_have(work, tmp_path, name, message):
    values = json.loads(json.dumps(GRID))
    values["phases"][0]["flags"][name] = 1
    (tmp_path / "grid.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match=message):
        work()


def test_flags_that_a_row_cannot_fine_tune_with(work, tmp_path):
    rows = [{"name": "two", "tasks": {"CoLA": {"learning_rat": 1}}}]
    (tmp_path / "grid.json").write_text(json.dumps(GRID | {"rows": rows}))
    with pytest.raises(ValueError, match="classifier does not: .'learning_ra"):
        work()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("phases flags learning_rate fast", "run_pretraining are .*fast"),
        ("phases flags train_batch_size -3", "train_batch_size"),
        ("phases records max_seq_length 33", "'two' .* 33 tokens .* 32"),
        ("phases records num_shards 4", "sets itself: .'num_shards'."),
        ("held_out max_seq_length 33", "'two' .* 33 tokens .* 32"),
        ("held_out random_next_sentence true", "itself: .'random_next_sent"),
        ("held_out dupe_factor 0", "create_pretraining_data are .*dupe_factor"),
        ("tasks CoLA max_seq_length 512", "'two' .* 512 tokens .* 32"),
        ("tasks CoLA num_runs 2", "sets itself: .'num_runs'."),
    ],
)
def test_what_would_fail_hours_later_is_refused(
    work, tmp_path, change, message
):
    *keys, last, value = change.split()
    values = json.loads(json.dumps(GRID))
    part = values
    for key in keys:
        part = part[key]
        part = part[0] if isinstance(part, list) else part
    part[last] = int(value) if value.lstrip("-").isdecimal() else value
    (tmp_path / "grid.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match=message):
        work()
    assert not read_calls(tmp_path)


def test_text_to_train_and_to_score_on_is_refused(work, tmp_path):
    (tmp_path / "link.txt").symlink_to("train.txt")
    both = f"{tmp_path}/heldout.txt,{tmp_path}/l*.txt"
    with pytest.raises(ValueError, match="link.txt is in --train_text and in"):
        work(heldout_text=both)


@pytest.mark.parametrize("name", ["do_lower_case", "keep_accents"])
def test_held_out_text_has_the_casing_of_training(work, tmp_path, name):
    default = name == "do_lower_case"
    values = json.loads(json.dumps(GRID))
    change = {name: not default}
    values["rows"][2]["phases"][1]["records"] = change
    (tmp_path / "grid.json").write_text(json.dumps(values))
    message = f"'longer' .* {name} {not default}; held_out has {default}."
    with pytest.raises(ValueError, match=message):
        work()
    assert not read_calls(tmp_path)
    values = json.loads(json.dumps(GRID))
    for phase in values["phases"]:
        phase["records"] |= change
    values["held_out"] |= {name: str(not default).lower()}
    (tmp_path / "grid.json").write_text(json.dumps(values))
    assert work(seeds="1")[0]


def test_random_weights_have_the_casing_of_the_records(work, tmp_path):
    values = GRID | {"rows": [{"name": "random", "phases": []}]}
    found = []
    for held_out in ({}, {"do_lower_case": False}, {"do_lower_case": False}):
        values["held_out"] = GRID["held_out"] | held_out
        (tmp_path / "grid.json").write_text(json.dumps(values))
        calls, _ = work(seeds="1")
        found += [flags.get("do_lower_case") for _, flags in calls]
    # A result of another casing does not count; an equal one does.
    assert found == [None, "False"]
    values["held_out"] = GRID["held_out"] | {"keep_accents": True}
    (tmp_path / "grid.json").write_text(json.dumps(values))
    calls, _ = work(seeds="1")
    assert [flags.get("keep_accents") for _, flags in calls] == ["True"]
    # Another vocabulary of the same pieces.
    tokenization.build_tokenizer(
        vocab_file=tmp_path / "vocab.txt", keep_accents=True
    ).write_settings(tmp_path)
    assert len(work(seeds="1")[0]) == 1


def test_a_grid_among_its_results_is_refused(tmp_path):
    path = tmp_path / "grid.json"
    path.write_text(json.dumps(GRID))
    for name in "train", "heldout", "vocab":
        (tmp_path / f"{name}.txt").write_text("w1\n")
    flags = AblateFlags(
        grid=str(path),
        train_text=str(tmp_path / "train.txt"),
        heldout_text=str(tmp_path / "heldout.txt"),
        vocab_file=str(tmp_path / "vocab.txt"),
        output_dir=str(tmp_path),
    )
    with pytest.raises(ValueError, match="output_dir would overwrite .*grid"):
        ablate.run(flags)


def test_a_copy_of_the_grid_is_not_overwritten(work, tmp_path):
    path = tmp_path / "out" / "grid.json"
    path.parent.mkdir()
    shutil.copy(tmp_path / "grid.json", path)
    with pytest.raises(ValueError, match="out/grid.json is no report .* Rena"):
        work(report_only=True)
    assert json.loads(path.read_text()) == GRID


def test_the_commit_is_that_of_this_checkout():
    found = grid_jobs.find_commit()
    assert re.fullmatch(r"[0-9a-f]{7,}(-dirty)?|\d+\.\d+.*", found)


def test_a_resumed_job_has_both_commits(tmp_path, monkeypatch):
    monkeypatch.setattr(grid_jobs, "find_commit", lambda: "b")
    assert grid_jobs.note_commit(tmp_path) == ["b"]
    monkeypatch.setattr(grid_jobs, "find_commit", lambda: "a")
    assert grid_jobs.note_commit(tmp_path) == ["a", "b"]


def test_the_page_has_each_number_and_plots(work, tmp_path):
    pytest.importorskip("matplotlib")
    _, results = work(with_plots=True)
    path = tmp_path / "out/grid.html"
    page = pages.Page(path.read_text())
    (runs,) = page.tables["runs"]
    assert ["two", "CoLA", "2", "0.7"] in runs
    (folders,) = page.tables["checkpoints"]
    assert ["two", "2", results["two"]["folders"]["2"]] in folders
    seen = pages.browse(path, "--dump-dom")
    titles = re.findall(r'<div role="img" aria-label="(.*?)">', seen)
    assert "SOP" in titles and "Paper: average" in titles
    # All rows are on the axis of each plot, also those without a number.
    for title in ("SOP", "Paper: average"):
        plot = seen[seen.index(f'aria-label="{title}"') :]
        plot = plot[: plot.index("</svg>")]
        for row in GRID["rows"]:
            assert f">{row['name']}</text>" in plot


def call_here(command):
    """Runs a program in this process, which saves the start of another."""
    program, *words = command[len(grid_jobs.subprograms.ALBERT) :]
    return commands.call_program(program, words)


# Column -> flags that its records were made with, and what it is a score of.
COLUMNS = {
    "masked LM": ("sop", 3, "masked_lm_accuracy"),
    "single pieces": ("sop", 1, "masked_lm_accuracy"),
    "SOP": ("sop", 3, "sentence_order_accuracy"),
    "NSP": ("nsp", 3, "sentence_order_accuracy"),
}


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Folder of a row that the real programs pretrained and fine-tuned."""
    folder = tmp_path_factory.mktemp("real")
    sentences = [f"w{i % 20} w{i * 7 % 20} w{i * 3 % 20}" for i in range(30)]
    (folder / "train.txt").write_text("\n\n".join(["\n".join(sentences)] * 5))
    (folder / "vocab.txt").write_text("\n".join(tiny.SPECIAL + tiny.WORDS))
    for name, seed in (("train", 1), ("dev", 2)):
        rows = classifier_runs.make_rows(20, seed)
        classifier_runs.write_table(folder / "sst/SST-2" / f"{name}.tsv", rows)
    # The records of training serve to score on, too, which saves time.
    shutil.copy(folder / "train.txt", folder / "copy.txt")
    records = {"max_predictions_per_seq": 3, "dupe_factor": 1}
    records |= {"sentence_objective": "sop"}
    phase = {
        "records": GRID["phases"][0]["records"] | records,
        "flags": GRID["phases"][0]["flags"]
        | {"num_train_steps": 8, "num_warmup_steps": 1, "learning_rate": 0.1},
    }
    task = {"task_name": "sst-2", "max_seq_length": 16, "train_step": 4}
    task |= {"save_checkpoints_steps": 2, "train_batch_size": 8}
    task |= {"warmup_step": 1}
    values = GRID | {
        "phases": [phase],
        "rows": [{"name": "two"}],
        "seeds": [1],
        "held_out": phase["records"],
        "tasks": {"SST-2": task},
    }
    (folder / "grid.json").write_text(json.dumps(values))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid_jobs.subprograms, "run_program", call_here)
        patch.setattr(plot_metrics, "import_matplotlib", refuse_plots)
        ablate.run(
            make_flags(
                folder,
                task_data=f"SST-2={folder / 'sst'}",
                heldout_text=str(folder / "copy.txt"),
            )
        )
    return folder


def read_columns(folder):
    """Returns the results of the only row and seed, by column."""
    columns = json.loads((folder / "out/grid.json").read_text())["two"]
    return {name: value["1"] for name, value in columns["columns"].items()}


def test_columns_are_what_the_program_finds_on_their_records(real, tmp_path):
    (trained,) = (real / "out/trainings").iterdir()
    scores = {}
    for path in (real / "out/records").glob("*/*.dataset.json"):
        made_with = json.loads(path.read_text())["flags"]
        key = made_with["sentence_objective"], made_with["ngram"]
        output = tmp_path / path.parent.name
        # Without its manifest, which would refuse other held-out records.
        ignored = shutil.ignore_patterns("run.json")
        shutil.copytree(trained / "model", output, ignore=ignored)
        words = ["--do_train=false", "--do_eval", f"--output_dir={output}"]
        words += [f"--albert_config_file={trained / 'config.json'}"]
        words += [f"--eval_input_file={path.parent / 'records.tfrecord'}"]
        assert not commands.call_program("run_pretraining", words)
        (scores[key],) = results_file.read_results(output)
    columns = read_columns(real)
    for name, (objective, ngram, metric) in COLUMNS.items():
        wanted = scores[objective, ngram][metric]
        assert columns[name] == pytest.approx(wanted), name
    # Otherwise one column could have the place of another.
    assert len({columns[name] for name in grid_jobs.SCORES}) == len(COLUMNS)
    assert columns["phase 1, tokens/s"] > 0


def test_a_task_has_the_accuracy_that_the_program_wrote(real):
    (tuned,) = (real / "out/tasks").iterdir()
    found = results_file.read_results(tuned / "model")
    assert [row["global_step"] for row in found] == [2, 4]
    best = max(row["eval_accuracy"] for row in found)
    assert read_columns(real)["SST-2"] == best
