"""Writes an HTML report of a training run from the files in its folder.

Neither model nor data is read, so a report takes seconds and also works on a
copy of the folder.
"""

import dataclasses
import datetime
import os
from typing import NamedTuple

from albert_tf import __version__, filesystem
from albert_tf.commands import (
    run_classifier,
    run_pretraining,
    run_race,
    run_squad,
)
from albert_tf.data import submissions
from albert_tf.reports import mistakes, page, plot_metrics, plots
from albert_tf.training import manifest

REPORT_FILE = "report.html"
FILES = (
    manifest.MANIFEST_FILE,
    manifest.FLAGS_FILE,
    manifest.METRICS_FILE,
    manifest.SUMMARY_FILE,
    submissions.DEV_PREDICTIONS_FILE,
)


class Program(NamedTuple):
    """A program whose runs are reported.

    Attributes:
      name: name of the command.
      flags_class: class of its flags.
      key: key that only this program writes to the `task` of run.json.
      best_metric: metric that selects the best checkpoint; None for the first
        of the task's `metrics`.
    """

    name: str
    flags_class: type
    key: str
    best_metric: str | None


PROGRAMS = (
    Program(
        "run_pretraining",
        run_pretraining.PretrainingFlags,
        "sentence_objective",
        "masked_lm_accuracy",
    ),
    Program(
        "run_classifier", run_classifier.ClassifierFlags, "objective", None
    ),
    Program("run_race", run_race.RaceFlags, "max_qa_length", "eval_accuracy"),
    Program("run_squad", run_squad.SquadFlags, "name", "f1"),
)


@dataclasses.dataclass(frozen=True)
class Training:
    """The contents of a run's folder; missing files are empty.

    Attributes:
      folder: path of the folder.
      manifest: content of run.json.
      flags: content of flags.json.
      summary: content of summary.json.
      records: objects of metrics.jsonl.
      series: metrics, as from `plot_metrics.read_series`.
      rows: objects of dev_predictions.jsonl.
    """

    folder: str
    manifest: dict
    flags: dict
    summary: dict
    records: list[dict]
    series: dict
    rows: list[dict]

    @property
    def made_of(self) -> dict:
        return self.manifest.get("made_of", {})

    @property
    def task(self) -> dict:
        return self.made_of.get("task", {})

    @property
    def program(self) -> Program | None:
        return next((p for p in PROGRAMS if p.key in self.task), None)

    @property
    def best_metric(self) -> str | None:
        if self.program and self.program.best_metric:
            return self.program.best_metric
        return next(iter(self.task.get("metrics", ())), None)

    @property
    def evaluations(self) -> list[dict]:
        return [r for r in self.records if r["split"] == "eval"]


def read_training(folder) -> Training:
    """Reads the files of a run.

    Raises:
      FileNotFoundError: if the folder contains no run.
      ValueError: if a file is damaged.
    """
    paths = {name: os.path.join(folder, name) for name in FILES}
    there = {n: p for n, p in paths.items() if filesystem.exists(p)}
    if not there.keys() & {manifest.MANIFEST_FILE, manifest.METRICS_FILE}:
        runs = [
            name
            for name in filesystem.list_folder(folder)
            if filesystem.exists(
                os.path.join(folder, name, manifest.METRICS_FILE)
            )
        ]
        raise FileNotFoundError(
            f"{folder or '.'} contains no training: neither "
            f"{manifest.MANIFEST_FILE} nor {manifest.METRICS_FILE}. "
            + (
                f"Its subfolders {', '.join(runs)} do; give one of them."
                if runs
                else "Wanted the --output_dir of a program."
            )
        )
    objects = {
        name: filesystem.read_json(path)
        for name, path in there.items()
        if name.endswith(".json")
    }
    made_of = objects.get(manifest.MANIFEST_FILE, {}).get("made_of", {})
    if not isinstance(made_of, dict) or not isinstance(
        made_of.get("task", {}), dict
    ):
        raise ValueError(
            f"{paths[manifest.MANIFEST_FILE]}: made_of or its task is not a "
            "JSON object. Was it written by another program?"
        )
    records, series, rows = [], {}, []
    if manifest.METRICS_FILE in there:
        records = list(plot_metrics.read_records(there[manifest.METRICS_FILE]))
        if records:
            series = plot_metrics.read_series(there[manifest.METRICS_FILE])
    if submissions.DEV_PREDICTIONS_FILE in there:
        rows = mistakes.read_rows(there[submissions.DEV_PREDICTIONS_FILE])
    return Training(
        folder=str(folder),
        manifest=objects.get(manifest.MANIFEST_FILE, {}),
        flags=objects.get(manifest.FLAGS_FILE, {}),
        summary=objects.get(manifest.SUMMARY_FILE, {}),
        records=records,
        series=series,
        rows=rows,
    )


def build_report(training: Training) -> str:
    """Returns the HTML report of a run."""
    name = training.task.get("name") or "pretraining"
    folder = os.path.basename(os.path.abspath(training.folder))
    title = name if name == folder else f"{name}: {folder}"
    return page.page(
        title,
        page.element("header", page.element("h1", title), *describe(training)),
        page.section("Results", *describe_results(training), name="results"),
        page.section("Curves", describe_curves(training), name="curves"),
        page.section(
            "Dev examples", *describe_examples(training), name="examples"
        ),
        page.section("Settings", describe_settings(training), name="settings"),
        page.section("Flags", *describe_flags(training), name="flags"),
    )


def missing(file, consequence):
    """Returns a remark in place of a missing file's content."""
    return page.element(
        "p", f"There is no {file} in the folder: {consequence}.", class_="soft"
    )


def describe(training):
    """Yields the program, version, times and progress of a run."""
    program = training.program.name if training.program else "Unknown program"
    version = training.manifest.get("version", "of an unknown version")
    words = [f"{program}, albert_tf {version}."]
    times = [r["time"] for r in training.records if "time" in r]
    if times:
        words.append(
            f"First log entry: {format_time(times[0])}; last: "
            f"{format_time(times[-1])}."
        )
    steps = [r["step"] for r in training.records if r["split"] == "train"]
    total = training.made_of.get("optimizer", {}).get("num_train_steps")
    if steps and total:
        done = (
            f"Finished: {total:,} steps."
            if steps[-1] >= total
            else f"Unfinished: step {steps[-1]:,} of {total:,}."
        )
        words.append(done)
    yield page.element("p", " ".join(words))
    yield page.element(
        "p", f"Report written by albert_tf {__version__}.", class_="soft"
    )


def format_time(seconds):
    """Formats seconds since 1970 as a date and time."""
    time = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return f"{time:%Y-%m-%d %H:%M} UTC"


def describe_results(training):
    """Yields the scores on the dev and test data."""
    if not training.evaluations:
        yield page.element(
            "p", "There is no evaluation on dev data.", class_="soft"
        )
    else:
        yield tabulate_results(training)
    tests = training.summary.get("test", [])
    for name, scores in (tests[0] if tests else {}).items():
        if isinstance(scores, dict):
            yield page.table(
                list(scores.items()),
                caption=f"Scores of the best checkpoint on test data ({name}).",
            )


def tabulate_results(training):
    """Returns the scores of the best and last evaluation and the baseline."""
    last = training.evaluations[-1]
    metric = training.best_metric
    columns = {f"last (step {last['step']:,})": last}
    caption = "Scores on dev data."
    if metric in last:
        # The initial weights, of step 0, have no checkpoint.
        scored = [r for r in training.evaluations if metric in r]
        scored = [r for r in scored if r["step"]] or scored
        best = max(scored, key=lambda r: r[metric])
        columns = {f"best (step {best['step']:,})": best, **columns}
        caption = (
            f"Scores on dev data. The best checkpoint is selected by {metric} "
            "on the same data: expect lower scores on other data."
        )
    if baseline := training.summary.get("baseline"):
        columns["baseline"] = baseline
    names = [n for n in last if n not in ("split", "step", "time")]
    return page.table(
        [
            [name, *(values.get(name, "") for values in columns.values())]
            for name in names
        ],
        head=["", *columns],
        caption=caption,
    )


def describe_curves(training):
    """Returns the training curves."""
    if not training.series:
        return missing(manifest.METRICS_FILE, "there are no curves")
    try:
        return plots.arrange(plots.draw_curves(training.series))
    except ValueError as error:
        return page.element("p", error, class_="soft")


def describe_examples(training):
    """Returns the best checkpoint's predictions for the dev data."""
    if not training.rows:
        return [
            missing(
                submissions.DEV_PREDICTIONS_FILE,
                "only fine-tuning with dev data writes it",
            )
        ]
    step = training.rows[0].get("step", 0)
    return [
        page.element(
            "p",
            f"Predictions of the best checkpoint (step {step:,}) for "
            f"{len(training.rows):,} dev examples.",
        ),
        *mistakes.describe(training.rows, training.task),
    ]


def describe_settings(training):
    """Returns the run's settings, from run.json."""
    if not training.made_of:
        return missing(manifest.MANIFEST_FILE, "the settings are unknown")
    return page.table(
        [
            [key, format_value(value)]
            for key, value in manifest.flatten(training.made_of).items()
            if not key.endswith("sha256")
        ]
    )


def describe_flags(training):
    """Returns the flags of the run that differ from the defaults."""
    if not training.flags:
        return [missing(manifest.FLAGS_FILE, "the flags are unknown")]
    defaults = {}
    if training.program:
        fields = dataclasses.fields(training.program.flags_class)
        defaults = {field.name: field.default for field in fields}
    rows = [
        [f"--{name.rstrip('_')}", format_value(value)]
        for name, value in training.flags.items()
        if name not in defaults or value != defaults[name]
    ]
    num_left = len(training.flags) - len(rows)
    words = f"{num_left} other flags have default values." if num_left else ""
    return [page.table(rows), page.element("p", words, class_="soft")]


def format_value(value):
    """Formats a setting briefly."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def run(args):
    """Writes the report of a run."""
    folder = args.output_dir
    path = args.output_file or os.path.join(folder, REPORT_FILE)
    training = read_training(folder)
    filesystem.write_file(path, build_report(training))
    print(f"Wrote {path}.")
