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
from albert_tf.weights import downloads, pretrained, task_heads

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
# Kinds of `task_heads.KINDS`, and of models without such a head -> the Hub's
# name of what they do, arguments of `albert` that do it, and Python.
USES = {
    **dict.fromkeys(heads.OBJECTIVES, _CLASSIFY),
    **dict.fromkeys(("spans", "conditional_spans"), _ANSWER),
    "encoder": (
        "feature-extraction",
        "embed --init_checkpoint=MODEL --input_file=a.txt --output_file=a.npz",
        'results = albert_tf.Embedder(MODEL)(["..."])',
    ),
    "pretraining": (
        "fill-mask",
        'fill_mask --init_checkpoint=MODEL --text="It is [MASK]."',
        'results = albert_tf.FillMask(MODEL)(["It is [MASK]."])',
    ),
    "vectors": (
        "sentence-similarity",
        "embed --init_checkpoint=MODEL --input_file=a.txt --output_file=a.npz",
        'results = albert_tf.Embedder(MODEL)(["..."])',
    ),
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
        its checkpoint. What is known of its run is in the card.
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
    name = os.path.basename(os.path.abspath(folder))
    name = name.removesuffix(".incomplete")
    parts = [
        *_describe_metadata(name, kind, run, form),
        f"---\n\n# {name}\n\n{_describe_config(config, kind)}",
        *([] if str(source) == str(folder) else [f"\nConverted: `{source}`."]),
        *(_describe_run(run) if run else []),
        _describe_use(name, kind),
        f"albert_tf {__version__}, TensorFlow {tf.__version__}.\n",
    ]
    filesystem.write_file(path, _seal("\n".join(parts)))


def _seal(text):
    """Returns a card with the line that says whether it was edited."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"---\n{MARK}{digest}\n{text}"


def _describe_metadata(name, kind, run, form):
    """Yields lines of YAML; their values are JSON."""
    pipeline, *_ = USES[kind]
    metrics = [
        {"type": METRICS[metric], "name": metric, "value": value}
        for metric, value in ((run and run.best) or {}).items()
        if metric in METRICS
    ]
    dataset = run and _find_dataset(run)
    index = {"task": {"type": pipeline}, "dataset": dataset, "metrics": metrics}
    values = {
        "library_name": LIBRARIES.get(form, "albert_tf"),
        "pipeline_tag": pipeline,
        "tags": ["albert"],
        "language": dataset and "en",
        "base_model": run and _find_base(run.flags.get("init_checkpoint")),
        "datasets": dataset and [dataset["type"]],
        "metrics": sorted({metric["type"] for metric in metrics}),
        "model-index": dataset
        and metrics
        and [{"name": name, "results": [index]}],
    }
    for key, value in values.items():
        if value:
            yield f"{key}: {json.dumps(value, ensure_ascii=False)}"


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


def _describe_run(run):
    """Yields start, data, settings, scores and command of a run."""
    start = run.made_of.get("begins_from", {}).get("source")
    yield (
        "\n## Training\n\nStart: "
        f"{start or run.flags.get('init_checkpoint') or 'unknown'}.\n"
    )
    hidden = ("config.", "vocabulary.", "begins_from.")
    settings = [
        (key, page.format_value(value))
        for key, value in manifest.flatten(run.made_of).items()
        if not key.startswith(hidden) and not key.endswith("sha256")
    ]
    rows = [(key, value) for key, value in settings if value]
    yield markdown.format_table([("data and settings", ""), *rows])
    if best := run.best:
        rows = [(k, v) for k, v in best.items() if k not in ("split", "time")]
        head = "best checkpoint on the dev data", ""
        yield "\n" + markdown.format_table([head, *rows])
        yield f"\nIt was chosen by {run.best_metric} on the same data."
    for name, scores in next(iter(run.summary.get("test", [])), {}).items():
        if isinstance(scores, dict):
            head = f"on the test data ({name})", ""
            yield "\n" + markdown.format_table([head, *scores.items()])
    words = [
        f"--{name.rstrip('_')}="
        + (value if isinstance(value, str) else json.dumps(value))
        for name, value in run.changed_flags.items()
        if value is not None and name not in _PLACES
    ]
    if words:
        command = shlex.join(["albert", run.command.name, *words])
        yield f"\n```sh\n{command}\n```"


def _describe_use(name, kind):
    _, command, python = USES[kind]
    command = command.replace("MODEL", shlex.quote(name))
    python = python.replace("MODEL", repr(name))
    return (
        f"\n## Use\n\n```sh\nalbert {command}\n```\n\n"
        f"```python\nimport albert_tf\n\n{python}\n```\n"
    )
