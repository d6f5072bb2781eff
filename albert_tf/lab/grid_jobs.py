"""The jobs of a grid: records, pretraining phases, evaluations and tasks.

A job has a folder named by a digest of all that its result depends on: the
contents of texts, vocabulary and data, not their paths. It is done when it has
a `result.json`. Jobs that another process has begun are left to that process.
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
import shlex
import statistics
import subprocess
import time

from albert_tf import __version__, filesystem, ownership
from albert_tf.data import submissions
from albert_tf.data.pretraining import opening
from albert_tf.lab import digests, grid_reports, grids
from albert_tf.model import heads, parameters
from albert_tf.programs import subprograms
from albert_tf.reports import plot_metrics
from albert_tf.text import tokenization
from albert_tf.training import distribution, evaluation, manifest
from albert_tf.weights import pretrained, vocabulary_files

RESULT_FILE = "result.json"
HELD_OUT = "held out"  # The job that scores a model on held-out records.
EVAL_BATCH_SIZE = 64
# Column -> (records that differ in this from `held_out`, name of the metric).
SOP = {"sentence_objective": "sop"}
SCORES = {
    "masked LM": (SOP, "masked_lm_accuracy"),
    "single pieces": (SOP | {"ngram": 1}, "masked_lm_accuracy"),
    "SOP": (SOP, "sentence_order_accuracy"),
    "NSP": ({"sentence_objective": "nsp"}, "sentence_order_accuracy"),
}
# Flags that a grid cannot have: jobs set them or rely on their defaults, and
# `sentence_objective` replaces random_next_sentence.
RESERVED = set(
    "albert_config_file beam_options data_dir do_eval do_train from_scratch "
    "init_checkpoint input_file num_runs num_shards num_workers output_dir "
    "output_file random_next_sentence random_seed runner spm_model_file "
    "vocab_file".split()
)


class GridRunner:
    """Does the jobs of a grid, whose tasks all have data, in a folder."""

    def __init__(self, grid, args):
        self.grid, self.args = grid, args
        self.vocabulary = {
            name: path
            for name in ("spm_model_file", "vocab_file")
            if (path := getattr(args, name))
        }
        self.texts = {
            text: list(map(digests.digest_file, filesystem.expand_files(text)))
            for text in (args.train_text, args.heldout_text)
        }
        # Every job depends on the vocabulary, and on what is recorded with it.
        self.begin: list = []
        for path in self.vocabulary.values():
            casing = vocabulary_files.read_casing(path)
            self.begin.append(digests.digest_file(path))
            # The usual casing, true and false, needs no mention.
            self.begin += sorted(
                (name, value)
                for name, value in casing.items()
                if value != (name == "do_lower_case")
            )

    def do_row(self, row, seed):
        """Does all jobs of a row with a seed.

        Raises:
          BlockingIOError: if another process is working on one of them.
        """
        for job, function in self.list_jobs(row):
            self.do(row, seed, job, function)

    def collect(self, row, seeds):
        """Returns the results of a row, of the seeds that are done."""
        columns: dict[str, dict] = {}
        commits: set[str] = set()
        for seed in seeds:
            for job, _ in self.list_jobs(row):
                path = os.path.join(self.folder(row, seed, job), RESULT_FILE)
                if filesystem.exists(path):
                    done = filesystem.read_json(path)
                    commits |= set(done["commits"])
                    for name, value in done["results"].items():
                        columns.setdefault(name, {})[str(seed)] = value
        return {
            "parameters": parameters.count_encoder(row.config),
            "phases": len(row.phases),
            "tokens": row.count_tokens(),
            "columns": columns,
            "summary": grid_reports.summarize(columns),
            "commits": sorted(commits),
            "folders": self.list_folders(row, seeds) if row.phases else {},
            "paper": row.paper,
        }

    def list_folders(self, row, seeds):
        """Returns a dict from seed to the checkpoint's folder in output_dir."""
        folders = {}
        for seed in seeds:
            trained = self.folder(row, seed, len(row.phases) - 1)
            if filesystem.exists(os.path.join(trained, RESULT_FILE)):
                path = self.model_folder(row, seed)
                folders[str(seed)] = os.path.relpath(path, self.args.output_dir)
        return folders

    def list_jobs(self, row):
        """Returns a row's jobs, each with the method that does it.

        A job is the index of a phase, HELD_OUT, or the name of a task.
        """
        jobs: list[tuple] = []
        if row.phases:
            jobs += [(index, self.train) for index in range(len(row.phases))]
            jobs.append((HELD_OUT, self.evaluate))
        return jobs + [(task, self.fine_tune) for task in self.grid.tasks]

    def folder(self, row, seed, job):
        """Returns the folder of a job."""
        texts = list(self.begin)
        if row.phases:  # Random weights do not depend on the text.
            texts += self.texts[self.args.train_text]
        if isinstance(job, int):
            name = row.identify(job + 1, seed, texts)
            return os.path.join(self.args.output_dir, "trainings", name)
        if job == HELD_OUT:
            held_out = self.texts[self.args.heldout_text]
            others = [self.grid.held_out, held_out, sorted(SCORES)]
            kind = "evaluations"
        else:
            settings = self.task_settings(row, job)
            others = sorted((settings | digests.digest_task(settings)).items())
            kind = "tasks"
        name = row.identify(len(row.phases), seed, texts, job, others)
        return os.path.join(self.args.output_dir, kind, name)

    def task_settings(self, row, task):
        """Returns the flags of run_classifier for a row's task."""
        settings = self.grid.tasks[task] | row.tasks.get(task, {})
        if not row.phases:
            # A trained model has the casing of its records.
            casing = tokenization.take_casing(self.grid.held_out)
            settings = casing | settings
        # Not data_dir: the user's folder may begin with "configs/", too.
        return find_shipped(settings) | {"data_dir": settings["data_dir"]}

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
        with ownership.owning_folder(folder):
            if not filesystem.exists(path):
                name = f"phase {job + 1}" if isinstance(job, int) else job
                print(f"\n{row.name}, seed {seed}: {name}", flush=True)
                note_commit(folder)
                results = function(row, seed, job, folder)
                # The checkout may have changed meanwhile.
                commits = note_commit(folder)
                content = {"results": results, "commits": commits}
                filesystem.write_json(path, content)

    def call(self, name, settings):
        """Runs a program to its end."""
        words = [f"--{flag}={value}" for flag, value in settings.items()]
        command = shlex.join(["albert", name, *words])
        print(command, flush=True)
        status = subprograms.run_program([*subprograms.ALBERT, name, *words])
        if status:
            raise ChildProcessError(f"Exit status {status} of: {command}")

    def make_records(self, text, settings):
        """Creates records of a text unless they exist; returns their file."""
        name = grids.identify(self.begin, self.texts[text], settings)
        folder = os.path.join(self.args.output_dir, "records", name)
        file = os.path.join(folder, "records.tfrecord")
        path = os.path.join(folder, RESULT_FILE)
        with waiting_for_folder(folder):
            if not filesystem.exists(path):
                own = {
                    "input_file": text,
                    "output_file": file,
                    "num_workers": self.args.num_workers,
                }
                words = self.vocabulary | own | settings
                self.call("create_pretraining_data", words)
                filesystem.write_json(path, settings)
        return file

    def train(self, row, seed, index, folder):
        """Trains a phase; returns its speed and time."""
        phase = row.phases[index]
        records = self.make_records(self.args.train_text, phase.records)
        output = os.path.join(folder, "model")
        start = {"albert_config_file": write_config(row, folder)}
        if index:
            before = self.folder(row, seed, index - 1)
            start |= {"init_checkpoint": os.path.join(before, "model")}
        self.call(
            "run_pretraining",
            {
                **start,
                "input_file": records,
                "output_dir": output,
                "random_seed": seed,
                "keep_checkpoint_max": 1,
                **phase.flags,
            },
        )
        log = os.path.join(output, manifest.METRICS_FILE)
        name = "sequences_per_second"
        lines = plot_metrics.read_records(log)
        rates = [line[name] for line in lines if name in line]
        if not rates:  # The first compiled call, which is not timed, did all.
            return {}
        rate = statistics.median(rates) * phase.records["max_seq_length"]
        return {
            f"phase {index + 1}, tokens/s": rate,
            f"phase {index + 1}, seconds": phase.count_tokens() / rate,
        }

    def evaluate(self, row, seed, job, folder):
        """Scores the trained model on held-out records; see SCORES."""
        start = pretrained.read_pretrained(self.model_folder(row, seed))
        model = pretrained.build_model(
            heads.AlbertForPreTraining,
            dataclasses.replace(start, config=row.config),
        )
        strategy = distribution.build_strategy("one_device")
        function = evaluation.build_eval_function(strategy, model)

        @functools.cache
        def score(file):
            records = opening.open_records(file, row.config)
            batches = records.read_pass(EVAL_BATCH_SIZE)
            return evaluation.evaluate(strategy, model, function, batches)

        results = {}
        for column, (change, metric) in SCORES.items():
            settings = self.grid.held_out | change
            file = self.make_records(self.args.heldout_text, settings)
            results[column] = score(file)[metric]
        return results

    def fine_tune(self, row, seed, task, folder):
        """Fine-tunes the trained model on a task; returns its best score."""
        output = os.path.join(folder, "model")
        if row.phases:
            start = {"init_checkpoint": self.model_folder(row, seed)}
        else:
            start = {"albert_config_file": write_config(row, folder)}
            start |= {"from_scratch": True}
        self.call(
            "run_classifier",
            {
                **self.vocabulary,
                **start,
                "output_dir": output,
                "do_train": True,
                "do_eval": True,
                "random_seed": seed,
                "keep_checkpoint_max": 1,
                # As in the results so far: the best of few checkpoints.
                "save_checkpoints_steps": 1000,
                **self.task_settings(row, task),
            },
        )
        path = os.path.join(output, submissions.SUMMARY_FILE)
        summary = filesystem.read_json(path)
        return {task: summary["best"][summary["metric"]]}


def find_shipped(settings):
    """Returns settings with paths of shipped files, "configs/...", whole.

    Files of the user come first.
    """
    return {
        name: str(filesystem.shipped_configs().parent / value)
        if str(value).startswith("configs/") and not filesystem.exists(value)
        else value
        for name, value in settings.items()
    }


def write_config(row, folder):
    """Writes a row's albert_config.json; returns its path."""
    path = os.path.join(folder, "config.json")
    filesystem.write_file(path, row.config.to_json_string())
    return path


@contextlib.contextmanager
def waiting_for_folder(folder):
    """Context manager: locks a folder as soon as no other process does."""
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(ownership.owning_folder(folder))
                break
            except BlockingIOError:
                time.sleep(1)
        yield


def note_commit(folder):
    """Adds this package's commit to a folder's file; returns all in it.

    An interrupted job may be resumed by another commit.
    """
    path = os.path.join(folder, "commits.json")
    noted = filesystem.read_json(path) if filesystem.exists(path) else {}
    commits = sorted({*noted.get("commits", ()), find_commit()})
    filesystem.write_json(path, {"commits": commits})
    return commits


def find_commit():
    """Returns the commit of this package's checkout, or its version.

    The commit ends with "-dirty" if files differ from it.
    """
    root = pathlib.Path(__file__).parents[2]
    if not (root / ".git").exists():
        return __version__
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    command += ["--abbrev=7", "--exclude=*"]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return __version__
