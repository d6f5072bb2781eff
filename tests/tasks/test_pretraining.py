"""Pretraining with the library alone, as in docs/library.md."""

import dataclasses
import json
import operator
import re

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import AlbertConfig, Pretraining, PretrainingRecipe
from albert_tf.commands.run_pretraining import PretrainingFlags
from albert_tf.data.pretraining import opening
from albert_tf.model import heads, initial_values, modeling
from albert_tf.programs import run_pretraining
from albert_tf.tasks import pretraining
from albert_tf.training import optimization
from albert_tf.weights import pretrained
from tests import runs, tiny, tiny_records
from tests.conftest import ROOT

CONFIG = AlbertConfig.from_dict(tiny.SIZES)


@pytest.fixture
def train(tmp_path):
    return tiny_records.write(tmp_path / "train.tfrecord", 20)


@pytest.fixture
def held_out(tmp_path):
    return tiny_records.write(tmp_path / "heldout.tfrecord", 7, seed=1)


def test_the_docs_give_the_weights_of_the_program(
    train, held_out, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/library.md").read_text(encoding="utf-8")
    text = text.partition("## Pretraining from Python")[2]
    block = re.search(r"```python\n(.*?)```", text, re.S).group(1)
    assert len([line for line in block.splitlines() if line]) <= 12
    (tmp_path / "config.json").write_text(json.dumps(tiny.SIZES))
    exec(block, {})
    rows, best = capsys.readouterr().out.splitlines()
    assert best == "model/model.ckpt-best" and len(eval(rows)) == 3
    run_pretraining.run(
        PretrainingFlags(
            albert_config_file="config.json",
            input_file=train,
            eval_input_file=held_out,
            output_dir="program",
            do_eval=True,
            train_batch_size=8,
            learning_rate=0.01,
            num_train_steps=6,
            num_warmup_steps=2,
            save_checkpoints_steps=3,
        )
    )
    runs.check_equal("model", "program")


@pytest.mark.parametrize(
    ("objective", "given", "wanted"),
    [
        ("sop", None, 1.0),
        ("nsp", None, 1.0),
        ("none", None, 0.0),
        ("sop", 0.0, 0.0),
        ("none", 0.5, 0.5),
    ],
)
def test_the_sentence_weight_follows_from_the_objective(
    tmp_path, objective, given, wanted
):
    file = tiny_records.write(
        tmp_path / "a.tfrecord", 2, sentence_objective=objective
    )
    recipe = PretrainingRecipe(train_batch_size=2, sentence_weight=given)
    run = Pretraining(tmp_path / "out", CONFIG, file, recipe=recipe)
    assert run.sentence_weight == run.model.sentence_weight == wanted


def test_a_run_needs_records(tmp_path, held_out):
    with pytest.raises(ValueError, match="Give records, held_out, or both"):
        Pretraining(tmp_path / "out", CONFIG)
    run = Pretraining(tmp_path / "out", CONFIG, held_out=held_out)
    with pytest.raises(ValueError, match="no records to train on"):
        run.train()
    for call in (run.evaluate, run.restore_best):
        with pytest.raises(FileNotFoundError, match="checkpoint"):
            call()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"train_batch_size": 21}, "A batch of 21 is larger than the training"),
        ({"train_batch_size": 0}, "train_batch_size=0; wanted at least 1"),
        ({"optimizer": "adamw", "learning_rate": "auto"}, "a rule for optimi"),
        (
            {"optimizer": "sgd"},
            r"optimizer='sgd'; wanted \('adamw', 'lamb', 'muon'\)",
        ),
        (
            {"learning_rate": "Auto"},
            r"'Auto'; wanted Union\[float, Literal\['a",
        ),
        ({"learning_rate": None}, "learning_rate=None; wanted"),
        ({"sentence_weight": "1"}, r"_weight='1'; wanted float \| None\."),
        ({"train_batch_size": 8.0}, r"train_batch_size=8\.0; wanted int\."),
        # Numbers that run.json cannot hold.
        ({"random_seed": np.int64(8)}, r"random_seed=.*8\)?; wanted int\."),
    ],
)
def test_wrong_settings_are_refused(tmp_path, train, values, message):
    with pytest.raises(ValueError, match=message):
        recipe = PretrainingRecipe(**{"train_batch_size": 8, **values})
        Pretraining(tmp_path / "out", CONFIG, train, recipe=recipe)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["records", "held_out"])
def test_records_of_another_kind_are_refused(tmp_path, train, name):
    files = {"records": train, name: [train]}
    with pytest.raises(ValueError, match=rf"{name}=\['.*'\]; wanted comma"):
        Pretraining(tmp_path / "out", CONFIG, **files)


ONE_STEP = PretrainingRecipe(
    train_batch_size=4, num_train_steps=1, num_warmup_steps=0
)


@pytest.fixture
def trained(tmp_path, train):
    """Folder of a model of one step."""
    Pretraining(tmp_path / "start", CONFIG, train, recipe=ONE_STEP).train()
    return tmp_path / "start"


def test_scores_on_other_records_are_not_taken_for_these(
    tmp_path, train, held_out, trained
):
    """With training records, which are not trained on yet."""
    start = pretrained.read_pretrained(trained)
    other = tiny_records.write(tmp_path / "other.tfrecord", 7, seed=2)
    first, second, alone, late = (
        Pretraining(tmp_path / name, CONFIG, *files, ONE_STEP, start=start)
        for name, *files in (
            ("out", train, held_out),
            ("out", train, other),
            ("out", None, held_out),
            ("out", None, other),
        )
    )
    scores = first.evaluate()
    assert scores != second.evaluate()
    assert scores == alone.evaluate()
    with pytest.raises(ValueError, match="existing scores are on other data"):
        late.evaluate()


def test_a_start_may_be_a_path(tmp_path, held_out, trained):
    scores = [
        Pretraining(
            tmp_path / name, CONFIG, held_out=held_out, start=start
        ).evaluate()
        for name, start in (
            ("path", trained),
            ("read", pretrained.read_pretrained(trained)),
        )
    ]
    assert scores[0] == scores[1]


def test_the_folder_of_another_process_is_not_trained_in(
    tmp_path, train, own_elsewhere
):
    run = Pretraining(tmp_path / "out", CONFIG, train, recipe=ONE_STEP)
    owner = own_elsewhere(tmp_path / "out", "owning_folder")
    with pytest.raises(BlockingIOError, match=f"process {owner.pid} on "):
        run.train()


def test_advice_names_what_is_left_to_do(train):
    opened = opening.open_records(train, CONFIG)
    recipe = PretrainingRecipe(train_batch_size=8)
    narrow = dataclasses.replace(
        CONFIG, hidden_size=256, num_attention_heads=4, initializer_range=0.02
    )
    found = pretraining.list_remedies(narrow, recipe, opened, 1.0, {})
    # In the order of the table "What helps besides" in docs/plateau.md.
    wanted = [
        "initialization=neighbors",
        "40%",
        "sentence_weight=0",
        "ngram=1",
        "beta_2",
    ]
    wanted += ['"initializer_range": 0.05', "batch", "steps"]
    assert len(found) == len(wanted)
    assert all(map(operator.contains, found, wanted))
    sidecar = {"flags": {"masked_lm_prob": 0.4, "ngram": 1}}
    better = dataclasses.replace(opened, sidecar=opened.sidecar | sidecar)
    begun = {"begins_from": {"sha256": "0"}}
    # As many as the records have room for.
    found = pretraining.list_remedies(narrow, recipe, better, 0.0, begun)
    assert "40%" in found[0]
    size = ((opened.num_tokens,), "int64")
    better.features["masked_lm_ids"] = size
    base = dataclasses.replace(
        narrow, hidden_size=768, num_attention_heads=12
    )  # As the release has it.
    recipe = PretrainingRecipe(train_batch_size=64, initialization="neighbors")
    found = pretraining.list_remedies(base, recipe, better, 0.0, {})
    assert found == ["beta_2=0.98", "more steps"]
    # Weights that there are already were initialized before.
    recipe = PretrainingRecipe(train_batch_size=64)
    found = pretraining.list_remedies(narrow, recipe, better, 0.0, begun)
    assert found == ["beta_2=0.98", "more steps"]


@pytest.mark.parametrize(
    ("given", "num_warmup_steps"), [({}, 62), ({"num_warmup_steps": 50}, 50)]
)
def test_the_rate_is_chosen_for_the_batch_size(given, num_warmup_steps):
    recipe = PretrainingRecipe(
        train_batch_size=1024,
        num_train_steps=10_000,
        learning_rate="auto",
        **given,
    )
    schedule = recipe.schedule()
    assert schedule.learning_rate == pytest.approx(0.00088)
    assert schedule.num_warmup_steps == num_warmup_steps


def test_a_recipe_has_steps_after_warmup():
    PretrainingRecipe(num_train_steps=3126)
    PretrainingRecipe(num_train_steps=2, learning_rate="auto")
    for changes in ({}, {"num_warmup_steps": 9, "start_warmup_step": 3116}):
        with pytest.raises(
            ValueError, match="num_train_steps=3125 leaves no step"
        ):
            PretrainingRecipe(num_train_steps=3125, **changes)


NEIGHBORS = {"train_batch_size": 4, "initialization": "neighbors"}


def test_replicas_begin_on_the_same_neighbors(tmp_path, train):
    recipe = PretrainingRecipe(**NEIGHBORS)
    mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    one, two = (
        Pretraining(tmp_path / name, CONFIG, train, recipe=recipe, **given)
        for name, given in (("one", {}), ("two", {"strategy": mirrored}))
    )
    values = modeling.named_weights(two.model)
    for name, weight in modeling.named_weights(one.model).items():
        np.testing.assert_array_equal(weight.numpy(), values[name].numpy())
    bias = values["cls/predictions/output_bias"].numpy()
    labels = tiny_records.make_features(20)["masked_lm_ids"]
    counts = np.bincount(labels.ravel(), minlength=CONFIG.vocab_size) + 1
    np.testing.assert_allclose(np.exp(bias), counts / counts.sum(), rtol=1e-5)


def test_the_initialization_is_said_and_recorded(tmp_path, train, capfd):
    folder, values = tmp_path / "out", NEIGHBORS | {"num_warmup_steps": 0}
    recipe = PretrainingRecipe(**values, num_train_steps=1)
    Pretraining(folder, CONFIG, train, recipe=recipe).train()
    said = "Starting from random weights, initialization=neighbors."
    assert said in capfd.readouterr().err
    made_of = json.loads((folder / "run.json").read_text())["made_of"]
    assert made_of["initialization"] == "neighbors"
    # A resumed run has weights: another choice changes nothing.
    recipe = PretrainingRecipe(
        train_batch_size=4, num_train_steps=2, num_warmup_steps=0
    )
    run = Pretraining(folder, CONFIG, train, recipe=recipe)
    run.train()
    assert run.session.step == 2


def test_a_resumed_run_does_not_compute_initial_values(
    tmp_path, train, monkeypatch
):
    folder, recipe = tmp_path / "out", PretrainingRecipe(**NEIGHBORS)
    recipe = dataclasses.replace(recipe, num_train_steps=1, num_warmup_steps=0)
    Pretraining(folder, CONFIG, train, recipe=recipe).train()
    monkeypatch.setattr(initial_values, "begin_on_neighbors", None)
    recipe = dataclasses.replace(recipe, num_train_steps=2)
    run = Pretraining(folder, CONFIG, train, recipe=recipe)
    run.train()
    assert run.session.step == 2
    # Without a checkpoint that can be read, it still does not start over.
    for path in folder.glob("model.ckpt-*.data-*"):
        path.write_bytes(b"")
    run = Pretraining(folder, CONFIG, train, recipe=recipe)
    with pytest.raises(ValueError, match="2 checkpoints, none of which can"):
        run.train()


def test_a_run_of_an_earlier_muon_is_not_continued_unasked(
    tmp_path, train, monkeypatch
):
    """Its updates of kernels were twice as large: nothing else told."""
    settings = {"train_batch_size": 4, "num_warmup_steps": 0}
    recipe = PretrainingRecipe(**settings, num_train_steps=1, optimizer="muon")
    with monkeypatch.context() as patch:
        patch.setattr(optimization, "MUON_SCALE", 0.2)
        Pretraining(tmp_path / "out", CONFIG, train, recipe=recipe).train()
    recipe = dataclasses.replace(recipe, num_train_steps=2)
    with pytest.raises(ValueError, match="optimizer.scale: was 0.2, is 0.1"):
        Pretraining(tmp_path / "out", CONFIG, train, recipe=recipe).train()


def test_a_start_and_initial_values_contradict(tmp_path, train):
    start = pretrained.Pretrained("folder", {}, CONFIG)
    with pytest.raises(ValueError, match="initialization=neighbors is a choi"):
        Pretraining(
            tmp_path / "out",
            CONFIG,
            train,
            recipe=PretrainingRecipe(**NEIGHBORS),
            start=start,
        )


def test_a_recipe_that_begins_on_neighbors_evaluates_a_start(tmp_path, train):
    values = modeling.named_weights(heads.AlbertForPreTraining(CONFIG))
    start = pretrained.Pretrained(
        "folder",
        {name: value.numpy() for name, value in values.items()},
        CONFIG,
    )
    recipe = PretrainingRecipe(**NEIGHBORS)
    run = Pretraining(
        tmp_path / "out", CONFIG, held_out=train, recipe=recipe, start=start
    )
    assert len(run.evaluate()) == 1
