"""Times a classifier that answers after as few layers as a text needs.

  python -m benchmarks.early_answers --run=out/sst-2 --task_name=sst-2 \
    --data_dir=glue

The run was fine-tuned with --exit_loss; its threshold was chosen on dev. The
texts are those of the task's dev data, or of --task_config. In turns, one
process predicts them with all layers and with the threshold; the median is
reported. A turn includes padding and computation, not tokenization or tracing.
A request is one text, given to two SavedModels in turns. With --peers,
transformers computes the same weights, in batches of 32 sorted by length.
"""

import dataclasses
import os
import statistics
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if "--peers" in sys.argv:  # PyTorch 2.14 crashes if TensorFlow is first.
    from transformers import (  # noqa: F401
        AlbertForSequenceClassification,
        AutoModelForSequenceClassification,
    )

import numpy as np
import tensorflow as tf

from albert_tf import Classification, FineTuning, Recipe, flags
from albert_tf.data import table_tasks, text_data
from albert_tf.data.examples import pad_examples
from albert_tf.export import saved_models
from albert_tf.flags import flag
from albert_tf.metrics import classification
from albert_tf.tasks.recipes import ExitSettings
from albert_tf.weights import pretrained

BATCH_SIZE = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkFlags:
    """Model, data and turns."""

    run: str = flag(required=True, help="Folder of the fine-tuned model.")
    data_dir: str = flag(required=True, help="As for run_classifier.")
    task_name: str | None = flag(help="As for run_classifier.")
    task_config: str | None = flag(help="As for run_classifier.")
    max_seq_length: int = flag(128, "Maximum length, in tokens.")
    exit_threshold: float | None = flag(
        help="Default: that of the run.", at_least=0, at_most=1
    )
    compute_dtype: str = flag("auto", "auto, float32 or bfloat16.")
    num_turns: int = flag(7, "Number of turns; the median is reported.")
    num_requests: int = flag(200, "Number of texts that are requests.")
    peers: bool = flag(False, "Whether to run transformers.")


def read_split(args, start):
    """Returns the `table_tasks.TableTask` and the dev Split."""
    task = table_tasks.choose_task(args.task_name, args.task_config)
    task = dataclasses.replace(task, labels=task.labels or start.head.labels)
    task, data = text_data.read_data(
        args.data_dir,
        task,
        start.tokenizer,
        args.max_seq_length,
        with_train=False,
        with_dev=True,
        with_test=False,
    )
    return task, next(iter(data.dev.values()))


def build_tuning(args, start, task, threshold, folder):
    """Returns a FineTuning with the run's weights."""
    tuning = FineTuning(
        folder,
        Classification(
            task,
            text_data.Data(None, {}, {}),
            max_seq_length=args.max_seq_length,
            exits=ExitSettings(exit_threshold=threshold),
        ),
        start,
        Recipe(compute_dtype=args.compute_dtype),
    )
    tuning.restore_best()
    return tuning


def build_transformers(folder, start, examples, dtype):
    """Returns a function that computes the logits [N, C] in transformers."""
    import torch
    import transformers

    pretrained.write_pretrained(folder, start, "hf")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder
    ).eval()
    if dtype == "bfloat16":
        model.to(torch.bfloat16)
    order = np.argsort(-examples.lengths, kind="stable")

    def run():
        logits: dict = {}
        with torch.inference_mode():
            for first in range(0, len(order), BATCH_SIZE):
                some = order[first : first + BATCH_SIZE]
                ids, mask, segments = (
                    torch.tensor(x, dtype=torch.long)
                    for x in pad(examples, some).values()
                )
                outputs = model(
                    input_ids=ids, attention_mask=mask, token_type_ids=segments
                )
                logits |= zip(some, outputs.logits.float().numpy(), strict=True)
        return {"logits": np.stack([logits[i] for i in range(len(order))])}

    return run


def pad(examples, some):
    """Returns the inputs of the model for some examples, [B, T] each."""
    batch = pad_examples(examples, some, examples.lengths[some].max())
    return {n: batch[n] for n in ("input_ids", "input_mask", "segment_ids")}


def time_in_turns(runs, num_turns):
    """Returns the median seconds and the last result of each function."""
    seconds: dict = {name: [] for name in runs}
    results = {name: run() for name, run in runs.items()}  # Traces.
    for _ in range(num_turns):
        for name, run in runs.items():
            began = time.perf_counter()
            results[name] = run()
            seconds[name].append(time.perf_counter() - began)
    return {n: statistics.median(s) for n, s in seconds.items()}, results


def time_requests(exported, rows):
    """Returns the milliseconds of each request, by SavedModel."""
    loaded = {n: saved_models.load_saved_model(p) for n, p in exported.items()}
    times: dict = {name: [] for name in loaded}
    num_before = len(rows[:20])  # To warm up.
    for number, row in enumerate([*rows[:num_before], *rows]):
        inputs = {n: tf.constant(v) for n, v in row.items()}
        for name, model in loaded.items():
            began = time.perf_counter()
            model.signatures["ids"](**inputs)["logits"].numpy()
            if number >= num_before:
                times[name].append(1000 * (time.perf_counter() - began))
    return times


def run(args):
    """Prints a table of predictions, and one of requests."""
    start = pretrained.complete(pretrained.read_pretrained(args.run))
    threshold = args.exit_threshold
    if threshold is None and start.head:
        threshold = start.head.threshold
    if not threshold:
        raise ValueError(
            f"{args.run} has no exit_threshold above 0: all its answers are of "
            "the last layer. Give --exit_threshold."
        )
    task, split = read_split(args, start)
    examples, labels = split.examples, split.examples.arrays["label_ids"]
    with tempfile.TemporaryDirectory() as folder:
        tuning = build_tuning(args, start, task, threshold, f"{folder}/a")
        full = build_tuning(args, start, task, 0.0, f"{folder}/b")
        runs = {
            "all layers": lambda: full.predict(examples),
            f"exit_threshold={threshold:g}": lambda: tuning.predict(
                examples, threshold
            ),
        }
        if args.peers:
            runs["transformers"] = build_transformers(
                f"{folder}/hf", start, examples, tuning.session.compute_dtype
            )
        seconds, results = time_in_turns(runs, args.num_turns)
        print(
            f"Load average: {os.getloadavg()[0]:.2f}. {len(labels)} texts, "
            f"{tuning.session.compute_dtype}, {args.num_turns} turns.\n\n| "
            f"predictions | texts/s | speedup | layers | {task.metrics[0]} |\n"
            "|---|---|---|---|---|"
        )
        num_layers = start.config.num_hidden_layers
        for name, result in results.items():
            used = np.mean(result.get("num_layers", num_layers))
            score = classification.score(
                result["logits"], labels, "classes", task.metrics[:1]
            )[task.metrics[0]]
            print(
                f"| {name} | {len(labels) / seconds[name]:.0f} | "
                f"{seconds['all layers'] / seconds[name]:.2f} | {used:.2f} | "
                f"{100 * score:.2f}% |"
            )
        exported = {
            "all layers": full.task.export(full, f"{folder}/c"),
            "early": tuning.task.export(tuning, f"{folder}/d"),
        }
        chosen = range(len(labels))[: args.num_requests]
        times = time_requests(exported, [pad(examples, [i]) for i in chosen])
    print("\n| requests | median ms | 95th percentile |\n|---|---|---|")
    for name, some in times.items():
        middle, last = np.quantile(some, [0.5, 0.95])
        print(f"| {name} | {middle:.1f} | {last:.1f} |")


if __name__ == "__main__":
    flags.launch(run, BenchmarkFlags)
