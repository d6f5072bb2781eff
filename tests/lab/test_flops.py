"""FLOPs; `tests/lab/test_lowering.py` counts those of a real step."""

import dataclasses

import pytest

from albert_tf.lab import flops, summary
from tests import tiny

B, T, P = 2, 7, 3


def test_flops_of_all_layers_add_up():
    none, one, two = (
        flops.count_flops(tiny.CONFIG, B, T, P, num_layers=n) for n in range(3)
    )
    # The last layer computes the predictions and [CLS] alone.
    *_, one_of_all, two_of_all = (
        flops.count_flops(tiny.CONFIG, B, T, None, num_layers=n)
        for n in range(3)
    )
    assert two - one == two_of_all - one_of_all > one - none > 0
    assert two == flops.count_flops(tiny.CONFIG, B, T, P)
    again = flops.count_flops(tiny.CONFIG, B, T, P, remat=True)
    assert again - two == pytest.approx((two - one) / 3)
    again = flops.count_flops(tiny.CONFIG, B, T, None, remat=True)
    assert again - two_of_all == pytest.approx(2 * (two - one) / 3)
    nothing = {"num_layers": 0, "remat": True}
    assert flops.count_flops(tiny.CONFIG, B, T, P, **nothing) == none


def test_the_last_layer_needs_all_keys_and_few_queries():
    all_tokens, some, one = (
        flops.count_forward(tiny.CONFIG, T, n, num_layers=1)
        for n in (None, P, 0)
    )
    for part in ("attention scores", "feed-forward"):
        assert some[part] * T == all_tokens[part] * (P + 1)
        assert one[part] * T == all_tokens[part]
    part = "attention projections"
    assert some[part] * 2 * T == all_tokens[part] * (T + P + 1)


def test_a_step_is_three_forward_passes():
    forward = flops.count_forward(tiny.CONFIG, T, P)
    step = flops.count_flops(tiny.CONFIG, B, T, P)
    assert step == 3 * B * sum(forward.values())


def test_sharing_saves_no_operation():
    apart = dataclasses.replace(tiny.CONFIG, parameter_sharing="none")
    assert flops.count_forward(apart, T, P) == flops.count_forward(
        tiny.CONFIG, T, P
    )


def test_only_the_scores_of_attention_grow_with_length():
    short, long = (
        flops.count_forward(tiny.CONFIG, length) for length in (T, 2 * T)
    )
    for part in flops.LAYERS:
        wanted = 4 if part == "attention scores" else 2
        assert long[part] == wanted * short[part]


def test_a_summary_is_the_sum_of_its_parts():
    found = summary.summarize(tiny.CONFIG, [2, 4], [T, 16], P)
    assert [row["max_seq_length"] for row in found["flops"]] == [T, 16]
    for row in found["flops"]:
        length = row["max_seq_length"]
        step = flops.count_flops(tiny.CONFIG, 1, length, P)
        assert row["training"] * length == pytest.approx(step)
        assert 3 * sum(row["forward"].values()) == pytest.approx(
            row["training"]
        )
    assert len(found["training"]) == 2 * 2 * 2 * 2
    assert found["sharing"]["all"] == found["encoder"]
    assert found["paper"] is None
