"""The manifest of a run: its settings and data, compared when it resumes.

`run.json` in the output folder records the config, vocabulary, task, data,
optimizer, batch size and seed of a run, and the version of the package that
wrote it last. RULES decide which differences a resumed run may have.
"""

import contextlib
import fnmatch
import hashlib
import itertools
import json
import logging
import os

import numpy as np

from albert_tf import __version__, filesystem
from albert_tf.model.config import CONFIG_FILE, AlbertConfig
from albert_tf.weights import checkpoints, locations

MANIFEST_FILE = locations.MANIFEST_FILE
# Other files of a run, next to its checkpoints.
FLAGS_FILE = "flags.json"
METRICS_FILE = "metrics.jsonl"
# Flags that name what a run begins from.
START_FLAGS = ("init_checkpoint", "albert_hub_module_handle")
FORMAT = 1
ALLOWED = "allowed"
NEEDS_FLAG = "needs accept_changes=True"
REFUSED = "refused"
# (pattern of keys, verdict on a difference, reason); the first match counts.
RULES = (
    ("config.*_dropout_prob", NEEDS_FLAG, "dropout changes"),
    (
        "config.initializer_range",
        ALLOWED,
        "the weights are already initialized",
    ),
    ("initialization", ALLOWED, "the weights are already initialized"),
    (
        "trained_positions",
        ALLOWED,
        "further positions are trained from the values that they have",
    ),
    ("config.*", REFUSED, "the weights belong to another architecture"),
    ("vocabulary.*", REFUSED, "ids would stand for other pieces"),
    ("task.*", REFUSED, "outputs and scores belong to another task"),
    ("data.dev.max_eval_steps", ALLOWED, "`evaluation` replaces it"),
    ("data.dev.*", REFUSED, "existing scores are on other data"),
    ("evaluation.*", REFUSED, "existing scores are on other data"),
    ("scored.*", REFUSED, "existing scores are of other weights"),
    ("data.train.*", NEEDS_FLAG, "the training data changes"),
    ("data.test.*", ALLOWED, "predictions are replaced"),
    ("begins_from.*", NEEDS_FLAG, "it is ignored: the run already has weights"),
    ("optimizer.num_train_steps", ALLOWED, "the new schedule applies"),
    (
        "train_batch_size",
        NEEDS_FLAG,
        "the position in the data is counted in examples",
    ),
    ("compute_dtype", ALLOWED, "weights are always float32"),
    ("*", NEEDS_FLAG, "it changes the training"),
)
# Sections that say how the weights began.
BEGINNING = {"begins_from", "initialization"}
# Sections that are compared only where there are scores, as is `data.dev`.
OF_SCORES = ("evaluation", "scored")
# Number of bytes hashed at the start, middle and end of a record file: to read
# a whole corpus would take minutes at each start.
SAMPLE_BYTES = 1 << 16


class Manifest:
    """The manifest of an output folder, stored and current.

    Args:
      folder: the output folder.
      made_of: nested dict of the current settings and data, of JSON values. A
        section that is absent, such as the training data where a model is only
        evaluated, is neither compared nor changed.
    """

    def __init__(self, folder, made_of):
        self.folder = str(folder)
        self.path = os.path.join(self.folder, MANIFEST_FILE)
        self.made_of = made_of
        self.read()

    def read(self):
        """Reads what is stored now, which another run may have replaced."""
        self.stored = self._read()
        if "config" not in self.stored["made_of"]:
            self.stored["made_of"] |= self._read_config()

    def _read_config(self):
        """Returns the config of a folder whose run.json does not have it."""
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
            path = os.path.join(self.folder, CONFIG_FILE)
            found = AlbertConfig.from_json_file(path).to_dict()
            known = self.made_of.get("config", found)
            return {"config": {n: x for n, x in found.items() if n in known}}
        return {}

    def _read(self):
        if not filesystem.exists(self.path):
            return {"made_of": {}, "batches": []}
        try:
            values = filesystem.read_json(self.path)
            if values.get("format") != FORMAT:
                raise ValueError(
                    f"{self.path} has format {values.get('format')!r}; wanted "
                    f"{FORMAT}."
                )
            made_of = dict(values["made_of"])
            if "temperature" in made_of.get("task", {}):  # Where it once was.
                temperature = made_of["task"].pop("temperature")
                made_of["loss"] = {"temperature": temperature}
            return {
                "made_of": made_of,
                "batches": [tuple(map(int, b)) for b in values["batches"]],
            }
        except (ValueError, KeyError, TypeError) as error:
            # A damaged file does not make the checkpoints useless.
            logging.warning(
                "%s The previous settings of the run in %s are unknown.",
                error,
                self.folder,
            )
            return {"made_of": {}, "batches": []}

    def differences(self):
        """Returns (key, before, now, verdict, reason) of each difference."""
        before, now = map(flatten, (self.stored["made_of"], self.made_of))
        sections = {_section(key) for key in before}
        sections &= {_section(key) for key in now}
        return [
            (key, before.get(key), now.get(key), *_rule(key))
            for key in sorted(before.keys() | now.keys())
            if _section(key) in sections and before.get(key) != now.get(key)
        ]

    def check(
        self, has_work, accept_changes=False, *, has_scores=True, **sections
    ):
        """Compares the stored settings and data with the current ones.

        Args:
          has_work: whether the folder has weights or results. Otherwise there
            is nothing to lose, and any run may start there.
          has_scores: whether it has results. Otherwise it may be scored on any
            data.
          accept_changes: whether to allow differences that need this flag.
          **sections: sections to add to the current ones.

        Returns:
          Sentences for the log about allowed differences.

        Raises:
          ValueError: if a difference is not allowed; it lists all of them.
        """
        if not has_work:
            self.stored = {"made_of": {}, "batches": []}
        if not has_scores:
            self._forget_scored()
        self.made_of = {**self.made_of, **sections}
        rows = self.differences()
        allowed = {ALLOWED, NEEDS_FLAG} if accept_changes else {ALLOWED}
        lines = [
            f"{key}: was {_short(old)}, is {_short(new)}: {verdict} ({why})"
            for key, old, new, verdict, why in rows
        ]
        verdicts = {verdict for *_, verdict, _ in rows}
        if verdicts <= allowed:
            lines = [line.replace(NEEDS_FLAG, "accepted") for line in lines]
            return [f"Resuming with a change: {line}." for line in lines]
        remedies = [
            "To start a new run, give another output_dir (with "
            f"init_checkpoint={self.folder} to start from these weights), or "
            f"remove {self.folder}."
        ]
        if REFUSED not in verdicts:
            remedies.append("To resume anyway, add accept_changes=True.")
        raise ValueError(
            f"The run in {self.folder} has other settings or data:\n  "
            + "\n  ".join(lines)
            + "\n"
            + " ".join(remedies)
        )

    def _forget_scored(self):
        """Drops what scores were made on, as there are none."""
        made_of = self.stored["made_of"]
        kept = {n: x for n, x in made_of.items() if n not in OF_SCORES}
        if "data" in kept:
            data = kept["data"].items()
            kept["data"] = {part: x for part, x in data if part != "dev"}
        self.stored = self.stored | {"made_of": kept}

    def write(self, step=None, batch_size=None):
        """Writes the current settings and data, as for `update`."""
        self.update(step, batch_size)
        self.write_updated()

    def write_updated(self):
        """Writes what `update` has put in place."""
        filesystem.write_json(
            self.path, {"format": FORMAT, "version": __version__, **self.stored}
        )

    def update(self, step=None, batch_size=None):
        """Puts the current settings and data in place of the stored ones.

        Args:
          step: step at which training starts or resumes; None without
            training.
          batch_size: examples per step from there on.
        """
        batches = self.stored["batches"]
        before = self.stored["made_of"]
        if step is not None:
            # Scores will be of trained weights.
            before = {n: x for n, x in before.items() if n != "scored"}
            batches = [row for row in batches if row[0] < step]
            if not batches or batches[-1][1] != batch_size:
                # Steps before the first row had, for all we know, this size.
                batches.append((step if batches else 0, batch_size))
        made_of = {**before, **self.made_of}
        if step and "begins_from" in before:
            # A resumed run ignores what it is given to start from.
            made_of |= {n: before[n] for n in BEGINNING if n in before}
            for name in BEGINNING - before.keys():
                made_of.pop(name, None)
        if "data" in made_of:
            made_of["data"] = before.get("data", {}) | made_of["data"]
        self.stored = {"made_of": made_of, "batches": batches}

    def write_scored(self):
        """Writes on what data the run was scored, and nothing else."""
        made_of = dict(self.made_of)
        data = made_of.get("data", {})
        self.made_of = {"data": {n: x for n, x in data.items() if n != "train"}}
        if "evaluation" in made_of:
            self.made_of["evaluation"] = made_of["evaluation"]
        self.write()
        self.made_of = made_of

    def count_examples(self, step):
        """Returns the number of examples in the steps before `step`."""
        rows = [*self.stored["batches"], (step, 0)]
        return sum(
            batch_size * max(0, min(end, step) - start)
            for (start, batch_size), (end, _) in itertools.pairwise(rows)
        )


def read_setting(folder, name):
    """Returns what a run in a folder was made of, by name; None if unknown."""
    return Manifest(folder, {}).stored["made_of"].get(name)


def list_flags(folder, flags):
    """Returns FLAGS_FILE and its content, or an empty dict without flags.

    A resumed run ignores what it is given to start from: START_FLAGS stay.
    """
    if not flags:
        return {}
    first: dict = {}
    if checkpoints.list_checkpoints(folder):
        with contextlib.suppress(FileNotFoundError, ValueError):
            known = filesystem.read_json(os.path.join(folder, FLAGS_FILE))
            first = {name: known[name] for name in START_FLAGS if name in known}
    return {FLAGS_FILE: flags | first if any(first.values()) else flags}


def flatten(values, prefix=""):
    """Flattens nested dicts to one with dotted keys."""
    flat: dict = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            # As it is read back from JSON: tuples become lists.
            flat[f"{prefix}{key}"] = json.loads(json.dumps(value))
    return flat


def _section(key):
    """Returns the section of a key, such as `data.dev` or `task`.

    Only sections that both sides have are compared.
    """
    parts = key.split(".")
    return ".".join(parts[: 2 if parts[0] == "data" else 1])


def _rule(key):
    return next(
        (verdict, why)
        for pattern, verdict, why in RULES
        if fnmatch.fnmatchcase(key, pattern)
    )


def _short(value):
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


# Sections of `made_of`.


def describe_examples(examples, *more):
    """Returns counts and a hash of encoded examples, with more JSON values."""
    arrays = {
        "ids": examples.ids,
        "lengths": examples.lengths,
        "first_lengths": examples.first_lengths,
        **examples.arrays,
        **examples.token_arrays,
        **examples.token_labels,
    }
    return {
        "examples": len(examples),
        "tokens": len(examples.ids),
        "sha256": digest(arrays, *more),
    }


def describe_files(files, num_records):
    """Returns the counts and a hash of record files.

    The hash covers names, sizes, and bytes at the start, middle and end.

    Args:
      files: their paths, in the order in which they are read.
      num_records: number of records in all files.
    """
    sha256, num_bytes = hashlib.sha256(), 0
    for path in files:
        size = filesystem.size(path)
        num_bytes += size
        sha256.update(f"{os.path.basename(path)} {size}\n".encode())
        with filesystem.open_file(path) as file:
            for start in sorted({0, size // 2, max(0, size - SAMPLE_BYTES)}):
                file.seek(start)
                sha256.update(file.read(SAMPLE_BYTES))
    return {
        "files": len(files),
        "records": num_records,
        "bytes": num_bytes,
        "sha256": sha256.hexdigest(),
    }


def describe_weights(values):
    """Returns a hash of weights, or that they are random if there are none."""
    if not values:
        return {"source": "random weights"}
    return {"sha256": digest(values)}


def digest(arrays, *more):
    """Returns a hash of a dict of arrays and of further JSON values."""
    sha256 = hashlib.sha256(json.dumps(more).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        sha256.update(f"{name} {array.dtype} {array.shape}\n".encode())
        sha256.update(array.view(np.uint8).reshape(-1).data)
    return sha256.hexdigest()
