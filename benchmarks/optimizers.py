r"""Measures what Muon is worth in pretraining, beside AdamW.

  python -m benchmarks.optimizers --step=pack --train_text=novels.txt \
    --heldout_text=novels_valid.txt --spm_model_file=30k-clean.model \
    --output_dir=out
  python -m benchmarks.optimizers --output_dir=out [--only='hour']
  python -m benchmarks.optimizers --step=print --output_dir=out

The first command makes records and packs them. The second trains, all models
of a study at once, with PyTorch. The third prints the tables of
docs/results/optimizers.md. "hour" and "night" are the recipes of that name as
they were with a softmax over all pieces, in their numbers of steps; a model of
an hour takes a quarter of a minute of a large GPU.
"""

from typing import Any

from albert_tf import flags
from benchmarks import studies

# The initial values that albert_tf has now: arguments of
# `stacked_values.neighbors`.
NEIGHBORS: dict[str, Any] = {
    "amplitude": 3,
    "slowest": 1 / 8,
    "unit_projection": True,
    "offsets": (-1.3, 1.3, -2.3, 2.3, -3.3, 3.3),
    "score": 2,
    "is_first_alone": True,
    "output_power": 1,
    "piece_bias": True,
}
MUON = NEIGHBORS | {"optimizer": "muon"}
DECAY = {"weight_decay": 0.1}
POSITIONS = {"max_position_embeddings": 512}
# configs/model/small.json had 4 heads until the study of 8.
FORMER = POSITIONS | {"num_attention_heads": 4}
RECIPE: dict[str, Any] = {
    "records": "hour",
    "changes": FORMER,
    "num_seeds": 1,
    "num_steps": 3700,
    "num_warmup_steps": 300,
    "batch_size": 64,
    "beta_2": 0.98,
    "num_held_out": 2345,
    "eval_steps": 500,
    "max_seconds": 300,
}


def at(rate, settings):
    """Returns a variant with a peak learning rate."""
    return settings | {"learning_rate": rate}


def of_kernels(rate, other_rate, settings):
    """Returns a variant of Muon with two rates."""
    share = {"kernel_share": rate / other_rate}
    return at(other_rate, settings) | share


# What the recipes have now.
PRESENT = {
    "Muon, 4e-3, kernels 2e-3, decay 0.1": of_kernels(2e-3, 4e-3, MUON) | DECAY
}
SIX_LAYERS = RECIPE | {
    "changes": POSITIONS | {"num_hidden_layers": 6},
    "num_seeds": 3,
    "num_warmup_steps": 150,
    "eval_steps": 1000,
    "eval_layers": (1, 2, 3, 4, 5, 8),
    "max_seconds": 160,
    "variants": PRESENT,
}
STUDIES: dict[str, dict] = {
    "hour": RECIPE
    | {
        "variants": {
            "AdamW, 2e-3": at(2e-3, NEIGHBORS),
            "AdamW, 4e-3": at(4e-3, NEIGHBORS),
            "Muon, 2e-3": at(2e-3, MUON),
            "Muon, 3e-3": at(3e-3, MUON),
            "Muon, 4e-3": at(4e-3, MUON),
            "Muon, 6e-3": at(6e-3, MUON),
            "Muon, 2e-3, kernels 4e-3": of_kernels(4e-3, 2e-3, MUON),
            "Muon, 3e-3, decay 0.1": at(3e-3, MUON) | DECAY,
        },
    },
    "hour_rates": RECIPE
    | {
        "variants": {
            "AdamW, 2e-3, decay 0.1": at(2e-3, NEIGHBORS) | DECAY,
            "Muon, 1.3e-3": at(1.3e-3, MUON),
            "Muon, 4e-3, kernels 2e-3": of_kernels(2e-3, 4e-3, MUON),
            "Muon, 6e-3, kernels 2e-3": of_kernels(2e-3, 6e-3, MUON),
            "Muon, 2e-3, decay 0.1": at(2e-3, MUON) | DECAY,
            "Muon, 3e-3, decay 0.3": at(3e-3, MUON) | {"weight_decay": 0.3},
            "Muon, 4e-3, kernels 2e-3, decay 0.1": of_kernels(2e-3, 4e-3, MUON)
            | DECAY,
            "Muon, 4e-3, kernels 1e-3, decay 0.1": of_kernels(1e-3, 4e-3, MUON)
            | DECAY,
            "Muon, 4e-3, kernels 2e-3, decay 0.3": of_kernels(2e-3, 4e-3, MUON)
            | {"weight_decay": 0.3},
        },
    },
    "hour_batch_32": RECIPE
    | {
        "batch_size": 32,
        "num_steps": 7400,
        "num_warmup_steps": 600,
        "eval_steps": 1000,
        "variants": {
            "Muon, 1.5e-3, decay 0.1": at(1.5e-3, MUON) | DECAY,
            "Muon, 2.5e-3, decay 0.1": at(2.5e-3, MUON) | DECAY,
        },
    },
    "hour_8_heads": RECIPE
    | {
        "changes": POSITIONS,
        "variants": {"Muon, 3e-3, decay 0.1": at(3e-3, MUON) | DECAY},
    },
    "hour_16_heads": RECIPE
    | {
        "changes": POSITIONS | {"num_attention_heads": 16},
        "variants": PRESENT,
    },
    "hour_3_groups": RECIPE
    | {
        "changes": FORMER | {"num_hidden_groups": 3},
        "variants": {
            "Muon, 3e-3, decay 0.1": at(3e-3, MUON) | DECAY,
            "the same, outputs / sqrt(layers)": at(3e-3, MUON)
            | DECAY
            | {"output_power": 0.5},
        },
    },
    "night_8_heads": RECIPE
    | {
        "changes": POSITIONS,
        "num_steps": 11300,
        "eval_steps": 1000,
        "max_seconds": 400,
        "variants": PRESENT,
        "kept": tuple(PRESENT),
    },
    "hour_2_layers": RECIPE
    | {
        "changes": FORMER | {"num_hidden_layers": 2, "intermediate_size": 2048},
        "num_steps": 3500,
        "variants": {"Muon, 3e-3, decay 0.1": at(3e-3, MUON) | DECAY},
    },
    # As many steps as two cores do in the time of the hour.
    "hour_384": RECIPE
    | {
        "changes": POSITIONS
        | {
            "hidden_size": 384,
            "num_attention_heads": 6,
            "intermediate_size": 1536,
            "initializer_range": 0.04,
        },
        "num_steps": 2500,
        "num_warmup_steps": 200,
        "max_seconds": 100,
        "variants": {
            "AdamW, 1.5e-3": at(1.5e-3, NEIGHBORS),
            "Muon, 2e-3": at(2e-3, MUON),
            "Muon, 3e-3": at(3e-3, MUON),
        },
    },
    # Of as many steps as take the same time: a step of 2 to 6 layers computes 4
    # of 6 on average.
    "depth_all": SIX_LAYERS | {"num_steps": 1300},
    "depth_drawn": SIX_LAYERS | {"num_steps": 1600, "min_num_layers": 2},
    "hour_12_layers": RECIPE
    | {
        "changes": FORMER | {"num_hidden_layers": 12},
        "num_steps": 1350,
        "num_warmup_steps": 150,
        "max_seconds": 100,
        "variants": {
            "AdamW, 4e-4": at(4e-4, NEIGHBORS),
            "AdamW, 8e-4": at(8e-4, NEIGHBORS),
            "Muon, 8e-4": at(8e-4, MUON),
            "Muon, 2e-3": at(2e-3, MUON),
            "Muon, 3e-3": at(3e-3, MUON),
        },
    },
}


if __name__ == "__main__":
    flags.launch(lambda args: studies.run(args, STUDIES), studies.StudyFlags)
