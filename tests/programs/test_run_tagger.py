"""run_tagger: learns, tags in the file's own form, resumes, exports."""

import dataclasses
import json
import pathlib
import types

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import Tagger, read_pretrained
from albert_tf.commands.report import ReportFlags
from albert_tf.commands.run_tagger import TaggerFlags
from albert_tf.commands.tag import TagFlags
from albert_tf.data import tagged
from albert_tf.export import saved_models
from albert_tf.metrics import tagging
from albert_tf.programs import run_tagger, tag
from albert_tf.reports import report
from albert_tf.training import manifest, results_file
from albert_tf.weights import task_heads
from tests import runs

# What a word is tagged with, in BIOES; others are "O".
NAMES = {
    "w1": ["S-A"],
    "w2 w3": ["B-B", "E-B"],
    "w4 w5 w6": ["B-A", "I-A", "E-A"],
}


def write_sentences(path, count, *, has_tags=True):
    rng = np.random.default_rng(count)
    lines = ["-DOCSTART- O", ""]
    for _ in range(count):
        for _ in range(rng.integers(1, 4)):
            name = rng.choice([*NAMES, "w7", "W8 w9", "w10"])
            tags = NAMES.get(name, ["O"] * len(name.split()))
            for word, some in zip(name.split(), tags, strict=True):
                lines.append(f"{word} {some}" if has_tags else word)
        lines.append("")
    path.write_text("\n".join(lines))
    return str(path)


@pytest.fixture
def args(tmp_path, model):
    return TaggerFlags(
        train_file=write_sentences(tmp_path / "train.txt", 60),
        dev_file=write_sentences(tmp_path / "dev.txt", 11),
        predict_file=write_sentences(tmp_path / "test.conll", 7),
        output_dir=str(tmp_path / "out"),
        init_checkpoint=str(model),
        do_train=True,
        do_eval=True,
        do_predict=True,
        train_batch_size=8,
        learning_rate=1e-2,
        train_step=60,
        save_checkpoints_steps=30,
        max_seq_length=12,
        bucket_lengths="8",
    )


def check_tag(out, tmp_path, capfd):
    """What `albert tag` does with the model."""
    tag.run(TagFlags(init_checkpoint=str(out), text="w7 w2 w3\nw10"))
    said = capfd.readouterr().out
    assert "w7 w2 w3\n" in said and "B w2 w3\n" in said
    path = tmp_path / "tags.jsonl"
    (tmp_path / "texts.txt").write_text("w1 w7\n\nw10\n")
    tag.run(
        TagFlags(
            init_checkpoint=str(out),
            input_file=str(tmp_path / "texts.txt"),
            output_file=str(path),
        )
    )
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["text"] for row in rows][0] == "w1 w7"
    assert rows[0]["spans"][0]["label"] == "A"


@pytest.mark.traced
def test_a_run_learns_scores_and_tags(args, tmp_path, capfd):
    run_tagger.run(args)
    out = tmp_path / "out"
    results = results_file.read_results(out)
    assert [row["global_step"] for row in results] == [30, 60]
    best = task_heads.best_row(results, "f1")
    assert best["f1"] > 0.9
    lines = (out / "dev_predictions.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    dev = tagged.read_tagged(args.dev_file)
    assert [row["text"] for row in rows] == [s.words for s in dev.sentences]
    assert [row["label"] for row in rows] == [s.tags for s in dev.sentences]
    scores = tagging.score(
        [row["label"] for row in rows], [row["prediction"] for row in rows]
    )
    assert scores.items() <= best.items()
    # The file's own form and scheme.
    content = (out / "predictions.conll").read_text()
    assert content.startswith("-DOCSTART- O\n\n")
    wanted = (tmp_path / "test.conll").read_text()
    pairs = list(zip(content.split("\n"), wanted.split("\n"), strict=True))
    assert [a.split()[:1] for a, _ in pairs] == [
        b.split()[:1] for _, b in pairs
    ]
    assert sum(a == b for a, b in pairs) > 0.9 * len(pairs)
    assert "S-A" in content and "E-B" in content
    head = task_heads.read_head(out)
    assert head.kind == "tags"
    assert head.labels == ("O", "B-A", "I-A", "B-B", "I-B")
    assert head.lengths == {"max_seq_length": 12, "doc_stride": 6}
    said = "".join(capfd.readouterr())
    assert "60 sentences of" in said and "'O'" in said
    assert "uncased" in said and "test.conll: {'eval_loss'" in said
    assert "I-" not in said.partition("No training example")[2]
    card = (out / "README.md").read_text()
    assert "albert tag" in card and "albert run_tagger" in card
    assert "best checkpoint on the dev data" in card and "(test.conll)" in card
    page = tmp_path / "report.html"
    report.run(ReportFlags(output_dir=str(out), output_file=str(page)))
    assert "Dev words by label" in page.read_text()

    check_tag(out, tmp_path, capfd)
    runs.check_two_copies(run_tagger.run, args, "predictions.conll")


def test_files_without_tags_are_tagged_but_not_scored(args, tmp_path, capfd):
    path = write_sentences(tmp_path / "words.txt", 4, has_tags=False)
    args = dataclasses.replace(
        args,
        predict_file=path,
        train_step=2,
        export_dir=str(tmp_path / "e"),
        export_text_dir=str(tmp_path / "text"),
    )
    run_tagger.run(args)
    content = (tmp_path / "out" / "predictions.txt").read_text()
    words = [line for line in content.splitlines()[1:] if line]
    assert all(len(line.split(" ")) == 2 for line in words)
    assert "words.txt: {" not in "".join(capfd.readouterr())
    # The folder alone tags the same, and so does the export.
    again = dataclasses.replace(
        args,
        do_train=False,
        do_eval=False,
        init_checkpoint=str(tmp_path / "out"),
        output_dir=str(tmp_path / "again"),
        export_dir=None,
        export_text_dir=None,
        max_seq_length=None,
        doc_stride=None,
    )
    run_tagger.run(again)
    # It has the length of the training, not that of the model.
    assert manifest.read_setting(tmp_path / "again", "max_seq_length") == 12
    # It does not know the scheme of the training data: IOB2.
    content = content.replace(" S-", " B-").replace(" E-", " I-")
    assert (tmp_path / "again" / "predictions.txt").read_text() == content
    (version,) = (tmp_path / "e").iterdir()
    loaded = saved_models.load_saved_model(version)
    outputs = loaded.signatures["serving_default"](
        input_ids=tf.constant([[2, 6, 7, 3]]),
        input_mask=tf.ones([1, 4], tf.int32),
        segment_ids=tf.zeros([1, 4], tf.int32),
    )
    assert outputs["predictions"].shape == (1, 4)
    assert (
        outputs["probabilities"].shape == outputs["logits"].shape == (1, 4, 5)
    )
    np.testing.assert_allclose(
        outputs["probabilities"].numpy().sum(-1), 1, rtol=1e-6
    )
    (version,) = (tmp_path / "text").iterdir()
    loaded = saved_models.load_saved_model(version)
    text = "W8 w9. w1"
    outputs = loaded.signatures["serving_default"](text=tf.constant([text]))
    (answer,) = Tagger(tmp_path / "out")([text])
    assert [tag.decode() for tag in outputs["tags"].numpy()[0]] == [
        word["tag"] for word in answer["words"]
    ]


def test_a_stopped_run_resumes(args, tmp_path):
    again = runs.check_resumes(run_tagger.run, args, tmp_path / "again")
    # The same words with another tag are other data.
    text = pathlib.Path(args.train_file).read_text()
    pathlib.Path(args.train_file).write_text(text.replace("S-A", "S-B", 1))
    with pytest.raises(ValueError, match="data"):
        run_tagger.run(dataclasses.replace(again, train_step=8))


@pytest.mark.parametrize("name", ["NOUN", "B-C"])
def test_tags_that_training_lacks_are_said(args, tmp_path, capfd, name):
    path = tmp_path / "dev.txt"
    path.write_text(path.read_text() + f"\nw1 {name}\n")
    args = dataclasses.replace(args, train_step=2, do_predict=False)
    if name == "NOUN":
        with pytest.raises(ValueError, match="tags are of spans"):
            run_tagger.run(args)
        return
    run_tagger.run(args)
    assert "has the tags ['B-C', 'I-C'], which are never" in (
        capfd.readouterr().out
    )
    (row, *_) = results_file.read_results(tmp_path / "out")
    assert np.isfinite(row["eval_loss"])


@pytest.mark.parametrize("flag", ["dev_file", "predict_file"])
@pytest.mark.parametrize("tags", ["NOUN VERB", "NOUN O"])
def test_a_file_of_other_tags_is_refused(args, tmp_path, flag, tags):
    path = tmp_path / "other.txt"
    first, second = tags.split()
    path.write_text(f"w1 {first}\nw2 {second}\n")
    args = dataclasses.replace(args, **{flag: str(path)})
    with pytest.raises(ValueError, match=r"has the tags \['NOUN'.*'B-A'"):
        run_tagger.run(args)


def test_blank_tags_of_conllu_are_none(args, tmp_path, capfd):
    path = tmp_path / "blank.conllu"
    rows = [f"{i}\tw{i}" + 8 * "\t_" for i in range(1, 4)]
    path.write_text("\n".join(rows) + "\n\n")
    run_tagger.run(
        dataclasses.replace(args, predict_file=str(path), train_step=2)
    )
    content = (tmp_path / "out" / "predictions.conllu").read_text()
    tags = [line.split("\t")[3] for line in content.splitlines() if line]
    assert len(tags) == 3 and "_" not in tags
    assert "blank.conllu: {" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("tags", "predicted", "is_scored"),
    [
        ("O O O", "B-A M-A E-A", False),
        ("S-A O S-B", "B-A M-A E-A", True),
        ("B-A I-A O", "B-A I-A I-A", True),
    ],
)
def test_tags_have_the_scheme_of_the_training_data_if_it_fits(
    args, tmp_path, model, tags, predicted, is_scored
):
    """Spans of one word are alike in BMES and in BIOES."""
    path = pathlib.Path(args.train_file)
    path.write_text(path.read_text().replace("I-A", "M-A"))
    test, words = tmp_path / "test.txt", ["w1", "w2", "w3"]

    def content(tags):
        rows = zip(words, tags.split(), strict=True)
        return "".join(f"{word} {tag}\n" for word, tag in rows)

    test.write_text(content(tags))
    args = dataclasses.replace(
        args, predict_file=str(test), do_eval=False, doc_stride=6
    )
    task = run_tagger.read_task(args, read_pretrained(model))
    task.predict = lambda *_: np.eye(5)[[1, 2, 2]]
    reporter = types.SimpleNamespace(say=print)
    tuning = types.SimpleNamespace(folder=str(tmp_path), reporter=reporter)
    assert bool(task.write_predictions(tuning)) == is_scored
    written = (tmp_path / "predictions.txt").read_text()
    assert written == content(predicted)


def test_plain_tags_are_scored_by_words(args, tmp_path):
    for part, count in (("train", 40), ("dev", 9)):
        write_sentences(tmp_path / f"{part}.txt", count)
        text = (tmp_path / f"{part}.txt").read_text()
        text = text.replace("S-A", "NOUN").replace("B-B", "VERB")
        lines = [
            line if line.split()[1:] != ["O"] else line[:-1] + "X"
            for line in text.split("\n")
        ]
        text = "\n".join(lines)
        for old in ("E-B", "B-A", "I-A", "E-A"):
            text = text.replace(old, "X")
        (tmp_path / f"{part}.txt").write_text(text)
    run_tagger.run(dataclasses.replace(args, train_step=4, do_predict=False))
    (row, *_) = results_file.read_results(tmp_path / "out")
    assert "f1" not in row and 0 < row["eval_accuracy"] <= 1
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["metric"] == "eval_accuracy"
