"""Plots of the sizes, operations and memory of models, for a page."""

import dataclasses

from albert_tf.lab import paper, summary
from albert_tf.model import parameters
from albert_tf.model.config import MAX_LAYERS, AlbertConfig
from albert_tf.reports import plots
from albert_tf.training.memory import GIB

# Part of a pie or a bar -> the parts of a summary that are added up for it.
PARAMETERS = {
    "word embeddings": ("word embeddings",),
    "other embeddings": (
        "position embeddings",
        "segment embeddings",
        "projection",
    ),
    "attention": ("attention",),
    "feed-forward": ("feed-forward",),
    "norms": ("embedding norm", "layer norms"),
    "pooler": ("pooler",),
}
FLOPS = {
    "attention projections": ("attention projections",),
    "attention scores": ("attention scores",),
    "feed-forward": ("feed-forward",),
    "other": ("projection", "pooler", "masked LM", "sentence order"),
}
MEMORY = "weights", "slots", "casts", "activations", "working", "gradients"
EMBEDDING_SIZES = 64, 128, 256, 512
WIDTHS = 256, 512, 768, 1024, 1536, 2048, 3072, 4096
DEPTHS = 1, 2, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48
# Below the plot, where it covers nothing.
LEGEND = {
    "loc": "outside lower center",
    "ncols": 3,
    "frameon": False,
    "fontsize": "x-small",
}
# More pies than this are illegible; the bars have all models.
MOST_PIES = 4


def draw(title, models):
    """Returns the plots of a section, or why there are none, as Markup.

    Args:
      title: title of a section, maybe a key of SECTIONS.
      models: dict from name to a summary, from `summary.summarize`.
    """
    return plots.arrange(
        figure
        for draw_some in SECTIONS.get(title, ())
        for figure in draw_some(models)
    )


def draw_pies(models):
    """Yields a pie of the weights of each model."""
    for name, model in list(models.items())[:MOST_PIES]:
        picture, axes = plots.begin()
        sizes = add_parts(model["parameters"], PARAMETERS)
        wedges, *_ = axes.pie(
            list(sizes.values()),
            autopct=lambda share: f"{share:.0f}%" if share > 3 else "",
            textprops={"fontsize": "small"},
        )
        picture.legend(wedges, list(sizes), **LEGEND)
        yield plots.finish(picture, f"Encoder parameters of {name}")


def draw_bars(models):
    """Yields bars of the weights of all models."""
    yield draw_stacks(
        "Encoder parameters",
        {
            name: add_parts(model["parameters"], PARAMETERS, 1e6)
            for name, model in models.items()
        },
        "millions",
    )


def draw_growth(models):
    """Yields curves of the first model's size over its width and depth."""
    name, model = next(iter(models.items()))
    config = AlbertConfig.from_dict(model["config"])
    yield draw_widths(name, config)
    depths = [d for d in DEPTHS if d * config.inner_group_num <= MAX_LAYERS]
    picture, axes = plots.begin()
    for sharing in parameters.SHARING:
        shared = parameters.share(config, sharing)
        configs = [
            dataclasses.replace(shared, num_hidden_layers=d) for d in depths
        ]
        sizes = [parameters.count_encoder(c) / 1e6 for c in configs]
        axes.plot(depths, sizes, marker=".", label=f"shared: {sharing}")
    axes.set(xlabel="layers", ylabel="millions")
    axes.legend(frameon=False, fontsize="small")
    yield plots.finish(picture, f"Depth: encoder parameters, from {name}")


def draw_widths(name, config):
    """Returns curves of a model's size over its width."""
    width = config.embedding_size
    if width == config.hidden_size:  # Not factorized.
        width = paper.EMBEDDING_SIZE
    picture, axes = plots.begin()
    for label, sharing, embedding_size in (
        (f"E = {width}, shared", "all", width),
        (f"E = {width}", "none", width),
        ("shared", "all", None),
        ("neither (BERT)", "none", None),
    ):
        shared = parameters.share(config, sharing)
        sizes = [
            parameters.count_encoder(widen(shared, size, embedding_size)) / 1e6
            for size in WIDTHS
        ]
        axes.plot(WIDTHS, sizes, marker=".", label=label)
    axes.set(xlabel="hidden size", ylabel="millions", yscale="log")
    axes.legend(frameon=False, fontsize="small")
    return plots.finish(picture, f"Width: encoder parameters, from {name}")


def widen(config, size, embedding_size):
    """Returns a config of another hidden size; if None, so is the embedding."""
    # The number of heads does not count, but must divide the size.
    return dataclasses.replace(
        config,
        hidden_size=size,
        intermediate_size=4 * size,
        embedding_size=embedding_size or size,
        num_attention_heads=1,
    )


def draw_embeddings(models):
    """Yields curves of word embeddings over the embedding size."""
    picture, axes = plots.begin()
    named, all_widths = [], set()
    for number, (name, model) in enumerate(models.items()):
        counts = model["embeddings"]
        widths = list(counts["by_embedding_size"])
        all_widths.update(widths)
        sizes = [n / 1e6 for n in counts["by_embedding_size"].values()]
        color = f"C{number}"
        named += axes.plot(widths, sizes, marker=".", color=color, label=name)
        axes.axhline(counts["direct"] / 1e6, color=color, linestyle=":")
    axes.set(xlabel="embedding size E", ylabel="millions", xscale="log")
    # On a narrow plot, the labels of matplotlib's own ticks overlap.
    ticks = [width for width in all_widths if width.bit_count() == 1]
    axes.set_xticks(ticks, labels=map(str, ticks))
    axes.set_xticks([], minor=True)
    plots.add_legend(axes, named)
    yield plots.finish(picture, "V * E + E * H; dotted: V * H")
    yield draw_reduction(models)


def draw_reduction(models):
    """Returns curves of the share that factorization saves, by hidden size."""
    name, model = next(iter(models.items()))
    vocab_size = model["config"]["vocab_size"]
    picture, axes = plots.begin()
    for embedding_size in EMBEDDING_SIZES:
        widths = [width for width in WIDTHS if width >= embedding_size]
        pairs = [
            summary.factorize(vocab_size, width, embedding_size)
            for width in widths
        ]
        saved = [100 * (1 - small / direct) for direct, small in pairs]
        axes.plot(widths, saved, marker=".", label=f"E = {embedding_size}")
    axes.set(xlabel="hidden size H", ylabel="% saved")
    axes.legend(frameon=False, fontsize="small")
    return plots.finish(
        picture, f"Word embeddings of {name}: reduction by factorization"
    )


def draw_sharing(models):
    """Yields bars of the encoder's size by what layers share."""
    rows = {
        f"{name}, {sharing}": {"encoder": count / 1e6}
        for name, model in models.items()
        for sharing, count in model["sharing"].items()
    }
    yield draw_stacks("Encoder parameters by sharing", rows, "millions")


def draw_flops(models):
    """Yields bars of operations per token, for the longest sequence."""
    rows = {
        name: add_parts(model["flops"][-1]["forward"], FLOPS, 1e6)
        for name, model in models.items()
    }
    length = next(iter(models.values()))["flops"][-1]["max_seq_length"]
    yield draw_stacks(
        f"Forward pass of {length} tokens", rows, "MFLOPs a token"
    )


def draw_memory(models):
    """Yields stacks of memory, one for each dtype and kind of layers."""
    for dtype in ("float32", "bfloat16"):
        for remat in (False, True):
            rows = {}
            for name, model in models.items():
                for row in model["training"]:
                    if (row["compute_dtype"], row["remat"]) == (dtype, remat):
                        size = f"B{row['batch_size']} T{row['max_seq_length']}"
                        rows[f"{name} {size}"] = stack_memory(row)
            kind = "recomputed layers" if remat else "layers kept"
            yield draw_stacks(f"Training step, {dtype}, {kind}", rows, "GiB")


def stack_memory(row):
    """Returns the parts of the peak, in GiB; 0 for those that are not in it."""
    either = ("activations", "working"), ("gradients",)
    larger = max(either, key=lambda parts: sum(row[part] for part in parts))
    parts = {"weights", "slots", "casts", *larger}
    # Even those of 0 are included, so that each has one color in all plots.
    return {part: (part in parts) * row[part] / GIB for part in MEMORY}


def add_parts(counts, groups, unit=1):
    """Returns the sums of counts by group, in multiples of a unit."""
    return {
        group: sum(counts[part] for part in parts) / unit
        for group, parts in groups.items()
    }


def draw_stacks(title, rows, unit):
    """Returns horizontal stacked bars: name -> part -> size, in a unit."""
    picture, axes = plots.begin()
    parts = list(dict.fromkeys(part for row in rows.values() for part in row))
    ends = [0.0] * len(rows)
    for part in parts:
        sizes = [row.get(part, 0.0) for row in rows.values()]
        axes.barh(list(rows), sizes, left=ends, label=part)
        ends = [end + size for end, size in zip(ends, sizes, strict=True)]
    axes.invert_yaxis()
    axes.set(xlabel=unit)
    if len(parts) > 1:
        picture.legend(**LEGEND)
    return plots.finish(picture, title)


SECTIONS = {
    "Parameters": (draw_pies, draw_bars, draw_growth),
    "Word embeddings": (draw_embeddings,),
    "Sharing: encoder parameters": (draw_sharing,),
    "FLOPs": (draw_flops,),
    "Memory of a training step, GiB": (draw_memory,),
}
