"""Measures which batches of the four sizes fit on TPUs, without a TPU.

  python -m benchmarks.tpu_table --output_file=tpu_table.jsonl

Compiles the training step of run_pretraining, as `albert tpu_check` does:
first the batches of FIXED, then the largest batch of each size on each chip.
A compilation takes minutes on two cores. Its figures are appended to
--output_file at once, and what is there is not compiled again, so the script
can be stopped and rerun. At the end it prints the tables; --only_print prints
them without compiling.
"""

import itertools
import json
import os

from absl import app, flags

from albert_tf.model.config import AlbertConfig
from albert_tf.tools import tpu_check, tpu_environment
from albert_tf.training import lowering

FLAGS = flags.FLAGS
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
flags.DEFINE_string("output_file", "tpu_table.jsonl", "File for the figures.")
flags.DEFINE_string(
    "environment",
    tpu_environment.default_folder(),
    "Folder for the environment of the compiler.",
)
flags.DEFINE_bool("only_print", False, "Print the tables without compiling.")
flags.DEFINE_list("only", [], "Words that the name of a cell must contain.")

# Model, topology, whether layers are recomputed, batch of a core.
FIXED = [
    ("base", "v3:2x2", False, 32),
    ("xxlarge", "v3:16x16", False, 8),
]
# Sizes -> multiple of which the largest batch is sought.
SIZES = {"base": 8, "xxlarge": 2, "large": 8, "xlarge": 4}
CHIPS = ("v3:2x2", "v5e:2x4", "v4:2x2x1", "v6e:2x4")
SEARCHED = [
    (size, chip, remat)
    for chip, size, remat in itertools.product(CHIPS, SIZES, (False,))
]


def name_of(cell):
    """Returns the name of a cell, (size, topology, remat)."""
    size, topology, remat = cell
    return f"{size} {topology} {'remat' if remat else 'plain'}"


def read_figures(path):
    """Returns the figures of a file: cell -> batch -> dict."""
    figures: dict = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for row in map(json.loads, file):
                cell = row["size"], row["topology"], row["remat"]
                figures.setdefault(cell, {})[row["batch"]] = row
    return figures


class Cell:
    """Compiles one size for one topology; builds the model on first use.

    Args:
      cell: (size, topology, remat).
      known: figures by batch; grows.
    """

    def __init__(self, cell, known):
        self.cell, self.known, self.step = cell, known, None
        python = tpu_environment.prepare(FLAGS.environment)
        self.compiler = tpu_environment.Compiler(python, cell[1])

    def compile_at(self, batch):
        """Returns the figures of a batch, from the file or the compiler."""
        if batch in self.known:
            return self.known[batch]
        size, topology, remat = self.cell
        self.step = self.step or build_step(
            size, self.compiler.num_cores, remat
        )
        row = {
            "size": size,
            "topology": topology,
            "remat": remat,
            "batch": batch,
            "available_bytes": self.compiler.available_bytes,
            **tpu_check.compile_step(self.step, self.compiler, batch),
        }
        with open(FLAGS.output_file, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(name_of(self.cell), row, flush=True)
        self.known[batch] = row
        return row


def build_step(size, num_replicas, remat):
    """Returns the `lowering.PretrainingStep` of a size in configs/model/v2."""
    del remat
    path = os.path.join(ROOT, "configs", "model", "v2", f"{size}.json")
    return lowering.PretrainingStep(
        AlbertConfig.from_json_file(path), num_replicas
    )


def measure(figures):
    """Compiles what the figures lack, most valuable first."""

    def wanted(cell):
        return all(word in name_of(cell) for word in FLAGS.only)

    for *cell, batch in FIXED:
        if wanted(cell) and batch not in figures.get(tuple(cell), {}):
            known = figures.setdefault(tuple(cell), {})
            Cell(tuple(cell), known).compile_at(batch)
    for cell in filter(wanted, SEARCHED):
        found = Cell(cell, figures.setdefault(cell, {}))
        tpu_check.find_largest(
            found.compile_at,
            SIZES[cell[0]],
            found.compiler.available_bytes,
            found.known,
        )


def print_tables(figures):
    """Prints the tables of docs/tpu.md, in Markdown."""
    print(
        "| size | TPU | recomputed | batch of a core | memory, GiB | "
        "FLOPs | by hand | all-reduces | compiled in, s |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    for (size, topology, remat), known in figures.items():
        for batch, row in sorted(known.items()):
            start = f"| {size} | {topology} | {'yes' if remat else 'no'} "
            start += f"| {batch} |"
            if "error" in row:
                print(f"{start} does not fit | | | | {row['seconds']:.0f} |")
                continue
            reduces = len(row["all_reduces"]) if "all_reduces" in row else "?"
            print(
                f"{start} {row['peak_bytes'] / 2**30:.2f} | {row['flops']:.3g} "
                f"| {row['flops_by_hand']:.3g} | {reduces} "
                f"| {row['seconds']:.0f} |"
            )
    print(
        "\n| size | TPU | recomputed | largest batch of a core |\n"
        "|---|---|---|---|"
    )
    for (size, topology, remat), known in figures.items():
        largest = tpu_check.largest_fitting(known)
        if any("error" in row for row in known.values()):
            print(f"| {size} | {topology} | {remat} | {largest} |")


def main(argv):
    """Runs the script."""
    del argv
    figures = read_figures(FLAGS.output_file)
    if not FLAGS.only_print:
        measure(figures)
    print_tables(figures)


if __name__ == "__main__":
    app.run(main)
