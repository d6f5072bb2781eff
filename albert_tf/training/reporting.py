"""Reports progress and metrics: terminal, log, JSON lines, TensorBoard."""

import io
import json
import os
import time

import tensorflow as tf

from albert_tf import filesystem, messages, progress
from albert_tf.progress import format_seconds
from albert_tf.training import manifest

# How a text begins that is recorded besides being shown.
WARNING = "WARNING: "
# Abbreviations in the progress line.
_SHORT = (
    ("masked_lm", "mlm"),
    ("sentence_order", "order"),
    ("accuracy", "acc"),
    ("learning_rate", "lr"),
    ("gradient_norm", "norm"),
)


def format_values(values):
    """Returns values as one line, with short names and four digits each."""
    words = []
    for name, value in values.items():
        for long, short in _SHORT:
            name = name.replace(long, short)
        words.append(f"{name} {value:.4g}")
    return " ".join(words)


class Clock:
    """Measures the speed of training and estimates the remaining time."""

    def __init__(self, step, num_train_steps, batch_size):
        self.step, self.num_train_steps = step, num_train_steps
        self.batch_size = batch_size
        self.rate = None  # Steps per second, once it is known.
        self.num_calls = 0
        self.resume()

    def resume(self):
        """Excludes the time since the last step from the rate."""
        self.time = time.monotonic()

    def note(self, step, is_compiling):
        """Updates the rate; returns the seconds since the last call.

        Args:
          step: number of completed steps.
          is_compiling: whether the time includes compilation, so that the rate
            must ignore it.
        """
        now = time.monotonic()
        num_steps, seconds = step - self.step, now - self.time
        self.step, self.time = step, now
        self.num_calls += 1
        if not is_compiling:
            rate = num_steps / max(seconds, 1e-9)
            # Averages over about the last ten calls.
            self.rate = 0.9 * self.rate + 0.1 * rate if self.rate else rate
        return seconds

    @property
    def sequences_per_second(self):
        """Examples per second, once the rate is known."""
        return self.rate * self.batch_size

    def describe(self):
        """Returns rate and remaining time as text, once they are known."""
        if not self.rate:
            return ""
        remaining = (self.num_train_steps - self.step) / self.rate
        return (
            f" {self.sequences_per_second:.1f} seq/s ETA "
            f"{format_seconds(remaining)}"
        )


class Reporter:
    """Shows progress and records values.

    `metrics.jsonl` in the folder gets one JSON object per line; its subfolders
    `train` and `eval` get TensorBoard summaries. A WARNING of `say` is a line
    with the split "warning". A run that resumes from step S first drops the
    entries of later steps, whose checkpoints were lost. Lines truncated by a
    full disk or a kill are dropped as well.

    Args:
      folder: output folder; created if absent.
      stream: stream for progress and log lines; on a terminal the progress
        line is rewritten in place.
      is_silent: whether to write nothing to the stream.
    """

    def __init__(self, folder, stream=None, is_silent=False):
        filesystem.make_folder(folder)
        self.folder = str(folder)
        self.path = os.path.join(folder, manifest.METRICS_FILE)
        if is_silent:
            stream = io.StringIO()
        self.line = progress.Line(stream)
        self.step = 0  # Number of completed steps.
        self.clock = Clock(0, 0, 0)  # Replaced when training starts.
        self.word = ""  # State of the training, shown in its lines.
        self.writers = {}
        self.is_checked = False  # Whether all JSON lines are complete.

    def say(self, text):
        """Writes a line to the stream; records it if it is a WARNING."""
        self.line.say(text)
        if text.startswith(WARNING):
            said = messages.show(text.removeprefix(WARNING))
            record = {"split": "warning", "step": self.step, "text": said}
            # A run that resumes says some again.
            if record not in self.read("warning"):
                self._append(record)

    def start(self, step, num_train_steps, batch_size, num_replicas=1):
        """Starts the report and the clock of a run.

        Args:
          step: first step.
          num_train_steps: last step.
          batch_size: global batch size, in examples.
          num_replicas: number of replicas that share each batch.
        """
        share = ""
        if num_replicas > 1:
            part = batch_size // num_replicas
            share = f", {part} on each of {num_replicas} replicas"
        self.truncate(step)
        self.step = step
        self.clock = Clock(step, num_train_steps, batch_size)
        self.say(
            f"Training from step {step} to {num_train_steps}, {batch_size} "
            f"sequences per step{share}. The first step compiles the model."
        )

    def progress(self, step, values, is_compiling=False):
        """Updates the progress line of a terminal, and the rate.

        Args:
          step: number of completed steps.
          values: dict from name to float.
          is_compiling: as for `Clock.note`.
        """
        self.step = step
        is_first = not self.clock.num_calls
        seconds = self.clock.note(step, is_compiling)
        if not is_compiling:
            self.line.show(self.describe(step, values), self.clock.describe())
        elif is_first:
            # Compilation was silent and may have taken minutes.
            self.say(f"First step done in {format_seconds(seconds)}.")

    def describe(self, step, values):
        """Returns step, state and values as text."""
        step = f"step {step}/{self.clock.num_train_steps}"
        return " ".join(filter(None, [step, self.word, format_values(values)]))

    def log(self, split, step, values, more=None):
        """Writes values as a log line, a JSON line and summaries.

        Args:
          split: "train" or "eval".
          step: number of completed steps.
          values: dict from name to float.
          more: further values that are omitted from the log line.
        """
        rate = {}
        if split == "train" and self.clock.rate:
            rate = {"sequences_per_second": self.clock.sequences_per_second}
        recorded = {**values, **(more or {}), **rate}
        record = {"split": split, "step": step, **recorded}
        record["time"] = round(time.time(), 1)
        self._append(record)
        if split not in self.writers:
            self.writers[split] = tf.summary.create_file_writer(
                os.path.join(self.folder, split)
            )
        with self.writers[split].as_default(step=step):
            for name, value in recorded.items():
                tf.summary.scalar(name, value)
        self.writers[split].flush()
        if split == "train":
            self.say(self.describe(step, values) + self.clock.describe())
        else:
            self.say(f"{split} at step {step}: {format_values(values)}")

    def _append(self, record):
        """Appends a JSON line, after complete ones."""
        if not self.is_checked:
            self._drop(lambda _: True)
        with filesystem.open_file(self.path, "a") as file:
            file.write(json.dumps(record) + "\n")

    def truncate(self, step):
        """Drops the entries of later steps, whose checkpoints were lost."""
        self._drop(lambda record: record["step"] <= step)
        self.writers = {}  # They would go on with files that are replaced.
        for split in ("train", "eval"):
            drop_events(os.path.join(self.folder, split), step)

    def keep_evaluations(self, steps):
        """Drops the evaluations of other steps."""
        self._drop(lambda r: r["split"] != "eval" or r["step"] in steps)

    def read(self, split):
        """Returns the records of a split so far, a list of dicts."""
        records = filter(None, map(_parse_record, self._read().split("\n")))
        return [record for record in records if record["split"] == split]

    def _read(self):
        """Returns the content of the file of JSON lines."""
        if not filesystem.exists(self.path):
            return ""
        return filesystem.read_file(self.path).decode("utf-8", "replace")

    def _drop(self, is_kept):
        """Drops JSON lines that are truncated, or whose record is not kept."""
        self.is_checked = True
        content = self._read()
        records = [(line, _parse_record(line)) for line in content.split("\n")]
        kept = [line for line, record in records if record and is_kept(record)]
        text = "".join(f"{line}\n" for line in kept)
        if text != content:
            filesystem.write_file(self.path, text)


def _parse_record(line):
    """Returns the object of a JSON line, or None if it is truncated."""
    try:
        record = json.loads(line)
        return record if {"split", "step"} <= record.keys() else None
    except (ValueError, AttributeError):
        return None


def drop_events(folder, step):
    """Drops TensorBoard events of a folder after a step."""
    for path in filesystem.find_files(folder, "events.out.tfevents.*"):
        contents, is_whole = [], True
        try:
            for serialized in tf.data.TFRecordDataset(path):
                contents.append(serialized.numpy())
        except tf.errors.DataLossError:  # The end is truncated.
            is_whole = False
        kept = [
            content
            for content in contents
            if tf.compat.v1.Event.FromString(content).step <= step
        ]
        if is_whole and kept == contents:
            continue
        with (
            filesystem.replacing(path) as temporary,
            tf.io.TFRecordWriter(temporary) as writer,
        ):
            for content in kept:
                writer.write(content)
