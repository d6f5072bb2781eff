"""Times a classifier that is called with one text at a time.

  python -m benchmarks.one_text --model=out/sst-2 --input_file=lines.txt

The model is that of a run of run_classifier; with --peers, the pipeline
"text-classification" of transformers has the same weights, in the same dtype.
The candidates answer each text in turn, in one process, from text to label.
The first texts only warm up. --exit_threshold=0 computes all layers.
"""

import dataclasses
import os
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from albert_tf import Classifier, flags
from albert_tf.data import tables
from albert_tf.flags import flag
from albert_tf.weights import pretrained

NUM_WARM_UP = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkFlags:
    """Model, texts and peers."""

    model: str = flag(required=True, help="Folder of the fine-tuned model.")
    input_file: str = flag(
        required=True, help="Text file, a text on each line."
    )
    num_texts: int = flag(200, "Number of its lines.", at_least=1)
    exit_threshold: float | None = flag(
        help="Default: that of the run.", at_least=0, at_most=1
    )
    compute_dtype: str = flag("float32", "float32 or bfloat16.")
    peers: bool = flag(False, "Whether to run transformers.")


def build_pipeline(folder, start, dtype):
    """Returns transformers' pipeline of a model."""
    import torch
    import transformers

    pretrained.write_pretrained(folder, start, "hf")
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    return transformers.pipeline(
        "text-classification",
        model=folder,
        device="cpu",
        dtype=getattr(torch, dtype),
    )


def run(args):
    """Prints the table."""
    lines = [x for x in tables.read_lines(args.input_file) if x.strip()]
    lines = lines[: args.num_texts]
    start = pretrained.complete(pretrained.read_pretrained(args.model))
    candidates = {
        "albert_tf": Classifier(
            start,
            exit_threshold=args.exit_threshold,
            compute_dtype=args.compute_dtype,
        )
    }
    times: dict[str, list] = {}
    with tempfile.TemporaryDirectory() as folder:
        if args.peers:
            candidates["transformers"] = build_pipeline(
                folder, start, args.compute_dtype
            )
        for number, text in enumerate([*lines[:NUM_WARM_UP], *lines]):
            for name, call in candidates.items():
                began = time.perf_counter()
                call([text])
                if number >= NUM_WARM_UP:
                    seconds = time.perf_counter() - began
                    times.setdefault(name, []).append(1000 * seconds)
    print(f"Load average: {os.getloadavg()[0]:.2f}. {len(lines)} texts.\n")
    print("| one text | median ms | 95th percentile |\n|---|---|---|")
    for name, some in times.items():
        middle, last = np.quantile(some, [0.5, 0.95])
        print(f"| {name} | {middle:.1f} | {last:.1f} |")


if __name__ == "__main__":
    flags.launch(run, BenchmarkFlags)
