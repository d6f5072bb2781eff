"""What a run is made of: written down, and compared when it goes on.

`run.json` in the output folder says which config, vocabulary, task, data,
optimizer, batch size and seed a run has. A resume compares them one by one:
some differences go on, some only where --accept_changes says so, the others
are refused, each with its reason. It also says which version of the package
wrote it last.
"""

import fnmatch
import hashlib
import itertools
import json
import logging
import os

import numpy as np

from albert_tf import __version__, filesystem

MANIFEST_FILE = "run.json"
# What the flags of a run were, beside its checkpoints.
FLAGS_FILE = "flags.json"
FORMAT = 1
GOES_ON = "goes on"
ASKS = "needs --accept_changes"
REFUSED = "refused"
# Keys of what a run is made of -> what a difference means; the first match
# counts.
RULES = (
    ("config.*_dropout_prob", ASKS, "another dropout"),
    ("config.initializer_range", GOES_ON, "the weights are there already"),
    ("config.*", REFUSED, "the weights are of another architecture"),
    ("vocabulary.*", REFUSED, "the ids would mean other pieces"),
    ("task.*", REFUSED, "the outputs and scores are of another task"),
    ("data.dev.*", REFUSED, "the scores so far are of other data"),
    ("data.train.*", ASKS, "other training data"),
    ("data.test.*", GOES_ON, "predictions are replaced"),
    ("begins_from.*", ASKS, "it is not read: the run has weights already"),
    ("optimizer.num_train_steps", GOES_ON, "the schedule is the new one"),
    ("train_batch_size", ASKS, "the place in the data counts examples"),
    ("compute_dtype", GOES_ON, "weights are float32 in any case"),
    ("*", ASKS, "it changes the training"),
)
# Of large files, the bytes at the beginning, middle and end that are hashed.
SAMPLE_BYTES = 1 << 16
_TOKENIZER_KEYS = ("kind", "sha256", "do_lower_case", "keep_accents")


class Manifest:
    """The manifest of an output folder, as it was and as it will be.

    Args:
      folder: the output folder.
      made_of: nested dict of what the run is made of now, of values that JSON
        can hold. A part that is absent, such as training data where nothing
        is trained, is not compared and stays as it was.
    """

    def __init__(self, folder, made_of):
        self.folder = str(folder)
        self.path = os.path.join(self.folder, MANIFEST_FILE)
        self.made_of = made_of
        self.stored = self._read()

    def _read(self):
        stored: dict = {"made_of": {}, "batches": []}
        if filesystem.exists(self.path):
            try:
                values = filesystem.read_json(self.path)
                if values.get("format") != FORMAT:
                    raise ValueError(
                        f"{self.path} has format {values.get('format')!r}; "
                        f"wanted {FORMAT}."
                    )
                stored = {
                    "made_of": dict(values["made_of"]),
                    "batches": [tuple(map(int, b)) for b in values["batches"]],
                }
            except (ValueError, KeyError, TypeError) as error:
                logging.warning(
                    "%s What the run in %s was begun with is not known.",
                    error,
                    self.folder,
                )
        if not stored["made_of"].get("config"):
            stored["made_of"] |= self._read_config()
        return stored

    def _read_config(self):
        """The config beside the checkpoints of older programs."""
        path = os.path.join(self.folder, "albert_config.json")
        if not filesystem.exists(path):
            return {}
        config = filesystem.read_json(path)
        known = self.made_of.get("config", {})
        return {"config": {k: v for k, v in config.items() if k in known}}

    def differences(self):
        """Returns (key, before, now, verdict, reason) of what differs."""
        before, now = map(flatten, (self.stored["made_of"], self.made_of))
        sections = {_section(key) for key in before}
        sections &= {_section(key) for key in now}
        return [
            (key, before.get(key), now.get(key), *_rule(key))
            for key in sorted(before.keys() | now.keys())
            if _section(key) in sections and before.get(key) != now.get(key)
        ]

    def check(self, has_work, accept_changes=False):
        """Compares what the run was made of with what it is made of now.

        Args:
          has_work: whether the folder has weights or results. Without, there
            is nothing to lose, and any run may begin there.
          accept_changes: whether differences that need it go on.

        Returns:
          Sentences for the log about differences that go on.

        Raises:
          ValueError: if a difference is refused; it lists them all.
        """
        if not has_work:
            self.stored = {"made_of": {}, "batches": []}
        rows = self.differences()
        allowed = {GOES_ON, ASKS} if accept_changes else {GOES_ON}
        lines = [
            f"{key}: was {_short(old)}, is {_short(new)}: {verdict} ({why})"
            for key, old, new, verdict, why in rows
        ]
        verdicts = {verdict for *_, verdict, _ in rows}
        if verdicts <= allowed:
            return [f"Goes on although {line}." for line in lines]
        ways = [
            "To begin anew, give another --output_dir (with "
            f"--init_checkpoint={self.folder} it begins with these weights), "
            f"or remove {self.folder}."
        ]
        if REFUSED not in verdicts:
            ways.append("To go on all the same, add --accept_changes.")
        raise ValueError(
            f"{self.folder} holds a run that is made of something else:\n  "
            + "\n  ".join(lines)
            + "\n"
            + " ".join(ways)
        )

    def write(self, step=None, batch_size=None):
        """Writes what the run is made of from now on.

        Args:
          step: where its training begins or goes on; None if it does not
            train.
          batch_size: examples a step from there on.
        """
        batches = self.stored["batches"]
        if step is not None:
            batches = [row for row in batches if row[0] < step]
            if not batches or batches[-1][1] != batch_size:
                # Steps of which nothing is known count as of this size.
                batches.append((step if batches else 0, batch_size))
        before = self.stored["made_of"]
        made_of = {**before, **self.made_of}
        if "data" in made_of:
            parts = before.get("data", {}), self.made_of.get("data", {})
            made_of["data"] = {**parts[0], **parts[1]}
        self.stored = {"made_of": made_of, "batches": batches}
        filesystem.write_json(
            self.path,
            {"format": FORMAT, "version": __version__, **self.stored},
        )

    def count_examples(self, step):
        """Returns how many examples the steps before `step` took."""
        rows = [*self.stored["batches"], (step, 0)]
        return sum(
            batch_size * max(0, min(end, step) - start)
            for (start, batch_size), (end, _) in itertools.pairwise(rows)
        )


def flatten(values, prefix=""):
    """Returns nested dicts as one, with dotted keys."""
    flat: dict = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            # As JSON gives it back.
            flat[f"{prefix}{key}"] = json.loads(json.dumps(value))
    return flat


def _section(key):
    """What is compared only where both sides have it: `data.dev`, `task`."""
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


# What the parts of `made_of` are.


def describe_tokenizer(settings):
    """Returns what decides ids in a tokenizer's settings, or nothing."""
    return {k: settings[k] for k in _TOKENIZER_KEYS if k in (settings or {})}


def describe_examples(examples, *more):
    """Returns numbers and a hash of encoded examples.

    Args:
      examples: a `data.examples.Examples`.
      *more: values that JSON can hold, which belong to the data, too.
    """
    arrays = {
        "ids": examples.ids,
        "lengths": examples.lengths,
        "first_lengths": examples.first_lengths,
        **examples.arrays,
        **examples.token_arrays,
    }
    return {
        "examples": len(examples),
        "tokens": len(examples.ids),
        "sha256": digest(arrays, *more),
    }


def describe_files(files, num_records):
    """Returns numbers and a hash of record files.

    The hash is of names, sizes, and the bytes at beginning, middle and end.

    Args:
      files: their names.
      num_records: in all of them.
    """
    sha256, num_bytes = hashlib.sha256(), 0
    for path in sorted(files, key=os.path.basename):
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


def describe_weights(source, values):
    """Returns where weights are from, and a hash of them.

    Args:
      source: path, or None for random weights.
      values: dict from name to array.
    """
    if source is None:
        return {"source": "random weights"}
    return {"sha256": digest(values)}


def digest(arrays, *more):
    """Returns a hash of a dict of arrays, and of values that JSON can hold."""
    sha256 = hashlib.sha256(json.dumps(more).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        sha256.update(f"{name} {array.dtype} {array.shape}\n".encode())
        sha256.update(array.view(np.uint8).reshape(-1).data)
    return sha256.hexdigest()
