"""Runs tasks in processes and yields their results in order."""

import collections
import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent import futures

# Of a process that was started here: the first arguments of all it calls.
_shared = ()


@contextlib.contextmanager
def ordered_map(num_workers: int, *shared) -> Iterator[Callable]:
    """A function that maps (function, tuples of arguments) to results.

    Results come in the order of the tasks, and few tasks are taken in advance,
    so memory stays bounded. With one worker, this process does the work. If a
    worker is killed, for lack of memory say, there is an error and no waiting.
    Workers end with this process, also where that is killed; ctrl-C reaches
    this process alone.

    Args:
      num_workers: number of processes. They are spawned, so that they do not
        inherit TensorFlow's threads.
      *shared: first arguments of the function in every task; each process
        gets its own copy once.
    """
    if num_workers == 1:
        yield lambda function, tasks: (
            function(*shared, *task) for task in tasks
        )
        return
    executor = futures.ProcessPoolExecutor(
        num_workers,
        multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=shared,
    )

    def run(function, tasks):
        pending: collections.deque = collections.deque()
        for task in tasks:
            with _without_sigint():  # A worker may be started here.
                pending.append(executor.submit(_do, function, task))
            if len(pending) > 2 * num_workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    try:
        yield run
    finally:
        executor.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _without_sigint():
    """Puts ctrl-C off for a moment; processes started in it never get one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(*shared):
    global _shared
    _shared = shared
    parent = multiprocessing.parent_process()

    def end_with_parent():  # Nobody would give it work any more.
        if parent:
            parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _do(function, task):
    return function(*_shared, *task)
