r"""Measures the input pipeline of pretraining on one core, and its records.

    python -m benchmarks.input_pipeline --text=corpus.txt \
        --spm_model_file=30k-clean.model

For static and dynamic records of the same text: size, time to create them with
one worker, and sequences per second from the files to batches, with every
thread on one core; these are seconds of that core's time, so other programs
disturb little. Dynamic records are masked while they are read. `needed` is what
a training step of 32 sequences consumes with all cores: tiny.json, or
small.json for 512 tokens. With several hosts, each parses and masks its own
part of the global batches. The candidates take turns; medians are reported.
Requires Linux, to choose the core.
"""

import contextlib
import dataclasses
import functools
import multiprocessing
import os
import statistics
import tempfile
import time

from albert_tf import flags
from benchmarks.create_pretraining_data import TextFlags, repeat_text

# Tokens per sequence, the predictions that are 15% of them, and the model.
SIZES = (128, 20, "tiny"), (512, 77, "small")
KINDS = "static", "dynamic"
# Hosts whose part of a global batch is also measured.
HOSTS = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkFlags(TextFlags):
    """Text to make records of, and how long to measure."""

    dupe_factor: int = flags.flag(10, "dupe_factor of the static records.")
    batch_sizes: str = flags.flag("32,256", "Comma-separated batch sizes.")
    rounds: int = flags.flag(5, "Number of turns; the median is reported.")
    seconds: float = flags.flag(2.0, "Seconds per turn.")


def run(args):
    """Prints two Markdown tables."""
    print(f"Load average before: {os.getloadavg()[0]:.2f}.\n")
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text.txt")
        repeat_text(args.text, text, args.megabytes * 1_000_000)
        print("| records | T | dupe_factor | MB | bytes/sequence | seconds |")
        print("|---|---|---|---|---|---|")
        for num_tokens, num_predictions, _ in SIZES:
            for kind in KINDS:
                create(args, folder, kind, num_tokens, num_predictions)
        print(
            "\n| T | batch a host | static/s | dynamic/s "
            f"| {HOSTS} hosts: static/s | dynamic/s | needed/s |"
        )
        print("|---|---|---|---|---|---|---|")
        for num_tokens, num_predictions, model in SIZES:
            step = model, 32, num_tokens, num_predictions, "mixed_bfloat16"
            needed = call(step_rate, step, args.seconds)
            for batch_size in map(int, args.batch_sizes.split(",")):
                rates = measure(args, folder, num_tokens, batch_size)
                cells = [f"{rate:,.0f}" for rate in (*rates.values(), needed)]
                print(
                    f"| {num_tokens} | {batch_size} | {' | '.join(cells)} |",
                    flush=True,
                )


def path_of(folder, kind, num_tokens):
    """Returns the name of a record file."""
    return os.path.join(folder, f"{kind}{num_tokens}.tfrecord")


def create(args, folder, kind, num_tokens, num_predictions):
    """Creates records, and prints a row about them."""
    path = path_of(folder, kind, num_tokens)
    dupe_factor = 1 if kind == "dynamic" else args.dupe_factor
    settings = {
        "input_file": os.path.join(folder, "text.txt"),
        "output_file": path,
        "spm_model_file": args.spm_model_file,
        "max_seq_length": num_tokens,
        "max_predictions_per_seq": num_predictions,
        "dupe_factor": dupe_factor,
        "masking": kind,
        "progress": False,
    }
    count, seconds = call(create_records, settings)
    size = os.path.getsize(path)
    print(
        f"| {kind} | {num_tokens} | {dupe_factor} | {size / 1e6:,.1f} "
        f"| {size / count:,.0f} | {seconds:,.0f} |",
        flush=True,
    )


def create_records(settings):
    """Returns the number of sequences, and the seconds to create them."""
    from albert_tf.commands.create_pretraining_data import DataFlags
    from albert_tf.programs import create_pretraining_data

    began = time.perf_counter()
    with contextlib.redirect_stdout(None):
        statistics = create_pretraining_data.run(DataFlags(**settings))
    return statistics["sequences"], time.perf_counter() - began


def measure(args, folder, num_tokens, batch_size):
    """Returns sequences per second by (hosts, kind); they take turns."""
    rates: dict = {(hosts, kind): [] for hosts in (1, HOSTS) for kind in KINDS}
    for _ in range(args.rounds):
        for (hosts, kind), values in rates.items():
            path = path_of(folder, kind, num_tokens)
            rate = call(read_rate, path, batch_size, args.seconds, hosts)
            values.append(rate)
    return {key: statistics.median(values) for key, values in rates.items()}


def read_rate(path, batch_size, seconds, num_hosts):
    """Returns the sequences per second of training batches, on one core.

    `batch_size` is that of a host; sequences are those of the global batch.
    """
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import tensorflow as tf

    from albert_tf.data.pretraining import opening, reading
    from albert_tf.model.config import AlbertConfig

    opened = opening.open_records(path, AlbertConfig(vocab_size=30_000))
    batches = opened.read_part(
        tf.distribute.InputContext(num_hosts, 0, num_hosts),
        batch_size=batch_size * num_hosts,
        shuffle_buffer=10_000,
    ).as_numpy_iterator()
    # The first batch waits for the shuffle buffer, others were prefetched.
    for _ in range(2 * reading.NUM_PARSED):
        next(batches)
    function = functools.partial(next, batches)
    return rate(function, batch_size * num_hosts, seconds, time.process_time)


def step_rate(settings, seconds):
    """Returns the sequences per second of a training step.

    `settings` is (model, batch size, tokens, predictions, data type).
    """
    from benchmarks import training_step

    step = training_step.build_step(*settings)
    for _ in range(3):
        step()
    return rate(step, settings[1], seconds)


def rate(function, num_rows, seconds, clock=time.perf_counter):
    """Returns the rows per second of a function."""
    count, began = 0, clock()
    while (elapsed := clock() - began) < seconds:
        function()
        count += num_rows
    return count / elapsed


def call(function, *arguments):
    """Calls a function in a process of its own."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


if __name__ == "__main__":
    flags.launch(run, BenchmarkFlags)
