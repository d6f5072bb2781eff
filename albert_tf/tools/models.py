"""The pretrained model that a tool's flags name."""

import dataclasses
import os

from albert_tf import filesystem
from albert_tf.commands import groups
from albert_tf.weights import pretrained


def read_pretrained(path, args, **kwargs):
    """Reads a `pretrained.Pretrained`, with the files that flags name."""
    names = [field.name for field in dataclasses.fields(groups.FilesFlags)]
    return pretrained.replace_files(
        pretrained.read_pretrained(path, **kwargs),
        **{name: getattr(args, name) for name in names},
    )


def input_files(args):
    """Returns dict of flag -> files, as `filesystem.check_outputs` takes it."""
    model = args.init_checkpoint
    folder = model if os.path.isdir(model) else os.path.dirname(model)
    return {
        "--init_checkpoint": [model, *filesystem.find_files(folder, "*")],
        "--albert_config_file": [args.albert_config_file],
        "--spm_model_file": [args.spm_model_file],
        "--vocab_file": [args.vocab_file],
    }


def build(args, model_class):
    """Returns model and tokenizer that flags name.

    Raises:
      ValueError: if config or vocabulary are missing, or weights that the
        tool needs.
    """
    origin = read_pretrained(args.init_checkpoint, args)
    model = pretrained.build_model(model_class, origin)
    if origin.tokenizer is None:
        raise ValueError(
            "There is no vocabulary, or more than one, beside "
            f"{origin.source}. Give --spm_model_file or --vocab_file."
        )
    return model, origin.tokenizer
