"""run_race: learns, scores each level, answers, resumes, refuses."""

import dataclasses
import json

import numpy as np
import pytest

from albert_tf.commands.run_race import RaceFlags
from albert_tf.model import heads
from albert_tf.programs import finetuning, run_race
from albert_tf.text import tokenization
from albert_tf.training import memory, results_file
from albert_tf.weights import checkpoints, task_heads
from tests import runs, tiny


def write_passages(folder, num_passages, *, has_answers=True):
    """Passages with two questions; the right option is "w1"."""
    rng = np.random.default_rng(num_passages)
    for level in ("middle", "high"):
        (folder / level).mkdir(parents=True)
        for i in range(num_passages):
            options, answers = [], []
            for _ in range(2):
                row = list(rng.choice(tiny.WORDS[2:], 4))
                label = rng.integers(4)
                row[label] = "w1"
                options.append(row)
                answers.append("ABCD"[label])
            content = {
                "id": f"{level}{i}.txt",
                "article": " ".join(
                    rng.choice(tiny.WORDS, rng.integers(1, 30))
                ),
                "questions": ["w3 _ ?", "w4 w5 ?"],
                "options": options,
            }
            if has_answers:
                content["answers"] = answers
            (folder / level / f"{i}.txt").write_text(json.dumps(content))


@pytest.fixture
def args(tmp_path, model):
    data = tmp_path / "data" / "RACE"
    write_passages(data / "train", 10)
    write_passages(data / "dev", 3)
    write_passages(data / "test", 4, has_answers=False)
    return RaceFlags(
        data_dir=str(tmp_path / "data"),
        output_dir=str(tmp_path / "out"),
        init_checkpoint=str(model),
        do_predict=True,
        train_batch_size=8,
        predict_batch_size=5,
        learning_rate=1e-3,
        train_step=6,
        warmup_step=1,
        save_checkpoints_steps=3,
        max_seq_length=24,
        max_qa_length=8,
        bucket_lengths="16",
    )


def read_answers(folder):
    lines = (folder / "predictions.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction"
    return dict(line.split("\t") for line in lines[1:])


@pytest.mark.traced
def test_a_run_scores_each_level_and_answers_each_question(
    args, tmp_path, capfd, monkeypatch
):
    warned, warn = [], memory.warn_of_training
    monkeypatch.setattr(
        memory,
        "warn_of_training",
        lambda *sizes, **kwargs: (
            warned.append(kwargs) or warn(*sizes, **kwargs)
        ),
    )
    run_race.run(args)
    assert [kwargs["num_choices"] for kwargs in warned] == [4]
    out = tmp_path / "out"
    results = results_file.read_results(out)
    assert [row["global_step"] for row in results] == [3, 6]
    for row in results:
        levels = row["middle_eval_accuracy"], row["high_eval_accuracy"]
        np.testing.assert_allclose(row["eval_accuracy"], np.mean(levels))
    best = task_heads.best_row(results, "eval_accuracy")
    lines = (out / "dev_predictions.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert {row["step"] for row in rows} == {best["global_step"]}
    is_right = [row["label"] == row["prediction"] for row in rows]
    np.testing.assert_allclose(np.mean(is_right), best["eval_accuracy"])
    for row in rows:
        assert "w1" in row["text"]["ABCD".index(row["label"])]
    answers = read_answers(out)
    assert list(answers) == [
        f"{level}/{level}{i}.txt/{j}"
        for level in ("middle", "high")
        for i in range(4)
        for j in range(2)
    ]
    chances = np.loadtxt(out / "test_results.tsv", delimiter="\t")
    assert chances.shape == (16, 4)
    assert list(answers.values()) == ["ABCD"[i] for i in chances.argmax(axis=1)]
    best = checkpoints.read_checkpoint(out / "model.ckpt-best")
    assert best["output_weights"].shape == (1, 12)
    said = capfd.readouterr()
    assert "only 12 questions" in said.out
    assert "best on dev" in said.out and "high_eval_accuracy" in said.out
    runs.check_two_copies(
        run_race.run, args, "predictions.tsv", "test_results.tsv"
    )


def test_a_cache_never_gives_examples_of_other_settings_or_files(
    args, tmp_path, model
):
    path = tmp_path / "data/RACE/dev/high/0.txt"
    content = json.loads(path.read_text())
    content["article"] = "W1 w2 w3 w4 w5 w6 w7 w8"
    content["answers"][0] = "A"
    changed = content | {"answers": ["B", content["answers"][1]]}
    seen = []
    for flags, do_lower_case, passage in (
        ({}, True, content),
        ({"max_seq_length": 16}, True, content),
        ({"max_qa_length": 3}, True, content),
        ({"high_only": True}, True, content),
        ({}, False, content),
        ({}, True, changed),
    ):
        path.write_text(json.dumps(passage))
        tokenizer = tokenization.build_tokenizer(
            vocab_file=str(model / "vocab.txt"), do_lower_case=do_lower_case
        )
        wanted, *cached = (
            run_race.read_part(
                dataclasses.replace(args, cached_dir=folder, **flags),
                "dev",
                tokenizer,
            ).examples
            for folder in (
                None,
                str(tmp_path / "cache"),
                str(tmp_path / "cache"),
            )
        )
        wanted = list_values(wanted)
        assert wanted not in seen
        seen.append(wanted)
        assert [list_values(found) for found in cached] == [wanted, wanted]


def list_values(encoded):
    arrays = encoded.ids, encoded.lengths, *encoded.arrays.values()
    return [values.tolist() for values in arrays]


def test_one_level_can_stand_alone(args, tmp_path):
    write_passages(tmp_path / "bare" / "train", 9)
    run_race.run(
        dataclasses.replace(
            args,
            data_dir=str(tmp_path / "bare"),
            high_only=True,
            do_eval=False,
            do_predict=False,
            train_step=2,
        )
    )
    alone = dataclasses.replace(args, middle_only=True, do_train=False)
    run_race.run(alone)
    assert set(read_answers(tmp_path / "out")) == {
        f"middle/middle{i}.txt/{j}" for i in range(4) for j in range(2)
    }
    (row,) = results_file.read_results(tmp_path / "out")
    assert "middle_eval_accuracy" not in row


def test_a_checkpoint_without_a_description_goes_on_with_its_head(
    args, tmp_path
):
    """As those of the release, which have no head.json."""
    run_race.run(dataclasses.replace(args, do_predict=False))
    (tmp_path / "out" / task_heads.HEAD_FILE).unlink()
    before = checkpoints.read_checkpoint(tmp_path / "out/model.ckpt-6")
    further = dataclasses.replace(
        args,
        init_checkpoint=str(tmp_path / "out/model.ckpt-6"),
        output_dir=str(tmp_path / "further"),
        learning_rate=1e-9,
        train_step=1,
        warmup_step=0,
        do_predict=False,
    )
    run_race.run(further)
    after = checkpoints.read_checkpoint(tmp_path / "further")
    for name in ("output_weights", "output_bias"):
        np.testing.assert_allclose(after[name], before[name], atol=1e-6)


def test_the_rate_has_two_names(args, monkeypatch):
    rates, recorded = [], []

    class Stop(Exception):
        pass

    def record(folder, task, start, recipe, *, flags, **_):
        model = task.build_model(tiny.CONFIG, recipe.classifier_dropout)
        assert isinstance(model, heads.AlbertMultipleChoice)
        rates.append(model.dropout_prob)
        recorded.append((flags["classifier_dropout"], flags["dropout_prob"]))
        raise Stop

    monkeypatch.setattr(finetuning, "FineTuning", record)
    for changes in (
        {},
        {"classifier_dropout": 0.3},
        {"dropout_prob": 0.0, "classifier_dropout": 0.3},
    ):
        with pytest.raises(Stop):
            run_race.run(dataclasses.replace(args, **changes))
    assert rates == [0.1, 0.3, 0.0]
    assert recorded == [(0.1, None), (0.3, None), (0.3, 0.0)]


def test_training_data_without_answers_is_refused(args, tmp_path):
    test = tmp_path / "data" / "RACE" / "test"
    test.rename(test.with_name("unanswered"))
    (tmp_path / "data" / "RACE" / "train").rename(test)
    test.with_name("unanswered").rename(test.with_name("train"))
    with pytest.raises(
        ValueError, match="train has 16 questions without an answer"
    ):
        run_race.run(args)


def write_dialogues(folder, part, num_passages, *, has_answers=True):
    """Dialogues with two questions of two to five options; "w1" is right."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(num_passages)
    passages = []
    for i in range(num_passages):
        questions = []
        for j in range(2):
            options = list(rng.choice(tiny.WORDS[2:], 2 + (i + j) % 4))
            options[rng.integers(len(options))] = "w1"
            question = {"question": "w3 _ ?", "choice": options}
            questions.append(
                question | ({"answer": "w1"} if has_answers else {})
            )
        passages.append([["w4 w5", "w6"], questions, f"{part}{i}"])
    (folder / f"{part}.json").write_text(json.dumps(passages))


def test_what_is_read_and_what_is_not_is_said(args, tmp_path, capsys):
    folder = tmp_path / "both"
    (folder / "RACE").mkdir(parents=True)
    write_dialogues(folder / "RACE", "dev", 3)
    for name in ("dev", "old-dev"):
        write_dialogues(folder, name, 2)
    args = dataclasses.replace(args, data_dir=str(folder))
    assert len(run_race.read_questions(args, "dev")) == 6
    assert capsys.readouterr().out == (
        f"dev: 6 questions of {folder}/RACE/dev.json.\n"
        f"Not read: {folder}/dev.json, {folder}/old-dev.json.\n"
    )


@pytest.mark.traced
def test_dialogues_have_questions_of_two_to_five_options(args, tmp_path):
    folder = tmp_path / "dream"
    write_dialogues(folder, "train", 12)
    write_dialogues(folder, "dev", 5)
    write_dialogues(folder, "test", 3, has_answers=False)
    args = dataclasses.replace(args, data_dir=str(folder))
    run_race.run(args)
    out = tmp_path / "out"
    for row in results_file.read_results(out):
        assert row["eval_loss"] < 3  # Of the options that there are.
    lines = (out / "dev_predictions.jsonl").read_text().splitlines()
    for row in map(json.loads, lines):
        count = len(row["text"])
        assert len(row["probabilities"]) == count
        assert row["prediction"] in "ABCDE"[:count]
        np.testing.assert_allclose(sum(row["probabilities"]), 1)
        assert "w1" in row["text"]["ABCDE".index(row["label"])]
    answers = read_answers(out)
    assert list(answers) == [
        f"test/test{i}/{j}" for i in range(3) for j in (0, 1)
    ]
    chances = np.loadtxt(out / "test_results.tsv", delimiter="\t")
    counts = np.array([2 + (i + j) % 4 for i in range(3) for j in range(2)])
    assert chances.shape == (6, counts.max())
    is_option = np.arange(counts.max()) < counts[:, None]
    assert (chances[~is_option] == 0).all()
    with pytest.raises(ValueError, match="dev.json has no levels"):
        run_race.run(dataclasses.replace(args, high_only=True, do_train=False))
