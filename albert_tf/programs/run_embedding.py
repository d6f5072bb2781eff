"""Trains and scores vectors of texts."""

import dataclasses
import logging
import os

import numpy as np

from albert_tf import filesystem
from albert_tf.data import examples, text_pairs
from albert_tf.programs import finetuning
from albert_tf.tasks.recipes import VectorSettings
from albert_tf.tasks.vectors import PREDICTIONS_FILE, Part, Vectors


def read_file(args, name):
    """Returns the `text_pairs.PairsFile` of a flag, and says what it is."""
    file = text_pairs.read_pairs(
        getattr(args, name),
        filesystem.split_list(args.text_columns),
        args.score_column,
    )
    said = f"{file.path}: {len(file.texts):,} {file.description}."
    if file.unused:
        said += f" Columns that are not used: {', '.join(file.unused[:12])}."
    print(said)
    return file


def read_train(args, tokenizer):
    """Returns the training Examples; None without --do_train."""
    if not args.do_train:
        return None
    file = read_file(args, "train_file")
    encoded = examples.cached_examples(
        args.cached_dir,
        os.path.basename(file.path),
        [list(file.texts), tokenizer.settings, args.max_seq_length],
        lambda: text_pairs.encode_rows(
            file.texts, tokenizer, args.max_seq_length
        ),
    )
    if file.scores is None:
        return encoded
    scores = np.array(file.scores, np.float32)
    return dataclasses.replace(encoded, arrays={"label_ids": scores})


def read_part(args, name, tokenizer):
    """Returns the Part of a flag."""
    file = read_file(args, name)
    if all(first == second for first, second, *_ in file.texts):
        raise ValueError(
            f"{file.path} has single texts, each of which is nearest to "
            "itself; wanted pairs to score."
        )
    if file.scores is not None and len(set(file.scores)) == 1:
        raise ValueError(
            f"All scores of {file.path} are equal, so that nothing correlates "
            "with them."
        )
    encoded, places = text_pairs.encode_once(
        file.texts, tokenizer, args.max_seq_length
    )
    if encoded.truncation:
        logging.warning("%s: %s", file.path, encoded.truncation)
    return Part(file, encoded, places)


def check_train(args, train, model):
    """Raises ValueError if texts would be compared with themselves alone."""
    if train is None or "label_ids" in train.arrays:
        return
    if args.train_batch_size < 2 and train.num_choices < 3:
        raise ValueError(
            f"--train_batch_size={args.train_batch_size}, but a pair is "
            "compared with the others of its batch; wanted 2 or more."
        )
    ids = train.arrays["text_ids"]
    rates = [
        getattr(model.config if getattr(args, name) is None else args, name)
        for name in finetuning.DROPOUTS
    ]
    if (ids[:, 0] == ids[:, 1]).all() and not any(rates):
        raise ValueError(
            f"{args.train_file} has single texts, whose two vectors differ by "
            "dropout alone, and this model has none. Give "
            "--hidden_dropout_prob=0.1, or pairs of texts."
        )


def read_task(args, model):
    """Returns the `Vectors` with the data that the flags require."""
    train = read_train(args, model.tokenizer)
    check_train(args, train, model)
    names = {"dev_file": "dev", "predict_file": "test"}
    parts = {
        names[name]: read_part(args, name, model.tokenizer)
        for name, wanting in args.FILES.items()
        if name in names and getattr(args, wanting)
    }
    pooling = args.pooling or (model.head and model.head.pooling)
    settings = VectorSettings(
        pooling=pooling or VectorSettings.pooling, temperature=args.temperature
    )
    return Vectors(
        train, parts, max_seq_length=args.max_seq_length, settings=settings
    )


def run(args):
    """Trains, scores, predicts and exports as requested by the flags."""
    finetuning.check_outputs(args, [PREDICTIONS_FILE])
    finetuning.run(args.choose_steps(), read_task)
