r"""Measures speed and memory of create_pretraining_data.py.

    python -m benchmarks.create_pretraining_data --text=corpus.txt \
        --spm_model_file=30k-clean.model

The rate is the number of input tokens, times dupe_factor, divided by the
seconds after the imports. The recorded rate of Google's release is defined in
the same way: 63,476 tokens/s on two cores at max_seq_length 128 and dupe_factor
1. The release needs TensorFlow 1, so it is not run here. Memory is the peak of
the summed resident memory of all processes, which counts shared libraries once
per process. Requires Linux's /proc.
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
# TensorFlow is imported first, to exclude it from the time.
PROGRAM = """
import json, sys, time
import tensorflow
from albert_tf.commands.create_pretraining_data import DataFlags
from albert_tf.programs import create_pretraining_data as program
start = time.perf_counter()
result = program.run(DataFlags(**json.loads(sys.argv[1])))
result["seconds"] = time.perf_counter() - start
print(json.dumps(result))
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFlags:
    """Text to make records of."""

    text: str = flags.flag(required=True, help="Text file of any size.")
    spm_model_file: str = flags.flag(required=True, help="SentencePiece model.")
    megabytes: int = flags.flag(
        20, "Size to which the text is repeated, in MB."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkFlags(TextFlags):
    """Input text and settings to measure."""

    dupe_factors: str = flags.flag("1,10", "Comma-separated dupe_factors.")
    workers: str = flags.flag("1,2", "Comma-separated numbers of processes.")
    max_seq_length: int = flags.flag(
        128, "Maximum length of a sequence, in tokens."
    )
    runs: int = flags.flag(3, "Number of runs; the median is reported.")


def run(args):
    """Prints a Markdown table."""
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
    """Writes copies of a text, about num_bytes in total."""
    data = pathlib.Path(source).read_bytes().rstrip() + b"\n\n"
    copies = max(1, round(num_bytes / len(data)))
    with open(target, "wb") as file:
        for _ in range(copies):
            file.write(data)


def measure(settings):
    """Runs the program once; returns its statistics, `seconds` and `bytes`."""
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
    lines = process.communicate()[0].splitlines()
    return {**json.loads(lines[-1]), "bytes": peak}


def resident_bytes(pid):
    """Returns the resident memory of a process and its descendants."""
    try:
        folder = pathlib.Path(f"/proc/{pid}")
        pages = int((folder / "statm").read_text().split()[1])
        children = (folder / f"task/{pid}/children").read_text().split()
    except (OSError, IndexError):  # The process has just exited.
        return 0
    own = pages * os.sysconf("SC_PAGE_SIZE")
    return own + sum(resident_bytes(int(child)) for child in children)


def print_row(dupe_factor, num_workers, results):
    """Prints a table row with the medians."""
    seconds = statistics.median(r["seconds"] for r in results)
    rate = results[0]["input_tokens"] * dupe_factor / seconds
    # Not the maximum: a process that forks while importing TensorFlow may be
    # counted twice.
    memory = statistics.median(r["bytes"] for r in results) / 1e6
    print(
        f"| {dupe_factor} | {num_workers} | {seconds:.2f} | {rate:,.0f} "
        f"| {rate / RELEASE_RATE:.1f} x | {memory:,.0f} MB |",
        flush=True,
    )


if __name__ == "__main__":
    flags.launch(run, BenchmarkFlags)
