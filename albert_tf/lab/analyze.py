"""Shows what models are made of, from their configs."""

import os

from albert_tf import filesystem
from albert_tf.lab import analysis_plots, paper, summary, text_tables
from albert_tf.model import parameters
from albert_tf.model.config import CONFIG_FILE, AlbertConfig
from albert_tf.reports import page, page_files
from albert_tf.training.memory import GIB

# Sequence lengths by default, in tokens.
LENGTHS = 128, 512
# Rows of the table of parameters, each sum after its parts.
ORDER = (
    *parameters.EMBEDDINGS,
    "all embeddings",
    "projection",
    *parameters.LAYERS,
    "all layers",
    "pooler",
)


def run(args):
    """Prints tables of all configs; writes the page and the JSON file."""
    paths = find_configs(args.albert_config_file, args.compare)
    page_files.check(
        args, {"--albert_config_file": paths[:1], "--compare": paths[1:]}
    )
    configs = [AlbertConfig.from_json_file(path) for path in paths]
    lengths = choose_lengths(args, dict(zip(paths, configs, strict=True)))
    models = {
        name: summary.summarize(
            config,
            args.parse_sizes("batch_sizes"),
            lengths,
            args.max_predictions_per_seq,
        )
        for name, config in zip(name_configs(paths), configs, strict=True)
    }
    tables = tabulate(models)
    content: dict = {"models": models}
    if args.measure_speed:
        # Not at the top: TensorFlow loads for seconds.
        from albert_tf.lab import speed

        content["speed"] = speed.time_training(
            dict(zip(models, configs, strict=True)),
            args.parse_sizes("batch_sizes")[0],
            lengths[0],
            args.max_predictions_per_seq,
        )
        tables[SPEED] = tabulate_speed(content["speed"], models)
    for title, rows in tables.items():
        print(f"{title}\n\n{text_tables.align(rows)}\n")
    page_files.write(args, content, lambda: build_page(models, tables))


def choose_lengths(args, configs):
    """Returns --seq_lengths, or those of LENGTHS that all models allow."""
    path = min(configs, key=lambda p: configs[p].max_position_embeddings)
    most = configs[path].max_position_embeddings
    if args.seq_lengths:
        lengths = args.parse_sizes("seq_lengths")
    else:
        lengths = [length for length in LENGTHS if length <= most] or [most]
    if lengths[0] < args.max_predictions_per_seq:
        raise ValueError(
            f"Sequences of {lengths[0]} tokens (--seq_lengths) cannot have "
            f"--max_predictions_per_seq={args.max_predictions_per_seq}."
        )
    if lengths[-1] > most:
        raise ValueError(
            f"--seq_lengths has {lengths[-1]} tokens, but {path} has "
            f"max_position_embeddings {most}."
        )
    return lengths


def find_configs(path, patterns):
    """Returns a path and those of comma-separated globs, each file once."""
    paths = [path]
    for pattern in filesystem.split_list(patterns):
        paths += filesystem.expand_files(pattern)
    files: dict = {}
    for path in paths:  # One file may have several names.
        files.setdefault(filesystem.identity(path), path)
    return list(files.values())


def name_configs(paths):
    """Names configs as briefly as is unique: "base", or "v2/base"."""
    parts, whole = [], [os.path.abspath(path) for path in paths]
    for path in whole:
        folder, name = os.path.split(path)
        parts.append(folder.split(os.sep))
        if name != CONFIG_FILE:
            parts[-1].append(name.removesuffix(".json"))
    if len(set(map(tuple, parts))) < len(parts):  # a.json, a/albert_config.json
        parts = [path.split(os.sep) for path in whole]
    return filesystem.name_briefly(parts)


def tabulate(models):
    """Returns the tables of all models: a title -> rows, the head first.

    Args:
      models: dict from name to a summary, from `summary.summarize`.
    """
    return {
        "Parameters": tabulate_parameters(models),
        "Word embeddings": tabulate_embeddings(models),
        "Sharing: encoder parameters": tabulate_sharing(models),
        "FLOPs": tabulate_flops(models),
        "Memory of a training step, GiB": tabulate_training(models),
        "Memory of inference, GiB": tabulate_inference(models),
    }


def tabulate_parameters(models):
    """Returns rows of parameters by part, with their shares of the encoder."""
    rows = [["", *models]]
    sums: dict[str, tuple] = {part: (part,) for part in parameters.ENCODER}
    sums["all embeddings"] = parameters.EMBEDDINGS
    sums["all layers"] = parameters.LAYERS
    for name in ORDER:
        row = [name]
        for model in models.values():
            count = sum(model["parameters"][part] for part in sums[name])
            row.append(f"{count:,} ({count / model['encoder']:.1%})")
        rows.append(row)
    rows.append(["one layer", *(f"{m['layer']:,}" for m in models.values())])
    rows.append(["encoder", *(f"{m['encoder']:,}" for m in models.values())])
    for part in parameters.HEADS:
        row = [f"{part} head"]
        for model in models.values():
            count = model["parameters"][part]
            # The plus sign: the encoder does not include its heads.
            row.append(f"{count:,} (+{count / model['encoder']:.1%})")
        rows.append(row)
    totals = (sum(m["parameters"].values()) for m in models.values())
    rows.append(["with heads", *(f"{n:,}" for n in totals)])
    if any(m["paper"] for m in models.values()):
        rows.append(["in the paper", *(of_paper(m) for m in models.values())])
    return rows


def of_paper(model, key="millions", unit="M"):
    """Returns a figure of the paper as text, empty if there is none."""
    return f"{model['paper'][key]}{unit}" if model["paper"] else ""


def tabulate_embeddings(models):
    """Returns rows of word embeddings with and without factorization."""
    rows = [["", "V * H", "E", "V * E + E * H", "reduction"]]
    for name, model in models.items():
        sizes = model["embeddings"]
        direct, factorized = sizes["direct"], sizes["factorized"]
        width = model["config"]["embedding_size"]
        if width == model["config"]["hidden_size"]:
            rows.append([name, f"{direct:,}", f"{width}", "not factorized", ""])
            # What the paper's size would save.
            width = paper.EMBEDDING_SIZE
            if width not in sizes["by_embedding_size"]:
                continue
            factorized = sizes["by_embedding_size"][width]
            name = f"{name}, factorized"
        saved = f"{1 - factorized / direct:.1%}"
        rows.append([name, f"{direct:,}", f"{width}", f"{factorized:,}", saved])
    return rows


def tabulate_sharing(models):
    """Returns rows of the encoder's weights by what layers share."""
    rows = [["", *(f"shared: {s}" for s in parameters.SHARING)]]
    for name, model in models.items():
        counts = (model["sharing"][s] for s in parameters.SHARING)
        rows.append([name, *(f"{count:,}" for count in counts)])
    return rows


def tabulate_flops(models):
    """Returns rows of operations, and of the speedup that they predict."""
    costs = "forward, MFLOPs a token", "training, MFLOPs a token"
    speedups = "BERT-large / this", "speedup in the paper"
    rows = [["", "tokens", *costs, *speedups]]
    for name, model in models.items():
        for row in model["flops"]:
            rows.append(
                [
                    name,
                    f"{row['max_seq_length']}",
                    f"{sum(row['forward'].values()) / 1e6:,.1f}",
                    f"{row['training'] / 1e6:,.1f}",
                    f"{row['speedup']:.2f}",
                    of_paper(model, "speedup", ""),
                ]
            )
    return rows


def tabulate_speed(measured, models):
    """Returns rows of the speed from `speed.time_training`."""
    settings = measured[0]
    title = "B{batch_size} T{max_seq_length} {compute_dtype}".format(**settings)
    head = "step, s", "sequences/s", "GFLOP/s", "speedup", "by FLOPs"
    rows = [[title, *head, "in the paper"]]
    for row in measured:
        rows.append(
            [
                row["name"],
                f"{row['seconds']:.3g}",
                f"{row['sequences_per_second']:.3g}",
                f"{row['flops_per_second'] / 1e9:,.0f}",
                f"{row['speedup']:.2f}",
                f"{row['speedup_by_flops']:.2f}",
                compare_papers(models[row["name"]], models[settings["name"]]),
            ]
        )
    return rows


def compare_papers(model, first):
    """Returns how many times faster a model is than the first in the paper."""
    if not model["paper"] or not first["paper"]:
        return ""
    return f"{model['paper']['speedup'] / first['paper']['speedup']:.2f}"


def tabulate_training(models):
    """Returns rows of the memory of a step by part."""
    parts = *analysis_plots.MEMORY, "peak"
    rows = [["", *SETTINGS, "layers", *parts]]
    for name, model in models.items():
        for row in model["training"]:
            layers = "recomputed" if row["remat"] else "kept"
            sizes = (f"{row[part] / GIB:.2f}" for part in parts)
            rows.append([name, *format_settings(row), layers, *sizes])
    return rows


def tabulate_inference(models):
    """Returns rows of the memory of a forward pass."""
    rows = [["", *SETTINGS, "peak"]]
    for name, model in models.items():
        for row in model["inference"]:
            peak = f"{row['peak'] / GIB:.2f}"
            rows.append([name, *format_settings(row), peak])
    return rows


SETTINGS = "batch", "tokens", "data type"


def format_settings(row):
    """Returns the values of SETTINGS of an estimate of memory."""
    keys = "batch_size", "max_seq_length", "compute_dtype"
    return [str(row[key]) for key in keys]


SPEED = "Speed of training, measured"
REMARKS = {
    "Parameters": "The masked-LM head also uses the word embeddings.",
    "FLOPs": "Matrix multiplications only. A training step costs three forward "
    "passes. Sharing weights does not reduce the operations of a layer.",
    SPEED: "Steps with both losses and LAMB; the models take turns. Speedups "
    "are relative to the first model; the paper's were measured on TPUs.",
    "Memory of a training step, GiB": "Estimates of the tensors on a CPU or "
    "GPU: the peak is the sum of weights, slots, casts, and the larger of "
    "gradients, and activations with working memory. The process, its "
    "libraries and the allocator's waste are left out.",
}


def build_page(models, tables):
    """Returns the HTML page of all models, with the tables from `tabulate`."""
    sections = []
    for title, rows in tables.items():
        name = title.split(",")[0].split(":")[0].lower().replace(" ", "-")
        remark = REMARKS.get(title)
        sections.append(
            page.section(
                title,
                *([page.remark(remark)] if remark else []),
                analysis_plots.draw(title, models),
                page.number_table(rows),
                name=name,
            )
        )
    title = f"What {', '.join(models)} is made of"
    if len(models) > 1:
        title = f"What {len(models)} models are made of"
    return page.page(title, page.element("h1", title), *sections)
