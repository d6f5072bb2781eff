"""Workers: TF_CONFIG, how they meet, and what one process does alone."""

import concurrent.futures
import contextlib
import functools
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.commands.run_pretraining import PretrainingFlags
from albert_tf.programs import run_pretraining
from albert_tf.training import workers
from albert_tf.weights import checkpoints
from tests import cluster, eager, tiny, tiny_records

ROOT = pathlib.Path(__file__).resolve().parents[2]


HOSTS = ["10.0.0.1:2222", "10.0.0.2:2222"]


def test_a_cluster_is_read_with_its_chief_first():
    found = workers.read_cluster(cluster.describe(index=1, worker=HOSTS))
    assert found.addresses == ("10.0.0.1:2222", "10.0.0.2:2222")
    assert found.index == 1
    jobs = {"worker": ["w:1", "[::1]:2"], "chief": ["c:3"]}
    assert workers.read_cluster(
        cluster.describe("worker", 1, **jobs)
    ) == workers.Cluster(("c:3", "w:1", "[::1]:2"), 2)
    assert workers.read_cluster(cluster.describe("chief", 0, **jobs)).index == 0


@pytest.mark.parametrize(
    "text, problem",
    [
        (None, "needs the environment variable TF_CONFIG"),
        ("{", "is invalid: JSONDecodeError"),
        ("[]", "is invalid: TypeError"),
        ("{}", "is invalid: KeyError"),
        (cluster.describe(index=2, worker=HOSTS), "there is no worker 2"),
        (cluster.describe("evaluator", worker=HOSTS), "is invalid"),
        (cluster.describe(worker=["10.0.0.1"]), "is not HOST:PORT"),
    ],
)
def test_another_tf_config_is_refused_with_an_example(text, problem):
    with pytest.raises(ValueError, match=problem) as caught:
        workers.read_cluster(text)
    assert workers.EXAMPLE in str(caught.value)


def meet(settings, *, indexes=None, seconds=20):
    """Lets workers meet in threads; returns what each one raised, or None."""
    addresses = tuple(cluster.free_addresses(len(settings)))
    indexes = indexes or range(len(settings))

    def meet_one(index, own):
        try:
            workers.meet(workers.Cluster(addresses, index), own, seconds)
        except (ValueError, OSError) as error:
            return error

    with concurrent.futures.ThreadPoolExecutor() as pool:
        return list(pool.map(meet_one, indexes, settings))


def test_workers_with_equal_settings_connect():
    assert meet([{"a": 1}] * 3) == [None] * 3


def test_workers_with_other_settings_are_named():
    errors = meet([{"a": 1, "b": 2}, {"a": 1, "b": 2}, {"a": 1, "b": 3}])
    for error in errors:
        assert str(error).startswith(
            "Worker 2 was started with b=3, the chief with 2."
        )


def test_two_workers_of_one_index_are_refused():
    errors = meet([{}, {}, {}], indexes=[0, 1, 1], seconds=4)
    assert isinstance(errors[0], TimeoutError)
    assert sum("There is another worker 1" in str(e) for e in errors[1:]) == 1


@pytest.mark.parametrize("is_early", [True, False])
def test_a_worker_that_ended_may_be_started_again(is_early):
    """Before or after the last one has reported."""
    addresses = tuple(cluster.free_addresses(3))
    meet_one = functools.partial(workers.meet, settings={}, seconds=20)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        chief = pool.submit(meet_one, workers.Cluster(addresses, 0))
        for _ in range(1000):
            with contextlib.suppress(ConnectionRefusedError):
                host, port = addresses[0].split(":")
                ended = socket.create_connection((host, int(port)))
                break
            time.sleep(0.01)
        ended.sendall(b'{"index": 1, "settings": {}}\n')
        time.sleep(0.2)
        ended.close()
        first, last = (1, 2) if is_early else (2, 1)
        others = [pool.submit(meet_one, workers.Cluster(addresses, first))]
        time.sleep(0.2)
        others.append(pool.submit(meet_one, workers.Cluster(addresses, last)))
        assert [job.result() for job in (chief, *others)] == [None] * 3


@pytest.mark.parametrize("index", [0, 1])
def test_a_timeout_names_the_missing_worker(index):
    addresses = tuple(cluster.free_addresses(2))
    found = workers.Cluster(addresses, index)
    with pytest.raises(TimeoutError, match="No answer within 1 s") as caught:
        workers.meet(found, {}, seconds=1)
    assert addresses[1 - index] in str(caught.value)


def test_connections_of_other_programs_are_ignored():
    addresses = tuple(cluster.free_addresses(2))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        chief = pool.submit(
            workers.meet, workers.Cluster(addresses, 0), {}, seconds=20
        )
        host, port = addresses[0].split(":")
        for _ in range(1000):
            try:
                with socket.create_connection((host, int(port))) as stranger:
                    stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
                break
            except ConnectionRefusedError:
                time.sleep(0.01)
        else:
            pytest.fail("The chief does not listen.")
        workers.meet(workers.Cluster(addresses, 1), {}, seconds=20)
        assert chief.result() is None


def test_one_process_is_a_chief_and_needs_no_agreement():
    alone = workers.Workers(tf.distribute.get_strategy())
    assert alone.count == 1 and alone.is_chief
    assert alone.add([1, 2.5]) == [1, 2.5]
    assert alone.share(7) == 7
    with alone.acting_together():
        alone.check_signals()


def test_a_signal_during_the_exchange_of_signals_is_kept():
    pair = workers.Workers(tf.distribute.get_strategy())
    pair.count = 2

    def add(counts):
        # Others have read this worker's counts already.
        counts = list(counts)
        if not any(counts):
            signal.raise_signal(signal.SIGINT)
        return counts

    pair.add = add
    with pair.acting_together():
        pair.check_signals()
        with pytest.raises(KeyboardInterrupt):
            pair.check_signals()


@pytest.fixture
def handlers():
    """Restores the handlers of signals."""
    numbers = signal.SIGINT, signal.SIGTERM
    before = [(number, signal.getsignal(number)) for number in numbers]
    yield
    for number, handler in before:
        signal.signal(number, handler)


def test_a_worker_that_ignores_a_signal_stops_with_the_others(handlers):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pair = workers.Workers(tf.distribute.get_strategy())
    pair.count, pair.add = 2, list
    with pytest.raises(KeyboardInterrupt), pair.acting_together():
        signal.raise_signal(signal.SIGINT)
        pair.check_signals()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_handler_that_python_did_not_set_becomes_the_default(
    handlers, monkeypatch
):
    alone = workers.Workers(tf.distribute.get_strategy())
    set_handler = signal.signal

    def set_first(number, handler):
        set_handler(number, handler)  # It was none of Python's: returns None.

    with monkeypatch.context() as patch:
        patch.setattr(signal, "signal", set_first)
        with alone.finishing_first():
            pass
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_other_files_than_the_chiefs_are_refused():
    one = workers.Workers(tf.distribute.get_strategy())
    one.count = 2
    one.add = lambda counts: counts
    one.share = lambda value: value
    one.check_equal("data files", 6, "Copies?")
    one.share = lambda value: value + 1
    with pytest.raises(
        ValueError, match="1 of 2 workers have other data files than the chief"
    ):
        one.check_equal("data files", 6, "Copies?")


# Whole programs.


def run_workers(folder, count, args):
    """Runs a program in several processes; returns their statuses."""
    addresses = cluster.free_addresses(count)
    command = [sys.executable, str(ROOT / "run_pretraining.py")]
    command += [f"--{name}={value}" for name, value in args.items()]
    started = []
    for index in range(count):
        with open(folder / f"{index}.log", "w") as log:
            started.append(
                subprocess.Popen(
                    command,
                    cwd=folder,
                    env={
                        **os.environ,
                        "TF_CONFIG": cluster.describe(
                            index=index, worker=addresses
                        ),
                    },
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )
    return [process.wait(timeout=300) for process in started]


def test_sigterm_ends_a_worker_before_its_first_step(tmp_path):
    code = """
import os, signal, sys
from albert_tf.training import workers

def stop(number, frame):
    sys.exit(128 + number)

signal.signal(signal.SIGTERM, stop)
workers.connect({})
os.kill(os.getpid(), signal.SIGTERM)
"""
    found = cluster.describe(worker=cluster.free_addresses(1))
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "TF_CONFIG": found},
        timeout=120,
    )
    assert done.returncode == 143


def test_two_workers_reach_the_weights_of_one(tmp_path):
    tiny_records.write(tmp_path / "train.tfrecord", 20)
    tiny_records.write(tmp_path / "valid.tfrecord", 7, seed=1)
    (tmp_path / "config.json").write_text(
        json.dumps({**tiny.SIZES, "num_hidden_layers": 1})
    )
    args = {
        "input_file": str(tmp_path / "train.tfrecord"),
        "eval_input_file": str(tmp_path / "valid.tfrecord"),
        "do_eval": True,
        "albert_config_file": str(tmp_path / "config.json"),
        "train_batch_size": 8,
        "eval_batch_size": 8,
        "learning_rate": 0.01,
        "num_train_steps": 6,
        "num_warmup_steps": 2,
        "save_checkpoints_steps": 3,
        "log_every_steps": 3,
        "compute_dtype": "float32",
        "initialization": "neighbors",
    }
    with eager.steps():
        run_pretraining.run(
            PretrainingFlags(output_dir=str(tmp_path / "one"), **args)
        )
    args |= {
        "output_dir": str(tmp_path / "two"),
        "distribution": "multi_worker",
        "gradient_accumulation_steps": 2,
    }
    assert run_workers(tmp_path, 2, args) == [0, 0]
    one, two = (
        checkpoints.read_checkpoint(tmp_path / name / "model.ckpt-6")
        for name in ("one", "two")
    )
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, atol=1e-5, err_msg=name)
    names = [
        {path.name for path in (tmp_path / name).iterdir() if path.is_file()}
        for name in ("one", "two")
    ]
    assert names[0] == names[1]
    # Only the chief reports.
    log = (tmp_path / "1.log").read_text()
    assert "step 6/6" not in log and "Traceback" not in log
