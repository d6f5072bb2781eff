"""The training loop: replicas, resuming, XLA, TPUStrategy, divergence."""

import dataclasses
import functools
import gc
import io
import json
import signal
import types
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph

from albert_tf import progress
from albert_tf.model import heads, modeling
from albert_tf.model.config import AlbertConfig
from albert_tf.model.dropout import Dropout
from albert_tf.training import (
    distribution,
    divergence,
    evaluation,
    loop,
    optimization,
    replicas,
    reporting,
    workers,
)
from albert_tf.training.settings import Settings
from albert_tf.weights import checkpoints, task_heads
from tests import eager, sessions, tiny

CONFIG = AlbertConfig(**tiny.SIZES)
BATCH_SIZE = 8
NUM_STEPS = 10
# All ways to split a batch at once.
REPLICAS_AND_PARTS = (2, {"gradient_accumulation_steps": 2, "remat": True})


def batches(num_steps=NUM_STEPS, batch_size=BATCH_SIZE):
    """Batches whose rows have very different numbers of predictions."""
    rng = np.random.default_rng(11)
    shape = (num_steps, batch_size, 7)
    weights = np.zeros((num_steps, batch_size, 4), np.float32)
    for row in range(batch_size):
        weights[:, row, : 1 + row % 4] = 1
    return {
        "input_ids": rng.integers(5, 31, shape, np.int32),
        "input_mask": np.ones(shape, np.int32),
        "segment_ids": rng.integers(0, 2, shape, np.int32),
        "masked_lm_positions": rng.integers(0, 7, (*shape[:2], 4), np.int32),
        "masked_lm_ids": rng.integers(5, 31, (*shape[:2], 4), np.int32),
        "masked_lm_weights": weights,
        "sentence_order_labels": rng.integers(0, 2, shape[:2], np.int32),
    }


def dataset(start=0):
    return tf.data.Dataset.from_tensor_slices(batches()).skip(start).repeat()


@dataclasses.dataclass
class Run:
    """Model, optimizer and data, created in a strategy's scope."""

    strategy: tf.distribute.Strategy
    model: heads.AlbertForPreTraining
    optimizer: optimization.Optimizer
    manager: checkpoints.CheckpointManager

    def session(self, num_train_steps, reporter, **kwargs):
        return sessions.ModelSession(
            self.strategy,
            self.model,
            self.optimizer,
            self.manager,
            reporter,
            Settings(train_batch_size=BATCH_SIZE, random_seed=3, **kwargs),
            num_train_steps,
        )

    def train(self, num_train_steps, evaluator=None, guard=None, **kwargs):
        output = io.StringIO()
        reporter = reporting.Reporter(self.manager.folder, output)
        session = self.session(num_train_steps, reporter, **kwargs)
        loop.train(
            session,
            {"rows": dataset(session.step)},
            evaluator=evaluator,
            guard=guard,
        )
        return output.getvalue()

    def values(self):
        return {
            name: variable.numpy()
            for name, variable in self.manager.variables.items()
        }


def build(
    folder,
    *,
    num_replicas=1,
    config=CONFIG,
    rate=0.1,
    optimizer="lamb",
    sentence_weight=1.0,
):
    strategy = tf.distribute.get_strategy()
    if num_replicas > 1:
        devices = tuple(f"/device:CPU:{i}" for i in range(num_replicas))
        strategy = distribution.build_mirrored(devices)
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = heads.AlbertForPreTraining(
            config, sentence_weight=sentence_weight
        )
        weights = {n: w.value for n, w in modeling.named_weights(model).items()}
        optimizer = optimization.build_optimizer(
            optimizer,
            weights,
            optimization.build_schedule(rate, 20, 3),
        )
    variables = {
        **weights,
        **optimizer.slots,
        checkpoints.STEP: optimizer.step,
    }
    manager = checkpoints.CheckpointManager(folder, variables)
    return Run(strategy, model, optimizer, manager)


@pytest.fixture(scope="module")
def after_whole_batches(tmp_path_factory):
    """The weights after steps of whole batches on one device."""
    whole = build(tmp_path_factory.mktemp("whole"))
    before = whole.values()
    with eager.steps():
        whole.train(NUM_STEPS)
    after = whole.values()
    moved = {n for n in after if np.abs(after[n] - before[n]).max() > 1e-3}
    still = set(whole.optimizer.weights) - moved
    # The bias of keys adds the same to all scores of a query, so that its
    # gradient is 0.
    assert {name.split("/")[-2] for name in still} == {"key"}
    return after


@pytest.mark.parametrize(
    "num_replicas, kwargs",
    [
        (2, {}),
        pytest.param(
            1, {"gradient_accumulation_steps": 4}, marks=pytest.mark.eager
        ),
        REPLICAS_AND_PARTS,
    ],
    ids=str,
)
def test_a_split_batch_leads_to_the_weights_of_a_whole_one(
    tmp_path, after_whole_batches, num_replicas, kwargs
):
    run = build(tmp_path, num_replicas=num_replicas)
    run.train(NUM_STEPS, **kwargs)
    found = run.values()
    for name, value in after_whole_batches.items():
        np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=name)


def test_replicas_that_train_with_muon_have_equal_weights(tmp_path):
    whole = build(tmp_path / "whole", optimizer="muon", rate=0.02)
    with eager.steps():
        whole.train(NUM_STEPS)
    run = build(tmp_path, num_replicas=2, optimizer="muon", rate=0.02)
    run.train(NUM_STEPS)
    found = run.values()
    for name, value in whole.values().items():
        np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=name)
    for first, second in map(
        run.strategy.experimental_local_results, run.optimizer.weights.values()
    ):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    "num_replicas, kwargs", [(1, {}), REPLICAS_AND_PARTS], ids=str
)
def test_a_training_that_has_ended_leaves_nothing_in_memory(
    tmp_path, num_replicas, kwargs
):
    def train():
        run = build(tmp_path / str(len(left)), num_replicas=num_replicas)
        run.train(1, **kwargs)
        left.append(
            weakref.ref(run.optimizer.weights["bert/pooler/dense/bias"])
        )

    def count_graphs():
        gc.collect()
        return sum(isinstance(x, FuncGraph) for x in gc.get_objects())

    left: list = []
    # Twice, as a first training traces functions that are kept for all others.
    for _ in range(2):
        before = count_graphs()
        train()
        if (after := count_graphs()) <= before:
            break
    assert after <= before
    assert left[-1]() is None


def test_weights_without_gradient_stay_in_parts(tmp_path):
    run = build(tmp_path, sentence_weight=0.0)
    before = run.values()
    run.train(2, gradient_accumulation_steps=2)
    after = run.values()
    unused = {"bert/pooler/dense/kernel", "cls/seq_relationship/output_weights"}
    for name in run.optimizer.weights:
        is_same = np.array_equal(after[name], before[name])
        assert is_same or name not in unused
        # Weight decay and moments would change them.
        assert not is_same or "kernel" not in name or name in unused


@pytest.mark.eager
def test_the_seed_of_dropout_depends_on_the_step(tmp_path, monkeypatch):
    find_seed = replicas.replica_seed
    steps = []

    def record(seed, step):
        steps.append(int(step))
        return find_seed(seed, step)

    monkeypatch.setattr(replicas, "replica_seed", record)
    build(tmp_path).train(3)
    assert steps == [0, 1, 2]


def test_replicas_drop_other_values(tmp_path):
    strategy = build(tmp_path, num_replicas=2).strategy

    @tf.function
    def masks(step):
        return strategy.run(
            lambda: Dropout(replicas.replica_seed(3, step))(tf.ones([32]), 0.5)
        )

    first, second = strategy.experimental_local_results(masks(0))
    assert (first.numpy() != second.numpy()).any()
    third, _ = strategy.experimental_local_results(masks(1))
    assert (first.numpy() != third.numpy()).any()


@pytest.mark.parametrize("optimizer", ["lamb", "muon"])
def test_the_step_compiles_with_xla(tmp_path, optimizer):
    plain, compiled = (
        build(tmp_path / name, optimizer=optimizer) for name in "ab"
    )
    with eager.steps():
        plain.train(3)
    compiled.train(3, xla=True, gradient_accumulation_steps=2, remat=True)
    found = compiled.values()
    for name, value in plain.values().items():
        np.testing.assert_allclose(found[name], value, atol=2e-5, err_msg=name)


def test_dropout_compiles_with_xla():
    # XLA draws different numbers, but as many of them.
    @tf.function(jit_compile=True)
    def drop(seed):
        return Dropout(seed)(tf.ones([10000]), 0.25)

    dropped = drop(tf.constant([1, 2])).numpy()
    assert abs(np.mean(dropped == 0) - 0.25) < 0.02
    assert abs(dropped.mean() - 1) < 0.02


@pytest.mark.parametrize(
    "kwargs", [{}, {"gradient_accumulation_steps": 2, "remat": True}]
)
def test_the_loop_traces_under_the_real_tpu_strategy(kwargs):
    strategy = tpu_strategy_on_cpus(num_replicas=2)
    config = dataclasses.replace(CONFIG, hidden_dropout_prob=0.3)
    with strategy.scope():
        model = heads.AlbertForPreTraining(config, dtype="mixed_bfloat16")
        weights = {n: w.value for n, w in modeling.named_weights(model).items()}
        optimizer = optimization.build_optimizer(
            "lamb", weights, optimization.build_schedule(0.1, 20, 3)
        )
    train_steps = replicas.build_train_function(
        strategy, model, optimizer, Settings(**kwargs)
    )
    iterator = iter(
        tf.data.Dataset.from_tensor_slices(batches(batch_size=4)).repeat()
    )
    graph = train_steps.get_concrete_function(
        iterator, tf.TensorSpec([], tf.int32)
    ).graph
    found = {
        op.type
        for function in graph._functions.values()
        for op in function.graph.get_operations()
    } | {op.type for op in graph.get_operations()}
    assert "TPUReplicateMetadata" in found
    assert "CrossReplicaSum" in found


def tpu_strategy_on_cpus(num_replicas):
    """The real TPUStrategy, with logical CPUs where it expects cores.

    Its code can be traced, but not run: the kernels are missing.
    """
    from tensorflow.python.distribute import tpu_strategy
    from tensorflow.python.tpu import tpu_system_metadata

    job = "/job:localhost/replica:0/task:0/device"
    metadata = tpu_system_metadata.TPUSystemMetadata(
        num_cores=num_replicas,
        num_hosts=1,
        num_of_cores_per_host=num_replicas,
        topology=None,
        devices=[
            types.SimpleNamespace(name=f"{job}:TPU:{i}")
            for i in range(num_replicas)
        ],
    )
    resolver = types.SimpleNamespace(
        get_tpu_system_metadata=lambda: metadata,
        master=lambda: "",
        get_master=lambda: "",
        cluster_spec=lambda: None,
    )
    strategy = tpu_strategy.TPUStrategyV2(resolver)
    strategy.extended._tpu_devices = np.array(
        [[f"{job}:CPU:{i}"] for i in range(num_replicas)], dtype=object
    )
    return strategy


@pytest.mark.eager
def test_a_loss_that_is_not_finite_ends_the_run(tmp_path):
    run = build(tmp_path)
    run.optimizer.weights["cls/predictions/output_bias"].assign(
        np.full([31], np.nan, np.float32)
    )
    with pytest.raises(FloatingPointError, match="Lower the learning rate"):
        run.train(NUM_STEPS)
    assert not checkpoints.list_checkpoints(tmp_path)


@pytest.mark.eager
@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_resumed_run_that_diverges_is_stopped(
    tmp_path, monkeypatch, is_interrupted
):
    """A signal during the call does not save the diverged weights."""
    monkeypatch.setattr(divergence, "NUM_PREDICTIONS", 1)
    build(tmp_path).train(4)
    # The guard takes the losses to come for a relapse from this one.
    losses = {2: 6.0, 4: 0.5}
    lines = (
        json.dumps({"split": "train", "step": step, "loss": loss})
        for step, loss in losses.items()
    )
    (tmp_path / "metrics.jsonl").write_text("".join(f"{x}\n" for x in lines))
    run = build(tmp_path)
    run.manager.restore_latest()
    before = checkpoints.list_checkpoints(tmp_path)
    if is_interrupted:
        run_steps = loop.Steps.run

        def interrupt(self, limit):
            signal.raise_signal(signal.SIGINT)
            return run_steps(self, limit)

        monkeypatch.setattr(loop.Steps, "run", interrupt)
    with pytest.raises(FloatingPointError, match="to 0.500 at step 4"):
        run.train(NUM_STEPS, guard=divergence.Guard())
    assert checkpoints.list_checkpoints(tmp_path) == before


@pytest.mark.parametrize(
    ("step_seconds", "wanted"), [(0.001, 1000), (0.125, 160), (6, 3), (30, 1)]
)
def test_calls_of_a_tpu_are_long_but_end_soon_enough(step_seconds, wanted):
    """Between calls, a signal is noticed; each return to Python costs time."""
    session = sessions.ModelSession(
        tpu_strategy_on_cpus(2), None, None, None, None, Settings(), 9
    )
    steps = loop.Steps(session, None)
    for _ in range(12):
        num_steps = steps.choose(10**6)
        steps.note(num_steps, num_steps * step_seconds)
    assert steps.choose(10**6) == wanted
    assert steps.choose(2) == min(2, wanted)


@pytest.mark.eager
def test_an_interrupt_loses_nothing(tmp_path):
    run = build(tmp_path)
    reporter = reporting.Reporter(tmp_path, io.StringIO())

    def interrupt(step, values, is_compiling):
        if step >= 4:
            raise KeyboardInterrupt

    reporter.progress = interrupt
    with pytest.raises(KeyboardInterrupt):
        loop.train(run.session(NUM_STEPS, reporter), {"rows": dataset()})
    (prefix,) = checkpoints.list_checkpoints(tmp_path)
    assert checkpoints.step_of(prefix) >= 4
    assert "Rerun the same command to resume" in reporter.line.stream.getvalue()


@pytest.mark.eager
def test_an_interrupt_at_the_step_of_a_damaged_checkpoint_loses_nothing(
    tmp_path, monkeypatch
):
    build(tmp_path).train(4, save_checkpoints_steps=2)
    (tmp_path / "model.ckpt-4.data-00000-of-00001").write_bytes(b"")
    run = build(tmp_path)
    assert run.manager.restore_latest().endswith("model.ckpt-2")

    def interrupt(reporter, step, *_):
        if step == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(reporting.Reporter, "progress", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run.train(NUM_STEPS, save_checkpoints_steps=4)
    found = checkpoints.read_checkpoint(tmp_path / "model.ckpt-4")
    assert found[checkpoints.STEP] == 4


@pytest.mark.eager
def test_workers_stop_at_a_signal_of_the_last_step(tmp_path, monkeypatch):
    run = build(tmp_path)

    def stop():
        if run.optimizer.step == 2:
            raise KeyboardInterrupt

    together = workers.find_workers(run.strategy)
    monkeypatch.setattr(together, "check_signals", stop)
    with pytest.raises(KeyboardInterrupt):
        run.train(2)
    assert len(checkpoints.list_checkpoints(tmp_path)) == 1


@pytest.mark.eager
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_a_call_computed_is_logged_before_it_stops(
    tmp_path, monkeypatch, number
):
    run_steps = loop.Steps.run

    def interrupt(self, limit):
        computed = run_steps(self, limit)
        signal.raise_signal(number)
        return computed

    def stop(number, frame):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop.Steps, "run", interrupt)
    before = [signal.signal(n, stop) for n in (signal.SIGINT, signal.SIGTERM)]
    try:
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path).train(NUM_STEPS, log_every_steps=1)
        assert signal.getsignal(number) is stop
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])
    rows = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [1]
    assert len(checkpoints.list_checkpoints(tmp_path)) == 1


@pytest.mark.eager
def test_compiled_calls_end_at_logs_and_checkpoints(tmp_path):
    steps = []
    run = build(tmp_path)
    run.train(
        NUM_STEPS,
        save_checkpoints_steps=4,
        log_every_steps=3,
        evaluator=types.SimpleNamespace(
            evaluate=lambda step, prefix: steps.append((step, prefix[-2:]))
        ),
    )
    assert steps == [(4, "-4"), (8, "-8"), (10, "10")]
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [3, 6, 9, 10]


@pytest.mark.eager
def test_evaluation_counts_every_row_once(tmp_path):
    rows = {k: v.reshape(-1, *v.shape[2:]) for k, v in batches(2, 7).items()}
    results = []
    for num_replicas, batch_size in ((1, 4), (2, 4), (1, 14), (2, 16)):
        run = build(tmp_path, num_replicas=num_replicas)
        padding = -14 % batch_size
        padded = {
            k: np.concatenate([v, np.zeros_like(v[:padding])])
            for k, v in rows.items()
        }
        padded["example_weight"] = np.repeat(
            np.array([1, 0], np.float32), [14, padding]
        )
        results.append(
            evaluation.evaluate(
                run.strategy,
                run.model,
                evaluation.build_eval_function(run.strategy, run.model),
                tf.data.Dataset.from_tensor_slices(padded).batch(batch_size),
            )
        )
    for other in results[1:]:
        assert other == pytest.approx(results[0], rel=1e-5)


@pytest.mark.eager
def test_the_best_checkpoint_is_kept_and_results_are_not_repeated(tmp_path):
    run = build(tmp_path, rate=0.5)
    output = io.StringIO()
    score = functools.partial(
        evaluation.evaluate,
        run.strategy,
        run.model,
        evaluation.build_eval_function(run.strategy, run.model),
        tf.data.Dataset.from_tensor_slices(batches(3)),
    )
    evaluator = evaluation.Evaluator(
        score,
        manager=run.manager,
        reporter=reporting.Reporter(tmp_path, output),
        best_metric="masked_lm_accuracy",
    )
    run.train(
        NUM_STEPS,
        save_checkpoints_steps=2,
        evaluator=evaluator,
    )
    accuracies = evaluator.known("masked_lm_accuracy")
    assert evaluator.known("global_step") == [2, 4, 6, 8, 10]
    best = checkpoints.read_checkpoint(tmp_path / "model.ckpt-best")
    # Of equally good checkpoints, the first is kept.
    assert best["global_step"] == 2 * (1 + np.argmax(accuracies))
    evaluator.evaluate_folder()
    assert len(evaluator.known("global_step")) == 5
    assert output.getvalue().count("its result is in") == 5


@pytest.mark.parametrize(
    ("losses", "best_step"),
    [([0.9, 0.7, 0.8], 2), ([0.7, 0.7, 0.8], 1), ([None] * 3, 1)],
    ids=["lower loss", "equal loss", "without losses"],
)
def test_of_equal_scores_the_lowest_loss_is_kept(tmp_path, losses, best_step):
    def score():
        loss = losses[step - 1]
        values = {} if loss is None else {"eval_loss": loss}
        return {"eval_accuracy": 0.5} | values

    variable = tf.Variable(0, dtype=tf.int64)
    manager = checkpoints.CheckpointManager(
        tmp_path, {checkpoints.STEP: variable}
    )
    evaluator = evaluation.Evaluator(
        score,
        manager=manager,
        reporter=reporting.Reporter(tmp_path, is_silent=True),
        best_metric="eval_accuracy",
    )
    for step in range(1, 4):
        variable.assign(step)
        evaluator.evaluate(step, manager.save())
    best = checkpoints.read_checkpoint(tmp_path / "model.ckpt-best")
    assert best[checkpoints.STEP] == best_step
    row = task_heads.best_row(evaluator.results(), "eval_accuracy")
    assert row["global_step"] == best_step


@pytest.mark.eager
def test_an_evaluation_shows_how_far_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "LOG_SECONDS", 0)
    run = build(tmp_path)
    function = evaluation.build_eval_function(run.strategy, run.model)
    dataset = tf.data.Dataset.from_tensor_slices(batches(3))
    for max_steps, wanted in (
        (0, ["33%", "67%", "100%"]),
        (2, ["50%", "100%"]),
    ):
        evaluation.evaluate(
            run.strategy, run.model, function, dataset, max_steps, num_batches=3
        )
        lines = capsys.readouterr().err.splitlines()
        shown = [x.split()[1] for x in lines if x.startswith("evaluating")]
        assert shown == wanted
    evaluation.evaluate(run.strategy, run.model, function, dataset)
    assert "evaluating" not in capsys.readouterr().err


@pytest.mark.eager
def test_workers_can_stop_after_every_batch_of_an_evaluation(
    tmp_path, monkeypatch
):
    run = build(tmp_path)
    function = evaluation.build_eval_function(run.strategy, run.model)
    done = []

    def stop_at_second():
        if len(done) == 2:
            raise KeyboardInterrupt

    together = workers.find_workers(run.strategy)
    monkeypatch.setattr(together, "check_signals", stop_at_second)
    with pytest.raises(KeyboardInterrupt):
        evaluation.evaluate(
            run.strategy,
            run.model,
            lambda features: done.append(1) or function(features),
            tf.data.Dataset.from_tensor_slices(batches(3)),
        )
    assert len(done) == 2


def test_an_empty_evaluation_is_an_error(tmp_path):
    run = build(tmp_path)
    with pytest.raises(ValueError, match="no examples"):
        evaluation.evaluate(
            run.strategy,
            run.model,
            evaluation.build_eval_function(run.strategy, run.model),
            tf.data.Dataset.from_tensor_slices(batches()).take(0),
        )


@pytest.mark.parametrize(
    "indexes, message",
    [
        ([0, 1, 3, 3], "1 have no prediction and 0 have several"),
        ([0, 1, 1, 2], "0 have no prediction and 1 have several"),
    ],
)
def test_each_example_needs_one_prediction(indexes, message):
    # Index 3 marks padding.
    data = tf.data.Dataset.from_tensors({"example_index": indexes})
    strategy = tf.distribute.get_strategy()
    function = evaluation.build_predict_function(strategy, lambda features: {})
    with pytest.raises(ValueError, match=f"Of 3 examples, {message}"):
        evaluation.predict(strategy, function, [data], 3)


def test_many_shapes_cause_no_retracing_warning(caplog):
    @tf.function
    def double(x):
        return 2 * x

    doubled = replicas.Traces(double)
    tf.get_logger().propagate = True
    for size in range(1, 9):
        for _ in range(2):
            np.testing.assert_array_equal(
                doubled(size, tf.ones([size])), np.full(size, 2)
            )
    assert double.experimental_get_tracing_count() == 8
    assert "retracing" not in caplog.text
    for size in range(9, 17):
        double(tf.ones([size]))
    assert "retracing" in caplog.text


def test_scoring_that_takes_longer_than_training_is_said():
    said = []
    reporter = types.SimpleNamespace(
        say=said.append, clock=types.SimpleNamespace(rate=10.0)
    )
    loop.warn_of_scoring(reporter, 1000, 99)  # 100 seconds of training.
    loop.warn_of_scoring(reporter, 100, 59)
    assert not said
    loop.warn_of_scoring(reporter, 1000, 250)
    assert "2.5 times as long as the 1,000 steps" in said[0]


def test_a_second_signal_does_not_interrupt_saving():
    before = signal.getsignal(signal.SIGINT)
    with loop.ignoring_signals():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
