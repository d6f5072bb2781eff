"""Model cards: true to the run, and never in the way of the user's own."""

import dataclasses
import json
import re
import shutil

import pytest

import albert_tf
from albert_tf import commands
from albert_tf.commands.convert_checkpoint import ConvertFlags
from albert_tf.programs import convert_checkpoint, run_classifier
from albert_tf.reports import card, report
from albert_tf.weights import task_heads
from tests import tiny
from tests.programs import classifier_runs as runs


@pytest.fixture(scope="module")
def trained(tmp_path_factory, model):
    """Flags of a classifier's run."""
    args = runs.build_args(tmp_path_factory.mktemp("trained"), model)
    args = dataclasses.replace(args, do_predict=False)
    run_classifier.run(args)
    return args


@pytest.fixture
def folder(trained, tmp_path):
    """A copy of its folder."""
    return shutil.copytree(trained.output_dir, tmp_path / "my model")


def parse(text):
    """Returns the metadata of a card, and what follows."""
    yaml = pytest.importorskip("yaml")
    empty, metadata, text = text.split("---\n", 2)
    assert not empty
    return yaml.safe_load(metadata), text


def add_test_scores(folder, **more):
    path = folder / "summary.json"
    summary = json.loads(path.read_text())
    summary["test"] = [{"reviews": {"eval_accuracy": 0.5432}, **more}]
    path.write_text(json.dumps(summary))


def test_a_card_says_what_a_run_did(trained, folder, monkeypatch):
    # Its dev data are 21 rows of SST-2.
    monkeypatch.setitem(card._DEV_SIZES, "sst-2", (21,))
    card.write_run_card(folder)
    text = (folder / "README.md").read_text()
    metadata, text = parse(text)
    best = report.read_run(folder).best
    assert metadata["pipeline_tag"] == "text-classification"
    assert metadata["metrics"] == ["accuracy"]
    assert "license" not in metadata and "base_model" not in metadata
    (model,) = metadata["model-index"]
    (result,) = model["results"]
    assert model["name"] == "my model"
    assert result["dataset"] == {
        "type": "nyu-mll/glue",
        "name": "GLUE",
        "config": "sst2",
    }
    assert result["metrics"] == [
        {
            "type": "accuracy",
            "name": "eval_accuracy",
            "value": best["eval_accuracy"],
        }
    ]
    for wanted in (
        "ALBERT for text-classification: 1 layers in 1 groups, hidden size 12",
        f"Start: {trained.init_checkpoint}.\n",
        "| data.train.0.examples |",
        f"| eval_accuracy | {best['eval_accuracy']} |",
        f"--output_dir={trained.output_dir}",
        "albert classify --init_checkpoint='my model' ",
        "results = albert_tf.Classifier('my model')(",
    ):
        assert wanted in text


def test_an_edited_card_stays_and_an_own_one_is_brought_up_to_date(folder):
    path = folder / "README.md"
    before = path.read_text()
    metrics = folder / "metrics.jsonl"
    row = {**report.read_run(folder).best, "eval_accuracy": 0.9876}
    metrics.write_text(f"{metrics.read_text()}{json.dumps(row)}\n")
    add_test_scores(folder)
    card.write_run_card(str(folder))
    after = path.read_text()
    assert "test data (reviews)" in after and "| 0.5432 |" in after
    assert "0.9876" in after and "0.9876" not in before
    for edited in (f"{before}More.\n", "My model.\n", before.replace("#", "%")):
        path.write_text(edited)
        card.write_run_card(str(folder))
        assert path.read_text() == edited


def test_a_folder_without_a_model_gets_no_card(folder):
    for path in [folder / "README.md", *folder.glob("model.ckpt-*")]:
        path.unlink()
    card.write_run_card(str(folder))
    assert not (folder / "README.md").exists()


@pytest.mark.parametrize(
    ("form", "library"), [("hf", "transformers"), ("tf1", "albert_tf")]
)
def test_a_converted_model_keeps_what_its_run_says(
    folder, tmp_path, form, library
):
    convert_checkpoint.run(
        ConvertFlags(from_=str(folder), to=str(tmp_path / "to"), format=form)
    )
    metadata, text = parse((tmp_path / "to" / "README.md").read_text())
    assert metadata["library_name"] == library
    assert metadata["pipeline_tag"] == "text-classification"
    assert f"Converted: `{folder}/model.ckpt-best`." in text
    assert "# to\n" in text and "| optimizer.name | adamw |" in text


@pytest.mark.parametrize("step", [4, 12])
def test_the_scores_are_those_of_the_converted_checkpoint(
    folder, tmp_path, monkeypatch, step
):
    monkeypatch.setitem(card._DEV_SIZES, "sst-2", (21,))
    add_test_scores(folder)
    convert_checkpoint.run(
        ConvertFlags(
            from_=str(folder / f"model.ckpt-{step}"), to=str(tmp_path / "to")
        )
    )
    metadata, text = parse((tmp_path / "to" / "README.md").read_text())
    (row,) = (
        row
        for row in report.read_run(folder).evaluations
        if row["step"] == step
    )
    (result,) = metadata["model-index"][0]["results"]
    assert result["metrics"][0]["value"] == row["eval_accuracy"]
    assert f"| checkpoint of step {step} on the dev data |" in text
    assert f"| eval_loss | {row['eval_loss']} |" in text
    assert "best checkpoint" not in text and "was chosen" not in text
    assert "on the test data" not in text


def test_a_pretraining_has_the_scores_of_its_newest_checkpoint(folder):
    # What tells it from fine-tuning.
    (folder / "head.json").unlink()
    card.write_run_card(str(folder))
    text = (folder / "README.md").read_text()
    assert "| checkpoint of step 12 on the dev data |" in text
    assert "best checkpoint" not in text


def test_a_checkpoint_that_was_not_scored_has_no_scores(trained, folder):
    add_test_scores(folder)
    args = dataclasses.replace(
        trained,
        output_dir=str(folder),
        init_checkpoint=None,
        do_eval=False,
        train_step=16,
    )
    run_classifier.run(args)
    metadata, text = parse((folder / "README.md").read_text())
    assert "metrics" not in metadata and "data |  |" not in text
    # A resumed run need not be told again what it began from.
    assert f"Start: {trained.init_checkpoint}.\n" in text
    assert f"--init_checkpoint={trained.init_checkpoint}" in text
    # Scores on test data are of this checkpoint if they have its step.
    add_test_scores(folder, global_step=16)
    card.write_run_card(str(folder))
    assert "test data (reviews)" in (folder / "README.md").read_text()


def test_a_card_has_no_command_of_an_unknown_program(folder):
    (folder / "run.json").unlink()
    card.write_run_card(str(folder))
    text = (folder / "README.md").read_text()
    assert "Unknown program" not in text and "Start: " in text


def test_a_start_may_be_named_by_either_flag(folder):
    path = folder / "flags.json"
    flags = json.loads(path.read_text())
    flags |= {
        "init_checkpoint": None,
        "albert_hub_module_handle": "albert_base_v2",
    }
    path.write_text(json.dumps(flags))
    card.write_run_card(str(folder))
    metadata, text = parse((folder / "README.md").read_text())
    assert metadata["base_model"] == "albert/albert-base-v2"
    assert "Start: albert_base_v2.\n" in text


def test_a_model_without_a_run_has_a_card_of_its_config(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    tiny.write_model(folder)
    convert_checkpoint.run(
        ConvertFlags(from_=str(folder), to=str(tmp_path / "to"))
    )
    metadata, text = parse((tmp_path / "to" / "README.md").read_text())
    assert metadata["pipeline_tag"] == "fill-mask"
    assert "metrics" not in metadata and "## Training" not in text


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        ("albert_base_v2", "albert/albert-base-v2"),
        ("hf:voidful/albert_chinese_tiny", "voidful/albert_chinese_tiny"),
        ("albert_base_zh", None),
        ("out/albert_base_v2", None),
        (None, None),
    ],
)
def test_a_base_model_has_its_name_on_the_hub(start, wanted):
    assert card._find_base(start) == wanted


@pytest.mark.parametrize(
    ("task", "size", "flags", "wanted"),
    [
        ({"name": "sts-b"}, 1500, {"task_name": "STS-B"}, "nyu-mll/glue"),
        ({"name": "sts-b"}, 900, {"task_name": "STS-B"}, None),
        ({"name": "sts-b"}, 1500, {"task_config": "sts-b.json"}, None),
        (
            {"name": "squad_v2"},
            11873,
            {"predict_file": "a/dev-v2.0.json"},
            "rajpu.*2",
        ),
        ({"name": "squad_v1"}, 10570, {"predict_file": "a/own.json"}, None),
        ({"name": "squad_v1"}, 9, {"predict_file": "a/dev-v1.1.json"}, None),
        ({"name": "race", "max_qa_length": 128}, 4887, {}, "ehovy/race"),
        ({"name": "race", "max_qa_length": 128}, 50, {}, None),
        ({"sentence_objective": "sop"}, 9, {}, None),
    ],
)
def test_only_known_benchmarks_are_named(task, size, flags, wanted):
    dev = {"examples": size}
    if "max_qa_length" not in task:
        dev = {"0": dev, "1": {"examples": 3}}
    made_of = {"task": task, "data": {"dev": dev}}
    rows = [{}] * size
    run = report.Run("", {"made_of": made_of}, flags, {}, [], rows, {})
    dataset = card._find_dataset(run)
    assert bool(dataset) == bool(wanted)
    assert not wanted or re.match(wanted, dataset["type"])


@pytest.mark.parametrize("kind", card.USES)
def test_the_printed_commands_and_classes_exist(kind):
    _, command, python = card.USES[kind]
    for name in re.findall(r"albert_tf\.(\w+)", python):
        assert hasattr(albert_tf, name)
    program, *words = command.split(" --")
    _, flags = commands.find(program)
    fields = {field.name for field in dataclasses.fields(flags)}
    names = {word.partition("=")[0].removeprefix("no") for word in words}
    assert names <= fields


def test_each_kind_of_head_has_a_use():
    assert card.USES.keys() == task_heads.KINDS.keys() | {
        "encoder",
        "pretraining",
        task_heads.VECTORS,
    }
