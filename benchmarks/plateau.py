r"""Measures which recipes leave the plateau of piece frequencies, and when.

  python -m benchmarks.plateau --train_text=novels.txt \
    --heldout_text=novels_valid.txt --spm_model_file=30k-clean.model \
    --output_dir=out [--only='base;beta_2']

Each row of ROWS changes some settings of BASE. Rerun the same command
to resume: finished work is skipped. All rows are scored on the same held-out
records, with single masked pieces (15%) in sequences of 64 tokens; the table at
the end is for docs/results/plateau.md. A row takes a quarter of an hour of a
core.
"""

import dataclasses
import json
import pathlib

from albert_tf import filesystem, flags
from albert_tf.flags import flag
from albert_tf.model.config import AlbertConfig
from albert_tf.reports import plot_metrics
from benchmarks import programs

RECIPE = "ten_minutes"
CONFIG = programs.ROOT / "configs/model/small.json"
# Records, of which the rows change some settings.
RECORDS = {
    "max_seq_length": 64,
    "ngram": 1,
    "masked_lm_prob": 0.4,
    "max_predictions_per_seq": 26,
    "dupe_factor": 2,
}
# Held-out records: the usual fraction of masks, one pass over the text.
HELD_OUT = RECORDS | {
    "masked_lm_prob": 0.15,
    "max_predictions_per_seq": 10,
    "dupe_factor": 1,
}
# What the rows are compared with; otherwise RECIPE.
BASE = {
    "train_batch_size": 16,
    "optimizer": "adamw",
    "learning_rate": 1e-3,
    "num_warmup_steps": 500,
    "initialization": "release",
    "save_checkpoints_steps": 500,
    "keep_checkpoint_max": 1,
}
# Name -> changed settings of records, model or training.
ROWS: dict[str, dict] = {
    "base": {},
    "sentence": {"sentence_weight": 1},
    "beta_2": {"beta_2": 0.999},
    "sentence,beta_2": {"sentence_weight": 1, "beta_2": 0.999},
    "ngram": {"ngram": 3},
    "masked": {"masked_lm_prob": 0.15, "max_predictions_per_seq": 10},
    "rate": {"learning_rate": 5e-4},
    "batch": {"train_batch_size": 32},
    "batch 64": {"train_batch_size": 64, "num_train_steps": 2000},
    "batch 64,rate": {
        "train_batch_size": 64,
        "num_train_steps": 2000,
        "learning_rate": 2e-3,
    },
    "batch 64,rate 4e-3": {
        "train_batch_size": 64,
        "num_train_steps": 2000,
        "learning_rate": 4e-3,
    },
    "batch 128,rate 4e-3": {
        "train_batch_size": 128,
        "num_train_steps": 1000,
        "num_warmup_steps": 250,
        "learning_rate": 4e-3,
    },
    "batch 64,sentence": {
        "train_batch_size": 64,
        "num_train_steps": 2000,
        "sentence_weight": 1,
    },
    "batch 64,sentence,rate": {
        "train_batch_size": 64,
        "num_train_steps": 2000,
        "sentence_weight": 1,
        "learning_rate": 2e-3,
    },
    "length": {
        "max_seq_length": 128,
        "max_predictions_per_seq": 52,
        "train_batch_size": 8,
    },
    "lamb": {"optimizer": "lamb", "learning_rate": 5e-3},
    "seed": {"random_seed": 54321},
    "initializer": {"initializer_range": 0.02},
    "width": {
        "hidden_size": 512,
        "intermediate_size": 2048,
        "num_attention_heads": 8,
        "initializer_range": 0.035,
        "train_batch_size": 64,
        "num_train_steps": 2000,
        "learning_rate": 1.4e-3,
    },
    "depth": {"num_hidden_layers": 6},
    "sharing": {"parameter_sharing": "none"},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkFlags(programs.TextFlags):
    """Data, output folder and rows."""

    only: str = flag("", "Names of rows, separated by semicolons; empty: all.")
    num_train_steps: int = flag(
        4000,
        "Steps of rows that have no number of their own, more than the 500 of "
        "warmup.",
        at_least=501,
    )


def train(args, name, changes):
    """Trains one row, or resumes it."""
    values = AlbertConfig.from_json_file(CONFIG).to_dict()
    config, records, settings = split(changes, values, RECORDS)
    path = pathlib.Path(args.output_dir, "configs", f"{name}.json")
    filesystem.write_file(str(path), json.dumps(values | config))
    programs.pretrain(
        args,
        name,
        RECIPE,
        RECORDS | records,
        HELD_OUT,
        {
            **BASE,
            "num_train_steps": args.num_train_steps,
            "albert_config_file": path,
            **settings,
        },
    )


def split(changes, *known):
    """Divides a dict into one for each of `known`, by key, and the rest."""
    parts = [{k: v for k, v in changes.items() if k in keys} for keys in known]
    rest = {k: v for k, v in changes.items() if not any(k in p for p in parts)}
    return *parts, rest


def count_tokens(changes):
    """Returns how many tokens a row sees per step, padding included."""
    values = BASE | RECORDS | changes
    return values["train_batch_size"] * values["max_seq_length"]


def print_table(folder):
    """Prints the held-out accuracy by tokens seen, a line per row."""
    scores, orders = {}, {}
    for name, changes in ROWS.items():
        path = pathlib.Path(folder, name, "metrics.jsonl")
        records = plot_metrics.read_records(path) if path.exists() else []
        evaluations = [r for r in records if r["split"] == "eval" and r["step"]]
        scores[name] = {
            count_tokens(changes) * r["step"]: r["masked_lm_accuracy"]
            for r in evaluations
        }
        metric = "sentence_order_accuracy"
        if evaluations and metric in evaluations[-1]:
            orders[name] = f"{evaluations[-1][metric]:.1%}"
    columns = sorted({tokens for row in scores.values() for tokens in row})
    heads = [f"{tokens / 1e6:.1f}M" for tokens in columns]
    print(f"| changes | {' | '.join(heads)} | sentence order |")
    print("|---" * (len(columns) + 2) + "|")
    for name, row in scores.items():
        if row:
            cells = [f"{row[t]:.1%}" if t in row else "" for t in columns]
            cells.append(orders.get(name, ""))
            print(f"| {ROWS[name] or 'none'} | {' | '.join(cells)} |")


def run(args):
    """Trains the requested rows, one after another."""
    for name in flags.parse_names("only", args.only, list(ROWS)):
        train(args, name, ROWS[name])
    print_table(args.output_dir)


if __name__ == "__main__":
    flags.launch(run, BenchmarkFlags)
