"""Grids: what they say, and what they refuse."""

import copy
import dataclasses
import json
import pathlib

import pytest

from albert_tf import settings
from albert_tf.lab import ablate, grid_jobs, grids
from albert_tf.model import parameters
from tests import tiny

SHIPPED = pathlib.Path(__file__).parents[2] / "configs" / "ablations"
PHASE = {
    "records": {"max_seq_length": 16},
    "flags": {
        "num_train_steps": 10,
        "num_warmup_steps": 0,
        "train_batch_size": 4,
    },
}
GRID = {
    "title": "Depth",
    "config": tiny.CONFIG.to_dict(),
    "phases": [PHASE, PHASE],
    "held_out": {"max_seq_length": 16},
    "seeds": [1, 2],
    "tasks": {"CoLA": {"task_name": "cola", "max_seq_length": 16}},
    "rows": [
        {"name": "two"},
        {
            "name": "three",
            "config": {"num_hidden_layers": 3},
            "paper": {"parameters": 12e6, "average": 80.1},
        },
        {
            "name": "longer",
            "phases": [{}, {"flags": {"num_train_steps": 20}}],
        },
    ],
}


def read(tmp_path, values):
    path = tmp_path / "grid.json"
    path.write_text(json.dumps(values))
    return grids.read_grid(path)


def test_rows_change_the_grid(tmp_path):
    grid = read(tmp_path, GRID)
    two, three, longer = grid.rows
    assert two.config == tiny.CONFIG and two.paper == {}
    assert three.config.num_hidden_layers == 3
    assert three.paper == {"parameters": 12e6, "average": 80.1}
    assert two.phases == three.phases != longer.phases
    assert longer.phases[0] == two.phases[0]
    assert longer.phases[1].flags == {
        "num_train_steps": 20,
        "num_warmup_steps": 0,
        "train_batch_size": 4,
    }
    assert two.count_tokens() == 2 * 10 * 4 * 16
    assert longer.count_tokens() == 30 * 4 * 16


def test_equal_beginnings_have_one_name(tmp_path):
    two, three, longer = read(tmp_path, GRID).rows
    assert two.identify(1, 7) == longer.identify(1, 7)
    names = [two.identify(2, 7), longer.identify(2, 7), two.identify(1, 7)]
    names += [two.identify(1, 8), three.identify(1, 7)]
    assert len(set(names)) == 5
    renamed = dataclasses.replace(two, name="other", paper={"x": 1})
    assert renamed.identify(2, 7) == two.identify(2, 7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: g.pop("seeds"), "Missing or unknown: .'seeds'."),
        (lambda g: g.update(extra=1), "Missing or unknown: .'extra'."),
        (lambda g: g.update(seeds=[]), "seeds is"),
        (lambda g: g.update(seeds=["a"]), "seeds is"),
        (lambda g: g.update(rows=[]), "names of rows"),
        (lambda g: g["rows"][0].update(name="three"), "must differ"),
        (lambda g: g["rows"][0].update(flags={}), "unknown: .'flags'."),
        (lambda g: g["rows"][0].update(phases=[{}]), "changes 1 phases of 2"),
        (lambda g: g["rows"][2]["phases"][1].update(x=1), "unknown: .'x'."),
        (lambda g: g["rows"].append("x"), "wanted an object"),
        (lambda g: g.update(title=3), "title is 3"),
        (lambda g: g.update(seeds=[True]), "seeds is"),
        (lambda g: g.update(seeds=[-1]), "seeds is"),
        (lambda g: g.update(seeds=[settings.MAX_SEED + 1]), "seeds is"),
        (lambda g: g.update(phases=[]), "phases is empty"),
        (lambda g: g["rows"][0].update(name=3), "wanted text as its name"),
        (lambda g: g["rows"][0].update(paper={"x": "80"}), "wanted numbers"),
        (lambda g: g["rows"][0].update(paper="80"), "no attribute 'values'"),
        (lambda g: g["held_out"].update(ngram=None), "held_out: ngram is None"),
        (lambda g: g["tasks"].update(x={"y": [1]}), "task 'x': y is .1."),
        (
            lambda g: g["rows"][0].update(tasks={"z": {}}),
            "changes the tasks .'z'.; the grid has .'CoLA'.",
        ),
        (
            lambda g: g["rows"][0].update(tasks={"CoLA": {"y": []}}),
            "row 'two', task 'CoLA': y is ..;",
        ),
        (lambda g: g["config"].update(hidden_size=13), "not a multiple"),
        (
            lambda g: g["phases"][0]["flags"].pop("num_train_steps"),
            "num_train_steps",
        ),
    ],
)
def test_another_grid_is_refused(tmp_path, change, message):
    values = copy.deepcopy(GRID)
    change(values)
    with pytest.raises(
        ValueError, match=f"grid.json is not a grid: .*{message}"
    ):
        read(tmp_path, values)


def test_a_base_has_what_is_missing(tmp_path):
    base = {k: v for k, v in GRID.items() if k not in ("rows", "seeds")}
    (tmp_path / "base.json").write_text(json.dumps(base | {"seeds": [9]}))
    found = read(
        tmp_path, {"base": "base.json", "seeds": [1, 2], "rows": GRID["rows"]}
    )
    assert found == read(tmp_path, GRID)
    with pytest.raises(FileNotFoundError, match="other.json"):
        read(tmp_path, {"base": "other.json"})
    with pytest.raises(FileNotFoundError, match="3"):
        read(tmp_path, {"base": 3})


def test_means_and_deviations():
    found = grids.summarize([1.0, 2.0, 6.0])
    assert found["mean"] == 3 and found["count"] == 3
    assert found["deviation"] == pytest.approx(7**0.5)
    assert grids.summarize([4.0])["deviation"] is None


@pytest.mark.parametrize(
    "path",
    sorted({*SHIPPED.glob("*.json")} - {SHIPPED / "base.json"}),
    ids=lambda p: p.stem,
)
def test_the_shipped_grids_can_run(path):
    grid = grids.read_grid(path)
    ablate.check_flags(grid)
    for flags in grid.tasks.values():
        for value in grid_jobs.find_shipped(flags).values():
            assert (
                not str(value).endswith(".json") or pathlib.Path(value).exists()
            )
    tokens = {row.count_tokens() for row in grid.rows if row.phases}
    assert len(tokens) == 1  # One budget.


def test_a_file_of_the_user_comes_before_a_shipped_one(tmp_path, monkeypatch):
    own, shipped = "configs/tasks/own.json", "configs/tasks/film_reviews.json"
    monkeypatch.chdir(tmp_path)
    (tmp_path / own).parent.mkdir(parents=True)
    (tmp_path / own).write_text("{}")
    found = grid_jobs.find_shipped({"a": own, "b": shipped})
    assert found == {"a": own, "b": str(SHIPPED.parents[1] / shipped)}


def test_the_shipped_grids_share_what_they_can():
    """One model in four grids."""
    names = {
        "table3": "E = 128",
        "table4": "all-shared",
        "table5": "SOP",
        "ngram": "single pieces",
    }
    jobs = {
        row.identify(1)
        for name, wanted in names.items()
        for row in grids.read_grid(SHIPPED / f"{name}.json").rows
        if row.name == wanted
    }
    assert len(jobs) == 1


def test_table_4_orders_sizes_as_the_paper():
    rows = grids.read_grid(SHIPPED / "table4.json").rows
    sizes = {
        row.config.parameter_sharing: parameters.count_encoder(row.config)
        for row in rows
    }
    wanted = ["all", "ffn", "attention", "none"]
    assert sorted(sizes, key=sizes.get) == wanted
