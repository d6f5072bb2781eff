"""Times an epoch of fine-tuning: length buckets against a fixed length.

python -m benchmarks.buckets --data_dir=glue --spm_model_file=30k-clean.model

All variants train on the same examples, alternating in one process; medians
and ratios are reported. Padding to 128 truncates nothing on MRPC.
"""

import dataclasses
import statistics
import time

import tensorflow as tf

from albert_tf import flags
from albert_tf.data import batches, table_tasks, text_data
from albert_tf.flags import flag
from albert_tf.model import heads, layers, modeling
from albert_tf.model.config import AlbertConfig
from albert_tf.text import tokenization
from albert_tf.training import loop, optimization, replicas


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkFlags:
    """Task, model and number of repeats."""

    data_dir: str = flag(
        required=True, help="Folder that contains one subfolder per task."
    )
    spm_model_file: str = flag(required=True, help="SentencePiece model.")
    task_name: str = flag("mrpc", "GLUE task.")
    albert_config_file: str = flag(
        "configs/model/small.json", "JSON file with the architecture."
    )
    train_batch_size: int = flag(32, "Training batch size, in examples.")
    bucket_lengths: str = flag("32,64,128,256", "As in run_classifier.py.")
    compute_dtype: str = flag("float32", "float32 or bfloat16.")
    num_repeats: int = flag(3, "Number of timed epochs per variant.")


def build_variants(args, examples):
    """Returns a dict of name -> (plan, datasets)."""
    num_steps = len(examples) // args.train_batch_size
    variants = {}
    for name, text, length in (
        ("buckets", args.bucket_lengths, 512),
        ("padded to 128", "", 128),
        ("padded to 512", "", 512),
    ):
        plan = batches.plan_training(
            examples,
            batches.parse_bucket_lengths(text, length),
            args.train_batch_size,
            num_steps,
            seed=1,
        )
        variants[name] = plan, batches.build_datasets(examples, plan)
    return variants


def time_epoch(strategy, train_steps, plan, datasets):
    """Returns the duration of all steps of a plan, in seconds."""
    turns = loop.Turns(strategy, datasets, plan.lengths)
    began = time.monotonic()
    step = 0
    while step < len(plan.lengths):
        key, iterator, num_steps, _ = turns.at(step)
        sums, _, _ = train_steps(key, iterator, tf.constant(num_steps))
        sums.numpy()
        step += num_steps
    return time.monotonic() - began


def run(args):
    """Times all variants and prints a line for each."""
    tokenizer = tokenization.build_tokenizer(spm_model_file=args.spm_model_file)
    task, data = text_data.read_data(
        args.data_dir,
        table_tasks.GLUE[args.task_name],
        tokenizer,
        128,
        with_train=True,
        with_dev=False,
        with_test=False,
    )
    assert task.labels and data.train
    examples = data.train.examples
    model = heads.AlbertClassifier(
        AlbertConfig.from_json_file(args.albert_config_file),
        num_labels=len(task.labels),
        dtype=layers.POLICIES[args.compute_dtype],
    )
    weights = modeling.named_weights(model)
    optimizer = optimization.build_optimizer(
        "adamw",
        {name: weight.value for name, weight in weights.items()},
        optimization.build_schedule(1e-5, 1_000_000),
    )
    strategy = tf.distribute.get_strategy()
    variants = build_variants(args, examples)
    train_steps = replicas.Traces(
        replicas.build_train_function(strategy, model, optimizer)
    )
    seconds: dict = {name: [] for name in variants}
    for repeat in range(args.num_repeats + 1):
        for name, (plan, datasets) in variants.items():
            elapsed = time_epoch(strategy, train_steps, plan, datasets)
            if repeat:  # The first compiles.
                seconds[name].append(elapsed)
    medians = {name: statistics.median(s) for name, s in seconds.items()}
    tokens = batches.longest_sequences(examples)
    print(
        f"{args.task_name}: {len(tokens)} examples, mean length "
        f"{tokens.mean():.0f} tokens, maximum {tokens.max()}"
    )
    for name, (plan, _) in variants.items():
        print(
            f"{name:14} {plan.lengths.mean():6.0f} tokens/sequence "
            f"{medians[name]:8.1f} s/epoch  "
            f"{medians[name] / medians['buckets']:5.2f}x buckets"
        )


if __name__ == "__main__":
    flags.launch(run, BenchmarkFlags)
