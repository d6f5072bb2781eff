"""Times vectors of lines of text beside sentence-transformers.

  python -m benchmarks.text_vectors --model=out/st --input_file=lines.txt

The folder is one that `convert_checkpoint --format=hf` writes of a model of
run_embedding. Both packages compute it in float32 in one process, in turns,
from texts to vectors; both sort texts by length. The medians are reported.
"""

import dataclasses
import functools
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np

from albert_tf import flags
from albert_tf.data import tables
from albert_tf.flags import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkFlags:
    """Model, texts and turns."""

    model: str = flag(required=True, help="Folder of the model.")
    input_file: str = flag(
        required=True, help="Text file, a text on each line."
    )
    num_texts: int = flag(10_000, "Number of its lines.")
    num_turns: int = flag(5, "Number of turns; the median is reported.")
    batch_sizes: str = flag("32,128", "Batch sizes of sentence-transformers.")


def run(args):
    """Prints the table."""
    # First, as triton of PyTorch's CUDA build crashes after TensorFlow.
    import sentence_transformers
    import torch

    from albert_tf import Embedder

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    lines = [x for x in tables.read_lines(args.input_file) if x.strip()]
    lines = lines[: args.num_texts]
    ours = Embedder(args.model)
    theirs = sentence_transformers.SentenceTransformer(args.model, device="cpu")
    calls: dict = {"albert_tf": functools.partial(ours, lines)}
    for size in map(int, args.batch_sizes.split(",")):
        calls[f"sentence-transformers, batches of {size}"] = functools.partial(
            theirs.encode, lines, batch_size=size
        )
    vectors = {name: call() for name, call in calls.items()}  # Warm up.
    seconds: dict[str, list] = {name: [] for name in calls}
    for _ in range(args.num_turns):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - began)
    print("| package | texts/s | ratio | largest difference |")
    print("|---|---|---|---|")
    medians = {name: statistics.median(x) for name, x in seconds.items()}
    for name, median in medians.items():
        difference = np.abs(vectors[name] - vectors["albert_tf"]).max()
        ratio = medians["albert_tf"] / median
        print(
            f"| {name} | {len(lines) / median:,.0f} | {ratio:.2f} | "
            f"{difference:.1e} |"
        )


if __name__ == "__main__":
    flags.launch(run, BenchmarkFlags)
