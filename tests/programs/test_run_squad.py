"""run_squad: learns, answers, exports, resumes, refuses."""

import contextlib
import dataclasses
import io
import json
import pathlib
import shutil
import tarfile
import types
import typing

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import Answerer
from albert_tf.commands.convert_checkpoint import ConvertFlags
from albert_tf.commands.run_squad import SquadFlags
from albert_tf.data import answers, examples, squad, windows
from albert_tf.export import requests
from albert_tf.programs import convert_checkpoint, run_squad
from albert_tf.text import tokenization
from albert_tf.training import results_file
from albert_tf.weights import checkpoints, pretrained, task_heads
from tests import eager, runs, tiny


def make_squad(num_paragraphs, *, with_answers=True, with_impossible=False):
    """Paragraphs of 4 to 29 words; the word after "w1" is asked for."""
    rng = np.random.default_rng(num_paragraphs)
    paragraphs = []
    for i in range(num_paragraphs):
        words = list(rng.choice(tiny.WORDS[2:], rng.integers(3, 29)))
        is_impossible = with_impossible and i % 3 == 0
        place = rng.integers(len(words))
        if not is_impossible:
            words.insert(place, tiny.WORDS[1])
        start = len(" ".join(words[: place + 1])) + 1
        # If "w1" is the last word, it is itself the answer.
        if place + 1 >= len(words):
            start = len(" ".join(words[:place])) + (place > 0)
        text = words[min(place + 1, len(words) - 1)]
        qa = {"id": f"q{i}", "question": "w1 w0"}
        if with_answers:
            qa["answers"] = [{"text": text, "answer_start": start}]
            if is_impossible:
                qa |= {"answers": [], "is_impossible": True}
        paragraphs.append({"context": " ".join(words), "qas": [qa]})
    return {"data": [{"paragraphs": paragraphs}]}


def build_args(folder, model):
    """Returns the flags of a short run, and writes its data.

    Its windows are shorter than the paragraphs.
    """
    for name, content in (
        ("train", make_squad(40)),
        ("dev", make_squad(11)),
        ("train2", make_squad(40, with_impossible=True)),
        ("dev2", make_squad(11, with_impossible=True)),
        ("asked", make_squad(11, with_answers=False)),
    ):
        (folder / f"{name}.json").write_text(json.dumps(content))
    return SquadFlags(
        train_file=str(folder / "train.json"),
        predict_file=str(folder / "dev.json"),
        output_dir=str(folder / "out"),
        init_checkpoint=str(model),
        do_train=True,
        do_predict=True,
        train_batch_size=8,
        predict_batch_size=4,
        learning_rate=1e-3,
        train_step=6,
        warmup_step=1,
        save_checkpoints_steps=3,
        max_seq_length=20,
        doc_stride=8,
        max_query_length=4,
        bucket_lengths="12",
        cached_dir=str(folder / "cache"),
    )


@pytest.fixture
def args(tmp_path, model):
    return build_args(tmp_path, model)


def version_2(args, **changes):
    return dataclasses.replace(
        args,
        squad_version="v2",
        train_file=args.train_file.replace("train", "train2"),
        predict_file=args.predict_file.replace("dev", "dev2"),
        **changes,
    )


class Finished(typing.NamedTuple):
    """A finished run with both exports, only to be read.

    Attributes:
      args: its flags.
      folder: of its data, and of what it wrote: out, serving and text.
      said: what it printed.
    """

    args: SquadFlags
    folder: pathlib.Path
    said: str


def finish(args, folder, **changes):
    said = io.StringIO()
    args = dataclasses.replace(
        args,
        export_dir=str(folder / "serving"),
        export_text_dir=str(folder / "text"),
        **changes,
    )
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        run_squad.run(args)
    return Finished(args, folder, said.getvalue())


@pytest.fixture(scope="module")
def finished_1(tmp_path_factory, model):
    """A Finished of version 1."""
    folder = tmp_path_factory.mktemp("version_1")
    return finish(build_args(folder, model), folder)


@pytest.fixture(scope="module")
def finished_2(tmp_path_factory, model):
    """A Finished of version 2, whose steps were traced."""
    folder = tmp_path_factory.mktemp("version_2")
    args = version_2(build_args(folder, model))
    with eager.steps(False):
        return finish(args, folder, export_compact=True)


def read(folder, name):
    return json.loads((folder / name).read_text())


def check_dev_predictions(folder, best):
    """Compares what was written of the questions with the best result."""
    lines = (folder / "dev_predictions.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert {row["step"] for row in rows} == {best["global_step"]}
    np.testing.assert_allclose(
        100 * np.mean([row["f1"] for row in rows]), best["f1"]
    )
    predictions = read(folder, "predictions.json")
    assert {row["id"]: row["prediction"] for row in rows} == predictions
    assert all(0 < row["probability"] <= 1 for row in rows)


def test_version_1_writes_what_the_release_writes(finished_1, tmp_path):
    args, folder, said = finished_1
    out = folder / "out"
    results = results_file.read_results(out)
    assert [row["global_step"] for row in results] == [3, 6]
    assert all({"exact_match", "f1"} <= row.keys() for row in results)
    predictions = read(out, "predictions.json")
    nbest = read(out, "nbest_predictions.json")
    assert list(predictions) == list(nbest) == [f"q{i}" for i in range(11)]
    assert all(nbest[i][0]["text"] == text for i, text in predictions.items())
    assert not (out / "null_odds.json").exists()
    check_dev_predictions(out, task_heads.best_row(results, "f1"))
    best = checkpoints.read_checkpoint(out / "model.ckpt-best")
    assert best["cls/squad/output_weights"].shape == (2, 12)
    assert "cls/squad/output_bias" in said
    assert "best on dev" in said
    # Encoded once; and once more for other windows.
    cached = sorted(path.name for path in (folder / "cache").iterdir())
    assert len(cached) == 2
    other = dataclasses.replace(
        args,
        doc_stride=7,
        do_train=False,
        export_dir=None,
        export_text_dir=None,
        cached_dir=shutil.copytree(args.cached_dir, tmp_path / "cache"),
    )
    with pytest.raises(ValueError, match=r"data\.dev\.tokens.*refused"):
        run_squad.run(other)
    run_squad.run(
        dataclasses.replace(
            other, init_checkpoint=str(out), output_dir=f"{tmp_path}/out_7"
        )
    )
    assert len(list((tmp_path / "cache").iterdir())) == 3
    assert set(cached) < {path.name for path in (tmp_path / "cache").iterdir()}


def archive_converted(folder, parent):
    """Returns the archive of a model's copy, which has only its weights."""
    convert_checkpoint.run(
        ConvertFlags(from_=str(folder), to=str(parent / "copy"), format="tf1")
    )
    archive = parent / "copy.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(parent / "copy", "copy")
    return str(archive)


def test_version_2_finds_its_threshold(finished_2, args, tmp_path, capfd):
    out = shutil.copytree(finished_2.folder / "out", tmp_path / "out")
    odds = read(out, "null_odds.json")
    predictions = read(out, "predictions.json")
    nbest = read(out, "nbest_predictions.json")
    results = results_file.read_results(out)
    best = task_heads.best_row(results, "f1")
    check_dev_predictions(out, best)
    threshold = best["null_score_diff_threshold"]
    if threshold != best["best_f1_thresh"]:  # Nothing is better than any.
        assert not any(predictions.values())
        assert best["best_f1_thresh"] == 0
    for question_id, text in predictions.items():
        is_answered = odds[question_id] < threshold
        wanted = nbest[question_id][0]["text"] if is_answered else ""
        assert text == wanted
    assert {"HasAns_f1", "NoAns_f1", "best_exact"} <= best.keys()
    said = finished_2.said
    assert "expect lower scores on others" in said
    assert f"predictions.json: {{'exact': {best['exact']:.8}" in said
    with pytest.raises(ValueError, match=r"scored_answers.end_n_top.*\n.*null"):
        run_squad.run(
            version_2(args, end_n_top=4, null_score_diff_threshold=0.0)
        )
    # Without known answers, the model's own threshold is used.
    asked = version_2(
        args,
        init_checkpoint=str(out / "model.ckpt-best"),
        output_dir=str(tmp_path / "asked"),
        do_train=False,
    )
    asked = dataclasses.replace(
        asked,
        predict_file=str(tmp_path / "asked.json"),
        train_file=None,
        train_step=None,  # The default: nothing here depends on steps.
    )
    run_squad.run(asked)
    assert f"below {threshold}" in capfd.readouterr().err
    assert len(read(tmp_path / "asked", "predictions.json")) == 11
    assert not (tmp_path / "asked" / "eval_results.txt").exists()
    own = dataclasses.replace(
        asked, init_checkpoint=str(out), output_dir=str(out)
    )
    run_squad.run(own)
    assert f"below {threshold}" in capfd.readouterr().err
    archive = archive_converted(out, tmp_path)
    run_squad.run(dataclasses.replace(asked, init_checkpoint=archive))
    assert f"below {threshold}" in capfd.readouterr().err
    always = dataclasses.replace(asked, null_score_diff_threshold=1e9)
    run_squad.run(always)
    predictions = read(tmp_path / "asked", "predictions.json")
    nbest = read(tmp_path / "asked", "nbest_predictions.json")
    assert predictions == {i: rows[0]["text"] for i, rows in nbest.items()}


def test_answers_do_not_depend_on_buckets_or_batches(
    finished_1, args, tmp_path
):
    found = []
    for i, (lengths, size) in enumerate([("12", 4), ("", 3), ("9,16", 64)]):
        again = dataclasses.replace(
            args,
            do_train=False,
            train_file=None,
            train_step=None,
            init_checkpoint=str(finished_1.folder / "out/model.ckpt-best"),
            output_dir=str(tmp_path / f"again{i}"),
            bucket_lengths=lengths,
            predict_batch_size=size,
        )
        run_squad.run(again)
        found.append(read(tmp_path / f"again{i}", "nbest_predictions.json"))
    for other in found[1:]:
        for question_id, rows in found[0].items():
            for name in ("start_log_prob", "end_log_prob", "probability"):
                np.testing.assert_allclose(
                    [row[name] for row in other[question_id]],
                    [row[name] for row in rows],
                    atol=1e-5,
                )


def compare_with_text(folder, loaded, paragraphs):
    """Asks the SavedModel that takes text what fits into one window."""
    serve = loaded.signatures["serving_default"]
    # [CLS] w1 w0 [SEP] ... [SEP]
    short = [p for p in paragraphs if len(p["context"].split()) <= 15]
    assert len(short) > 1
    found = serve(
        question=tf.constant([p["qas"][0]["question"] for p in short]),
        context=tf.constant([p["context"] for p in short]),
    )
    wanted = read(folder / "out", "nbest_predictions.json")
    for row, paragraph in enumerate(short):
        best = wanted[paragraph["qas"][0]["id"]][0]
        text = found["answer"].numpy()[row].decode()
        assert text == best["text"]
        start, end = found["start"].numpy()[row], found["end"].numpy()[row]
        assert paragraph["context"][start:end].strip() == text
        np.testing.assert_allclose(
            found["score"][row],
            best["start_log_prob"] + best["end_log_prob"],
            atol=1e-5,
        )
    assert ("is_answered" in found) == ("null_odds" in found)


def check_given_threshold(args, tmp_path):
    """Exports with another threshold, which a reader of the export finds."""
    given = dataclasses.replace(
        args,
        do_train=False,
        do_predict=False,
        output_dir=shutil.copytree(args.output_dir, tmp_path / "out"),
        export_dir=str(tmp_path / "given"),
        export_text_dir=None,
        export_compact=False,
        null_score_diff_threshold=-3.5,
    )
    run_squad.run(given)
    model = pretrained.read_pretrained(tmp_path / "given")
    assert model.head.threshold == -3.5


def ask_export(folder, asked, args):
    """Returns the answers of a SavedModel's signature, and its threshold."""
    (path,) = folder.iterdir()
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    tokenizer = pretrained.read_description(path / "assets").tokenizer
    names = "max_seq_length", "doc_stride", "max_query_length"
    encoded = windows.encode_squad(
        asked,
        tokenizer,
        windows.WindowSettings(*(getattr(args, name) for name in names)),
        is_training=False,
    )
    features = examples.pad_examples(
        encoded, range(len(encoded)), encoded.lengths.max()
    )
    outputs = serve(
        **{name: tf.constant(features[name]) for name in requests.FEATURES}
    )
    outputs = {name: value.numpy() for name, value in outputs.items()}
    threshold = outputs.pop("threshold", None)
    return answers.find_answers(asked, encoded, outputs), threshold


def compare_answers(out, found):
    """Compares `Answers` with those that a run wrote."""
    wanted = read(out, "nbest_predictions.json")
    assert list(found.nbest) == list(wanted)
    for key, entries in wanted.items():
        texts, probabilities = (
            [entry[name] for entry in entries]
            for name in ("text", "probability")
        )
        assert [entry["text"] for entry in found.nbest[key]] == texts
        np.testing.assert_allclose(
            [entry["probability"] for entry in found.nbest[key]],
            probabilities,
            atol=1e-5,
        )
    if found.null_odds:
        odds = read(out, "null_odds.json")
        assert list(found.null_odds) == list(odds)
        np.testing.assert_allclose(
            [*found.null_odds.values()], [*odds.values()], atol=1e-5
        )


@pytest.mark.parametrize(
    ("version", "source"), [("v1", "out"), ("v1", "serving"), ("v2", "out")]
)
def test_an_answerer_answers_as_the_program_does(request, version, source):
    """From a run's folder or an export, it knows the windows."""
    args, folder, _ = request.getfixturevalue(f"finished_{version[1]}")
    answerer = Answerer(folder / source, compute_dtype="float32")
    asked = squad.read_squad(args.predict_file)
    found = answerer(
        [(q.text, asked.contexts[q.context]) for q in asked.questions]
    )
    keys = [question.id for question in asked.questions]
    compare_answers(
        folder / "out",
        answers.Answers(
            {},
            {k: x["answers"] for k, x in zip(keys, found, strict=True)},
            {
                k: x["null_odds"]
                for k, x in zip(keys, found, strict=True)
                if "null_odds" in x
            },
        ),
    )
    predictions = read(folder / "out", "predictions.json")
    for question, answer in zip(asked.questions, found, strict=True):
        # The threshold is the score of a question, which may differ in its
        # last digit here.
        odds = answer.get("null_odds", np.inf)
        if abs(odds - (answerer.threshold or 0)) > 1e-4:
            assert answer["prediction"] == predictions[question.id]
        paragraph = asked.contexts[question.context]
        for entry in answer["answers"]:
            part = paragraph[entry["start"] : entry["end"]]
            assert part == entry["text"]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_an_export_answers_as_the_program_does(request, tmp_path, version):
    args, folder, _ = request.getfixturevalue(f"finished_{version[1]}")
    for kind in ("serving", "text"):
        (path,) = (folder / kind).iterdir()
        loaded = tf.saved_model.load(str(path))
        is_kept = "bert/pooler/dense/kernel" in loaded.weights
        assert is_kept == (version == "v1")
    out = folder / "out"
    content = read(folder, args.predict_file.rsplit("/", 1)[1])
    asked = squad.read_squad(args.predict_file)
    found, threshold = ask_export(folder / "serving", asked, args)
    compare_answers(out, found)
    if version == "v2":
        rows = results_file.read_results(out)
        best = task_heads.best_row(rows, "f1")["null_score_diff_threshold"]
        np.testing.assert_allclose(threshold, best, rtol=1e-6)
        (path,) = (folder / "serving").iterdir()
        head = task_heads.read_head(path / "assets")
        assert head.threshold == best
    if version == "v2":
        check_given_threshold(args, tmp_path)
    compare_with_text(folder, loaded, content["data"][0]["paragraphs"])
    (path,) = (folder / "serving").iterdir()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], str(path))
        signature = meta.signature_def["serving_default"]
        assert set(signature.inputs) == {
            "input_ids",
            "input_mask",
            "segment_ids",
        }
        feed = {i.name: np.ones([2, 7]) for i in signature.inputs.values()}
        outputs = {n: o.name for n, o in signature.outputs.items()}
        assert len(session.run(outputs, feed)) >= 2


@pytest.mark.parametrize("version", [1, 2])
def test_a_model_of_questions_is_trained_further_with_its_head(
    request, tmp_path, model, version
):
    """As in the release; another version has another head."""
    finished = request.getfixturevalue(f"finished_{version}")
    changes = {"train_step": 1, "warmup_step": 0, "learning_rate": 1e-9}
    args = dataclasses.replace(
        finished.args,
        **changes,
        init_checkpoint=str(finished.folder / "out"),
        output_dir=str(tmp_path / "out"),
        do_predict=False,
        export_dir=None,
        export_text_dir=None,
        export_compact=False,
    )
    run_squad.run(args)
    before, after = (
        pretrained.read_pretrained(folder / "out").values
        for folder in (finished.folder, tmp_path)
    )
    assert any(not name.startswith(pretrained.BODY) for name in before)
    for name, value in before.items():
        np.testing.assert_allclose(after[name], value, atol=1e-6)


def test_a_stopped_run_resumes(finished_1, args, tmp_path):
    runs.stop_at(3, run_squad.run, args)
    run_squad.run(args)
    for name in ("eval_results.txt", "nbest_predictions.json"):
        found = (tmp_path / "out" / name).read_text()
        assert found == (finished_1.folder / "out" / name).read_text()


def test_epochs_count_questions_as_in_the_release(args, tmp_path, capfd):
    args = dataclasses.replace(
        args, train_step=None, num_train_epochs=0.7, do_predict=False
    )
    run_squad.run(args)
    # 40 questions, batches of 8; the windows are more.
    assert "to 3, 8 sequences" in capfd.readouterr().err


def test_encoded_data_is_cached_by_everything_it_depends_on(
    args, tmp_path, model
):
    questions = squad.read_squad(args.predict_file)
    lower, cased = (
        tokenization.build_tokenizer(
            vocab_file=str(model / "vocab.txt"), do_lower_case=is_lower
        )
        for is_lower in (True, False)
    )
    kinds = [
        (args, lower, True),
        (args, lower, False),
        (args, cased, False),
        (dataclasses.replace(args, max_query_length=1), lower, False),
    ]
    for num_kept, (changed, tokenizer, is_training) in enumerate(kinds, 1):
        for _ in range(2):
            encoded = run_squad.encode(
                changed,
                args.predict_file,
                questions,
                tokenizer,
                is_training=is_training,
            )
            assert ("start_positions" in encoded.arrays) == is_training
        assert len(list((tmp_path / "cache").iterdir())) == num_kept


def test_steps_are_given_or_come_from_epochs_of_questions(
    args, tmp_path, monkeypatch
):
    content = make_squad(5)
    (paragraph, *_) = content["data"][0]["paragraphs"]
    paragraph["qas"].append({**paragraph["qas"][0], "id": "another"})
    (tmp_path / "train.json").write_text(json.dumps(content))
    ran = []

    def build_tuning(folder, task, model, recipe, **kwargs):
        ran.append((task, recipe))
        raise InterruptedError

    monkeypatch.setattr(run_squad.finetuning, "FineTuning", build_tuning)
    epochs = dataclasses.replace(args, train_step=None)
    for changed in (
        args,
        dataclasses.replace(args, warmup_step=None),
        dataclasses.replace(epochs, warmup_step=None),
        dataclasses.replace(epochs, warmup_step=0),
    ):
        with pytest.raises(InterruptedError):
            run_squad.run(changed)
    found = [
        (r.train_step, r.num_train_epochs, r.warmup_proportion) for _, r in ran
    ]
    assert found == [
        (6, None, None),
        (6, None, 0.1),
        (None, 3.0, 0.1),
        (None, 3.0, None),
    ]
    steps = [recipe.warmup_step for _, recipe in ran]
    assert steps == [args.warmup_step, 0, 0, 0]
    assert [task.num_train for task, _ in ran] == [6] * 4


def test_wrong_data_is_refused_before_any_work(args, tmp_path):
    mixed = dataclasses.replace(args, train_file=str(tmp_path / "train2.json"))
    with pytest.raises(ValueError, match="squad_version=v2"):
        run_squad.run(mixed)
    for name in ("train_file", "predict_file"):
        (tmp_path / "broken.json").write_text('{"data": [')
        broken = {name: str(tmp_path / "broken.json")}
        with pytest.raises(ValueError, match=r"broken\.json is not JSON"):
            run_squad.run(dataclasses.replace(args, **broken))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("version", "answers", "said"),
    [
        ("v1", ((), None), "no answers for 1 of 2 questions"),
        ("v1", ((), (squad.Answer("a", 0),)), "v1 answers all"),
        ("v2", ((), (squad.Answer("a", 0),)), ""),
        ("v2", ((), ()), "no question has an answer. A threshold"),
    ],
)
def test_questions_without_answers_are_said(capsys, version, answers, said):
    args = types.SimpleNamespace(predict_file="a.json", squad_version=version)
    questions = [squad.Question("a", "b", 0, some) for some in answers]
    run_squad.describe_asked(args, questions)
    found = capsys.readouterr().out
    assert said in found and bool(said) == bool(found)
