"""What the scripts of all tasks do once they have read their data.

A `Task` says what is peculiar to one: its model, its examples, and functions
that score, predict and export. `run_task` trains and evaluates it with one
seed or several, and reports.
"""

import dataclasses
import os
import statistics
import time
from collections.abc import Callable

from albert_tf import filesystem
from albert_tf.data.examples import Examples
from albert_tf.metrics import classification
from albert_tf.model.config import CONFIG_FILE
from albert_tf.programs import finetuning
from albert_tf.text.tokenization import SETTINGS_FILE
from albert_tf.training import distribution, evaluation
from albert_tf.weights.checkpoints import STEP

SUMMARY_FILE = "summary.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """What is peculiar to a task. Its functions take a `finetuning.Run`.

    Attributes:
      name: for the summary.
      build_model: function from config and dtype to the model.
      train: the training data, or None to train nothing.
      num_train: examples in it that an epoch counts.
      score: function that evaluates the run's model as it stands on dev data,
        to a dict from metric to float; None without dev data.
      best_metric: what the best checkpoint is chosen by.
      baseline: dict from metric to what the best guess without looking gets.
      predict: function that writes predictions of the best checkpoint, and
        returns scores of them; None to predict nothing.
      exports: functions that each write a SavedModel of it, and return where.
      made_of: dict of `task` and `data`, as `manifest.Manifest` wants them.
    """

    name: str
    build_model: Callable
    train: Examples | None
    num_train: int
    score: Callable | None
    best_metric: str
    baseline: dict
    predict: Callable | None
    exports: tuple = ()
    made_of: dict = dataclasses.field(default_factory=dict)


def run_task(args, task, start):
    """Trains, evaluates, predicts and exports, with each seed.

    Args:
      args: with the fields of `shared_flags.FineTuningFlags`.
      task: a Task.
      start: from `finetuning.read_start`.
    """
    began = time.monotonic()
    strategy = distribution.build_strategy_of(args)
    outcomes = [
        _run_once(args, number, task, start, strategy)
        for number in range(args.num_runs)
    ]
    if not task.score:
        return
    summary = summarize([evaluator for evaluator, _ in outcomes])
    print(format_summary(summary, task.baseline))
    summary |= {
        "task": task.name,
        "baseline": task.baseline,
        "test": [scores for _, scores in outcomes],
        "seconds": round(time.monotonic() - began, 1),
    }
    filesystem.write_json(os.path.join(args.output_dir, SUMMARY_FILE), summary)


def _run_once(args, number, task, start, strategy):
    """One seed's Evaluator, or None, and the scores of its predictions."""
    run = finetuning.Run(
        args,
        number,
        task.build_model,
        *start,
        strategy,
        task.num_train,
        task.made_of,
    )
    evaluator = None
    if task.score:
        evaluator = evaluation.Evaluator(
            lambda: task.score(run),
            manager=run.manager,
            reporter=run.reporter,
            best_metric=task.best_metric,
        )
    if task.train is not None:
        run.train(task.train, evaluator)
    elif evaluator:
        run.evaluate(evaluator)
    if task.train is None:
        run.manifest.write()
    scores = {}
    if task.predict or task.exports:
        run.reporter.say(f"Predicts with {run.restore_best()}.")
    if task.predict:
        scores = task.predict(run)
    if task.exports and number == 0:
        run.write_assets()
        for export in task.exports:
            run.reporter.say(f"SavedModel: {export(run)}")
    return evaluator, scores


def warn_of_collapse(run, logits, label_ids, objective, found, baseline):
    """Says it where a model seems to have learned nothing.

    Args:
      run: a `finetuning.Run`.
      logits: [N, C].
      label_ids: as `metrics.classification` has them.
      objective: as `heads.AlbertClassifier` knows it.
      found: dict with the `eval_loss` of these logits.
      baseline: dict with that of the best guess without looking.
    """
    warning = classification.find_collapse(
        logits,
        label_ids,
        objective,
        prior_loss=baseline["eval_loss"],
        loss=found["eval_loss"],
    )
    if warning:
        run.reporter.say(f"WARNING: {warning}")


def import_text_export(wanted_by):
    """Returns the module `text_export`, which needs tensorflow-text.

    Args:
      wanted_by: the flag that asks for it, and how to do without.

    Raises:
      ImportError: if tensorflow-text is not there.
    """
    try:
        from albert_tf.export import text_serving
    except ImportError as error:
        raise ImportError(
            f"{wanted_by} needs tensorflow-text ({error}): "
            "pip install 'albert_tf[text]'."
        ) from error
    return text_serving


def export_model(write, run, folder, **kwargs):
    """Writes a SavedModel of the weights that a run has now.

    Config and vocabulary are its assets.

    Args:
      write: a function of `export`.
      run: a `finetuning.Run`.
      folder: where versions of it go.
      **kwargs: further arguments of the function.

    Returns:
      The SavedModel's own folder.
    """
    names = CONFIG_FILE, SETTINGS_FILE, run.start.vocabulary_file[0]
    return write(
        folder,
        run.model,
        max_seq_length=run.args.max_seq_length,
        assets=[os.path.join(run.folder, name) for name in names],
        **kwargs,
    )


def summarize(evaluators):
    """What several runs achieved.

    Args:
      evaluators: the `evaluation.Evaluator` of each run.

    Returns:
      Dict with `metric`, the name of what the best is chosen by; `runs`, a
      dict of `last` and `best` values for each; and, of the run with the
      median of the best, `last` and `best`; `median` and `spread` (standard
      deviation) of the best.
    """
    metric = evaluators[0].best_metric
    runs = []
    for evaluator in evaluators:
        results = evaluator.results()
        runs.append(
            {
                "folder": evaluator.manager.folder,
                "last": max(results, key=lambda r: r[STEP]),
                "best": max(results, key=lambda r: r[metric]),
            }
        )
    scores = [run["best"][metric] for run in runs]
    middle = statistics.median_low(scores)
    return {
        "metric": metric,
        **runs[scores.index(middle)],
        "median": statistics.median(scores),
        "spread": statistics.stdev(scores) if len(scores) > 1 else 0.0,
        "runs": runs,
    }


def format_summary(summary, baseline):
    """Returns a few lines that say what was achieved.

    Args:
      summary: from `summarize`.
      baseline: dict from metric to what the best guess without looking gets.
    """
    metric = summary["metric"]
    names = [name for name in summary["best"] if name in baseline]
    lines = [
        f"{'':24}{'last':>10}{'best on dev':>14}{'baseline':>12}",
        *(
            f"{name:24}{summary['last'][name]:10.4f}"
            f"{summary['best'][name]:14.4f}{baseline[name]:12.4f}"
            for name in sorted(names)
        ),
        f"Step {summary['last'][STEP]:.0f} is the last, "
        f"{summary['best'][STEP]:.0f} the best, chosen by {metric} on dev: "
        "expect less on other data.",
    ]
    if len(summary["runs"]) > 1:
        lines.append(
            f"{len(summary['runs'])} runs: best {metric} has median "
            f"{summary['median']:.4f}, standard deviation "
            f"{summary['spread']:.4f}; above is the median run."
        )
    return "\n".join(lines)
