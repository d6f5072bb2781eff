"""Writes an HTML report of a training run from the files in its folder.

Neither model nor data is read, so a report takes seconds and also works on a
copy of the folder.
"""

import collections
import dataclasses
import datetime
import operator
import os
import re
from typing import NamedTuple

from albert_tf import __version__, commands, filesystem
from albert_tf.data import submissions
from albert_tf.reports import mistakes, page, plot_metrics, plots, side_by_side
from albert_tf.training import manifest
from albert_tf.weights.checkpoints import STEP
from albert_tf.weights.task_heads import best_row

REPORT_FILE = "report.html"


class Command(NamedTuple):
    """A command whose runs are reported."""

    name: str
    # Selects the best checkpoint; by default, the first of the task's metrics.
    best_metric: str | None = None
    has_flags: bool = True


SQUAD = Command("run_squad", "f1")
# By a key that only this command writes to the `task` of run.json.
COMMANDS = {
    "sentence_objective": Command("run_pretraining", "masked_lm_accuracy"),
    "tags": Command("run_tagger"),
    "vectors": Command("run_embedding"),
    "objective": Command("run_classifier"),
    "max_qa_length": Command("run_race", "eval_accuracy"),
    "name": Command("A task of your own", has_flags=False),
}
UNKNOWN = Command("Unknown program", has_flags=False)


@dataclasses.dataclass(frozen=True)
class Run:
    """The contents of a run's folder; empty for missing files.

    Attributes:
      folder: path of the folder.
      manifest: content of run.json.
      flags: content of flags.json.
      summary: content of summary.json.
      records: objects of metrics.jsonl.
      rows: objects of dev_predictions.jsonl.
      exits: content of exits.json.
    """

    folder: str
    manifest: dict
    flags: dict
    summary: dict
    records: list[dict]
    rows: list[dict]
    exits: dict

    @property
    def made_of(self) -> dict:
        return self.manifest.get("made_of", {})

    @property
    def task(self) -> dict:
        return self.made_of.get("task", {})

    @property
    def command(self) -> Command:
        if self.task.get("name") in ("squad_v1", "squad_v2"):
            return SQUAD
        return next(
            (c for key, c in COMMANDS.items() if key in self.task), UNKNOWN
        )

    @property
    def best_metric(self) -> str | None:
        names = self.task.get("metrics", ())
        known = [n for n in names if any(n in r for r in self.evaluations)]
        return self.command.best_metric or next(iter([*known, *names]), None)

    @property
    def evaluations(self) -> list[dict]:
        found = [r for r in self.records if r["split"] == "eval"]
        return sorted(found, key=operator.itemgetter("step"))

    @property
    def best(self) -> dict | None:
        """The evaluation of the best checkpoint; None if there is none."""
        return best_row(self.evaluations, self.best_metric or "", "step")

    @property
    def tests(self) -> dict:
        """Scores on test data by file, unless of an earlier best checkpoint."""
        tests: dict = next(iter(self.summary.get("test", [])), {})
        noted, best = self.summary.get("best", {}).get(STEP), self.best
        # Those of the best checkpoint have no step.
        if STEP in tests or not (best and noted) or noted == best["step"]:
            return tests
        return {}

    @property
    def changed_flags(self) -> dict:
        """The flags that differ from the command's defaults, if known."""
        if not self.command.has_flags:
            return self.flags
        _, flags_class = commands.find(self.command.name)
        fields = dataclasses.fields(flags_class)
        defaults = {field.name: field.default for field in fields}
        return {
            name: value
            for name, value in self.flags.items()
            if name not in defaults or value != defaults[name]
        }


def read_run(folder) -> Run:
    """Reads the files of a run.

    Raises:
      FileNotFoundError: if the folder contains no run.
      ValueError: if a file is damaged.
    """

    def read(name, parse, empty):
        path = os.path.join(folder, name)
        return parse(path) if filesystem.exists(path) else empty

    content = read(manifest.MANIFEST_FILE, filesystem.read_json, None)
    records = read(manifest.METRICS_FILE, plot_metrics.read_records, None)
    if content is None and records is None:
        raise FileNotFoundError(_explain_missing(folder))
    content, records = content or {}, list(records or ())
    made_of = content.get("made_of", {})
    if not isinstance(made_of, dict) or not isinstance(
        made_of.get("task", {}), dict
    ):
        raise ValueError(
            f"{os.path.join(folder, manifest.MANIFEST_FILE)}: made_of or its "
            "task is not a JSON object. Was it written by another program?"
        )
    return Run(
        folder=str(folder),
        manifest=content,
        flags=read(manifest.FLAGS_FILE, filesystem.read_json, {}),
        summary=read(submissions.SUMMARY_FILE, filesystem.read_json, {}),
        records=records,
        rows=read(submissions.DEV_PREDICTIONS_FILE, mistakes.read_rows, []),
        exits=read(submissions.EXITS_FILE, filesystem.read_json, {}),
    )


def _explain_missing(folder):
    runs = [
        name
        for name in filesystem.list_folder(folder)
        if filesystem.exists(os.path.join(folder, name, manifest.METRICS_FILE))
    ]
    hint = "Wanted the --output_dir of a program."
    if runs:
        hint = f"Its subfolders {', '.join(runs)} do; give one of them."
    return (
        f"{folder or '.'} contains no training: neither "
        f"{manifest.MANIFEST_FILE} nor {manifest.METRICS_FILE}. {hint}"
    )


def build_report(run: Run, others=()) -> str:
    """Returns the HTML report of a run, with other runs beside it."""
    name = run.task.get("name")
    if "sentence_objective" in run.task:
        name = "pretraining"
    folder = os.path.basename(os.path.abspath(run.folder))
    title = folder if name in (None, folder) else f"{name}: {folder}"
    runs = name_runs([run, *others])
    beside = [side_by_side.describe(runs)] if others else []
    return page.page(
        title,
        page.element("header", page.element("h1", title), *describe(run)),
        *beside,
        page.section("Results", *describe_results(run), name="results"),
        page.section("Curves", describe_curves(runs), name="curves"),
        page.section("Dev examples", *describe_examples(run), name="examples"),
        page.section("Settings", describe_settings(run), name="settings"),
        page.section("Flags", *describe_flags(run), name="flags"),
    )


def missing(file, consequence):
    """Returns a remark in place of a missing file's content."""
    return page.remark(f"There is no {file} in the folder: {consequence}.")


def describe(run):
    """Yields the program, version, times and progress of a run."""
    version = run.manifest.get("version", "of an unknown version")
    words = [f"{run.command.name}, albert_tf {version}."]
    times = [r["time"] for r in run.records if "time" in r]
    if times:
        words.append(
            f"First log entry: {format_time(times[0])}; last: "
            f"{format_time(times[-1])}."
        )
    steps = [r["step"] for r in run.records if r["split"] == "train"]
    total = run.made_of.get("optimizer", {}).get("num_train_steps")
    if steps and total:
        words.append(
            f"Finished: {total:,} steps."
            if steps[-1] >= total
            else f"Unfinished: step {steps[-1]:,} of {total:,}."
        )
    yield page.element("p", " ".join(words))
    yield page.remark(f"Report written by albert_tf {__version__}.")
    yield from describe_warnings(run)


def describe_warnings(run):
    """Yields the warnings of a run, each with the numbers it had last."""
    kinds = collections.defaultdict(list)
    for record in run.records:
        if record["split"] == "warning":
            kind = re.sub(r"[\d.,]+", "", record["text"])
            kinds[kind].append(record)
    for records in kinds.values():
        last = records[-1]
        words = f"Warning at step {last['step']:,}"
        if len(records) > 1:
            words += f", the last of {len(records)} such"
        yield page.element("p", f"{words}: {last['text']}", class_="warning")


def format_time(seconds):
    """Formats seconds since 1970 as a date and time."""
    time = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return f"{time:%Y-%m-%d %H:%M} UTC"


def describe_results(run):
    """Yields the scores on the dev and test data."""
    if run.evaluations:
        yield tabulate_results(run)
    else:
        yield page.remark("There is no evaluation on dev data.")
    if run.exits:
        rows = run.exits.get("exits", [])
        yield plots.arrange(plots.draw_exits(rows, run.best_metric))
    which = f" of step {run.tests[STEP]}" if STEP in run.tests else ""
    for name, scores in run.tests.items():
        if isinstance(scores, dict):
            caption = f"Scores on test data ({name}){which}."
            yield page.table(list(scores.items()), caption=caption)


def tabulate_results(run):
    """Returns the scores of the best and last evaluation and the baseline."""
    last = run.evaluations[-1]
    metric = run.best_metric
    columns = {f"last (step {last['step']:,})": last}
    caption = "Scores on dev data."
    if best := run.best:
        columns = {f"best (step {best['step']:,})": best, **columns}
        caption = (
            f"Scores on dev data. The best checkpoint is selected by {metric} "
            "on the same data: expect lower scores on other data."
        )
    if baseline := run.summary.get("baseline"):
        columns["baseline"] = baseline
    rows = [
        [name, *(values.get(name, "") for values in columns.values())]
        for name in last
        if name not in plot_metrics.NO_METRICS
    ]
    return page.table(rows, head=["", *columns], caption=caption)


def name_runs(runs):
    """Returns a dict from the shortest unique name of a folder to its run."""
    paths = [os.path.join(run.folder, manifest.METRICS_FILE) for run in runs]
    return dict(zip(plot_metrics.name_runs(paths), runs, strict=True))


def describe_curves(runs):
    """Returns the training curves of a dict from name to Run."""
    series = {
        name: values
        for name, run in runs.items()
        if (values := plot_metrics.collect_series(run.records))
    }
    if not series:
        return missing(manifest.METRICS_FILE, "there are no curves")
    first, *_ = runs.values()
    baseline = first.summary.get("baseline", {})
    try:
        return plots.arrange(plots.draw_curves(series, baseline))
    except ValueError as error:
        return page.remark(error)


def describe_examples(run):
    """Yields the best checkpoint's predictions for the dev data."""
    if not run.rows:
        name = submissions.DEV_PREDICTIONS_FILE
        if filesystem.exists(os.path.join(run.folder, name)):
            yield page.remark(f"{name} has no rows.")
        else:
            yield missing(name, "only fine-tuning with dev data writes it")
        return
    yield page.element(
        "p",
        f"Predictions of the best checkpoint (step "
        f"{run.rows[0].get('step', 0):,}) for {len(run.rows):,} dev examples.",
    )
    yield from mistakes.describe(run.rows, run.task)


def describe_settings(run):
    """Returns the run's settings, from run.json."""
    if not run.made_of:
        return missing(manifest.MANIFEST_FILE, "the settings are unknown")
    settings = manifest.flatten(run.made_of).items()
    return page.table(
        [k, page.format_value(v)]
        for k, v in settings
        if not k.endswith("sha256")
    )


def describe_flags(run):
    """Yields the flags of the run that differ from the defaults."""
    if not run.flags:
        yield missing(manifest.FLAGS_FILE, "the flags are unknown")
        return
    rows = [
        [f"--{name.rstrip('_')}", page.format_value(value)]
        for name, value in run.changed_flags.items()
    ]
    yield page.table(rows)
    if num_left := len(run.flags) - len(rows):
        yield page.remark(f"{num_left} other flags have default values.")


def run(args):
    """Writes the report of a run."""
    folder = args.output_dir
    path = args.output_file or os.path.join(folder, REPORT_FILE)
    first, *others = map(read_run, [folder, *args.others])
    filesystem.write_file(path, build_report(first, others))
    print(f"Wrote {path}.")
