"""Measures which batches of the four sizes fit on TPUs, without a TPU.

  python -m benchmarks.tpu_table --output_file=tpu_table.jsonl

Compiles the training step of run_pretraining, as `albert tpu_check` does, for
the batches of FIXED, then searches the largest that fits in each other cell. A
compilation takes minutes on two cores. Its figures are appended to
--output_file at once, and what is there is not compiled again unless the step
has changed since, so the script can be stopped and rerun. At the end it prints
the tables; --only_print prints them without compiling.
"""

import dataclasses
import functools
import itertools
import json
import os

from absl import app, flags

from albert_tf import filesystem
from albert_tf.lab import lowering, tpu_check, tpu_environment
from albert_tf.model.config import AlbertConfig

FLAGS = flags.FLAGS
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
flags.DEFINE_string("output_file", "tpu_table.jsonl", "File for the figures.")
flags.DEFINE_string(
    "environment",
    filesystem.cache_folder(),
    "Folder for the environment of the compiler.",
)
flags.DEFINE_bool("only_print", False, "Print the tables without compiling.")
flags.DEFINE_list("only", [], "Words that the name of a cell must contain.")

# Size -> multiple of which the largest batch of a core is sought.
SIZES = {"xxlarge": 4, "xlarge": 8, "large": 16, "base": 32}
TPUS = ("v3:2x2", "v5e:2x4", "v4:2x2x1", "v6e:2x4")
# Size, topology, remat -> batch of a core. The second is the paper's batch of
# 4096 on 512 cores.
FIXED = {
    (size, topology, remat): batch
    for size, topology, batch in (
        ("base", "v3:2x2", 32),
        ("xxlarge", "v3:16x16", 8),
    )
    for remat in (True, False)
}
SEARCHED = [
    (size, tpu, remat)
    for remat, tpu, size in itertools.product((True, False), TPUS, SIZES)
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


@functools.cache
def build_compiler(topology):
    """Returns the `tpu_environment.Compiler` of a topology."""
    python = tpu_environment.prepare(FLAGS.environment)
    return tpu_environment.Compiler(python, topology)


# One, because that of xxlarge takes 3 GB.
@functools.lru_cache(maxsize=1)
def build_step(size, num_replicas, remat):
    """Returns the `lowering.PretrainingStep` of a size in configs/model/v2."""
    path = os.path.join(ROOT, "configs", "model", "v2", f"{size}.json")
    return lowering.PretrainingStep(
        AlbertConfig.from_json_file(path),
        num_replicas,
        recipe=dataclasses.replace(lowering.LAMB, remat=remat),
    )


@functools.cache
def identify_step(size, num_replicas, remat):
    """Returns a digest by which a row's step is known again."""
    step = build_step(size, num_replicas, remat)
    return step.fingerprint(SIZES[size])


def drop_old_steps(figures):
    """Leaves out the figures of wanted cells whose step has changed."""
    for cell in filter(is_wanted, figures):
        size, topology, remat = cell
        num_cores = build_compiler(topology).num_cores
        step = identify_step(size, num_cores, remat)
        figures[cell] = {
            batch: row
            for batch, row in figures[cell].items()
            if row.get("step") == step
        }


def compile_at(figures, cell, batch):
    """Returns the figures of a batch, from `figures` or from the compiler."""
    known = figures.setdefault(cell, {})
    if batch not in known:
        size, topology, remat = cell
        compiler = build_compiler(topology)
        step = build_step(size, compiler.num_cores, remat)
        known[batch] = {
            "step": identify_step(size, compiler.num_cores, remat),
            "size": size,
            "topology": topology,
            "remat": remat,
            "batch": batch,
            "available_bytes": compiler.available_bytes,
            **tpu_check.compile_step(step, compiler, batch),
        }
        with open(FLAGS.output_file, "a", encoding="utf-8") as file:
            file.write(json.dumps(known[batch]) + "\n")
        print(name_of(cell), known[batch], flush=True)
    return known[batch]


def is_wanted(cell):
    """Returns whether --only admits a cell."""
    return all(word in name_of(cell) for word in FLAGS.only)


def measure(figures):
    """Compiles what the figures lack."""
    drop_old_steps(figures)
    for cell, batch in FIXED.items():
        if is_wanted(cell):
            compile_at(figures, cell, batch)
    for cell in filter(is_wanted, SEARCHED):
        tpu_check.find_largest(
            functools.partial(compile_at, figures, cell),
            SIZES[cell[0]],
            build_compiler(cell[1]).available_bytes,
            figures.get(cell),
        )


def describe_memory(row):
    """Returns the memory of a row in GiB, as text; empty without a row."""
    if not row:
        return ""
    if "error" in row:
        return "does not fit"
    return f"{row['peak_bytes'] / 2**30:.2f}"


def describe_largest(known, multiple):
    """Returns the largest batch that fits and its memory, as text.

    Empty if not yet found.
    """
    largest = tpu_check.largest_fitting(known)
    if not largest or largest + multiple not in known:
        return ""
    return f"{largest} ({describe_memory(known[largest])} GiB)"


def print_tables(figures):
    """Prints a table of the largest batches and one of all figures."""
    print("| model | TPU | plain | remat |\n|---|---|---|---|")
    for size, tpu in itertools.product(SIZES, TPUS):
        words = [
            describe_largest(figures.get((size, tpu, remat), {}), SIZES[size])
            for remat in (False, True)
        ]
        print(f"| {size} | {tpu} | {' | '.join(words)} |")
    print(
        "\n| cell | batch of a core | GiB | FLOPs by hand | loops once | "
        "compiler | all-reduces | compiled in, s |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    for cell, known in figures.items():
        for batch, row in sorted(known.items()):
            words = [name_of(cell), str(batch), describe_memory(row)]
            if "error" not in row:
                names = ("flops_by_hand", "flops_loops_once", "flops")
                words += [f"{row[name]:.3g}" for name in names]
                words += [str(len(row.get("all_reduces", "")) or "")]
            else:
                words += [""] * 4
            print(f"| {' | '.join(words)} | {row['seconds']:.0f} |")


def main(argv):
    """Runs the script."""
    del argv
    figures = read_figures(FLAGS.output_file)
    if not FLAGS.only_print:
        measure(figures)
    print_tables(figures)


if __name__ == "__main__":
    app.run(main)
