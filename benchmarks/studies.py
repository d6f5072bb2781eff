"""Studies: pretrains many small models at once, and prints what they reach.

Each study is a row of settings with its variants; `initial_values` and
`optimizers` have such rows. A program has three steps:

  python -m benchmarks.NAME --step=pack --train_text=novels.txt \
    --heldout_text=novels_valid.txt --spm_model_file=30k-clean.model \
    --output_dir=out
  python -m benchmarks.NAME --output_dir=out [--only='first;second']
  python -m benchmarks.NAME --step=print --output_dir=out

The first makes the records and packs them into a file of each kind. The second
trains, all models of a study at once; it needs PyTorch, the packed files, but
no TensorFlow. The third prints the tables.

Shapes: V vocab_size, R records, T tokens, P predictions.
"""

import dataclasses
import functools
import io
import json
import lzma
import pathlib
from typing import Any, Literal

import numpy as np

from albert_tf import flags
from albert_tf.flags import flag
from albert_tf.model.config import AlbertConfig
from benchmarks import stacked_values

CONFIGS = pathlib.Path(__file__).parent.parent / "configs/model"
EARLY = 500  # Steps: the first accuracy of the tables is from there.
# The windows of this compression are larger than the records, of which each
# has its text several times.
XZ = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 2**28}]

# A setting of a study, unless its row has another; `stacked.train` explains
# them. `records` names a kind of records; `changes` are those of the config.
STUDY: dict[str, Any] = {
    "config": "small",
    "records": "short",
    "changes": {},
    "num_seeds": 3,
    "num_steps": 1000,
    "num_warmup_steps": None,  # A tenth of the steps.
    "batch_size": 32,
    "learning_rate": 4e-4,
    "optimizer": "adamw",
    "kernel_share": 1,
    "weight_decay": 0.01,
    "beta_2": 0.999,
    "num_held_out": 512,
    "eval_steps": 250,
    "eval_layers": (),
    "min_num_layers": None,  # Each step draws from these to all; None: all.
    "kept": (),  # Labels of the variants whose first seed is written.
}
# Settings that `stacked.train` takes.
TRAINING = (
    "batch_size num_steps num_warmup_steps beta_2 num_held_out eval_steps "
    "eval_layers max_seconds"
).split()
# Settings that a variant can have for itself: arguments of
# `stacked.Optimizer`. The others that it names are its initial values.
OWN = "learning_rate", "optimizer", "kernel_share", "weight_decay"

# Kinds of records: settings of those for training, what differs in those held
# out, the share of them that is kept, and the kind whose pieces are counted for
# the bias of the logits.
RECORDS: dict[str, dict] = {
    "short": {
        "train": {
            "max_seq_length": 128,
            "max_predictions_per_seq": 20,
            "dupe_factor": 2,
        },
        "held_out": {"dupe_factor": 1},
        "kept": 0.5,
        "counted": "short",
    },
    "long": {
        "train": {
            "max_seq_length": 512,
            "max_predictions_per_seq": 77,
            "dupe_factor": 1,
        },
        "held_out": {},
        "kept": 1,
        "counted": "short",
    },
    "hour": {
        "train": {
            "max_seq_length": 128,
            "ngram": 3,
            "masked_lm_prob": 0.4,
            "max_predictions_per_seq": 52,
            "dupe_factor": 6,
        },
        "held_out": {
            "masked_lm_prob": 0.15,
            "max_predictions_per_seq": 20,
            "dupe_factor": 1,
        },
        "kept": 1,
        "counted": "hour",
    },
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudyFlags(flags.Flags):
    """The step, its data and the output folder."""

    step: Literal["pack", "train", "print", "export"] = flag(
        "train",
        "What to do. export: writes the models that were kept, for our "
        "programs.",
    )
    only: str = flag(
        "",
        "Names of studies, to pack of kinds of records, separated by "
        "semicolons; empty: all.",
    )
    train_text: str = flag("", "To pack: text, one sentence per line.")
    heldout_text: str = flag("", "To pack: held-out text, the same.")
    spm_model_file: str = flag("", "To pack or export: SentencePiece model.")
    output_dir: str = flag(required=True, help="Output folder.")

    def check(self):
        texts = self.train_text, self.heldout_text, self.spm_model_file
        if self.step == "pack" and not all(texts):
            raise ValueError(
                "--step=pack needs --train_text, --heldout_text and "
                "--spm_model_file."
            )


def run(args, studies):
    """Packs, trains or prints what is asked for.

    Args:
      args: `StudyFlags`.
      studies: dict from name to a row: changes of STUDY, and variants, a dict
        from label to what each changes.
    """
    do = {
        "pack": pack,
        "train": train,
        "print": print_table,
        "export": export,
    }[args.step]
    known = {name: STUDY | study for name, study in studies.items()}
    if args.step == "pack":
        known = {study["records"]: {} for study in known.values()}
    for name in flags.parse_names("only", args.only, list(known)):
        do(args, name, known[name])


def pack(args, kind, _):
    """Makes the records of a kind and writes what differs in them."""
    import tensorflow as tf

    from albert_tf.data.pretraining import records
    from benchmarks import programs

    row = RECORDS[kind]
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part, text, changes, kept in (
        ("train", args.train_text, {}, row["kept"]),
        ("heldout", args.heldout_text, row["held_out"], 1),
    ):
        settings = row["train"] | changes
        path = programs.make_records(args, text, settings)
        features = records.pretraining_features(
            settings["max_seq_length"], settings["max_predictions_per_seq"]
        )
        batches = []
        for serialized in tf.data.TFRecordDataset(path).batch(4096):
            batch = records.parse(serialized, features, {})
            batch = {name: x.numpy() for name, x in batch.items()}
            is_kept = rng.random(len(batch["input_ids"])) < kept
            batches.append(
                pack_batch({name: x[is_kept] for name, x in batch.items()})
            )
        for name in batches[0]:
            arrays[f"{part}/{name}"] = np.concatenate(
                [batch[name] for batch in batches]
            )
    with lzma.open(packed_file(args, kind), "wb", filters=XZ) as file:
        np.savez(file, **arrays)


def pack_batch(batch):
    """Returns small arrays of some records, which `unpack` undoes.

    Pieces are stored as they are in the text, since records have each text
    several times; and then what is read in the place of the masked ones.
    """
    ids = batch["input_ids"].astype(np.uint16)  # [R, T]
    num_predictions = batch["masked_lm_weights"].sum(1).astype(int)  # [R]
    places = np.arange(batch["masked_lm_ids"].shape[1])
    row, place = np.nonzero(places < num_predictions[:, None])
    position = batch["masked_lm_positions"][row, place]
    is_masked = np.zeros(ids.shape, bool)
    is_masked[row, position] = True
    shown = ids[is_masked]
    ids[row, position] = batch["masked_lm_ids"][row, place]
    num_tokens = batch["input_mask"].sum(1)
    num_first = num_tokens - batch["segment_ids"].sum(1)
    return {
        "ids": ids,
        "is_masked": np.packbits(is_masked, axis=1),  # [R, T/8]
        "shown": shown,  # [all predictions]
        "segment_ends": np.stack([num_first, num_tokens], axis=1).astype("u2"),
        "next_sentence_labels": batch["next_sentence_labels"].astype(np.uint8),
    }


def unpack(arrays, max_predictions):
    """Returns what `stacked.take` takes: a dict of arrays [R, ...].

    Args:
      arrays: what `pack_batch` returns.
      max_predictions: P.
    """
    ids = arrays["ids"].copy()
    is_masked = np.unpackbits(arrays["is_masked"], axis=1).astype(bool)
    row, position = np.nonzero(is_masked)
    num_predictions = is_masked.sum(1)  # [R]
    first = np.cumsum(num_predictions) - num_predictions
    place = np.arange(len(row)) - first[row]
    positions, labels = np.zeros((2, len(ids), max_predictions), np.uint16)
    positions[row, place] = position
    labels[row, place] = ids[row, position]
    ids[row, position] = arrays["shown"]
    return {
        "input_ids": ids,
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "num_predictions": num_predictions.astype(np.uint16),
        "segment_ends": arrays["segment_ends"],
        "next_sentence_labels": arrays["next_sentence_labels"],
    }


def packed_file(args, kind):
    """Returns the path of the packed records of a kind."""
    return pathlib.Path(args.output_dir, f"{kind}.npz.xz")


@functools.cache
def read_packed(args, kind):
    """Returns dicts of arrays, for training and held out."""
    row = RECORDS[kind]
    file = io.BytesIO(lzma.decompress(packed_file(args, kind).read_bytes()))
    parts = []
    with np.load(file) as stored:
        for part, changes in ("train", {}), ("heldout", row["held_out"]):
            settings = row["train"] | changes
            names = [name for name in stored if name.startswith(f"{part}/")]
            arrays = {name.partition("/")[2]: stored[name] for name in names}
            parts.append(unpack(arrays, settings["max_predictions_per_seq"]))
    return parts


def count_pieces(data, vocab_size):
    """Returns how often each piece is to be predicted, [V]."""
    labels = data["masked_lm_ids"]  # [R, P]
    is_real = np.arange(labels.shape[1]) < data["num_predictions"][:, None]
    return np.bincount(labels[is_real], minlength=vocab_size)


def build(config, changes, seed, piece_counts):
    """Returns the initial values of a variant."""
    changes = {name: x for name, x in changes.items() if name not in OWN}
    if initializer_range := changes.pop("initializer_range", None):
        config = dataclasses.replace(
            config, initializer_range=initializer_range
        )
    if changes.pop("piece_bias", False):
        changes["piece_counts"] = piece_counts
    values = stacked_values.random_values(config, seed)
    return stacked_values.neighbors(config, values, **changes)


def train(args, name, study):
    """Trains all models of a study; writes and prints what they reach."""
    from benchmarks import stacked

    records = read_packed(args, study["records"])
    counted = RECORDS[study["records"]]["counted"]
    others = {} if counted == study["records"] else read_packed(args, counted)
    config = read_config(study)
    counts = count_pieces((others or records)[0], config.vocab_size)
    models = [
        (label, seed)
        for label in study["variants"]
        for seed in range(study["num_seeds"])
    ]
    values = [
        build(config, study["variants"][label], 1000 + seed, counts)
        for label, seed in models
    ]
    num_seen = study["num_steps"] * study["batch_size"]
    size = len(records[0]["input_ids"])
    orders = [draw_order(50 + seed, size, num_seen) for _, seed in models]
    depths = None
    if study["min_num_layers"]:
        drawn = [draw_depths(study, config, 70 + seed) for _, seed in models]
        depths = np.stack(drawn)
    rows = []
    for step, reached, weights in stacked.train(
        config,
        {n: np.stack([model[n] for model in values]) for n in values[0]},
        [own_settings(study, label) for label, _ in models],
        np.stack(orders),
        depths,
        records,
        **{key: study[key] for key in TRAINING},
    ):
        for num_layers, metrics in reached.items():
            for index, (label, seed) in enumerate(models):
                row = {"variant": label, "layers": num_layers, "seed": seed}
                numbers = {key: x[index] for key, x in metrics.items()}
                rows.append(row | {"step": step} | numbers)
        result_file(args, name).write_text(json.dumps(rows))
        accuracies = {n: x["accuracy"] for n, x in reached.items()}
        print(f"{name}, step {step}: {accuracies}", flush=True)
        for number, label in enumerate(study["kept"]):
            first = models.index((label, 0))
            keep(
                args,
                f"{name}-{number}",
                {n: x[first] for n, x in weights.items()},
            )


def keep(args, stem, weights):
    """Writes the weights of a model, in two files that are small enough."""
    arrays = {name: x.detach().cpu().numpy() for name, x in weights.items()}
    words = {"word_embeddings": arrays.pop("word_embeddings")}
    for part, values in ("words", words), ("others", arrays):
        np.savez(f"{args.output_dir}/{stem}-{part}.npz", **values)


def export(args, name, study):
    """Writes the kept models of a study in folders that our programs read."""
    from albert_tf.weights import pretrained

    config = read_config(study)
    names = stacked_values.canonical_names(config)
    for number, label in enumerate(study["kept"]):
        stem = f"{args.output_dir}/{name}-{number}"
        values: dict[str, np.ndarray] = {}
        for part in ("words", "others"):
            with np.load(f"{stem}-{part}.npz") as file:
                values |= {names[short]: file[short] for short in file}
        output_weights = names["sentence_order/kernel"]
        values[output_weights] = values[output_weights].T
        model = pretrained.replace_files(
            pretrained.Pretrained(label, values, config),
            spm_model_file=args.spm_model_file,
        )
        pathlib.Path(stem).mkdir(exist_ok=True)
        pretrained.write_pretrained(stem, model, "own")
        print(f"{label}: {stem}")


def read_config(study):
    """Returns the AlbertConfig of a study."""
    num_tokens = RECORDS[study["records"]]["train"]["max_seq_length"]
    return dataclasses.replace(
        AlbertConfig.from_json_file(CONFIGS / f"{study['config']}.json"),
        **{"max_position_embeddings": num_tokens} | study["changes"],
    )


def own_settings(study, label):
    """Returns the arguments of `stacked.Optimizer` of a variant."""
    both = study | study["variants"][label]
    return {name: both[name] for name in OWN}


def draw_order(seed, size, num_seen):
    """Returns which records are seen, [num_seen]; each once in each pass."""
    rng = np.random.default_rng(seed)
    passes = [rng.permutation(size) for _ in range(1 + num_seen // size)]
    return np.concatenate(passes)[:num_seen]


def draw_depths(study, config, seed):
    """Returns how many layers each step computes, [num_steps]."""
    rng = np.random.default_rng(seed)
    least, most = study["min_num_layers"], config.num_hidden_layers
    return rng.integers(least, most, study["num_steps"], endpoint=True)


def result_file(args, name):
    """Returns the path of a study's results."""
    return pathlib.Path(args.output_dir, f"{name}.json")


def print_table(args, name, study):
    """Prints a line per variant and number of layers, with all seeds.

    Accuracy is that at an early step and at the last.
    """
    rows = json.loads(result_file(args, name).read_text())
    last = rows[-1]["step"]
    early = max(row["step"] for row in rows if row["step"] <= EARLY)
    print(
        f"\n{name}:\n\n| variant | layers | accuracy at {early} | at {last} "
        f"| loss | sentence order | token cosine |\n{'|---' * 7}|"
    )
    for label, num_layers in dict.fromkeys(
        (row["variant"], row["layers"]) for row in rows
    ):
        cells = [
            " ".join(
                format(row[metric], form)
                for row in rows
                if (row["variant"], row["layers"], row["step"])
                == (label, num_layers, step)
            )
            for step, metric, form in (
                (early, "accuracy", ".1%"),
                (last, "accuracy", ".1%"),
                (last, "loss", ".2f"),
                (last, "sentence_order", ".1%"),
                (last, "cosine", ".2f"),
            )
        ]
        print(f"| {label} | {num_layers} | {' | '.join(cells)} |")
