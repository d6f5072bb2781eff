r"""Measures what each part of our initial values is worth in pretraining.

  python -m benchmarks.initial_values --step=pack --train_text=novels.txt \
    --heldout_text=novels_valid.txt --spm_model_file=30k-clean.model \
    --output_dir=out
  python -m benchmarks.initial_values --output_dir=out [--only='parts;deep']
  python -m benchmarks.initial_values --step=print --output_dir=out

The first command makes records and packs them. The second trains, all models
of a study at once, with PyTorch. The third prints the tables of
docs/results/initial_values.md. A study takes one or two minutes of a large GPU.
"""

import dataclasses
import json
from typing import Any

from albert_tf import flags
from albert_tf.flags import flag
from benchmarks import studies

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

# configs/model/small.json had 4 heads then.
SMALL: dict[str, Any] = {"num_attention_heads": 4}
BASE: dict[str, Any] = {
    "config": "v2/base",
    "num_seeds": 1,
    "batch_size": 64,
    "learning_rate": 2e-4,
    "beta_2": 0.98,
}
LONG: dict[str, Any] = {
    "changes": SMALL,
    "records": "long",
    "batch_size": 8,
    "eval_steps": 500,
}
LONGER = LONG | {
    "num_seeds": 1,
    "batch_size": 16,
    "learning_rate": 8e-4,
    "beta_2": 0.98,
}
# Name -> changes of STUDY, and variants: label -> what it changes. On an NVIDIA
# H200 only base and base2 reach their max_seconds; a slower GPU needs more.
STUDIES: dict[str, dict] = {
    "parts": {
        "changes": SMALL,
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
        "changes": SMALL | {"num_hidden_layers": 12},
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
        "changes": SMALL,
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
        "changes": SMALL | {"num_hidden_layers": 12},
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
        "changes": SMALL,
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
        "changes": SMALL | {"num_hidden_layers": 6, "num_hidden_groups": 6},
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkFlags(studies.StudyFlags):
    """The step, its data and the output folder."""

    plot: bool = flag(
        False, "Instead, draws docs/neighbors.svg from the results."
    )


def plot(args):
    """Draws the loss over the tokens seen, from both starts."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True)
    for panel, (title, num_tokens, lines) in zip(panels, PANELS, strict=True):
        for color, (name, study, variant) in zip(
            ("tab:gray", "tab:red"), lines, strict=True
        ):
            rows = json.loads(studies.result_file(args, study).read_text())
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
    """Plots, or packs, trains or prints the studies that are asked for."""
    if args.plot:
        plot(args)
    else:
        studies.run(args, STUDIES)


if __name__ == "__main__":
    flags.launch(run, BenchmarkFlags)
