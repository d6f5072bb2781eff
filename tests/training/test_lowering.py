"""The step that a TPU gets: sums over replicas, shapes, size, FLOPs."""

import dataclasses
import math
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import heads, modeling
from albert_tf.model.config import AlbertConfig
from albert_tf.training import flops, loop, lowering, optimization

CONFIG = AlbertConfig(
    vocab_size=31,
    embedding_size=5,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=17,
    max_position_embeddings=11,
)
# Large enough that the products outweigh all else.
WIDE = dataclasses.replace(
    CONFIG, vocab_size=310, embedding_size=50, hidden_size=120
)
B, T, P = 6, 7, 4


def build(config=CONFIG, num_replicas=3, **kwargs):
    return lowering.PretrainingStep(
        config,
        num_replicas,
        max_seq_length=T,
        max_predictions_per_seq=P,
        **{"compute_dtype": "float32", **kwargs},
    )


@pytest.fixture(scope="module")
def text():
    """The lowered step of three replicas."""
    return build().lower(B, stage="hlo")


def random_batch():
    rng = np.random.default_rng(5)
    features = {
        name: rng.integers(0, 2 if "segment" in name else T, spec.shape)
        for name, spec in lowering.feature_specs(B, T, P).items()
    }
    features["input_mask"][:] = 1
    features["sentence_order_labels"] %= 2
    specs = lowering.feature_specs(B, T, P)
    return {n: tf.cast(x, specs[n].dtype) for n, x in features.items()}


def test_the_features_are_those_of_a_model_in_training():
    specs = lowering.feature_specs(B, T, P)
    batch = random_batch()
    model = heads.AlbertForPreTraining(CONFIG)
    assert {*model.ratios(batch, training=True)} == {
        *model.loss_scales,
        *model.metric_names,
    }
    # None that the step does not need.
    for name in specs:
        fewer = {n: x for n, x in batch.items() if n != name}
        with pytest.raises(KeyError, match=name):
            model.ratios(fewer, training=True)


def test_each_gradient_and_loss_weight_is_summed_over_all_replicas(text):
    sums = [x for x in text.splitlines() if " all-reduce(" in x]
    weights = modeling.named_weights(heads.AlbertForPreTraining(CONFIG))
    assert len(sums) == len(weights) + 2
    assert all("replica_groups={{0,1,2}}" in x for x in sums)
    shapes = [re.search(r"f32\[([\d,]*)\]", x)[1] for x in sums]
    wanted = [",".join(map(str, w.shape)) for w in weights.values()]
    assert sorted(shapes) == sorted([*wanted, "", ""])
    for line in sums:
        reducer = re.search(r"to_apply=([^\s,]+)", line)[1]
        _, _, body = text.partition(f"\n{reducer} ")
        assert "ROOT" in body and " add(" in body.partition("\n}")[0]


def test_masks_depend_on_the_replica(text):
    # The fold of the seed with the replica's number.
    assert " replica-id()" in text


def test_all_shapes_are_static(text):
    assert "<=" not in text
    for operation in ("custom-call", "infeed", "outfeed", "set-dimension-size"):
        assert f" {operation}(" not in text


def step_once(strategy, *, jit_compile, **kwargs):
    """Does one step of a new model; returns all results by name."""
    with strategy.scope():
        keras.utils.set_random_seed(3)
        model = heads.AlbertForPreTraining(CONFIG)
        weights = modeling.named_weights(model)
        optimizer = optimization.build_optimizer(
            "lamb",
            {name: weight.value for name, weight in weights.items()},
            optimization.build_schedule(0.01, 100),
        )
    step = loop.build_replica_step(model, optimizer, **kwargs)

    @tf.function(jit_compile=jit_compile, autograph=False)
    def run():
        return strategy.run(step, args=(random_batch(),))

    sums, norm, _ = run()
    found = {name: w.numpy() for name, w in weights.items()}
    return {"sums": sums.numpy(), "norm": norm.numpy(), **found}


def test_one_replica_does_what_the_training_loop_does():
    wanted = step_once(tf.distribute.get_strategy(), jit_compile=False)
    strategy = lowering.CompileOnlyStrategy(1)
    for kwargs in ({}, {"remat": True, "num_parts": 3}):
        found = step_once(strategy, jit_compile=True, **kwargs)
        for name, value in wanted.items():
            np.testing.assert_allclose(
                found[name], value, atol=2e-5, err_msg=name
            )


def test_other_sums_than_those_of_the_loop_are_refused():
    strategy = lowering.CompileOnlyStrategy(2)

    def mean():
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.MEAN, tf.ones([]))

    with pytest.raises(NotImplementedError, match="wanted SUM"):
        tf.function(lambda: strategy.run(mean)).get_concrete_function()


def test_recomputed_layers_with_shared_weights_take_no_more_code():
    def size(num_layers):
        config = dataclasses.replace(
            CONFIG,
            num_hidden_layers=num_layers,
            hidden_dropout_prob=0.1,
            attention_probs_dropout_prob=0.1,
        )
        text = build(config, remat=True).lower(B, stage="hlo")
        return len(re.findall(r"^ +\S+ = ", text, re.M))

    assert size(2) == size(6) > 1000


def count_products(text):
    """Sums 2 M K N over all products of HLO text; loops count once."""
    total = 0
    shapes = dict(
        re.findall(r"^ +(?:ROOT )?(\S+) = \w+\[([\d,]*)\]", text, re.M)
    )
    for line in text.splitlines():
        if " dot(" not in line:
            continue
        name = line.replace("ROOT ", "").split()[0]
        # An operand is a name, after its type in some versions.
        left = re.search(r" dot\((?:\S+ )?(\S+?),", line)[1]
        axes = re.search(r"lhs_contracting_dims={([\d,]+)}", line)[1]
        sizes = [int(n) for n in shapes[left].split(",")]
        contracted = math.prod(sizes[int(axis)] for axis in axes.split(","))
        outputs = [int(n) for n in shapes[name].split(",") if n]
        total += 2 * contracted * math.prod(outputs)
    return total


@pytest.mark.parametrize(
    ("config", "kwargs"),
    [
        (WIDE, {}),
        (
            dataclasses.replace(WIDE, num_hidden_layers=5, num_hidden_groups=2),
            {"remat": True},
        ),
        (
            dataclasses.replace(WIDE, embedding_size=120, inner_group_num=2),
            {"compute_dtype": "bfloat16"},
        ),
    ],
)
def test_the_count_by_hand_is_that_of_the_products(config, kwargs):
    step = build(config, **kwargs)
    found = count_products(step.lower(B, stage="hlo"))
    wanted = step.count_flops(B, loops_once=True)
    assert found == pytest.approx(wanted, rel=0.03)


def test_flops_of_all_layers_add_up():
    shape = B, T, P
    none, one, two = (
        flops.count_flops(CONFIG, *shape, num_layers=n) for n in range(3)
    )
    assert two - one == one - none > 0
    assert two == flops.count_flops(CONFIG, *shape)
    again = flops.count_flops(CONFIG, *shape, remat=True)
    assert again - two == pytest.approx((two - none) / 3)
