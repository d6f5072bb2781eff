"""run_embedding: learns, scores, resumes, exports, and is used by Embedder."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf import Embedder
from albert_tf.commands.embed import EmbedFlags
from albert_tf.commands.report import ReportFlags
from albert_tf.commands.run_embedding import EmbeddingFlags
from albert_tf.export import saved_models
from albert_tf.metrics import vectors
from albert_tf.programs import embed, run_embedding
from albert_tf.reports import report
from albert_tf.training import results_file
from albert_tf.weights import task_heads
from tests import runs, tiny


def write_pairs(path, count, *, has_scores=True):
    """Pairs are alike if they have a word in common."""
    rng = np.random.default_rng(count)
    names = ["sentence1", "sentence2", *(["score"] if has_scores else [])]
    lines = ["\t".join(names)]
    for _ in range(count):
        first, second, third = rng.choice(range(1, 21), 3, replace=False)
        is_alike = not has_scores or rng.random() < 0.5
        row = [
            f"w{first} w{second}",
            f"w{first if is_alike else third} w{third}",
        ]
        lines.append("\t".join([*row, str(5 * is_alike)][: len(names)]))
    path.write_text("\n".join(lines))
    return str(path)


@pytest.fixture
def args(tmp_path):
    keras.utils.set_random_seed(3)  # Of the model's weights.
    return EmbeddingFlags(
        train_file=write_pairs(tmp_path / "train.tsv", 400),
        dev_file=write_pairs(tmp_path / "dev.tsv", 60),
        predict_file=write_pairs(tmp_path / "test.tsv", 30),
        output_dir=str(tmp_path / "out"),
        init_checkpoint=str(tiny.write_model(tmp_path)),
        do_train=True,
        do_eval=True,
        do_predict=True,
        train_batch_size=16,
        learning_rate=1e-3,
        train_step=100,
        warmup_step=0,
        save_checkpoints_steps=50,
        max_seq_length=12,
    )


def check_predictions(args, out):
    """A cosine of each pair; later, without the training data, the same."""
    lines = (out / "predictions.tsv").read_text().splitlines()
    assert lines[0] == "index\tcosine" and len(lines) == 31
    (out / "predictions.tsv").unlink()
    later = {"do_train": False, "do_eval": False, "train_file": None}
    later |= {"export_dir": None, "export_text_dir": None}
    run_embedding.run(dataclasses.replace(args, **later))
    assert (out / "predictions.tsv").read_text().splitlines() == lines


@pytest.mark.traced
def test_a_run_learns_scores(args, tmp_path, capfd):
    args = dataclasses.replace(
        args,
        export_dir=str(tmp_path / "ids"),
        export_text_dir=str(tmp_path / "text"),
    )
    run_embedding.run(args)
    out = tmp_path / "out"
    results = results_file.read_results(out)
    assert [row["global_step"] for row in results] == [50, 100]
    best = max(row["spearman"] for row in results)
    assert best > 0.7
    said = "".join(capfd.readouterr())
    assert "400 pairs with scores" in said and "divided by 5" in said
    head = task_heads.read_head(out)
    assert (head.kind, head.pooling) == ("vectors", "mean_all")
    assert "albert embed" in (out / "README.md").read_text()
    # The vectors of the folder are those that were scored.
    rows = (tmp_path / "dev.tsv").read_text().splitlines()[1:]
    texts = [row.split("\t")[:2] for row in rows]
    scores = [float(row.split("\t")[2]) for row in rows]
    embedder = Embedder(out)
    assert embedder.max_seq_length == 12
    flat = embedder([text for pair in texts for text in pair])
    np.testing.assert_allclose(np.linalg.norm(flat, axis=1), 1, rtol=1e-5)
    cosines = (flat[::2] * flat[1::2]).sum(axis=1)
    found = vectors.score_similarity(cosines, scores)["spearman"]
    np.testing.assert_allclose(found, best, atol=0.01)
    # So are those of the exports, and of the command.
    (version,) = (tmp_path / "text").iterdir()
    loaded = saved_models.load_saved_model(version)
    outputs = loaded.signatures["serving_default"](
        text=tf.constant([texts[0][0]])
    )
    np.testing.assert_allclose(outputs["vectors"][0], flat[0], atol=1e-5)
    (version,) = (tmp_path / "ids").iterdir()
    loaded = saved_models.load_saved_model(version)
    ids = [[2, *embedder.tokenizer.encode(texts[0][0]), 3]]
    outputs = loaded.signatures["serving_default"](
        input_ids=tf.constant(ids),
        input_mask=tf.ones_like(ids),
        segment_ids=tf.zeros_like(ids),
    )
    np.testing.assert_allclose(outputs["vectors"][0], flat[0], atol=1e-5)
    (tmp_path / "lines.txt").write_text(texts[0][0] + "\n")
    embed.run(
        EmbedFlags(
            init_checkpoint=str(out),
            input_file=str(tmp_path / "lines.txt"),
            output_file=str(tmp_path / "v.npz"),
        )
    )
    stored = np.load(tmp_path / "v.npz")["vectors"]
    np.testing.assert_allclose(stored[0], flat[0], atol=1e-5)
    check_predictions(args, out)
    args = dataclasses.replace(args, export_dir=None, export_text_dir=None)
    runs.check_two_copies(run_embedding.run, args, "predictions.tsv")


def test_pairs_without_scores_are_ranked(args, tmp_path):
    for name, count in (("train", 200), ("dev", 30)):
        write_pairs(tmp_path / f"{name}.tsv", count, has_scores=False)
    args = dataclasses.replace(
        args,
        do_predict=False,
        pooling="cls",
        learning_rate=1e-2,
        random_seed=0,  # With a quarter of seeds, this little is not learned.
    )
    run_embedding.run(args)
    results = results_file.read_results(tmp_path / "out")
    best = max(row["mrr"] for row in results)
    assert best > 0.4
    page = tmp_path / "report.html"
    report.run(
        ReportFlags(output_dir=str(tmp_path / "out"), output_file=str(page))
    )
    assert "recall at 10" in page.read_text().replace("_", " ")
    assert task_heads.read_head(tmp_path / "out").pooling == "cls"
    # Evaluated elsewhere, it keeps pooling and length; and so does a
    # pretrained model, which has neither.
    trained = str(tmp_path / "out")
    # The temperature is of training alone.
    run_embedding.run(
        dataclasses.replace(args, do_train=False, temperature=0.2)
    )
    other = dataclasses.replace(args, train_step=101, temperature=0.2)
    with pytest.raises(
        ValueError, match="loss.temperature.*0.05, is 0.2: need"
    ):
        run_embedding.run(other)
    for start in (trained, args.init_checkpoint):
        folder = tmp_path / f"scores{start == trained}"
        run_embedding.run(
            dataclasses.replace(
                args,
                do_train=False,
                pooling=None,
                max_seq_length=None,
                init_checkpoint=start,
                output_dir=str(folder),
            )
        )
        (row,) = results_file.read_results(folder)
        if start == trained:
            np.testing.assert_allclose(row["mrr"], best, atol=1e-6)
        else:
            assert row["mrr"] < best - 0.1


def test_single_texts_need_dropout(args, tmp_path):
    (tmp_path / "lines.txt").write_text("w1 w2\nw3 w4\nw5\nw6 w7\n" * 4)
    args = dataclasses.replace(
        args, train_file=str(tmp_path / "lines.txt"), train_step=2
    )
    with pytest.raises(ValueError, match="--hidden_dropout_prob=0.1"):
        run_embedding.run(dataclasses.replace(args, hidden_dropout_prob=0.0))
    run_embedding.run(dataclasses.replace(args, hidden_dropout_prob=0.2))
    assert results_file.read_results(tmp_path / "out")


def test_a_pair_needs_others_in_its_batch(args, tmp_path, capfd):
    path = write_pairs(tmp_path / "train.tsv", 8, has_scores=False)
    args = dataclasses.replace(args, train_file=path, train_batch_size=1)
    with pytest.raises(ValueError, match="train_batch_size=1, but a pair"):
        run_embedding.run(args)
    write_pairs(tmp_path / "dev.tsv", 8)
    text = (tmp_path / "dev.tsv").read_text()
    (tmp_path / "dev.tsv").write_text(text.replace("score", "rating"))
    run_embedding.run(dataclasses.replace(args, do_train=False))
    assert "8 pairs. Columns that are not used: rating." in "".join(
        capfd.readouterr()
    )


def test_a_stopped_run_resumes(args, tmp_path):
    runs.check_resumes(run_embedding.run, args, tmp_path / "again")


def test_parts_of_a_batch_make_the_same_run(args, tmp_path):
    args = dataclasses.replace(
        args, train_step=4, do_predict=False, compute_dtype="float32"
    )
    scores = []
    for parts in (1, 4):
        folder = tmp_path / f"parts{parts}"
        run_embedding.run(
            dataclasses.replace(
                args,
                output_dir=str(folder),
                gradient_accumulation_steps=parts,
                learning_rate=1e-4,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            )
        )
        scores.append(results_file.read_results(folder)[-1]["spearman"])
    np.testing.assert_allclose(*scores, atol=1e-4)
