"""What a long run tells: terminal, log, JSON lines, TensorBoard."""

import json
import os
import sys
import time

import tensorflow as tf

from albert_tf import filesystem
from albert_tf.progress import format_seconds

# How the terminal's one line shortens the names of losses and metrics.
_SHORT = (
    ("masked_lm", "mlm"),
    ("sentence_order", "order"),
    ("accuracy", "acc"),
    ("learning_rate", "lr"),
    ("gradient_norm", "norm"),
)


def format_values(values):
    """Returns values in one line, names shortened, four digits each."""
    words = []
    for name, value in values.items():
        for long, short in _SHORT:
            name = name.replace(long, short)
        words.append(f"{name} {value:.4g}")
    return " ".join(words)


class Reporter:
    """Shows progress and records values.

    `metrics.jsonl` in the folder gets one object a line; `train` and `eval`
    in it get TensorBoard summaries. A run that goes on from step S first
    drops what both say of later steps, which belong to work that was lost.
    Lines that a full disk or a kill has torn are dropped, too.

    Args:
      folder: where the files go; made if absent.
      stream: where the lines go; one is rewritten in place if it is a
        terminal.
    """

    def __init__(self, folder, stream=None):
        filesystem.make_folder(folder)
        self.folder = str(folder)
        self.path = os.path.join(folder, "metrics.jsonl")
        self.stream = stream or sys.stderr
        self.is_terminal = self.stream.isatty()
        self.writers = {}
        self.is_checked = False  # Whether the JSON lines are all whole.
        self.rate = None  # Steps a second, once it is known.

    def start(self, step, num_train_steps, batch_size):
        """Begins to time a training.

        Args:
          step: where it begins.
          num_train_steps: where it ends.
          batch_size: examples a step, in all replicas.
        """
        self.num_train_steps = num_train_steps
        self.batch_size = batch_size
        self.truncate(step)
        self.step = step
        self.is_first = True
        self.resume_clock()
        self.say(
            f"Training from step {step} to {num_train_steps}, {batch_size} "
            "sequences a step. The first step compiles."
        )

    def resume_clock(self):
        """Leaves the time since the last progress out of the rate."""
        self.time = time.monotonic()

    def progress(self, step, values, is_compiling=False):
        """Shows one line on a terminal, and measures the rate.

        Args:
          step: steps done.
          values: dict from name to float.
          is_compiling: whether the time is no measure of the rate.
        """
        now = time.monotonic()
        steps, seconds = step - self.step, now - self.time
        self.step, self.time = step, now
        if is_compiling:
            if self.is_first:
                # A sign of life is due.
                self.say(f"First step done in {format_seconds(seconds)}.")
            self.is_first = False
            return
        rate = steps / max(seconds, 1e-9)
        if self.rate:
            # Of the last dozen calls or so.
            rate = 0.9 * self.rate + 0.1 * rate
        self.rate = rate
        if self.is_terminal:
            self.stream.write("\r\x1b[K" + self.line(step, values))
            self.stream.flush()

    def line(self, step, values):
        """Returns step, values, rate and remaining time as text."""
        line = f"step {step}/{self.num_train_steps} {format_values(values)}"
        if self.rate:
            left = (self.num_train_steps - step) / self.rate
            line += f" {self.rate * self.batch_size:.1f} seq/s"
            line += f" ETA {format_seconds(left)}"
        return line

    def log(self, split, step, values):
        """Writes values as a line, a JSON line and summaries.

        Args:
          split: "train" or "eval".
          step: steps done.
          values: dict from name to float.
        """
        rate = {}
        if split == "train" and self.rate:
            rate = {"sequences_per_second": self.rate * self.batch_size}
        record = {"split": split, "step": step, **values, **rate}
        record["time"] = round(time.time(), 1)
        if split == "eval" or not self.is_checked:
            # Who was killed before the result was written evaluates again.
            self.drop(lambda r: (r["split"], r["step"]) != ("eval", step))
        with tf.io.gfile.GFile(self.path, "a") as file:
            file.write(json.dumps(record) + "\n")
        if split not in self.writers:
            self.writers[split] = tf.summary.create_file_writer(
                os.path.join(self.folder, split)
            )
        with self.writers[split].as_default(step=step):
            for name, value in {**values, **rate}.items():
                tf.summary.scalar(name, value)
        self.writers[split].flush()
        if split == "train":
            self.say(self.line(step, values))
        else:
            self.say(f"{split} at step {step}: {format_values(values)}")

    def say(self, text):
        """Writes a line that stays."""
        start = "\r\x1b[K" if self.is_terminal else ""
        self.stream.write(f"{start}{text}\n")
        self.stream.flush()

    def truncate(self, step):
        """Drops what was written of later steps, of work that was lost."""
        self.drop(lambda record: record["step"] <= step)
        for split in ("train", "eval"):
            drop_events(os.path.join(self.folder, split), step)

    def drop(self, is_kept):
        """Drops JSON lines that are torn, or that a function refuses.

        Args:
          is_kept: function from a record to whether it stays.
        """
        self.is_checked = True
        lines = []
        if filesystem.exists(self.path):
            content = filesystem.read_file(self.path)
            lines = content.decode("utf-8", "replace").split("\n")
        records = [(line, _parse_record(line)) for line in lines]
        kept = [line for line, record in records if record and is_kept(record)]
        if kept != lines[:-1] or lines[-1:] not in ([], [""]):
            filesystem.write_file(self.path, "".join(f"{x}\n" for x in kept))


def _parse_record(line):
    """The object of a JSON line, or None if it is torn."""
    try:
        record = json.loads(line)
        return record if {"split", "step"} <= record.keys() else None
    except (ValueError, AttributeError):
        return None


def drop_events(folder, step):
    """Drops TensorBoard's events of later steps.

    Args:
      folder: with files of events.
      step: the last that stays.
    """
    for path in filesystem.find_files(folder, "events.out.tfevents.*"):
        kept, is_whole = [], True
        try:
            for serialized in tf.data.TFRecordDataset(path):
                content = serialized.numpy()
                event = tf.compat.v1.Event.FromString(content)
                if event.step <= step:
                    kept.append(content)
                else:
                    is_whole = False
        except tf.errors.DataLossError:  # The end, torn.
            is_whole = False
        if not is_whole:
            with filesystem.replacing(path) as temporary:
                with tf.io.TFRecordWriter(temporary) as writer:
                    for content in kept:
                        writer.write(content)
