"""Plots of how passes through the layers change vectors, for a page."""

import numpy as np

from albert_tf.reports import plots

# Number of pieces that are labeled in a scatter plot.
NUM_NAMED = 25


def draw_comparison(models):
    """Yields plots over passes with a curve for each model.

    Args:
      models: dict from a model's name to the result of `layers.describe`.
    """

    def cosines(passes):
        return np.diagonal(passes["cosines"], offset=1)

    def mean_of(key):
        return lambda passes: np.mean(passes[key], axis=1)

    for title, first, values_of in (
        # Figure 1 of the paper.
        ("L2 distance of input and output", 1, lambda p: p["change"]),
        ("Cosine similarity of input and output", 1, cosines),
        ("Attention entropy", 1, mean_of("attention_entropy")),
        ("Attention distance, tokens", 1, mean_of("attention_distance")),
        ("Masked-LM accuracy", 0, lambda p: p["masked_lm_accuracy"]),
        ("Sentence-order accuracy", 0, lambda p: p["sentence_order_accuracy"]),
        ("Cosine between tokens", 0, lambda p: p["token_cosine"]),
    ):
        picture, axes = plots.begin()
        named = []
        for number, (name, model) in enumerate(models.items()):
            values = list(values_of(model["passes"]))
            steps = range(first, first + len(values))
            color = f"C{number}"
            named += axes.plot(
                steps, values, marker=".", color=color, label=name
            )
            trained = model["trained_passes"]
            if first <= trained < first + len(values):
                circle = {"marker": "o", "fillstyle": "none", "markersize": 10}
                y = values[trained - first]
                axes.plot(trained, y, color=color, **circle)
        axes.set(xlabel="pass (circle: passes in training)")
        axes.locator_params("x", integer=True)
        plots.add_legend(axes, named)
        yield plots.finish(picture, title)


def draw_model(name, model):
    """Yields the plots of one model."""
    passes = model["passes"]
    yield draw_map(
        f"{name}: cosine of a token's vectors",
        passes["cosines"],
        ylabel="pass",
        vmin=min(0.0, np.min(passes["cosines"])),
        vmax=1.0,
    )
    for key, title in (
        ("attention_entropy", "attention entropy"),
        ("attention_distance", "attention distance"),
    ):
        values = np.transpose(passes[key])  # [N, L]
        num_heads, num_passes = values.shape
        yield draw_map(
            f"{name}: {title}",
            values,
            ylabel="head",
            extent=(0.5, num_passes + 0.5, num_heads - 0.5, -0.5),
        )
    titles = {
        "embeddings": "before the projection",
        "projected": "after the projection",
    }
    for key, words in model["words"].items():
        yield draw_words(f"{name}: words {titles[key]}", words, model)


def draw_map(title, values, *, ylabel, **kwargs):
    """Returns a map of values [rows, passes] with a color bar."""
    picture, axes = plots.begin()
    image = axes.imshow(values, aspect="auto", **kwargs)
    picture.colorbar(image)
    axes.set(xlabel="pass", ylabel=ylabel)
    axes.locator_params(integer=True)
    return plots.finish(picture, title)


def draw_words(title, words, model):
    """Returns a scatter plot of pieces, the most frequent of them named."""
    picture, axes = plots.begin()
    x, y = np.transpose(words["coordinates"])[:2]
    # From the most frequent to the rarest.
    axes.scatter(x, y, s=6, c=np.arange(len(x)), cmap="viridis_r")
    for i, piece in enumerate(model["pieces"][:NUM_NAMED]):
        # "$" would begin a formula.
        text = piece.replace("$", r"\$")
        axes.annotate(text, (x[i], y[i]), fontsize="xx-small")
    share = sum(words["explained"][:2])
    axes.set(xlabel=f"two components: {share:.0%} of the variance")
    return plots.finish(picture, title)
