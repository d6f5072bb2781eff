r"""Compares the scores of fine-tuning from pretrained and random weights.

  python -m benchmarks.transfer --init_checkpoint=out/night \
    --spm_model_file=30k-clean.model --output_dir=out/transfer \
    --glue_dir=glue --reviews_dir=reviews --squad_file=dev-v1.1.json \
    --race_dir=race [--only='CoLA;MRPC'] [--rates=1e-4] [--start=pretrained]

Every task is trained from both, at each learning rate, with three seeds. The
table has the rate whose best dev scores have the highest median. Tasks without
data are skipped. Rerun the same command to resume: finished runs are skipped,
and a different checkpoint is refused. The table at the end is the one in
docs/results.md.
"""

import dataclasses
import json
import pathlib
from typing import Literal, NamedTuple

from albert_tf import filesystem, flags
from albert_tf.flags import flag
from benchmarks import programs

COMMON = {
    "num_runs": 3,
    "train_batch_size": 32,
    "warmup_proportion": 0.1,
    "keep_checkpoint_max": 1,
}
# Fraction of the articles in SQuAD's dev set to train on; the rest is scored.
TRAIN_FRACTION = 0.75


class Task(NamedTuple):
    """One row of the table.

    Args:
      program: name of the script that trains it.
      data: flag of this benchmark with the path of its data.
      settings: dict from flag of the program to value.
    """

    program: str
    data: str
    settings: dict


def classify(name, epochs, length):
    """Returns a GLUE task."""
    settings = {"task_name": name, "num_train_epochs": epochs}
    settings |= {"max_seq_length": length, "do_eval": True}
    return Task("run_classifier", "glue_dir", settings)


TASKS = {
    "film reviews": Task(
        "run_classifier",
        "reviews_dir",
        {
            "task_config": programs.ROOT / "configs/tasks/film_reviews.json",
            "num_train_epochs": 3,
            "max_seq_length": 256,
            "do_eval": True,
        },
    ),
    "SST-2": classify("sst-2", 1, 64),
    "CoLA": classify("cola", 5, 64),
    "MRPC": classify("mrpc", 5, 128),
    "STS-B": classify("sts-b", 5, 128),
    "SQuAD 1.1": Task(
        "run_squad",
        "squad_file",
        {
            "squad_version": "v1",
            "num_train_epochs": 3,
            "max_seq_length": 256,
            "doc_stride": 128,
            "do_predict": True,
        },
    ),
    "RACE": Task(
        "run_race",
        "race_dir",
        {
            "num_train_epochs": 2,
            "max_seq_length": 256,
            "max_qa_length": 64,
            "do_eval": True,
        },
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkFlags:
    """Pretrained checkpoint, data of the tasks, and output folder."""

    init_checkpoint: str = flag(
        required=True, help="Folder of the pretrained checkpoint."
    )
    spm_model_file: str = flag(required=True, help="Its SentencePiece model.")
    output_dir: str = flag(required=True, help="Output folder.")
    glue_dir: str | None = flag(
        help="GLUE folder that contains one subfolder per task."
    )
    reviews_dir: str | None = flag(
        help="Film reviews folder that contains train.tsv and test.tsv."
    )
    squad_file: str | None = flag(help="SQuAD 1.1 dev set.")
    race_dir: str | None = flag(
        help="RACE folder that contains train, dev and test."
    )
    only: str = flag("", "Names of tasks, separated by semicolons; empty: all.")
    rates: str = flag("1e-4,3e-4", "Learning rates.")
    start: Literal["both", "pretrained", "random"] = flag(
        "both", "Weights to start from."
    )


def split_squad(path, folder):
    """Splits a SQuAD file by article; returns the paths of train and dev."""
    content = json.loads(pathlib.Path(path).read_text("utf-8"))
    articles = content["data"]
    border = round(TRAIN_FRACTION * len(articles))
    files = []
    for name, part in (
        ("train", articles[:border]),
        ("dev", articles[border:]),
    ):
        file = pathlib.Path(folder, f"squad_{name}.json")
        # Whole at any time: another process may be reading it.
        filesystem.write_json(str(file), content | {"data": part})
        files.append(file)
    return files


def describe_data(args, task):
    """Returns a program's data flags."""
    path = getattr(args, task.data)
    if task.data != "squad_file":
        return {"data_dir": path}
    train, dev = split_squad(path, args.output_dir)
    return {"train_file": train, "predict_file": dev}


def fine_tune(args, name, kind, rate):
    """Trains one task three times; returns the contents of its summary.json."""
    task = TASKS[name]
    start = {"init_checkpoint": args.init_checkpoint}
    if kind == "random":
        start = {
            "from_scratch": True,
            "albert_config_file": f"{args.init_checkpoint}/albert_config.json",
        }
    folder = f"{args.output_dir}/{name.replace(' ', '_')}/{kind}_{rate}"
    summary = pathlib.Path(folder, "summary.json")
    settings = COMMON | task.settings | describe_data(args, task) | start
    if task.program != "run_race":  # It has the release's interval, 100.
        settings["save_checkpoints_steps"] = 1000
    settings |= {"spm_model_file": args.spm_model_file, "do_train": True}
    settings |= {"learning_rate": rate, "output_dir": folder}
    # Of finished runs, too: it checks that they began with this checkpoint.
    programs.run(
        str(programs.ROOT / f"{task.program}.py"),
        *(f"--{flag}={value}" for flag, value in settings.items()),
    )
    return json.loads(summary.read_text("utf-8"))


def format_cell(rate, summary):
    """Formats the scores of all seeds, their median, and the rate."""
    metric = summary["metric"]
    scores = [f"{run['best'][metric]:.3f}" for run in summary["runs"]]
    return f"{' '.join(scores)} | {summary['median']:.3f} ({rate:g})"


def run(args):
    """Runs the tasks and prints the table."""
    rows = []
    for name in flags.parse_names("only", args.only, list(TASKS)):
        if not getattr(args, TASKS[name].data):
            continue
        cells = []
        for kind in ("pretrained", "random"):
            if args.start not in ("both", kind):
                cells.append(" | ")
                continue
            summaries = {
                rate: fine_tune(args, name, kind, rate)
                for rate in map(float, args.rates.split(","))
            }
            best = max(summaries, key=lambda rate: summaries[rate]["median"])
            cells.append(format_cell(best, summaries[best]))
        metric = summaries[best]["metric"]
        rows.append(f"| {name}, {metric} | {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    print("| task | pretrained | median (rate) | random | median (rate) |")
    print("|---|---|---|---|---|", *rows, sep="\n")


if __name__ == "__main__":
    flags.launch(run, BenchmarkFlags)
