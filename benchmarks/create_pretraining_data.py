"""Speed and memory of create_pretraining_data.py.

    python -m benchmarks.create_pretraining_data --text=corpus.txt

Rates count the input's tokens, times dupe_factor, over the seconds that the
program takes once its modules are imported, and so does the recorded rate of
Google's release: 63,476 tokens a second on two cores at max_seq_length 128 and
dupe_factor 1. It cannot be run beside ours, as it needs TensorFlow 1. Memory
is the largest sum of the resident memory of all processes, which counts shared
libraries once for each. Needs Linux's /proc.
"""

import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from albert_tf import flags  # noqa: E402

RELEASE_RATE = 63_476
# TensorFlow is imported first, so that only the work is timed.
PROGRAM = """
import json, sys, time
import tensorflow
from albert_tf.programs import create_pretraining_data as program
start = time.perf_counter()
result = program.run(program.DataFlags(**json.loads(sys.argv[1])))
result["seconds"] = time.perf_counter() - start
print(json.dumps(result))
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkFlags:
    """What is measured."""

    text: str = flags.flag(required=True, help="A text file, of any size.")
    spm_model_file: str = flags.flag(required=True, help="Its vocabulary.")
    megabytes: int = flags.flag(20, "The text is repeated up to this size.")
    dupe_factors: str = flags.flag("1,10", "Values to measure.")
    workers: str = flags.flag("1,2", "Numbers of processes to measure.")
    max_seq_length: int = flags.flag(128, "Tokens per sequence.")
    runs: int = flags.flag(3, "Runs of which the median is shown.")


def run(args):
    """Prints a table in Markdown."""
    print("| dupe_factor | workers | seconds | tokens/s | release | memory |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text.txt")
        repeat_text(args.text, text, args.megabytes * 1_000_000)
        for dupe_factor in map(int, args.dupe_factors.split(",")):
            for num_workers in map(int, args.workers.split(",")):
                settings = {
                    "input_file": text,
                    "output_file": os.path.join(folder, "a.tfrecord"),
                    "spm_model_file": args.spm_model_file,
                    "max_seq_length": args.max_seq_length,
                    "dupe_factor": dupe_factor,
                    "num_workers": num_workers,
                    "progress": False,
                }
                results = [measure(settings) for _ in range(args.runs)]
                print_row(dupe_factor, num_workers, results)


def repeat_text(source, target, num_bytes):
    """Writes copies of a text until there are enough bytes."""
    data = pathlib.Path(source).read_bytes().rstrip() + b"\n\n"
    copies = max(1, round(num_bytes / len(data)))
    with open(target, "wb") as file:
        for _ in range(copies):
            file.write(data)


def measure(settings):
    """Runs the program once; its statistics, `seconds` and `bytes`."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, json.dumps(settings)],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    peak = 0
    while process.poll() is None:
        peak = max(peak, resident_bytes(process.pid))
        time.sleep(0.1)
    lines = process.stdout.read().splitlines()
    return {**json.loads(lines[-1]), "bytes": peak}


def resident_bytes(pid):
    """Memory of a process and all that it started."""
    try:
        folder = pathlib.Path(f"/proc/{pid}")
        pages = int((folder / "statm").read_text().split()[1])
        children = (folder / f"task/{pid}/children").read_text().split()
    except (OSError, IndexError):  # it has just ended
        return 0
    own = pages * os.sysconf("SC_PAGE_SIZE")
    return own + sum(resident_bytes(int(child)) for child in children)


def print_row(dupe_factor, num_workers, results):
    """Prints the medians."""
    seconds = statistics.median(r["seconds"] for r in results)
    rate = results[0]["input_tokens"] * dupe_factor / seconds
    # Not the maximum: a process that forks while TensorFlow is imported may be
    # seen twice.
    memory = statistics.median(r["bytes"] for r in results) / 1e6
    print(
        f"| {dupe_factor} | {num_workers} | {seconds:.2f} | {rate:,.0f} "
        f"| {rate / RELEASE_RATE:.1f} x | {memory:,.0f} MB |",
        flush=True,
    )


if __name__ == "__main__":
    flags.launch(run, BenchmarkFlags)
