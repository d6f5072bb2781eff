"""Trains a grid of models that differ in one thing each, and compares them.

Work is divided into jobs: records, trainings, evaluations and tasks. A job has
a folder named by a digest of all that its result depends on; `result.json` in
it says that it is done. Jobs that another process has begun are left to it.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import shlex
import statistics
import subprocess
import time

from albert_tf import filesystem, flags, ownership
from albert_tf.analysis import grids, parameters
from albert_tf.commands import (
    create_pretraining_data,
    run_classifier,
    run_pretraining,
)
from albert_tf.data.pretraining import opening
from albert_tf.model import heads
from albert_tf.tools import ablation_page, plot_metrics, subprograms
from albert_tf.training import distribution, evaluation
from albert_tf.weights import pretrained

RESULT_FILE = "result.json"
HELD_OUT = "held out"  # The job that scores a model on both objectives.
EVAL_BATCH_SIZE = 64


class BusyError(Exception):
    """Another process is working on a job."""


def run(args):
    """Does the jobs of all rows and seeds; writes table, page and figures.

    Raises:
      ValueError: if the grid or its flags are invalid, or a program failed.
    """
    grid = choose(grids.read_grid(args.grid), args)
    check_flags(grid)
    runner = GridRunner(grid, args)
    waiting = set()
    for seed in grid.seeds:
        for row in grid.rows:
            try:
                if not args.report_only:
                    runner.do_row(row, seed)
            except BusyError as error:
                waiting.add(str(error))
    results = {row.name: runner.collect(row) for row in grid.rows}
    stem = os.path.splitext(os.path.basename(args.grid))[0]
    table = ablation_page.format_markdown(ablation_page.tabulate(results))
    print(table)
    for ending, content in (
        (".json", json.dumps(results, indent=1) + "\n"),
        (".md", table + "\n"),
        (".html", ablation_page.build_page(grid.title, results)),
    ):
        path = os.path.join(args.output_dir, stem + ending)
        filesystem.write_file(path, content)
        print(f"Wrote {path}.")
    if waiting:
        print(
            "Incomplete: another process is working on "
            f"{', '.join(sorted(waiting))}. Rerun the command later."
        )


def choose(grid, args):
    """Returns the part of a grid that --only, --seeds and --task_data name.

    Raises:
      ValueError: if there is no such row, seed or task.
    """
    rows = grid.rows
    if args.only:
        names = [name.strip() for name in args.only.split(";")]
        rows = tuple(row for row in grid.rows if row.name in names)
        if len(rows) < len(names):
            raise ValueError(
                f"--only={args.only}; the grid has the rows "
                f"{'; '.join(row.name for row in grid.rows)}."
            )
    seeds = grid.seeds
    if args.seeds:
        seeds = tuple(
            flags.parse_numbers(
                "seeds", args.seeds, at_least=0, at_most=flags.MAX_SEED
            )
        )
    tasks = {
        name: find_shipped(grid.tasks[name]) | {"data_dir": folder}
        for name, folder in parse_task_data(args.task_data, grid.tasks).items()
    }
    return dataclasses.replace(grid, rows=rows, seeds=seeds, tasks=tasks)


def find_shipped(settings):
    """Returns settings with paths of shipped files, "configs/...", whole."""
    return {
        name: str(filesystem.shipped_configs().parent / value)
        if str(value).startswith("configs/")
        else value
        for name, value in settings.items()
    }


def parse_task_data(text, tasks):
    """Returns a dict from task to folder, of NAME=FOLDER,NAME=FOLDER."""
    found = {}
    for item in filesystem.split_list(text):
        name, _, folder = item.partition("=")
        if name not in tasks or not os.path.isdir(folder):
            raise ValueError(
                f"--task_data has {item!r}; wanted NAME=FOLDER with an "
                f"existing folder and one of the grid's tasks, {list(tasks)}."
            )
        found[name] = folder
    return found


def check_flags(grid):
    """Raises ValueError if a program has no flag of the grid's."""
    phases = [phase for row in grid.rows for phase in row.phases]
    for program, flags_class, settings in (
        (
            "create_pretraining_data",
            create_pretraining_data.DataFlags,
            [grid.held_out, *(phase.records for phase in phases)],
        ),
        (
            "run_pretraining",
            run_pretraining.PretrainingFlags,
            [phase.flags for phase in phases],
        ),
        (
            "run_classifier",
            run_classifier.ClassifierFlags,
            grid.tasks.values(),
        ),
    ):
        known = {field.name for field in dataclasses.fields(flags_class)}
        used = {name for values in settings for name in values}
        if unknown := sorted(used - known):
            raise ValueError(
                f"The grid has flags that {program} does not: {unknown}."
            )


class GridRunner:
    """Does the jobs of a grid in a folder.

    Args:
      grid: a `grids.Grid`.
      args: AblateFlags.
    """

    def __init__(self, grid, args):
        self.grid, self.args = grid, args
        self.vocabulary = {
            name: path
            for name in ("spm_model_file", "vocab_file")
            if (path := getattr(args, name))
        }
        # Every result depends on them.
        self.digests = [
            [digest(path) for path in filesystem.expand_files(patterns)]
            for patterns in (
                args.train_text,
                args.heldout_text,
                *self.vocabulary.values(),
            )
        ]

    def do_row(self, row, seed):
        """Does all jobs of a row with a seed.

        Raises:
          BusyError: if another process is working on one of them.
        """
        print(f"\n{row.name}, seed {seed}", flush=True)
        for job, function in self.list_jobs(row):
            self.do(row, seed, job, function)

    def collect(self, row):
        """Returns the results of a row, of all seeds that are done."""
        columns: dict[str, dict] = {}
        for seed in self.grid.seeds:
            for job, _ in self.list_jobs(row):
                path = os.path.join(self.folder(row, seed, job), RESULT_FILE)
                if filesystem.exists(path):
                    for name, value in filesystem.read_json(path).items():
                        columns.setdefault(name, {})[str(seed)] = value
        return {
            "parameters": parameters.count_encoder(row.config),
            "tokens": row.count_tokens(),
            "columns": columns,
            "summary": {
                name: grids.summarize(list(values.values()))
                for name, values in columns.items()
                if name != "commit"
            },
            "paper": row.paper,
        }

    def list_jobs(self, row):
        """Returns a row's jobs, each with the method that does it.

        A job is the index of a phase, HELD_OUT, or the name of a task.
        """
        return [
            *((index, self.train) for index in range(len(row.phases))),
            (HELD_OUT, self.evaluate),
            *((task, self.fine_tune) for task in self.grid.tasks),
        ]

    def folder(self, row, seed, job):
        """Returns the folder of a job."""
        if isinstance(job, int):
            name = row.identify(job + 1, seed, self.digests)
            return os.path.join(self.args.output_dir, "trainings", name)
        settings = self.grid.tasks.get(job, self.grid.held_out)
        name = row.identify(len(row.phases), seed, self.digests, job, settings)
        kind = "evaluations" if job == HELD_OUT else "tasks"
        return os.path.join(self.args.output_dir, kind, name)

    def model_folder(self, row, seed):
        """Returns the folder of the checkpoint after the last phase."""
        trained = self.folder(row, seed, len(row.phases) - 1)
        return os.path.join(trained, "model")

    def do(self, row, seed, job, function):
        """Does a job unless it is done."""
        folder = self.folder(row, seed, job)
        path = os.path.join(folder, RESULT_FILE)
        if filesystem.exists(path):
            return
        try:
            with ownership.owning_folder(folder):
                if not filesystem.exists(path):
                    result = function(row, seed, job, folder)
                    filesystem.write_json(path, result)
        except BlockingIOError as error:
            raise BusyError(f"{row.name}, seed {seed}") from error

    def call(self, name, settings):
        """Runs a program to its end."""
        words = [f"--{flag}={value}" for flag, value in settings.items()]
        print(shlex.join(["albert", name, *words]), flush=True)
        if subprograms.run_program([*subprograms.ALBERT, name, *words]):
            raise ValueError(
                f"albert {name} failed; see above. Rerun the same command to "
                "resume."
            )

    def make_records(self, patterns, settings):
        """Creates records of a text unless they exist; returns their file."""
        described = json.dumps([self.digests, patterns, settings])
        name = hashlib.sha256(described.encode()).hexdigest()[:12]
        folder = os.path.join(self.args.output_dir, "records", name)
        file = os.path.join(folder, "records.tfrecord")
        path = os.path.join(folder, RESULT_FILE)
        with waiting_for_folder(folder):
            if not filesystem.exists(path):
                files = {"input_file": patterns, "output_file": file}
                files |= {"num_workers": self.args.num_workers}
                self.call(
                    "create_pretraining_data",
                    self.vocabulary | files | settings,
                )
                filesystem.write_json(path, settings)
        return file

    def train(self, row, seed, index, folder):
        """Trains a phase; returns its speed, time, and commit."""
        phase = row.phases[index]
        records = self.make_records(self.args.train_text, phase.records)
        config = os.path.join(folder, "config.json")
        filesystem.write_file(config, row.config.to_json_string())
        start = {}
        if index:
            before = self.folder(row, seed, index - 1)
            start = {"init_checkpoint": os.path.join(before, "model")}
        output = os.path.join(folder, "model")
        self.call(
            "run_pretraining",
            {
                "albert_config_file": config,
                "input_file": records,
                "output_dir": output,
                "random_seed": seed,
                "keep_checkpoint_max": 1,
                **start,
                **phase.flags,
            },
        )
        rates = [
            record["sequences_per_second"]
            for record in plot_metrics.read_records(
                os.path.join(output, "metrics.jsonl")
            )
            if "sequences_per_second" in record
        ]
        rate = statistics.median(rates)
        num_sequences = (
            phase.flags["num_train_steps"] * phase.flags["train_batch_size"]
        )
        return {
            f"phase {index + 1}, tokens/s": rate
            * phase.records["max_seq_length"],
            f"phase {index + 1}, seconds": num_sequences / rate,
            "commit": find_commit(),
        }

    def evaluate(self, row, seed, job, folder):
        """Scores the trained model on held-out records of both objectives.

        Masked LM is scored on those of sentence order.
        """
        model = self.read_model(row, seed)
        strategy = distribution.build_strategy("one_device")
        function = evaluation.build_eval_function(strategy, model)
        found = {}
        for objective in ("nsp", "sop"):
            settings = self.grid.held_out | {"sentence_objective": objective}
            records = self.make_records(self.args.heldout_text, settings)
            batches = opening.open_records(records, row.config).read_pass(
                EVAL_BATCH_SIZE
            )
            found[objective] = evaluation.evaluate(
                strategy, model, function, batches
            )
        return {
            "masked LM": found["sop"]["masked_lm_accuracy"],
            "SOP": found["sop"]["sentence_order_accuracy"],
            "NSP": found["nsp"]["sentence_order_accuracy"],
        }

    def read_model(self, row, seed):
        """Returns the model of a row after its last phase."""
        start = pretrained.read_pretrained(self.model_folder(row, seed))
        return pretrained.build_model(
            heads.AlbertForPreTraining,
            dataclasses.replace(start, config=row.config),
        )

    def fine_tune(self, row, seed, task, folder):
        """Fine-tunes the trained model on a task; returns its best score."""
        output = os.path.join(folder, "model")
        self.call(
            "run_classifier",
            {
                **self.vocabulary,
                "init_checkpoint": self.model_folder(row, seed),
                "output_dir": output,
                "do_train": True,
                "do_eval": True,
                "random_seed": seed,
                "keep_checkpoint_max": 1,
                **self.grid.tasks[task],
            },
        )
        summary = filesystem.read_json(os.path.join(output, "summary.json"))
        return {task: summary["best"][summary["metric"]]}


@contextlib.contextmanager
def waiting_for_folder(folder):
    """Context manager: owns a folder, after the process that owns it now."""
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(ownership.owning_folder(folder))
                break
            except BlockingIOError:
                time.sleep(1)
        yield


def digest(path):
    """Returns the SHA-256 of a file's content, in hexadecimal."""
    return hashlib.sha256(filesystem.read_file(path)).hexdigest()


def find_commit():
    """Returns the commit of this package's checkout, or None."""
    try:
        return subprocess.run(
            ["git", "-C", os.path.dirname(__file__), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
