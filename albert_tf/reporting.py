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
    drops the lines after S, which belong to work that was lost.

    Args:
      folder: where the files go; made if absent.
      stream: where the lines go; one is rewritten in place if it is a
        terminal.
    """

    def __init__(self, folder, stream=None):
        tf.io.gfile.makedirs(folder)
        self.folder = folder
        self.path = os.path.join(folder, "metrics.jsonl")
        self.stream = stream or sys.stderr
        self.is_terminal = self.stream.isatty()
        self.writers = {}
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
        """Drops the JSON lines of later steps, of work that was lost."""
        if not tf.io.gfile.exists(self.path):
            return
        with tf.io.gfile.GFile(self.path) as file:
            lines = file.read().splitlines()
        kept = [x for x in lines if x and json.loads(x)["step"] <= step]
        filesystem.write_file(self.path, "".join(f"{x}\n" for x in kept))
