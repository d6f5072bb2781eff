"""Estimates of memory: against steps that ran, and by themselves."""

import dataclasses
import json
import os

import pytest

from albert_tf.model import onednn
from albert_tf.model.config import AlbertConfig
from albert_tf.training import memory
from albert_tf.training.settings import Settings
from benchmarks import children, step_memory
from tests import tiny
from tests.conftest import ROOT

SHAPE = 8, 128, 20


def estimate(config=tiny.CONFIG, shape=SHAPE, **kwargs):
    return memory.estimate_training(config, *shape, **kwargs)


def measure(row, words):
    words = f"--compute_dtype=float32 --config={words}".split()
    return children.call(
        "benchmarks.step_memory",
        [*words, f"--serve={row}"],
        **step_memory.COUNTING,
    )


@pytest.mark.parametrize(
    ("row", "words"),
    [
        pytest.param(
            "whole",
            "tiny --batch_size=16 --num_tokens=64",
            marks=pytest.mark.nightly,
        ),
        (
            "recomputed layers",
            "tiny --batch_size=16 --num_tokens=64 --compute_dtype=bfloat16",
        ),
        (
            "inference",
            "small --batch_size=1 --num_tokens=16 --compute_dtype=bfloat16",
        ),
    ],
)
def test_the_estimate_is_that_of_a_real_step(row, words):
    """The parts of the first two are of like size: none may be wrong."""
    if row == "recomputed layers" and not onednn.multiplies_bfloat16():
        # Without its instructions, training in bfloat16 takes a sixth more.
        words = words.replace("bfloat16", "float32")
    found = measure(row, words)
    assert found["estimate"] == pytest.approx(found["tensors"], rel=0.15)


@pytest.mark.nightly
def test_all_blocks_of_a_layer_are_recomputed_at_once(tmp_path):
    config = dataclasses.replace(
        tiny.CONFIG,
        hidden_size=48,
        intermediate_size=160,
        max_position_embeddings=64,
        inner_group_num=5,
    )
    path = tmp_path / "inner.json"
    path.write_text(json.dumps(config.to_dict()))
    name = os.path.relpath(path.with_suffix(""), ROOT / "configs/model")
    found = measure(
        "recomputed layers", f"{name} --batch_size=16 --num_tokens=64"
    )
    assert found["estimate"] == pytest.approx(found["tensors"], rel=0.15)


@pytest.mark.nightly
def test_logits_and_probabilities_are_counted():
    """The masked-LM head outweighs the rest.

    If other programs delay the operations that read the logits, these exist
    beside their gradient, too: a third more.
    """
    found = measure(
        "whole", "small --batch_size=16 --num_tokens=64 --num_predictions=60"
    )
    assert 0.65 < found["estimate"] / found["tensors"] < 1.15


def test_layers_are_kept_or_only_their_inputs():
    deep = dataclasses.replace(tiny.CONFIG, num_hidden_layers=5)
    all_tokens = *SHAPE[:2], None
    kept, deeper = (estimate(c, all_tokens) for c in (tiny.CONFIG, deep))
    assert deeper.activations / kept.activations == 5 / 2
    assert deeper.weights == kept.weights
    again = estimate(deep, remat=True)
    assert again.activations == 5 * 8 * 128 * 12 * 4
    assert again.peak < estimate(deep).peak < deeper.peak


def test_the_last_layer_keeps_the_masked_tokens_and_all_keys():
    config = dataclasses.replace(tiny.CONFIG, hidden_dropout_prob=0.0)
    (all_tokens, some), h, f = (
        [estimate(config, (8, 128, n)).activations for n in (None, 20)],
        12,
        17,
    )
    # Of the inputs, queries, contexts, sums, one norm, inner layers and scores.
    of_all = 8 * 128 * 4 * (5 * h + 2 * f + 128 * 3)
    of_some = 8 * 21 * 4 * (6 * h + 2 * f + 128 * 3)
    assert all_tokens - some == of_all - of_some


def test_memory_grows_with_the_batch_and_the_square_of_the_length():
    one, two = (estimate(shape=(n, 16, None)) for n in (1, 2))
    assert two.activations == 2 * one.activations
    long = estimate(shape=(1, 32, None))
    scores = 2 * 3 * 16 * 16 * 4
    assert long.activations - 2 * one.activations == 2 * scores


def test_bfloat16_halves_what_layers_keep():
    config = dataclasses.replace(tiny.CONFIG, hidden_dropout_prob=0.0)
    single, half = estimate(config), estimate(config, compute_dtype="bfloat16")
    assert single.activations == 2 * half.activations
    assert half.casts > single.casts


def test_inference_keeps_no_layer():
    deep = dataclasses.replace(tiny.CONFIG, num_hidden_layers=9)
    one, other = (
        memory.estimate_inference(c, 2, 16) for c in (tiny.CONFIG, deep)
    )
    assert one == other


def test_a_step_that_needs_too_much_memory_is_warned_of_with_a_remedy():
    def warn(available, batch_size=12, num_parts=1, remat=False, num_choices=1):
        settings = Settings(
            train_batch_size=batch_size,
            gradient_accumulation_steps=num_parts,
            remat=remat,
        )
        return memory.warn_of_training(
            tiny.CONFIG,
            settings,
            128,
            20,
            available=available,
            num_choices=num_choices,
        )

    def peak(batch_size, **kwargs):
        return estimate(shape=(batch_size, 128, 20), **kwargs).peak

    assert warn(peak(12)) is None
    assert "gradient_accumulation_steps=2 needs" in warn(peak(12) - 1)
    # 5 does not divide the batch.
    assert "gradient_accumulation_steps=6 needs" in warn(peak(3) - 1)
    assert "gradient_accumulation_steps=6" in warn(peak(2), num_parts=3)
    assert warn(peak(4), num_parts=3) is None
    both = "gradient_accumulation_steps=12 remat=True needs"
    assert both in warn(peak(1, remat=True))
    # A setting that is on already is not recommended.
    assert "smaller model" in warn(peak(1, remat=True) - 1)
    assert "smaller model" in warn(peak(1, remat=True) - 1, remat=True)
    assert warn(peak(12, remat=True), remat=True) is None
    assert warn(peak(12), batch_size=3, num_choices=4) is None
    assert "=3 needs" in warn(peak(12) - 1, batch_size=3, num_choices=4)
    assert "_steps=2 remat=True" in warn(peak(12, remat=True) - 1, remat=True)


def test_a_sample_of_the_pieces_needs_fewer_logits():
    config = AlbertConfig.from_json_file(ROOT / "configs/model/small.json")

    def working(**kwargs):
        return estimate(config, (64, 128, 100), **kwargs).working

    of_all = working()
    assert of_all == 6400 * 30_000 * 8
    assert working(num_sampled_pieces=8192) == 6400 * 8192 * 8
    # As many as are masked, and no more than there are.
    assert working(num_sampled_pieces=1) == 6400 * 6400 * 8
    assert working(num_sampled_pieces=10**6) == of_all


def test_memory_is_reported_in_gibibytes():
    config = AlbertConfig.from_json_file(ROOT / "configs/model/v2/base.json")
    warning = memory.warn_of_training(
        config,
        Settings(train_batch_size=4096),
        512,
        20,
        available=16 * memory.GIB,
    )
    needed = memory.estimate_training(config, 4096, 512, 20).peak
    assert f"about {needed / memory.GIB:.1f} GiB" in warning
    assert "16.0 GiB are available" in warning
