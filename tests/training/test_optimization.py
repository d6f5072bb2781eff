"""Schedule, AdamW and LAMB, against the release and ten lines of NumPy."""

import functools
import inspect
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import heads, layers, modeling
from albert_tf.model.config import AlbertConfig
from albert_tf.training import optimization, replicas
from albert_tf.training.settings import scale_to_batch
from tests import recorded as recorded_models

# Schedule


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (0, 0.0),
        (1, 0.1),
        (9, 0.9),
        # The decay runs from step 0: the rate drops where the warmup ends.
        (10, 0.9),
        (99, 0.01),
        (100, 0.0),
        (150, 0.0),
    ],
)
def test_the_schedule_is_the_releases(step, rate):
    schedule = optimization.build_schedule(1.0, 100, 10)
    np.testing.assert_allclose(schedule(step), rate, atol=1e-6)


def test_the_rate_is_never_negative_before_the_warmup_starts():
    schedule = optimization.build_schedule(
        1.0, 100, 10, start_warmup_step=5, poly_power=2.0
    )
    rates = [float(schedule(step)) for step in (0, 4, 5, 6, 14, 15)]
    np.testing.assert_allclose(rates, [0, 0, 0, 0.1, 0.9, 0.85**2], atol=1e-6)


def test_without_warmup_the_decay_begins_at_once():
    schedule = optimization.build_schedule(2.0, 4)
    rates = [float(schedule(step)) for step in range(5)]
    np.testing.assert_allclose(rates, [2.0, 1.5, 1.0, 0.5, 0.0], atol=1e-6)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((1.0, 0), "num_train_steps=0 leaves no step after"),
        ((1.0, 5, 5), "num_warmup_steps=5"),
        ((1.0, 5, -1), "num_warmup_steps=-1"),
        ((float("nan"), 5), "learning_rate is nan"),
        ((-1.0, 5), "learning_rate is -1.0"),
    ],
)
def test_an_impossible_schedule_is_refused(args, message):
    with pytest.raises(ValueError, match=message):
        optimization.build_schedule(*args)


# One step after the other, in NumPy


@pytest.mark.parametrize("name", ["adamw", "lamb"])
@pytest.mark.parametrize("weight_name", ["dense/kernel", "LayerNorm/beta"])
def test_updates_are_those_of_the_paper(name, weight_name):
    rng = np.random.default_rng(5)
    w = rng.standard_normal((3, 4)).astype(np.float32)
    weight = tf.Variable(w)
    optimizer = optimization.build_optimizer(
        name, {weight_name: weight}, lambda step: 0.1
    )
    is_excluded = weight_name == "LayerNorm/beta"
    decay = 0.0 if is_excluded else 0.01
    m = v = 0
    for _ in range(5):
        g = rng.standard_normal((3, 4)).astype(np.float32)
        optimizer.apply({weight_name: tf.constant(g)})
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        update = m / (np.sqrt(v) + 1e-6) + decay * w
        ratio = np.linalg.norm(w) / np.linalg.norm(update)
        w = w - 0.1 * (ratio if name == "lamb" and not is_excluded else 1) * (
            update
        )
        np.testing.assert_allclose(weight, w, rtol=2e-5, atol=1e-6)


def test_each_step_has_its_rate_and_is_counted():
    weight = tf.Variable([0.0])
    optimizer = optimization.build_optimizer(
        "adamw", {"bias": weight}, lambda step: 0.5 * tf.cast(step, tf.float32)
    )
    # A tape gives None for a weight that is not used.
    gradients = {"bias": tf.zeros([1]), "unused": None}
    rates = [float(optimizer.apply(gradients)) for _ in range(3)]
    assert rates == [0.0, 0.5, 1.0]
    assert int(optimizer.step) == 3


def test_a_zero_weight_gets_the_unscaled_update():
    # Scaled by |w| = 0, the weight would stay 0 for ever.
    weight = tf.Variable(tf.zeros([2, 3]))
    optimizer = optimization.build_optimizer(
        "lamb", {"kernel": weight}, lambda step: 0.1
    )
    optimizer.apply({"kernel": tf.ones([2, 3])})
    np.testing.assert_allclose(weight, -0.1 * np.sqrt(10), rtol=1e-4)


def test_norms_and_biases_are_excluded_and_nothing_else():
    config = AlbertConfig(
        vocab_size=7,
        embedding_size=3,
        hidden_size=4,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=5,
    )
    names = modeling.named_weights(heads.AlbertForPreTraining(config))
    decayed = {n for n in names if not optimization.EXCLUDED.search(n)}
    assert decayed == {
        n for n in names if n.endswith(("kernel", "embeddings", "weights"))
    }
    assert len(decayed) == 13


@pytest.mark.skipif(
    "rms_rate" not in inspect.signature(keras.optimizers.Muon).parameters,
    reason="Keras before 3.13 has another scale of updates.",
)
@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4)])
def test_updates_of_kernels_are_those_of_kerass_muon(shape):
    rng = np.random.default_rng(7)
    first = rng.standard_normal(shape).astype(np.float32)
    weight, theirs = tf.Variable(first), keras.Variable(first, name="w")
    optimizer = optimization.build_optimizer(
        "muon", {"dense/kernel": weight}, lambda step: 0.1
    )
    peer = keras.optimizers.Muon(
        learning_rate=0.1, weight_decay=0.1, rms_rate=0.1
    )
    for _ in range(5):
        g = rng.standard_normal(shape).astype(np.float32)
        optimizer.apply({"dense/kernel": tf.constant(g)})
        peer.apply([tf.constant(g)], [theirs])
        np.testing.assert_allclose(weight, theirs.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["bias", "output_weights", "embeddings"])
def test_muon_is_adamw_but_for_kernels(name):
    first = np.arange(6, dtype=np.float32).reshape(2, 3)
    weights, slots = [], []
    for optimizer_name in ("muon", "adamw"):
        weight = tf.Variable(first)
        optimizer = optimization.build_optimizer(
            optimizer_name, {name: weight}, lambda step: 0.1, weight_decay=0.1
        )
        optimizer.apply({name: tf.constant(first + 1)})
        weights.append(weight.numpy())
        slots.append(list(optimizer.slots))
    np.testing.assert_array_equal(*weights)
    assert slots[0] == slots[1] == [f"{name}/adam_m", f"{name}/adam_v"]


def test_muon_keeps_one_moment_of_a_kernel_and_a_zero_gradient_only_decays():
    weight = tf.Variable(tf.ones([2, 3]))
    optimizer = optimization.build_optimizer(
        "muon", {"kernel": weight}, lambda step: 0.5
    )
    assert list(optimizer.slots) == ["kernel/adam_m"]
    optimizer.apply({"kernel": tf.zeros([2, 3])})
    np.testing.assert_allclose(weight, np.full([2, 3], 1 - 0.5 * 0.1))


def test_an_orthogonalized_matrix_has_singular_values_near_one():
    rng = np.random.default_rng(3)
    u, _, v = np.linalg.svd(rng.standard_normal((6, 4)), full_matrices=False)
    values = np.array([1.0, 0.5, 0.1, 0.005])
    x = optimization.orthogonalize(tf.constant((u * values) @ v, tf.float32))
    np.testing.assert_allclose(u.T @ x.numpy() @ v.T, np.eye(4), atol=0.35)


def test_an_unknown_optimizer_is_refused():
    with pytest.raises(ValueError, match="Unknown optimizer 'lamp'"):
        optimization.build_optimizer("lamp", {}, None)


# Trajectories of the release


class Spans(layers.WeightOwner):
    """The release's SQuAD 1.1 head, as far as its optimizer runs need it."""

    loss_scales = {"loss": 1.0}

    def __init__(self, config):
        super().__init__(config, "cls/squad")
        self.encoder = modeling.AlbertEncoder(config)
        self.kernel = self.add("output_weights", (2, config.hidden_size))
        self.bias = self.add("output_bias", (2,), "zeros")

    def ratios(self, batch):
        x = self.encoder(
            batch["input_ids"], batch["input_mask"], batch["segment_ids"]
        )["sequence_output"]
        logits = tf.einsum("bth,kh->kbt", x, self.kernel.value)
        logits += self.bias.value[:, tf.newaxis, tf.newaxis]
        labels = [batch["start_positions"], batch["end_positions"]]
        losses = [
            tf.nn.sparse_softmax_cross_entropy_with_logits(
                tf.reshape(label, [-1]), logit
            )
            for label, logit in zip(labels, tf.unstack(logits), strict=True)
        ]
        mean = tf.reduce_mean(losses[0] + losses[1]) / 2
        return {"loss": heads.Ratio(mean, tf.constant(1.0))}


def read_run(folder, name):
    """Returns the description of a recorded run."""
    return json.loads((folder / "README.json").read_text())["runs"][name]


def build(folder, kind, optimizer):
    """Returns a model of a kind, and an optimizer that has no schedule yet."""
    info = json.loads((folder / "README.json").read_text())
    config = AlbertConfig.from_dict(info["config"])
    is_spans = kind == "squad1"
    model = (Spans if is_spans else heads.AlbertForPreTraining)(config)
    weights = {n: w.value for n, w in modeling.named_weights(model).items()}
    return model, optimization.build_optimizer(optimizer, weights, None)


def begin(folder, name, optimizer):
    """Sets weights and slots to those before a recorded run.

    Returns the run's schedule and its recorded values.
    """
    run = read_run(folder, name)
    initial = recorded_models.read(
        folder / f"{run['kind']}.initial_weights.npz"
    )
    assert set(initial) == set(optimizer.weights)
    for key, weight in optimizer.weights.items():
        weight.assign(initial[key])
    for variable in (*optimizer.slots.values(), optimizer.step):
        variable.assign(tf.zeros_like(variable))
    schedule = optimization.build_schedule(
        run["learning_rate"],
        run["num_train_steps"],
        run["num_warmup_steps"],
        start_warmup_step=run["start_warmup_step"],
        poly_power=run["poly_power"],
    )
    recorded = recorded_models.read(folder / f"{name}.trajectory.npz")
    return schedule, recorded


def read_batches(folder, name):
    """Yields the batch of each step of a recorded run."""
    run = read_run(folder, name)
    is_spans = run["kind"] == "squad1"
    batches = recorded_models.read(folder / "batches.npz")
    for step in range(run["steps_run"]):
        prefix = f"{'squad_batch' if is_spans else 'batch'}{step:02}/"
        batch = {
            k.removeprefix(prefix): tf.constant(v)
            for k, v in batches.items()
            if k.startswith(prefix)
        }
        if not is_spans:
            labels = batch.pop("next_sentence_labels")
            batch["sentence_order_labels"] = tf.reshape(labels, [-1])
        yield batch


@functools.cache
def build_step(folder, kind, optimizer_name):
    """Returns an optimizer, its rate, and the step of all runs of a kind."""
    model, optimizer = build(folder, kind, optimizer_name)
    weights, learning_rate = optimizer.weights, tf.Variable(0.0)
    optimizer.schedule = lambda step: learning_rate

    @tf.function
    def step_once(batch, norm):
        with tf.GradientTape() as tape:
            ratios = model.ratios(batch)
            loss = sum(
                ratios[n].total / (ratios[n].weight + ratios[n].epsilon)
                for n in model.loss_scales
            )
        # The spans do not see the pooler, which then stays as it is.
        gradients = optimization.make_dense(tape.gradient(loss, weights))
        # What the release clipped with: a repeated row counted twice.
        clipped = [g / tf.maximum(norm, 1.0) for g in gradients.values()]
        dense_norm = tf.linalg.global_norm(list(gradients.values()))
        optimizer.apply(dict(zip(gradients, clipped, strict=True)))
        return loss, dense_norm

    return optimizer, learning_rate, step_once


def trained(folder, name):
    """Follows a recorded run; yields step, loss, norm, optimizer, recorded."""
    run = read_run(folder, name)
    optimizer, learning_rate, step_once = build_step(
        folder, run["kind"], run["optimizer"]
    )
    schedule, recorded = begin(folder, name, optimizer)
    for step, batch in enumerate(read_batches(folder, name)):
        # As recorded, also where the release's rate is negative.
        rate = recorded["learning_rate"][step]
        assert float(schedule(step)) == pytest.approx(max(rate, 0), abs=1e-8)
        learning_rate.assign(rate)
        loss, norm = step_once(batch, tf.constant(recorded["grad_norm"][step]))
        yield step, float(loss), float(norm), optimizer, recorded


RUNS = [
    "adamw_p1",
    "lamb_p1",
    "adamw_p2_start2",
    "lamb_p2_start2",
    "adamw_p1_onehot",
    "lamb_p1_onehot",
    "lamb_p1_nowarmup_past_end",
    "adamw_p1_small_lr",
    "lamb_p1_small_lr",
    "squad1_adamw_p1_small_lr",
    "squad1_adamw_p1",
]
# Two correct implementations in float32 drift apart; runs at these rates
# are not chaotic and must agree tightly.
TIGHT = 2e-6


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_the_release_is_followed(golden, name):
    folder = golden(f"optim/{name}.trajectory.npz").parent
    noise = json.loads((folder / "noise_floor.json").read_text())[name]
    floor = np.array(noise["loss_abs_diff_per_step"])
    for step, loss, norm, optimizer, recorded in trained(folder, name):
        # Drift is not monotone: allow the worst so far.
        allowed = 4 * floor[: step + 1].max() + 3e-6
        assert loss == pytest.approx(recorded["loss"][step], abs=allowed)
        # Where all is learned, gradients are differences of nearly 1 and 1.
        assert norm == pytest.approx(
            recorded["grad_norm_dense"][step], rel=1e-5 + 30 * allowed, abs=1e-7
        )
        after = {0: "after_step_1", 4: "after_step_5"}.get(step)
        if after:
            check_weights(folder / f"{name}.weights_{after}", optimizer, noise)
    check_weights(folder / f"{name}.final_weights", optimizer, noise)


def test_the_loops_step_follows_a_run_of_the_release(golden):
    # With one-hot embeddings, the release clips by the same norm as the loop.
    name = "adamw_p1_onehot"
    folder = golden(f"optim/{name}.trajectory.npz").parent
    noise = json.loads((folder / "noise_floor.json").read_text())[name]
    floor = np.array(noise["loss_abs_diff_per_step"])
    model, optimizer = build(folder, "pretrain", "adamw")
    optimizer.schedule, recorded = begin(folder, name, optimizer)
    norms = recorded["grad_norm"]
    np.testing.assert_allclose(norms, recorded["grad_norm_dense"], rtol=1e-6)
    assert (norms > 1).any()  # Some steps are clipped.
    step_once = tf.function(replicas.build_replica_step(model, optimizer))
    for step, batch in enumerate(read_batches(folder, name)):
        sums, norm, _ = step_once(batch)
        allowed = 4 * floor[: step + 1].max() + 3e-6
        loss = replicas.results(model, sums)["loss"]
        assert loss == pytest.approx(recorded["loss"][step], abs=allowed)
        assert float(norm) == pytest.approx(
            norms[step], rel=1e-5 + 30 * allowed
        )
    check_weights(folder / f"{name}.final_weights", optimizer, noise)


def check_weights(stem, optimizer, noise):
    """Compares all weights with a file, within a few times the noise."""
    key = {
        "weights_after_step_1": "max_abs_weight_diff_after_step_1",
        "weights_after_step_5": "max_abs_weight_diff_after_step_5",
    }.get(stem.suffix[1:])
    floors = noise[key or "max_abs_final_weight_diff"]
    worst = max(floors.values())
    # Where all is learned, with oneDNN's kernels for AVX2, it takes 1.2.
    factor = 1.5 if "small_lr" in stem.name else 4
    wanted = recorded_models.read(f"{stem}.npz")
    for name, weight in optimizer.weights.items():
        recorded_models.check(
            weight, wanted[name], factor * worst + TIGHT, name=name
        )


@pytest.mark.parametrize(
    "batch_size, rate, share",
    [
        # Table 4 of the LAMB paper: 5 / (2^k * 10^3), and the share.
        (512, 5 / (2**3.0 * 1e3), 1 / 320),
        (1024, 5 / (2**2.5 * 1e3), 1 / 160),
        (4096, 5 / (2**1.5 * 1e3), 1 / 40),
        (32768, 5 / 1e3, 1 / 5),
        # Beyond the table, the share is that of its end.
        (32, 5 / (2**5.0 * 1e3), 1 / 320),
        (1 << 17, 5 * 2 / 1e3, 1 / 5),
    ],
)
def test_lambs_rate_for_a_batch_size_is_that_of_its_paper(
    batch_size, rate, share
):
    found, num_warmup_steps = scale_to_batch(batch_size, 125_000)
    assert found == pytest.approx(rate, rel=0.005)
    assert num_warmup_steps == round(share * 125_000)


def test_the_rate_at_the_papers_batch_is_the_papers():
    assert scale_to_batch(4096, 125_000) == (0.00176, 3125)
