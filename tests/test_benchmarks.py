"""What the benchmarks do again, and what they do not."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import AlbertConfig
from albert_tf.lab import digests
from albert_tf.model import heads, initial_values, modeling
from benchmarks import (
    exit_losses,
    plateau,
    programs,
    stacked_values,
    studies,
    transfer,
)

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
        return programs.make_records(args, args.train_text, plateau.RECORDS)

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


@pytest.mark.parametrize(
    ("num_groups", "output_power"), [(1, 1), (3, 0.5)], ids=str
)
def test_stacked_values_can_be_those_of_production(num_groups, output_power):
    config = AlbertConfig(
        vocab_size=31,
        hidden_size=256,
        num_hidden_layers=3,
        num_hidden_groups=num_groups,
        num_attention_heads=4,
        intermediate_size=17,
        max_position_embeddings=13,
    )
    values = stacked_values.random_values(config, seed=1)
    names = stacked_values.canonical_names(config)
    assert set(names) == set(values)
    counts = np.arange(31)
    wanted = initial_values.neighbors(
        config, {names[short]: x for short, x in values.items()}, counts
    )
    wanted["cls/predictions/output_bias"] -= np.mean(
        wanted["cls/predictions/output_bias"]
    )
    found = stacked_values.neighbors(
        config,
        values,
        piece_counts=counts,
        amplitude=initial_values.AMPLITUDE,
        slowest=initial_values.SLOWEST,
        unit_projection=True,
        offsets=initial_values.OFFSETS,
        noise=initial_values.NOISE,
        score=initial_values.PEAK / 5.96,
        is_first_alone=True,
        output_power=output_power,
    )
    for short, name in names.items():
        np.testing.assert_allclose(
            found[short],
            wanted.get(name, values[short]),
            rtol=1e-4,
            atol=1e-6,
            err_msg=name,
        )


def test_records_of_studies_are_packed_without_loss():
    rng = np.random.default_rng(0)
    features = {
        "input_ids": rng.integers(5, 99, (3, 16)),
        "input_mask": np.arange(16) < np.array([[16], [9], [12]]),
        "segment_ids": np.zeros((3, 16), int),
        "masked_lm_positions": np.array([[1, 4, 15], [2, 0, 0], [0, 0, 0]]),
        "masked_lm_ids": np.array([[7, 8, 9], [10, 0, 0], [0, 0, 0]]),
        "masked_lm_weights": np.array([[1, 1, 1], [1, 0, 0], [0, 0, 0]]),
        "next_sentence_labels": np.array([[0], [1], [1]]),
    }
    features["segment_ids"][:, 6:9] = 1
    features["segment_ids"][0, 9:] = 1
    found = studies.unpack(studies.pack_batch(features), max_predictions=3)
    for name in "input_ids", "masked_lm_positions", "masked_lm_ids":
        np.testing.assert_array_equal(found[name], features[name])
    np.testing.assert_array_equal(found["num_predictions"], [3, 1, 0])
    np.testing.assert_array_equal(
        found["segment_ends"], [[6, 16], [6, 9], [9, 12]]
    )
    np.testing.assert_array_equal(
        found["next_sentence_labels"], features["next_sentence_labels"]
    )


def test_drawn_depths_are_from_the_least_to_all():
    study = {"min_num_layers": 2, "num_steps": 500}
    config = AlbertConfig(vocab_size=31, num_hidden_layers=5)
    depths = studies.draw_depths(study, config, seed=1)
    assert depths.shape == (500,)
    assert np.unique(depths).tolist() == [2, 3, 4, 5]


@pytest.fixture(scope="module")
def exit_classifier():
    """A function from an `exit_losses.Variant` to such a model."""
    config = AlbertConfig(
        vocab_size=31,
        hidden_size=8,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=17,
        initializer_range=0.5,
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
    )
    settings = {"num_labels": 3, "dropout_prob": 0}
    tf.keras.utils.set_random_seed(1)
    usual = heads.AlbertClassifier(config, exit_loss=True, **settings)
    values = modeling.named_weights(usual)

    def build(variant):
        model = exit_losses.ExitClassifier(config, variant, **settings)
        for name, weight in modeling.named_weights(model).items():
            if name in values:
                weight.assign(values[name])
        return model

    build.usual = usual
    return build


def train_loss(model):
    names = "input_ids", "input_mask", "segment_ids"
    features = {name: tf.constant([[1, 1, 1], [1, 1, 0]]) for name in names}
    features["input_ids"] = tf.constant([[2, 8, 3], [2, 3, 0]])
    features["label_ids"] = tf.constant([2, 0])
    loss = model.ratios(features, training=True)["loss"]
    return float(loss.total / loss.weight), features


def test_the_first_variant_of_exit_losses_is_that_of_exit_loss(exit_classifier):
    wanted, features = train_loss(exit_classifier.usual)
    found, _ = train_loss(exit_classifier(exit_losses.Variant()))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    last, _ = train_loss(exit_classifier(exit_losses.Variant(weights="last")))
    logits = exit_classifier.usual(features)["logits"]
    by_hand = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    np.testing.assert_allclose(
        last, by_hand(features["label_ids"], logits), rtol=1e-5
    )


def test_learned_weights_go_to_the_layers_with_less_loss(exit_classifier):
    model = exit_classifier(exit_losses.Variant(True, "learned"))
    bias = model.learned.bias
    # Whatever the others have, the last layer has the rest of 3.
    bias.assign([0.01, -0.02])
    np.testing.assert_allclose(
        model.loss_weights(), [0.6225, 0.2689, 2.1086], atol=1e-4
    )
    before, _ = train_loss(model)
    with tf.GradientTape() as tape:
        _, features = train_loss(model)
        logits = model.layer_logits(features)  # [2, 3, 3]
        total = model.ratios(features, training=True)["loss"].total
    losses = tf.keras.losses.sparse_categorical_crossentropy(
        tf.repeat(features["label_ids"][:, None], 3, axis=1),
        logits,
        from_logits=True,
    )  # [2, 3]
    means = tf.reduce_mean(losses, axis=0)  # [3]
    np.testing.assert_allclose(
        before, tf.reduce_mean(model.loss_weights() * means), rtol=1e-5
    )
    slopes = tape.gradient(total, bias.value)
    assert (np.sign(slopes) == np.sign(means[:-1] - means[-1])).all()
    names = modeling.named_weights(model)
    assert {"layer_1/output_weights", "layer_2/output_weights"} <= set(names)
