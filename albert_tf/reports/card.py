"""Writes model cards: what a model is, as README.md in its folder.

The metadata at the top are those of the Hugging Face Hub (huggingface/hub-docs,
modelcard.md). A license is not chosen, and what is unknown is left out.
"""

import hashlib
import json
import os
import shlex

import tensorflow as tf

from albert_tf import __version__, filesystem
from albert_tf.model import heads, parameters
from albert_tf.reports import markdown, page, report
from albert_tf.training import manifest
from albert_tf.weights import checkpoints, downloads, pretrained, task_heads

CARD_FILE = "README.md"
# Begins the second line; the digest of all that follows ends it.
MARK = "# Written by albert_tf, which never overwrites an edited copy: "
LIBRARIES = {"hf": "transformers", "keras_hub": "keras-hub"}
# Metrics -> their names on the Hub.
METRICS = {
    "eval_accuracy": "accuracy",
    "matthew_corr": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
    "exact_match": "exact_match",
    "exact": "exact_match",
    "f1": "f1",
    "masked_lm_accuracy": "accuracy",
}
_CLASSIFY = (
    "text-classification",
    'classify --init_checkpoint=MODEL --text="..."',
    'results = albert_tf.Classifier(MODEL)(["..."])',
)
_ANSWER = (
    "question-answering",
    'answer --init_checkpoint=MODEL --question="..." --paragraph="..."',
    'results = albert_tf.Answerer(MODEL)([("question", "paragraph")])',
)
_EMBED = (
    "embed --init_checkpoint=MODEL --input_file=a.txt --output_file=a.npz",
    'results = albert_tf.Embedder(MODEL)(["..."])',
)
# Kinds of `task_heads.KINDS`, and of models without such a head -> the Hub's
# name of what they do, arguments of `albert` that do it, and Python.
USES = {
    **dict.fromkeys(heads.OBJECTIVES, _CLASSIFY),
    **dict.fromkeys(("spans", "conditional_spans"), _ANSWER),
    "encoder": ("feature-extraction", *_EMBED),
    "pretraining": (
        "fill-mask",
        'fill_mask --init_checkpoint=MODEL --text="It is [MASK]."',
        'results = albert_tf.FillMask(MODEL)(["It is [MASK]."])',
    ),
    "vectors": ("sentence-similarity", *_EMBED),
    "tags": (
        "token-classification",
        'tag --init_checkpoint=MODEL --text="..."',
        'results = albert_tf.Tagger(MODEL)(["..."])',
    ),
    "choices": (
        "multiple-choice",
        "run_race --init_checkpoint=MODEL --data_dir=RACE --nodo_train "
        "--output_dir=scores",
        "model = albert_tf.build_model(albert_tf.AlbertMultipleChoice, MODEL)",
    ),
}
# Flags that say where a run was, not what it did.
_PLACES = ("tpu_name", "tpu_zone", "gcp_project", "master")
# Dev examples of benchmarks, in whose formats users have data of their own:
# RACE's of both levels and of each.
_DEV_SIZES = {
    "race": (4887, 1436, 3451),
    "cola": (1043,),
    "sst-2": (872,),
    "mrpc": (408,),
    "sts-b": (1500,),
    "qqp": (40_430,),
    "mnli": (9815,),
    "qnli": (5463,),
    "rte": (277,),
    "wnli": (71,),
}


def write_run_card(folder: filesystem.Path) -> None:
    """Writes the card of a run's model, if the folder has one."""
    if task_heads.find_trained(folder):
        config = pretrained.read_description(folder).config
        head = task_heads.read_head(folder)
        write_card(folder, config, head.kind if head else "pretraining", folder)


def write_card(folder, config, kind, source, form="own") -> None:
    """Writes a card, unless the folder has one that is not ours as it was.

    Args:
      folder: the model's folder.
      config: its AlbertConfig.
      kind: a key of USES.
      source: the folder itself, or that of the model that was converted, or
        its checkpoint. What is known of its run is in the card, with the
        scores of this checkpoint or, of a folder, of the one that is read.
      form: one of `pretrained.FORMS`.
    """
    path = os.path.join(folder, CARD_FILE)
    if filesystem.exists(path):
        text = filesystem.read_file(path).decode("utf-8", "replace")
        if text != _seal(text.partition(MARK)[2].partition("\n")[2]):
            return
    try:
        run = report.read_run(filesystem.folder_of(source))
    except (OSError, ValueError):
        run = None  # There is none, or its files are damaged.
    is_own = str(source) == str(folder)
    checkpoint = _find_checkpoint(folder) if is_own else str(source)
    name = os.path.basename(os.path.abspath(folder))
    name = name.removesuffix(".incomplete")
    parts = [
        *_describe_metadata(name, kind, run, checkpoint, form),
        f"---\n\n# {name}\n\n{_describe_config(config, kind)}",
        *([] if is_own else [f"\nConverted: `{source}`."]),
        *(_describe_run(run, checkpoint) if run else []),
        _describe_use(name, kind),
        f"albert_tf {__version__}, TensorFlow {tf.__version__}.\n",
    ]
    filesystem.write_file(path, _seal("\n".join(parts)))


def _seal(text):
    """Returns a card with the line that says whether it was edited."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"---\n{MARK}{digest}\n{text}"


def _find_checkpoint(folder):
    """Returns the checkpoint that a reader of a run's folder takes."""
    trained = task_heads.find_trained(folder)
    if task_heads.read_head(folder) is None:  # As in pretraining.
        trained = checkpoints.list_checkpoints(folder) or trained
    return trained[-1]


def _find_scores(run, checkpoint):
    """Returns a checkpoint's scores on the dev data; empty if unknown."""
    if _is_best(checkpoint):
        return run.best or {}
    step = checkpoints.step_of(checkpoint)
    rows = [row for row in run.evaluations if row["step"] == step]
    return rows[-1] if rows else {}


def _is_best(checkpoint):
    return os.path.basename(checkpoint) == f"{checkpoints.PREFIX}-best"


def _describe_metadata(name, kind, run, checkpoint, form):
    """Yields lines of YAML; their values are JSON."""
    pipeline, *_ = USES[kind]
    scores = _find_scores(run, checkpoint) if run else {}
    early = {
        name.removeprefix("exit_"): value
        for name, value in scores.items()
        if name.startswith("exit_")
    }
    if early and form not in LIBRARIES:  # Others compute all layers.
        scores = early
    metrics = [
        {"type": METRICS[metric], "name": metric, "value": value}
        for metric, value in scores.items()
        if metric in METRICS
    ]
    dataset = run and _find_dataset(run)
    index = {"task": {"type": pipeline}, "dataset": dataset, "metrics": metrics}
    values = {
        "library_name": LIBRARIES.get(form, "albert_tf"),
        "pipeline_tag": pipeline,
        "tags": ["albert"],
        "language": dataset and "en",
        "base_model": run and _find_base(_find_start(run)),
        "datasets": dataset and [dataset["type"]],
        "metrics": sorted({metric["type"] for metric in metrics}),
        "model-index": dataset
        and metrics
        and [{"name": name, "results": [index]}],
    }
    for key, value in values.items():
        if value:
            yield f"{key}: {json.dumps(value, ensure_ascii=False)}"


def _find_start(run):
    """Returns what a run began from, as its flags name it, or None."""
    source = run.made_of.get("begins_from", {}).get("source")
    named = (run.flags.get(name) for name in manifest.START_FLAGS)
    return source or next(filter(None, named), None)


def _find_base(start):
    """Returns the Hub's name of what a run started from, or None."""
    start = str(start)
    if start.startswith(downloads.HUB):
        return start.removeprefix(downloads.HUB)
    # The Hub does not have the release's Chinese models.
    is_there = start in downloads.NAMES and not start.endswith("zh")
    return f"albert/{start.replace('_', '-')}" if is_there else None


def _find_dataset(run):
    """Returns the Hub's names of a known benchmark, or None."""
    name = run.task.get("name")
    dev = run.made_of.get("data", {}).get("dev", {})
    has_size = dev.get("0", dev).get("examples") in _DEV_SIZES.get(name, ())
    if "max_qa_length" in run.task and has_size:
        return {"type": "ehovy/race", "name": "RACE"}
    file = os.path.basename(run.flags.get("predict_file") or "")
    for version, dataset, size in (
        ("1.1", "squad", 10_570),
        ("2.0", "squad_v2", 11_873),
    ):
        if file == f"dev-v{version}.json" and len(run.rows) == size:
            return {"type": f"rajpurkar/{dataset}", "name": f"SQuAD {version}"}
    if has_size and run.flags.get("task_name"):
        config = name.replace("-", "")
        return {"type": "nyu-mll/glue", "name": "GLUE", "config": config}
    return None


def _describe_config(config, kind):
    pipeline, *_ = USES[kind]
    return (
        f"ALBERT for {pipeline}: {config.num_hidden_layers} layers in "
        f"{config.num_hidden_groups} groups, hidden size {config.hidden_size}, "
        f"embedding size {config.embedding_size}, {config.num_attention_heads} "
        f"heads, {config.vocab_size:,} pieces, "
        f"{config.max_position_embeddings} positions; "
        f"{parameters.count_encoder(config):,} parameters without heads."
    )


def _describe_run(run, checkpoint):
    """Yields start, data, settings, a checkpoint's scores, and the command."""
    yield f"\n## Training\n\nStart: {_find_start(run) or 'unknown'}.\n"
    hidden = ("config.", "vocabulary.", "begins_from.")
    settings = [
        (key, page.format_value(value))
        for key, value in manifest.flatten(run.made_of).items()
        if not key.startswith(hidden) and not key.endswith("sha256")
    ]
    rows = [(key, value) for key, value in settings if value]
    yield markdown.format_table([("data and settings", ""), *rows])
    yield from _describe_scores(run, checkpoint)
    words = [
        f"--{name.rstrip('_')}="
        + (value if isinstance(value, str) else json.dumps(value))
        for name, value in run.changed_flags.items()
        if value is not None and name not in _PLACES
    ]
    if words and run.command.has_flags:
        command = shlex.join(["albert", run.command.name, *words])
        yield f"\n```sh\n{command}\n```"


def _describe_scores(run, checkpoint):
    """Yields the scores of a checkpoint, as far as they are known."""
    step = checkpoints.step_of(checkpoint)
    is_best = _is_best(checkpoint)
    if scores := _find_scores(run, checkpoint):
        rows = [(k, v) for k, v in scores.items() if k not in ("split", "time")]
        which = "best checkpoint" if is_best else f"checkpoint of step {step}"
        head = f"{which} on the dev data", ""
        yield "\n" + markdown.format_table([head, *rows])
        if is_best:
            yield f"\nIt was chosen by {run.best_metric} on the same data."
    tests = run.tests
    # The scores of the best checkpoint have no step.
    if tests.get(checkpoints.STEP, "best") != ("best" if is_best else step):
        return
    for name, scores in tests.items():
        if isinstance(scores, dict):
            head = f"on the test data ({name})", ""
            yield "\n" + markdown.format_table([head, *scores.items()])


def _describe_use(name, kind):
    _, command, python = USES[kind]
    command = command.replace("MODEL", shlex.quote(name))
    python = python.replace("MODEL", repr(name))
    return (
        f"\n## Use\n\n```sh\nalbert {command}\n```\n\n"
        f"```python\nimport albert_tf\n\n{python}\n```\n"
    )
