"""Reads the pretrained model given by a tool's flags, or writes a new one."""

import contextlib
import dataclasses
import os
import shutil

from albert_tf import filesystem, ownership
from albert_tf.commands import groups
from albert_tf.reports import page_files
from albert_tf.weights import pretrained


def read_pretrained(path, args, **kwargs):
    """Returns a `pretrained.Pretrained`, with the files given by the flags."""
    names = [field.name for field in dataclasses.fields(groups.FilesFlags)]
    return pretrained.replace_files(
        pretrained.read_pretrained(path, **kwargs),
        **{name: getattr(args, name) for name in names},
    )


def input_files(args, others=()):
    """Returns a dict of flag -> files, as for `filesystem.check_outputs`.

    Args:
      args: flags of a tool.
      others: other models, of --compare.
    """
    return {
        "--init_checkpoint": files_beside(args.init_checkpoint),
        "--compare": [file for path in others for file in files_beside(path)],
        "--albert_config_file": [args.albert_config_file],
        "--spm_model_file": [args.spm_model_file],
        "--vocab_file": [args.vocab_file],
    }


def files_beside(model):
    """Returns a model's path and the files in its folder.

    Pages and figures of earlier calls are no part of the model.
    """
    files = filesystem.find_files(filesystem.folder_of(model), "*")
    return [model, *(f for f in files if not page_files.is_own(f))]


def build(args, model_class, unused=()):
    """Returns the model and tokenizer given by the flags.

    Args:
      args: flags of a tool.
      model_class: function from an AlbertConfig to a model.
      unused: see `pretrained.build_model`.

    Raises:
      ValueError: if the config, the vocabulary, or weights of `model_class`
        are missing.
    """
    start = read_pretrained(args.init_checkpoint, args)
    model = pretrained.build_model(model_class, start, unused)
    if start.tokenizer is None:
        raise ValueError(
            "There is no vocabulary, or more than one, next to "
            f"{start.source}. Give --spm_model_file or --vocab_file."
        )
    return model, start.tokenizer


@contextlib.contextmanager
def creating_folder(path, source):
    """Context manager: yields a folder that becomes --to if nothing fails.

    Args:
      path: the value of --to.
      source: the value of --from.

    Raises:
      ValueError: if --to is in use, or in the source.
      BlockingIOError: if another process is writing it.
    """
    output_dir = path.rstrip("/")
    check_output(output_dir, source)
    with ownership.owning(output_dir):
        check_output(output_dir, source)
        temporary = f"{output_dir}.incomplete"
        shutil.rmtree(temporary, ignore_errors=True)
        os.makedirs(temporary)
        try:
            yield temporary
        except BaseException:
            shutil.rmtree(temporary)
            raise
        if os.path.exists(output_dir):
            os.rmdir(output_dir)
        os.rename(temporary, output_dir)


def check_output(output_dir, source):
    """Raises ValueError if the output folder is in use or in the source.

    Or if it is remote: there, a whole folder cannot be renamed.
    """
    if filesystem.is_remote(output_dir):
        raise ValueError(
            f"--to={output_dir} is remote; wanted a local folder. Copy it from "
            "there."
        )
    if os.path.isfile(output_dir):
        raise ValueError(f"--to={output_dir} is a file; wanted a new folder.")
    if not output_dir or (os.path.isdir(output_dir) and os.listdir(output_dir)):
        raise ValueError(
            f"--to={output_dir or '/'} is not empty; wanted a new folder."
        )
    if os.path.isdir(source):
        source = os.path.realpath(source)
        target = os.path.realpath(output_dir)
        if os.path.commonpath([source, target]) == source:
            raise ValueError(
                f"--to={output_dir} is inside --from={source}. Give a folder "
                "outside it."
            )
