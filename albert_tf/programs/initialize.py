"""Writes an untrained model that begins on neighbors."""

import keras

from albert_tf.model import heads, initial_values, modeling
from albert_tf.programs import models
from albert_tf.text import extension
from albert_tf.weights import pretrained

SOURCE = "initial values"


def run(args):
    """Builds the model, writes it and says what to do with it."""
    with models.creating_folder(args.to, "") as folder:
        start = pretrained.Pretrained(SOURCE, {})
        start = pretrained.complete(models.replace_files(start, args))
        counts = None
        if args.input_file:
            text = models.read_text(args)
            units = extension.count_units(text, start.tokenizer)
            counts = extension.count_pieces(units, start.tokenizer)
        start.values.update(build_values(start, counts, args.random_seed))
        written = pretrained.select(start, args.format)
        pretrained.write_pretrained(folder, written, args.format)
    models.print_remarks(written)
    num_weights = sum(value.size for value in written.values.values())
    print(f"Wrote {num_weights:,} untrained weights to {args.to}.")
    if counts is None:
        print(
            "Without --input_file, it has no frequencies of pieces. Models of "
            "many layers need them."
        )


def build_values(start, counts, seed):
    """Returns the values of a model that begins on neighbors, by name."""
    keras.utils.set_random_seed(seed)
    model = heads.AlbertForPreTraining(
        start.config, num_pieces=start.tokenizer.vocab_size
    )
    initial_values.begin_on_neighbors(model, start.config, counts)
    weights = modeling.named_weights(model)
    return {name: weight.numpy() for name, weight in weights.items()}
