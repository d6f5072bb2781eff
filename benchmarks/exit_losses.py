r"""Compares losses after every layer: one head or one a layer, their weights.

  python -m benchmarks.exit_losses --init_checkpoint=out/deep \
    --task_config=configs/tasks/speech_eras.json --data_dir=speeches \
    --output_dir=out/losses [--only='learned weights'] [--seeds=1,2,3]
  python -m benchmarks.exit_losses --step=print --output_dir=out/losses

Each variant is trained from the same weights with each seed. The first is what
--exit_loss does. A threshold is chosen on dev and scored on test. Rerun the
same command to resume: what is finished is skipped.

Shapes: B batch, N examples, L layers, C classes.

Source: one head a layer as in PABEE (arXiv 2006.04152); learned weights as in
ELBERT (arXiv 2107.00175), whose last layer has what the others leave of L.
"""

import dataclasses
import json
import pathlib
import statistics
from typing import Literal, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf import Classification, FineTuning, Recipe, filesystem, flags
from albert_tf.data import batches, table_tasks, text_data
from albert_tf.flags import flag
from albert_tf.metrics import classification
from albert_tf.metrics import exits as exit_scores
from albert_tf.model import exits, heads, layers
from albert_tf.training import evaluation
from albert_tf.weights import pretrained

# AdamW changes a weight by about the learning rate in each step; those of the
# layers are to be able to move from 0.5 to nearly 0 or 1 in some 500.
WEIGHT_SCALE = 50
TOLERANCE = 0.005  # What early answers may lose on dev.


class Variant(NamedTuple):
    """How the losses of the layers are made, and added up."""

    one_head_a_layer: bool = False
    weights: Literal["linear", "equal", "learned", "last"] = "linear"


VARIANTS = {
    "exit_loss": Variant(),
    "equal weights": Variant(weights="equal"),
    "learned weights": Variant(weights="learned"),
    "one head a layer": Variant(one_head_a_layer=True),
    "one head a layer and learned weights": Variant(True, "learned"),
    "last layer alone": Variant(weights="last"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkFlags:
    """Model, data and settings of the fine-tuning."""

    output_dir: str = flag(required=True, help="Output folder.")
    step: Literal["train", "print"] = flag("train", "What to do.")
    init_checkpoint: str | None = flag(help="The pretrained model.")
    data_dir: str | None = flag(help="As for run_classifier.")
    task_name: str | None = flag(help="As for run_classifier.")
    task_config: str | None = flag(help="As for run_classifier.")
    max_seq_length: int = flag(64, "Maximum length, in tokens.")
    train_step: int = flag(562, "Number of steps.")
    warmup_step: int = flag(56, "Number of steps of warmup.")
    learning_rate: float = flag(2e-4, "Peak learning rate.")
    seeds: str = flag("1,2,3", "Seeds of the runs.")
    only: str = flag("", "Names of variants, by semicolons; empty: all.")


class LayerWeights(layers.WeightOwner):
    """Learned weights of the losses of the layers."""

    def __init__(self, config, **kwargs):
        super().__init__(config, "layer_weights", **kwargs)
        # As a bias, it has no weight decay.
        self.bias = self.add("bias", (config.num_hidden_layers - 1,), "zeros")

    def compute(self):
        """Returns the weights, [L] float32, whose sum is L."""
        first = tf.sigmoid(WEIGHT_SCALE * self.bias.value)  # [L - 1]
        last = self.config.num_hidden_layers - tf.reduce_sum(first)
        return tf.concat([first, last[None]], axis=0)  # [L]


class ExitClassifier(heads.AlbertClassifier):
    """A classifier with the loss of a `Variant`."""

    def __init__(self, config, variant, **kwargs):
        super().__init__(config, **kwargs)
        num_layers = config.num_hidden_layers
        self.layer_heads = None
        if variant.one_head_a_layer:
            others = [
                heads.Logits(f"layer_{i}", self.num_labels, config)
                for i in range(1, num_layers)
            ]
            self.layer_heads = [*others, self.output_layer]
        self.learned = None
        if variant.weights == "learned":
            self.learned = LayerWeights(config)
        counts = tf.range(1.0, num_layers + 1)  # [L]
        self.fixed_weights = {
            "linear": counts / tf.reduce_mean(counts),
            "equal": tf.ones(num_layers),
            "last": tf.one_hot(num_layers - 1, num_layers, float(num_layers)),
        }.get(variant.weights)

    def loss_weights(self):
        """Returns the weights of the losses, [L] float32, whose sum is L."""
        return self.learned.compute() if self.learned else self.fixed_weights

    def layer_logits(self, features, training=False, seed=None):
        """Returns the logits after each layer, [B, L, C] float32."""
        return exits.layer_logits(
            self, features, training, seed, self.layer_heads
        )

    def ratios(self, features, training=False, seed=None):
        logits = self.layer_logits(features, training, seed)
        by_layer = [
            self.ratios_of(x, features, training)
            for x in tf.unstack(logits, axis=1)
        ]
        weights = self.loss_weights()  # [L]
        totals = tf.stack([ratios["loss"].total for ratios in by_layer])  # [L]
        last = by_layer[-1]
        loss = last["loss"]._replace(total=tf.reduce_mean(weights * totals))
        return last | {"loss": loss}


class ExitTask(Classification):
    """A `Classification` whose model has the loss of a `Variant`."""

    variant = Variant()

    def build_model(self, config, dropout=0.1, dtype="float32"):
        return ExitClassifier(
            config,
            self.variant,
            num_labels=len(self.task.labels),
            dropout_prob=dropout,
            dtype=dtype,
        )


def read_task(args, tokenizer):
    """Returns an `ExitTask` of the flags, with train, dev and test data."""
    task = table_tasks.choose_task(args.task_name, args.task_config)
    task, data = text_data.read_data(
        args.data_dir,
        task,
        tokenizer,
        args.max_seq_length,
        with_train=True,
        with_dev=True,
        with_test=bool(args.task_config and task.test),
    )
    return ExitTask(task, data, max_seq_length=args.max_seq_length)


def predict_layers(tuning, examples):
    """Returns the logits after each layer, [N, L, C]."""
    model, recipe = tuning.model, tuning.recipe
    strategy = tuning.session.strategy
    traces = evaluation.build_predict_function(
        strategy, lambda features: {"logits": model.layer_logits(features)}
    )
    plan = batches.plan_pass(
        examples, tuning.task.max_seq_length, recipe.tokens_per_batch
    )
    datasets = batches.build_pass(examples, plan)
    outputs = evaluation.predict(strategy, traces, datasets, len(examples))
    return outputs["logits"]


def score(tuning):
    """Returns accuracies by layer and early, on dev and, if known, on test."""
    task = tuning.task
    metric = task.best_metric
    logits, labels = {}, {}
    for part in ("dev", "test"):
        split = next(iter(getattr(task.data, part).values()), None)
        if split and "label_ids" in split.examples.arrays:
            labels[part] = split.examples.arrays["label_ids"]
            logits[part] = predict_layers(tuning, split.examples)
    rows = exit_scores.list_exits(logits["dev"], labels["dev"], metric)
    chosen = exit_scores.choose_exit(rows, TOLERANCE)
    found = {"metric": metric, "threshold": chosen.threshold}

    def measure(some, part):
        wanted = labels[part]
        return classification.score(some, wanted, "classes", [metric])[metric]

    for part, some in logits.items():
        early, num_layers = exit_scores.leave(some, chosen.threshold)
        found[part] = {
            "layers": [measure(x, part) for x in np.moveaxis(some, 1, 0)],
            "early": measure(early, part),
            "num_layers": float(num_layers.mean()),
        }
    return found


def train(args, name, seed):
    """Trains and scores a variant, unless that has been done."""
    folder = pathlib.Path(args.output_dir, f"{name.replace(' ', '_')}-{seed}")
    path = folder / "exits_by_layer.json"
    if path.exists():
        return
    start = pretrained.complete(
        pretrained.read_pretrained(args.init_checkpoint)
    )
    task = read_task(args, start.tokenizer)
    task.variant = VARIANTS[name]
    recipe = Recipe(
        learning_rate=args.learning_rate,
        train_step=args.train_step,
        warmup_step=args.warmup_step,
        random_seed=int(seed),
        keep_checkpoint_max=1,
    )
    tuning = FineTuning(folder, task, start, recipe)
    tuning.train()
    tuning.restore_best()
    found = score(tuning)
    if VARIANTS[name].weights == "learned":
        weights = tuning.model.loss_weights().numpy()
        found["weights"] = weights.round(3).tolist()
    filesystem.write_json(str(path), found)


def show(args):
    """Prints a row for each variant: medians over its seeds, and all values."""
    for name in VARIANTS:
        pattern = f"{name.replace(' ', '_')}-*/exits_by_layer.json"
        files = sorted(pathlib.Path(args.output_dir).glob(pattern))
        found = [json.loads(file.read_text("utf-8")) for file in files]
        for part in ("dev", "test"):
            some = [x[part] for x in found if part in x]
            if some:
                print(f"| {name}, {part} | {' | '.join(describe(some))} |")


def describe(results):
    """Returns the cells of a row."""
    by_layer = np.median([x["layers"] for x in results], axis=0)  # [L]
    return [
        " ".join(f"{100 * x['layers'][-1]:.1f}" for x in results),
        " ".join(f"{100 * x['early']:.1f}" for x in results),
        f"{statistics.median(x['num_layers'] for x in results):.1f}",
        " ".join(f"{100 * x:.1f}" for x in by_layer),
    ]


def run(args):
    """Trains the variants, or prints what they are worth."""
    if args.step == "print":
        show(args)
        return
    task = args.task_config or args.task_name
    if not (args.init_checkpoint and args.data_dir and task):
        raise ValueError(
            "To train, give --init_checkpoint, --data_dir, and --task_name or "
            "--task_config."
        )
    names = flags.parse_names("only", args.only, list(VARIANTS))
    for seed in args.seeds.split(","):
        for name in names:
            train(args, name, seed)


if __name__ == "__main__":
    flags.launch(run, BenchmarkFlags)
