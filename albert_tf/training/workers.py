"""Workers: processes on several hosts that train one model together.

The environment variable TF_CONFIG lists their addresses, as for
tf.distribute.MultiWorkerMirroredStrategy. All workers compute the same steps,
each on its part of the batch. The first one, the chief, decides when to
evaluate, and it alone writes checkpoints, results and logs.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import logging
import os
import signal
import socket
import tempfile
import threading
import time
from typing import IO, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf import __version__, ownership

# How long workers wait for each other at the start, in seconds.
WAIT_SECONDS = 300
_REPORT_SECONDS = 30
_ANSWER_SECONDS = 5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
EXAMPLE = (
    'TF_CONFIG=\'{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, '
    '"task": {"type": "worker", "index": 0}}\''
)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The addresses of all workers, and which of them this process is.

    Attributes:
      addresses: HOST:PORT of each worker; the first is the chief.
      index: index of this process.
    """

    addresses: tuple[str, ...]
    index: int


def read_cluster(text: str | None) -> Cluster:
    """Returns the Cluster that a value of TF_CONFIG describes.

    Raises:
      ValueError: if it is missing or invalid.
    """
    if not text:
        raise ValueError(
            "distribution=multi_worker needs the environment variable "
            f"TF_CONFIG in each worker, such as {EXAMPLE}."
        )
    try:
        values = json.loads(text)
        jobs, task = values["cluster"], values["task"]
        names = [name for name in ("chief", "worker") if name in jobs]
        kind, index = task["type"], int(task["index"])
        addresses = tuple(a for name in names for a in jobs[name])
        before = sum(len(jobs[name]) for name in names[: names.index(kind)])
        if not 0 <= index < len(jobs[kind]):
            raise ValueError(f"there is no {kind} {index}")
        for address in addresses:
            _split(address)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"TF_CONFIG={text:.300} is invalid: {error!r}. Wanted the "
            f"addresses of all workers, and which of them this is: {EXAMPLE}."
        ) from error
    return Cluster(addresses, before + index)


def count_hosts() -> int:
    """Returns how many hosts TF_CONFIG lists; 1 without a valid one."""
    try:
        return len(read_cluster(os.environ.get("TF_CONFIG")).addresses)
    except ValueError:
        return 1


def _split(address):
    """Returns host and port of HOST:PORT."""
    host, _, port = address.rpartition(":")
    if not host:
        raise ValueError(f"{address!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


# The meeting at the start. TensorFlow would wait for a missing worker without
# a message and without an end, and would hang if workers ran other programs.


def meet(cluster: Cluster, settings: dict, seconds: float = WAIT_SECONDS):
    """Waits until all workers have started, and compares their settings.

    The settings are JSON values that must be equal in all workers.

    Raises:
      TimeoutError: if a worker is missing.
      ValueError: if the settings differ.
      OSError: if the chief cannot listen at its address.
    """
    take_part = _report_to_chief if cluster.index else _receive_workers
    if complaints := take_part(cluster, settings, _Wait(seconds)):
        raise ValueError("\n".join(complaints))


class _Wait:
    """Limits the time that a process waits for others, and logs for whom."""

    def __init__(self, seconds):
        self.seconds, began = seconds, time.monotonic()
        self.deadline = began + seconds
        self.report_at = began + _REPORT_SECONDS

    def check(self, awaited, question):
        """Raises TimeoutError with a question if it takes too long."""
        now = time.monotonic()
        if now >= self.deadline:
            raise TimeoutError(
                f"No answer within {self.seconds:g} s from {awaited}. "
                f"{question}"
            )
        if now > self.report_at:
            logging.warning("Waiting for %s.", awaited)
            self.report_at += _REPORT_SECONDS


class _Present(NamedTuple):
    """A worker that waits for the others, at the chief's."""

    connection: socket.socket
    stream: IO
    complaints: list[str]

    def is_waiting(self):
        """Returns whether the connection, which is silent now, is open."""
        self.connection.settimeout(0)
        try:
            return bool(self.connection.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            self.connection.settimeout(_ANSWER_SECONDS)

    def answer(self, complaints):
        print(json.dumps(complaints), file=self.stream, flush=True)


def _receive_workers(cluster, settings, wait):
    """Performs the chief's part of `meet`; returns complaints for everyone."""
    everyone = set(range(1, len(cluster.addresses)))
    _, port = _split(cluster.addresses[0])
    present: dict[int, _Present] = {}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("", port)))
        while missing := everyone - present.keys():
            names = [cluster.addresses[i] for i in sorted(missing)]
            wait.check(
                f"the workers {names}",
                "Was the same command started on every host of TF_CONFIG, and "
                "can they reach this one?",
            )
            server.settimeout(1)
            # Whatever else connects to the port is ignored.
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                index, worker = _receive_one(server, settings, stack)
                known = present.get(index)
                if index in missing or (known and not known.is_waiting()):
                    present[index] = worker
                else:
                    worker.answer([f"There is another worker {index}."])
            # One that has ended may be started again.
            present = {i: w for i, w in present.items() if w.is_waiting()}
        complaints = [c for i in sorted(present) for c in present[i].complaints]
        for worker in present.values():
            worker.answer(complaints)
    return complaints


def _receive_one(server, settings, stack):
    """Returns the index of a worker that reports, and its _Present."""
    connection, _ = server.accept()
    stack.enter_context(connection)
    connection.settimeout(_ANSWER_SECONDS)
    stream = stack.enter_context(connection.makefile("rw"))
    hello = json.loads(stream.readline())
    return hello["index"], _Present(
        connection, stream, _compare(hello, settings)
    )


def _report_to_chief(cluster, settings, wait):
    """Performs another worker's part of `meet`; returns the complaints."""
    hello = json.dumps({"index": cluster.index, "settings": settings})
    address = cluster.addresses[0]
    while True:
        wait.check(
            f"the chief at {address}",
            "Was it started with the same TF_CONFIG, and can this host reach "
            "it?",
        )
        try:
            with (
                socket.create_connection(
                    _split(address), _ANSWER_SECONDS
                ) as connection,
                connection.makefile("rw") as stream,
            ):
                print(hello, file=stream, flush=True)
                # The chief answers when all workers have reported.
                remaining = wait.deadline - time.monotonic()
                connection.settimeout(max(remaining, 0.1))
                return json.loads(stream.readline())
        except (OSError, ValueError):  # It has not started yet.
            time.sleep(0.2)


def _compare(hello, settings):
    """Returns a sentence for each setting that differs from the chief's."""
    theirs = hello["settings"]
    return [
        f"Worker {hello['index']} was started with {name}="
        f"{theirs.get(name)!r}, the chief with {settings.get(name)!r}. Start "
        "the same command on every host."
        for name in sorted(theirs.keys() | settings.keys())
        if theirs.get(name) != settings.get(name)
    ]


def connect(settings: dict):
    """Returns the MultiWorkerMirroredStrategy of the workers in TF_CONFIG.

    It must precede TensorFlow's first operation. Settings are as for `meet`.

    Raises:
      ValueError: if TF_CONFIG is invalid, or the workers' settings differ.
      TimeoutError: if a worker is missing.
    """
    cluster = read_cluster(os.environ.get("TF_CONFIG"))
    if len(cluster.addresses) > 1:
        versions = {"albert_tf": __version__, "tensorflow": tf.__version__}
        meet(cluster, settings | versions)
    # TensorFlow logs every reduction that it builds.
    tf.get_logger().setLevel(logging.WARNING)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    # TensorFlow's own handler ignores the signal; Python's is installed again.
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    return strategy


@functools.cache
def find_workers(strategy) -> "Workers":
    """Returns the Workers of a strategy, one object for each."""
    return Workers(strategy)


class Workers:
    """The workers of a strategy, and how they agree. A single one is the chief.

    `find_workers` returns the object of a strategy.

    Args:
      strategy: a tf.distribute.Strategy.

    Attributes:
      count: number of workers.
      is_chief: whether this process is the chief.
    """

    def __init__(self, strategy):
        self.strategy = strategy
        self.count, self.is_chief = 1, True
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            cluster = read_cluster(os.environ.get("TF_CONFIG"))
            self.count = len(cluster.addresses)
            self.is_chief = cluster.index == 0
        self._received = dict.fromkeys(_SIGNALS, 0)
        self._handlers: dict = {}

    def add(self, values: list) -> list:
        """Returns the sums of numbers or arrays over all workers."""
        if self.count == 1:
            return values
        # In NumPy, an int has 64 bits.
        tensors = [tf.convert_to_tensor(np.asarray(value)) for value in values]
        return [value.numpy() for value in self._add_tensors(*tensors)]

    @functools.cached_property
    def _add_tensors(self):
        num_local = self.strategy.num_replicas_in_sync // self.count

        def add_replicas(*tensors):
            context = tf.distribute.get_replica_context()
            # All replicas of a worker have its values: they count once.
            is_first = context.replica_id_in_sync_group % num_local == 0
            own = [tf.where(is_first, x, tf.zeros_like(x)) for x in tensors]
            # One by one, as tensors of a list would have to be of one type.
            return [
                context.all_reduce(tf.distribute.ReduceOp.SUM, [x])[0]
                for x in own
            ]

        @tf.function
        def add_workers(*tensors):
            sums = self.strategy.run(add_replicas, args=tensors)
            return [
                self.strategy.experimental_local_results(total)[0]
                for total in sums
            ]

        return add_workers

    def share(self, value: int) -> int:
        """Returns the chief's value."""
        if self.count == 1:
            return value
        # A sum, as `add` is the only collective operation that is needed.
        (total,) = self.add([int(value) if self.is_chief else 0])
        return int(total)

    def check_equal(self, what: str, value, question: str):
        """Checks that all workers have the same JSON value as the chief.

        Args:
          what: name of the value, in the plural.
          value: the JSON value.
          question: a question about the likely cause, for the error.

        Raises:
          ValueError: in all workers, if one has another value.
        """
        text = json.dumps(value, sort_keys=True).encode()
        digest = int.from_bytes(hashlib.sha256(text).digest()[:4], "big")
        is_different = digest != self.share(digest)
        (count,) = self.add([int(is_different)])
        if count:
            raise ValueError(
                f"{count} of {self.count} workers have other {what} than the "
                f"chief. {question}"
            )

    def share_variables(self, variables: dict):
        """Gives variables the chief's values."""
        if self.count == 1:
            return
        values = [variable.numpy() for variable in variables.values()]
        if not self.is_chief:
            values = [np.zeros_like(value) for value in values]
        sums = self.add(values)
        for variable, value in zip(variables.values(), sums, strict=True):
            variable.assign(value)

    def acting_together(self) -> contextlib.AbstractContextManager:
        """Context manager: signals stop all workers after the same step.

        Within, ctrl-C and SIGTERM only take effect in `check_signals`.
        """
        is_noting = self.count > 1
        return self._noting_signals() if is_noting else contextlib.nullcontext()

    def finishing_first(self) -> contextlib.AbstractContextManager:
        """Context manager: a single process acts on signals at its end.

        So what a compiled call has computed is not lost. Several processes
        act on them in `check_signals`.
        """
        # Python allows only the main thread to set signal handlers.
        is_main = threading.current_thread() is threading.main_thread()
        is_noting = self.count == 1 and is_main
        return self._noting_signals() if is_noting else contextlib.nullcontext()

    @contextlib.contextmanager
    def _noting_signals(self):
        """Context manager: notes signals; raises them if it ends well."""
        self._received = dict.fromkeys(_SIGNALS, 0)
        for number in _SIGNALS:
            self._handlers[number] = signal.signal(number, self._note)
        try:
            yield
        finally:
            self._restore_handlers()
        # Not after an error, such as divergence, which has stopped the run.
        for number, is_received in self._received.items():
            if is_received:
                signal.raise_signal(number)

    def _note(self, number, frame):
        del frame
        self._received[number] = 1

    def _restore_handlers(self):
        while self._handlers:
            number, handler = self._handlers.popitem()
            # None for one that Python did not set.
            signal.signal(number, handler or signal.SIG_DFL)

    def check_signals(self):
        """Acts on a signal that any worker has received since the last call."""
        if self.count == 1:
            return
        # A signal that arrives during `add` is noted for the next call.
        sent, self._received = self._received, dict.fromkeys(_SIGNALS, 0)
        sums = self.add(list(sent.values()))
        for number, total in zip(_SIGNALS, sums, strict=True):
            if total:
                self._restore_handlers()
                signal.raise_signal(number)
                # A background job of a shell ignores ctrl-C; it must stop, too.
                raise KeyboardInterrupt

    @contextlib.contextmanager
    def own_folder(self, folder):
        """Context manager: owns an output folder; yields where to write.

        Only the chief writes there; other workers get a temporary folder.
        """
        owned: contextlib.AbstractContextManager[str]
        if self.is_chief:
            owned = ownership.owning_folder(folder)
        else:
            owned = tempfile.TemporaryDirectory()
        with owned as own:
            yield own
            # Waits for all: a worker that ends before the chief looks crashed.
            self.add([1])
