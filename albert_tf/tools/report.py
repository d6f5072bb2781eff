"""Writes one page about a training, from the files in its folder.

Nothing is computed anew: no model and no data is read, so that a page takes
seconds, also where only the folder was copied to.
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
from albert_tf.tools import mistakes, page, plot_metrics, plots
from albert_tf.training import manifest

REPORT_FILE = "report.html"
METRICS_FILE = "metrics.jsonl"
SUMMARY_FILE = "summary.json"
FILES = (
    manifest.MANIFEST_FILE,
    manifest.FLAGS_FILE,
    METRICS_FILE,
    SUMMARY_FILE,
    submissions.DEV_PREDICTIONS_FILE,
)


class Program(NamedTuple):
    """A program whose trainings are reported.

    Attributes:
      name: as of the command.
      flags_class: its flags.
      sign: the key in the `task` of a run.json by which it is known.
      best_metric: what the best checkpoint is chosen by; None where the task
        says it.
    """

    name: str
    flags_class: type
    sign: str
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
    """What the files of a folder say.

    Attributes:
      folder: its path.
      manifest: what run.json holds; empty where there is none.
      flags: likewise, of flags.json.
      summary: likewise, of summary.json.
      records: objects of metrics.jsonl, a list.
      series: the same, as from `plot_metrics.read_series`.
      rows: objects of dev_predictions.jsonl, a list.
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
        return next((p for p in PROGRAMS if p.sign in self.task), None)

    @property
    def best_metric(self) -> str | None:
        if self.program and self.program.best_metric:
            return self.program.best_metric
        return next(iter(self.task.get("metrics", ())), None)

    @property
    def evaluations(self) -> list[dict]:
        return [r for r in self.records if r["split"] == "eval"]


def read_training(folder) -> Training:
    """Reads what a folder says of the training in it.

    Raises:
      FileNotFoundError: if no training has written there.
      ValueError: if a file is damaged.
    """
    paths = {name: os.path.join(folder, name) for name in FILES}
    there = {n: p for n, p in paths.items() if filesystem.exists(p)}
    if not there.keys() & {manifest.MANIFEST_FILE, METRICS_FILE}:
        runs = [
            name
            for name in filesystem.list_folder(folder)
            if filesystem.exists(os.path.join(folder, name, METRICS_FILE))
        ]
        raise FileNotFoundError(
            f"{folder or '.'} holds no training: neither "
            f"{manifest.MANIFEST_FILE} nor {METRICS_FILE}. "
            + (
                f"But {', '.join(runs)} in it do: name one of them."
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
            f"{paths[manifest.MANIFEST_FILE]}: made_of and its task are no "
            "objects. Is it of another program?"
        )
    records, series, rows = [], {}, []
    if METRICS_FILE in there:
        records = list(plot_metrics.read_records(there[METRICS_FILE]))
        if records:
            series = plot_metrics.read_series(there[METRICS_FILE])
    if submissions.DEV_PREDICTIONS_FILE in there:
        rows = mistakes.read_rows(there[submissions.DEV_PREDICTIONS_FILE])
    return Training(
        folder=str(folder),
        manifest=objects.get(manifest.MANIFEST_FILE, {}),
        flags=objects.get(manifest.FLAGS_FILE, {}),
        summary=objects.get(SUMMARY_FILE, {}),
        records=records,
        series=series,
        rows=rows,
    )


def build_report(training: Training) -> str:
    """Returns the page about a training."""
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
    """A sentence instead of what a file would have told."""
    return page.element(
        "p", f"There is no {file} in the folder: {consequence}.", class_="soft"
    )


def describe(training):
    """What it is, when it ran and how far it is."""
    program = training.program.name if training.program else "a program"
    version = training.manifest.get("version", "of an unknown version")
    words = [f"A training by {program}, albert_tf {version}."]
    times = [r["time"] for r in training.records if "time" in r]
    if times:
        words.append(
            f"First value written at {format_time(times[0])}, last at "
            f"{format_time(times[-1])}."
        )
    steps = [r["step"] for r in training.records if r["split"] == "train"]
    total = training.made_of.get("optimizer", {}).get("num_train_steps")
    if steps and total:
        done = (
            f"Finished: {total:,} steps."
            if steps[-1] >= total
            else f"Not finished: at step {steps[-1]:,} of {total:,}."
        )
        words.append(done)
    yield page.element("p", " ".join(words))
    yield page.element(
        "p", f"This page was made by albert_tf {__version__}.", class_="soft"
    )


def format_time(seconds):
    """Returns seconds since 1970 as a date and time of day."""
    time = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return f"{time:%Y-%m-%d %H:%M} UTC"


def describe_results(training):
    """Scores on dev, of the best and the last evaluation, and on test."""
    if not training.evaluations:
        yield page.element(
            "p", "Nothing has been evaluated on dev data.", class_="soft"
        )
    else:
        yield tabulate_results(training)
    tests = training.summary.get("test", [])
    for name, scores in (tests[0] if tests else {}).items():
        if isinstance(scores, dict):
            yield page.table(
                list(scores.items()),
                caption=f"Scores of the best checkpoint on test ({name}).",
            )


def tabulate_results(training):
    """The table of scores on dev."""
    last = training.evaluations[-1]
    metric = training.best_metric
    columns = {f"last (step {last['step']:,})": last}
    caption = "Scores on dev."
    if metric in last:
        best = max(training.evaluations, key=lambda r: r.get(metric, 0.0))
        columns = {f"best (step {best['step']:,})": best, **columns}
        caption = (
            f"Scores on dev. The best is chosen by {metric} on this very "
            "data: expect less on other data."
        )
    if baseline := training.summary.get("baseline"):
        columns["guess without looking"] = baseline
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
    """A figure for each panel."""
    if not training.series:
        return missing(METRICS_FILE, "there are no curves")
    try:
        return plots.draw_curves(training.series)
    except (ImportError, ValueError) as error:
        return page.element("p", error, class_="soft")


def describe_examples(training):
    """What the best checkpoint says of dev examples."""
    if not training.rows:
        return [
            missing(
                submissions.DEV_PREDICTIONS_FILE,
                "it is written by fine-tunings that score dev data",
            )
        ]
    step = training.rows[0].get("step", 0)
    return [
        page.element(
            "p",
            f"What the checkpoint of step {step:,}, the best so far, predicts "
            f"for {len(training.rows):,} dev examples.",
        ),
        *mistakes.describe(training.rows, training.task),
    ]


def describe_settings(training):
    """What run.json says the run is made of."""
    if not training.made_of:
        return missing(manifest.MANIFEST_FILE, "its settings are not known")
    return page.table(
        [
            [key, format_value(value)]
            for key, value in manifest.flatten(training.made_of).items()
            if not key.endswith("sha256")
        ]
    )


def describe_flags(training):
    """The flags that the program was called with."""
    if not training.flags:
        return [missing(manifest.FLAGS_FILE, "no program wrote its flags")]
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
    words = f"{num_left} others have their defaults." if num_left else ""
    return [page.table(rows), page.element("p", words, class_="soft")]


def format_value(value):
    """Returns a setting as text, as short as it can be."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def run(args):
    """Writes the page."""
    folder = args.output_dir
    path = args.output_file or os.path.join(folder, REPORT_FILE)
    training = read_training(folder)
    filesystem.write_file(path, build_report(training))
    print(f"Wrote {path}.")
