"""run_pretraining: trains, resumes, refuses."""

import contextlib
import dataclasses
import inspect
import io
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

from albert_tf.commands.run_pretraining import PretrainingFlags
from albert_tf.data.pretraining import label_counts, opening, reading
from albert_tf.model.config import AlbertConfig
from albert_tf.programs import run_pretraining
from albert_tf.training import (
    distribution,
    evaluation,
    loop,
    manifest,
    optimization,
    plateau,
    results_file,
)
from albert_tf.training.settings import scale_to_batch
from albert_tf.weights import checkpoints
from tests import eager, tiny, tiny_records

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = tiny.SIZES
# All that most tests need, traced in half the time.
ONE_LAYER = {**CONFIG, "num_hidden_layers": 1}


def build_args(folder):
    """Returns the flags of six steps on small records, which it writes."""
    config = folder / "albert_config.json"
    config.write_text(json.dumps(ONE_LAYER))
    tiny_records.write(folder / "train.tfrecord", 20)
    tiny_records.write(folder / "valid.tfrecord", 7, seed=1)
    return PretrainingFlags(
        albert_config_file=str(config),
        input_file=str(folder / "train.tfrecord"),
        eval_input_file=str(folder / "valid.tfrecord"),
        output_dir=str(folder / "out"),
        do_eval=True,
        train_batch_size=8,
        eval_batch_size=4,
        learning_rate=0.01,
        num_train_steps=6,
        num_warmup_steps=2,
        save_checkpoints_steps=3,
    )


@pytest.fixture
def args(tmp_path):
    """Flags of two steps, which are not traced."""
    return dataclasses.replace(
        build_args(tmp_path),
        num_train_steps=2,
        num_warmup_steps=0,
        save_checkpoints_steps=1,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Flags of a finished run, only to be read, and what the run said."""
    args = build_args(tmp_path_factory.mktemp("whole"))
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plateau, "FIRST_ADVICE", 3)  # Of six steps.
        with contextlib.redirect_stderr(said), eager.steps(False):
            run(args)
    return args, said.getvalue()


@pytest.fixture
def finished(whole, tmp_path):
    """Flags of a copy of the finished run, to be changed."""
    args = build_args(tmp_path)
    shutil.copytree(whole[0].output_dir, args.output_dir)
    return args


def read_jsonl(folder):
    lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def run(args, **changes):
    run_pretraining.run(dataclasses.replace(args, **changes))


def test_a_run_writes_the_releases_files(whole):
    out = pathlib.Path(whole[0].output_dir)
    names = {path.name for path in out.iterdir()}
    assert names >= {
        "albert_config.json",
        "checkpoint",
        "eval_results.txt",
        "metrics.jsonl",
        "model.ckpt-3.index",
        "model.ckpt-6.index",
        "tokenizer_settings.json",
    }
    blocks = (out / "eval_results.txt").read_text().split("***** ")[1:]
    assert len(blocks) == 3  # Before training, at steps 3 and 6.
    keys = [line.split(" = ")[0] for line in blocks[-1].splitlines()[1:]]
    assert keys == [
        "global_step",
        "loss",
        "masked_lm_accuracy",
        "masked_lm_loss",
        "sentence_order_accuracy",
        "sentence_order_loss",
    ]
    values = checkpoints.read_checkpoint(out)
    assert values["global_step"] == 6
    assert "bert/pooler/dense/kernel/adam_v" in values


def test_the_flags_reach_what_trains(args, monkeypatch):
    calls = {}

    def record(module, name, is_replaced=False):
        original = getattr(module, name)

        def call(*args, **kwargs):
            calls[name] = inspect.signature(original).bind(*args, **kwargs)
            calls[name] = calls[name].arguments
            return None if is_replaced else original(*args, **kwargs)

        monkeypatch.setattr(module, name, call)

    record(optimization, "build_schedule")
    record(optimization, "build_optimizer")
    record(evaluation, "evaluate")
    record(loop, "train", is_replaced=True)
    schedule = {
        "learning_rate": 0.02,
        "num_train_steps": 19,
        "num_warmup_steps": 5,
        "start_warmup_step": 2,
        "poly_power": 1.5,
    }
    training = {
        "iterations_per_loop": 3,
        "log_every_steps": 7,
        "save_checkpoints_steps": 11,
    }
    run(
        args,
        **schedule,
        **training,
        beta_2=0.9,
        eval_batch_size=2,
        gradient_accumulation_steps=2,
        keep_checkpoint_max=13,
        max_eval_steps=3,
        random_seed=17,
        remat=True,
        sentence_weight=0.5,
        stop_on_divergence=False,
        xla=True,
    )
    assert calls["build_schedule"] == schedule
    assert calls["build_optimizer"]["kwargs"] == {"beta_2": 0.9}
    assert calls["evaluate"]["max_steps"] == 3
    session = calls["train"]["session"]
    assert session.num_train_steps == 19
    wanted = {**training, "gradient_accumulation_steps": 2, "remat": True}
    wanted |= {"random_seed": 17, "xla": True}
    for name, value in wanted.items():
        assert getattr(session.settings, name) == value
    assert not calls["train"]["guard"].is_active
    assert session.manager.max_to_keep == 13
    assert session.model.loss_scales["sentence_order_loss"] == 0.5


def test_the_recorded_flags_have_the_chosen_rate(args, monkeypatch):
    monkeypatch.setattr(loop, "train", lambda *_, **__: None)
    chosen = {"learning_rate": "auto", "num_warmup_steps": 3125}
    run(args, **chosen, num_train_steps=6000, do_eval=False)
    path = pathlib.Path(args.output_dir) / "flags.json"
    values = json.loads(path.read_text())
    rate, num_warmup_steps = scale_to_batch(8, 6000)
    assert values["learning_rate"] == rate
    assert values["num_warmup_steps"] == num_warmup_steps == 19


def test_a_run_logs_the_gauge(whole):
    args, said = whole
    found = read_jsonl(args.output_dir)
    records = [r for r in found if r["split"] == "train"]
    for name in ("frequency_gain", "rare_masked_lm_loss", "token_cosine"):
        assert np.isfinite(records[-1][name])
    assert 0 < records[-1]["attention_entropy"] <= 1
    assert "step 6/6 frequencies loss" in said
    assert said.count("has learned little more than piece frequencies") == 1


@pytest.mark.traced
def test_a_resumed_run_equals_an_uninterrupted_one(whole, tmp_path):
    args = build_args(tmp_path)
    # Batches of 8 cross the epochs of 20 records.
    # A run that is cut short has the schedule of the whole run.
    manager = checkpoints.CheckpointManager
    saved = manager.save

    def save_and_stop(self):
        saved(self)
        raise SystemExit

    manager.save = save_and_stop
    try:
        with pytest.raises(SystemExit):
            run(args)
    finally:
        manager.save = saved
    assert len(checkpoints.list_checkpoints(args.output_dir)) == 1
    run(args)
    # Including the checkpoint that the first run had no time to evaluate.
    results = (tmp_path / "out" / "eval_results.txt").read_text()
    steps = [s for s in range(9) if f"global_step = {s}\n" in results]
    assert steps == [0, 3, 6]
    wanted, parts = (
        checkpoints.read_checkpoint(folder)
        for folder in (whole[0].output_dir, args.output_dir)
    )
    for name, value in wanted.items():
        np.testing.assert_array_equal(parts[name], value, name)


def test_a_finished_run_is_not_trained_again(finished):
    before = read_jsonl(finished.output_dir)
    run(finished)
    assert read_jsonl(finished.output_dir) == before


@pytest.mark.traced
def test_every_held_out_row_is_evaluated(whole, args):
    found = []
    # 7 rows in batches of 4, of 7, and on two replicas in batches of 2.
    for number, changes in enumerate(
        (
            {},
            {"eval_batch_size": 7},
            {"eval_batch_size": 2, "distribution": "mirrored"},
        )
    ):
        folder = f"{args.output_dir}{number}"
        run(
            args,
            init_checkpoint=whole[0].output_dir,
            output_dir=folder,
            do_train=False,
            input_file=None,
            **changes,
        )
        found.append(read_jsonl(folder)[-1]["loss"])
    np.testing.assert_allclose(found, found[0], rtol=1e-5)


def test_checkpoints_are_evaluated_afterwards(args):
    run(args, do_eval=False)
    run(args, do_train=False, input_file=None)
    found = [r["step"] for r in read_jsonl(args.output_dir)]
    assert found == [2, 1, 2]
    # Of the higher accuracy, or the first of equal ones.
    results = results_file.read_results(args.output_dir)
    best = max(results, key=lambda row: row["masked_lm_accuracy"])
    kept = f"{args.output_dir}/model.ckpt-best"
    step = checkpoints.read_checkpoint(kept)["global_step"]
    assert step == best["global_step"]


def test_another_checkpoint_is_scored_without_training(whole, args):
    first = whole[0].output_dir
    settings = {"do_train": False, "input_file": None}
    with pytest.raises(FileNotFoundError, match="no checkpoint to evaluate"):
        run(args, **settings)
    run(args, init_checkpoint=first, **settings)
    (found,) = read_jsonl(args.output_dir)
    wanted = [r for r in read_jsonl(first) if r["split"] == "eval"][-1]
    assert found["step"] == 0
    assert found["loss"] == pytest.approx(wanted["loss"], rel=1e-6)
    run(args, init_checkpoint=first, **settings)
    assert len(results_file.read_results(args.output_dir)) == 1
    for changes, message in (
        ({"init_checkpoint": f"{first}/model.ckpt-3"}, "of other weights"),
        ({"max_eval_steps": 1}, "records: was 7, is 4: .* on other data"),
    ):
        changes = {"init_checkpoint": first, **settings, **changes}
        with pytest.raises(ValueError, match=message):
            run(args, **changes)
    assert not checkpoints.list_checkpoints(args.output_dir)


def test_the_checkpoint_of_the_highest_accuracy_is_kept(args, monkeypatch):
    scores = iter((0.2, 0.4, 0.3))  # Before training, and at steps 1 and 2.
    monkeypatch.setattr(
        evaluation,
        "evaluate",
        lambda *_: {"masked_lm_accuracy": next(scores)},
    )
    run(args)
    kept = checkpoints.read_checkpoint(f"{args.output_dir}/model.ckpt-best")
    assert kept["global_step"] == 1


def test_a_run_starts_from_another_checkpoint(whole, args):
    first = whole[0].output_dir
    run(args, init_checkpoint=first)
    first_eval, last_eval = (
        read_jsonl(args.output_dir)[0],
        [r for r in read_jsonl(first) if r["split"] == "eval"][-1],
    )
    assert first_eval["step"] == 0
    assert first_eval["loss"] == pytest.approx(last_eval["loss"], rel=1e-6)


def test_a_mismatched_config_leaves_the_folder_unchanged(finished, tmp_path):
    path = pathlib.Path(finished.output_dir) / "albert_config.json"
    before = path.read_text()
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**CONFIG, "num_hidden_groups": 2}))
    wanted = "config.num_hidden_groups: was 1, is 2: refused"
    with pytest.raises(ValueError, match=wanted):
        run(finished, albert_config_file=str(other))
    assert path.read_text() == before


def test_the_config_in_the_output_folder_is_read_and_kept(args, tmp_path):
    run(args, num_train_steps=1)
    path = tmp_path / "out" / "albert_config.json"
    path.write_text(json.dumps(ONE_LAYER))
    before = path.read_text(), path.stat().st_mtime_ns
    run(args, albert_config_file=str(path))
    assert (path.read_text(), path.stat().st_mtime_ns) == before
    assert checkpoints.read_checkpoint(args.output_dir)["global_step"] == 2


def test_every_group_starts_from_group_0(finished, tmp_path):
    config = tmp_path / "groups.json"
    config.write_text(json.dumps({**CONFIG, "num_hidden_groups": 2}))
    changes = {
        "output_dir": str(tmp_path / "second"),
        "init_checkpoint": finished.output_dir,
        "albert_config_file": str(config),
        "num_train_steps": 1,
        "num_warmup_steps": 0,
        "learning_rate": 0.0,
    }
    # Without the config, the sharing of layers is unknown.
    (pathlib.Path(finished.output_dir) / "albert_config.json").unlink()
    with pytest.raises(ValueError, match="group_1"):
        run(finished, **changes)
    run(finished, init_from_group0=True, **changes)
    values = checkpoints.read_checkpoint(tmp_path / "second")
    prefix = "bert/encoder/transformer/group_{}/inner_group_0/LayerNorm/beta"
    np.testing.assert_array_equal(
        values[prefix.format(0)], values[prefix.format(1)]
    )


def test_the_baseline_is_the_most_frequent_label(tmp_path):
    path = tmp_path / "valid.tfrecord"
    tiny_records.write(path, 10, seed=2)
    opened = opening.open_records(str(path), AlbertConfig.from_dict(CONFIG))
    pieces, labels = [], []
    for batch in reading.build_dataset(opened.files, opened.features, 5):
        pieces += batch["masked_lm_ids"].numpy().ravel().tolist()
        labels += batch["sentence_order_labels"].numpy().tolist()
    wanted = [max(x.count(y) for y in x) / len(x) for x in (pieces, labels)]
    assert label_counts.score_best_guess(opened) == pytest.approx(tuple(wanted))


def test_without_a_sentence_objective_its_head_is_not_trained(args, tmp_path):
    for name in ("train", "valid"):
        tiny_records.write(
            tmp_path / f"{name}.tfrecord", 20, sentence_objective="none"
        )
    run(args)
    values = checkpoints.read_checkpoint(args.output_dir)
    assert not values["cls/seq_relationship/output_bias"].any()
    assert "sentence_order_loss" not in read_jsonl(args.output_dir)[-1]
    # So it is not scored on other records, and whoever uses it knows.
    assert manifest.read_setting(args.output_dir, "sentence_weight") == 0
    run(args, sentence_weight=0.0)  # The default: no change.
    tiny_records.write(tmp_path / "sop.tfrecord", 7, seed=1)
    changes = {"eval_input_file": str(tmp_path / "sop.tfrecord")}
    changes |= {"do_train": False, "input_file": None}
    changes |= {"init_checkpoint": args.output_dir}
    run(args, **changes, output_dir=str(tmp_path / "scores"))
    (row,) = results_file.read_results(tmp_path / "scores")
    assert "sentence_order_accuracy" not in row


def test_records_without_an_objective_score_no_sentences(finished, tmp_path):
    path = tmp_path / "none.tfrecord"
    tiny_records.write(path, 7, sentence_objective="none")
    changes = {"init_checkpoint": finished.output_dir, "input_file": None}
    changes |= {"do_train": False, "eval_input_file": str(path)}
    run(finished, **changes, output_dir=str(tmp_path / "scores"))
    (row,) = results_file.read_results(tmp_path / "scores")
    assert "sentence_order_accuracy" not in row


def test_scores_afterwards_leave_out_what_was_not_trained(args):
    run(args, sentence_weight=0.0, do_eval=False)
    run(args, do_train=False, input_file=None)
    for row in results_file.read_results(args.output_dir):
        assert "sentence_order_accuracy" not in row
        assert row["loss"] == row["masked_lm_loss"]


def test_scores_elsewhere_leave_it_out_too(args, tmp_path, capsys):
    run(args, sentence_weight=0.0, do_eval=False)
    capsys.readouterr()
    paths = [args.output_dir, f"{args.output_dir}/model.ckpt-2"]
    for number, path in enumerate(paths):
        output = str(tmp_path / f"scores{number}")
        changes = {"init_checkpoint": path, "output_dir": output}
        run(args, do_train=False, input_file=None, **changes)
        (row,) = results_file.read_results(output)
        assert "sentence_order_accuracy" not in row
        said = capsys.readouterr().err
        assert "baseline: masked LM" in said and "sentence order" not in said


def test_too_little_memory_is_said_first(args, monkeypatch, capsys):
    monkeypatch.setattr(distribution, "read_available_memory", lambda: 9000)
    args = dataclasses.replace(args, do_eval=False, num_train_steps=1)
    run_pretraining.run(args)
    said = capsys.readouterr().err
    said, _, rest = said.partition("WARNING: A training step needs about")
    assert "First step" in rest and "First step" not in said
    assert "Train a smaller model" in rest  # The weights alone need more.
    monkeypatch.setattr(distribution, "read_available_memory", lambda: None)
    run_pretraining.run(dataclasses.replace(args, num_train_steps=2))
    assert "needs about" not in capsys.readouterr().err


@pytest.mark.traced
def test_bfloat16_and_adamw_run(args, monkeypatch, capsys):
    # As --compute_dtype=auto chooses on such a device.
    monkeypatch.setattr(
        distribution, "multiplies_bfloat16", lambda strategy: True
    )
    run(args, optimizer="adamw", do_eval=False)
    said = capsys.readouterr()
    assert "Computing in bfloat16" in said.out + said.err
    made_of = pathlib.Path(args.output_dir, "run.json").read_text()
    assert '"compute_dtype": "bfloat16"' in made_of
    values = checkpoints.read_checkpoint(args.output_dir)
    assert values["bert/pooler/dense/kernel"].dtype == np.float32


def test_damaged_records_are_named_in_training(args, monkeypatch):
    monkeypatch.setattr(opening, "MAX_CHECKED_BYTES", 10)
    path = pathlib.Path(args.input_file)
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="train.tfrecord, record 20: "):
        run(args)


def test_the_training_file_is_refused_for_evaluation(args):
    with pytest.raises(ValueError, match="for training and for evaluation"):
        run(args, eval_input_file=args.input_file)


def test_another_vocabulary_is_refused(args, tmp_path):
    tiny_records.write(
        tmp_path / "train.tfrecord", 20, tokenizer={"vocab_size": 30}
    )
    with pytest.raises(ValueError, match="30 pieces.*vocab_size 31"):
        run(args)


def test_another_sentence_objective_is_not_scored(args, tmp_path):
    tiny_records.write(tmp_path / "nsp.tfrecord", 7, sentence_objective="nsp")
    changes = {"eval_input_file": str(tmp_path / "nsp.tfrecord")}
    with pytest.raises(ValueError, match="'nsp', .* has 'sop'"):
        run(args, **changes)
    run(args, **changes, sentence_weight=0.0, num_train_steps=1)
    (row, *_) = results_file.read_results(args.output_dir)
    assert "masked_lm_accuracy" in row and "sentence_order_accuracy" not in row


def test_an_evaluation_without_records_is_warned_of_once(args, caplog):
    """The command of the release's README."""
    run(args, eval_input_file=None, num_train_steps=1)
    said = [r for r in caplog.records if "nothing will be" in r.message]
    assert len(said) == 1
    assert not results_file.read_results(args.output_dir)


def test_too_long_records_are_refused(args, tmp_path):
    config = {**CONFIG, "max_position_embeddings": 8}
    (tmp_path / "albert_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="9 tokens.*max_position_embeddings 8"):
        run(args)


def test_the_flags_are_the_releases(shared):
    path = shared / "spec" / "original_flags.json"
    release = json.loads(path.read_text())["run_pretraining"]
    ours = {f.name: f for f in dataclasses.fields(PretrainingFlags)}
    assert set(release) <= set(ours)
    # Sizes come from the records; every held-out row is evaluated.
    other = {"max_seq_length", "max_predictions_per_seq", "max_eval_steps"}
    for name in release.keys() - other:
        if not release[name].get("required"):
            assert ours[name].default == release[name]["default"], name


def test_the_command_line_fails_with_one_clear_message(args):
    done = subprocess.run(
        [
            sys.executable,
            "run_pretraining.py",
            f"--albert_config_file={args.albert_config_file}",
            f"--input_file={args.input_file}",
            f"--output_dir={args.output_dir}",
            "--max_seq_length=512",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "--max_seq_length=512, but the records in" in done.stderr
    assert "Traceback" not in done.stderr
    assert not pathlib.Path(args.output_dir).exists()


def test_damaged_records_are_skipped_on_request(args, tmp_path, caplog):
    path = pathlib.Path(args.input_file)
    rows = path.read_bytes()
    size = len(rows) // 20
    (tmp_path / "rest.tfrecord").write_bytes(rows[: 18 * size])
    damage_record(path, 19)
    # Two batches cross the epoch of 18 records.
    args = dataclasses.replace(args, do_eval=False, train_batch_size=16)
    with pytest.raises(ValueError, match="record 19: the data do not match"):
        run(args)
    run(args, damaged_records="skip", num_train_steps=1)
    assert "Its first 18 records are used, 2 are left out." in caplog.text
    stored = json.loads((tmp_path / "out" / "run.json").read_text())
    described = stored["made_of"]["data"]["train"]
    assert described["records"] == 18
    assert described["skipped"] == {
        "train.tfrecord": "record 19 and all after it"
    }
    # Resumed, it trains as on the other records alone.
    run(args, damaged_records="skip")
    whole = str(tmp_path / "whole")
    for steps in (1, 2):
        run(
            args,
            input_file=str(tmp_path / "rest.tfrecord"),
            output_dir=whole,
            num_train_steps=steps,
        )
    found, wanted = map(checkpoints.read_checkpoint, (args.output_dir, whole))
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, name)
    # More damage is a change of the data.
    damage_record(path, 18)
    with pytest.raises(ValueError, match="data.train.records: was 18, is 17"):
        run(args, damaged_records="skip", num_train_steps=9)


def damage_record(path, number):
    """Changes a bit of a record of a file of 20."""
    data = bytearray(path.read_bytes())
    data[(number - 1) * (len(data) // 20) + 30] ^= 1
    path.write_bytes(data)


def test_a_damaged_file_is_not_held_out(args):
    damage_record(pathlib.Path(args.input_file), 19)
    with pytest.raises(ValueError, match="for training and for evaluation"):
        run(args, damaged_records="skip", eval_input_file=args.input_file)
