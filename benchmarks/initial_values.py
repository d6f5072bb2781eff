r"""Measures what each part of our initial values is worth in pretraining.

  python -m benchmarks.initial_values --step=pack --train_text=novels.txt \
    --heldout_text=novels_valid.txt --spm_model_file=30k-clean.model \
    --output_dir=out
  python -m benchmarks.initial_values --output_dir=out [--only='parts;deep']
  python -m benchmarks.initial_values --step=print --output_dir=out

The first command makes records and packs them into a file for each length. The
second trains, all models of a study at once; it needs PyTorch and the packed
files, but no TensorFlow. The third prints docs/results/initial_values.md's
tables. A study takes one or two minutes of a large GPU.

Shapes: V vocab_size, R records, P predictions.
"""

import dataclasses
import json
import pathlib
from typing import Any, Literal

import numpy as np

from albert_tf import flags
from albert_tf.flags import flag
from albert_tf.model.config import AlbertConfig
from benchmarks import stacked_values

CONFIGS = pathlib.Path(__file__).parent.parent / "configs/model"
# Tokens -> settings of the records; of those of 128 tokens, a random half.
RECORDS = {
    128: {"max_predictions_per_seq": 20, "dupe_factor": 2},
    512: {"max_predictions_per_seq": 77, "dupe_factor": 1},
}
KEPT = {128: 0.5, 512: 1.0}
EARLY = 500  # Steps: the first accuracy of the tables is from there.

# What a variant changes: arguments of `stacked_values.neighbors`,
# learning_rate, initializer_range, and piece_bias: whether the bias of the
# masked LM has the frequencies of the pieces.
TWICE_1 = {"offsets": (-1, 1, -1, 1)}
TWICE_1_3 = {"offsets": (-1.3, 1.3, -1.3, 1.3)}
ONE_AND_TWO = {"offsets": (-1, 1, -2, 2)}
TWO_HEADS = {"offsets": (-1.3, 1.3)}
BIAS: dict[str, Any] = {"piece_bias": True}
START: dict[str, Any] = {
    "amplitude": 3,
    "offsets": (-1.3, 1.3, -2.3, 2.3, -3.3, 3.3),
    "output_power": 1,
}
UNIT = START | {"unit_projection": True}
FAST = UNIT | {"slowest": 1 / 20}
FAST_1 = FAST | TWICE_1
FAST_6 = FAST | {"offsets": (-1, 1) * 3}

STUDY: dict[str, Any] = {
    "config": "small",
    "num_tokens": 128,
    "num_seeds": 3,
    "num_steps": 1000,
    "batch_size": 32,
    "learning_rate": 4e-4,
    "optimizer": "adamw",
    "beta_2": 0.999,
    "eval_steps": 250,
}
BASE: dict[str, Any] = {
    "config": "v2/base",
    "num_seeds": 1,
    "batch_size": 64,
    "learning_rate": 2e-4,
    "beta_2": 0.98,
}
LONG: dict[str, Any] = {"num_tokens": 512, "batch_size": 8, "eval_steps": 500}
LONGER = LONG | {
    "num_seeds": 1,
    "batch_size": 16,
    "learning_rate": 8e-4,
    "beta_2": 0.98,
}
# Settings that `stacked.train` takes.
TRAINING = (
    "batch_size num_steps optimizer beta_2 eval_steps max_seconds".split()
)
# Name -> changes of STUDY, and variants: label -> what it changes. On an NVIDIA
# H200 only base and base2 reach their max_seconds; a slower GPU needs more.
STUDIES: dict[str, dict] = {
    "parts": {
        "num_steps": 1500,
        "eval_steps": 500,
        "max_seconds": 130,
        "variants": {
            "random values": {},
            "start, outputs not divided": START | {"output_power": 0},
            "start": START,
            "start, outputs / sqrt(layers)": START | {"output_power": 0.5},
            "start, random queries and keys": START | {"offsets": ()},
            "start, amplitude 1": START | {"amplitude": 1},
            "start, amplitude 1.5": START | {"amplitude": 1.5},
            "start, amplitude 6": START | {"amplitude": 6},
            "start, offsets ±1, ±2": START | ONE_AND_TWO,
            "start, two heads at ±1.3": START | TWO_HEADS,
            "start, two heads at each of ±1.3": START | TWICE_1_3,
            "start, noise 0": START | {"noise": 0},
            "start, noise 1": START | {"noise": 1},
            "start, score 0.5": START | {"score": 0.5},
            "start, score 2": START | {"score": 2},
            "unit projection": UNIT,
            "start, slowest 1/20": START | {"slowest": 1 / 20},
            "start, score after norm": START | {"score_after_norm": True},
        },
    },
    "deep": {
        "changes": {"num_hidden_layers": 12},
        "max_seconds": 130,
        "variants": {
            "random values, range 0.05": {},
            "random values, range 0.02": {"initializer_range": 0.02},
            "random values, outputs / layers": {"output_power": 1},
            "start, outputs not divided": START | {"output_power": 0},
            "start, outputs / sqrt(layers)": START | {"output_power": 0.5},
            "start": START,
            "unit projection": UNIT,
            "start, score after norm": START | {"score_after_norm": True},
        },
    },
    "base": BASE
    | {
        "num_steps": 1500,
        "max_seconds": 150,
        "variants": {
            "random values": {},
            "start": START,
            "start, rate 4e-4": START | {"learning_rate": 4e-4},
            "start, score after norm": START | {"score_after_norm": True},
            "random values, outputs / layers": {"output_power": 1},
            "unit projection": UNIT,
        },
    },
    "parts2": {
        "num_steps": 1500,
        "eval_steps": 500,
        "max_seconds": 95,
        "variants": {
            "unit projection": UNIT,
            "fast": FAST,
            "fast, two heads at ±1.3": FAST | TWO_HEADS,
            "fast, two heads at each of ±1": FAST_1,
            "fast, offsets ±1, ±2": FAST | ONE_AND_TWO,
            "fast, score 0.5": FAST | {"score": 0.5},
            "fast, piece bias": FAST | BIAS,
            "random values, piece bias": BIAS,
            "unit projection, slowest 1/8": UNIT | {"slowest": 1 / 8},
            "fast, amplitude 5": FAST | {"amplitude": 5},
            "fast, amplitude 2": FAST | {"amplitude": 2},
            "fast, two heads at ±1, piece bias": FAST
            | {"offsets": (-1, 1)}
            | BIAS,
        },
    },
    "deep2": {
        "changes": {"num_hidden_layers": 12},
        "beta_2": 0.98,
        "max_seconds": 95,
        "variants": {
            "start": START,
            "fast ±1, rate 2e-4": FAST_1 | {"learning_rate": 2e-4},
            "fast ±1": FAST_1,
            "fast ±1, piece bias": FAST_1 | BIAS,
            "fast ±1, piece bias, rate 2e-4": FAST_1
            | BIAS
            | {"learning_rate": 2e-4},
            "fast ±1, piece bias, rate 8e-4": FAST_1
            | BIAS
            | {"learning_rate": 8e-4},
            "random values, range 0.02, piece bias, rate 2e-4": BIAS
            | {"initializer_range": 0.02, "learning_rate": 2e-4},
            "fast ±1, outputs / layers²": FAST_1 | {"output_power": 2},
        },
    },
    "base2": BASE
    | {
        "max_seconds": 100,
        "variants": {
            "fast ±1, piece bias": FAST_6 | BIAS,
            "fast ±1, piece bias, rate 4e-4": FAST_6
            | BIAS
            | {"learning_rate": 4e-4},
            "fast ±1, piece bias, rate 8e-4": FAST_6
            | BIAS
            | {"learning_rate": 8e-4},
            "random values, piece bias": BIAS,
            "fast ±1": FAST_6,
        },
    },
    "long": LONG
    | {
        "max_seconds": 40,
        "variants": {
            "random values": {},
            "fast ±1": FAST_1,
            "fast ±1, piece bias": FAST_1 | BIAS,
            "unit projection": UNIT,
        },
    },
    "long3": LONGER
    | {
        "eval_steps": 250,
        "max_seconds": 60,
        "variants": {
            "fast ±1": FAST_1 | BIAS,
            "fast ±1, score 2": FAST_1 | BIAS | {"score": 2},
            "fast ±1, score 4": FAST_1 | BIAS | {"score": 4},
            "unit projection ±1": UNIT | TWICE_1 | BIAS,
            "unit projection ±1, score 2": UNIT | TWICE_1 | BIAS | {"score": 2},
            "unit projection ±1, score 4": UNIT | TWICE_1 | BIAS | {"score": 4},
            "unit projection, score 2": UNIT | BIAS | {"score": 2},
        },
    },
    "long4": LONGER
    | {
        "max_seconds": 40,
        "variants": {
            "fast, score 2": FAST | BIAS | {"score": 2},
            "unit projection, slowest 1/8, score 2": UNIT
            | BIAS
            | {"slowest": 1 / 8, "score": 2},
            "unit projection, score 3": UNIT | BIAS | {"score": 3},
            "fast, score 3": FAST | BIAS | {"score": 3},
            "fast, two heads at each of ±1.3, score 2": FAST
            | TWICE_1_3
            | BIAS
            | {"score": 2},
            "fast, offsets ±1, ±2, score 2": FAST
            | ONE_AND_TWO
            | BIAS
            | {"score": 2},
            "fast, amplitude 5, score 2": FAST
            | BIAS
            | {"amplitude": 5, "score": 2},
        },
    },
    "lamb": {
        "num_steps": 1200,
        "learning_rate": 2e-4,
        "optimizer": "lamb",
        "eval_steps": 400,
        "max_seconds": 40,
        "variants": {
            "random values": {},
            "fast ±1": FAST_1,
            "fast ±1, piece bias": FAST_1 | BIAS,
            "random values, rate 1.6e-3": {"learning_rate": 1.6e-3},
            "fast ±1, rate 1.6e-3": FAST_1 | {"learning_rate": 1.6e-3},
        },
    },
    "unshared": {
        "changes": {"num_hidden_layers": 6, "num_hidden_groups": 6},
        "num_seeds": 2,
        "num_steps": 750,
        "max_seconds": 45,
        "variants": {
            "random values, range 0.02": {"initializer_range": 0.02},
            "random values, range 0.05": {},
            "fast ±1, outputs / sqrt(layers)": FAST_1 | {"output_power": 0.5},
            "the same in the first layer alone": FAST_1
            | {"output_power": 0.5, "is_first_alone": True},
            "fast ±1, outputs not divided": FAST_1 | {"output_power": 0},
            "fast ±1": FAST_1,
        },
    },
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkFlags(flags.Flags):
    """The step, its data and the output folder."""

    step: Literal["pack", "train", "print", "plot"] = flag(
        "train", "What to do. plot: docs/neighbors.svg, from the results."
    )
    only: str = flag(
        "", "Names of studies, separated by semicolons; empty: all."
    )
    train_text: str = flag("", "To pack: text, one sentence per line.")
    heldout_text: str = flag("", "To pack: held-out text, the same.")
    spm_model_file: str = flag("", "To pack: SentencePiece model.")
    output_dir: str = flag(required=True, help="Output folder.")

    def check(self):
        texts = self.train_text, self.heldout_text, self.spm_model_file
        if self.step == "pack" and not all(texts):
            raise ValueError(
                "--step=pack needs --train_text, --heldout_text and "
                "--spm_model_file."
            )


def build(config, changes, seed, piece_counts):
    """Returns the initial values of a variant."""
    changes = dict(changes)
    changes.pop("learning_rate", None)
    if initializer_range := changes.pop("initializer_range", None):
        config = dataclasses.replace(
            config, initializer_range=initializer_range
        )
    if changes.pop("piece_bias", False):
        changes["piece_counts"] = piece_counts
    values = stacked_values.random_values(config, seed)
    return stacked_values.neighbors(config, values, **changes)


def pack(args):
    """Makes records and writes their features to a file for each length."""
    import tensorflow as tf

    from albert_tf.data.pretraining import records
    from benchmarks import programs

    for num_tokens, settings in RECORDS.items():
        arrays: dict[str, Any] = {}
        for part, text, changes, kept in (
            ("train", args.train_text, {}, KEPT[num_tokens]),
            ("heldout", args.heldout_text, {"dupe_factor": 1}, 1),
        ):
            path = programs.make_records(
                args,
                text,
                {"max_seq_length": num_tokens} | settings | changes,
            )
            features = records.pretraining_features(
                num_tokens, settings["max_predictions_per_seq"]
            )
            dataset = tf.data.TFRecordDataset(path).batch(4096)
            rng = np.random.default_rng(0)
            batches = [
                pack_batch(records.parse(x, features, {}), rng, kept)
                for x in dataset
            ]
            for name in batches[0]:
                arrays[f"{part}/{name}"] = np.concatenate(
                    [batch[name] for batch in batches]
                )
        np.savez_compressed(packed_file(args, num_tokens), **arrays)


def pack_batch(batch, rng, kept):
    """Returns small arrays of a random share of some records."""
    is_kept = rng.random(len(batch["input_ids"])) < kept
    batch = {name: x.numpy()[is_kept] for name, x in batch.items()}
    num_tokens = batch["input_mask"].sum(1)
    num_first = num_tokens - batch["segment_ids"].sum(1)
    names = "input_ids", "masked_lm_positions", "masked_lm_ids"
    arrays = {name: batch[name] for name in names} | {
        "segment_ends": np.stack([num_first, num_tokens], axis=1),  # [R, 2]
        "num_predictions": batch["masked_lm_weights"].sum(1),  # [R]
        "next_sentence_labels": batch["next_sentence_labels"],  # [R, 1]
    }
    return {name: x.astype(np.uint16) for name, x in arrays.items()}


def packed_file(args, num_tokens):
    """Returns the path of the packed records of a length."""
    return pathlib.Path(args.output_dir, f"{num_tokens}.npz")


def read_packed(args, num_tokens):
    """Returns dicts of arrays, for training and held out."""
    with np.load(packed_file(args, num_tokens)) as file:
        return [
            {
                name.partition("/")[2]: file[name]
                for name in file
                if name.startswith(f"{part}/")
            }
            for part in ("train", "heldout")
        ]


def count_pieces(data, vocab_size):
    """Returns how often each piece is to be predicted, [V]."""
    labels = data["masked_lm_ids"]  # [R, P]
    is_real = np.arange(labels.shape[1]) < data["num_predictions"][:, None]
    return np.bincount(labels[is_real], minlength=vocab_size)


def train(args, name):
    """Trains all models of a study; writes and prints what they reach."""
    from benchmarks import stacked

    study = STUDY | STUDIES[name]
    config = dataclasses.replace(
        AlbertConfig.from_json_file(CONFIGS / f"{study['config']}.json"),
        max_position_embeddings=study["num_tokens"],
        **study.get("changes", {}),
    )
    # Those of 128 tokens also serve the studies of 512.
    counts = count_pieces(read_packed(args, 128)[0], config.vocab_size)
    records = read_packed(args, study["num_tokens"])
    models = [
        (label, seed)
        for label in study["variants"]
        for seed in range(study["num_seeds"])
    ]
    values = [
        build(config, study["variants"][label], 1000 + seed, counts)
        for label, seed in models
    ]
    rates = [
        study["variants"][label].get("learning_rate", study["learning_rate"])
        for label, _ in models
    ]
    num_seen = study["num_steps"] * study["batch_size"]
    size = len(records[0]["input_ids"])
    orders = [draw_order(50 + seed, size, num_seen) for _, seed in models]
    rows = []
    for step, metrics in stacked.train(
        config,
        {n: np.stack([model[n] for model in values]) for n in values[0]},
        np.array(rates, np.float32),
        np.stack(orders),
        records,
        **{key: study[key] for key in TRAINING},
    ):
        for index, (label, seed) in enumerate(models):
            numbers = {key: x[index] for key, x in metrics.items()}
            rows.append(
                {"variant": label, "seed": seed, "step": step} | numbers
            )
        result_file(args, name).write_text(json.dumps(rows))
        print(f"{name}, step {step}", flush=True)


def draw_order(seed, size, num_seen):
    """Returns which records are seen, [num_seen]; each once in each pass."""
    rng = np.random.default_rng(seed)
    passes = [rng.permutation(size) for _ in range(1 + num_seen // size)]
    return np.concatenate(passes)[:num_seen]


def result_file(args, name):
    """Returns the path of a study's results."""
    return pathlib.Path(args.output_dir, f"{name}.json")


def print_table(args, name):
    """Prints a line per variant: all seeds, at an early step and the last."""
    rows = json.loads(result_file(args, name).read_text())
    last = rows[-1]["step"]
    early = max(row["step"] for row in rows if row["step"] <= EARLY)
    print(
        f"\n{name}:\n\n| variant | accuracy at {early} | at {last} | loss "
        "| sentence order | token cosine |\n|---|---|---|---|---|---|"
    )
    for label in STUDIES[name]["variants"]:
        cells = [
            " ".join(
                format(row[metric], form)
                for row in rows
                if (row["variant"], row["step"]) == (label, step)
            )
            for step, metric, form in (
                (early, "accuracy", ".1%"),
                (last, "accuracy", ".1%"),
                (last, "loss", ".2f"),
                (last, "sentence_order", ".1%"),
                (last, "cosine", ".2f"),
            )
        ]
        print(f"| {label} | {' | '.join(cells)} |")


# Panels of the picture: title, tokens in a step, and for each line its name,
# study and variant.
PANELS = (
    (
        "3 layers of 256, three seeds",
        32 * 128,
        (
            ("random values", "parts", "random values"),
            ("neighbors", "parts2", "unit projection, slowest 1/8"),
        ),
    ),
    (
        "12 layers of 768 (ALBERT-base), one seed",
        64 * 128,
        (
            ("random values", "base", "random values"),
            ("neighbors", "base2", "fast ±1, piece bias, rate 4e-4"),
        ),
    ),
)


def plot(args):
    """Draws the loss over the tokens seen, from both starts."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True)
    for panel, (title, num_tokens, lines) in zip(panels, PANELS, strict=True):
        for color, (name, study, variant) in zip(
            ("tab:gray", "tab:red"), lines, strict=True
        ):
            rows = json.loads(result_file(args, study).read_text())
            rows = [row for row in rows if row["variant"] == variant]
            for seed in sorted({row["seed"] for row in rows}):
                points = [
                    (row["step"] * num_tokens / 1e6, row["loss"])
                    for row in rows
                    if row["seed"] == seed and row["step"]
                ]
                panel.plot(
                    *zip(*points, strict=True),
                    color=color,
                    marker=".",
                    label=name if not seed else None,
                )
        panel.set(title=title, xlabel="million tokens")
        panel.grid(alpha=0.3)
    panels[0].set(ylabel="held-out masked-LM loss", ylim=(4.7, 7))
    panels[0].legend()
    figure.tight_layout()
    figure.savefig(f"{args.output_dir}/neighbors.svg")


def run(args):
    """Packs, plots, or trains or prints the studies that are asked for."""
    if args.step in ("pack", "plot"):
        {"pack": pack, "plot": plot}[args.step](args)
    else:
        do = {"train": train, "print": print_table}[args.step]
        for name in flags.parse_names("only", args.only, list(STUDIES)):
            do(args, name)


if __name__ == "__main__":
    flags.launch(run, BenchmarkFlags)
