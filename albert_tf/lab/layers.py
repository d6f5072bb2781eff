"""Shows how each pass through the layers of a model changes real text."""

import collections
import dataclasses
import math
import os
import tempfile
import textwrap

import numpy as np

from albert_tf import filesystem
from albert_tf.data.pretraining import opening, rules, shards
from albert_tf.lab import layer_plots, passes, text_tables
from albert_tf.model import heads
from albert_tf.programs import models
from albert_tf.reports import page, page_files, plots
from albert_tf.text import tokenization
from albert_tf.weights import pretrained

# The most frequent pieces of the text, whose embeddings are projected.
NUM_WORDS = 500
MASKED_LM_PROB = 0.15


def run(args):
    """Prints a table for each model; writes the page and the JSON file."""
    inputs = filesystem.expand_files(args.input_file)
    paths = [args.init_checkpoint, *filesystem.split_list(args.compare)]
    files = models.input_files(args, paths[1:])
    page_files.check(args, {"--input_file": inputs, **files})
    starts = read_models(paths, args)
    lengths = [
        start.config.choose_length(args.max_seq_length, 128) for start in starts
    ]
    args = dataclasses.replace(args, max_seq_length=min(lengths))
    parts = [os.path.abspath(path).split(os.sep) for path in paths]
    names = filesystem.name_briefly(parts)
    with tempfile.TemporaryDirectory() as folder:
        records = write_records(folder, inputs, starts[0], args)
        described = {
            name: describe(start, records, args)
            for name, start in zip(names, starts, strict=True)
        }
    for name, model in described.items():
        print(f"{name}: {describe_size(model)}\n")
        print(f"{text_tables.align(tabulate(model))}\n")
    print(textwrap.fill(EXPLANATION, 80))
    page_files.write(args, {"models": described}, lambda: build_page(described))


def read_models(paths, args):
    """Returns a `pretrained.Complete` for each checkpoint, after checks."""
    first = models.read_pretrained(paths[0], args)
    others = dataclasses.replace(args, albert_config_file=None)
    rest = [models.read_pretrained(path, others) for path in paths[1:]]
    starts = [pretrained.complete(start) for start in (first, *rest)]
    for path, start in zip(paths, starts, strict=True):
        if not heads.AlbertForPreTraining.is_complete_in(start.values):
            raise ValueError(
                f"{path} lacks the pretraining heads, with which passes are "
                "measured. Was it fine-tuned?"
            )
        try:
            deepen(start.config, args.num_passes)
            start.config.choose_length(args.max_seq_length)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        for key in ("sha256", *tokenization.CASING):
            values = [s.tokenizer.settings[key] for s in (start, starts[0])]
            if values[0] != values[1]:
                what = f"{key} {values[0]}, {paths[0]} {values[1]}"
                if key == "sha256":
                    what = f"another vocabulary than {paths[0]}"
                raise ValueError(
                    f"{path} has {what}; wanted models of one vocabulary and "
                    "casing."
                )
    return starts


def write_records(folder, inputs, start, args):
    """Writes pretraining records of the text; returns their file."""
    path = os.path.join(folder, "records.tfrecord")
    num_masked = max(1, round(MASKED_LM_PROB * args.max_seq_length))
    shards.create_shards(
        inputs,
        [path],
        shards.Settings(
            tokenizer=(
                *models.write_vocabulary(start, folder).items(),
                *tokenization.take_casing(start.tokenizer.settings).items(),
            ),
            sequence=rules.SequenceRule(
                max_seq_length=args.max_seq_length,
                short_seq_prob=0.0,
                sentence_objective="sop",
            ),
            masking=rules.MaskingRule(
                max_predictions=num_masked,
                masked_lm_prob=MASKED_LM_PROB,
                ngram=args.ngram,
            ),
            dupe_factor=1,
            seed=args.random_seed,
        ),
        has_progress=False,
    )
    return path


def describe(start, records, args):
    """Measures a model; returns a dict that can be written as JSON."""
    num_trained = start.config.num_hidden_layers * start.config.inner_group_num
    config = deepen(start.config, args.num_passes)
    model = pretrained.build_model(
        heads.AlbertForPreTraining, dataclasses.replace(start, config=config)
    )
    read = opening.open_records(records, config).read_pass(
        args.predict_batch_size
    )
    dataset = read.unbatch().take(args.num_sequences)
    dataset = dataset.batch(args.predict_batch_size)
    measured = passes.measure(model, dataset)
    ids = most_frequent(dataset, start.tokenizer)
    return {
        "source": start.source,
        "config": start.config.to_dict(),
        "trained_passes": num_trained,
        "passes": measured.to_dict(),
        "pieces": [start.tokenizer.pieces[i] for i in ids],
        "words": passes.project_words(model, ids),
    }


def deepen(config, num_passes):
    """Returns the config with another number of passes.

    Args:
      config: an AlbertConfig.
      num_passes: number of passes; None for twice the number of layers if all
        share their weights, otherwise that number.

    Raises:
      ValueError: if the model cannot be run with so many.
    """
    is_shared = (
        config.parameter_sharing == "all" and config.num_hidden_groups == 1
    )
    num_layers = config.num_hidden_layers
    if num_passes is None:
        num_layers *= 2 if is_shared else 1
    elif num_passes % config.inner_group_num:
        raise ValueError(
            f"--num_passes={num_passes} is not a multiple of inner_group_num "
            f"{config.inner_group_num}."
        )
    else:
        num_layers = num_passes // config.inner_group_num
    if num_layers != config.num_hidden_layers and not is_shared:
        raise ValueError(
            f"--num_passes={num_passes}: only a model whose layers share all "
            "weights can be run with another number of passes than in "
            f"training, {config.num_hidden_layers * config.inner_group_num}."
        )
    return dataclasses.replace(config, num_hidden_layers=num_layers)


def most_frequent(dataset, tokenizer):
    """Returns the ids of the most frequent pieces, without special ones."""
    counts: collections.Counter = collections.Counter()
    for features in dataset:
        ids = features["input_ids"].numpy()
        counts.update(ids[features["input_mask"].numpy() > 0].tolist())
    t = tokenizer
    special = {t.cls_id, t.sep_id, t.mask_id, t.pad_id}
    ids = [i for i, _ in counts.most_common() if i not in special]
    return ids[:NUM_WORDS]


def tabulate(model):
    """Returns rows of a model's passes; the first row is the head."""
    measured = model["passes"]
    head = "pass", "norm", "change", "cosine", "between tokens", "entropy"
    rows = [[*head, "distance", "masked LM", "sentence order"]]
    for number, norm in enumerate(measured["norm"]):
        moved = [""] * 4
        if number:
            entropy = np.mean(measured["attention_entropy"][number - 1])
            distance = np.mean(measured["attention_distance"][number - 1])
            moved = [
                f"{measured['change'][number - 1]:.2f}",
                f"{measured['cosines'][number - 1][number]:.3f}",
                f"{entropy:.3f}",
                f"{distance:.1f}",
            ]
        mark = " (trained)" if number == model["trained_passes"] else ""
        rows.append(
            [
                f"{number}{mark}",
                f"{norm:.2f}",
                *moved[:2],
                f"{measured['token_cosine'][number]:.3f}",
                *moved[2:],
                f"{measured['masked_lm_accuracy'][number]:.1%}",
                f"{measured['sentence_order_accuracy'][number]:.1%}",
            ]
        )
    return rows


EXPLANATION = (
    "Pass 0 is the first layer's input. Norm: length of the vectors. Change "
    "and cosine: between a pass's input and its output. Between tokens: cosine "
    "of the vectors of different pieces of a sequence. Entropy of attention, "
    "as a share of that of uniform attention. Distance to the tokens attended "
    "to. Masked LM and sentence order: accuracy of the heads applied after the "
    "pass."
)


def describe_size(model):
    """Returns how much text was measured, and how accurately, as text."""
    measured = model["passes"]
    errors = (
        math.sqrt(share * (1 - share) / measured[number])
        for share, number in (
            (max(measured["masked_lm_accuracy"]), "num_predictions"),
            (0.5, "num_sequences"),
        )
    )
    return (
        "{num_sequences:,} sequences, {num_tokens:,} tokens, "
        "{num_predictions:,} masked. Standard errors: masked LM {:.1%}, "
        "sentence order {:.1%}."
    ).format(*errors, **measured)


def build_page(described):
    """Returns the HTML page of all models."""
    sections = [
        page.section(
            "Passes compared",
            plots.arrange(layer_plots.draw_comparison(described)),
            name="compared",
        )
    ]
    for number, (name, model) in enumerate(described.items()):
        sections.append(
            page.section(
                name,
                page.element("p", model["source"], " — ", describe_size(model)),
                plots.arrange(layer_plots.draw_model(name, model)),
                page.number_table(tabulate(model)),
                name=f"model-{number}",
            )
        )
    title = "What the layers do"
    explanation = page.remark(EXPLANATION)
    return page.page(title, page.element("h1", title), explanation, *sections)
