"""Runs tasks in processes and yields their results in order."""

import collections
import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent import futures

# In a worker process: the first arguments of every function it runs.
_shared = ()


@contextlib.contextmanager
def ordered_map(num_workers: int, *shared) -> Iterator[Callable]:
    """Yields a function that maps (function, argument tuples) to results.

    Results are in task order. Only a few tasks are submitted in advance, so
    memory stays bounded. With one worker, the current process does the work.
    If a worker is killed, for example for lack of memory, an error is raised.
    Workers exit with this process, even if it is killed; ctrl-C reaches only
    this process.

    Processes are spawned, so that they do not inherit TensorFlow's threads.
    `shared` are the first arguments of the function in every task; each process
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
        initializer=_initialize,
        initargs=shared,
    )

    def run(function, tasks):
        pending: collections.deque = collections.deque()
        for task in tasks:
            with _without_sigint():  # submit() may start a worker.
                pending.append(executor.submit(_run_task, function, task))
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
    """Blocks ctrl-C in the context; processes started in it never get it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _initialize(*shared):
    global _shared
    _shared = shared
    parent = multiprocessing.parent_process()

    def exit_with_parent():  # No other process submits tasks.
        if parent:
            parent.join()
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()


def _run_task(function, task):
    return function(*_shared, *task)
