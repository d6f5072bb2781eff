"""The step that a TPU gets: sums over replicas, shapes, size, FLOPs."""

import dataclasses
import math
import os
import pathlib
import re
import subprocess

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf import filesystem
from albert_tf.lab import lowering, tpu_check, tpu_environment
from albert_tf.model import heads, modeling
from albert_tf.training import optimization, replicas
from albert_tf.training.settings import Settings
from tests.training.test_loop import CONFIG

# Large enough that the products outweigh all else.
WIDE = dataclasses.replace(
    CONFIG,
    vocab_size=310,
    embedding_size=50,
    hidden_size=120,
    intermediate_size=170,
)
B, T, P = 6, 7, 4


def build(config=CONFIG, num_replicas=3, **kwargs):
    return lowering.PretrainingStep(
        config,
        num_replicas,
        max_seq_length=T,
        max_predictions_per_seq=P,
        recipe=dataclasses.replace(
            lowering.LAMB, **{"compute_dtype": "float32", **kwargs}
        ),
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
    # Rows with very different numbers of predictions.
    features["masked_lm_weights"] = np.arange(P) < np.arange(B)[:, np.newaxis]
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


class OneStep:
    """A new model, its optimizer, and their training step.

    Always of the same initial weights.
    """

    def __init__(self, strategy, **kwargs):
        self.strategy = strategy
        with strategy.scope():
            keras.utils.set_random_seed(3)
            model = heads.AlbertForPreTraining(CONFIG)
            weights = modeling.named_weights(model)
            self.optimizer = optimization.build_optimizer(
                "lamb",
                {name: weight.value for name, weight in weights.items()},
                optimization.build_schedule(0.01, 100),
            )
        self.step = replicas.build_replica_step(
            model, self.optimizer, Settings(**kwargs)
        )

    def named_variables(self):
        return {**self.optimizer.weights, **self.optimizer.slots}

    def run(self, jit_compile=False):
        """Does the step; returns the variables afterwards, by name."""

        @tf.function(jit_compile=jit_compile, autograph=False)
        def run():
            self.strategy.run(self.step, args=(random_batch(),))

        run()
        return {n: v.numpy() for n, v in self.named_variables().items()}


@pytest.fixture(scope="module")
def wanted():
    """The variables after one step, as the training loop does it."""
    return OneStep(tf.distribute.get_strategy()).run()


def assert_close(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, atol=2e-5, err_msg=name)


@pytest.mark.parametrize(
    "kwargs",
    [
        pytest.param({}, marks=pytest.mark.nightly),
        {"remat": True, "gradient_accumulation_steps": 3},
    ],
)
def test_one_replica_does_what_the_training_loop_does(wanted, kwargs):
    step = OneStep(lowering.CompileOnlyStrategy(1), **kwargs)
    assert_close(step.run(jit_compile=True), wanted)


PYTHON = tpu_environment.find_python(filesystem.cache_folder())


@pytest.mark.skipif(
    not os.path.exists(PYTHON),
    reason="needs the TPU compiler: run `albert tpu_check` once",
)
def test_two_replicas_do_what_the_training_loop_does(tmp_path, wanted):
    """The lowered step, run on two CPUs by jax, each with half of the batch."""
    step = OneStep(lowering.CompileOnlyStrategy(2))
    batch = random_batch()

    @tf.function(jit_compile=True, autograph=False)
    def run(*features):
        features = dict(zip(batch, features, strict=True))
        return step.strategy.run(step.step, args=(features,))

    specs = [
        tf.TensorSpec((B // 2, *x.shape[1:]), x.dtype) for x in batch.values()
    ]
    lower = run.experimental_get_compiler_ir(*specs)
    (tmp_path / "step.hlo").write_bytes(lower(stage="hlo_serialized"))
    trace = run.get_concrete_function(*specs)
    by_handle = {id(v.handle): v for v in trace.variables}
    variables = [by_handle[id(handle)] for handle in trace.captured_inputs]
    for name, values in (("split", batch.values()), ("equal", variables)):
        arrays = {str(i): x.numpy() for i, x in enumerate(values)}
        np.savez(tmp_path / f"{name}.npz", **arrays)
    names = "step.hlo split.npz equal.npz outputs.npz".split()
    script = pathlib.Path(__file__).with_name("run_on_cpus.py")
    subprocess.run([PYTHON, str(script), *names], cwd=tmp_path, check=True)
    outputs = np.load(tmp_path / "outputs.npz")
    # After sums, norm and rate come the variables that the step updates.
    after = {id(v): outputs[str(3 + i)] for i, v in enumerate(variables)}
    for replica in range(2):
        found = {
            name: after[id(variable)][replica]
            for name, variable in step.named_variables().items()
        }
        assert_close(found, wanted)


def test_other_sums_than_those_of_the_loop_are_refused():
    strategy = lowering.CompileOnlyStrategy(2)

    def mean():
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.MEAN, tf.ones([]))

    with pytest.raises(NotImplementedError, match="wanted SUM"):
        tf.function(lambda: strategy.run(mean)).get_concrete_function()


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_equal_steps_alone_have_equal_fingerprints():
    wanted = build().fingerprint(B)
    assert build().fingerprint(B) == wanted
    deeper = dataclasses.replace(CONFIG, num_hidden_layers=3)
    others = [
        build().fingerprint(B + 1),
        build(deeper).fingerprint(B),
        build(num_replicas=2).fingerprint(B),
        build(optimizer="adamw").fingerprint(B),
        build(remat=True).fingerprint(B),
    ]
    assert wanted not in others


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
        pytest.param(WIDE, {}, marks=pytest.mark.nightly),
        (
            dataclasses.replace(WIDE, num_hidden_layers=5, num_hidden_groups=2),
            {"remat": True},
        ),
        # 24 predictions.
        (WIDE, {"num_sampled_pieces": 60, "min_num_layers": 1}),
        (WIDE, {"num_sampled_pieces": 9}),
        pytest.param(
            dataclasses.replace(WIDE, embedding_size=120, inner_group_num=2),
            {"compute_dtype": "bfloat16"},
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_the_count_by_hand_is_that_of_the_products(config, kwargs):
    step = build(config, **kwargs)
    found = count_products(step.lower(B, stage="hlo"))
    wanted = tpu_check.count_flops(step, B, loops_once=True)
    assert found == pytest.approx(wanted, rel=0.03)
